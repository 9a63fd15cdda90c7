"""Rescued records are written again in bounded batches. What a topic's home has of them is known by where they lay."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given

from tests.switch.test_decision import record
from tests.switch.test_rescued import ORIGIN, SAVED
from twinshore.config.errors import WireError
from twinshore.config.frozen import RESCUED_HEADER
from twinshore.kafka.protocol import record_batch
from twinshore.kafka.protocol.record_batch import decode_batch, encode_batch, split_batches
from twinshore.switch.core.steps import SwitchKind, SwitchState, SwitchStatus, SwitchStep, TopicMove
from twinshore.switch.core.unreplicated import (
    BATCH_BYTES,
    BATCH_RECORDS,
    END_UNKNOWN,
    ReplayedBatch,
    TransactionOutcome,
    UnreplicatedRecord,
    offset_runs_of,
    records_to_replay,
    replayed_offsets,
    split_into_batches,
)

WRITTEN = ReplayedBatch("orders", "west", 2, 7, 0, 500, ((81, 83), (85, 85)), 200)
MOVED = TopicMove(topic="orders", old_id="b" * 32, new_id="a" * 32, term=2, partitions=4, points=(0, 0, 0, 199))


def many(count: int, size: int = 1) -> list[UnreplicatedRecord]:
    return [
        UnreplicatedRecord(record_batch.Record(number, number, b"k", b"v" * size), TransactionOutcome.COMMITTED)
        for number in range(count)
    ]


def forced(**what: Any) -> list[SwitchState]:
    one = replace(record(SwitchKind.FORCED), old="west", new="east", step=SwitchStep.RELEASE, state=SwitchStatus.DONE)
    return [replace(one, topics=(replace(MOVED, **what),))]


@given(SAVED)
def test_each_record_is_in_one_batch_as_it_was(saved: list[UnreplicatedRecord]) -> None:
    some = [one for batch in split_into_batches(saved) for one in records_to_replay(batch, ORIGIN)]
    wanted = [one.record for one in saved]
    assert [(one.key, one.value, one.timestamp, one.headers[:-1]) for one in some] == [
        (one.key, one.value, one.timestamp, one.headers) for one in wanted
    ]
    assert [one.headers[-1] for one in some] == [
        (RESCUED_HEADER, b"east orders-3 %d" % record.offset) for record in wanted
    ]


def test_batches_are_bounded_and_can_be_read() -> None:
    for saved in (many(3 * BATCH_RECORDS + 1), many(20, BATCH_BYTES // 3)):
        cut = [records_to_replay(batch, ORIGIN) for batch in split_into_batches(saved)]
        assert sum(map(len, cut)) == len(saved)
        for some in cut:
            assert len(some) <= BATCH_RECORDS
            assert sum(len(one.value or b"") for one in some) <= BATCH_BYTES
            ((view, header),) = split_batches(memoryview(encode_batch(some, producer_id=7, producer_epoch=0)))
            assert decode_batch(view, header) == some


@given(SAVED.filter(bool))
def test_a_batch_knows_the_offsets_of_its_records(saved: list[UnreplicatedRecord]) -> None:
    batch = replace(WRITTEN, runs=offset_runs_of(saved))
    assert replayed_offsets([ReplayedBatch.from_json(batch.to_json())]) == {one.record.offset for one in saved}


@pytest.mark.claim(
    "switch", "reinjected", "a rescued record is written once, and once more where a switch left it behind"
)
def test_what_a_switch_by_force_left_behind_counts_as_not_written() -> None:
    assert WRITTEN.is_lost(3, forced())
    assert replace(WRITTEN, end=END_UNKNOWN).is_lost(3, forced())


def test_what_had_crossed_is_there() -> None:
    assert not WRITTEN.is_lost(3, forced(points=(0, 0, 0, 200)))
    assert not WRITTEN.is_lost(3, forced(topic="bills"))
    assert not WRITTEN.is_lost(3, forced(term=1)), "that was before"
    assert not replace(WRITTEN, cluster="east").is_lost(3, forced())


def test_garbage_is_no_batch() -> None:
    for text in ("", "[]", '{"producer": 1}', '{"runs": [1]}'):
        with pytest.raises(WireError):
            ReplayedBatch.from_json(text)
