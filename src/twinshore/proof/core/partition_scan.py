"""A look at one partition on both clusters, and what its borders and the ledger leave of what was proven. Pure.

A proof speaks of records, and records go: retention takes them, somebody deletes them, an election cuts a log's end.
So before a proof is gone on from, each round narrows it to what both sides still hold.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from math import inf
from typing import NamedTuple

from twinshore.config.incident_policy import IncidentKind
from twinshore.config.model import Link, TopicPartition
from twinshore.proof.core.model import CompareMode, CompareRange, CompareResult, DifferenceKind, ProofDifference
from twinshore.proof.core.record_rows import combine_digests
from twinshore.replication.core.incident_kinds import IncidentOutcome, kind_entry, stops_replication
from twinshore.replication.task.core.config import json_adapter
from twinshore.state.core.values import Incident, IncidentRow, ProofRow, ProofState

NO_RECORDS = f"{0:032x}"
INCIDENT_KIND = IncidentKind.CONTENT_DIFFERS
DELETED_BY_RETENTION = "gone with retention, no proof went past it"
# Rows of a proof's own, which it ends itself by going past them, or by a look at the keys.
PROOF_INCIDENT_KINDS = frozenset({IncidentKind.CONTENT_DIFFERS, IncidentKind.DELETIONS_OWED})
# Open rows that say that both sides hold different records, whatever a proof has read: those of differences were found
# by another way.
DIVERGENCE_KINDS = frozenset({IncidentKind.TRUNCATION, IncidentKind.FOREIGN_WRITE, IncidentKind.CONTENT_DIFFERS})
NEVER_REPLICATED = "the link admits it and has never carried it: does its mirror run?"
PAUSED_BEFORE_START = "it was paused before it was ever carried"


def reset_proof(row: ProofRow, at: int) -> ProofRow:
    """A proof of nothing yet, which begins at this offset."""
    nothing = replace(row, from_offset=at, to_offset=at, target_offset=-1, records=0, digest="", size=0, oldest_ms=0)
    return _without_pass(nothing)


def narrow_proof(row: ProofRow, start: int, upto: int) -> ProofRow:
    """What stands of a proof from `start` up to `upto`, both within it. What is cut has no digest any more. Where not
    every offset was a record, its count is the least that there can be."""
    if (start, upto) == (row.from_offset, row.to_offset):
        return row
    target = row.target_offset if upto == row.to_offset else -1
    if start == upto:
        return replace(reset_proof(row, start), target_offset=target)
    span, whole = upto - start, row.to_offset - row.from_offset
    at = max(start, row.again_offset) if row.again_offset >= 0 else -1
    left = replace(
        row,
        from_offset=start,
        to_offset=upto,
        target_offset=target,
        records=max(0, row.records - whole + span),
        digest="",
        size=row.size * span // whole,
        again_offset=at,
        again_target=row.again_target if at == row.again_offset else -1,
        again_end=min(row.again_end, upto),
    )
    return _over(left)


def extend_proof(row: ProofRow, stretch: CompareRange, result: CompareResult, read_ms: int) -> ProofRow:
    """The proof with what was compared from its end on."""
    empty = row.to_offset == row.from_offset
    known = (row.digest or empty) and stretch.digest
    return replace(
        row,
        to_offset=result.to,
        records=row.records + result.records,
        digest=f"{combine_digests(int(row.digest or NO_RECORDS, 16), result.digest):032x}" if known else "",
        size=row.size + result.bytes if row.size or empty else 0,
        oldest_ms=read_ms if empty else row.oldest_ms,
    )


def advance_reread(row: ProofRow, stretch: CompareRange, result: CompareResult, read_ms: int) -> ProofRow:
    """The proof after a part of it was read again and found to be the same, from `read_ms` on. An answer that does not
    go on where the pass is changes nothing: another process has read that part."""
    if stretch.way is CompareMode.COMPACTED:
        return _whole_again(row, result, read_ms)
    begins = row.again_offset < 0
    at = row.from_offset if begins else row.again_offset
    if result.to <= at or stretch.start > at or read_ms < row.again_ms:
        return row
    if begins:
        row = replace(row, again_ms=read_ms, again_end=row.to_offset)
    return _over(replace(row, again_offset=result.to, again_target=result.target_to))


def _whole_again(row: ProofRow, result: CompareResult, read_ms: int) -> ProofRow:
    """A compacted log is read again whole, with what is new in it."""
    if result.to < row.to_offset:
        return row
    row = replace(row, size=result.bytes, oldest_ms=max(row.oldest_ms, read_ms))
    grows = row.state is ProofState.IDENTICAL or result.to == row.to_offset
    return replace(row, to_offset=result.to, records=result.records) if grows else row


def _over(row: ProofRow) -> ProofRow:
    """A pass ends where the proof ended when it began: all of that was read since, and the rest is younger."""
    if row.again_offset < 0 or row.again_offset < row.again_end:
        return row
    return _without_pass(replace(row, oldest_ms=max(row.oldest_ms, row.again_ms)))


def _without_pass(row: ProofRow) -> ProofRow:
    return replace(row, again_offset=-1, again_target=-1, again_end=-1, again_ms=0)


def incident_of(row: ProofRow) -> Incident | None:
    """What the ledger is told of a partition that differs. No record's content: the ledger is kept for ever."""
    found = difference_of(row) if row.state is ProofState.DIFFERS else None
    if found is None:
        return None
    sentence = f"both sides part at offset {found.offset}: {found.kind}: {found.sentence}"
    return Incident(
        row.link,
        row.topic,
        row.partition,
        INCIDENT_KIND,
        found.offset,
        -1,
        kind_entry(INCIDENT_KIND).policy,
        sentence,
        INCIDENT_KIND.side,
        row.way,
    )


def find_resolved_incidents(opened: Iterable[IncidentRow], rows: Iterable[ProofRow]) -> list[int]:
    """Open rows of differences that these proofs have gone past. A proof by another way says nothing of one, nor does
    one that may have read that offset before the row was opened."""
    proven = {(row.link, row.topic, row.partition): row for row in rows}
    found = []
    for one in opened:
        incident = one.incident
        row = proven.get((incident.link, incident.topic, incident.partition))
        if incident.kind is not INCIDENT_KIND or row is None or one.id > row.ledger_id:
            continue
        if incident.way == row.way and row.to_offset > incident.from_offset >= row.from_offset:
            found.append(one.id)
    return found


def find_expired_incidents(opened: Iterable[IncidentRow], below: Mapping[tuple[str, str, int], int]) -> list[int]:
    """Open rows of differences in records that no side holds any more; those are below these offsets of each link's
    topics and partitions."""
    found = []
    for one in opened:
        incident = one.incident
        start = below.get((incident.link, incident.topic, incident.partition), 0)
        if incident.kind is INCIDENT_KIND and incident.from_offset < start:
            found.append(one.id)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionScan:
    """One partition as both clusters show it. Each end is read target first: a true twin is then never ahead, and never
    begins later.

    `extents` are (source, target, length) of the first and the last one and of those at the twin's borders;
    `stored` is what was proven before, of these very topics. `told` are the rows of the ledger that name offsets of
    this partition, `ledger_id` the newest row of all, `looked_ms` when this look began. `dropped` are offsets that
    a fresh queue did not send, each a row of the ledger.
    """

    link: str
    named: TopicPartition
    twin: str
    way: CompareMode
    source_start: int
    source_end: int
    target_end: int
    source_topic_id: str
    target_topic_id: str
    extents: tuple[tuple[int, int, int], ...] = ()
    stored: ProofRow | None = None
    target_start: int = 0
    told: tuple[IncidentRow, ...] = ()
    ledger_id: int = 0
    looked_ms: int = 0
    # What was known of a partition that is proven anew from its beginning.
    remembered: ProofRow | None = None
    dropped: tuple[tuple[int, int], ...] = ()
    cluster_ids: tuple[str, str] = ("", "")
    # Where the source ends with what lies in transactions that are still open, which nobody compares yet.
    source_high: int = -1
    # Through here another process has seen later what both sides hold.
    seen_to: int = 0

    # What is there

    @property
    def first(self) -> int:
        """The first offset of the source that both sides are asked for. What lies before a mapped twin's first extent
        is none of the link's, and what its own cluster's retention has taken there is nobody's."""
        if self.way is not CompareMode.EXTENTS or not self.extents:
            return self.source_start
        held = [one for one in sorted(self.extents) if one[1] + one[2] > self.target_start]
        if not held:
            return max(self.source_start, max(source + length for source, _, length in self.extents))
        source, target, _ = held[0]
        return max(self.source_start, source + max(0, self.target_start - target))

    @property
    def source_holds(self) -> bool:
        return self.source_end > self.source_start

    @property
    def target_holds(self) -> bool:
        return self.target_end > self.target_start

    @property
    def uncarried(self) -> bool:
        """The source holds records, and the link has carried none to its mapped twin yet: what lies before its first
        extent was there before the link was."""
        return self.way is CompareMode.EXTENTS and self.source_holds and not any(length for *_, length in self.extents)

    @property
    def one_sided(self) -> bool:
        """The target alone holds records, and by content nobody knows what they have to do with the source."""
        return self.way is CompareMode.CONTENT and self.target_holds and not self.source_holds

    @property
    def begins_late(self) -> bool:
        """A twin's log start follows its source's, so that one above it lacks records."""
        return self.way in (CompareMode.EXACT, CompareMode.COMPACTED) and self.source_start < self.target_start

    @property
    def missing_below(self) -> int:
        """Below this an exact twin holds nothing that its source does; 0 where it begins with it."""
        return self.target_start if self.way is CompareMode.EXACT and self.begins_late else 0

    @property
    def gone_below(self) -> int:
        """Records of the source below this are on neither side any more."""
        if self.way is not CompareMode.EXTENTS:
            return self.source_start
        held = [one for one in sorted(self.extents) if one[1] + one[2] > self.target_start]
        if not held:
            return self.source_start if self.extents else 0
        source, target, _ = held[0]
        return min(self.source_start, source + max(0, self.target_start - target))

    @property
    def reach(self) -> int:
        """Through where the target holds anything, as the source counts; by content nobody knows."""
        if self.way is CompareMode.CONTENT:
            return self.source_end
        if self.way is CompareMode.EXTENTS:
            at = 0
            for source, target, length in sorted(self.extents):
                at = source + min(length, max(0, self.target_end - target))
                if self.target_end < target + length:
                    break
            return max(self.seen_to, at)
        return max(self.seen_to, self.target_end)

    @property
    def end(self) -> int:
        """Through where both sides can be compared: the lower of both ends, and not over what the ledger holds open."""
        return min(self.source_end, self.reach, self.kept_from)

    @property
    def kept_from(self) -> int:
        """From here on nothing is compared: the mirror rests there, or carries again what the target lost."""
        rests = (row.incident.from_offset for row in self.open_incidents if _holds(row.incident.kind))
        return min(rests, default=self.source_end)

    @property
    def open_incidents(self) -> tuple[IncidentRow, ...]:
        """Open rows of the ledger over offsets that would else be called identical."""
        upto = max(min(self.source_end, self.reach), self._known.to_offset if self._known else 0)
        return tuple(
            row
            for row in self.told
            if row.closed_ms is None
            and not self._ends_itself(row.incident)
            and row.incident.from_offset < upto
            and _to_offset(row.incident) > self.first
        )

    def _ends_itself(self, incident: Incident) -> bool:
        """A proof by this way ends such a row."""
        return incident.kind in PROOF_INCIDENT_KINDS and incident.way in ("", self.way)

    # What is left of what was proven

    @property
    def resumable_proof(self) -> ProofRow | None:
        """The proof to go on from, of what both sides still hold."""
        row = self._known
        if row is None or row.to_offset < self.first or (self.way is CompareMode.COMPACTED and self.begins_late):
            return None
        start, upto = max(row.from_offset, self.first), min(row.to_offset, self.source_end, self.reach, self._held_to)
        if self.way is CompareMode.CONTENT and (upto < row.to_offset or self.target_end < row.target_offset):
            return None  # Where the shorter one would go on there, nobody knows.
        lost = self._lost_end()
        row = replace(narrow_proof(row, start, max(start, upto)), ledger_id=self.ledger_id)
        if lost is not None and row.state is ProofState.IDENTICAL:
            return replace(row, state=ProofState.DIFFERS, sentence=json.dumps(asdict(lost)))
        parted = difference_of(row)
        if parted is not None and parted.offset < self.first:
            return replace(row, state=ProofState.IDENTICAL, sentence="")
        return row

    def known_difference(self, upto: int) -> ProofDifference | None:
        """Where both sides were found to differ, if a proof through `upto` has not gone past it."""
        row = self.resumable_proof or self.remembered
        found = difference_of(row) if row is not None else None
        return found if found is not None and found.offset >= max(self.first, upto) else None

    def matches_row(self, row: ProofRow) -> bool:
        """Whether it speaks of these topics, compared by this way."""
        ids = self.source_topic_id, self.target_topic_id
        return row.way == self.way and (row.source_topic_id, row.target_topic_id) == ids

    @property
    def proof_invalidated(self) -> bool:
        """Less is left of what was proven than the store says."""
        row = self.stored
        return row is not None and row.way == self.way and row != self.resumable_proof

    @property
    def log_shrunk(self) -> bool:
        """A log ends before what was proven of it. A new leader may show less for a moment than it has."""
        row = self._known
        if row is None:
            return False
        return min(self.source_end, self.reach) < row.to_offset or self.target_end < row.target_offset

    @property
    def start(self) -> int:
        """Where on the source to go on."""
        row = self.resumable_proof
        return max(self.first, row.to_offset if row else 0)

    @property
    def _held_to(self) -> int:
        """From here on the mirror has rested or carried once more since the proof: what it read there is there no more,
        for all that is known."""
        known_to = self._known.ledger_id if self._known else 0
        since = (row.incident for row in self.told if row.id > known_to)
        rested = (one.from_offset for one in since if one.kind not in PROOF_INCIDENT_KINDS and _holds(one.kind))
        return min(self.kept_from, min(rested, default=self.kept_from))

    @property
    def _known(self) -> ProofRow | None:
        return self.stored if self.stored is not None and self.matches_row(self.stored) else None

    def _lost_end(self) -> ProofDifference | None:
        """What the target held when it was proven, and holds no more though the source does."""
        row, at = self._known, max(self.reach, self.first)
        if row is None or self.way is CompareMode.CONTENT or at >= min(row.to_offset, self.source_end):
            return None
        sentence = f"the target ends there, though it held all through offset {row.to_offset - 1} when that was proven"
        return ProofDifference(DifferenceKind.MISSING, at, sentence, None, None)


def difference_of(row: ProofRow) -> ProofDifference | None:
    """How the partition differs, out of what the store keeps."""
    return json_adapter(ProofDifference).validate_json(row.sentence) if row.sentence else None


def _to_offset(incident: Incident) -> float:
    """Behind which offset it says nothing; a difference is one of a single offset."""
    if incident.kind is IncidentKind.CONTENT_DIFFERS:
        return incident.from_offset + 1
    return incident.to_offset if incident.to_offset > incident.from_offset else inf


def _holds(kind: IncidentKind) -> bool:
    """Whether the mirror does not go on, or carries once more, while a row of this kind is open."""
    return kind is IncidentKind.LOST_BY_TARGET or kind_entry(kind).after is not IncidentOutcome.CONTINUES


class UnreplicatedTopic(NamedTuple):
    """A topic, or one partition of it, that does not go on, and why."""

    topic: str
    partition: int
    sentence: str


def find_unreplicated_topics(
    link: Link, admitted: Iterable[str], known: Collection[str], rows: Iterable[IncidentRow]
) -> Iterator[UnreplicatedTopic]:
    """Of the source's topics that the link admits: those that it never began with, and those that it refuses. `known`
    have twins of the link's, `rows` are the open ones of the ledger."""
    refused: dict[str, list[IncidentRow]] = {}
    for row in rows:
        if row.incident.partition < 0 and stops_replication(row.incident.kind, row.incident.policy):
            refused.setdefault(row.incident.topic, []).append(row)
    for name in sorted(admitted):
        if name in refused:
            yield UnreplicatedTopic(name, -1, f"the mirror refuses it: {'; '.join(map(_told, refused[name]))}")
        elif name not in known:
            yield UnreplicatedTopic(name, -1, PAUSED_BEFORE_START if link.control.pauses(name) else NEVER_REPLICATED)


def find_unreplicated_partitions(
    looks: Iterable[PartitionScan], rows: Iterable[IncidentRow]
) -> Iterator[UnreplicatedTopic]:
    """Of partitions that lack records: those that the mirror has stopped at their end, so that no row lies over what
    was compared."""
    stopped: dict[tuple[str, int], list[IncidentRow]] = {}
    for row in rows:
        if row.incident.partition >= 0 and row.incident.policy.stops:
            stopped.setdefault((row.incident.topic, row.incident.partition), []).append(row)
    for look in looks:
        over = {row.id for row in look.open_incidents}
        found = [row for row in stopped.get((look.named.topic, look.named.partition), ()) if row.id not in over]
        if found and look.reach < look.source_end:
            sentence = f"the mirror has stopped it: {'; '.join(map(_told, found))}"
            yield UnreplicatedTopic(look.named.topic, look.named.partition, sentence)


def _told(row: IncidentRow) -> str:
    return f"open row {row.id} of the ledger, {row.incident.kind}: {row.incident.sentence}"
