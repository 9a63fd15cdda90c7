"""Whether a look at a twin sees that its source has another history by now, however the twin ends; on a real broker."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from typing import NamedTuple

import pytest

from testkit.clients import delete_records
from testkit.errors import mentions
from testkit.raw_writer import RawWriter
from twinshore.config.model import OffsetRun, SourceOffset, TargetOffset
from twinshore.kafka.cluster import KafkaCluster
from twinshore.lab.cluster import LabCluster
from twinshore.replication.task.core.batches import SequenceMap
from twinshore.replication.task.core.markers import marker_producer_id
from twinshore.replication.task.core.messages import UNKNOWN_EPOCH, EpochOffset, WrittenPosition, position_after
from twinshore.replication.task.core.position import PositionVerdict, ResumeAt, StopAt, TargetState, judge_position
from twinshore.replication.task.lookups import inspect_target
from twinshore.replication.task.mapped_lookup import inspect_mapped_target

TIME_MS = int(time.time() * 1000)
CARRIED = ["data", "data", "mark", "mark"]


class Both(NamedTuple):
    """A source and a twin on one broker, each written as the test says."""

    kafka: KafkaCluster
    source: RawWriter
    twin: RawWriter

    def write(self, source: list[str], twin: list[str]) -> None:
        for writer, steps in ((self.source, source), (self.twin, twin)):
            sequence = 0
            for step in steps:
                if step == "mark":
                    assert writer.mark(0, producer_id=marker_producer_id(writer.producer_id)) == 0
                else:
                    assert writer.write(1, sequence, time_ms=TIME_MS, value=step.encode()).error == 0
                    sequence += 1

    def seen(self, told_to: int | None = None) -> TargetState:
        named, twin = self.source.partition, self.twin.partition
        stands = {} if told_to is None else {named: EpochOffset(UNKNOWN_EPOCH, told_to)}
        return inspect_target(self.kafka, self.kafka, self.twin.producer_id, {named: twin}, stands)[named]

    def verdict(self) -> PositionVerdict:
        return judge_position(self.seen(), SequenceMap(self.twin.producer_id, self.twin.epoch, 0, 0))


@pytest.fixture
def both(east: LabCluster, unique_topic: str) -> Iterator[Both]:
    for name in ("source", "twin"):
        east.create_topic(f"{unique_topic}-{name}", partitions=1, copies=1)
    with closing(KafkaCluster(east.cluster)) as kafka:
        yield Both(kafka, *(RawWriter(kafka, f"{unique_topic}-{name}") for name in ("source", "twin")))


def test_a_twin_that_ends_in_markers_goes_on_where_the_histories_are_one(both: Both) -> None:
    both.write([*CARRIED, "data"], CARRIED)
    verdict = both.verdict()
    assert isinstance(verdict, ResumeAt)
    assert (verdict.position, verdict.next_sequence) == (4, 2)
    assert both.seen().source_epoch == 0


def test_what_no_task_told_of_and_the_source_has_no_more_is_looked_for_on_the_twin(both: Both) -> None:
    both.write(["data"] * 8, ["data", "data", "mark", "data", "mark", "mark", "data", "data"])
    delete_records(both.kafka.cluster, {both.source.partition: 6})
    assert [both.seen(told_to).unseen for told_to in (1, 3, 6)] == [((2, 3), (4, 6)), ((4, 6),), ()]
    assert both.seen().unseen == (), "nobody said how far it was told"


@pytest.mark.parametrize(
    ("source", "begin"),
    [
        (["data", "other", "mark", "mark", "data"], 1),
        (["data", "data", "mark", "data", "data"], 3),
        (["other", "other", "other", "other", "other"], 0),
    ],
)
def test_a_source_that_lost_its_end_and_grew_again_is_found_below_markers(
    both: Both, source: list[str], begin: int
) -> None:
    both.write(source, CARRIED)
    verdict = both.verdict()
    assert isinstance(verdict, StopAt)
    assert (verdict.kind, verdict.offset, verdict.end) == ("truncation", begin, 4)


@pytest.mark.parametrize(
    ("source", "stops"),
    [
        (["data", "mark", "data", "mark", "mark"], ()),
        (["data", "mark", "other", "mark", "mark"], (2, 4)),
        (["data", "mark", "data", "data", "mark"], (3, 4)),
    ],
)
def test_so_is_that_of_a_mapped_twin_which_was_told_of_all(
    both: Both, source: list[str], stops: tuple[int, ...]
) -> None:
    both.write(source, ["data", "data"])
    reach = position_after(OffsetRun(SourceOffset(2), TargetOffset(1), 1, 1))._replace(source=4)
    seen = inspect_mapped_target(
        both.kafka,
        both.kafka,
        both.twin.producer_id,
        both.source.partition,
        both.twin.partition,
        reach,
    )
    if stops:
        assert isinstance(seen.verdict, StopAt)
        assert (seen.verdict.kind, seen.verdict.offset, seen.verdict.end) == ("truncation", *stops)
    else:
        assert isinstance(seen.verdict, ResumeAt)
        assert (seen.verdict.position, seen.source_epoch) == (4, 0)


def look_at_fresh(both: Both, reach: WrittenPosition) -> TargetState:
    asked = both.kafka, both.kafka, both.twin.producer_id, both.source.partition, both.twin.partition
    return inspect_mapped_target(*asked, reach, drops=True)


def test_a_mapped_twin_that_was_passed_over_records_goes_on_behind_them(both: Both) -> None:
    """A fresh queue dropped them; nothing has landed since."""
    both.write(["data", "mark", "data", "data", "mark"], ["data", "data"])
    reach = position_after(OffsetRun(SourceOffset(2), TargetOffset(1), 1, 1))._replace(source=4)
    seen = look_at_fresh(both, reach)
    assert isinstance(seen.verdict, ResumeAt)
    assert (seen.verdict.position, seen.dropped) == (4, ())


def test_of_a_fresh_queue_what_landed_behind_records_that_were_dropped_is_found_with_them(both: Both) -> None:
    """Its task died before it told of either."""
    both.write(["a", "b", "c", "d", "mark", "e", "f", "g"], ["a", "d", "f"])
    reach = position_after(OffsetRun(SourceOffset(0), TargetOffset(0), 1, 0))
    seen = look_at_fresh(both, reach)
    assert isinstance(seen.verdict, ResumeAt)
    assert (seen.verdict.position, seen.verdict.next_sequence) == (7, 3)
    assert [(int(one.source), int(one.target), one.length) for one in seen.offset_runs] == [(3, 1, 1), (6, 2, 1)]
    assert seen.dropped == ((1, 3), (4, 6))
    asked = both.kafka, both.kafka, both.twin.producer_id, both.source.partition, both.twin.partition
    assert isinstance(inspect_mapped_target(*asked, reach).verdict, StopAt), "a queue that keeps has lost them"


def test_of_a_queue_that_keeps_no_record_is_called_dropped_though_it_is_there_twice(both: Both) -> None:
    """Sought by what they say, the latest that are the same count, and what lies before is never sent."""
    both.write(["a", "b", "b", "b"], ["a", "b"])
    reach = position_after(OffsetRun(SourceOffset(0), TargetOffset(0), 1, 0))
    asked = both.kafka, both.kafka, both.twin.producer_id, both.source.partition, both.twin.partition
    for drops, position, dropped in ((False, 2, ()), (True, 4, ((1, 3),))):
        seen = inspect_mapped_target(*asked, reach, drops=drops)
        assert isinstance(seen.verdict, ResumeAt)
        assert (seen.verdict.position, seen.dropped) == (position, dropped)


def test_of_a_fresh_queue_too_a_record_that_the_source_has_not_stops_it(both: Both) -> None:
    both.write(["a", "b", "c"], ["a", "x"])
    seen = look_at_fresh(both, position_after(OffsetRun(SourceOffset(0), TargetOffset(0), 1, 0)))
    assert isinstance(seen.verdict, StopAt)
    assert mentions(seen.verdict.sentence, "offset 1")


def test_a_gap_in_which_nobody_sees_anything_was_not_dropped(both: Both) -> None:
    both.write(["a", "mark", "mark", "b"], ["a", "b"])
    seen = look_at_fresh(both, position_after(OffsetRun(SourceOffset(0), TargetOffset(0), 1, 0)))
    assert isinstance(seen.verdict, ResumeAt)
    assert (seen.verdict.position, seen.dropped) == (4, ())


def test_what_retention_took_before_anybody_told_of_it_stops_a_mapped_twin(both: Both) -> None:
    both.write(["data"] * 4, ["data"] * 4)
    delete_records(both.kafka.cluster, {both.twin.partition: 4})
    reach = position_after(OffsetRun(SourceOffset(0), TargetOffset(0), 2, 0))
    asked = both.kafka, both.kafka, both.twin.producer_id, both.source.partition, both.twin.partition
    verdict = inspect_mapped_target(*asked, reach).verdict
    assert isinstance(verdict, StopAt)
    assert "its leader remembers more" in verdict.sentence
    assert isinstance(
        inspect_mapped_target(*asked, position_after(OffsetRun(SourceOffset(0), TargetOffset(0), 4, 0))).verdict,
        ResumeAt,
    )


def test_where_the_source_has_no_more_what_landed_untold_a_mapped_twin_is_stopped_and_not_waited_for(
    both: Both,
) -> None:
    """The look asked the source for records that it has no more, and was told to wait, for ever."""
    both.write(["data"] * 6, ["data"] * 4)
    delete_records(both.kafka.cluster, {both.source.partition: 3})
    asked = both.kafka, both.kafka, both.twin.producer_id, both.source.partition, both.twin.partition
    verdict = inspect_mapped_target(*asked, position_after(OffsetRun(SourceOffset(0), TargetOffset(0), 2, 0))).verdict
    assert isinstance(verdict, StopAt)
    assert (verdict.offset, verdict.end) == (2, 3)
    told_of_all = inspect_mapped_target(
        *asked, position_after(OffsetRun(SourceOffset(0), TargetOffset(0), 4, 0))
    ).verdict
    assert isinstance(told_of_all, ResumeAt)


def test_what_a_fresh_queue_dropped_that_its_source_has_no_more_is_told_and_not_asked_for(both: Both) -> None:
    both.write(["a", "b", "c", "d", "e", "f"], ["a", "d", "f"])
    delete_records(both.kafka.cluster, {both.source.partition: 2})
    seen = look_at_fresh(both, position_after(OffsetRun(SourceOffset(0), TargetOffset(0), 1, 0)))
    assert isinstance(seen.verdict, ResumeAt)
    assert (seen.verdict.position, seen.dropped) == (6, ((1, 3), (4, 5)))
