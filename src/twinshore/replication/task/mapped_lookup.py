"""Inspects a mapped twin: which batches landed beyond what was reported, and which source records they hold.

Each reading is older than what is compared with: the leader's memory, the log end, then the batches.
"""

from __future__ import annotations

from array import array
from itertools import islice
from typing import NamedTuple

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
from twinshore.replication.task.core.messages import (
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

# Records of the source to search for what landed; each takes 16 bytes.
SEARCH_RECORDS_MAX = 4_000_000
# Records are seldom further out of the order of their time stamps.
TIMESTAMP_SLACK_MS = 60_000
RETENTION_LOSS_SENTENCE = (
    "the twin now begins at {}, behind {}, up to which the link's writes were reported; its leader remembers more,"
    " which retention deleted before it was reported: whose records these were cannot be known"
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
    states = [state for state in target.describe_producers([twin])[twin] if state.producer_id == producer_id]
    remembered = (states[0].last_sequence, states[0].last_timestamp) if states else None
    end = target.list_offsets([twin], OffsetKind.LOG_END)[twin]
    start = target.list_offsets([twin], OffsetKind.EARLIEST)[twin]
    source_start = source.list_offsets([partition], OffsetKind.EARLIEST)[partition]
    source_stop = source.list_offsets([partition], OffsetKind.LOG_END)[partition]
    sides = _Sides(source, target, partition, twin, reach, (source_start, source_stop), (start, end), drops)
    offset_runs: list[OffsetRun] = []
    dropped: list[tuple[int, int]] = []
    verdict: PositionVerdict | None = _refusal(reach, start, end, remembered)
    if verdict is None:
        verdict, offset_runs = sides.landed(producer_id, remembered)
    if drops and isinstance(verdict, ResumeAt):
        # Offsets that the source has lost were not sent: what was sent is in the offset runs.
        dropped = [
            (begin, stop)
            for begin, stop in offsets_between(reach.source, offset_runs)
            if begin < source_start or next(read_visible_runs(source, partition, begin), (stop, 0))[0] < stop
        ]
    epoch = wrote = UNKNOWN_EPOCH
    if isinstance(verdict, ResumeAt):
        # Before records are compared: the comparison holds for the queried history.
        wrote, epoch, parted = sides.history(verdict.position, stand)
        if parted >= 0:
            verdict = StopAt(IncidentKind.TRUNCATION, parted, verdict.position, describe_divergence(parted))
    if isinstance(verdict, ResumeAt) and not offset_runs:
        verdict = sides.difference() or verdict
    if isinstance(verdict, ResumeAt):
        verdict = _within_source(verdict, source_start, source_stop)
    ends = (start, end, end, None, remembered, source_start, source_stop)
    runs, ranges = tuple(offset_runs), tuple(dropped)
    return TargetState(*ends, source_epoch=epoch, wrote_epoch=wrote, verdict=verdict, offset_runs=runs, dropped=ranges)


def _disagreement(reach: WrittenPosition, sentence: str, end: int = -1) -> StopAt:
    return StopAt(IncidentKind.POSITION_DISAGREEMENT, reach.source, max(reach.source, end), sentence)


def _refusal(reach: WrittenPosition, start: int, end: int, remembered: tuple[int, int] | None) -> StopAt | None:
    if end < reach.target:
        sentence = f"the twin ends at {end}, but had acknowledged records up to {reach.target}: the target lost them"
        return _disagreement(reach, sentence)
    if start > reach.target and remembered is None and not reach.warm:
        sentence = (
            f"the twin now begins at {start}, behind {reach.target}, up to which the link had written, and its leader"
            " has forgotten the link: whether more had landed cannot be known"
        )
        return _disagreement(reach, sentence)
    return None


class _Sides(NamedTuple):
    """A partition and its twin. `source_span`, `span`: log start and end of each."""

    source: KafkaCluster
    target: KafkaCluster
    partition: TopicPartition
    twin: TopicPartition
    reach: WrittenPosition
    source_span: tuple[int, int]
    span: tuple[int, int]
    drops: bool

    def history(self, position: int, stand: EpochOffset) -> tuple[int, int, int]:
        """Returns the leader epoch of the source's last record below `position`, the epoch for the next fetch, and from
        where the history differs, or -1.
        """
        last = position - 1
        shown = self.source_span[0] <= last < self.source_span[1]
        batch = self.source.read_tail_batch(self.partition, last) if shown else None
        here = EpochOffset(batch.leader_epoch if batch else UNKNOWN_EPOCH, position)
        epochs = {known.epoch for known in (stand, here) if known.epoch >= 0}
        ends = {epoch: EpochEnd(*self.source.epoch_ends({self.partition: epoch})[self.partition]) for epoch in epochs}
        return here.epoch, *compare_histories(stand, here, ends)

    def landed(self, producer_id: int, remembered: tuple[int, int] | None) -> tuple[PositionVerdict, list[OffsetRun]]:
        batches: list[LandedBatch] = []
        reach, (start, end) = self.reach, self.span
        at = max(start, reach.target)
        for _, header in read_batches(self.target, self.twin, at, end, committed=False):
            at = header.last_offset + 1
            if header.producer_id == producer_id:
                batches.append(LandedBatch(header.base_offset, header.last_offset_delta + 1, header.base_sequence))
        if at < end:
            return InspectAgain(f"the twin's leader ends at {end}, its replicas at {at}"), []
        fresh = find_landed_beyond(reach, batches)
        if isinstance(fresh, UnclearLanding):
            return _disagreement(reach, fresh.sentence), []
        following = next_sequence(fresh[-1].sequence, fresh[-1].records) if fresh else reach.sequence
        known = next_sequence(remembered[0], 1) if remembered else following
        if known != following and start > reach.target and reach.ahead(known) > reach.ahead(following):
            return _disagreement(reach, RETENTION_LOSS_SENTENCE.format(start, reach.target)), []
        if remembered and known != following:
            sentence = f"the twin's leader remembers sequence {remembered[0]}, its log asks for {following} next"
            return InspectAgain(sentence), []
        timestamp = remembered[1] if remembered else -1
        if not fresh:
            return ResumeAt(reach.source, timestamp, reach.sequence), []
        runs = self._offset_runs(fresh)
        if isinstance(runs, StopAt):
            return runs, []
        return ResumeAt(source_end(runs[-1]), timestamp, position_after(runs[-1]).sequence), runs

    def _offset_runs(self, fresh: list[LandedBatch]) -> list[OffsetRun] | StopAt:
        if self.drops:
            return self._sought(fresh)
        reach, source_start = self.reach, self.source_span[0]
        if source_start > reach.source:
            sentence = (
                f"the source's log now begins at {source_start}, behind {reach.source}, up to which the link's writes"
                " were reported; more had landed, and which records those were cannot be known"
            )
            return _disagreement(reach, sentence, source_start)
        runs = map_landed_batches(reach, fresh, read_visible_runs(self.source, self.partition, reach.source))
        if isinstance(runs, UnclearLanding):
            return _disagreement(reach, runs.sentence)
        position = source_end(runs[-1])
        record = read_visible_record(self.source, self.partition, position - 1)
        last = fresh[-1].target + fresh[-1].records - 1
        if record is None or record != read_visible_record(self.target, self.twin, last):
            sentence = f"the record at {position - 1} of the source is not the last one that the link wrote to the twin"
            return _disagreement(reach, sentence, position)
        return runs

    def _sought(self, fresh: list[LandedBatch]) -> list[OffsetRun] | StopAt:
        """Matches records by content, as a drop-oldest queue leaves out some. Searches from the time of the earliest,
        at first to shortly after the latest.
        """
        contents = []
        for batch in fresh:
            end = batch.target + batch.records
            dated = read_dated_contents(self.target, self.twin, batch.target, end, committed=False, theirs=True)
            contents += [content for _, content in dated]
        times = [content.timestamp_ms or 0 for content in contents]
        if len(contents) != sum(batch.records for batch in fresh):
            return _disagreement(self.reach, "the twin has lost records that the link wrote last")
        start, end = self.source_span
        begin = max(self.reach.source, start, self.source.first_since(self.partition, min(times)))
        until = self.source.first_since(self.partition, max(times) + TIMESTAMP_SLACK_MS)
        for stop in dict.fromkeys((until if until > begin else end, end)):
            offsets, marks = array("q"), array("q")
            dated = read_dated_contents(self.source, self.partition, begin, stop, committed=True, theirs=True)
            for offset, content in islice(dated, SEARCH_RECORDS_MAX):
                offsets.append(offset)
                marks.append(hash(content))
            if places := match_latest_offsets([hash(content) for content in contents], offsets, marks):
                return map_each_record(fresh, places)
        sentence = f"what the link wrote to the twin last is not on the source from offset {begin} on"
        return _disagreement(self.reach, sentence)

    def difference(self) -> StopAt | None:
        """Whether the source lost its end and grew again. With drops, records exist after the last one that landed."""
        reach, source_start = self.reach, self.source_span[0]
        at, behind = reach.last_source, reach.source - 1
        if at < 0:
            return None
        both = at >= source_start and reach.last_target >= self.span[0]
        source_record = read_visible_record(self.source, self.partition, at) if both else None
        twin_record = read_visible_record(self.target, self.twin, reach.last_target) if source_record else None
        if source_record is not None and twin_record is not None and source_record != twin_record:
            sentence = f"the record at {at} of the source is not the one that the link wrote to the twin from there"
            return StopAt(IncidentKind.TRUNCATION, at, reach.source, sentence)
        if self.drops or behind < max(source_start, at + 1):
            return None
        if any(read_contents(self.source, self.partition, behind, reach.source, committed=True)):
            sentence = (
                f"the source has a record at {behind} now, where it had none when the twin was replicated past it"
            )
            return StopAt(IncidentKind.TRUNCATION, at + 1, reach.source, sentence)
        return None


def _within_source(resume: ResumeAt, start: int, end: int) -> PositionVerdict:
    if resume.position > end:
        sentence = f"the source ends at {end}, the twin has records up to {resume.position}: the source lost offsets"
        return StopAt(IncidentKind.TRUNCATION, end, resume.position, sentence)
    gap_to = start if start > resume.position else -1
    return ResumeAt(resume.position, resume.last_timestamp, resume.next_sequence, gap_to)
