"""What landed beyond the reach is found again from sequences, and each record of the source has its place."""

from __future__ import annotations

import random

from twinshore.config.model import Extent, SourceOffset, TargetOffset, follow_on
from twinshore.replication.core.mapping import Counterpart, on_source, on_target
from twinshore.replication.task.core.config import Landed, Reach, Unclear, beyond, complete, reach_of

WRAP = 2**31


def extent(source: int, target: int, length: int, sequence: int) -> Extent:
    return Extent(SourceOffset(source), TargetOffset(target), length, sequence)


def test_what_is_known_is_passed_by_and_the_rest_completes_the_map() -> None:
    reach = Reach(100, 50, 7)
    fresh = beyond(reach, [Landed(48, 2, 5), Landed(50, 3, 7), Landed(60, 2, 10)])
    assert fresh == [Landed(50, 3, 7), Landed(60, 2, 10)]
    found = complete(reach, fresh, [(90, 99), (99, 102), (105, 120)])
    assert found == [extent(100, 50, 2, 7), extent(105, 52, 1, 9), extent(106, 60, 2, 10)]
    assert reach_of(found[-1]) == Reach(108, 62, 12, last_source=107, last_target=61)
    assert beyond(reach, []) == []


def test_a_batch_that_lies_across_the_reach_counts_from_there() -> None:
    assert beyond(Reach(100, 50, 7), [Landed(48, 6, 5)]) == [Landed(50, 4, 7)]


def test_a_gap_of_ours_alone_is_closed_and_any_other_is_not_guessed() -> None:
    reach = Reach(0, 50, WRAP - 2)
    assert beyond(reach, [Landed(54, 2, 2)]) == [Landed(50, 4, WRAP - 2), Landed(54, 2, 2)]
    unclear = beyond(reach, [Landed(55, 2, 2)])
    assert isinstance(unclear, Unclear)
    assert "4 records before offset 55" in unclear.sentence


def test_a_twin_that_holds_more_than_the_source_is_not_explained() -> None:
    unclear = complete(Reach(0, 0, 0), [Landed(0, 5, 0)], [(0, 3)])
    assert isinstance(unclear, Unclear)
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
            batches.append(Landed(end, len(ours), (first + index) % WRAP))
            truth += [extent(one, end + n, 1, (first + index + n) % WRAP) for n, one in enumerate(ours)]
            end, index = end + len(ours), index + size
        known = chance.randrange(len(truth))
        reach = reach_of(truth[known - 1]) if known else Reach(0, 0, first)
        stale = chance.randint(0, 3)
        from_batch = next(n for n, one in enumerate(batches) if one.target + one.records > truth[known].target)
        fresh = beyond(reach, batches[max(0, from_batch - stale) :])
        assert not isinstance(fresh, Unclear)
        assert complete(reach, fresh, [(one, one + 1) for one in records]) == follow_on(None, truth[known:])


def test_an_offset_of_either_side_is_found_on_the_other() -> None:
    first, second = extent(0, 10, 5, 0), extent(8, 15, 2, 5)
    assert on_target(SourceOffset(4), first, second) == Counterpart(14, exact=True)
    assert on_target(SourceOffset(6), first, second) == Counterpart(15, exact=False)
    assert on_target(SourceOffset(10), second, None) == Counterpart(17, exact=False)
    assert on_target(SourceOffset(3), None, second) == Counterpart(15, exact=False)
    assert on_target(SourceOffset(3), None, None) is None
    assert on_source(TargetOffset(16), second, None) == Counterpart(9, exact=True)
    assert on_source(TargetOffset(3), None, first) == Counterpart(0, exact=False)
    assert on_source(TargetOffset(99), second, None) == Counterpart(10, exact=False)
