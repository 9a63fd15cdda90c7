"""When a look at a mapped twin must not go on."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from testkit.errors import mentions
from twinshore.config.model import TopicPartition
from twinshore.kafka.leader_queries import OffsetKind, ProducerState
from twinshore.kafka.protocol.error_codes import kafka_error
from twinshore.kafka.protocol.record_batch import Record, encode_batch
from twinshore.replication.task.core.messages import WrittenPosition
from twinshore.replication.task.core.position import ResumeAt, StopAt
from twinshore.replication.task.mapped_lookup import _refusal, _within_source, inspect_mapped_target

REACH = WrittenPosition(70, 50, 9)


def test_a_twin_that_lost_what_it_had_acknowledged_stops() -> None:
    stop = _refusal(REACH, 0, 49, (8, 5))
    assert isinstance(stop, StopAt)
    assert "the target lost them" in stop.sentence


def test_a_twin_cut_beyond_the_reach_stops_only_where_nobody_knows_better() -> None:
    assert _refusal(REACH, 50, 90, None) is None
    assert _refusal(REACH, 51, 90, (8, 5)) is None, "its leader remembers"
    assert _refusal(REACH._replace(warm=True), 51, 90, None) is None, "so does the task"
    stop = _refusal(REACH, 51, 90, None)
    assert isinstance(stop, StopAt)
    assert "cannot be known" in stop.sentence


def test_the_source_must_have_what_the_twin_has() -> None:
    stop = _within_source(ResumeAt(70, 1, 9), 0, 69)
    assert isinstance(stop, StopAt)
    assert (stop.kind, stop.offset, stop.end) == ("truncation", 69, 70)
    assert _within_source(ResumeAt(70, 1, 9), 75, 90) == ResumeAt(70, 1, 9, gap_to=75)
    assert _within_source(ResumeAt(70, 1, 9), 70, 70) == ResumeAt(70, 1, 9)


class Target:
    """Five records of ours from 10 on, of which nobody told."""

    def describe_producers(self, asked: list[TopicPartition]) -> dict[TopicPartition, list[ProducerState]]:
        return {asked[0]: [ProducerState(7, 0, 14, 1_014, -1, -1)]}

    def list_offsets(self, asked: list[TopicPartition], kind: OffsetKind) -> dict[TopicPartition, int]:
        return {asked[0]: 0 if kind is OffsetKind.EARLIEST else 15}

    def read_from(self, *_: object, **__: object) -> SimpleNamespace:
        records = [Record(at, 1_000 + at, None, b"v", ()) for at in range(10, 15)]
        batch = encode_batch(records, base_offset=10, producer_id=7, producer_epoch=0, base_sequence=10)
        return SimpleNamespace(records=memoryview(bytes(batch)), aborted=[])


class Trimmed:
    """A source that has nothing below 200, and nothing as young as what crossed."""

    def __init__(self, end: int) -> None:
        self._end = end

    def list_offsets(self, asked: list[TopicPartition], kind: OffsetKind) -> dict[TopicPartition, int]:
        return {asked[0]: 200 if kind is OffsetKind.EARLIEST else self._end}

    def first_since(self, *_: object) -> int:
        return -1

    def read_from(self, _: TopicPartition, offset: int, **__: object) -> SimpleNamespace:
        if not 200 <= offset <= self._end:
            raise kafka_error(1, "source: records of orders-0")
        return SimpleNamespace(records=memoryview(b""), aborted=[])


@pytest.mark.parametrize("end", [200, 300])
def test_a_fresh_twin_whose_source_lost_what_landed_untold_stops(end: int) -> None:
    """It was looked at for ever, as the source was asked for offsets that it has no more."""
    named, reach = TopicPartition("orders", 0), WrittenPosition(100, 10, 10, last_source=99, last_target=9)
    seen = inspect_mapped_target(cast(Any, Trimmed(end)), cast(Any, Target()), 7, named, named, reach, drops=True)
    assert isinstance(seen.verdict, StopAt)
    assert mentions(seen.verdict.sentence, "from offset 200 on")
