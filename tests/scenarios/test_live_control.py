"""What operators change while a mirror runs between real clusters: in force within seconds, and nobody else notices."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from typer.testing import CliRunner

from testkit.control import ControlStage, Neighbour, drained, prioritised, throttle
from tests.scenarios.mirror_rig import Rig, same_ends, settings_text, spans, until
from tests.scenarios.test_mirror_basic import fill
from twinshore.cli.app import app, register_verbs
from twinshore.lab.cluster import LabCluster
from twinshore.lab.produce import Workload

LINK = "east->west"
IN_FORCE_S = 5.0


class Steered(Rig):
    """A mirror with `twinshore link` at hand."""

    def link(self, *words: str) -> str:
        register_verbs()
        file = self.folder / "steered.toml"
        result = CliRunner().invoke(app, ["link", *words, "--settings", str(file)], catch_exceptions=False)
        assert result.exit_code == 0
        return result.output


class Stage(ControlStage):
    """Speaks to the mirror without a process for each word."""

    rig: Steered

    def tell(self, *words: str) -> str:
        return self.rig.link(*words)


@pytest.fixture(scope="module")
def rig(east: LabCluster, west: LabCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Steered]:
    for topic in ("live-one", "live-two", "live-fast", "live-slow"):
        east.create_topic(topic, partitions=2)
    east.create_topic("live-neighbour")
    folder = tmp_path_factory.mktemp("live")
    mirror: dict[str, Any] = {"refresh_s": 1, "tasks_per_link": 1}
    text = settings_text(folder, [east.cluster, west.cluster], {LINK: "live-.*"}, mirror=mirror)
    (folder / "steered.toml").write_text(text)
    made = Steered(folder, text)
    made.process.start()
    try:
        made.until_said("partitions on", within_s=90)
        until(lambda: spans(west.cluster, "live-two", 2) == [(0, 0)] * 2, 60, "its twins", made)
        yield made
    finally:
        made.process.end()


@pytest.fixture(scope="module")
def stage(rig: Steered, east: LabCluster, west: LabCluster) -> Stage:
    made = Stage(east.cluster, west.cluster, LINK, rig.folder / "steered.toml", lambda: rig.process.said)
    made.rig = rig
    for topic in ("live-fast", "live-slow"):
        made.backlog(topic, 1_000_000)
        drained(made, topic)  # the first batches wait for code to be compiled
    return made


@pytest.mark.long
def test_a_links_throttle_is_kept_within_a_tenth(stage: Stage) -> None:
    found = throttle(stage, "live-fast", 3_000_000, 6.0, whole_link=True)
    assert found.off <= 0.1, found.in_words()
    assert found.in_force_s < IN_FORCE_S
    assert drained(stage, "live-fast") < 10, "nothing holds it back any more"


@pytest.mark.long
def test_a_topics_throttle_is_kept_and_its_neighbour_does_not_feel_it(
    stage: Stage, east: LabCluster, west: LabCluster
) -> None:
    with Neighbour(east.cluster, west.cluster, "live-neighbour") as neighbour:
        neighbour.latency(1.0)
        alone = neighbour.latency(3.0)
        found = throttle(stage, "live-slow", 2_000_000, 6.0, whole_link=False)
        assert found.off <= 0.1, found.in_words()
        stage.tell("throttle", LINK, "20000", "--topic", "live-slow")
        stage.in_force("live-slow at most 20,000 bytes/s")
        time.sleep(1)
        beside = neighbour.latency(3.0)
        stage.tell("throttle", LINK, "0", "--topic", "live-slow")
    assert beside.records_per_s > 0.9 * alone.records_per_s
    assert beside.p50_ms < 2 * alone.p50_ms + 3, f"{alone.in_words()} alone, {beside.in_words()} beside it"
    drained(stage, "live-slow")


@pytest.mark.long
def test_priority_decides_who_crosses_first_where_not_all_can(stage: Stage) -> None:
    rates = prioritised(stage, "live-fast", "live-slow", 3_000_000, 4.0)
    assert sum(rates.values()) == pytest.approx(3_000_000, rel=0.1)
    assert 3 < rates["live-fast"] / rates["live-slow"] < 5
    for topic in ("live-fast", "live-slow"):
        drained(stage, topic)


def test_a_paused_topic_holds_while_its_neighbour_flows_on(rig: Steered, east: LabCluster, west: LabCluster) -> None:
    fill(east, "live-one", 10)
    until(lambda: same_ends(east.cluster, west.cluster, "live-one", 2), 60, "it flows", rig)
    with Workload(east.cluster, "live-two", records_per_s=200) as flow:
        rig.link("pause", LINK, "--topic", "live-one")
        rig.until_said("topic live-one is paused", within_s=IN_FORCE_S)
        time.sleep(0.5)
        fill(east, "live-one", 10)
        time.sleep(2)
        assert spans(west.cluster, "live-one", 1) == [(0, 10)], "it stands"
        crossed = sum(end for _, end in spans(west.cluster, "live-two", 2))
        assert flow.acked - crossed < 200, "its neighbour is not a second behind"
        rig.link("resume", LINK, "--topic", "live-one")
        took_s = until(lambda: spans(west.cluster, "live-one", 1) == [(0, 20)], 30, "it goes on", rig)
    assert took_s < IN_FORCE_S
    until(lambda: same_ends(east.cluster, west.cluster, "live-two", 2), 30, "nothing is missing", rig)
    assert not rig.ledger(LINK)


def test_a_filter_is_in_force_within_seconds_both_ways(rig: Steered, east: LabCluster, west: LabCluster) -> None:
    east.create_topic("other-orders")
    fill(east, "other-orders", 7)
    rig.link("filter", LINK, "--topics", "live-.*", "--topics", "other-.*")
    took_s = until(lambda: spans(west.cluster, "other-orders", 1) == [(0, 7)], 30, "a new topic is carried", rig)
    assert took_s < IN_FORCE_S
    rig.link("filter", LINK, "--topics", "live-.*")
    rig.until_said("topic other-orders is no longer admitted", within_s=IN_FORCE_S)
    time.sleep(0.5)
    fill(east, "other-orders", 7)
    time.sleep(2)
    assert spans(west.cluster, "other-orders", 1) == [(0, 7)]
    rig.link("reset", LINK)
    fill(east, "live-one", 3)
    until(lambda: same_ends(east.cluster, west.cluster, "live-one", 2), 30, "the others never stood", rig)


def test_a_paused_link_carries_nothing_until_resumed(rig: Steered, east: LabCluster, west: LabCluster) -> None:
    rig.link("pause", LINK)
    rig.until_said("paused: nothing is replicated", within_s=2 * IN_FORCE_S)
    before = spans(west.cluster, "live-two", 1)
    fill(east, "live-two", 5)
    time.sleep(1.5)
    assert spans(west.cluster, "live-two", 1) == before
    rig.link("resume", LINK)
    took_s = until(lambda: same_ends(east.cluster, west.cluster, "live-two", 2), 30, "it goes on", rig)
    assert took_s < IN_FORCE_S
    (held,) = json.loads(rig.link("list", "--json"))
    assert held["paused"]["value"] is False
