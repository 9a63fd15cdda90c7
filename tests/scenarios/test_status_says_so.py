"""`twinshore status`, /metrics and /health beside a mirror that is paused, cut off, killed and stopped.

What they say of lag is what the clusters' own ends say, or it has its age.
"""

from __future__ import annotations

import json
import os
import re
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from testkit.errors import mentions
from tests.scenarios.incident_stage import CALM, LINK, IncidentStage
from tests.scenarios.mirror_rig import until
from twinshore.config.settings import load_settings
from twinshore.lab.ports import free_port
from twinshore.monitoring.link_status import as_values, read_link_views
from twinshore.state.store import open_store

pytestmark = [
    pytest.mark.timeout(400),
    pytest.mark.claim(
        "groups",
        "true-status",
        "status, /metrics and /health say the true lag, or how old it is, beside a mirror that is paused,"
        " cut off from either side, killed or stopped; a side that is down is waited for within 10 s",
    ),
]
SOON_S = 10.0
UP_S = 180.0  # a broker or a mirror that starts beside much else
TOPIC = "counted"
PARTITIONS = 2


@dataclass(frozen=True)
class Told:
    """State and lag of the link by each of the three; None where one says that it does not know."""

    status: tuple[str, int | None]
    metrics: tuple[str, int | None]
    health: tuple[str, int | None]

    @property
    def all(self) -> set[tuple[str, int | None]]:
        return {self.status, self.metrics, self.health}


class Watched(IncidentStage):
    """A stage whose mirror serves metrics."""

    port: int

    def status(self) -> dict[str, Any]:
        """What `twinshore status --json --topics` says."""
        settings = load_settings(self.rig.process.settings, os.environ)
        with open_store(settings.store.url) as store:
            (view,) = read_link_views(store, settings, [LINK], clock=lambda: int(time.time() * 1000), topics=True)
        return as_values(view, topics=True)

    def told(self) -> Told:
        said, metrics = self.status(), self.metrics()
        health = json.loads(self.get("/health"))["links"].get(LINK, {})
        (state,) = re.findall(r'^twinshore_link_state\{link="[^"]*",state="(\w+)"\} 1\.0$', metrics, re.MULTILINE)
        lag = re.findall(r"^twinshore_link_lag_records\{[^}]*\} (\S+)$", metrics, re.MULTILINE)
        return Told(
            (said["state"], said["lag_records"]),
            (state, int(float(lag[0])) if lag else None),
            (health.get("state", ""), health.get("lag_records")),
        )

    def get(self, path: str) -> str:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=10) as found:
                return str(found.read().decode())
        except urllib.error.HTTPError as error:
            with error:
                return str(error.read().decode())

    def metrics(self) -> str:
        return self.get("/metrics")

    def missing(self) -> int:
        """What the clusters say themselves."""
        places = [(CALM, 0), *((TOPIC, number) for number in range(PARTITIONS))]
        return sum(self.ends(self.east, *place) - self.ends(self.west, *place) for place in places)

    def until_all_say(self, state: str, lag: int | None, within_s: float = SOON_S) -> float:
        """How long until all three say so."""
        began_s = time.monotonic()
        while (told := self.told()).all != {(state, lag)}:
            assert time.monotonic() - began_s < within_s, (state, lag, told, self.status())
            time.sleep(0.1)
        return time.monotonic() - began_s

    def level(self, within_s: float = 30.0) -> None:
        """Waits until all of the topic has crossed: a lag of 0 may have been seen before the last write."""
        for partition in range(PARTITIONS):
            self.crossed(TOPIC, partition, within_s)

    def write(self, count: int) -> None:
        for partition in range(PARTITIONS):
            self.put(self.east, TOPIC, partition, [[b"one"] * (count // PARTITIONS)])


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    port = free_port()
    mirror: dict[str, object] = {"metrics_port": port, "heartbeat_s": 0, "tasks_per_link": 1, "away_after_s": 4}
    made = Watched(tmp_path_factory.mktemp("says"), mirror)
    made.port = port
    try:
        made.up()
        made.east.create_topic(TOPIC, partitions=PARTITIONS)
        made.start()
        yield made
    finally:
        made.close()


def test_a_paused_link_has_its_true_lag(stage: Watched) -> None:
    stage.write(100)
    stage.level()
    stage.until_all_say("flowing", 0)

    stage.rig.verb("link", "pause", LINK)
    stage.rig.until_said("paused: nothing is replicated")
    stage.write(1_000)
    stage.until_all_say("paused", 1_000)
    assert stage.missing() == 1_000
    (counted,) = [one for one in stage.status()["topics"] if one["topic"] == TOPIC]
    assert (counted["twin_end"], counted["source_end"], counted["lag_records"]) == (100, 1_100, 1_000)
    assert counted["recovery_point_s"] > 0
    stage.rig.verb("link", "resume", LINK)
    stage.level()
    stage.until_all_say("flowing", 0)


def test_a_topic_that_is_filtered_out_is_missed_no_more(stage: Watched) -> None:
    """What it took meanwhile counted for ever in lag and recovery point."""
    stage.rig.verb("link", "pause", LINK)
    # The log may have said so of an earlier pause.
    stage.until(lambda: stage.status()["sentence"] == "nothing is replicated", SOON_S, "nothing is replicated")
    stage.write(100)
    stage.until_all_say("paused", 100)
    stage.rig.verb("link", "filter", LINK, "--exclude", TOPIC)
    stage.rig.verb("link", "resume", LINK)
    stage.until_all_say("flowing", 0)
    for level in ("link", "topic"):
        found = re.findall(rf"^twinshore_{level}_recovery_point_seconds\{{.*\}} (\S+)$", stage.metrics(), re.MULTILINE)
        assert found == ["0.0"], "of the neighbour alone"
    (counted,) = [one for one in stage.status()["topics"] if one["topic"] == TOPIC]
    assert (counted["excluded"], counted["lag_records"]) == (True, None)
    stage.rig.verb("link", "reset", LINK, "--name", "exclude")
    stage.level()
    stage.until_all_say("flowing", 0)
    assert not stage.status()["topics"][1]["excluded"]


@pytest.mark.long
def test_a_side_that_is_down_is_waited_for_and_lag_goes_on_or_has_its_age(stage: Watched) -> None:
    (east,), (west,) = stage.east.brokers, stage.west.brokers
    stage.write(2)
    stage.level()  # what has no twin yet has no lag
    stage.until_all_say("flowing", 0)
    west.kill()
    stage.write(300)
    took_s = stage.until_all_say("waiting", 300)
    print(f"told: a target that was killed is waited for after {took_s:.1f} s")
    assert "west" in stage.status()["says"]
    stage.row("", "target away")
    assert re.search(r"west does not answer: .*, open incident \d+", stage.rig.verb("status"))
    west.restart()
    stage.level(UP_S)
    stage.until_all_say("flowing", 0, UP_S)

    east.kill()
    took_s = until(lambda: {state for state, _ in stage.told().all} == {"waiting"}, SOON_S, "it waits", stage.rig)
    print(f"told: a source that was killed is waited for after {took_s:.1f} s")
    stage.until_all_say("waiting", None, 2 * SOON_S)
    said_then = stage.status()
    assert (said_then["last_lag_records"], said_then["lag_seen_by"]) == (0, "store")
    assert said_then["lag_age_s"] > 5
    assert re.search(r"^twinshore_link_unknown_lag_partitions\{[^}]*\} 3\.0$", stage.metrics(), re.MULTILINE)
    assert mentions(stage.rig.verb("status"), "lag unknown", "east", "last seen 0")
    east.restart()
    stage.until_all_say("flowing", 0, UP_S)


@pytest.mark.long
def test_without_a_mirror_the_source_is_asked_and_a_stopped_one_is_called_so(stage: Watched) -> None:
    stage.write(8)
    ends = {(TOPIC, number): stage.ends(stage.east, TOPIC, number) for number in range(PARTITIONS)}
    # What is killed before its receipts are written has left less behind than has crossed.
    stage.until(lambda: ends.items() <= stage.rig.told(LINK).items(), UP_S, "it is receipted")
    stage.until_all_say("flowing", 0, UP_S)
    stage.rig.process.kill()
    stage.write(200)
    began_s = time.monotonic()
    while (left := stage.status())["state"] != "unknown":
        assert time.monotonic() - began_s < SOON_S, left
        time.sleep(0.1)
    assert (left["last_state"], left["lag_records"], left["lag_seen_by"]) == ("flowing", 200, "source")
    assert stage.missing() == 200
    assert "no status for" in left["says"]
    assert left["records_per_s"] is None

    stage.rig.process.start()
    stage.level(UP_S)
    stage.until_all_say("flowing", 0, UP_S)
    assert stage.rig.process.end() == 0
    stage.write(8)
    left = stage.status()
    assert (left["state"], left["lag_records"], left["lag_seen_by"]) == ("stopped", 8, "source")
    assert mentions(left["says"], "in good order")
    stage.east.brokers[0].kill()
    left = stage.status()
    assert (left["state"], left["lag_records"], left["last_lag_records"]) == ("stopped", None, 0)
    assert re.search(r"stopped .* 0 \(\d+ s old\)", stage.rig.verb("status"))
