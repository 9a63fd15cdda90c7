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

from twinshore.config.incidents import POLICY_DROP, Effect, IncidentKind, IncidentSide, Policy
from twinshore.config.model import (
    Cluster,
    Extent,
    NamedPartition,
    QueueRules,
    SourceOffset,
    TargetOffset,
    follow_on,
    source_end,
    target_end,
)
from twinshore.config.sections.mirror import MirrorSettings
from twinshore.kafka.protocol.record_batch import SEQUENCE_SPAN, next_sequence
from twinshore.kafka.protocol.rewrite import MERGED_PLAIN_BYTES_MAX

UNKNOWN = -1


class Stand(NamedTuple):
    """All below `end` came from one history, whose last record there was written in leader epoch `epoch`. The epoch is
    exact, or UNKNOWN."""

    epoch: int
    end: int


NOWHERE = Stand(UNKNOWN, 0)


def told_on(known: Stand, told: Stand) -> Stand:
    """The last word after `told` was heard, too: an epoch goes with its own offset alone."""
    older = told.end < known.end or (told.end == known.end and told.epoch == UNKNOWN)
    return known if older else told


class EpochEnd(NamedTuple):
    """What the source says of an epoch: the largest one up to it that wrote here, and where that ended; -1 where the
    source does not know."""

    epoch: int
    end: int


def parted_at(stand: Stand, said: EpochEnd) -> int:
    """From where on the source has another history; -1 where it has none, or cannot tell.

    An earlier epoch that ends behind the stand tells nothing: where cleaners took all records of an epoch, a replica
    that was built since has never heard of it.
    """
    known = stand.epoch >= 0 and said.end >= 0
    return said.end if known and said.end < stand.end else -1


def goes_by(stand: Stand, said: EpochEnd) -> int:
    """The epoch to fetch on with behind `stand`: the one that the source itself knows there; UNKNOWN where it knows
    none, as it would refuse any."""
    return said.epoch if stand.epoch >= 0 and said.end >= stand.end else UNKNOWN


def compared(told: Stand, here: Stand, said: Mapping[int, EpochEnd]) -> tuple[int, int]:
    """The epoch to fetch on with behind `here.end`, where the twin ends, and from where on the source has another
    history (-1: it has not). `told` is what was carried, `here.epoch` that of the source's record right below the
    twin's end, `said` the source's word on the epochs of both."""
    carried = Stand(told.epoch, min(told.end, here.end))
    answers = [(stand, said.get(stand.epoch, EpochEnd(UNKNOWN, UNKNOWN))) for stand in (carried, here)]
    parted = min((at for stand, answer in answers if (at := parted_at(stand, answer)) >= 0), default=-1)
    if parted < 0 and told.end == here.end and UNKNOWN not in (told.epoch, here.epoch) and told.epoch != here.epoch:
        parted = here.end - 1
    if here.epoch == UNKNOWN and told.end == here.end:
        return goes_by(*answers[0]), parted
    return goes_by(*answers[1]), parted


class Reach(NamedTuple):
    """The next record has `sequence`; it lies at `source` or behind it and will land at `target` or behind it.

    `warm`: told by a pump that was at work until now, so that nothing older can have landed beyond it. The last record
    that landed is that of `last_source`, at `last_target`; -1 where none has."""

    source: int
    target: int
    sequence: int
    warm: bool = False
    last_source: int = -1
    last_target: int = -1

    def passed(self, told_to: int) -> Reach:
        """The reach of a twin that was told to have all below `told_to`: what lies behind the last record and below,
        nobody sees, so it takes no place on the twin."""
        return self._replace(source=max(self.source, told_to))

    def ahead(self, sequence: int) -> int:
        """How many records this sequence lies ahead of the reach's; negative for one before it."""
        distance = (sequence - self.sequence) % SEQUENCE_SPAN
        return distance if distance < SEQUENCE_SPAN // 2 else distance - SEQUENCE_SPAN


class Landed(NamedTuple):
    """A batch of this link's that lies on the twin."""

    target: int
    records: int
    sequence: int


class Unclear(NamedTuple):
    """What landed cannot be told from what is there."""

    sentence: str


def reach_of(extent: Extent) -> Reach:
    """The reach behind an extent."""
    found = Reach(source_end(extent), target_end(extent), next_sequence(extent.sequence, extent.length))
    return found._replace(last_source=found.source - 1, last_target=found.target - 1) if extent.length else found


def beyond(reach: Reach, found: Iterable[Landed]) -> list[Landed] | Unclear:
    """The batches that landed beyond the reach, without a gap in their sequences; those before it are known already.

    A compacted twin may have lost a batch between two others. Where as many offsets as sequences are missing, all of
    them were ours: nobody else's record fits in between.
    """
    fresh: list[Landed] = []
    at, end = 0, reach.target
    for batch in found:
        ahead = reach.ahead(batch.sequence)
        if ahead + batch.records <= at:
            continue
        if ahead < at:
            batch = Landed(batch.target + at - ahead, batch.records - (at - ahead), next_sequence(reach.sequence, at))
            ahead = at
        missing = ahead - at
        if missing and missing != batch.target - end:
            return Unclear(f"{missing} records before offset {batch.target} are the link's, and it is not known where")
        if missing:
            fresh.append(Landed(end, missing, next_sequence(reach.sequence, at)))
        fresh.append(batch)
        at, end = ahead + batch.records, batch.target + batch.records
    return fresh


def complete(reach: Reach, fresh: Iterable[Landed], runs: Iterable[tuple[int, int]]) -> list[Extent] | Unclear:
    """The extents of what landed beyond the reach. `runs` are offsets [first, end) that consumers of the source see,
    from the reach on, in order."""
    seen = _pieces(reach, runs)
    found: list[Extent] = []
    first = end = 0
    for target, count, sequence in fresh:
        while count:
            if first == end:
                first, end = next(seen, (0, 0))
                if first == end:
                    return Unclear(f"the twin holds more of the link's records than the source, from {target} on")
            size = min(count, end - first)
            found.append(Extent(SourceOffset(first), TargetOffset(target), size, sequence))
            first, target, count = first + size, target + size, count - size
            sequence = next_sequence(sequence, size)
    return follow_on(None, found)


def _pieces(reach: Reach, runs: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    for first, end in runs:
        if end > reach.source:
            yield max(first, reach.source), end


KEPT = QueueRules()
T = TypeVar("T")
_FORMS: dict[type[Any], TypeAdapter[Any]] = {}
UNDELIVERED_S_MAX = 4.0  # and a part of a tide at most, or a lane of short tides would never be sure


def is_old(stamp_ms: int, since_ms: int) -> bool:
    """Whether records whose latest time stamp this is are too old. A record without a time stamp counts as new."""
    return 0 <= stamp_ms < since_ms


def row_of(named: NamedPartition, begin: int, end: int, why: str) -> Stoppage:
    """Offsets [begin, end) were dropped."""
    many = f"{end - begin} offsets were" if end - begin > 1 else "1 offset was"
    place = (named.topic, named.partition, IncidentKind.STALE_DROPPED, begin, end)
    return Stoppage(*place, f"{many} dropped, {why}", POLICY_DROP, why=why)


def but_for(rows: Iterable[Stoppage], landed: Iterable[tuple[int, int]]) -> list[Stoppage]:
    """What of these is true where a look has found these offsets on the twin: what was on its way has landed late."""
    left = list(rows)
    for begin, end in landed:
        parts: list[Stoppage] = []
        for row in left:
            kept = ((row.from_offset, min(row.to_offset, begin)), (max(row.from_offset, end), row.to_offset))
            parts += [row_of(_of(row), *part, row.why) for part in kept if part[0] < part[1]]
        left = parts
    return left


def add(told: list[Stoppage], one: Stoppage) -> None:
    """Tells of it; what follows on what was told last, for the same reason, is told as one."""
    last = told[-1] if told else None
    place = (one.topic, one.partition, one.kind, one.from_offset, one.why)
    if last and (last.topic, last.partition, last.kind, last.to_offset, last.why) == place:
        told.pop()
        one = row_of(_of(one), last.from_offset, one.to_offset, one.why)
    told.append(one)


def _of(row: Stoppage) -> NamedPartition:
    return NamedPartition(row.topic, row.partition)


@dataclass(frozen=True, slots=True)
class TrackOrder:
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
    reached: Reach | None = None
    receipt_epoch: int = -1
    # Below it the twin's log is the topic's own; by how much the link's epoch is later on this twin.
    inherited: int = 0
    epoch: int = 0
    # Behind a reach up to this offset a fresh queue may have dropped records that nobody told of; -1: behind none.
    thinned_to: int = -1
    # Its twin was made for this order: no pump was let write it before.
    untouched: bool = False

    @property
    def named(self) -> NamedPartition:
        return NamedPartition(self.topic, self.partition)

    def may_lack(self, reach: Reach) -> bool:
        """Whether records may be missing behind it."""
        return reach.source <= self.thinned_to

    @property
    def twin_named(self) -> NamedPartition:
        """The partition on the target; `twin` is empty where it has the source's name."""
        return NamedPartition(self.twin or self.topic, self.partition)


@dataclass(frozen=True, slots=True)
class LaneLimits:
    """Bounds of one lane; every buffer and queue of the pump is held by one of them. They begin as `limits_of` makes
    them of settings that say nothing."""

    fetch_bytes_max: int = 8 << 20
    partition_bytes_max: int = 1 << 20
    fetch_wait_ms_max: int = 500
    inflight_max: int = 8
    request_bytes_max: int = 4 << 20
    merge_below_bytes: int = 4096
    merged_bytes_max: int = 512 << 10
    merged_plain_bytes_max: int = MERGED_PLAIN_BYTES_MAX
    # What is cut at a time, as `Cutter` counts it: some tenths of a second, far less than a grant.
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


def limits_of(settings: MirrorSettings) -> LaneLimits:
    """The pump's bounds out of the settings."""
    return LaneLimits(
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
class TideOrder:
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
    limits: LaneLimits = LaneLimits()
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
    queue: QueueRules = KEPT

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self))

    @staticmethod
    def from_json(text: str) -> TideOrder:
        return form_of(TideOrder).validate_json(text)


def form_of(kind: type[T]) -> TypeAdapter[T]:
    """How values of this kind come out of JSON; ValueError where it is none of them. Made once, when it is needed."""
    if kind not in _FORMS:
        _FORMS[kind] = TypeAdapter(kind)
    return _FORMS[kind]


@dataclass(frozen=True, slots=True)
class Handover:
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
class Carried:
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
    extents: tuple[Extent, ...] = ()
    # The source's leader epoch of the last record below `to_offset`, exact or -1.
    epoch: int = -1


def carried_from(raw: list[Any]) -> Carried:
    """An account out of its JSON form."""
    fields: Any = [tuple(map(tuple, value)) if isinstance(value, list) else value for value in raw]
    found = Carried(*fields)
    return dataclasses.replace(found, extents=tuple(Extent(*one) for one in found.extents))


@dataclass(frozen=True, slots=True)
class Stoppage:
    """Why a partition stopped, or what was done about it instead when `policy` says so; the ledger keeps it. `side`
    None: the one where such things happen. `why`: of what was dropped, the reason by itself."""

    topic: str
    partition: int
    kind: IncidentKind
    from_offset: int
    to_offset: int
    sentence: str
    policy: Policy | None = None
    side: IncidentSide | None = None
    why: str = ""


def stoppage_from(raw: list[Any]) -> Stoppage:
    """What a pump told, out of its JSON form."""
    topic, partition, kind, begin, end, sentence, done, side, why = raw
    policy = Policy(done[0], Effect(done[1])) if done else None
    where = IncidentSide(side) if side else None
    return Stoppage(topic, partition, IncidentKind(kind), begin, end, sentence, policy, where, why)


def fence_of(generation: int, tide: int) -> int:
    """The coordinator epoch of a tide's markers: later tides mostly have higher ones. Where one has not, a look at what
    the twin's leader remembers raises it."""
    return (generation << 12 | tide & 0xFFF) & 0x3FFFFFFF
