"""What landed beyond the reach is found again from sequences, and each record of the source has its place."""

from __future__ import annotations

import random

from twinshore.config.model import OffsetRun, SourceOffset, TargetOffset, append_runs
from twinshore.replication.core.mapping import MappedOffset, translate_to_source, translate_to_target
from twinshore.replication.task.core.messages import (
    LandedBatch,
    UnclearLanding,
    WrittenPosition,
    find_landed_beyond,
    map_landed_batches,
    position_after,
)

WRAP = 2**31


def offset_run(source: int, target: int, length: int, sequence: int) -> OffsetRun:
    return OffsetRun(SourceOffset(source), TargetOffset(target), length, sequence)


def test_what_is_known_is_passed_by_and_the_rest_completes_the_map() -> None:
    reach = WrittenPosition(100, 50, 7)
    fresh = find_landed_beyond(reach, [LandedBatch(48, 2, 5), LandedBatch(50, 3, 7), LandedBatch(60, 2, 10)])
    assert fresh == [LandedBatch(50, 3, 7), LandedBatch(60, 2, 10)]
    found = map_landed_batches(reach, fresh, [(90, 99), (99, 102), (105, 120)])
    assert found == [offset_run(100, 50, 2, 7), offset_run(105, 52, 1, 9), offset_run(106, 60, 2, 10)]
    assert position_after(found[-1]) == WrittenPosition(108, 62, 12, last_source=107, last_target=61)
    assert find_landed_beyond(reach, []) == []


def test_a_batch_that_lies_across_the_reach_counts_from_there() -> None:
    assert find_landed_beyond(WrittenPosition(100, 50, 7), [LandedBatch(48, 6, 5)]) == [LandedBatch(50, 4, 7)]


def test_a_gap_of_ours_alone_is_closed_and_any_other_is_not_guessed() -> None:
    reach = WrittenPosition(0, 50, WRAP - 2)
    assert find_landed_beyond(reach, [LandedBatch(54, 2, 2)]) == [LandedBatch(50, 4, WRAP - 2), LandedBatch(54, 2, 2)]
    unclear = find_landed_beyond(reach, [LandedBatch(55, 2, 2)])
    assert isinstance(unclear, UnclearLanding)
    assert "4 of the link's records are missing before offset 55" in unclear.sentence


def test_a_twin_that_holds_more_than_the_source_is_not_explained() -> None:
    unclear = map_landed_batches(WrittenPosition(0, 0, 0), [LandedBatch(0, 5, 0)], [(0, 3)])
    assert isinstance(unclear, UnclearLanding)
    assert "more of the link's records than the source" in unclear.sentence


def test_random_histories_are_found_again() -> None:
    seed = random.SystemRandom().randrange(1 << 30)
    print(f"seed {seed}")
    chance = random.Random(seed)
    for _ in range(300):
        records, at = [], chance.randrange(50)
        for _ in range(chance.randint(1, 40)):
            at += chance.choice([1, 1, 1, 2, 5])
            records.append(at)
        first = chance.choice([0, WRAP - 10])
        truth, batches, end, index = [], [], chance.randrange(9), 0
        while index < len(records):
            size = chance.randint(1, 7)
            end += chance.choice([0, 0, 3])
            ours = records[index : index + size]
            batches.append(LandedBatch(end, len(ours), (first + index) % WRAP))
            truth += [offset_run(one, end + n, 1, (first + index + n) % WRAP) for n, one in enumerate(ours)]
            end, index = end + len(ours), index + size
        known = chance.randrange(len(truth))
        reach = position_after(truth[known - 1]) if known else WrittenPosition(0, 0, first)
        stale = chance.randint(0, 3)
        from_batch = next(n for n, one in enumerate(batches) if one.target + one.records > truth[known].target)
        fresh = find_landed_beyond(reach, batches[max(0, from_batch - stale) :])
        assert not isinstance(fresh, UnclearLanding)
        assert map_landed_batches(reach, fresh, [(one, one + 1) for one in records]) == append_runs(None, truth[known:])


def test_an_offset_of_either_side_is_found_on_the_other() -> None:
    first, second = offset_run(0, 10, 5, 0), offset_run(8, 15, 2, 5)
    assert translate_to_target(SourceOffset(4), first, second) == MappedOffset(14, exact=True)
    assert translate_to_target(SourceOffset(6), first, second) == MappedOffset(15, exact=False)
    assert translate_to_target(SourceOffset(10), second, None) == MappedOffset(17, exact=False)
    assert translate_to_target(SourceOffset(3), None, second) == MappedOffset(15, exact=False)
    assert translate_to_target(SourceOffset(3), None, None) is None
    assert translate_to_source(TargetOffset(16), second, None) == MappedOffset(9, exact=True)
    assert translate_to_source(TargetOffset(3), None, first) == MappedOffset(0, exact=False)
    assert translate_to_source(TargetOffset(99), second, None) == MappedOffset(10, exact=False)
