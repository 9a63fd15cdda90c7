"""Values that the store keeps of proofs, links and switches, and a text form of offset ranges.

Times are milliseconds since 1970, always the caller's. Values of proxies are in `proxy_values`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from twinshore.config.errors import StoreError
from twinshore.config.incident_policy import IncidentKind, IncidentPolicy, IncidentSide
from twinshore.config.model import SEQUENCE_SPAN, OffsetRun, TwinNaming

PartitionKey = tuple[str, str, int]


class PartitionRow(Protocol):
    @property
    def link(self) -> str: ...
    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...


def key_of(row: PartitionRow) -> PartitionKey:
    return row.link, row.topic, row.partition


class ProofState(StrEnum):
    IDENTICAL = "identical"
    DIFFERS = "differs"


@dataclass(frozen=True, slots=True)
class ProofRow:
    """Both sides held the same records in [`from_offset`, `to_offset`) at `proven_ms`; the source ended at `source_end`
    then.

    `mode`: how they were compared. `target_offset`: where the target continues if offsets are not compared, else -1.
    `digest`: of the records, or empty. `sentence`: the difference as JSON, if any. `last_incident_id`: the newest
    incident before the first read. `bytes_read`: of both sides, 0: unknown. `oldest_ms`: every part was read then or
    later, 0: unknown.

    During a re-read: the pass began at `reread_ms`, ends at `reread_end`, and has read all below `reread_offset` (-1:
    no pass). `reread_target`: where the target continues there. `revision`: the row's number of changes.
    """

    link: str
    topic: str
    partition: int
    mode: str
    state: ProofState
    from_offset: int
    to_offset: int
    target_offset: int
    source_end: int
    records: int
    digest: str
    sentence: str
    source_topic_id: str
    target_topic_id: str
    proven_ms: int
    last_incident_id: int = 0
    bytes_read: int = 0
    oldest_ms: int = 0
    reread_offset: int = -1
    reread_target: int = -1
    reread_end: int = -1
    reread_ms: int = 0
    revision: int = 0

    @property
    def read_ms(self) -> int:
        """Every part was read then or later. 0: unknown, also where no record of the source is proven."""
        if self.to_offset <= self.from_offset:
            return 0 if self.source_end > self.from_offset else self.proven_ms
        return self.oldest_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyCheckRow:
    """The last check of a compacted twin's keys, and the age of records replicated since.

    At `mark_ms` the source ended at `mark_end`. All records replicated since the twin last reached a mark were written
    after `since_ms`, 0: unknown. `retention_ms`: the shortest delete.retention.ms in that time. `may_lack_tombstones`:
    one may have been cleaned away before replication. `checked_ms`: the last check, 0 before the first; `checked_end`:
    the twin's end then. That check found `missing_tombstones`, in [`from_offset`, `to_offset`).
    """

    link: str
    topic: str
    partition: int
    source_topic_id: str
    target_topic_id: str
    mark_end: int
    mark_ms: int
    since_ms: int
    retention_ms: int
    may_lack_tombstones: int = 1
    checked_ms: int = 0
    checked_end: int = 0
    missing_tombstones: int = 0
    from_offset: int = -1
    to_offset: int = -1


MIRROR_ACTOR = "the mirror"  # The actor of changes that no operator made.
BATCHES_KEPT = 5  # As many as a broker remembers of each producer to know a retry.


@dataclass(frozen=True, slots=True)
class LeaseRow:
    """A stored lease. One `epoch` has one holder; growing `renewals` show that the holder lives."""

    name: str
    owner: str
    epoch: int
    renewals: int
    ttl_ms: int
    released: bool = False


@dataclass(frozen=True, slots=True)
class LinkIdentity:
    link: str
    producer_id: int
    producer_epoch: int
    source_cluster_id: str
    target_cluster_id: str


@dataclass(frozen=True, slots=True)
class TwinRow:
    """A twin's partition. At `base_offset` the link's next sequence is `base_sequence`. Topic ids are hex.

    Below `inherited_end` the log is the topic's own, from when its home was there. `epoch` is added to the link's: a
    switch fences earlier ones. Incidents up to `last_incident_id` concern an earlier twin; saving sets this.
    """

    link: str
    topic: str
    partition: int
    source_topic_id: str
    target_topic_id: str
    base_offset: int
    base_sequence: int
    created_ms: int
    inherited_end: int = 0
    epoch: int = 0
    last_incident_id: int = field(default=-1, compare=False)


@dataclass(frozen=True, slots=True)
class HomeRow:
    """The home of a topic of a cluster pair. A later home has a higher `term`; `since_ms` is for people."""

    pair: str
    topic: str
    home: str
    term: int
    since_ms: int
    set_by: str


@dataclass(frozen=True, slots=True)
class SourceBatch:
    """A batch with its producer's sequences and its offset on source and twin."""

    base_sequence: int
    last_sequence: int
    base_offset: int
    timestamp: int

    @property
    def last_offset(self) -> int:
        return self.base_offset + (self.last_sequence - self.base_sequence) % SEQUENCE_SPAN


@dataclass(frozen=True, slots=True)
class SourceProducer:
    """One producer's last batches in one source partition, oldest first."""

    producer_id: int
    epoch: int
    batches: tuple[SourceBatch, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressRecord:
    """What a task replicated: offsets [`from_offset`, `to_offset`). Equal ones report the source's end alone.

    `source_end`: the high watermark seen. `offset_runs`: new ones of a mapped twin, perhaps beyond `to_offset`.
    `source_epoch`: the source's leader epoch of the last record below `to_offset`; -1: unknown.
    """

    link: str
    topic: str
    partition: int
    from_offset: int
    to_offset: int
    records: int
    bytes: int
    batches: int
    source_end: int
    first_ms: int
    last_ms: int
    lag_records: int = 0
    source_producers: tuple[SourceProducer, ...] = ()
    offset_runs: tuple[OffsetRun, ...] = ()
    source_epoch: int = -1


class PartitionState(StrEnum):
    FLOWING = "flowing"
    STOPPED = "stopped"
    ARCHIVED = "archived"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicatedPosition:
    """How far a partition is replicated, with total counts."""

    link: str
    topic: str
    partition: int
    start_offset: int
    to_offset: int
    records: int
    bytes: int
    batches: int
    source_end: int
    lag_records: int
    state: PartitionState
    first_ms: int
    last_ms: int
    source_epoch: int = -1


@dataclass(frozen=True, slots=True)
class Incident:
    """A difference of a twin, or what stopped replication.

    `topic` is empty for a whole link, `partition` -1 for a whole topic, offsets -1 if none apply. `proof_mode`: the
    mode of a proof that found this.
    """

    link: str
    topic: str
    partition: int
    kind: IncidentKind
    from_offset: int
    to_offset: int
    policy: IncidentPolicy
    sentence: str
    side: IncidentSide = IncidentSide.NONE
    proof_mode: str = ""


@dataclass(frozen=True, slots=True)
class IncidentRow:
    """A logged incident, open while `closed_ms` is None. A joined row concerns its `joined_ranges`, not the gaps
    between.
    """

    id: int
    incident: Incident
    opened_ms: int
    closed_ms: int | None
    joined_ranges: tuple[tuple[int, int], ...] = ()

    @property
    def ranges(self) -> tuple[tuple[int, int], ...]:
        return self.joined_ranges or ((self.incident.from_offset, self.incident.to_offset),)


@dataclass(frozen=True, slots=True)
class IncidentCount:
    link: str
    kind: IncidentKind
    all: int
    open: int


@dataclass(frozen=True, slots=True)
class AuditRow:
    """A change, or attempt: the `kind` and name of the thing, and its values before and after.

    `actor`: an operator's name, or the mirror. `topic` and `group` by their names where the change was made, or empty.
    The store assigns growing ids.
    """

    at_ms: int
    link: str
    kind: str
    subject: str
    before: str
    after: str
    outcome: str
    actor: str = MIRROR_ACTOR
    topic: str = ""
    group: str = ""
    id: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class ControlRow:
    """An operator's override of a link's setting; `value` is JSON."""

    link: str
    name: str
    value: str
    changed_ms: int
    changed_by: str


@dataclass(frozen=True, slots=True)
class LiveSettingRow:
    """A setting that counts before the settings file; `value` is JSON."""

    key: str
    value: str = field(repr=False)
    set_by: str
    changed_ms: int


@dataclass(frozen=True, slots=True)
class LinkStateRow:
    """A thing synced from source to target: what the link wrote there, or holds back."""

    link: str
    kind: str
    subject: str
    value: str
    state: str
    since_ms: int


class LinkPresence(StrEnum):
    """Whether to run a link. REMOVED outweighs settings that still name the link."""

    KEPT = "kept"
    REMOVED = "removed"


@dataclass(frozen=True, slots=True)
class LinkRow:
    """A link's definition. `section`: its settings as JSON. `seed`: the settings when last adopted, empty if never
    there. `revision`: that of all links at its last change.
    """

    link: str
    state: LinkPresence
    section: str
    seed: str
    revision: int
    changed_ms: int
    changed_by: str


def twin_naming_of(section: str) -> str:
    return str(json.loads(section).get("naming", TwinNaming.SAME))


@dataclass(frozen=True, slots=True)
class LinkStatus:
    """The mirror's last status of a link. Latencies are None without measurements."""

    link: str
    owner: str
    state: str
    sentence: str
    updated_ms: int
    tasks: int = 0
    partitions: int = 0
    records_per_s: float = 0.0
    bytes_per_s: float = 0.0
    lag_records: int = 0
    p50_ms: float | None = None
    p99_ms: float | None = None


@dataclass(frozen=True, slots=True)
class AlarmRow:
    """An alarm about lag, open while `cleared_ms` is None. `reported_ms` is None if raised in a quiet period and not
    reported yet. The last fields are what people said of the open alarm; `reason`: of the acknowledgement.
    """

    link: str
    kind: str
    topic: str
    group: str
    sentence: str
    raised_ms: int
    reported_ms: int | None = None
    reports: int = 0
    cleared_ms: int | None = None
    id: int = 0
    acknowledged_by: str = ""
    acknowledged_ms: int = 0
    reason: str = ""
    silenced_by: str = ""
    silent_until_ms: int = 0


NO_MARKS: dict[str, Any] = {
    "acknowledged_by": "",
    "acknowledged_ms": 0,
    "reason": "",
    "silenced_by": "",
    "silent_until_ms": 0,
}


@dataclass(frozen=True, slots=True)
class PartitionDelayRow:
    """The last lag of a partition, or of a group there. `unreplicated_ends`: when each end of the source was first
    seen, as JSON, for a restarted monitor.
    """

    link: str
    topic: str
    partition: int
    group: str
    at_ms: int
    source_end: int
    target_end: int
    lag_records: int
    recovery_point_ms: int
    offset_relation: str
    state: str
    unreplicated_ends: str = "[]"


@dataclass(frozen=True, slots=True)
class WatcherRow:
    """A monitor, or watcher of monitors. `kind`: what is watched; `links`: a monitor's. It adds to `heartbeats` at
    least every `heartbeat_interval_ms`.
    """

    name: str
    kind: str
    owner: str
    heartbeats: int
    heartbeat_interval_ms: int
    heartbeat_ms: int
    sampled_ms: int
    sentence: str
    links: tuple[str, ...] = ()


OffsetRange = tuple[int, int]


def merge_ranges(ranges: Iterable[OffsetRange]) -> tuple[OffsetRange, ...]:
    """Returns the ranges in order, with touching and overlapping ones merged."""
    found: list[OffsetRange] = []
    for begin, end in sorted(ranges):
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((begin, end))
    return tuple(found)


def encode_ranges(ranges: Iterable[OffsetRange]) -> str:
    """Returns a text for `parse_ranges`."""
    words, at = [], 0
    for begin, end in merge_ranges(ranges):
        words.append(f"{begin - at}+{end - begin}")
        at = end
    return " ".join(words)


def parse_ranges(text: str) -> tuple[OffsetRange, ...]:
    """Raises StoreError for any other text."""
    found, at = list[OffsetRange](), 0
    for word in text.split():
        gap, plus, length = word.partition("+")
        if not (plus and gap.isdecimal() and length.isdecimal()):
            raise StoreError("state.invalid-row", place="incidents", cause=f"{word!r} is not a range of offsets")
        begin = at + int(gap)
        at = begin + int(length)
        found.append((begin, at))
    return tuple(found)


class MirrorRequest(StrEnum):
    """What a switch asks of the mirror that replicates its topics."""

    ANNOUNCED = "announced"  # Nothing yet: replication continues.
    STOP_REPLICATION = "stop replication"


@dataclass(frozen=True, slots=True)
class TopicInSwitch:
    """A topic in a running switch. `link` replicates from the old home; `stopped_ms`: when that stopped as requested;
    0: not yet.
    """

    pair: str
    topic: str
    switch_id: str
    link: str
    request: MirrorRequest
    requested_ms: int
    stopped_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class HomeChange:
    """A change of a topic's home. `link` replicated until now. `back` does from now on, empty if none, onto the old
    source's log, which is the topic's own below `points`, one for each partition.

    `torn`: a forced switch, which may leave records of the old home unreplicated; the replicated prefix is kept.

    Topic ids are as `back` sees them: its source is the new home. `back` writes with `term` added to its epoch, which
    fences of earlier switches, one above an earlier term's epoch, never reach.
    """

    pair: str
    topic: str
    home: str
    term: int
    link: str
    back: str
    source_topic_id: str
    target_topic_id: str
    points: tuple[int, ...]
    since_ms: int
    set_by: str
    torn: bool = False


@dataclass(frozen=True, slots=True)
class ReplicatedPrefix:
    """What a forced switch knows of a partition: the old home's records below `to_offset` were replicated. `producers`
    wrote them, with the last batches of each. `all_known`: no recent producer is missing.
    """

    term: int
    to_offset: int
    all_known: bool
    producers: tuple[SourceProducer, ...] = ()


@dataclass(frozen=True, slots=True)
class WriteBlockRow:
    """As JSON: the twins on this cluster that only their link may write, and the ACLs changed for that."""

    cluster: str
    block: str
    changed_ms: int


@dataclass(frozen=True, slots=True)
class SwitchRow:
    """A switch of topics from home `source` to `target`. `switch_state` is JSON; `ended_ms` is None while open."""

    id: str
    kind: str
    source: str
    target: str
    state: str
    switch_state: str
    set_by: str
    begun_ms: int
    changed_ms: int
    ended_ms: int | None = None
