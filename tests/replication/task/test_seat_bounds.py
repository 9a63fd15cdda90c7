"""Members of a reading whose targets take one partition and not the other: none of them harms another, or itself."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tests.replication.task.test_lane_bounds import NOW_MS, SOURCE_ID, TARGET_ID
from tests.replication.task.test_seat import LINE, OLD_S, answer
from twinshore.config.model import TopicPartition
from twinshore.kafka.protocol.batch_join import compiled_loops
from twinshore.kafka.protocol.fetch import FetchResponseById
from twinshore.kafka.protocol.produce import ProducedPartition
from twinshore.replication.task.core.batches import PooledBuffer
from twinshore.replication.task.core.markers import MarkerOutcome
from twinshore.replication.task.core.messages import Handoff, PartitionConfig, TaskLimits, narrow_limits
from twinshore.replication.task.core.partition import PartitionLeaders, PartitionReplicator
from twinshore.replication.task.core.partitions import TaskPartitions
from twinshore.replication.task.core.shared_read import QUEUE_BYTES_MAX, STARTUP_S, SharedFetch

WIDE, THIN = TopicPartition("orders", 0), TopicPartition("orders", 1)
# Who leads them at every target.
NODES = {WIDE: 2, THIN: 3}


@dataclass
class Pair:
    """So many tasks that read two partitions together."""

    reading: SharedFetch
    tasks: list[TaskPartitions]
    now_s: float = 0.0

    def track(self, task: int, named: TopicPartition) -> PartitionReplicator:
        return self.tasks[task].replicators[named]

    def turn(self, later_s: float = 0.0) -> None:
        self.now_s += later_s
        for task in self.tasks:
            task.scheduler.refill(self.now_s)
            task.go_on(self.now_s, NOW_MS)

    def brings(self, task: int, named: TopicPartition, count: int, size: int) -> None:
        """What this task asks for comes; then every task has a turn."""
        one = self.tasks[task]
        assert one.fetch_order(LINE) is not None, "it asks for nothing"
        part = answer(one.replicators[named].fetched, count, size).partitions[0]._replace(partition=named.partition)
        one.fetched(LINE, FetchResponseById(0, 0, 5, [part]), PooledBuffer(bytearray()), self.now_s, NOW_MS)
        self.turn()

    def sends(self, task: int, *partitions: TopicPartition) -> None:
        """All of them that waits is sent by this task, and acknowledged."""
        one, key = self.tasks[task], bytes.fromhex(TARGET_ID)
        for node in (NODES[named] for named in partitions):
            self.sees(task, node)
            while sent := one.produce_order(node, self.now_s, NOW_MS):
                for entry in sent:
                    if entry.buffer:
                        entry.buffer.uses -= 1
                parts = [
                    ProducedPartition(key, x.replicator.config.partition, 0, x.batch.base, -1, 0, None, None)
                    for x in sent
                ]
                one.produced(sent, parts, self.now_s)
        self.turn()

    def sees(self, task: int, node: int) -> None:
        rests = self.tasks[task].next_end_checks(node, self.now_s, NOW_MS, idle=True)
        ends = [MarkerOutcome("orders", rest.replicator.config.partition, 0, rest.end) for rest in rests]
        self.tasks[task].on_end_checked(rests, ends, self.now_s)


def pair(limits: TaskLimits, high_bytes: int, tasks: int = 2) -> Pair:
    made = Pair(SharedFetch(limits, high_bytes), [])
    made.reading.tick(OLD_S - 2 * STARTUP_S)
    for _ in range(tasks):
        task = TaskPartitions(7, 0, state_expiry_ms=86_400_000, limits=limits, shared_fetch=made.reading)
        task.assign([PartitionConfig("orders", named.partition, SOURCE_ID, TARGET_ID) for named in NODES])
        for named, node in NODES.items():
            task.routed(named, PartitionLeaders(1, 0, node))
        task.take_over([Handoff("orders", named.partition, 0, 5, NOW_MS + 1_000_000) for named in NODES], 0.0)
        made.tasks.append(task)
    made.turn()
    for task in made.tasks:
        task.fetch_order(LINE)
    return made


@pytest.fixture
def joins() -> None:
    assert compiled_loops(), "neighbours must be joined here"


@pytest.mark.usefixtures("joins")
def test_a_thin_queue_that_stands_still_leaves_the_rooms_to_the_others() -> None:
    made = pair(narrow_limits(TaskLimits()), 16 << 20)
    made.reading.joining.full()
    assert made.reading.joining.below_bytes
    for _ in range(120):
        made.turn(0.01)
        made.brings(0, WIDE, 500, 1000)
        made.brings(0, THIN, 20, 100)
        made.sends(0, WIDE, THIN)
        made.sends(1, WIDE)
    assert made.track(1, THIN).waiting.bytes > 100_000, "it keeps what waits for it"
    assert any(hold is None for _, hold in made.track(1, THIN).waiting), "a part of it with bytes of its own"
    assert made.reading.bytes > 4 << 20, "nor is the window emptied for it"
    made.sends(1, THIN)
    assert [made.track(task, THIN).acked for task in (0, 1)] == [2400, 2400]


@pytest.mark.usefixtures("joins")
def test_where_no_room_is_left_what_is_read_lies_apart() -> None:
    made = pair(narrow_limits(TaskLimits()), 16 << 20)
    while not made.reading.joining.full():
        made.brings(0, WIDE, 500, 1000)
        for task in (0, 1):
            made.sends(task, WIDE)
        for room in made.reading.joining.rooms:
            room.uses += 1000
    made.turn(1.0)
    made.brings(0, WIDE, 500, 1000)
    assert all(hold is None for task in (0, 1) for _, hold in made.track(task, WIDE).waiting)
    for task in (0, 1):
        made.sends(task, WIDE)
    assert (
        made.track(0, WIDE).acked
        == made.track(1, WIDE).acked
        == made.reading.window(made.track(0, WIDE).source_key).end
    )


def test_who_had_no_room_while_the_window_passed_by_reads_by_itself_once_there_is_some() -> None:
    made = pair(TaskLimits(merge_below_bytes=0, partition_bytes_max=4 << 20), 12 << 20)
    wide, thin = made.track(1, WIDE), made.track(1, THIN)
    while wide.waiting.bytes < QUEUE_BYTES_MAX:
        made.brings(0, WIDE, 10, 90_000)
        made.sends(0, WIDE)
    while thin.fetched >= made.reading.window(thin.source_key).begin:
        made.brings(0, THIN, 10, 100)
        made.brings(0, WIDE, 10, 90_000)
        made.sends(0, WIDE, THIN)
    made.tasks[1].fetch_order(LINE)
    made.sends(1, WIDE)
    order = made.tasks[1].fetch_order(LINE)
    assert order is not None
    assert [asked.position for asked in order.partitions if asked.partition == 1] == [thin.fetched]
