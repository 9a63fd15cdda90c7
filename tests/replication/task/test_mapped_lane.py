"""A mapped twin under a seeded scheduler: others write to it too, answers are lost, tasks die.

Heirs arrive long before they go on. Nothing is lost or doubled, and the map is the truth."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import pytest

from twinshore.config.model import OffsetRun, SourceOffset, TargetOffset, TopicPartition, append_runs, source_end
from twinshore.kafka.protocol.fetch import FetchedPartitionById, FetchResponseById
from twinshore.kafka.protocol.produce import ProducedPartition
from twinshore.kafka.protocol.record_batch import HEADER_STRUCT, BatchHeader, Record, encode_batch
from twinshore.replication.task.core.batches import PooledBuffer
from twinshore.replication.task.core.known_end import UNKNOWN_S, UnresolvedRequests
from twinshore.replication.task.core.messages import (
    Handoff,
    LandedBatch,
    PartitionConfig,
    PartitionProgress,
    TaskLimits,
    UnclearLanding,
    WrittenPosition,
    find_landed_beyond,
    map_landed_batches,
    position_after,
)
from twinshore.replication.task.core.partition import PartitionLeaders, Phase, SentBatch, written_positions
from twinshore.replication.task.core.partitions import TaskPartitions
from twinshore.replication.task.core.position import ResumeAt, TargetState

NAMED, LINE, NODE = TopicPartition("orders", 0), (1, 0), 2
SOURCE_ID, TARGET_ID = "11" * 16, "22" * 16
NOW_S, NOW_MS = 0.0, 1_800_000_000_000
BEGIN, ADOPTED = 40, 100


@dataclass(slots=True)
class World:
    chance: random.Random
    source: list[bytes] = field(default_factory=list)
    records: list[int] = field(default_factory=list)
    end: int = BEGIN
    # The twin: the sequence of each of our records by its offset, None for somebody else's.
    twin: list[int | None] = field(default_factory=lambda: [None] * ADOPTED)
    flights: deque[list[SentBatch]] = field(default_factory=deque)
    known: list[OffsetRun] = field(
        default_factory=lambda: [OffsetRun(SourceOffset(BEGIN), TargetOffset(ADOPTED), 0, 0)]
    )
    told_to: int = BEGIN
    now_s: float = 100.0
    # A task that has arrived and waits for the word to go.
    heir: TaskPartitions | None = None

    def write(self) -> None:
        """A batch behind a hole or not, with holes in it or not."""
        base = self.end + self.chance.choice([0, 0, 0, 1, 4])
        offsets = sorted({base, *(base + self.chance.randint(0, 6) for _ in range(self.chance.randint(0, 5)))})
        held = [Record(at, NOW_MS, None, b"%d" % at, ()) for at in offsets]
        self.source.append(bytes(encode_batch(held, base_offset=base)))
        self.records += offsets
        self.end = offsets[-1] + 1

    def put(self, count: int) -> None:
        """So many records in one batch."""
        offsets = range(self.end, self.end + count)
        held = [Record(at, NOW_MS, None, b"%d" % at, ()) for at in offsets]
        self.source.append(bytes(encode_batch(held, base_offset=self.end)))
        self.records += offsets
        self.end += count

    def answer(self, position: int) -> FetchResponseById:
        data, at = b"", BEGIN
        for batch, end in zip(self.source, self.ends(), strict=True):
            if end > position and len(data) < 400:
                data += batch
            at = end
        view = memoryview(data).toreadonly()
        return FetchResponseById(
            0, 0, 5, [FetchedPartitionById(bytes.fromhex(SOURCE_ID), 0, 0, at, at, 0, None, None, [], view)]
        )

    def ends(self) -> list[int]:
        return [BatchHeader(*_header(batch)).last_offset + 1 for batch in self.source]

    def append(self, entry: SentBatch) -> ProducedPartition:
        """As a broker compares and swaps: only what is next of ours lands."""
        base, last = len(self.twin), [one for one in self.twin if one is not None]
        first = BatchHeader(*_header(entry.head)).base_sequence
        error = 0 if first == (last[-1] + 1 if last else 0) else 45
        if not error:
            self.twin += range(first, first + entry.batch.end - entry.batch.base)
        return ProducedPartition(bytes.fromhex(TARGET_ID), 0, error, -1 if error else base, -1, 0, None, None)

    def look(self, task: TaskPartitions) -> TargetState:
        reach = written_positions(task.replicators, [NAMED])[NAMED]
        self.speaks_of_one_place(reach)
        ours = [LandedBatch(at, 1, one) for at, one in enumerate(self.twin) if one is not None and at >= reach.target]
        fresh = find_landed_beyond(reach, ours)
        assert not isinstance(fresh, UnclearLanding), fresh
        found = map_landed_batches(reach, fresh, [(at, at + 1) for at in self.records])
        assert not isinstance(found, UnclearLanding), found
        after = position_after(found[-1]) if found else reach
        go = ResumeAt(after.source, NOW_MS, after.sequence)
        size = len(self.twin)
        return TargetState(0, size, size, None, None, 0, self.end, verdict=go, offset_runs=tuple(found))

    def speaks_of_one_place(self, reach: WrittenPosition) -> None:
        """As the look compares both sides where the reach says; what does not fit stops the partition."""
        last, behind = reach.last_source, reach.source - 1
        if last >= 0:
            assert self.twin[reach.last_target] == self.records.index(last), "not the record that went there"
            assert behind == last or behind not in self.records, "a record that was passed by"

    def tell(self, accounts: list[PartitionProgress]) -> None:
        for carried in accounts:
            assert carried.from_offset == self.told_to
            self.told_to = carried.to_offset
            self.known[-1:] = append_runs(self.known[-1], carried.offset_runs)

    def task(self) -> TaskPartitions:
        task = TaskPartitions(7, 0, state_expiry_ms=86_400_000, limits=TaskLimits(merged_bytes_max=400))
        order = PartitionConfig(
            "orders", 0, SOURCE_ID, TARGET_ID, self.told_to, BEGIN, 0, reached=position_after(self.known[-1])
        )
        task.assign([order])
        task.routed(NAMED, PartitionLeaders(1, 0, NODE))
        return task

    def goes(self, stands: list[Handoff]) -> TaskPartitions:
        """The word to go, to the heir that waits or to one that comes only now."""
        heir, self.heir = self.heir or self.task(), None
        heir.replicators[NAMED].progress_log.epoch, heir.replicators[NAMED].progress_log.to = -1, self.told_to
        heir.take_over(stands, 0.0, {NAMED: position_after(self.known[-1])})
        return heir


def _header(head: bytes) -> Any:
    return HEADER_STRUCT.unpack_from(head)


def step(world: World, task: TaskPartitions) -> TaskPartitions:
    """One thing that may happen."""
    chance, track = world.chance, task.replicators[NAMED]
    world.now_s += 0.5
    match chance.randrange(10):
        case 0 | 1:
            if task.fetch_order(LINE) is not None:
                task.fetched(LINE, world.answer(track.fetched), PooledBuffer(bytearray()), world.now_s, NOW_MS)
        case 2 | 3:
            sent = task.produce_order(NODE, NOW_S, NOW_MS)
            if sent:
                world.flights.append(sent)
        case 4 | 5 if world.flights:
            sent = world.flights.popleft()
            task.produced(sent, [world.append(sent[0])], world.now_s)
        case 6:
            world.tell(task.accounts(0.0))
        case 7 if chance.random() < 0.3:
            world.twin += [None] * chance.randint(1, 3)
        case 8 if chance.random() < 0.4:
            return trouble(world, task)
        case 9:
            world.heir = world.heir or world.task()
        case _:
            for named in task.take_due_inspections(world.now_s, range(99)):
                task.on_inspected(named, world.look(task) if chance.random() < 0.8 else None, world.now_s, NOW_MS)
    return task


def trouble(world: World, task: TaskPartitions) -> TaskPartitions:
    """The line breaks, or the task dies: what was on its way has landed or not, and nothing behind what has not."""
    flights, world.flights = list(world.flights), deque()
    for sent in flights[: world.chance.randint(0, len(flights))]:
        world.append(sent[0])
    how = world.chance.randrange(3)
    if how == 0 or not flights:
        task.lost(NODE, flights, world.now_s)
        world.now_s += 40.0
        if how:
            return orderly(world, task)
        return task
    return world.goes([])


def orderly(world: World, task: TaskPartitions) -> TaskPartitions:
    task.finish()
    stands: list[Handoff] = task.handovers(0.0)
    world.tell(task.accounts(0.0))
    return world.goes(stands)


def test_an_heir_goes_on_behind_a_hole_without_a_look() -> None:
    world = World(random.Random(1))
    held = [Record(at, NOW_MS, None, b"x", ()) for at in (40, 43, 44, 49)]
    world.source = [bytes(encode_batch(held, base_offset=40))]
    world.records, world.end = [40, 43, 44, 49], 50
    task = world.task()
    task.replicators[NAMED].zombies.left(-1, UNKNOWN_S, calm=True)
    assert task.take_due_inspections(1.0, range(99)) == [NAMED]
    task.on_inspected(NAMED, world.look(task), 1.0, NOW_MS)
    assert task.fetch_order(LINE) is not None
    task.fetched(LINE, world.answer(40), PooledBuffer(bytearray()), 1.0, NOW_MS)
    # Offsets 40, then 43 and 44, one behind the other; the third batch stays behind.
    for sent in [task.produce_order(NODE, NOW_S, NOW_MS) for _ in range(2)]:
        task.produced(sent, [world.append(sent[0])], 1.0)
    heir = orderly(world, task)
    assert (heir.replicators[NAMED].phase, heir.replicators[NAMED].acked) == (Phase.RUNNING, 49)
    assert heir.fetch_order(LINE) is not None
    heir.fetched(LINE, world.answer(heir.replicators[NAMED].fetched), PooledBuffer(bytearray()), 1.0, NOW_MS)
    (sent_last,) = heir.produce_order(NODE, NOW_S, NOW_MS)
    assert world.append(sent_last).error == 0, "its sequence is the next one"
    assert world.twin[ADOPTED:] == [0, 1, 2, 3]


def test_an_heir_that_arrived_before_the_last_records_looks_from_where_the_holder_stood() -> None:
    world = World(random.Random(1))
    world.put(10)
    task = carried_on(world, world.task())
    world.heir = world.task()
    world.put(10)
    heir = orderly(world, carried_on(world, task))
    assert (heir.replicators[NAMED].phase, heir.replicators[NAMED].acked) == (Phase.RUNNING, 60)
    # The twin's leader is started again, before any other record comes.
    heir.lost(NODE, [], 200.0)
    looked(world, heir, 300.0)
    assert heir.replicators[NAMED].phase is Phase.RUNNING


def test_an_heir_whose_reach_is_older_than_the_handover_looks_for_itself() -> None:
    world = World(random.Random(1))
    world.put(10)
    task = carried_on(world, world.task())
    old = world.task()
    world.put(10)
    stands = carried_on(world, task).handovers(0.0)
    old.take_over(stands, 0.0)
    assert old.replicators[NAMED].phase is Phase.UNVERIFIED
    looked(world, old, 2.0)
    assert (old.replicators[NAMED].phase, old.replicators[NAMED].write_from) == (Phase.RUNNING, 60)


def test_what_nobody_sees_behind_the_last_record_was_lost_by_nobody() -> None:
    world = World(random.Random(1))
    world.put(10)
    world.source.append(bytes(encode_batch([], base_offset=50, last_offset=50)))
    world.end = 51
    task = carried_on(world, world.task())
    assert (world.told_to, source_end(world.known[-1])) == (51, 50)
    task.lost(NODE, [], 200.0)
    for looks, begun in ((task, 300.0), (world.task(), 1.0)):
        looked(world, looks, begun)
        assert (looks.replicators[NAMED].phase, looks.replicators[NAMED].acked) == (Phase.RUNNING, 51)
    world.put(1)
    carried_on(world, task)
    assert world.known[1:] == [OffsetRun(SourceOffset(51), TargetOffset(110), 1, 10)]


def looked(world: World, task: TaskPartitions, now_s: float) -> None:
    if task.take_due_inspections(now_s, range(99)):
        task.on_inspected(NAMED, world.look(task), now_s, NOW_MS)
    assert not task.incidents


def carried_on(world: World, task: TaskPartitions) -> TaskPartitions:
    """All that the source has, carried and told, by the first task that ever did."""
    task.replicators[NAMED].zombies = UnresolvedRequests.none()
    looked(world, task, 1.0)
    while world.told_to < world.end:
        assert task.fetch_order(LINE) is not None
        task.fetched(LINE, world.answer(task.replicators[NAMED].fetched), PooledBuffer(bytearray()), 1.0, NOW_MS)
        while sent := task.produce_order(NODE, NOW_S, NOW_MS):
            task.produced(sent, [world.append(sent[0])], 1.0)
        world.tell(task.accounts(0.0))
    return task


@pytest.mark.parametrize("part", range(4))
def test_nothing_is_lost_or_doubled_and_the_map_is_the_truth(part: int) -> None:
    seed = random.SystemRandom().randrange(1 << 30)
    for number in range(60):
        print(f"seed {seed} part {part} number {number}")
        world = World(random.Random(f"{seed} {part} {number}"))
        task = world.task()
        for _ in range(150):
            if world.chance.random() < 0.3 and len(world.records) < 80:
                world.write()
            task = step(world, task)
        for _ in range(4000):
            if world.told_to == world.end and source_end(world.known[-1]) == world.end:
                break
            world.now_s += 1.0
            task = step(world, task) if world.chance.random() < 0.9 else task
        track = task.replicators[NAMED]
        assert track.phase is not Phase.STOPPED, task.incidents
        assert {one.kind for one in task.incidents} <= {"target away"}, "nobody has lost anything"
        mine = [one for one in world.twin if one is not None]
        assert mine == list(range(len(world.records))), "each once, in order"
        where = [at for at, one in enumerate(world.twin) if one is not None]
        truth = [
            OffsetRun(SourceOffset(s), TargetOffset(t), 1, n)
            for n, (s, t) in enumerate(zip(world.records, where, strict=True))
        ]
        assert [one for one in world.known if one.length] == append_runs(None, truth)
