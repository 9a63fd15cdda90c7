"""Which line asks for a partition, and that a far source's lines part without losing one."""

from __future__ import annotations

from dataclasses import replace

from tests.replication.task.test_lane_bounds import NOW_MS, SOURCE_ID, running_task
from twinshore.kafka.protocol.fetch import FetchedPartitionById, FetchResponseById
from twinshore.kafka.protocol.record_batch import Record, encode_batch
from twinshore.replication.task.core.batches import PooledBuffer
from twinshore.replication.task.core.messages import TaskLimits
from twinshore.replication.task.core.partitions import TaskPartitions

NEAR, SECOND = (1, 0), (1, 1)
FAR = FetchResponseById(0, 0, 5, [])


def brought(*numbers: int) -> FetchResponseById:
    """Ten records of each of these partitions."""
    records = [Record(offset, NOW_MS, None, b"x" * 100, ()) for offset in range(10)]
    data = memoryview(bytes(encode_batch(records, base_offset=0))).toreadonly()
    parts = [
        FetchedPartitionById(bytes.fromhex(SOURCE_ID), number, 0, 99, 99, 0, None, None, [], data) for number in numbers
    ]
    return FetchResponseById(0, 0, 5, parts)


def asked(task: TaskPartitions, line: tuple[int, int]) -> dict[int, int]:
    """Partitions that are new or moved in the next order of a line, and from where; forgotten ones at -1."""
    order = task.fetch_order(line)
    if order is None:
        return {}
    return {part: -1 for _, part in order.forgotten} | {one.partition: one.position for one in order.partitions}


def test_a_near_source_is_read_by_one_line() -> None:
    task = running_task(TaskLimits(), 4)
    assert task.lines() == ({NEAR}, {2})
    assert asked(task, NEAR) == {0: 0, 1: 0, 2: 0, 3: 0}


def test_the_lines_to_a_far_source_part_and_each_partition_has_one() -> None:
    task = running_task(TaskLimits(), 4)
    asked(task, NEAR)
    task.scheduler.widen(FAR)
    assert task.lines() == ({NEAR, SECOND}, {2})
    task.fetched(NEAR, brought(0, 1), PooledBuffer(bytearray()), 0.0, NOW_MS)
    assert asked(task, SECOND) == {1: 10, 3: 0}, "what the old line brought after the parting is not asked for again"
    assert asked(task, NEAR) == {0: 10, 1: -1, 3: -1}
    task.scheduler.widen(FAR)
    assert asked(task, SECOND) == {}, "they part once"


def test_what_the_new_line_was_asked_for_already_is_taken_from_it_alone() -> None:
    task = running_task(TaskLimits(), 2)
    asked(task, NEAR)
    task.scheduler.widen(FAR)
    assert asked(task, SECOND) == {1: 0}
    task.fetched(NEAR, brought(1), PooledBuffer(bytearray()), 0.0, NOW_MS)
    task.fetched(SECOND, brought(1), PooledBuffer(bytearray()), 0.0, NOW_MS)
    (track,) = [one for one in task.replicators.values() if one.config.partition == 1]
    assert track.fetched == 10
    assert len(track.waiting) == 1, "once, whichever came first"


def test_what_was_asked_of_one_leader_is_not_said_to_come_from_the_next() -> None:
    """The epoch may change while the fetch is out: others of a broadcast must not be fed this as the new leader's."""
    task = running_task(TaskLimits(), 1)
    (track,) = task.replicators.values()
    track.leaders = replace(track.leaders, source_epoch=4)
    task.wake(track)
    asked(task, NEAR)
    track.leaders = replace(track.leaders, source_epoch=5)
    task.fetched(NEAR, brought(0), PooledBuffer(bytearray()), 0.0, NOW_MS)
    assert (track.fetched, track.source.led) == (10, 4)
    task.wake(track)
    assert asked(task, NEAR) == {0: 10}
    task.fetched(NEAR, brought(), PooledBuffer(bytearray()), 0.0, NOW_MS)
    assert track.source.led == 4, "an answer without this partition says nothing of it"
