"""The new home dies under a planned switch, and its process with it: whoever goes on gets the topics back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from testkit.errors import mentions
from tests.conftest import ClusterFactory
from tests.scenarios.mirror_rig import until, url_in
from tests.scenarios.switch_rig import SwitchRig, carried, ended, short_leases, verdict_in
from tests.scenarios.test_mirror_basic import fill
from twinshore.kafka.cluster import KafkaCluster
from twinshore.routing.core.home_records import HomeState
from twinshore.routing.homes_topic import HomesTopic
from twinshore.state.store import open_store
from twinshore.switch.core.acl_rules import DEFERRED_CLEANUP_KIND
from twinshore.switch.core.steps import SwitchStep

__all__ = ["short_leases"]
TOPIC = "orphan-orders"
QUICK = ("tests.scenarios.killed_at", "never", "before")


@pytest.fixture
def rig(cluster_factory: ClusterFactory, tmp_path: Path) -> Iterator[SwitchRig]:
    east, west = (cluster_factory(name, heap_mb=256) for name in ("east", "west"))
    with carried(east, west, TOPIC, tmp_path) as made:
        made.level()
        yield made


def debts(rig: SwitchRig) -> list[str]:
    with open_store(url_in(rig.rig.folder)) as store:
        return [row.value for row in store.link_states.of("east<>west", DEFERRED_CLEANUP_KIND)]


def state_on_east(rig: SwitchRig) -> HomeState:
    with closing(KafkaCluster(rig.east.cluster)) as kafka:
        return HomesTopic(kafka).read()[TOPIC].state


@pytest.mark.long
def test_writers_go_on_though_the_new_home_does_not_answer(rig: SwitchRig) -> None:
    before = rig.level()
    rig.killed(SwitchStep.CATCH_UP, "before", "run", TOPIC, "--to", "west", "--yes", "--hold-s", "60")
    assert state_on_east(rig) is HomeState.HELD
    rig.west.brokers[0].kill()
    child, log = rig.begin("rollback", module=QUICK)
    until(lambda: state_on_east(rig) is HomeState.SETTLED, 30, "followers are let go", rig.rig)
    assert child.alive(), "it waits for the new home, which is to hear it too"
    fill(rig.east, TOPIC, 4, partition=1)
    code, said = ended(child, log), log.read_text(encoding="utf-8")
    assert code == 0, said
    for owed in ("held", "free"):
        assert mentions(said, "west does not answer", "the mirror", owed), said
    assert mentions(verdict_in(said), TOPIC, "at home on east"), said
    assert len(debts(rig)) == 1
    rig.west.brokers[0].restart()
    until(lambda: not debts(rig), 120, "nothing is owed any more", rig.rig)
    rig.settled("east", 1)
    assert rig.level() == [before[0], before[1] + 4, before[2]]
    rig.same()


@pytest.mark.long
@pytest.mark.usefixtures("short_leases")
def test_behind_the_flip_the_topics_come_back_by_force(rig: SwitchRig) -> None:
    rig.killed(SwitchStep.START_REVERSE, "before", "run", TOPIC, "--to", "west", "--yes")
    first = rig.record()["id"]
    assert rig.home() == ("west", 2)
    rig.west.brokers[0].kill()
    preview = rig.switch("plan", TOPIC, "--to", "east", "--force")
    assert f"ends the planned switch {first[:8]} of {TOPIC}" in preview.text, preview.text
    said = rig.switch("run", TOPIC, "--to", "east", "--force", "--yes")
    assert said.code == 0, said.text
    assert rig.home() == ("east", 3)
    fill(rig.east, TOPIC, 4, partition=1)
    rig.west.brokers[0].restart()
    until(lambda: not debts(rig), 120, "nothing is owed any more", rig.rig)
    rig.settled("east", 3)
    assert "no switch is open" in rig.switch("resume").text
