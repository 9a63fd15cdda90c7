"""What is asked of each cluster, and what becomes of whoever asks where something is wrong."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, cast

from twinshore.client.centres.homes import HomesCentre
from twinshore.client.sites import sites_of
from twinshore.client.warned import Warned
from twinshore.homes.following import Park, Write
from twinshore.homes.home_notes import FollowerNotes, HomeNotes
from twinshore.kafka.cluster import KafkaCluster


class Answers:
    """A cluster that has this id, and nothing to say."""

    homes = ("some",)

    def __init__(self, cluster_id: str) -> None:
        self.id = cluster_id

    def cluster_id(self) -> str:
        return self.id

    def read(self) -> dict[str, Any]:
        return {}

    def say(self, *_: object) -> None:
        pass


def asks(centre: HomesCentre, name: str, cluster_id: str) -> None:
    played = Answers(cluster_id)
    notes = cast(HomeNotes, played), cast(FollowerNotes, played)
    centre._ask(centre._sites[name], cast(KafkaCluster, played), *notes)


def test_a_cluster_that_was_the_expected_one_is_written_to_no_more_once_another_one_answers_there() -> None:
    clusters = {
        "east": {"bootstrap.servers": "127.0.0.1:1", "twinshore.cluster.id": "E"},
        "west": {"bootstrap.servers": "127.0.0.1:2"},
    }
    said: list[str] = []
    centre = HomesCentre("shop", ["orders"], sites_of(clusters, {}), "east", warn=said.append)
    asks(centre, "east", "E")
    assert centre.order("orders") == Write("east", 0)
    asks(centre, "east", "a stranger's")
    asks(centre, "west", "W")
    assert isinstance(centre.order("orders"), Park)
    assert said == ["east is cluster a stranger's, and E was expected: it is not followed"]
    asks(centre, "east", "E")
    assert centre.order("orders") == Write("east", 0)


def test_whoever_asks_goes_on_where_a_file_is_away_for_a_moment_or_somebody_raises(tmp_path: Path) -> None:
    ca = tmp_path / "ca.pem"
    site = {"bootstrap.servers": "127.0.0.1:1", "security.protocol": "SSL", "ssl.ca.location": str(ca)}
    said: list[str] = []

    def warn(sentence: str) -> None:
        said.append(sentence)
        raise BrokenPipeError

    centre = HomesCentre("shop", ["orders"], sites_of({"east": site}, {}), "east", warn=Warned(warn).at_once)
    centre.start()
    until_s = time.monotonic() + 30
    while not said and time.monotonic() < until_s:
        time.sleep(0.01)
    time.sleep(0.1)
    assert [one.is_alive() for one in centre._threads] == [True]
    assert ["ca.pem" in one or "No such file" in one for one in said] == [True], said
    centre.stop()
    assert [one.is_alive() for one in centre._threads] == [False]
