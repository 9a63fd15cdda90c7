"""Since when twins lack what they lack, from one mirror to the next: ages grow over it, and never shrink."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from twinshore.config.model import TopicPartition
from twinshore.replication.core.lag import (
    BACKLOG_MARKS_MAX,
    BACKLOG_PARTITIONS_MAX,
    BACKLOG_S_MIN,
    ArrivalMark,
    backlog_row,
    parse_backlog,
    select_oldest_backlogs,
)
from twinshore.replication.metrics import Meters

LINK = "east->west"
RISES = st.lists(st.tuples(st.integers(1, 50_000), st.integers(1, 9)), min_size=1, max_size=64)


@given(RISES)
def test_joined_marks_make_no_age_too_small(rises: list[tuple[int, int]]) -> None:
    marks, at_ms, end = [], 0, 0
    for later_ms, more in rises:
        at_ms, end = at_ms + later_ms, end + more
        marks.append(ArrivalMark(at_ms, end))
    named = TopicPartition("orders", 3)
    kept = parse_backlog([backlog_row(LINK, select_oldest_backlogs({named: marks}), 7)])[named]
    assert len(kept) <= BACKLOG_MARKS_MAX
    assert (kept[0].at_ms, kept[-1].end) == (marks[0].at_ms, marks[-1].end)
    for offset in range(end):
        assert _first(kept, offset) <= _first(marks, offset)


def test_those_that_wait_longest_are_kept() -> None:
    waits = {
        TopicPartition("orders", number): [ArrivalMark(10_000 - number, 5)]
        for number in range(BACKLOG_PARTITIONS_MAX + 50)
    }
    kept = select_oldest_backlogs(waits)
    assert len(kept) == BACKLOG_PARTITIONS_MAX
    assert TopicPartition("orders", BACKLOG_PARTITIONS_MAX + 49) in kept
    assert TopicPartition("orders", 0) not in kept


def test_a_mirror_goes_on_with_the_age_that_the_last_one_told() -> None:
    named, before, after = TopicPartition("orders", 0), Meters(2.0), Meters(2.0)
    before.restore(LINK, named, 5, 5, 100.0)
    before.looked(LINK, {named: 9}, 100.0)
    assert not before.waits(LINK, 100.0 + BACKLOG_S_MIN / 2, 0), "no older than the last word"
    row = backlog_row(LINK, select_oldest_backlogs(before.waits(LINK, 400.0, 1_000_000)), 1_000_000)
    after.restore(LINK, named, 5, 9, 20.0)
    after.looked(LINK, {named: 12}, 20.0)
    after.recall(LINK, parse_backlog([row]), 30.0, 1_010_000)
    assert after.readings(LINK, 30.0)[named].recovery_point_s == 310.0
    after.recall(LINK, {named: [ArrivalMark(2_000_000, 9)]}, 30.0, 1_010_000)
    assert after.readings(LINK, 30.0)[named].recovery_point_s == 0.0, "a clock that was ahead"


def _first(marks: list[ArrivalMark] | tuple[ArrivalMark, ...], offset: int) -> int:
    return next(mark.at_ms for mark in marks if mark.end > offset)
