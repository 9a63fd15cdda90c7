"""What is known of requests that may still land reaches whoever carries a partition next, and what was acknowledged its
account, whatever befalls in between."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from tests.replication.task.test_lane_bounds import NAMED, NOW_MS, TARGET_ID
from tests.replication.task.test_strays import LIMITS, Twin, answer, ends, exact, fetches, looked_at, sends
from tests.replication.task.test_strays_apart import ORDER
from twinshore.config.errors import KafkaError
from twinshore.kafka.protocol.produce import ProducedPartition
from twinshore.replication.core.coordinator import Coordinator, SendToTask, TaskSession
from twinshore.replication.task.core.accounting import PendingProgress, take_acknowledged
from twinshore.replication.task.core.batches import OffsetGap
from twinshore.replication.task.core.connections import InspectTwins, TargetProducer
from twinshore.replication.task.core.known_end import UnresolvedRequests
from twinshore.replication.task.core.messages import (
    Assign,
    Finish,
    PartitionConfig,
    PartitionProgress,
    TaskFinished,
    TaskProgress,
    TaskReady,
    WrittenPosition,
)
from twinshore.replication.task.core.messages import StartWriting as GoWord
from twinshore.replication.task.core.partition import PartitionLeaders, Phase, SentBatch
from twinshore.replication.task.core.partitions import TaskPartitions
from twinshore.replication.task.core.position import ResumeAt, TargetState
from twinshore.replication.task.core.task_core import TaskCore, WriteLease

KEY = ("link", 0)
LET_S = {"link": 60.0}


class Desk:
    """One task at the coordinator, and its tasks in turn."""

    def __init__(self, order: PartitionConfig) -> None:
        self.core = Coordinator()
        self.core.open_task(KEY, 9.0, "token")
        self.core.assign(KEY, [order], 0.0)

    def comes(self, run: int, now_s: float) -> TaskSession:
        session = self.core.arrive(KEY, run, "token")
        assert session is not None
        self.core.hear(session, TaskReady(), now_s, 60.0)
        return session

    def task(self, run: int, *, led: int = 5) -> TaskCore:
        """The task of that task run, which has heard all that the coordinator has told it by now."""
        told = [one for one in self.core.wanted() if isinstance(one, SendToTask) and one.session.run == run]
        made = TaskCore(
            TaskPartitions(7, 0, state_expiry_ms=86_400_000, limits=LIMITS), WriteLease(), 0.0, report_s=0.5
        )
        for one in told:
            if isinstance(one.word, (Assign, GoWord)):
                list(made.hear(one.word, 0.0))
        made.partitions.routed(NAMED, PartitionLeaders(1, led, 2, target_epoch=0))
        return made


def mapped_at(seen: WrittenPosition, start: int, *, filled: int = -1, epoch: int = 5) -> TargetState:
    verdict = ResumeAt(seen.source, NOW_MS, seen.sequence, filled)
    return TargetState(0, 0, 0, None, None, start, 90, verdict=verdict, source_epoch=epoch, wrote_epoch=epoch)


def sent_three(coordinator: Desk) -> tuple[TaskSession, TaskCore, SentBatch]:
    """The first task, which has sent the records behind three that it saw on the twin."""
    session, first = coordinator.comes(0, 0.0), coordinator.task(0)
    looked_at(first.partitions, ends(3, 5), 1.0)
    first.partitions.replicators[NAMED].zombies = UnresolvedRequests.none()
    fetches(first.partitions, answer(3, 3), 1.0)
    (stray,) = sends(first.partitions, 1.0)
    return session, first, stray


def test_what_was_passed_by_before_anything_landed_is_known_to_who_comes_next() -> None:
    """DeleteRecords on the source between a lost request of a twin without any record and the end of its task."""
    begun = WrittenPosition(40, 0, 0)
    coordinator = Desk(replace(ORDER, receipt_to=40, receipt_epoch=5, reached=begun))
    session = coordinator.comes(0, 0.0)
    first = coordinator.task(0)
    looked_at(first.partitions, mapped_at(begun, 0), 1.0)
    first.partitions.replicators[NAMED].zombies = UnresolvedRequests.none()
    fetches(first.partitions, answer(40, 10), 1.0)
    (stray,) = sends(first.partitions, 1.0)
    first.partitions.lost(2, [[stray]], 1.1)
    first.partitions.routed(NAMED, PartitionLeaders(1, 5, 2, target_epoch=0))
    looked_at(first.partitions, mapped_at(begun, 50, filled=50), 1.5)
    first.partitions.replicators[NAMED].source.heard = True
    coordinator.core.hear(session, first._beat(2.0), 2.0, 60.0)
    coordinator.core.depart(session, 2.1, 60.0)
    coordinator.comes(1, 3.0)
    coordinator.core.tick(12.0, LET_S)
    heir = coordinator.task(1).partitions
    track = heir.replicators[NAMED]
    assert (track.progress_log.to, track.zombies.foreign) == (50, True)
    looked_at(heir, mapped_at(begun._replace(source=50), 50), 12.1)
    fetches(heir, answer(50, 10), 12.1)
    assert not sends(heir, 12.1), "the old request would be answered for this one"
    assert track.phase is Phase.UNVERIFIED


def test_a_task_that_ends_while_it_looks_says_how_long_its_requests_may_land() -> None:
    coordinator = Desk(replace(ORDER, receipt_to=3, receipt_epoch=5))
    session, first, stray = sent_three(coordinator)
    coordinator.comes(1, 1.0)
    first.partitions.lost(2, [[stray]], 1.1)
    until_s = first.partitions.replicators[NAMED].zombies.until_s
    (done,) = [one for one in first.hear(Finish(), 1.2) if isinstance(one, TaskFinished)]
    assert [one.position for one in done.handoffs] == [-1]
    coordinator.core.hear(session, done, 1.2, 60.0)
    heir = coordinator.task(1, led=6).partitions
    looked_at(heir, ends(3, 5), 1.5)
    strays = heir.replicators[NAMED].zombies
    assert strays.still_s(1.5) >= until_s - 1.5 - 1.2, "its words say how long from when they come"
    fetches(heir, answer(3, 3, "new", epoch=6), 1.5)
    assert not sends(heir, 1.5)
    assert not heir.take_due_inspections(6.0, {2}), "as long as they may"


def test_a_task_that_ended_keeps_the_link_for_as_long_as_its_requests_may_land() -> None:
    coordinator = Desk(replace(ORDER, receipt_to=3, receipt_epoch=5))
    session, first, stray = sent_three(coordinator)
    first.partitions.lost(2, [[stray]], 1.1)
    (done,) = [one for one in first.hear(Finish(), 1.2) if isinstance(one, TaskFinished)]
    coordinator.core.hear(session, done, 1.2, 60.0)
    coordinator.core.depart(session, 1.3, 60.0)
    strays_s = done.handoffs[0].strays_s
    assert coordinator.core.lands_s("link", 1.2) == pytest.approx(strays_s)
    assert coordinator.core.has_no_writers("link", 1.3)
    assert not coordinator.core.idle("link", 1.3)
    coordinator.core.close_link("link")
    assert not coordinator.core.closed_tasks_settled("link", 1.2 + strays_s - 0.1)
    assert coordinator.core.closed_tasks_settled("link", 1.2 + strays_s)


@pytest.mark.parametrize(("receipt", "untouched"), [(6, False), (5, False), (-1, True)])
def test_requests_of_a_killed_task_are_of_the_epoch_that_it_told_last(receipt: int, *, untouched: bool) -> None:
    coordinator = Desk(replace(ORDER, receipt_epoch=receipt, untouched=untouched))
    session = coordinator.comes(0, 0.0)
    coordinator.core.hear(
        session,
        TaskProgress([PartitionProgress("orders", 0, 0, 3, 3, 100, 1, 3, 0, 1, 1, epoch=6)], [], {}, 1.0),
        1.0,
        60.0,
    )
    coordinator.core.depart(session, 1.5, 60.0)
    coordinator.comes(1, 2.0)
    coordinator.core.tick(20.0, LET_S)
    assert coordinator.task(1).partitions.replicators[NAMED].zombies.epoch == 6


def test_what_was_acknowledged_is_told_though_its_line_is_back_at_once_and_looks_are_in_vain() -> None:
    partitions, twin = exact(), Twin()
    task = TaskCore(partitions, WriteLease(), 0.0, report_s=0.5)
    task.going = True
    task.lease.until_s = 1e9
    fetches(partitions, answer(0, 3))
    sent = sends(partitions)
    partitions.produced(sent, twin.answers(sent), 0.1)
    fetches(partitions, answer(3, 3), 0.15)
    sent = sends(partitions, 0.15)
    task.targets[2] = TargetProducer(2, LIMITS, version=9)
    partitions.lost(2, [sent], 0.2)
    told: list[PartitionProgress] = []
    for turn in range(400):
        now_s = 0.2 + 0.02 * turn
        task.targets.setdefault(2, TargetProducer(2, LIMITS, version=9))
        for command in task.timers(now_s):
            if isinstance(command, InspectTwins):
                partitions.on_inspected(NAMED, KafkaError("east does not answer", retriable=True), now_s, NOW_MS)
            if isinstance(command, TaskProgress):
                told += command.carried
    assert [(one.from_offset, one.to_offset, one.records) for one in told] == [(0, 3, 3)]


@pytest.mark.parametrize(("code", "outage_s"), [(2, 12.0), (45, 100.0)])
def test_looks_in_vain_are_no_refusals(code: int, outage_s: float) -> None:
    task = exact()
    track, now_s, looks = task.replicators[NAMED], 0.0, 0
    track.settle(0.0)
    while now_s < outage_s:
        now_s += 0.02
        if task.take_due_inspections(now_s, {2}):
            looks += 1
            task.on_inspected(NAMED, KafkaError("east does not answer", retriable=True), now_s, NOW_MS)
    assert looks > 10
    now_s = track.retry_at_s + 0.1
    looked_at(task, TargetState(0, 0, 0, None, None, 0, 9), now_s)
    track.zombies = UnresolvedRequests.none()
    fetches(task, answer(0, 3), now_s)
    refused = [ProducedPartition(bytes.fromhex(TARGET_ID), 0, code, -1, -1, 0, None, None)]
    task.produced(sends(task, now_s), refused, now_s)
    assert track.phase is Phase.UNVERIFIED, "an answer as any other"


def test_what_was_told_before_the_target_lost_it_counts_no_gaps_again() -> None:
    noted = PendingProgress(0, 12, 100, 1, 5, [], (OffsetGap(0, 8),), 5)
    track = exact().replicators[NAMED]
    track.progress_log.noted.append(noted)
    assert take_acknowledged(track.progress_log.noted, 12, told=10).unseen == 0
    track.progress_log.noted.append(noted)
    assert take_acknowledged(track.progress_log.noted, 12, told=6).unseen == 2


def test_lines_that_break_for_a_day_leave_no_more_behind_than_may_still_land() -> None:
    strays = UnresolvedRequests.none()
    for number in range(1, 400):
        heads = [(os.urandom(61), 8 * number + one) for one in range(8)]
        strays.lost(10.0 * number + 30.0, 1 << 62, None, heads, led=5)
        strays.seen(10.0 * number + 0.1, 4.4)
    assert len(strays.heads) == 24
