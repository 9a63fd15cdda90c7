"""What is asked of each cluster, and what becomes of whoever asks where something is wrong."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, cast

import pytest

from testkit.errors import mentions
from testkit.log_lines import LogLines
from twinshore.client import FailoverProducer
from twinshore.client.discovery import routing_topic
from twinshore.client.discovery.routing_topic import HomeTracker
from twinshore.client.sites import sites_of
from twinshore.kafka.cluster import KafkaCluster
from twinshore.lab.ports import free_port
from twinshore.routing.core.home_records import HomeLog
from twinshore.routing.core.subscribers import Pause, WriteTo
from twinshore.routing.homes_topic import HomesTopic, SubscribersTopic


class Answers:
    """A cluster that has this id, and nothing to say."""

    homes = ("some",)
    log = HomeLog()

    def __init__(self, cluster_id: str) -> None:
        self.id = cluster_id

    def cluster_id(self) -> str:
        return self.id

    def read(self) -> dict[str, Any]:
        return {}

    def say(self, *_: object) -> None:
        pass


def asks(centre: HomeTracker, name: str, cluster_id: str) -> None:
    played = Answers(cluster_id)
    notes = cast(HomesTopic, played), cast(SubscribersTopic, played)
    centre._ask(centre._sites[name], cast(KafkaCluster, played), *notes)


def test_a_cluster_that_was_the_expected_one_is_written_to_no_more_once_another_one_answers_there(
    log_lines: LogLines,
) -> None:
    clusters = {
        "east": {"bootstrap.servers": "127.0.0.1:1", "twinshore.cluster.id": "E"},
        "west": {"bootstrap.servers": "127.0.0.1:2"},
    }
    centre = HomeTracker("shop", ["orders"], sites_of(clusters, {}), "east")
    asks(centre, "east", "E")
    assert isinstance(centre.order("orders"), Pause), "west may know of a switch"
    asks(centre, "west", "W")
    assert centre.order("orders") == WriteTo("east", 0)
    asks(centre, "east", "a stranger's")
    asks(centre, "west", "W")
    assert isinstance(centre.order("orders"), Pause)
    assert [mentions(one, "east", "a stranger's", "E") for one in log_lines] == [True]
    asks(centre, "east", "E")
    assert centre.order("orders") == WriteTo("east", 0)


@pytest.mark.usefixtures("raising_handler")
def test_whoever_asks_goes_on_where_a_file_is_away_for_a_moment_or_somebody_raises(
    tmp_path: Path, log_lines: LogLines
) -> None:
    ca = tmp_path / "ca.pem"
    site = {"bootstrap.servers": "127.0.0.1:1", "security.protocol": "SSL", "ssl.ca.location": str(ca)}
    centre = HomeTracker("shop", ["orders"], sites_of({"east": site}, {}), "east")
    centre.start()
    until_s = time.monotonic() + 30
    while not log_lines and time.monotonic() < until_s:
        time.sleep(0.01)
    time.sleep(0.1)
    assert [one.is_alive() for one in centre._threads] == [True]
    assert ["ca.pem" in one or "No such file" in one for one in log_lines] == [True], log_lines
    centre.stop()
    assert [one.is_alive() for one in centre._threads] == [False]


def test_clusters_that_answer_nobody_are_told_of_and_named_where_a_call_finds_no_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log_lines: LogLines
) -> None:
    """Both at dead ports. Whoever waits for room hears why, and what is on the disk keeps nobody from ending."""
    monkeypatch.setattr(routing_topic, "WARN_UNAVAILABLE_AFTER_S", 0.5)
    dead = {name: {"bootstrap.servers": f"127.0.0.1:{free_port()}", "log_level": 0} for name in ("east", "west")}
    producer = FailoverProducer({}, clusters=dead, spool=tmp_path / "spool", spool_bytes_max=64 << 10, max_block_s=3.0)
    why = r"no room for as long as 3 s: .*\(east: no answer .* refused; west: no answer .* refused\)"
    with pytest.raises(BufferError, match=why):
        while True:
            producer.produce("orders", b"x" * 2_000)
    assert {one.partition(":")[0] for one in log_lines} == {"east", "west", "protection is not read"}
    begun_s = time.monotonic()
    left = producer.close()
    assert left > 10 and time.monotonic() < begun_s + 10, "30 s are for clusters that answer"
