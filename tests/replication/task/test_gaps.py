"""What takes offsets that a source has no more: filler before a twin's first record, markers elsewhere."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from testkit.errors import mentions
from twinshore.config.incident_policy import IncidentKind
from twinshore.config.model import TopicPartition
from twinshore.config.sections.mirror import MirrorSettings
from twinshore.replication.task.core.batches import OffsetGap, OutgoingBatch, SequenceMap
from twinshore.replication.task.core.markers import marker_producer_id
from twinshore.replication.task.core.messages import PartitionConfig, TaskLimits, limits_from_settings
from twinshore.replication.task.core.partition import PartitionLeaders, PartitionReplicator, Phase
from twinshore.replication.task.core.partitions import TaskPartitions, log_start_limit, report_unreported_gap
from twinshore.replication.task.core.position import LastBatch, ResumeAt, TargetState, judge_position

OURS = 7
MARKED_MAX = TaskLimits().gap_offsets_max
NOW_MS = 1_800_000_000_000
NAMED = TopicPartition("orders", 0)
REFUSED = "the right to this topic is missing. grant Delete on topic orders"
FRESH = TargetState(0, 0, 0, None, None, source_start=60, source_end=100)


def looked(seen: TargetState, anchor: int, *, never: bool = False) -> tuple[TaskPartitions, PartitionReplicator]:
    """A task whose one partition was looked at, and found to be so."""
    task = TaskPartitions(OURS, 0, state_expiry_ms=86_400_000, never_cut=never)
    task.assign([PartitionConfig("orders", 0, "07" * 16, "08" * 16, base_offset=anchor, base_sequence=anchor)])
    task.routed(NAMED, PartitionLeaders(1, 0, 2))
    assert task.take_due_inspections(0.0, {2}) == [NAMED]
    task.on_inspected(NAMED, seen, 1.0, NOW_MS)
    return task, task.replicators[NAMED]


def spans(track: PartitionReplicator) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """What waits as filler, and as markers."""
    pieces = [piece for piece, _ in track.waiting]
    filler = [(piece.base, piece.end) for piece in pieces if isinstance(piece, OutgoingBatch)]
    return filler, [(piece.base, piece.end) for piece in pieces if isinstance(piece, OffsetGap)]


def carried(end: int) -> TargetState:
    """A twin that begins at 0, holds our records up to `end`, and misses what its source has deleted below 1000."""
    return TargetState(0, end, end, LastBatch(end - 1, end - 1, OURS, end - 1), (end - 1, NOW_MS), 1000, 2000)


def test_filler_is_written_and_cut_off_where_both_are_allowed() -> None:
    _, track = looked(FRESH, 60)
    assert spans(track) == ([(0, 60)], [])
    assert track.cut_to == 60


def test_filler_lies_below_a_twins_first_record_and_nothing_that_was_carried_is_cut_off_where_that_is_forbidden() -> (
    None
):
    """Else whoever reads at the twin's end is given records that no source ever had."""
    for seed in range(300):
        chance, never = random.Random(seed), bool(seed % 2)
        anchor, end = chance.choice((0, 40)), chance.choice((0, 20, 40, 70))
        start = chance.randrange(0, 50_000)
        ours = LastBatch(end - 1, end - 1, OURS, end - 1) if end else None
        known, log_start = ((end - 1, NOW_MS) if end else None), chance.choice((0, end))
        seen = TargetState(log_start, end, end, ours, known, start, max(start, end) + 9)
        _, track = looked(seen, anchor, never=never)
        assert not never or track.cut_to <= anchor, f"seed {seed}: records of the source may lie from {anchor} on"
        filler, marked = spans(track)
        assert all(to <= anchor for _, to in filler), f"seed {seed}: readers see filler"
        taken = sorted([*filler, *marked])
        assert not taken or (taken[0][0], taken[-1][1]) == (end, start), f"seed {seed}: {taken}"


def test_a_topic_that_was_at_home_on_the_target_gets_markers_though_its_end_was_lost() -> None:
    """Readers see its own records below; and sequences begin with 0 behind them."""
    task = TaskPartitions(OURS, 1, state_expiry_ms=86_400_000)
    task.assign([PartitionConfig("orders", 0, "07" * 16, "08" * 16, 60, 60, inherited=60, epoch=1)])
    task.routed(NAMED, PartitionLeaders(1, 0, 2))
    assert task.take_due_inspections(0.0, {2}) == [NAMED]
    task.on_inspected(NAMED, TargetState(0, 50, 50, LastBatch(49, 49, 99, 49), None, 80, 100), 1.0, NOW_MS)
    track = task.replicators[NAMED]
    if track.phase is not Phase.RUNNING:  # nothing of a task before may land any more
        assert task.take_due_inspections(track.retry_at_s, {2}) == [NAMED]
        task.on_inspected(
            NAMED, TargetState(0, 50, 50, LastBatch(49, 49, 99, 49), None, 80, 100), track.retry_at_s, NOW_MS
        )
    assert spans(track) == ([], [(50, 80)])
    track.send_gap(30, 9.0)
    assert track.stamp.sequence(80) == 0


def test_the_links_own_filler_goes_though_no_record_may_be_cut_off() -> None:
    _, track = looked(FRESH, 60, never=True)
    assert spans(track) == ([(0, 60)], [])
    assert track.cut_to == 60
    assert log_start_limit(carried(500), 0, never=True) == 0
    assert log_start_limit(carried(500), 0, never=False) == 1000
    _, later = looked(replace(FRESH, source_start=90), 60, never=True)
    assert (spans(later), later.cut_to) == (([(0, 60)], [(60, 90)]), 60), "more was deleted since the twin was made"


def test_without_the_right_to_cut_a_twin_gets_markers_and_its_sequences_follow_its_offsets() -> None:
    _, track = looked(replace(FRESH, uncut=REFUSED), 60)
    assert spans(track) == ([], [(0, 60)])
    assert track.cut_to == -1
    stamp = SequenceMap(OURS, 0, 60, 60)
    while spans(track)[1]:
        run = track.send_gap(25, 0.0)
        track.in_flight -= 1
        track.arrived(run.end)
        half = TargetState(0, run.end, run.end, LastBatch(run.end - 1, run.end - 1, -1, -1, unit=True), None, 60, 100)
        assert isinstance(judge_position(half, stamp), ResumeAt), "the next task goes on behind them"
    track.set_back()
    assert track.stamp.sequence(60) == 60
    whole = TargetState(0, 100, 100, LastBatch(99, 99, OURS, 99), (99, NOW_MS), 60, 100)
    assert judge_position(whole, stamp) == ResumeAt(100, NOW_MS, 100)


@pytest.mark.parametrize(
    ("seen", "anchor"),
    [
        (replace(FRESH, source_start=MARKED_MAX + 1, source_end=MARKED_MAX + 9), 60),
        (replace(carried(500), source_start=MARKED_MAX + 600, source_end=1 << 40), 0),
    ],
)
def test_where_markers_will_not_do_the_partition_rests_until_the_right_is_given(seen: TargetState, anchor: int) -> None:
    task, track = looked(replace(seen, uncut=REFUSED), anchor)
    assert track.phase is Phase.STOPPED
    (told,) = [one for one in task.incidents if one.kind == "rights lost"]
    assert "too many for markers" in told.sentence
    assert mentions(told.sentence, "Delete", "orders")
    assert (told.from_offset, told.to_offset, told.policy) == (seen.log_end, seen.source_start, None)


@pytest.mark.parametrize("never", [False, True])
def test_a_gap_too_long_for_markers_stops_its_partition_and_says_how_the_twin_begins_again(never: bool) -> None:
    far = replace(carried(500), source_start=500 + MARKED_MAX, source_end=1 << 40)
    _, track = looked(far, 0, never=never)
    assert spans(track) == ([], [(500, 500 + MARKED_MAX)])
    task, track = looked(replace(far, source_start=501 + MARKED_MAX), 0, never=never)
    assert track.phase is Phase.STOPPED
    (told,) = task.incidents
    assert told.kind is IncidentKind.RETENTION_GAP
    assert "gap_offsets_max" in told.sentence
    assert "`twinshore mirror recreate orders`" in told.sentence


def test_the_longest_gap_is_the_settings_to_say() -> None:
    task = TaskPartitions(
        OURS, 0, state_expiry_ms=86_400_000, limits=limits_from_settings(MirrorSettings(gap_offsets_max=499))
    )
    task.assign([PartitionConfig("orders", 0, "07" * 16, "08" * 16)])
    task.routed(NAMED, PartitionLeaders(1, 0, 2))
    assert task.take_due_inspections(0.0, {2}) == [NAMED]
    task.on_inspected(NAMED, carried(500), 1.0, NOW_MS)
    assert task.replicators[NAMED].phase is Phase.STOPPED


@pytest.mark.parametrize(
    ("unseen", "told", "unread"),
    [
        (((100, 300),), [(100, 300)], 200),
        (((120, 130), (250, 300)), [(120, 300)], 60),
        ((), [], 0),
    ],
)
def test_a_gap_that_a_dead_task_filled_and_never_told_is_told_by_the_next(
    unseen: tuple[tuple[int, int], ...], told: list[tuple[int, int]], unread: int
) -> None:
    """Its markers were counted as records that had crossed, and no row said that any were lost."""
    task = TaskPartitions(OURS, 0, state_expiry_ms=86_400_000)
    task.assign([PartitionConfig("orders", 0, "07" * 16, "08" * 16, 100)])
    task.routed(NAMED, PartitionLeaders(1, 0, 2))
    assert task.take_due_inspections(0.0, {2}) == [NAMED]
    tail = LastBatch(299, 299, marker_producer_id(OURS), -1, control=True)
    task.on_inspected(NAMED, TargetState(0, 300, 300, tail, (99, NOW_MS), 300, 900, unseen=unseen), 1.0, NOW_MS)
    rows = [(row.kind, row.from_offset, row.to_offset) for row in task.incidents]
    assert rows == [(IncidentKind.RETENTION_GAP, *span) for span in told]
    (account,) = task.accounts(0.0)
    assert (account.from_offset, account.to_offset, account.records) == (100, 300, 200 - unread)


def gaps_told(task: TaskPartitions) -> list[tuple[int, int]]:
    found = [(row.from_offset, row.to_offset) for row in task.incidents if row.kind is IncidentKind.RETENTION_GAP]
    task.incidents.clear()
    return found


def test_a_gap_that_grows_before_markers_go_is_told_for_what_it_grew_by() -> None:
    """Markers wait until nothing of a task before can land, and a source goes on losing records meanwhile."""
    task = TaskPartitions(OURS, 0, state_expiry_ms=86_400_000)
    task.assign([PartitionConfig("orders", 0, "07" * 16, "08" * 16, 50)])
    task.routed(NAMED, PartitionLeaders(1, 0, 2))
    track = task.replicators[NAMED]
    tail, now_s = LastBatch(49, 49, OURS, 49), 1.0
    for start, told, marked in ((100, [(50, 100)], []), (200, [(100, 200)], [(50, 200)])):
        assert task.take_due_inspections(now_s, {2}) == [NAMED]
        task.on_inspected(NAMED, TargetState(0, 50, 50, tail, (49, NOW_MS), start, 900), now_s, NOW_MS)
        assert gaps_told(task) == told
        assert [(one.gap.base, one.gap.end) for one in task.next_markers(2, now_s)] == marked
        now_s = track.retry_at_s + 0.1


@pytest.mark.parametrize(("anchor", "told"), [(0, [(0, 100)]), (40, [(40, 100)]), (100, [])])
def test_what_a_source_lost_since_its_twin_was_made_and_before_anything_crossed_is_told(
    anchor: int, told: list[tuple[int, int]]
) -> None:
    task, _ = looked(replace(FRESH, source_start=100, source_end=300), anchor)
    assert gaps_told(task) == told


def test_nothing_was_lost_before_a_twins_first_record() -> None:
    order = PartitionConfig("orders", 0, "07" * 16, "08" * 16, base_offset=60, base_sequence=60)
    track = PartitionReplicator.of(order, (OURS, 0), 0, 1 << 20)
    track.fetched = 100
    assert not report_unreported_gap(track, replace(FRESH, source_start=100, unseen=((0, 60),)))
    (row,) = report_unreported_gap(track, replace(FRESH, source_start=100, unseen=((0, 80),)))
    assert (row.from_offset, row.to_offset) == (60, 80)
    assert not report_unreported_gap(track, replace(FRESH, source_start=100, unseen=((0, 80),))), "told once"
