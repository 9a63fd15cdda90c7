"""A forced switch of an operator whose store is dead, and what the store makes of it when it answers again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from testkit.errors import mentions
from tests.scenarios.mirror_rig import until, url_in
from tests.scenarios.switch_rig import SwitchRig, carried
from tests.scenarios.test_mirror_basic import fill
from twinshore.kafka.cluster import KafkaCluster
from twinshore.lab.cluster import LabCluster
from twinshore.lab.ports import free_port
from twinshore.routing.homes_topic import HomesTopic


@pytest.fixture
def rig(east: LabCluster, west: LabCluster, unique_topic: str, tmp_path: Path) -> Iterator[SwitchRig]:
    with carried(east, west, unique_topic, tmp_path) as found:
        yield found


@contextmanager
def store_away(rig: SwitchRig, url: str = "") -> Iterator[None]:
    """For whoever begins a command meanwhile; the mirror has its store."""
    text = rig.settings.read_text(encoding="utf-8")
    gone = url or f"postgresql://somebody@127.0.0.1:{free_port()}/twinshore"
    rig.settings.write_text(text.replace(url_in(rig.rig.folder), gone), encoding="utf-8")
    try:
        yield
    finally:
        rig.settings.write_text(text, encoding="utf-8")


def home_line(lab: LabCluster, topic: str) -> tuple[str, int, str]:
    with closing(KafkaCluster(lab.cluster)) as kafka:
        line = HomesTopic(kafka).read()[topic]
        return line.home, line.term, line.state


def kept(lab: LabCluster) -> list[str]:
    """Switches whose records the cluster keeps."""
    with closing(KafkaCluster(lab.cluster)) as kafka:
        notes = HomesTopic(kafka)
        notes.read()
        return notes.log.records.switches()


@pytest.mark.long
def test_a_switch_that_is_killed_without_its_store_is_gone_on_with(rig: SwitchRig) -> None:
    level = rig.level()
    with store_away(rig):
        said = rig.killed("fence", "behind", "run", rig.topic, "--to", "west", "--force", "--yes")
        assert mentions(said, "from the settings", "west"), said
        assert mentions(said, "east", "not known"), said
        (switch,) = kept(rig.west)
        again = rig.move("west", "--force")
        assert (again.code, again.text.count("resumed: ")) == (0, 1), again.text
        assert again.last.startswith("done: ") and mentions(again.last, rig.topic, "west")
        assert f"{switch[:8]}" in again.text
        once_more = rig.move("west", "--force")
        assert once_more.code != 0 and mentions(once_more.text, "at home on west"), once_more.text
    fill(rig.west, rig.topic, 1, partition=1)

    until(lambda: bool(rig.switch("history").text.count(switch[:8])), 60, "the store takes it up", rig.rig)
    resumed = rig.switch("resume")
    assert resumed.code == 0, resumed.text
    rig.settled("west", 2)
    assert kept(rig.west) == []
    record = rig.record()
    assert (record["id"], record["state"], record["topics"][0]["points"]) == (switch, "done", level)
    rig.same()


@pytest.mark.long
def test_of_two_operators_one_without_the_store_the_log_decides(rig: SwitchRig) -> None:
    rig.killed("level", "before", "run", rig.topic, "--to", "west", "--force", "--yes")
    with store_away(rig):
        refused = rig.move("west", "--force")
        assert refused.code == 1
        assert f"{rig.topic} is in switch" in refused.text and "as west says" in refused.text, refused.text
        assert kept(rig.west) == []
    rig.switch("rollback")
    rig.settled("east", 1)
    with store_away(rig):
        rig.killed("level", "before", "run", rig.topic, "--to", "west", "--force", "--yes")
    told = rig.move("west", "--force")
    assert (told.code, "as west says" in told.text) == (1, True), told.text
    back = rig.switch("rollback")
    assert back.code == 0, back.text
    assert kept(rig.west) == []
    rig.settled("east", 1)
    rig.same()
