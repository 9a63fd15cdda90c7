"""What a source's word on its leader epochs says of the history that a twin follows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from twinshore.config.model import TopicPartition
from twinshore.kafka.protocol.error_codes import Code
from twinshore.kafka.protocol.fetch import FetchedPartitionById
from twinshore.replication.task.core.accounting import PendingProgress
from twinshore.replication.task.core.error_actions import judge_source_error
from twinshore.replication.task.core.messages import (
    NO_EPOCH_OFFSET,
    UNKNOWN_EPOCH,
    EpochEnd,
    EpochOffset,
    Handoff,
    PartitionConfig,
    compare_histories,
    latest_epoch_offset,
)
from twinshore.replication.task.core.partition import PartitionLeaders, Phase
from twinshore.replication.task.core.partitions import TaskPartitions
from twinshore.replication.task.core.position import LastBatch, TargetState

NAMED = TopicPartition("orders", 0)
OURS, NOW_MS = 7, 1_800_000_000_000
# What a source says whose epoch 5 ended at 90, and whose epoch 8 now ends at 110.
SAID = {4: EpochEnd(4, 60), 5: EpochEnd(5, 90), 6: EpochEnd(5, 90), 8: EpochEnd(8, 110)}


@pytest.mark.parametrize(
    ("told", "here", "epoch", "parted"),
    [
        (EpochOffset(5, 80), EpochOffset(5, 80), 5, -1),
        (EpochOffset(5, 100), EpochOffset(8, 100), 8, 90),  # the twin has what epoch 5 had and lost
        (EpochOffset(6, 100), EpochOffset(8, 100), 8, 90),  # the source has never heard of epoch 6
        (EpochOffset(5, 90), EpochOffset(8, 95), 8, -1),  # what was carried after the last word
        (
            EpochOffset(5, 100),
            EpochOffset(5, 85),
            5,
            -1,
        ),  # the target lost its end, and with it all that the source lost
        (EpochOffset(5, 100), EpochOffset(UNKNOWN_EPOCH, 100), -1, 90),
        (
            EpochOffset(5, 80),
            EpochOffset(UNKNOWN_EPOCH, 80),
            5,
            -1,
        ),  # cleaners took the record, the last word still holds
        (NO_EPOCH_OFFSET, EpochOffset(8, 100), 8, -1),
        (NO_EPOCH_OFFSET, EpochOffset(UNKNOWN_EPOCH, 100), -1, -1),
        (EpochOffset(8, 100), EpochOffset(4, 100), -1, 60),
        (EpochOffset(4, 50), EpochOffset(5, 50), 5, 49),  # another leader's record lies there
        (EpochOffset(3, 50), EpochOffset(3, 50), -1, -1),  # of which the source says nothing
    ],
)
def test_where_histories_part(told: EpochOffset, here: EpochOffset, epoch: int, parted: int) -> None:
    assert compare_histories(told, here, SAID) == (epoch, parted)


def test_an_epoch_that_cleaners_took_stops_nothing() -> None:
    """Behind the stand the source goes on in an earlier epoch: it only forgot the one between."""
    assert compare_histories(EpochOffset(6, 80), EpochOffset(UNKNOWN_EPOCH, 80), SAID) == (5, -1)
    diverging = FetchedPartitionById(bytes(16), 0, 0, 110, 110, 0, (5, 90), None, [], memoryview(b""))
    assert judge_source_error(diverging, 80) is None, "a look compares records"
    found = judge_source_error(diverging, 100)
    assert found is not None
    assert (found.kind, found.offset, found.end) == ("truncation", 90, 100)
    unknown = diverging._replace(error=Code.offset_out_of_range, diverging_epoch=None)
    assert judge_source_error(unknown, 80) is None


def looked_at(source_epoch: int) -> TaskPartitions:
    """A task whose only partition was looked at while the source was led in epoch 5, and stands at 100."""
    task = TaskPartitions(OURS, 0, state_expiry_ms=86_400_000)
    task.assign([PartitionConfig("orders", 0, "11" * 16, "22" * 16, receipt_to=100)])
    task.routed(NAMED, PartitionLeaders(1, 5, 2, target_epoch=1))
    assert task.take_due_inspections(0.0, {2}) == [NAMED]
    tail = LastBatch(90, 99, OURS, 90)
    seen = TargetState(0, 100, 100, tail, (99, NOW_MS), 0, 100, source_epoch=source_epoch, wrote_epoch=source_epoch)
    task.on_inspected(NAMED, seen, 0.0, NOW_MS)
    assert task.replicators[NAMED].phase is Phase.RUNNING
    return task


def test_a_look_tells_the_epoch_that_is_fetched_on_with_and_a_handover_passes_it_on() -> None:
    task = looked_at(5)
    order = task.fetch_order((1, 0))
    assert order is not None
    assert [one.last_fetched_epoch for one in order.partitions] == [5]
    (handover,) = task.handovers(0.0)
    assert (handover.position, handover.leader_epoch) == (100, 5)
    task.routed(NAMED, PartitionLeaders(3, 6, 2, target_epoch=1))
    order = task.fetch_order((3, 0))
    assert order is not None
    assert [one.last_fetched_epoch for one in order.partitions] == [5], "the new leader is asked by it"


def test_where_the_epoch_is_not_known_a_new_leader_means_a_look() -> None:
    task = looked_at(-1)
    (handover,) = task.handovers(0.0)
    assert (handover.leader_epoch, handover.source_led) == (-1, 5)
    task.routed(NAMED, PartitionLeaders(3, 6, 2, target_epoch=1))
    assert task.fetch_order((3, 0)) is None or not task.fetch_order((3, 0)).partitions  # type: ignore[union-attr]
    assert task.take_due_inspections(0.0, {2}) == [NAMED]


@pytest.mark.parametrize(
    ("epoch", "led", "phase"), [(5, 6, Phase.RUNNING), (-1, 5, Phase.RUNNING), (-1, 6, Phase.UNVERIFIED)]
)
def test_so_does_a_handover_from_before_the_election(epoch: int, led: int, phase: Phase) -> None:
    task = TaskPartitions(OURS, 0, state_expiry_ms=86_400_000)
    task.assign([PartitionConfig("orders", 0, "11" * 16, "22" * 16)])
    task.routed(NAMED, PartitionLeaders(1, led, 2, target_epoch=1))
    task.take_over([Handoff("orders", 0, 100, epoch, NOW_MS, target=2, target_epoch=1, source_led=5)], 0.0)
    assert task.replicators[NAMED].phase is phase


def test_behind_a_gap_no_epoch_is_known() -> None:
    task = TaskPartitions(OURS, 0, state_expiry_ms=86_400_000)
    task.assign([PartitionConfig("orders", 0, "11" * 16, "22" * 16, receipt_to=100)])
    task.routed(NAMED, PartitionLeaders(1, 5, 2, target_epoch=1))
    task.take_due_inspections(0.0, {2})
    seen = TargetState(0, 100, 100, LastBatch(90, 99, OURS, 90), (99, NOW_MS), 104, 120, source_epoch=5)
    task.on_inspected(NAMED, seen, 0.0, NOW_MS)
    track = task.replicators[NAMED]
    assert (track.fetched, track.source.epoch) == (104, -1)


def restarted(seen: TargetState, *, receipt_to: int = 100, receipt_epoch: int = 5) -> TaskPartitions:
    """A task of a new term, which knows of the last one only what the store kept; its look saw `seen`."""
    task = TaskPartitions(OURS, 0, state_expiry_ms=86_400_000)
    order = PartitionConfig("orders", 0, "11" * 16, "22" * 16, receipt_to=receipt_to, receipt_epoch=receipt_epoch)
    task.assign([order])
    task.routed(NAMED, PartitionLeaders(1, 8, 2, target_epoch=1))
    assert task.take_due_inspections(0.0, {2}) == [NAMED]
    stand = task.replicators[NAMED].progress_log.stand
    assert stand == EpochOffset(receipt_epoch, receipt_to)
    here = EpochOffset(seen.source_epoch, seen.log_end)
    epoch, parted = compare_histories(stand, here, SAID)
    task.on_inspected(NAMED, replace(seen, source_epoch=epoch, wrote_epoch=here.epoch, parted=parted), 0.0, NOW_MS)
    return task


def seen_at(end: int, epoch: int) -> TargetState:
    """The last batches are alike; the source's one was written in `epoch`."""
    return TargetState(
        0, end, end, LastBatch(end - 10, end - 1, OURS, end - 10), (end - 1, NOW_MS), 0, 110, source_epoch=epoch
    )


def test_what_the_store_kept_tells_after_a_restart_that_histories_parted() -> None:
    task = restarted(seen_at(100, 8))
    assert task.replicators[NAMED].phase is Phase.STOPPED
    (told,) = task.incidents
    assert (told.kind, told.from_offset, told.to_offset) == ("truncation", 90, 100)
    assert restarted(seen_at(100, 8), receipt_epoch=-1).replicators[NAMED].phase is Phase.RUNNING, (
        "an older version's store"
    )


@pytest.mark.parametrize(
    ("end", "epoch", "receipt_to", "receipt_epoch"),
    [
        (100, 8, 100, 8),
        (100, 8, 85, 5),  # what crossed after the last receipt
        (85, 5, 100, 5),  # the target lost its end, and with it all that the source lost
        (80, UNKNOWN_EPOCH, 80, 6),  # cleaners took the record and its epoch
    ],
)
def test_a_healthy_partition_goes_on_after_a_restart(end: int, epoch: int, receipt_to: int, receipt_epoch: int) -> None:
    task = restarted(seen_at(end, epoch), receipt_to=receipt_to, receipt_epoch=receipt_epoch)
    assert task.replicators[NAMED].phase is Phase.RUNNING


def test_an_account_says_the_epoch_of_its_own_end_alone() -> None:
    track = restarted(seen_at(100, 8), receipt_epoch=8).replicators[NAMED]
    track.source.heard = True
    idle = track.account(0.0)
    assert idle is not None
    assert (idle.from_offset, idle.to_offset, idle.epoch) == (100, 100, 8)
    for end, acked, epoch in ((110, 110, 8), (120, 125, -1)):
        track.progress_log.noted.append(PendingProgress(track.progress_log.to, end, 10, 1, NOW_MS, [], epoch=8))
        track.acked = acked
        told = track.account(0.0)
        assert told is not None
        assert (told.to_offset, told.epoch) == (acked, epoch)
        assert track.progress_log.stand == EpochOffset(epoch, acked)


def test_a_look_that_learns_the_epoch_of_what_was_told_tells_it() -> None:
    task = looked_at(5)
    assert not task.accounts(0.0), "not before it can be read"
    task.replicators[NAMED].source.heard = True
    assert [told.epoch for told in task.accounts(0.0)] == [-1], "an earlier stray may land, of which nobody knows"
    assert not task.accounts(1.0)
    (told,) = task.accounts(60.0)
    assert (told.from_offset, told.to_offset, told.epoch) == (100, 100, 5)


def test_a_source_that_forgot_an_epoch_its_records_carry_goes_on_through_one_look_after_another() -> None:
    """Its records below 100 were written in epoch 9; asked for that, it says that epoch 4 ends there."""
    said = {9: EpochEnd(4, 100), 4: EpochEnd(4, 100)}
    task = looked_at(-1)
    track = task.replicators[NAMED]
    seen = TargetState(0, 100, 100, LastBatch(90, 99, OURS, 90), (99, NOW_MS), 0, 100)
    for now_s in (10.0, 20.0, 30.0):
        track.settle(now_s)
        assert task.take_due_inspections(now_s, {2}) == [NAMED]
        epoch, parted = compare_histories(track.progress_log.stand, EpochOffset(9, 100), said)
        assert (epoch, parted) == (4, -1), "a fetch may name 4 alone"
        task.on_inspected(NAMED, replace(seen, source_epoch=epoch, wrote_epoch=9, parted=parted), now_s, NOW_MS)
        assert (track.phase, track.source.epoch) == (Phase.RUNNING, 4)
        assert track.progress_log.stand == EpochOffset(9, 100), "what it was written in"
    track.set_back()
    assert track.progress_log.stand == EpochOffset(9, 100)


@pytest.mark.parametrize(
    ("known", "told", "after"),
    [
        (EpochOffset(5, 90), EpochOffset(8, 100), EpochOffset(8, 100)),
        (EpochOffset(5, 90), EpochOffset(UNKNOWN_EPOCH, 100), EpochOffset(UNKNOWN_EPOCH, 100)),
        (EpochOffset(5, 90), EpochOffset(UNKNOWN_EPOCH, 90), EpochOffset(5, 90)),
        (EpochOffset(UNKNOWN_EPOCH, 90), EpochOffset(5, 90), EpochOffset(5, 90)),
        (EpochOffset(8, 100), EpochOffset(5, 90), EpochOffset(8, 100)),
    ],
)
def test_an_epoch_goes_with_its_own_offset(known: EpochOffset, told: EpochOffset, after: EpochOffset) -> None:
    assert latest_epoch_offset(known, told) == after
