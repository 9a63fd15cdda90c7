"""What the store keeps of proofs: what was compared, how and when. Times are milliseconds since 1970.

What the store keeps of links, what they carried and how late, as values; and many ranges of offsets as one short
text. What it keeps of proofs is in `proof_values`. Times are milliseconds since 1970, always the caller's.

What the store keeps of switches, as values.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from twinshore.config.errors import StoreError
from twinshore.config.incident_policy import IncidentKind, IncidentPolicy, IncidentSide
from twinshore.config.model import SEQUENCE_SPAN, OffsetRun, TwinNaming


class ProofState(StrEnum):
    IDENTICAL = "identical"
    DIFFERS = "differs"


@dataclass(frozen=True, slots=True)
class ProofRow:
    """Both sides of a partition hold the same records from `from_offset` up to, not including, `to_offset`, as of
    `proven_ms`; `source_end` was the source's end then.

    `way` says how they were compared; `target_offset` is where the target goes on where offsets do not count, else -1.
    `digest` is that of the records, empty where none was made. Where they differ, `sentence` holds how, as JSON.
    `ledger_id` is the newest row of the ledger that was there before any of it was read, `size` how many bytes of both
    sides were read for it, 0: unknown. Each part of it was read at `oldest_ms` or later, 0: unknown.

    While it is read again: the pass began at `again_ms` and ends at `again_end`; all below `again_offset` is read, -1:
    no pass is on. `again_target` is where the target goes on there, where offsets do not count. `revision` counts how
    often the store's row was changed.
    """

    link: str
    topic: str
    partition: int
    way: str
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
    ledger_id: int = 0
    size: int = 0
    oldest_ms: int = 0
    again_offset: int = -1
    again_target: int = -1
    again_end: int = -1
    again_ms: int = 0
    revision: int = 0

    @property
    def read_ms(self) -> int:
        """Since when each part has been read at least once. 0: unknown, as where nothing is proven of what the source
        holds."""
        if self.to_offset <= self.from_offset:
            return 0 if self.source_end > self.from_offset else self.proven_ms
        return self.oldest_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyCheckRow:
    """When the keys of a compacted twin were last compared with the source's, and how old what crossed since may be.

    At `mark_ms` the source ended at `mark_end`. All that crossed since the twin was last at a mark was written after
    `since_ms`, 0: nobody knows. `retention_ms` is the shortest delete.retention.ms seen in that time. `missed`: some
    tombstone may have been cleaned away before it crossed, and nobody has looked since. `looked_ms` is 0 before the
    first look, `looked_end` the twin's end at the last one. `owed` keys were found then, from `from_offset` up to, not
    including, `to_offset`.
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
    missed: int
    looked_ms: int
    looked_end: int
    owed: int
    from_offset: int
    to_offset: int


MIRROR_ACTOR = "the mirror"  # Who changed what no operator did.
BATCHES_KEPT = 5  # As many as a broker remembers of each producer to know a retry.


@dataclass(frozen=True, slots=True)
class LeaseRow:
    """A lease as it stands. It is one holder's as long as `generation` stays; a changing `beat` says he lives."""

    name: str
    owner: str
    generation: int
    beat: int
    ttl_ms: int
    released: bool = False


@dataclass(frozen=True, slots=True)
class LinkIdentity:
    """Whom a link writes as, and between which clusters, by their own ids."""

    link: str
    producer_id: int
    producer_epoch: int
    source_cluster_id: str
    target_cluster_id: str


@dataclass(frozen=True, slots=True)
class TwinRow:
    """A twin's partition. At `anchor_offset` the link's next sequence is `anchor_sequence`. Topic ids are hex. Below
    `inherited` the log is the topic's own, of when it was at home there. `epoch` is added to the link's own: a switch
    shuts out what is written with an earlier one. Rows of the ledger up to `ledger_before` are of an earlier
    twin; it is set as the row is saved."""

    link: str
    topic: str
    partition: int
    source_topic_id: str
    target_topic_id: str
    anchor_offset: int
    anchor_sequence: int
    created_ms: int
    inherited: int = 0
    epoch: int = 0
    ledger_before: int = field(default=-1, compare=False)


@dataclass(frozen=True, slots=True)
class HomeRow:
    """The cluster where a topic of a pair of clusters is written. A later home has a higher `term`; `since_ms` is for
    people."""

    pair: str
    topic: str
    home: str
    term: int
    since_ms: int
    set_by: str


@dataclass(frozen=True, slots=True)
class SourceBatch:
    """A batch as its producer numbered it and as the source, and so the twin, holds it."""

    base_sequence: int
    last_sequence: int
    base_offset: int
    timestamp: int

    @property
    def last_offset(self) -> int:
        """That of its last record."""
        return self.base_offset + (self.last_sequence - self.base_sequence) % SEQUENCE_SPAN


@dataclass(frozen=True, slots=True)
class SourceProducer:
    """The last batches, oldest first, that one producer wrote to one partition of the source."""

    producer_id: int
    epoch: int
    batches: tuple[SourceBatch, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressRecord:
    """What a pump carried: offsets from `from_offset` up to, not including, `to_offset`.

    One with both equal says only how far the source is. `source_end` is the high watermark seen. `extents` are those
    that a mapped twin has gained; they may reach beyond `to_offset`. `source_epoch`: the source's leader epoch of the
    last record below `to_offset`, -1 where not known.
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
    extents: tuple[OffsetRun, ...] = ()
    source_epoch: int = -1


class PartitionState(StrEnum):
    FLOWING = "flowing"
    STOPPED = "stopped"
    ARCHIVED = "archived"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicatedPosition:
    """How far a twin's partition is receipted, in which leader epoch of the source, and what went there in all."""

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
    """Something that a twin lacks or that stopped it: where, what was done about it, and a sentence for people.

    `topic` is empty for a whole link, `partition` -1 for a whole topic, offsets -1 where none are concerned. `way` is
    how both sides were compared, where a proof found it.
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
    way: str = ""


@dataclass(frozen=True, slots=True)
class IncidentRow:
    """An incident as the ledger holds it; open while `closed_ms` is None. A row that many were joined to is about its
    `parts` alone, not about all that lies between."""

    id: int
    incident: Incident
    opened_ms: int
    closed_ms: int | None
    parts: tuple[tuple[int, int], ...] = ()

    @property
    def ranges(self) -> tuple[tuple[int, int], ...]:
        """The offsets that it is about."""
        return self.parts or ((self.incident.from_offset, self.incident.to_offset),)


@dataclass(frozen=True, slots=True)
class IncidentCount:
    """Incidents of one link and kind in the ledger: all, and those still open."""

    link: str
    kind: IncidentKind
    all: int
    open: int


@dataclass(frozen=True, slots=True)
class AuditRow:
    """A change that a link made, or tried to, on its target: `kind` of thing, which one, what it was and became.

    `actor` is who did it: an operator's name, or the mirror by itself. `topic` and `group`: what it is about, as it is
    called where the change was made; empty where it is about neither. The store gives the `id`, which grows.
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
    """What an operator has said of a link, instead of what its settings say; `value` is JSON."""

    link: str
    name: str
    value: str
    changed_ms: int
    changed_by: str


@dataclass(frozen=True, slots=True)
class LinkStateRow:
    """Something of the source that follows to the target: what the link wrote there, or holds back, since when."""

    link: str
    kind: str
    subject: str
    value: str
    state: str
    since_ms: int


class LinkPresence(StrEnum):
    """Whether a link is to be carried: who removed one wants it gone whatever settings still name it."""

    KEPT = "kept"
    REMOVED = "removed"


@dataclass(frozen=True, slots=True)
class LinkRow:
    """What a link is. `section` is what settings would say of it, as JSON; `seed` what settings said when they were
    last taken, empty where none ever named it. `revision` is that of all links at its last change."""

    link: str
    state: LinkPresence
    section: str
    seed: str
    revision: int
    changed_ms: int
    changed_by: str


def twin_naming_of(section: str) -> str:
    """How a link of this section calls its twins."""
    return str(json.loads(section).get("naming", TwinNaming.SAME))


@dataclass(frozen=True, slots=True)
class LinkStatus:
    """What the mirror last said of a link. Latencies are None while there was nothing to measure."""

    link: str
    owner: str
    state: str
    sentence: str
    updated_ms: int
    lanes: int = 0
    partitions: int = 0
    records_per_s: float = 0.0
    bytes_per_s: float = 0.0
    lag_records: int = 0
    p50_ms: float | None = None
    p99_ms: float | None = None


@dataclass(frozen=True, slots=True)
class AlarmRow:
    """Something late, of a link or a topic of it: open while `cleared_ms` is None. `told_ms` is None where it rose in a
    quiet time and nobody has been told."""

    link: str
    kind: str
    topic: str
    group: str
    sentence: str
    raised_ms: int
    told_ms: int | None = None
    times_told: int = 0
    cleared_ms: int | None = None
    id: int = 0


@dataclass(frozen=True, slots=True)
class PartitionDelayRow:
    """How a partition, or a group's place in it, stood last. `waiting`: when which end of the source was first seen, as
    JSON, so that a monitor that starts again knows how old things are."""

    link: str
    topic: str
    partition: int
    group: str
    at_ms: int
    source_end: int
    target_end: int
    lag_records: int
    recovery_point_ms: int
    axis: str
    state: str
    waiting: str = "[]"


@dataclass(frozen=True, slots=True)
class WatcherRow:
    """One that watches: `kind` is what it watches, and `links` which ones, of a monitor. While it lives, `beat` changes
    at least every `every_ms`."""

    name: str
    kind: str
    owner: str
    beat: int
    every_ms: int
    beaten_ms: int
    sampled_ms: int
    sentence: str
    links: tuple[str, ...] = ()


OffsetRange = tuple[int, int]


def merge_ranges(ranges: Iterable[OffsetRange]) -> tuple[OffsetRange, ...]:
    """The same offsets in order; what touches or overlaps is one."""
    found: list[OffsetRange] = []
    for begin, end in sorted(ranges):
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((begin, end))
    return tuple(found)


def encode_ranges(ranges: Iterable[OffsetRange]) -> str:
    """As text; `parse_ranges` takes it back."""
    words, at = [], 0
    for begin, end in merge_ranges(ranges):
        words.append(f"{begin - at}+{end - begin}")
        at = end
    return " ".join(words)


def parse_ranges(text: str) -> tuple[OffsetRange, ...]:
    """StoreError where it is no such text."""
    found, at = list[OffsetRange](), 0
    for word in text.split():
        gap, plus, length = word.partition("+")
        if not (plus and gap.isdecimal() and length.isdecimal()):
            raise StoreError(f"the store's table incidents: no ranges of offsets: {word!r}", hint="who wrote it?")
        begin = at + int(gap)
        at = begin + int(length)
        found.append((begin, at))
    return tuple(found)


class MirrorRequest(StrEnum):
    """What a switch asks of the mirror that carries its topics."""

    ANNOUNCED = "announced"  # Nothing yet: it goes on.
    STOP_REPLICATION = "let go"


@dataclass(frozen=True, slots=True)
class TopicInSwitch:
    """A topic that a switch moves just now. `link` carries it, from the old home; `let_go_ms` is when it let the topic
    go as asked, 0 until then."""

    pair: str
    topic: str
    switch_id: str
    link: str
    asked: MirrorRequest
    asked_ms: int
    let_go_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class HomeChange:
    """Another home for a topic. `link` carried it until now; `back` carries it from now on, empty where none does, onto
    the log that was its source: that log is the topic's own below `points`, one for each partition.

    `torn`: by force, so that some of the old home's records may never have crossed; what had is kept then.

    Topic ids are those that `back` sees: its source is the new home. `back` writes the topic with `term` added to its
    epoch: the fences of earlier switches, each one more than the epoch of an earlier term, never reach that.
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
    """What is known of a partition whose topic moved by force: the old home's records below `to_offset` had crossed,
    and `producers` had written them, with the last batches of each. `all_known`: none of those is forgotten that wrote
    not long before."""

    term: int
    to_offset: int
    all_known: bool
    producers: tuple[SourceProducer, ...] = ()


@dataclass(frozen=True, slots=True)
class WriteBlockRow:
    """Which twins on this cluster are kept from other writers than their link, and which of its ACLs were changed for
    that, as JSON."""

    cluster: str
    guard: str
    changed_ms: int


@dataclass(frozen=True, slots=True)
class SwitchRow:
    """A switch of topics that were at home on `source`, to `target`. `record` is JSON; `ended_ms` is None while it is
    open."""

    id: str
    kind: str
    source: str
    target: str
    state: str
    record: str
    set_by: str
    begun_ms: int
    changed_ms: int
    ended_ms: int | None = None
