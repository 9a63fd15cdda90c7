"""Which history of the source a twin follows, told by leader epochs. Pure.

A source that lost its end and grew again holds other records at the same offsets, written in a later leader epoch. So
whoever knows the epoch of one record can ask the source how far the history goes in which that record lies.

How far a mapped twin is written, and what landed beyond that: worked out from the batches' own sequences. Pure.

Sequences count the records that this link appended, so the broker compares and swaps as on an exact twin. What a dead
pump told nobody of is found again: the twin has our batches with their sequences, and the source, read from the reach
on, says which record each sequence is.

What a pump is asked to do and accounts for: frozen values that travel as JSON, most in words of `desk_words`.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from pydantic import TypeAdapter

from twinshore.config.incident_policy import POLICY_DROP, IncidentEffect, IncidentKind, IncidentPolicy, IncidentSide
from twinshore.config.model import (
    Cluster,
    OffsetRun,
    QueueRules,
    SourceOffset,
    TargetOffset,
    TopicPartition,
    append_runs,
    source_end,
    target_end,
)
from twinshore.config.sections.mirror import MirrorSettings
from twinshore.kafka.protocol.record_batch import SEQUENCE_SPAN, next_sequence
from twinshore.kafka.protocol.rewrite import MERGED_PLAIN_BYTES_MAX

UNKNOWN_EPOCH = -1


class EpochOffset(NamedTuple):
    """All below `end` came from one history, whose last record there was written in leader epoch `epoch`. The epoch is
    exact, or UNKNOWN."""

    epoch: int
    end: int


NO_EPOCH_OFFSET = EpochOffset(UNKNOWN_EPOCH, 0)


def latest_epoch_offset(known: EpochOffset, told: EpochOffset) -> EpochOffset:
    """The last word after `told` was heard, too: an epoch goes with its own offset alone."""
    older = told.end < known.end or (told.end == known.end and told.epoch == UNKNOWN_EPOCH)
    return known if older else told


class EpochEnd(NamedTuple):
    """What the source says of an epoch: the largest one up to it that wrote here, and where that ended; -1 where the
    source does not know."""

    epoch: int
    end: int


def divergence_offset(stand: EpochOffset, said: EpochEnd) -> int:
    """From where on the source has another history; -1 where it has none, or cannot tell.

    An earlier epoch that ends behind the stand tells nothing: where cleaners took all records of an epoch, a replica
    that was built since has never heard of it.
    """
    known = stand.epoch >= 0 and said.end >= 0
    return said.end if known and said.end < stand.end else -1


def choose_fetch_epoch(stand: EpochOffset, said: EpochEnd) -> int:
    """The epoch to fetch on with behind `stand`: the one that the source itself knows there; UNKNOWN where it knows
    none, as it would refuse any."""
    return said.epoch if stand.epoch >= 0 and said.end >= stand.end else UNKNOWN_EPOCH


def compare_histories(told: EpochOffset, here: EpochOffset, said: Mapping[int, EpochEnd]) -> tuple[int, int]:
    """The epoch to fetch on with behind `here.end`, where the twin ends, and from where on the source has another
    history (-1: it has not). `told` is what was carried, `here.epoch` that of the source's record right below the
    twin's end, `said` the source's word on the epochs of both."""
    carried = EpochOffset(told.epoch, min(told.end, here.end))
    answers = [(stand, said.get(stand.epoch, EpochEnd(UNKNOWN_EPOCH, UNKNOWN_EPOCH))) for stand in (carried, here)]
    parted = min((at for stand, answer in answers if (at := divergence_offset(stand, answer)) >= 0), default=-1)
    if (
        parted < 0
        and told.end == here.end
        and UNKNOWN_EPOCH not in (told.epoch, here.epoch)
        and told.epoch != here.epoch
    ):
        parted = here.end - 1
    if here.epoch == UNKNOWN_EPOCH and told.end == here.end:
        return choose_fetch_epoch(*answers[0]), parted
    return choose_fetch_epoch(*answers[1]), parted


class WrittenPosition(NamedTuple):
    """The next record has `sequence`; it lies at `source` or behind it and will land at `target` or behind it.

    `warm`: told by a pump that was at work until now, so that nothing older can have landed beyond it. The last record
    that landed is that of `last_source`, at `last_target`; -1 where none has."""

    source: int
    target: int
    sequence: int
    warm: bool = False
    last_source: int = -1
    last_target: int = -1

    def passed(self, told_to: int) -> WrittenPosition:
        """The reach of a twin that was told to have all below `told_to`: what lies behind the last record and below,
        nobody sees, so it takes no place on the twin."""
        return self._replace(source=max(self.source, told_to))

    def ahead(self, sequence: int) -> int:
        """How many records this sequence lies ahead of the reach's; negative for one before it."""
        distance = (sequence - self.sequence) % SEQUENCE_SPAN
        return distance if distance < SEQUENCE_SPAN // 2 else distance - SEQUENCE_SPAN


class LandedBatch(NamedTuple):
    """A batch of this link's that lies on the twin."""

    target: int
    records: int
    sequence: int


class UnclearLanding(NamedTuple):
    """What landed cannot be told from what is there."""

    sentence: str


def position_after(extent: OffsetRun) -> WrittenPosition:
    """The reach behind an extent."""
    found = WrittenPosition(source_end(extent), target_end(extent), next_sequence(extent.sequence, extent.length))
    return found._replace(last_source=found.source - 1, last_target=found.target - 1) if extent.length else found


def find_landed_beyond(reach: WrittenPosition, found: Iterable[LandedBatch]) -> list[LandedBatch] | UnclearLanding:
    """The batches that landed beyond the reach, without a gap in their sequences; those before it are known already.

    A compacted twin may have lost a batch between two others. Where as many offsets as sequences are missing, all of
    them were ours: nobody else's record fits in between.
    """
    fresh: list[LandedBatch] = []
    at, end = 0, reach.target
    for batch in found:
        ahead = reach.ahead(batch.sequence)
        if ahead + batch.records <= at:
            continue
        if ahead < at:
            batch = LandedBatch(
                batch.target + at - ahead, batch.records - (at - ahead), next_sequence(reach.sequence, at)
            )
            ahead = at
        missing = ahead - at
        if missing and missing != batch.target - end:
            return UnclearLanding(
                f"{missing} records before offset {batch.target} are the link's, and it is not known where"
            )
        if missing:
            fresh.append(LandedBatch(end, missing, next_sequence(reach.sequence, at)))
        fresh.append(batch)
        at, end = ahead + batch.records, batch.target + batch.records
    return fresh


def map_landed_batches(
    reach: WrittenPosition, fresh: Iterable[LandedBatch], runs: Iterable[tuple[int, int]]
) -> list[OffsetRun] | UnclearLanding:
    """The extents of what landed beyond the reach. `runs` are offsets [first, end) that consumers of the source see,
    from the reach on, in order."""
    seen = _pieces(reach, runs)
    found: list[OffsetRun] = []
    first = end = 0
    for target, count, sequence in fresh:
        while count:
            if first == end:
                first, end = next(seen, (0, 0))
                if first == end:
                    return UnclearLanding(
                        f"the twin holds more of the link's records than the source, from {target} on"
                    )
            size = min(count, end - first)
            found.append(OffsetRun(SourceOffset(first), TargetOffset(target), size, sequence))
            first, target, count = first + size, target + size, count - size
            sequence = next_sequence(sequence, size)
    return append_runs(None, found)


def _pieces(reach: WrittenPosition, runs: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    for first, end in runs:
        if end > reach.source:
            yield max(first, reach.source), end


KEEP_ALL = QueueRules()
T = TypeVar("T")
_FORMS: dict[type[Any], TypeAdapter[Any]] = {}
UNDELIVERED_S_MAX = 4.0  # and a part of a tide at most, or a lane of short tides would never be sure


def is_too_old(stamp_ms: int, since_ms: int) -> bool:
    """Whether records whose latest time stamp this is are too old. A record without a time stamp counts as new."""
    return 0 <= stamp_ms < since_ms


def dropped_incident(named: TopicPartition, begin: int, end: int, why: str) -> PartitionIncident:
    """Offsets [begin, end) were dropped."""
    many = f"{end - begin} offsets were" if end - begin > 1 else "1 offset was"
    place = (named.topic, named.partition, IncidentKind.STALE_DROPPED, begin, end)
    return PartitionIncident(*place, f"{many} dropped, {why}", POLICY_DROP, why=why)


def subtract_landed(rows: Iterable[PartitionIncident], landed: Iterable[tuple[int, int]]) -> list[PartitionIncident]:
    """What of these is true where a look has found these offsets on the twin: what was on its way has landed late."""
    left = list(rows)
    for begin, end in landed:
        parts: list[PartitionIncident] = []
        for row in left:
            kept = ((row.from_offset, min(row.to_offset, begin)), (max(row.from_offset, end), row.to_offset))
            parts += [dropped_incident(_of(row), *part, row.why) for part in kept if part[0] < part[1]]
        left = parts
    return left


def append_incident(told: list[PartitionIncident], one: PartitionIncident) -> None:
    """Tells of it; what follows on what was told last, for the same reason, is told as one."""
    last = told[-1] if told else None
    place = (one.topic, one.partition, one.kind, one.from_offset, one.why)
    if last and (last.topic, last.partition, last.kind, last.to_offset, last.why) == place:
        told.pop()
        one = dropped_incident(_of(one), last.from_offset, one.to_offset, one.why)
    told.append(one)


def _of(row: PartitionIncident) -> TopicPartition:
    return TopicPartition(row.topic, row.partition)


@dataclass(frozen=True, slots=True)
class PartitionConfig:
    """One partition to carry. `receipt_to` is where its receipts end, so that a cold start can complete them, -1: they
    begin where the twin ends; `receipt_epoch` the source's leader epoch of the last record below, exact or -1."""

    topic: str
    partition: int
    source_topic_id: str
    target_topic_id: str
    receipt_to: int = 0
    anchor_offset: int = 0
    anchor_sequence: int = 0
    twin: str = ""
    # Only of a mapped twin: how far it is written and told.
    reached: WrittenPosition | None = None
    receipt_epoch: int = -1
    # Below it the twin's log is the topic's own; by how much the link's epoch is later on this twin.
    inherited: int = 0
    epoch: int = 0
    # Behind a reach up to this offset a fresh queue may have dropped records that nobody told of; -1: behind none.
    thinned_to: int = -1
    # Its twin was made for this order: no pump was let write it before.
    untouched: bool = False

    @property
    def named(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    def may_lack(self, reach: WrittenPosition) -> bool:
        """Whether records may be missing behind it."""
        return reach.source <= self.thinned_to

    @property
    def twin_named(self) -> TopicPartition:
        """The partition on the target; `twin` is empty where it has the source's name."""
        return TopicPartition(self.twin or self.topic, self.partition)


@dataclass(frozen=True, slots=True)
class TaskLimits:
    """Bounds of one lane; every buffer and queue of the pump is held by one of them. They begin as
    `limits_from_settings` makes them of settings that say nothing."""

    fetch_bytes_max: int = 8 << 20
    partition_bytes_max: int = 1 << 20
    fetch_wait_ms_max: int = 500
    inflight_max: int = 8
    request_bytes_max: int = 4 << 20
    merge_below_bytes: int = 4096
    merged_bytes_max: int = 512 << 10
    merged_plain_bytes_max: int = MERGED_PLAIN_BYTES_MAX
    # What is cut at a time, as `BatchParser` counts it: some tenths of a second, far less than a grant.
    work_max: int = 100_000
    join_below_bytes: int = 128 << 10
    joined_bytes_max: int = 64 << 20
    produce_timeout_s: float = 30.0
    # Of so many missing offsets at most markers are written on a twin that holds records.
    gap_offsets_max: int = 20_000_000
    # A request that the target's kernel has not acknowledged for so long is never delivered.
    undelivered_s: float = 4.0
    buffers_per_line: int = 2
    far_streams: int = 2  # connections to each leader of a source that is far
    # How much more than usual one fetch from there may bring, and of one partition.
    fetch_bytes_widest: int = 128 << 20
    partition_bytes_widest: int = 32 << 20


def limits_from_settings(settings: MirrorSettings) -> TaskLimits:
    """The pump's bounds out of the settings."""
    return TaskLimits(
        fetch_bytes_max=settings.fetch_mb << 20,
        partition_bytes_max=settings.partition_fetch_kb << 10,
        fetch_wait_ms_max=settings.fetch_wait_ms,
        inflight_max=settings.inflight_max,
        merge_below_bytes=settings.merge_below_bytes,
        merged_bytes_max=settings.merge_target_kb << 10,
        join_below_bytes=settings.join_below_kb << 10,
        produce_timeout_s=settings.produce_timeout_s,
        gap_offsets_max=settings.gap_offsets_max,
        undelivered_s=min(UNDELIVERED_S_MAX, settings.tide_s / 4),
    )


@dataclass(frozen=True, slots=True)
class TaskConfig:
    """Everything a pump needs to begin; positions come from the desk with the word to go."""

    link: str
    lane: int
    tide: int
    source: Cluster
    target: Cluster
    producer_id: int
    producer_epoch: int
    state_expiry_ms: int
    desk_host: str
    desk_port: int
    desk_token: str = field(repr=False)
    limits: TaskLimits = TaskLimits()
    report_s: float = 0.5
    fence: int = 0
    # What the link's transactional ids begin with; empty where markers are written directly.
    units: str = ""
    # Which clusters these must be; whatever else their addresses lead to is not written to.
    source_id: str = ""
    target_id: str = ""
    # No record of a twin is ever cut off.
    never_cut: bool = False
    # The broadcast of the link, whose lanes of this number read together; what is held for those that are behind.
    broadcast: str = ""
    queue: QueueRules = KEEP_ALL

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self))

    @staticmethod
    def from_json(text: str) -> TaskConfig:
        return json_adapter(TaskConfig).validate_json(text)


def json_adapter(kind: type[T]) -> TypeAdapter[T]:
    """How values of this kind come out of JSON; ValueError where it is none of them. Made once, when it is needed."""
    if kind not in _FORMS:
        _FORMS[kind] = TypeAdapter(kind)
    return _FORMS[kind]


@dataclass(frozen=True, slots=True)
class Handoff:
    """Where a pump stood when it let a partition go: the next one begins there without looking again. A `position` of
    -1: it does not know where the twin ends, and only says what of its own may still land there. `calm`: no lost
    request can still land; else one may for `strays_s` seconds more, -1: not known, and none that was read in an epoch
    before `stray_epoch`; `strays_moved`: it may be of other offsets than its sequences stand for now, or of markers.
    `next_sequence` is that of the next record; -1 where no offset was ever a marker's. It holds as long as the twin is
    led as it was: by `target`, in its epoch `target_epoch`; -1 where not known. `leader_epoch` is that of the source's
    last record below `position`. Where it is not known (-1), the position holds only while the source is led in epoch
    `source_led`."""

    topic: str
    partition: int
    position: int
    leader_epoch: int
    armed_until_ms: int
    calm: bool = True
    next_sequence: int = -1
    target: int = -1
    target_epoch: int = -1
    source_led: int = -1
    stray_epoch: int = -1
    strays_s: float = -1.0
    strays_moved: bool = False


@dataclass(frozen=True, slots=True)
class PartitionProgress:
    """A pump's account of one partition since its last account."""

    topic: str
    partition: int
    from_offset: int
    to_offset: int
    records: int
    bytes: int
    batches: int
    source_end: int
    source_start: int
    first_ms: int
    last_ms: int
    # One entry per source batch: producer id, epoch, base sequence, last sequence, base offset, timestamp.
    producers: tuple[tuple[int, int, int, int, int, int], ...] = ()
    # Where the records of a mapped twin went.
    extents: tuple[OffsetRun, ...] = ()
    # The source's leader epoch of the last record below `to_offset`, exact or -1.
    epoch: int = -1


def progress_from_json(raw: list[Any]) -> PartitionProgress:
    """An account out of its JSON form."""
    fields: Any = [tuple(map(tuple, value)) if isinstance(value, list) else value for value in raw]
    found = PartitionProgress(*fields)
    return dataclasses.replace(found, extents=tuple(OffsetRun(*one) for one in found.extents))


@dataclass(frozen=True, slots=True)
class PartitionIncident:
    """Why a partition stopped, or what was done about it instead when `policy` says so; the ledger keeps it. `side`
    None: the one where such things happen. `why`: of what was dropped, the reason by itself."""

    topic: str
    partition: int
    kind: IncidentKind
    from_offset: int
    to_offset: int
    sentence: str
    policy: IncidentPolicy | None = None
    side: IncidentSide | None = None
    why: str = ""


def incident_from_json(raw: list[Any]) -> PartitionIncident:
    """What a pump told, out of its JSON form."""
    topic, partition, kind, begin, end, sentence, done, side, why = raw
    policy = IncidentPolicy(done[0], IncidentEffect(done[1])) if done else None
    where = IncidentSide(side) if side else None
    return PartitionIncident(topic, partition, IncidentKind(kind), begin, end, sentence, policy, where, why)


def coordinator_epoch(generation: int, tide: int) -> int:
    """The coordinator epoch of a tide's markers: later tides mostly have higher ones. Where one has not, a look at what
    the twin's leader remembers raises it."""
    return (generation << 12 | tide & 0xFFF) & 0x3FFFFFFF
