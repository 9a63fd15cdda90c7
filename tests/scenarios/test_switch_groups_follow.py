"""A group that read on at the new home after a forced switch follows its home again once the old one is a twin."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import ClusterFactory
from tests.scenarios.mirror_rig import until
from tests.scenarios.switch_rig import carried
from tests.scenarios.test_groups import commit, committed
from tests.scenarios.test_mirror_basic import fill

TOPIC, READS_ON, AT_EAST = "follow-orders", "follow-readers", "follow-tail"


@pytest.mark.long
def test_groups_follow_their_home_again_after_a_fail_back(cluster_factory: ClusterFactory, tmp_path: Path) -> None:
    east, west = (cluster_factory(name, heap_mb=256) for name in ("east", "west"))
    with carried(east, west, TOPIC, tmp_path) as rig:
        commit(east, READS_ON, {(TOPIC, 1): 6})
        until(lambda: committed(west, READS_ON, TOPIC, 1) == 6, 60, "its place has crossed", rig.rig)
        said = rig.switch("run", TOPIC, "--to", "west", "--force", "--yes")
        assert said.code == 0, said.text
        fill(west, TOPIC, 20, partition=1)
        # They had read on there, too, before their consumers went.
        commit(east, READS_ON, {(TOPIC, 1): 7})
        commit(east, AT_EAST, {(TOPIC, 2): 9})
        commit(west, READS_ON, {(TOPIC, 1): 15})
        commit(west, AT_EAST, {(TOPIC, 2): 4})
        said = rig.switch("failback", TOPIC, "--old", "east", "--yes")
        assert said.code == 0, said.text
        assert f"restore offsets: group {READS_ON} follows west again" in said.text, said.text
        until(lambda: committed(east, READS_ON, TOPIC, 1) == 15, 60, "as far as the twin goes by now", rig.rig)
        assert committed(east, AT_EAST, TOPIC, 2) == 9, "one that is further on is left alone"
        commit(west, READS_ON, {(TOPIC, 1): 24})
        until(lambda: committed(east, READS_ON, TOPIC, 1) == 24, 60, "it follows", rig.rig)
