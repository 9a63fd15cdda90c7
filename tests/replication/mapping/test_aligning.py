"""Where the records of a twin lie on its source, though a fresh queue has left some out that nobody told of."""

from __future__ import annotations

import random
from array import array

import pytest

from twinshore.config.model import OffsetRun, SourceOffset, TargetOffset
from twinshore.replication.core.mapping import map_each_record, match_latest_offsets, offsets_between
from twinshore.replication.task.core.messages import LandedBatch


@pytest.mark.parametrize("seed", range(50))
def test_all_are_found_at_an_offset_that_says_the_same_in_their_order(seed: int) -> None:
    chance = random.Random(seed)
    offsets = sorted(chance.sample(range(100, 1_000), 80))
    marks = [chance.randrange(20) for _ in offsets]
    sent = sorted(chance.sample(range(80), chance.randint(1, 40)))
    found = match_latest_offsets([marks[at] for at in sent], array("q", offsets), array("q", marks))
    assert found is not None, f"seed {seed}"
    assert found == sorted(set(found))
    by_offset = dict(zip(offsets, marks, strict=True))
    assert [by_offset[one] for one in found] == [marks[at] for at in sent]
    assert all(one >= offsets[at] for one, at in zip(found, sent, strict=True)), "never earlier: none is sent twice"


def test_what_is_not_all_there_is_nowhere() -> None:
    assert match_latest_offsets([7, 9], array("q", [1, 2, 3]), array("q", [9, 8, 7])) is None
    assert match_latest_offsets([7, 8, 9, 9], array("q", [1, 2, 3]), array("q", [7, 8, 9])) is None


def test_runs_of_records_are_offset_runs_and_what_lies_between_them_was_dropped() -> None:
    fresh = [LandedBatch(50, 3, 7), LandedBatch(53, 2, 10)]
    offset_runs = map_each_record(fresh, [20, 21, 30, 31, 40])
    assert offset_runs == [
        OffsetRun(SourceOffset(20), TargetOffset(50), 2, 7),
        OffsetRun(SourceOffset(30), TargetOffset(52), 2, 9),
        OffsetRun(SourceOffset(40), TargetOffset(54), 1, 11),
    ]
    assert offsets_between(10, offset_runs) == [(10, 20), (22, 30), (32, 40)]
    assert offsets_between(20, offset_runs) == [(22, 30), (32, 40)]
