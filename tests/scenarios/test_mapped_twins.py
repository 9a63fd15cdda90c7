"""Twins that others have written to: MirrorMaker's copies go on at the very next record, and the map is true."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.mapped_stage import Move
from twinshore.lab import LabCluster


@pytest.mark.long
@pytest.mark.parametrize("killed", [False, True], ids=["MirrorMaker stopped", "MirrorMaker killed"])
def test_a_copy_of_mirror_maker_is_carried_on(
    east: LabCluster, west: LabCluster, unique_topic: str, tmp_path: Path, killed: bool
) -> None:
    moved = Move(east.cluster, west.cluster, unique_topic.replace(" ", "-"), tmp_path, killed=killed).run()
    assert (moved.lost, moved.doubled, moved.reordered, moved.wrong) == (0, 0, 0, 0), moved
    assert moved.looked_up == moved.records - moved.by_mirror_maker
    assert len(moved.sentences) == 2
    assert all("behind MirrorMaker's note of" in sentence for sentence in moved.sentences)
