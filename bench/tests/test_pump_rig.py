"""The rig of the pump's CPU measures a task that carries, of this tree and of another."""

from __future__ import annotations

import pytest

from bench.measure.pump_rig import ROOT, limits_from, of_tree, shipped_bounds
from bench.measure.rig_peers import WORKLOADS, Stretch, stretch_of
from twinshore.kafka.protocol.record_batch import split_batches
from twinshore.replication.task.core.messages import TaskLimits


def test_a_peers_bytes_are_batches_at_the_offsets_that_are_asked_for() -> None:
    stretch: Stretch = stretch_of("small")
    headers = [header for _, header in split_batches(stretch.at(1_000))]
    assert [header.base_offset for header in headers] == list(range(1_000, 1_000 + stretch.offsets, 4))
    assert len(headers) > 50


@pytest.mark.long
@pytest.mark.parametrize(
    "workload", [one if one == "small" else pytest.param(one, marks=pytest.mark.long) for one in WORKLOADS]
)
def test_each_workload_crosses_and_its_cpu_is_told(workload: str) -> None:
    assert 0 < of_tree(ROOT, workload, 4_000) < 10_000


def test_both_tasks_have_the_bounds_that_the_settings_give() -> None:
    """But for connections to what is far; what an older tree does not know is left out."""
    assert limits_from({**shipped_bounds(), "of_a_later_day": 3}) == TaskLimits(far_streams=1)
