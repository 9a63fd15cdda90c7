"""How receipts add up, for any sequence of them."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from twinshore.state.core.progress_rules import advance_position, last_offset, merge_batches, new_part, refusal_reason
from twinshore.state.core.values import PartitionState, ProgressRecord, ReplicatedPosition, SourceBatch, SourceProducer


def carried(from_offset: int, to_offset: int, at_ms: int = 0) -> ProgressRecord:
    count = to_offset - from_offset
    return ProgressRecord(
        link="e->w",
        topic="t",
        partition=0,
        from_offset=from_offset,
        to_offset=to_offset,
        records=count,
        bytes=count * 10,
        batches=1,
        source_end=to_offset + 5,
        first_ms=at_ms,
        last_ms=at_ms + 1,
        lag_records=5,
    )


def at(start: int, end: int) -> ReplicatedPosition:
    return ReplicatedPosition(
        link="e->w",
        topic="t",
        partition=0,
        start_offset=start,
        to_offset=end,
        records=0,
        bytes=0,
        batches=0,
        source_end=end,
        lag_records=0,
        state=PartitionState.FLOWING,
        first_ms=0,
        last_ms=0,
    )


def test_what_follows_and_what_does_not() -> None:
    position = at(10, 20)
    assert refusal_reason(position, carried(20, 30)) is None
    assert refusal_reason(position, carried(20, 20)) is None
    assert refusal_reason(position, carried(10, 20)) is None
    assert refusal_reason(position, carried(12, 15)) is None
    assert refusal_reason(position, carried(21, 30)) == "leaves a gap from 20"
    assert refusal_reason(position, carried(21, 21)) == "leaves a gap from 20"
    assert refusal_reason(position, carried(19, 21)) is None
    assert refusal_reason(position, carried(9, 15)) == "begins before 10, where this twin's progress begins"
    assert refusal_reason(position, carried(20, 19)) == "is not a range"
    assert refusal_reason(position, carried(-1, 15)) == "is not a range"


def test_of_a_receipt_that_overlaps_only_what_is_new_counts() -> None:
    position, producers = at(0, 20), tuple(SourceProducer(7, epoch, batches(*range(12, 30, 6))) for epoch in (3, 4))
    told = replace(carried(12, 32), records=10, bytes=205, batches=3, source_producers=producers)
    new = new_part(position, told)
    assert (new.from_offset, new.to_offset, new.records, new.bytes, new.batches) == (20, 32, 6, 123, 2)
    assert new.source_producers == tuple(SourceProducer(7, epoch, batches(24)) for epoch in (3, 4))
    assert advance_position(position, new).to_offset == 32
    for one in (carried(20, 30), carried(10, 20), carried(20, 20), carried(3, 5)):
        assert new_part(position, one) == one


@given(st.lists(st.tuples(st.integers(0, 50), st.booleans()), max_size=60))
def test_nothing_is_lost_or_counted_twice(parts: list[tuple[int, bool]]) -> None:
    position, end = at(0, 0), 0
    for count, repeat in parts:
        receipt = carried(end, end + count)
        end += count
        for _ in range(1 + repeat):
            assert refusal_reason(position, receipt) is None
            position = advance_position(position, receipt)
    assert position.to_offset == position.records == end


def test_a_receipt_without_records_says_only_how_far_the_source_is() -> None:
    after = advance_position(at(0, 7), replace(carried(7, 7), batches=0, source_end=99, lag_records=92, last_ms=5))
    assert after == replace(at(0, 7), source_end=99, lag_records=92, last_ms=5)


def batches(*offsets: int) -> tuple[SourceBatch, ...]:
    return tuple(SourceBatch(offset, offset + 4, offset, offset) for offset in offsets)


def test_the_last_five_batches_of_a_producer_stay() -> None:
    known = SourceProducer(1, 0, batches(0, 10, 20, 30))
    assert merge_batches(known, SourceProducer(1, 0, batches(40, 50))).batches == batches(10, 20, 30, 40, 50)
    assert merge_batches(known, SourceProducer(1, 0, batches(20, 30, 40))).batches == batches(0, 10, 20, 30, 40)
    assert merge_batches(None, SourceProducer(1, 0, batches(*range(0, 80, 10)))).batches == batches(30, 40, 50, 60, 70)


def test_a_new_epoch_begins_anew() -> None:
    known = SourceProducer(1, 0, batches(0, 10))
    assert merge_batches(known, SourceProducer(1, 1, batches(20))) == SourceProducer(1, 1, batches(20))


def test_the_last_offset_where_sequences_wrap() -> None:
    wrapped = SourceBatch(base_sequence=2**31 - 2, last_sequence=1, base_offset=100, timestamp=0)
    assert last_offset(SourceProducer(1, 0, (wrapped,))) == 103
