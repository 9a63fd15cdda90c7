"""Inspects a mapped twin: which batches landed beyond what was reported, and which source records they hold.

Each reading is older than what is compared with: the leader's memory, the log end, then the batches.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from functools import partial
from itertools import islice

from twinshore.config.incident_policy import IncidentKind
from twinshore.config.model import OffsetRun, TopicPartition, source_end
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.leader_queries import OffsetKind
from twinshore.kafka.log_reader import (
    read_batches,
    read_contents,
    read_dated_contents,
    read_visible_record,
    read_visible_runs,
)
from twinshore.kafka.protocol.record_batch import next_sequence
from twinshore.replication.core.mapping import map_each_record, match_latest_offsets, offsets_between
from twinshore.replication.task.core.config import (
    NO_EPOCH_OFFSET,
    UNKNOWN_EPOCH,
    EpochEnd,
    EpochOffset,
    LandedBatch,
    UnclearLanding,
    WrittenPosition,
    compare_histories,
    find_landed_beyond,
    map_landed_batches,
    position_after,
)
from twinshore.replication.task.core.position import (
    InspectAgain,
    PositionVerdict,
    ResumeAt,
    StopAt,
    TargetState,
    describe_divergence,
)

DISAGREEMENT_KIND = IncidentKind.POSITION_DISAGREEMENT
# Records of the source to search for what landed; each takes 16 bytes.
SEARCH_RECORDS_MAX = 4_000_000
# Records are seldom further out of the order of their time stamps.
TIMESTAMP_SLACK_MS = 60_000
FindOffsetRuns = Callable[[list[LandedBatch]], list[OffsetRun] | StopAt]
RETENTION_LOSS_SENTENCE = (
    "the twin now begins at {}, behind {}, up to which was told what the link wrote; its leader remembers more, which"
    " retention took before anybody told of it: whose records they were cannot be known"
)


def inspect_mapped_target(
    source: KafkaCluster,
    target: KafkaCluster,
    producer_id: int,
    partition: TopicPartition,
    twin: TopicPartition,
    reach: WrittenPosition,
    stand: EpochOffset = NO_EPOCH_OFFSET,
    *,
    drops: bool = False,
) -> TargetState:
    """Inspects one partition; raises KafkaError if unreadable. `stand`: the replicated history, if known. `drops`: a
    drop-oldest queue may have left out records.
    """
    states = [one for one in target.describe_producers([twin])[twin] if one.producer_id == producer_id]
    remembered = (states[0].last_sequence, states[0].last_timestamp) if states else None
    end = target.list_offsets([twin], OffsetKind.LOG_END)[twin]
    start = target.list_offsets([twin], OffsetKind.EARLIEST)[twin]
    source_start = source.list_offsets([partition], OffsetKind.EARLIEST)[partition]
    source_stop = source.list_offsets([partition], OffsetKind.LOG_END)[partition]
    offset_runs: list[OffsetRun] = []
    dropped: list[tuple[int, int]] = []
    verdict: PositionVerdict | None = _refusal(reach, start, end, remembered)
    if verdict is None:
        found: FindOffsetRuns
        if drops:
            found = partial(_sought, source, target, partition, twin, reach, (source_start, source_stop))
        elif source_start > reach.source:
            found = partial(_gone, reach, source_start)
        else:
            found = partial(_counted, source, target, partition, twin, reach)
        verdict, offset_runs = _landed(target, producer_id, twin, reach, (start, end), remembered, found)
    if drops and isinstance(verdict, ResumeAt):
        runs = offsets_between(reach.source, offset_runs)
        # Offsets that the source has lost were not sent: what was sent is in the offset runs.
        dropped = [
            (begin, end)
            for begin, end in runs
            if begin < source_start or next(read_visible_runs(source, partition, begin), (end, 0))[0] < end
        ]
    epoch = wrote = UNKNOWN_EPOCH
    if isinstance(verdict, ResumeAt):
        # Before records are compared: the comparison holds for the queried history.
        wrote, epoch, parted = _history(source, partition, verdict.position, (source_start, source_stop), stand)
        if parted >= 0:
            verdict = StopAt(IncidentKind.TRUNCATION, parted, verdict.position, describe_divergence(parted))
    if isinstance(verdict, ResumeAt) and not offset_runs:
        verdict = _parted(source, target, partition, twin, reach, source_start, start, drops=drops) or verdict
    if isinstance(verdict, ResumeAt):
        verdict = _within_source(verdict, source_start, source_stop)
    ends = (start, end, end, None, remembered, source_start, source_stop)
    return TargetState(
        *ends,
        source_epoch=epoch,
        wrote_epoch=wrote,
        verdict=verdict,
        offset_runs=tuple(offset_runs),
        dropped=tuple(dropped),
    )


def _history(
    source: KafkaCluster, partition: TopicPartition, position: int, span: tuple[int, int], stand: EpochOffset
) -> tuple[int, int, int]:
    """Returns the leader epoch of the source's last record below `position`, the epoch for the next fetch, and from
    where the history differs, or -1.
    """
    last = position - 1
    theirs = source.read_tail_batch(partition, last) if span[0] <= last < span[1] else None
    here = EpochOffset(theirs.leader_epoch if theirs else UNKNOWN_EPOCH, position)
    asked = {one.epoch for one in (stand, here) if one.epoch >= 0}
    said = {one: EpochEnd(*source.epoch_ends({partition: one})[partition]) for one in asked}
    return here.epoch, *compare_histories(stand, here, said)


def _refusal(
    reach: WrittenPosition, start: int, end: int, remembered: tuple[int, int] | None
) -> PositionVerdict | None:
    if end < reach.target:
        sentence = (
            f"the twin ends at {end}, though it had acknowledged records up to {reach.target}: the target lost them"
        )
        return StopAt(DISAGREEMENT_KIND, reach.source, reach.source, sentence)
    if start > reach.target and remembered is None and not reach.warm:
        sentence = (
            f"the twin now begins at {start}, behind {reach.target}, up to which the link had written, and its leader"
            " has forgotten the link: whether more had landed cannot be known"
        )
        return StopAt(DISAGREEMENT_KIND, reach.source, reach.source, sentence)
    return None


def _landed(
    target: KafkaCluster,
    producer_id: int,
    twin: TopicPartition,
    reach: WrittenPosition,
    span: tuple[int, int],
    remembered: tuple[int, int] | None,
    found: FindOffsetRuns,
) -> tuple[PositionVerdict, list[OffsetRun]]:
    ours: list[LandedBatch] = []
    at = max(span[0], reach.target)
    for _, header in read_batches(target, twin, at, span[1], committed=False):
        at = header.last_offset + 1
        if header.producer_id == producer_id:
            ours.append(LandedBatch(header.base_offset, header.last_offset_delta + 1, header.base_sequence))
    if at < span[1]:
        return InspectAgain(f"the twin's leader ends at {span[1]}, its replicas at {at}"), []
    fresh = find_landed_beyond(reach, ours)
    if isinstance(fresh, UnclearLanding):
        return StopAt(DISAGREEMENT_KIND, reach.source, reach.source, fresh.sentence), []
    following = next_sequence(fresh[-1].sequence, fresh[-1].records) if fresh else reach.sequence
    if remembered is not None and next_sequence(remembered[0], 1) != following:
        if span[0] > reach.target and reach.ahead(next_sequence(remembered[0], 1)) > reach.ahead(following):
            return StopAt(
                DISAGREEMENT_KIND, reach.source, reach.source, RETENTION_LOSS_SENTENCE.format(span[0], reach.target)
            ), []
        return InspectAgain(
            f"the twin's leader remembers sequence {remembered[0]}, its log asks for {following} next"
        ), []
    timestamp = remembered[1] if remembered else -1
    if not fresh:
        return ResumeAt(reach.source, timestamp, reach.sequence), []
    offset_runs = found(fresh)
    if isinstance(offset_runs, StopAt):
        return offset_runs, []
    return ResumeAt(source_end(offset_runs[-1]), timestamp, position_after(offset_runs[-1]).sequence), offset_runs


def _gone(reach: WrittenPosition, source_start: int, _fresh: list[LandedBatch]) -> StopAt:
    sentence = (
        f"the source's log now begins at {source_start}, behind {reach.source}, up to which was told what the link"
        " wrote; more had landed, and which records those were cannot be known"
    )
    return StopAt(DISAGREEMENT_KIND, reach.source, source_start, sentence)


def _counted(
    source: KafkaCluster,
    target: KafkaCluster,
    partition: TopicPartition,
    twin: TopicPartition,
    reach: WrittenPosition,
    fresh: list[LandedBatch],
) -> list[OffsetRun] | StopAt:
    offset_runs = map_landed_batches(reach, fresh, read_visible_runs(source, partition, reach.source))
    if isinstance(offset_runs, UnclearLanding):
        return StopAt(DISAGREEMENT_KIND, reach.source, reach.source, offset_runs.sentence)
    position = source_end(offset_runs[-1])
    theirs = read_visible_record(source, partition, position - 1)
    if theirs is None or theirs != read_visible_record(target, twin, fresh[-1].target + fresh[-1].records - 1):
        sentence = f"the record at {position - 1} of the source is not the last one that the link wrote to the twin"
        return StopAt(DISAGREEMENT_KIND, reach.source, position, sentence)
    return offset_runs


def _sought(
    source: KafkaCluster,
    target: KafkaCluster,
    partition: TopicPartition,
    twin: TopicPartition,
    reach: WrittenPosition,
    span: tuple[int, int],
    fresh: list[LandedBatch],
) -> list[OffsetRun] | StopAt:
    """Matches records by content, as a drop-oldest queue leaves out some. Searches from the time of the earliest, at
    first to shortly after the latest. `span`: the source's log start and end.
    """
    ours = [
        one
        for landed in fresh
        for _, one in read_dated_contents(
            target, twin, landed.target, landed.target + landed.records, committed=False, theirs=True
        )
    ]
    times = [one.timestamp_ms or 0 for one in ours]
    if len(ours) != sum(landed.records for landed in fresh):
        return StopAt(
            DISAGREEMENT_KIND, reach.source, reach.source, "the twin has lost records that the link wrote last"
        )
    start, end = span
    begin = max(reach.source, start, source.first_since(partition, min(times)))
    until = source.first_since(partition, max(times) + TIMESTAMP_SLACK_MS)
    for stop in dict.fromkeys((until if until > begin else end, end)):
        offsets, marks = array("q"), array("q")
        for offset, one in islice(
            read_dated_contents(source, partition, begin, stop, committed=True, theirs=True), SEARCH_RECORDS_MAX
        ):
            offsets.append(offset)
            marks.append(hash(one))
        if places := match_latest_offsets([hash(one) for one in ours], offsets, marks):
            return map_each_record(fresh, places)
    sentence = f"what the link wrote to the twin last is not on the source from offset {begin} on"
    return StopAt(DISAGREEMENT_KIND, reach.source, reach.source, sentence)


def _parted(
    source: KafkaCluster,
    target: KafkaCluster,
    partition: TopicPartition,
    twin: TopicPartition,
    reach: WrittenPosition,
    source_start: int,
    start: int,
    *,
    drops: bool,
) -> StopAt | None:
    """Whether the source lost its end and grew again. With drops, records exist after the last one that landed."""
    at, behind = reach.last_source, reach.source - 1
    if at < 0:
        return None
    both = at >= source_start and reach.last_target >= start
    theirs = read_visible_record(source, partition, at) if both else None
    ours = read_visible_record(target, twin, reach.last_target) if theirs else None
    if theirs is not None and ours is not None and theirs != ours:
        sentence = f"the record at {at} of the source is not the one that the link wrote to the twin from there"
        return StopAt(IncidentKind.TRUNCATION, at, reach.source, sentence)
    if drops or behind < max(source_start, at + 1):
        return None
    if any(read_contents(source, partition, behind, reach.source, committed=True)):
        sentence = f"the source has a record at {behind} now, where none was when the twin was carried past it"
        return StopAt(IncidentKind.TRUNCATION, at + 1, reach.source, sentence)
    return None


def _within_source(resume: ResumeAt, start: int, end: int) -> PositionVerdict:
    if resume.position > end:
        sentence = (
            f"the source ends at {end}, the twin has records up to {resume.position}: the source has lost offsets"
        )
        return StopAt(IncidentKind.TRUNCATION, end, resume.position, sentence)
    gap_to = start if start > resume.position else -1
    return ResumeAt(resume.position, resume.last_timestamp, resume.next_sequence, gap_to)
