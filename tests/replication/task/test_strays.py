"""Requests that a line lost, and that land late: a broker compares their sequences with ours, and nothing else.

Where ours hold other records by then, it would answer that they have landed, and they never would.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from tests.replication.task.test_lane_bounds import NOW_MS, SOURCE_ID, TARGET_ID, see_the_ends
from tests.replication.task.test_seat import LINE, NAMED
from twinshore.config.model import OffsetRun, SourceOffset, TargetOffset
from twinshore.kafka.protocol.fetch import FetchedPartitionById, FetchResponseById
from twinshore.kafka.protocol.produce import ProducedPartition
from twinshore.kafka.protocol.record_batch import Record, encode_batch, iter_records, split_batches
from twinshore.replication.task.core.batches import OffsetGap, PooledBuffer
from twinshore.replication.task.core.known_end import UNKNOWN_S, UnresolvedRequests
from twinshore.replication.task.core.messages import (
    Handoff,
    PartitionConfig,
    TaskLimits,
    WrittenPosition,
    dropped_incident,
    subtract_landed,
)
from twinshore.replication.task.core.partition import MappedPartitionReplicator, PartitionLeaders, Phase, SentBatch
from twinshore.replication.task.core.partitions import TaskPartitions
from twinshore.replication.task.core.position import LastBatch, ResumeAt, TargetState

OUT_OF_ORDER = 45
LIMITS = TaskLimits(merge_below_bytes=0)


@dataclass
class Twin:
    """A log as brokers keep it for one producer: five batches are known by their first and last sequence."""

    values: list[str] = field(default_factory=list)
    known: list[tuple[int, int, int]] = field(default_factory=list)

    def append(self, sent: SentBatch) -> tuple[int, int]:
        """The answer, an error and an offset."""
        ((view, header),) = split_batches(memoryview(sent.head + bytes(sent.batch.body)))
        first, last = header.base_sequence, header.base_sequence + header.last_offset_delta
        for known_first, known_last, at in self.known[-5:]:
            if (known_first, known_last) == (first, last):
                return 0, at
        if self.known and first != self.known[-1][1] + 1:
            return OUT_OF_ORDER, -1
        at = len(self.values)
        self.values += [
            str(bytes(one.value or b""), "ascii") for one in iter_records(view, header, limit_bytes=1 << 20)
        ]
        self.known.append((first, last, at))
        return 0, at

    def answers(self, sent: list[SentBatch]) -> list[ProducedPartition]:
        """What it says of a whole request."""
        found = [self.append(one) for one in sent]
        return [ProducedPartition(bytes.fromhex(TARGET_ID), 0, error, at, -1, 0, None, None) for error, at in found]


def answer(base: int, count: int, word: str = "old", epoch: int = 5) -> FetchResponseById:
    records = [Record(at, NOW_MS, None, f"{word}-{at}".encode(), ()) for at in range(base, base + count)]
    data = memoryview(bytes(encode_batch(records, base_offset=base, leader_epoch=epoch))).toreadonly()
    end = base + count
    return FetchResponseById(
        0, 0, 5, [FetchedPartitionById(bytes.fromhex(SOURCE_ID), 0, 0, end, end, 0, None, None, [], data)]
    )


def task_of(order: PartitionConfig, entry: Handoff, led: int = 5) -> TaskPartitions:
    """A task that was told where its twin ends."""
    task = TaskPartitions(7, 0, state_expiry_ms=86_400_000, limits=LIMITS)
    task.assign([order])
    task.routed(NAMED, PartitionLeaders(1, led, 2, target_epoch=0))
    task.take_over([entry], 0.0)
    see_the_ends(task)
    return task


def exact(*, calm: bool = True, epoch: int = -1, led: int = 5) -> TaskPartitions:
    entry = Handoff("orders", 0, 0, epoch, NOW_MS + 1_000_000, calm, -1, 2, 0, source_led=5, stray_epoch=5)
    return task_of(PartitionConfig("orders", 0, SOURCE_ID, TARGET_ID), entry, led)


def mapped(*, calm: bool = True, thinned_to: int = -1) -> TaskPartitions:
    order = PartitionConfig("orders", 0, SOURCE_ID, TARGET_ID, reached=WrittenPosition(0, 0, 0), thinned_to=thinned_to)
    return task_of(order, Handoff("orders", 0, 0, -1, NOW_MS + 1_000_000, calm, 0, 2, 0, source_led=5, stray_epoch=5))


def fetches(task: TaskPartitions, come: FetchResponseById, now_s: float = 0.0) -> None:
    assert task.fetch_order(LINE)
    task.fetched(LINE, come, PooledBuffer(bytearray()), now_s, NOW_MS)


def sends(task: TaskPartitions, now_s: float = 0.0) -> list[SentBatch]:
    return task.produce_order(2, now_s, NOW_MS)


def ends(at: int, epoch: int) -> TargetState:
    """What a look at the exact twin gives."""
    return TargetState(
        0, at, at, LastBatch(0, at - 1, 7, 0), (at - 1, NOW_MS), 0, 9, source_epoch=epoch, wrote_epoch=epoch
    )


def test_what_a_source_wrote_anew_after_an_election_is_not_taken_for_what_was_lost() -> None:
    task, twin = exact(), Twin()
    track = task.replicators[NAMED]
    fetches(task, answer(0, 3))
    sent = sends(task)
    task.produced(sent, twin.answers(sent), 0.0)
    fetches(task, answer(3, 2))
    stray = sends(task)
    task.lost(2, [stray], 0.1)
    task.routed(NAMED, PartitionLeaders(1, 6, 2, target_epoch=0))
    assert task.take_due_inspections(1.0, {2})
    task.on_inspected(NAMED, ends(3, 5), 1.0, NOW_MS)
    fetches(task, answer(3, 2, "new", epoch=6), 1.0)
    assert not sends(task, 1.0), "the lost one may land first, and ours would be answered as if it had"
    assert track.phase is Phase.UNVERIFIED
    over_s = track.zombies.until_s
    assert not task.take_due_inspections(over_s - 0.1, {2})
    assert task.take_due_inspections(over_s, {2})
    task.on_inspected(NAMED, ends(3, 5), over_s, NOW_MS)
    fetches(task, answer(3, 2, "new", epoch=6), over_s)
    task.produced(again := sends(task, over_s), twin.answers(again), over_s)
    assert (twin.values[3:], track.acked) == (["new-3", "new-4"], 5)


def test_what_was_lost_is_sent_again_at_once() -> None:
    task, twin = exact(), Twin()
    fetches(task, answer(0, 3))
    stray = sends(task)
    task.lost(2, [stray], 0.1)
    task.routed(NAMED, PartitionLeaders(1, 6, 2, target_epoch=0))
    assert task.take_due_inspections(1.0, {2})
    task.on_inspected(NAMED, TargetState(0, 0, 0, None, None, 0, 9), 1.0, NOW_MS)
    task.replicators[NAMED].known_end.armed_until_ms = NOW_MS + 1_000_000
    fetches(task, answer(0, 3), 1.0)
    again = sends(task, 1.0)
    assert [twin.append(one) for one in stray] == [(0, 0)]
    task.produced(again, twin.answers(again), 1.1)
    assert (twin.values, task.replicators[NAMED].acked) == (["old-0", "old-1", "old-2"], 3)


def test_a_drop_on_a_mapped_twin_waits_for_what_was_lost_before_it() -> None:
    """The dropped ones' sequences go to those behind them."""
    task, twin = mapped(), Twin()
    track = task.replicators[NAMED]
    assert isinstance(track, MappedPartitionReplicator)
    fetches(task, answer(0, 10))
    sent = sends(task)
    task.produced(sent, twin.answers(sent), 0.0)
    fetches(task, answer(10, 10))
    stray = sends(task)
    task.lost(2, [stray], 0.1)
    task.routed(NAMED, PartitionLeaders(1, 5, 2, target_epoch=0))
    assert task.take_due_inspections(1.0, {2})
    task.on_inspected(NAMED, TargetState(0, 10, 10, None, None, 0, 30, verdict=ResumeAt(10, NOW_MS, 10)), 1.0, NOW_MS)
    track.dropped.append(dropped_incident(NAMED, 10, 20, "older than 1 s"))
    track.queue(OffsetGap(10, 20), None)
    track.fetched = 20
    fetches(task, answer(20, 10), 1.0)
    assert not sends(task, 1.0)
    twin.append(stray[0])
    over_s = track.zombies.until_s
    assert task.take_due_inspections(over_s, {2})
    landed = OffsetRun(SourceOffset(10), TargetOffset(10), 10, 10)
    seen = TargetState(0, 20, 20, None, None, 0, 30, verdict=ResumeAt(20, NOW_MS, 20), offset_runs=(landed,))
    task.on_inspected(NAMED, seen, over_s, NOW_MS)
    assert not track.dropped, "they were dropped, and have landed all the same"
    assert track.phase is Phase.RUNNING


@pytest.mark.parametrize("epoch", [4, 5, 6])
@pytest.mark.parametrize(("led", "waits"), [(6, True), (5, False)])
def test_what_the_task_before_lost_is_known_only_while_the_source_is_led_as_it_was(
    epoch: int, led: int, *, waits: bool
) -> None:
    """Whatever the epoch of a batch is: several are merged, and two elections may bring an old one back."""
    task = exact(calm=False, epoch=4, led=led)
    fetches(task, answer(0, 3, epoch=epoch))
    assert bool(sends(task)) is not waits


def looked_at(task: TaskPartitions, seen: TargetState, now_s: float) -> None:
    """The next look gives this, and the broker remembers us."""
    assert task.take_due_inspections(now_s, {2})
    task.on_inspected(NAMED, seen, now_s, NOW_MS)
    certain = task.replicators[NAMED].known_end
    certain.armed_until_ms, certain.seen_s = NOW_MS + 1_000_000, now_s


def nothing(end: int) -> FetchResponseById:
    """The source has nothing more."""
    part = FetchedPartitionById(bytes.fromhex(SOURCE_ID), 0, 0, end, end, 0, None, None, [], memoryview(b""))
    return FetchResponseById(0, 0, 5, [part])


def lost_before_an_election(*bases: int) -> TaskPartitions:
    """A task that lost a request of three records for each, looked, and reads from a source that is led anew since."""
    task, lost = exact(), []
    for base in bases:
        fetches(task, answer(base, 3))
        lost.append(sends(task))
    task.lost(2, lost, 0.1)
    task.routed(NAMED, PartitionLeaders(1, 6, 2, target_epoch=0))
    looked_at(task, TargetState(0, 0, 0, None, None, 0, 9), 1.0)
    return task


def test_who_takes_over_behind_an_unclean_election_takes_nothing_for_what_was_lost_before_it() -> None:
    """The task before read the source in both epochs; what it lost was of the first. It would have known what that was,
    and waited: the next one knows nothing of it."""
    before = lost_before_an_election(0)
    assert before.handovers(0.0)[0].stray_epoch == 5
    fetches(before, nothing(0), 1.0)
    (stands,) = before.handovers(0.0)
    assert (stands.position, stands.source_led, stands.calm, stands.stray_epoch) == (0, 6, False, 5)
    task = task_of(PartitionConfig("orders", 0, SOURCE_ID, TARGET_ID), stands, led=6)
    fetches(task, answer(0, 3, "new", epoch=6))
    assert not sends(task)


def test_behind_an_election_nothing_goes_behind_which_a_lost_request_would_fit() -> None:
    """Two requests were lost, of one batch each; the source has other records now, in batches that are like neither.
    Behind the second of them the second request would fit, and the twin would hold what the source has no more."""
    task, twin = lost_before_an_election(0, 3), Twin()
    track = task.replicators[NAMED]
    over_s = track.zombies.until_s
    for base, count in ((0, 2), (2, 1)):
        fetches(task, answer(base, count, "new", epoch=6), 1.0)
    first = sends(task, 1.0)
    assert [one.batch.base for one in first] == [0]
    task.produced(first, twin.answers(first), 1.1)
    assert (track.acked, sends(task, 1.1)) == (2, [])
    looked_at(task, ends(2, 6), over_s)
    fetches(task, answer(2, 1, "new", epoch=6), over_s)
    assert [one.batch.base for one in sends(task, over_s)] == [2]


@pytest.mark.parametrize(
    ("told", "at", "waits"),
    [
        ((-1, -1), 0, True),  # what the first task of all had sent may land on an empty twin as well
        ((-1, -1), 3, True),  # something landed that nobody told of: in which epoch it was read nobody knows
        ((3, 5), 3, True),  # elections since may have changed what lies behind
        ((3, 6), 3, False),
        ((2, 6), 3, False),
    ],
)
def test_behind_a_killed_task_what_was_told_says_in_which_epoch_it_read(
    told: tuple[int, int], at: int, *, waits: bool
) -> None:
    task = TaskPartitions(7, 0, state_expiry_ms=86_400_000, limits=LIMITS)
    task.assign([PartitionConfig("orders", 0, SOURCE_ID, TARGET_ID, told[0], receipt_epoch=told[1])])
    task.routed(NAMED, PartitionLeaders(1, 6, 2, target_epoch=0))
    assert task.take_due_inspections(1.0, {2})
    seen = ends(at, 6) if at else TargetState(0, 0, 0, None, None, 0, 9)
    task.on_inspected(NAMED, seen, 1.0, NOW_MS)
    certain = task.replicators[NAMED].known_end
    certain.armed_until_ms, certain.seen_s = NOW_MS + 1_000_000, 1.0
    first = task.replicators[NAMED].fetched
    if first < at:
        fetches(task, answer(first, at - first, epoch=6), 1.0)
    fetches(task, answer(at, 2, epoch=6), 1.0)
    assert bool(sends(task, 1.0)) is not waits


def test_a_loss_of_our_own_does_not_end_what_is_not_known_of_the_task_before() -> None:
    strays = UnresolvedRequests()
    strays.left(5, UNKNOWN_S, calm=False)
    strays.lost(30.0, 1 << 60, None, led=6)
    strays.seen(1.0, 4.4)
    assert (strays.until_s, strays.may_be_mistaken_for(bytes(61), 0, 6, moved=False)) == (30.0, True)
    assert not strays.may_be_mistaken_for(bytes(61), 0, 5, moved=False)


@pytest.mark.parametrize(
    ("task", "base", "waits"),
    [
        (mapped(calm=False), 0, False),
        (mapped(calm=False), 4, True),  # offsets 0 to 3 are there no more
        (mapped(calm=False, thinned_to=0), 0, True),
        (mapped(thinned_to=0), 4, False),
    ],
)
def test_on_a_mapped_twin_the_task_before_may_have_sent_what_is_passed_by_now(
    task: TaskPartitions, base: int, *, waits: bool
) -> None:
    fetches(task, answer(base, 3))
    assert bool(sends(task)) is not waits


def test_strays_are_over_once_something_that_was_sent_behind_their_time_is_in() -> None:
    """Else the next task would not know, and wait at the next election of the source."""
    task, twin = exact(), Twin()
    fetches(task, answer(0, 3))
    task.lost(2, [sends(task)], 0.1)
    task.routed(NAMED, PartitionLeaders(1, 5, 2, target_epoch=0))
    assert task.take_due_inspections(1.0, {2})
    task.on_inspected(NAMED, TargetState(0, 0, 0, None, None, 0, 9), 1.0, NOW_MS)
    track = task.replicators[NAMED]
    over_s = track.zombies.until_s
    for base, now_s, calm in ((0, over_s - 1.0, False), (3, over_s + 1.0, True)):
        track.known_end.armed_until_ms, track.known_end.seen_s = NOW_MS + 1_000_000, now_s
        fetches(task, answer(base, 3), now_s)
        task.produced(sent := sends(task, now_s), twin.answers(sent), now_s)
        (stands,) = task.handovers(0.0)
        assert (stands.position, stands.calm) == (base + 3, calm)


def test_what_landed_late_was_not_dropped() -> None:
    rows = [dropped_incident(NAMED, 10, 20, "a"), dropped_incident(NAMED, 30, 40, "b")]
    assert subtract_landed(rows, []) == rows
    assert subtract_landed(rows, [(0, 12), (15, 32)]) == [
        dropped_incident(NAMED, 12, 15, "a"),
        dropped_incident(NAMED, 32, 40, "b"),
    ]
    assert subtract_landed(rows, [(5, 50)]) == []
