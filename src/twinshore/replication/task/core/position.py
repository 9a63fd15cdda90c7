"""Where a twin ends, and whether replication may go on from there: one inspection, one verdict.

Ends are log ends, not high watermarks: mixed levels would put data at wrong offsets on replicated topics. Ends and
sequences alone do not reveal a source that lost its end and grew past it, nor a foreign write below the link's batches.
So the last records of both sides are compared.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import takewhile

from twinshore.config.errors import WireError
from twinshore.config.incident_policy import POLICY_HEAL, IncidentKind, IncidentSide
from twinshore.config.model import OffsetRun, TopicPartition
from twinshore.kafka.protocol.primitives import Buffer
from twinshore.kafka.protocol.record_batch import (
    CONTROL_FLAG,
    LOG_APPEND_TIME_FLAG,
    SEQUENCE_SPAN,
    BatchHeader,
    Record,
    check_crc,
    iter_records,
    next_sequence,
    sequence_of,
)
from twinshore.kafka.protocol.rewrite import REWRITE_BYTES_MAX
from twinshore.replication.task.core.batches import OutgoingBatch, PartitionStopped, SequenceMap
from twinshore.replication.task.core.markers import marker_producer_id
from twinshore.replication.task.core.messages import PartitionIncident

RawBatch = tuple[Buffer, BatchHeader]


def differ_at(source: RawBatch | None, twin: RawBatch | None, offset: int) -> bool:
    """Whether both hold different records at `offset`."""
    return last_difference(source, twin, offset) == offset


def last_difference(source: RawBatch | None, twin: RawBatch | None, last: int) -> int:
    """Returns the last offset up to `last` where both hold different records, or -1.

    Missing and unreadable records are ignored: cleaners remove records, a fetch finds damage, and twins have separate
    markers for invisible offsets.
    """
    if source is None or twin is None or twin[1].attributes & CONTROL_FLAG:
        return -1
    try:
        source_records, twin_records = _records(source, last), _records(twin, last)
    except WireError:
        return -1
    # The twin's topic sets its own time stamps; differing settings are reported elsewhere.
    stamped = bool(twin[1].attributes & LOG_APPEND_TIME_FLAG)
    for offset in sorted(source_records.keys() & twin_records.keys(), reverse=True):
        record = source_records[offset]
        if record != (twin_records[offset]._replace(timestamp=record.timestamp) if stamped else twin_records[offset]):
            return offset
    return -1


def first_difference(unlike_at: Callable[[int], bool], low: int, last: int) -> int:
    """Returns the first differing offset, if `last` differs: diverged logs stay so, except for missing records."""
    while low < last:
        middle = (low + last) // 2
        if unlike_at(middle):
            last = middle
        else:
            low = middle + 1
    return last


def _records(batch: RawBatch, last: int) -> dict[int, Record]:
    check_crc(*batch)
    records = iter_records(*batch, limit_bytes=REWRITE_BYTES_MAX)
    return {record.offset: record for record in takewhile(lambda record: record.offset <= last, records)}


@dataclass(frozen=True, slots=True)
class LastBatch:
    """The twin's last batch. `unit`: a marker by a producer without records here, as of an empty transaction.
    `control`: any marker.
    """

    base_offset: int
    last_offset: int
    producer_id: int
    base_sequence: int
    unit: bool = False
    control: bool = False


@dataclass(frozen=True, slots=True)
class TargetState:
    """A twin and its source, as inspected.

    `producer`: last sequence and time stamp of the link that the twin's leader remembers, or None; `producer_epoch`:
    the epoch of these. `open_from`: the beginning of another producer's first open transaction, or -1; read only for a
    log that was at home on the target. `fence`: the highest remembered coordinator epoch of the link's markers.

    `source_start` and `source_end`: the source's log start and end, read after the twin. `unlike`: whether the twin's
    last record differs from the source's; None while the source does not show that record, as after an election.
    `unlike_from`: from where records differ, as far as compared.

    `wrote_epoch`: the leader epoch of the source's last record below the twin's end. `source_epoch`: for the next
    fetch, as a source may have forgotten the other. `parted`: from where leader epochs show another history than the
    replicated one. All -1 if unknown or none.

    `uncut`: why the twin's log may not be cut; read only if offsets must be filled. `young_from`: records of the source
    below are too old for a drop-oldest queue, -1 without an age limit. `young_epoch`: the leader epoch of the last of
    these, if known.
    """

    log_start: int
    high_watermark: int
    log_end: int
    last_batch: LastBatch | None
    producer: tuple[int, int] | None
    source_start: int
    source_end: int
    fence: int = -1
    unlike: bool | None = False
    unlike_from: int = -1
    source_epoch: int = -1
    wrote_epoch: int = -1
    parted: int = -1
    uncut: str = ""
    young_from: int = -1
    young_epoch: int = -1
    producer_epoch: int = -1
    open_from: int = -1
    # For a mapped twin, whose batches must be read: the verdict, and the unreported offset runs.
    verdict: PositionVerdict | None = None
    offset_runs: tuple[OffsetRun, ...] = ()
    # With a drop-oldest queue: source offsets that are missing between or before these.
    dropped: tuple[tuple[int, int], ...] = ()
    # Where the twin shows no record of unreported offsets that the source has lost.
    unseen: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class ResumeAt:
    """The twin ends at `position`; the next record has `next_sequence`. `last_timestamp`: -1 if the broker has
    forgotten the link. `gap_to`: the source's start if later; offsets up to there are lost.
    """

    position: int
    last_timestamp: int = -1
    next_sequence: int = 0
    gap_to: int = -1


@dataclass(frozen=True, slots=True)
class InspectAgain:
    """No verdict is possible yet; inspect again."""

    sentence: str


@dataclass(frozen=True, slots=True)
class StopAt:
    kind: IncidentKind
    offset: int
    end: int
    sentence: str


PositionVerdict = ResumeAt | InspectAgain | StopAt


def judge_position(
    state: TargetState, stamp: SequenceMap, inherited: int = 0, *, carried: bool = True
) -> PositionVerdict:
    """Allows replication only if both ends, the last batch and the broker's memory of the link agree. Below `inherited`
    the log is the topic's own, by any producer. `carried`: the link has written after that, by its progress.
    """
    end = state.log_end
    if state.high_watermark != end:
        return InspectAgain(f"the twin's replicas stand at {state.high_watermark}, its leader at {end}")
    last_batch = state.last_batch if end > state.log_start else None
    if end > state.log_start and (last_batch is None or last_batch.last_offset != end - 1):
        return InspectAgain("the log moved between two readings")
    # A new epoch begins with sequence 0, and so does a producer that the broker does not know.
    known = None if inherited and state.producer_epoch < stamp.producer_epoch else state.producer
    following = 0 if inherited else sequence_of(stamp.base_offset, stamp.base_sequence, end)
    own = last_batch is not None and last_batch.last_offset < inherited
    ours = last_batch is not None and last_batch.producer_id == stamp.producer_id and not own
    wrote = known is not None
    foreign = _foreign(last_batch, state, stamp, inherited, wrote=wrote) if last_batch else None
    if stop := foreign if last_batch else _gone(state, inherited, carried or wrote):
        return stop
    if ours and last_batch is not None:
        following = next_sequence(last_batch.base_sequence, last_batch.last_offset - last_batch.base_offset + 1)
    if own and state.open_from >= 0:
        return InspectAgain(f"a transaction from when this was the home is open from offset {state.open_from} on")
    if end > state.source_end:
        sentence = f"the source ends at {state.source_end}, the twin already at {end}: the source has lost offsets"
        return StopAt(IncidentKind.TRUNCATION, state.source_end, end, sentence)
    if state.unlike is None:
        return InspectAgain(f"the source does not show offset {end - 1} yet")
    if (last_batch is not None and state.unlike) or state.parted >= 0:
        return _parted(state, stamp, following, inherited)
    if known is not None and not (ours and _impossible(following, end, stamp, inherited)):
        remembered = next_sequence(known[0], 1)
        if ours and remembered != following:
            return InspectAgain(f"the broker's next sequence is {remembered}, the log's end asks for {following}")
        following = remembered
    if _impossible(following, end, stamp, inherited):
        expected = sequence_of(stamp.base_offset, stamp.base_sequence, end)
        sentence = f"the twin's next sequence is {following}; at offset {end} it should be {expected} at most"
        return StopAt(IncidentKind.POSITION_DISAGREEMENT, last_batch.base_offset if last_batch else end, end, sentence)
    gap_to = state.source_start if state.source_start > end else -1
    return ResumeAt(end, known[1] if known else -1, following, gap_to)


def _gone(state: TargetState, inherited: int, wrote: bool) -> StopAt | None:
    """Why an empty log may not end there: its home's last records were never replicated, and are deleted."""
    end = state.log_end
    if wrote or not inherited or end <= inherited:
        return None
    what = f"offsets {inherited} to {end - 1} were written here, never replicated, and deleted since"
    sentence = f"{what}: the topic changed homes at {inherited}"
    return StopAt(IncidentKind.FOREIGN_WRITE, inherited, end, sentence)


def _foreign(
    last_batch: LastBatch, state: TargetState, stamp: SequenceMap, inherited: int, *, wrote: bool
) -> StopAt | None:
    """Why the last batch may not be there. `wrote`: the link has written since the topic changed homes."""
    end = state.log_end
    if last_batch.last_offset < inherited or last_batch.producer_id == marker_producer_id(stamp.producer_id):
        return None
    if last_batch.producer_id == stamp.producer_id:
        if not last_batch.control:
            return None
        at = last_batch.base_offset
        sentence = f"a switch made the twin the topic's home: the marker at offset {at} excludes this link"
        return StopAt(IncidentKind.FOREIGN_WRITE, last_batch.base_offset, end, sentence)
    # A marker of a producer without records here is ours only if we have written since: coordinators of a home
    # that was away append such markers after unreplicated records.
    if last_batch.unit and (wrote or not inherited):
        return None
    who = f"producer id {last_batch.producer_id}" if last_batch.producer_id >= 0 else "a producer without an id"
    if inherited and not wrote:
        what = f"offsets {inherited} to {end - 1} were" if end - 1 > inherited else f"offset {inherited} was"
        what = f"{what} written here, at last by {who}, and never replicated"
        sentence = f"{what}: the topic changed homes at {inherited}"
        return StopAt(IncidentKind.FOREIGN_WRITE, inherited, end, sentence)
    last = f"its last batch, offsets {last_batch.base_offset} to {last_batch.last_offset}, was"
    sentence = f"{last} written by {who}, not by this link"
    return StopAt(IncidentKind.FOREIGN_WRITE, min(last_batch.base_offset, state.source_end), end, sentence)


def _parted(state: TargetState, stamp: SequenceMap, following: int, inherited: int) -> StopAt:
    end = state.log_end
    if not state.unlike:
        return StopAt(IncidentKind.TRUNCATION, state.parted, end, describe_divergence(state.parted))
    # The count is ours but not the position: another producer wrote below. Else the source's history changed.
    expected = sequence_of(stamp.base_offset, stamp.base_sequence, end)
    kind = IncidentKind.TRUNCATION if inherited or following == expected else IncidentKind.POSITION_DISAGREEMENT
    begin = state.unlike_from if state.unlike_from >= 0 else end - 1
    what = f"offsets {begin} to {end - 1}" if begin < end - 1 else f"the record at offset {begin}"
    sentence = f"{what} of the twin {'are' if begin < end - 1 else 'is'} not the source's"
    return StopAt(kind, begin, end, sentence)


def describe_divergence(offset: int) -> str:
    return f"the source's history differs from offset {offset} on: it lost what the twin already has"


def _impossible(following: int, end: int, stamp: SequenceMap, inherited: int) -> bool:
    """Whether no number of markers explains the next sequence. Sequences count neither markers nor inherited offsets;
    after the latter they start from 0.
    """
    if inherited:
        return (end - following) % SEQUENCE_SPAN > end
    markers = (sequence_of(stamp.base_offset, stamp.base_sequence, end) - following) % SEQUENCE_SPAN
    return markers > max(0, end - stamp.base_offset)


def stop_for_missing_topic(partition: TopicPartition, acked: int, side: str, *, recreated: bool) -> PartitionStopped:
    """The topic is gone from one side, or was deleted and created again."""
    what = "was deleted and created again" if recreated else "no longer exists"
    return PartitionStopped(
        IncidentKind.RECREATED_TOPIC, acked, acked, f"topic {partition.topic} on the {side} {what}", IncidentSide(side)
    )


def stop_for_misplaced_batch(batch: OutgoingBatch, base: int) -> PartitionStopped:
    """The link's batch has another offset. The broker kept the link's batches in order, so another producer wrote."""
    if base > batch.base:
        sentence = f"another producer wrote offsets {batch.base} to {base - 1} of the twin; the source's landed behind"
        return PartitionStopped(IncidentKind.FOREIGN_WRITE, batch.base, base, sentence)
    sentence = f"offset {batch.base} of the source was answered as {base} by the twin, which had ended later before"
    return PartitionStopped(IncidentKind.POSITION_DISAGREEMENT, base, batch.end, sentence)


def report_lost_by_target(
    partition: TopicPartition, position: int, told_to: int, source_start: int = 0
) -> list[PartitionIncident]:
    """Reports acknowledged offsets that the twin lost; they are replicated again."""
    if position >= told_to:
        return []
    sentence = (
        f"the target lost offsets {position} to {told_to - 1}, which it had acknowledged; they are replicated again"
    )
    if source_start > position:
        sentence += f" from {min(source_start, told_to)} on: the source no longer has earlier ones"
    place = partition.topic, partition.partition, IncidentKind.LOST_BY_TARGET, position, told_to
    return [PartitionIncident(*place, sentence, POLICY_HEAL)]


def to_partition_incident(partition: TopicPartition, stopped: PartitionStopped) -> PartitionIncident:
    place = partition.topic, partition.partition, stopped.kind, stopped.offset, stopped.end
    return PartitionIncident(*place, stopped.sentence, None, stopped.side)
