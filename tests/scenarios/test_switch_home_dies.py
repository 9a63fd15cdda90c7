"""The old home dies behind the point of no return of a planned switch: writers go on at the new one all the same."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path

import pytest

from tests.conftest import ClusterFactory
from tests.scenarios.mirror_rig import until
from tests.scenarios.switch_rig import carried, ended
from tests.scenarios.test_mirror_basic import fill
from twinshore.kafka.cluster import KafkaCluster
from twinshore.routing.homes_topic import HomesTopic
from twinshore.switch.core.steps import SwitchStep

TOPIC = "dies-orders"
QUICK = ("tests.scenarios.killed_at", "never", "before")


@pytest.mark.long
def test_a_home_that_dies_behind_the_point_of_no_return(cluster_factory: ClusterFactory, tmp_path: Path) -> None:
    east, west = (cluster_factory(name, heap_mb=256) for name in ("east", "west"))
    with carried(east, west, TOPIC, tmp_path) as rig:
        before = rig.level()
        rig.killed(SwitchStep.FENCE, "before", "run", TOPIC, "--to", "west", "--yes")
        east.brokers[0].kill()
        began = time.monotonic()
        child, log = rig.begin("resume", module=QUICK)
        until(lambda: "promote: " in log.read_text(encoding="utf-8"), 60, "it is flipped", rig.rig)
        took_s = time.monotonic() - began
        with closing(KafkaCluster(west.cluster)) as kafka:
            line = HomesTopic(kafka).read()[TOPIC]
        assert (line.home, line.term, line.state) == ("west", 2, "settled")
        fill(west, TOPIC, 3, partition=1)
        print(f"told: flipped {took_s:.1f} s after somebody went on with it\n{log.read_text(encoding='utf-8')}")
        assert took_s < 30.0
        assert child.alive(), "it waits for the old home, which it has to guard"
        east.brokers[0].restart()
        assert ended(child, log) == 0, log.read_text(encoding="utf-8")
        print(log.read_text(encoding="utf-8"))
        rig.settled("west", 2)
        assert rig.level() == [before[0] + 1, before[1] + 4, before[2] + 1]
        rig.same("read_uncommitted")
