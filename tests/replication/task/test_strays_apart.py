"""What a lost request may still meet: epochs that nobody knew of, other offsets behind its sequences, and markers."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.replication.task.test_fresh import FRESH, KEEP, LIMITS, table
from tests.replication.task.test_lane_bounds import NOW_MS, SOURCE_ID, TARGET_ID, see_the_ends
from tests.replication.task.test_seat import LINE, NAMED, OLD_S
from tests.replication.task.test_seat import answer as brought
from tests.replication.task.test_strays import (
    Twin,
    answer,
    ends,
    exact,
    fetches,
    looked_at,
    lost_before_an_election,
    mapped,
    sends,
)
from twinshore.config.model import QueueRules
from twinshore.replication.core.coordinator import TaskAssignment, TaskOwnership
from twinshore.replication.task.core.batches import OffsetGap, PooledBuffer
from twinshore.replication.task.core.known_end import UnresolvedRequests
from twinshore.replication.task.core.messages import (
    EpochOffset,
    Handoff,
    PartitionConfig,
    WrittenPosition,
    decode_for_task,
    dropped_incident,
    encode_line,
    encode_message,
)
from twinshore.replication.task.core.messages import StartWriting as GoWord
from twinshore.replication.task.core.partition import PartitionLeaders, Phase
from twinshore.replication.task.core.partitions import TaskPartitions
from twinshore.replication.task.core.position import ResumeAt, TargetState
from twinshore.replication.task.core.shared_read import SharedFetch

ORDER = PartitionConfig("orders", 0, SOURCE_ID, TARGET_ID)


def begun(order: PartitionConfig, led: int = 6) -> TaskPartitions:
    """A task that was told nothing of where its twin ends."""
    task = TaskPartitions(7, 0, state_expiry_ms=86_400_000, limits=LIMITS)
    task.assign([order])
    task.routed(NAMED, PartitionLeaders(1, led, 2, target_epoch=0))
    return task


def test_no_epoch_is_told_that_is_later_than_a_stray_that_may_still_land() -> None:
    """The next task takes it for one before which no stray was read, and knows nothing of what the first held back."""
    task, twin = lost_before_an_election(0, 3), Twin()
    fetches(task, answer(0, 2, "new", epoch=6), 1.0)
    first = sends(task, 1.0)
    task.produced(first, twin.answers(first), 1.1)
    early, account = task.accounts(0.0)
    assert (early.records, early.epoch) == (0, -1)
    assert (account.to_offset, account.epoch) == (2, -1)
    after = begun(replace(ORDER, receipt_to=2, receipt_epoch=account.epoch))
    looked_at(after, ends(2, 6), 4.0)
    fetches(after, answer(2, 1, "new", epoch=6), 4.0)
    assert not sends(after, 4.0)
    assert [one.epoch for one in after.accounts(4.2)] == [-1], "nor by its look"
    assert not after.accounts(5.0)
    assert [one.epoch for one in after.accounts(9.0)] == [6], "their time is over"


@pytest.mark.parametrize("untouched", [True, False])
def test_on_an_empty_twin_only_the_first_task_of_all_need_not_wait(*, untouched: bool) -> None:
    task = begun(replace(ORDER, untouched=untouched))
    looked_at(task, TargetState(0, 0, 0, None, None, 0, 9), 1.0)
    fetches(task, answer(0, 3, "new", epoch=6), 1.0)
    assert bool(sends(task, 1.0)) is untouched


def test_a_new_twin_waits_for_nothing_though_its_fresh_queue_may_drop_one_day() -> None:
    """It counts as thinned from its first order on: the first record waited until it was too old."""
    task = begun(replace(ORDER, untouched=True, thinned_to=0))
    looked_at(task, TargetState(0, 0, 0, None, None, 0, 9), 1.0)
    fetches(task, answer(0, 3, "new", epoch=6), 1.0)
    assert sends(task, 1.0)


def test_a_new_twin_is_untouched_for_the_first_holder_alone() -> None:
    """Heirs have its order from before the first holder was let write."""
    order = replace(ORDER, untouched=True)
    post = TaskAssignment(TaskOwnership(9.0), "token")
    post.place(order)
    first = post.begin((), 0.0)
    assert first.untouched == (NAMED,)
    assert decode_for_task(json.loads(encode_line(encode_message(first)))) == first
    assert post.begin((), 1.0).untouched == ()
    post.ownership.holder = 7
    post.place(replace(order, partition=1))
    assert post.begin((), 2.0).untouched == (), "the holder was told of it at once"
    _, released = post.release(NAMED)
    assert released is not None
    assert not released.untouched
    assert GoWord((), {NAMED: EpochOffset(-1, 0)}, {}).untouched == ()


@pytest.mark.parametrize("over_s", [100.0, 1.0])
def test_a_handover_says_for_how_long_strays_may_land(over_s: float) -> None:
    """Of a partition on which nothing came since, the next task need only look: its strays' time is long over."""
    before = lost_before_an_election(0)
    (stands,) = before.handovers(over_s)
    assert (stands.calm, round(stands.strays_s, 1)) == (False, max(0.0, 30.1 - over_s))
    task = begun(ORDER)
    task.take_over([stands], 500.0)
    task.replicators[NAMED].known_end.seen_s = 500.0
    fetches(task, answer(0, 3, "new", epoch=6), 500.0)
    assert not sends(task, 500.0)
    look_s = 500.0 + stands.strays_s
    assert not task.take_due_inspections(look_s - 0.1, {2})
    looked_at(task, TargetState(0, 0, 0, None, None, 0, 9), look_s)
    fetches(task, answer(0, 3, "new", epoch=6), look_s)
    assert sends(task, look_s)


def test_what_another_task_read_under_a_later_leader_waits_as_if_the_route_said_so() -> None:
    reading = SharedFetch(LIMITS, 64 << 20)
    tasks = []
    for led, calm in ((6, True), (5, False)):
        task = TaskPartitions(7, 0, state_expiry_ms=86_400_000, limits=LIMITS, shared_fetch=reading)
        task.assign([replace(ORDER, receipt_to=3, receipt_epoch=5)])
        task.routed(NAMED, PartitionLeaders(1, led, 2, target_epoch=0))
        stands = Handoff("orders", 0, 3, 5, NOW_MS + 1_000_000, calm, 3, 2, 0, source_led=led, stray_epoch=5)
        task.take_over([stands], 0.0)
        see_the_ends(task)
        task.scheduler.refill(0.0)
        tasks.append(task)
    knows, late = tasks
    assert knows.fetch_order(LINE)
    knows.fetched(LINE, answer(3, 2, "new", epoch=6), PooledBuffer(bytearray()), 0.0, NOW_MS)
    for task in tasks:
        task.scheduler.refill(0.0)
        task.go_on(0.0, NOW_MS)
    assert late.replicators[NAMED].fetched == 5
    late.replicators[NAMED].known_end.seen_s = 0.0
    assert not sends(late)


def test_metadata_that_is_behind_makes_nothing_of_a_later_leader_earlier() -> None:
    task = exact(calm=False, led=6)
    fetches(task, answer(0, 3, "new", epoch=6))
    task.routed(NAMED, PartitionLeaders(1, 5, 2, target_epoch=0))
    assert not sends(task)


def test_behind_a_drop_nothing_goes_behind_which_a_lost_request_of_other_offsets_would_fit() -> None:
    """Sequences of a mapped twin follow on over what was dropped: the lost request's own are those of other records."""
    task, twin = mapped(), Twin()
    track = task.replicators[NAMED]
    fetches(task, answer(0, 10))
    sent = sends(task)
    task.produced(sent, twin.answers(sent), 0.0)
    lost = []
    for base in (10, 20):
        fetches(task, answer(base, 10))
        lost.append(sends(task))
    task.lost(2, lost, 0.1)
    task.routed(NAMED, PartitionLeaders(1, 5, 2, target_epoch=0))
    looked_at(task, TargetState(0, 10, 10, None, None, 0, 40, verdict=ResumeAt(10, NOW_MS, 10)), 1.0)
    track.dropped.append(dropped_incident(NAMED, 10, 20, "older than 1 s"))
    track.queue(OffsetGap(10, 20), None)
    track.fetched = 20
    for base in (20, 25):
        fetches(task, answer(base, 5), 1.0)
    sent = sends(task, 1.0)
    assert [one.batch.base for one in sent] == [20]
    task.produced(sent, twin.answers(sent), 1.1)
    assert not sends(task, 1.1), "it would have the sequences 15 to 19, and the second request fits behind 19"


def test_what_belongs_behind_another_lost_request_over_a_blank_lets_it_go_at_once() -> None:
    """Each marker of a transaction is such a gap: nothing of it takes a sequence of a mapped twin."""
    task, twin = mapped(), Twin()
    lost = []
    for base in (0, 11):
        fetches(task, answer(base, 10))
        lost.append(sends(task))
    task.lost(2, lost, 0.1)
    task.routed(NAMED, PartitionLeaders(1, 5, 2, target_epoch=0))
    looked_at(task, TargetState(0, 0, 0, None, None, 0, 40, verdict=ResumeAt(0, NOW_MS, 0)), 1.0)
    for base in (0, 11):
        fetches(task, answer(base, 10), 1.0)
    for base in (0, 11):
        sent = sends(task, 1.0)
        assert [one.batch.base for one in sent] == [base]
        task.produced(sent, twin.answers(sent), 1.1)


@pytest.mark.parametrize("markers", [True, False])
def test_a_handover_says_that_strays_may_be_of_other_offsets_or_markers(*, markers: bool) -> None:
    before, twin = (exact() if markers else mapped()), Twin()
    track = before.replicators[NAMED]
    if markers:
        track.queue(OffsetGap(0, 2), None)
        track.fetched = 2
        before.wake(track)
        before.lost(2, [before.next_markers(2, 0.05)], 0.1)
        seen = TargetState(0, 0, 0, None, None, 0, 9)
    else:
        lost = []
        for base in (0, 10):
            fetches(before, answer(base, 10))
            lost.append(sends(before))
        before.lost(2, lost, 0.1)
        seen = TargetState(0, 0, 0, None, None, 0, 40, verdict=ResumeAt(0, NOW_MS, 0))
    before.routed(NAMED, PartitionLeaders(1, 5, 2, target_epoch=0))
    looked_at(before, seen, 1.0)
    if not markers:
        track.queue(OffsetGap(0, 15), None)
        track.fetched = 15
        fetches(before, answer(15, 5), 1.0)
        sent = sends(before, 1.0)
        before.produced(sent, twin.answers(sent), 1.1)
        assert track.acked == 20
    (stands,) = before.handovers(2.0)
    assert (stands.calm, stands.strays_moved, stands.stray_epoch) == (False, True, 5)
    reached = None if markers else WrittenPosition(20, 5, 5)
    after = begun(replace(ORDER, reached=reached), led=5)
    after.take_over([stands], 2.0)
    see_the_ends(after)
    fetches(after, answer(stands.position, 3), 2.0)
    assert not sends(after, 2.0)


def test_no_record_goes_before_lost_markers_have_had_their_time() -> None:
    task, twin = exact(), Twin()
    track = task.replicators[NAMED]
    fetches(task, answer(0, 3))
    sent = sends(task)
    task.produced(sent, twin.answers(sent), 0.0)
    track.queue(OffsetGap(3, 5), None)
    track.fetched = 5
    task.wake(track)
    task.lost(2, [task.next_markers(2, 0.05)], 0.1)
    task.routed(NAMED, PartitionLeaders(1, 6, 2, target_epoch=0))
    over_s = track.zombies.until_s
    looked_at(task, ends(3, 5), 1.0)
    fetches(task, answer(3, 2, "new", epoch=6), 1.0)
    assert not sends(task, 1.0), "the source has records there now; the markers would land behind them"
    looked_at(task, ends(3, 5), over_s)
    fetches(task, answer(3, 2, "new", epoch=6), over_s)
    assert sends(task, over_s)


def test_a_loss_with_less_time_takes_none_from_an_earlier_one() -> None:
    strays = UnresolvedRequests()
    strays.seen(1.0, 4.4)
    strays.lost(2.1, 1 << 60, None, led=5)
    assert strays.until_s == 5.4


@pytest.mark.parametrize(("rules", "led"), [(KEEP, 5), (FRESH, 5), (FRESH, 6)])
def test_a_fresh_queue_drops_nothing_of_a_source_that_may_have_lost_what_its_twin_has(
    rules: QueueRules, led: int
) -> None:
    """Its neighbour read on behind an unclean election, which cut the source at 40; its own twin stands at 50."""
    made = table(KEEP)
    (other,) = made.tasks
    other.routed(NAMED, PartitionLeaders(1, 6, 2))
    heir = TaskPartitions(7, 0, state_expiry_ms=86_400_000, limits=LIMITS, shared_fetch=made.reading, queue=rules)
    heir.assign(
        [PartitionConfig("orders", 0, SOURCE_ID, TARGET_ID, 50, reached=WrittenPosition(50, 50, 50), receipt_epoch=5)]
    )
    heir.routed(NAMED, PartitionLeaders(1, 6, 2))
    for at in range(0, 180, 10):
        assert other.fetch_order(LINE)
        come = brought(at, 10, 50_000, 6 if at >= 40 else 5)
        other.fetched(LINE, come, PooledBuffer(bytearray()), OLD_S, NOW_MS)
        other.go_on(OLD_S, NOW_MS)
        made.sends(0)
    heir.take_over([Handoff("orders", 0, 50, 5, NOW_MS + 10**6, next_sequence=50, target=2, source_led=led)], 0.0)
    see_the_ends(heir)
    heir.scheduler.refill(OLD_S + 1)
    heir.go_on(OLD_S + 1, NOW_MS)
    order, track = heir.fetch_order(LINE), heir.replicators[NAMED]
    if led == 6:  # it has answered at 50 since, naming the last record's epoch
        assert track.dropped
        return
    assert not track.dropped
    assert track.phase is Phase.RUNNING
    assert order is not None
    assert order.partitions[0][2] == 50
