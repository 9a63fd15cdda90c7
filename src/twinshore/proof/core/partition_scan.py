"""A scan of one partition on both clusters, and which part of its proof still holds.

Proven records disappear: by retention, deletion, or an election that truncates a log. So each round first narrows the
proof to what both sides still hold.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from math import inf
from typing import NamedTuple

from twinshore.config.grouping import grouped
from twinshore.config.incident_policy import IncidentKind, IncidentOutcome, stops_replication
from twinshore.config.model import Link, TopicPartition
from twinshore.proof.core.model import CompareMode, CompareRange, CompareResult, DifferenceKind, ProofDifference
from twinshore.proof.core.record_rows import combine_digests
from twinshore.replication.task.core.messages import json_adapter
from twinshore.state.core.values import Incident, IncidentRow, PartitionKey, ProofRow, ProofState, key_of

NO_RECORDS = f"{0:032x}"
INCIDENT_KIND = IncidentKind.CONTENT_DIFFERS
DELETED_BY_RETENTION = "gone with retention, no proof went past it"
# Incidents of the proof itself, which close when a proof passes them, or by a key check.
PROOF_INCIDENT_KINDS = frozenset({IncidentKind.CONTENT_DIFFERS, IncidentKind.DELETIONS_OWED})
# Open incidents that mean different records on both sides, whether or not a proof found any: CONTENT_DIFFERS ones
# come from another mode.
DIVERGENCE_KINDS = frozenset({IncidentKind.TRUNCATION, IncidentKind.FOREIGN_WRITE, IncidentKind.CONTENT_DIFFERS})
NEVER_REPLICATED = "the link admits it and has never replicated it: does its mirror run?"
PAUSED_BEFORE_START = "it was paused before it was ever replicated"


def reset_proof(row: ProofRow, at: int) -> ProofRow:
    empty = replace(row, from_offset=at, to_offset=at, target_offset=-1, records=0, digest="")
    return _without_pass(replace(empty, bytes_read=0, oldest_ms=0))


def narrow_proof(row: ProofRow, start: int, upto: int) -> ProofRow:
    """Returns the proof narrowed to [`start`, `upto`). A cut proof has no digest; its record count is a lower bound."""
    if (start, upto) == (row.from_offset, row.to_offset):
        return row
    target = row.target_offset if upto == row.to_offset else -1
    if start == upto:
        return replace(reset_proof(row, start), target_offset=target)
    span, whole = upto - start, row.to_offset - row.from_offset
    at = max(start, row.reread_offset) if row.reread_offset >= 0 else -1
    left = replace(
        row,
        from_offset=start,
        to_offset=upto,
        target_offset=target,
        records=max(0, row.records - whole + span),
        digest="",
        bytes_read=row.bytes_read * span // whole,
        reread_offset=at,
        reread_target=row.reread_target if at == row.reread_offset else -1,
        reread_end=min(row.reread_end, upto),
    )
    return _over(left)


def extend_proof(row: ProofRow, offset_range: CompareRange, result: CompareResult, read_ms: int) -> ProofRow:
    empty = row.to_offset == row.from_offset
    known = (row.digest or empty) and offset_range.digest
    return replace(
        row,
        to_offset=result.to,
        records=row.records + result.records,
        digest=f"{combine_digests(int(row.digest or NO_RECORDS, 16), result.digest):032x}" if known else "",
        bytes_read=row.bytes_read + result.bytes if row.bytes_read or empty else 0,
        oldest_ms=read_ms if empty else row.oldest_ms,
    )


def advance_reread(row: ProofRow, offset_range: CompareRange, result: CompareResult, read_ms: int) -> ProofRow:
    """Returns the proof after a part was read again from `read_ms` on, and is the same. A result that does not continue
    the pass changes nothing: another process has read that part.
    """
    if offset_range.mode is CompareMode.COMPACTED:
        return _whole_again(row, result, read_ms)
    begins = row.reread_offset < 0
    at = row.from_offset if begins else row.reread_offset
    if result.to <= at or offset_range.start > at or read_ms < row.reread_ms:
        return row
    if begins:
        row = replace(row, reread_ms=read_ms, reread_end=row.to_offset)
    return _over(replace(row, reread_offset=result.to, reread_target=result.target_to))


def _whole_again(row: ProofRow, result: CompareResult, read_ms: int) -> ProofRow:
    """A compacted log is read again whole, with new records."""
    if result.to < row.to_offset:
        return row
    row = replace(row, bytes_read=result.bytes, oldest_ms=max(row.oldest_ms, read_ms))
    grows = row.state is ProofState.IDENTICAL or result.to == row.to_offset
    return replace(row, to_offset=result.to, records=result.records) if grows else row


def _over(row: ProofRow) -> ProofRow:
    """Ends a pass at the proof's end of when the pass began: later parts are younger."""
    if row.reread_offset < 0 or row.reread_offset < row.reread_end:
        return row
    return _without_pass(replace(row, oldest_ms=max(row.oldest_ms, row.reread_ms)))


def _without_pass(row: ProofRow) -> ProofRow:
    return replace(row, reread_offset=-1, reread_target=-1, reread_end=-1, reread_ms=0)


def incident_of(row: ProofRow) -> Incident | None:
    """Returns a differing partition's incident, without record contents: incidents are kept forever."""
    found = difference_of(row) if row.state is ProofState.DIFFERS else None
    if found is None:
        return None
    sentence = f"both sides part at offset {found.offset}: {found.kind}: {found.sentence}"
    policy = INCIDENT_KIND.policy
    place = *key_of(row), INCIDENT_KIND, found.offset, -1
    return Incident(*place, policy, sentence, INCIDENT_KIND.side, row.mode)


def find_resolved_incidents(opened: Iterable[IncidentRow], rows: Iterable[ProofRow]) -> list[int]:
    """Returns open differences that these proofs have passed, in the same mode, read after the incident opened."""
    proven = {key_of(row): row for row in rows}
    found = []
    for incident_row in opened:
        incident = incident_row.incident
        row = proven.get(key_of(incident))
        if incident.kind is not INCIDENT_KIND or row is None or incident_row.id > row.last_incident_id:
            continue
        if incident.proof_mode == row.mode and row.to_offset > incident.from_offset >= row.from_offset:
            found.append(incident_row.id)
    return found


def find_expired_incidents(opened: Iterable[IncidentRow], below: Mapping[PartitionKey, int]) -> list[int]:
    """Returns open differences below these offsets, which neither side holds any more."""
    differences = [row for row in opened if row.incident.kind is INCIDENT_KIND]
    return [row.id for row in differences if row.incident.from_offset < below.get(key_of(row.incident), 0)]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionScan:
    """One partition as both clusters show it. Ends are read target first, so an exact twin never seems ahead.

    `offset_runs`: the first and last offset run and those at the twin's log start and end, as (source, target, length).
    `stored`: the proof before. `told`: incidents with offsets of this partition. `last_incident_id`: the newest
    incident of all. `looked_ms`: when this scan began. `dropped`: offsets that a fresh queue did not send.
    """

    link: str
    partition: TopicPartition
    twin: str
    mode: CompareMode
    source_start: int
    source_end: int
    target_end: int
    source_topic_id: str
    target_topic_id: str
    offset_runs: tuple[tuple[int, int, int], ...] = ()
    stored: ProofRow | None = None
    target_start: int = 0
    rows: tuple[IncidentRow, ...] = ()
    last_incident_id: int = 0
    looked_ms: int = 0
    # The earlier proof of a partition that is proven again from its start.
    remembered: ProofRow | None = None
    dropped: tuple[tuple[int, int], ...] = ()
    cluster_ids: tuple[str, str] = ("", "")
    # The source's end including open transactions, which are not compared yet.
    source_high: int = -1
    # Another process has seen both sides up to here, later.
    seen_to: int = 0

    # What is there

    @property
    def key(self) -> PartitionKey:
        return self.link, self.partition.topic, self.partition.partition

    @property
    def first(self) -> int:
        """The first source offset to compare: after a mapped twin's start, and its own retention."""
        if self.mode is not CompareMode.OFFSET_MAP or not self.offset_runs:
            return self.source_start
        held_from = self._held_from
        ends = (source + length for source, _, length in self.offset_runs)
        return max(self.source_start, max(ends) if held_from is None else held_from)

    @property
    def _held_from(self) -> int | None:
        """The source offset at which a mapped twin's log starts; None: its log holds none of its runs."""
        for source, target, length in sorted(self.offset_runs):
            if target + length > self.target_start:
                return source + max(0, self.target_start - target)
        return None

    @property
    def source_holds(self) -> bool:
        return self.source_end > self.source_start

    @property
    def target_holds(self) -> bool:
        return self.target_end > self.target_start

    @property
    def uncarried(self) -> bool:
        """Whether the source holds records and none has been replicated to its mapped twin: the twin's own are older
        than the link.
        """
        is_mapped = self.mode is CompareMode.OFFSET_MAP
        return is_mapped and self.source_holds and not any(length for *_, length in self.offset_runs)

    @property
    def one_sided(self) -> bool:
        """Whether only the target holds records, in content mode, of unknown relation to the source."""
        return self.mode is CompareMode.CONTENT and self.target_holds and not self.source_holds

    @property
    def begins_late(self) -> bool:
        """Whether the twin's log starts above its source's, and so lacks records."""
        return self.mode in (CompareMode.EXACT, CompareMode.COMPACTED) and self.source_start < self.target_start

    @property
    def missing_below(self) -> int:
        """Below this an exact twin lacks its source's records; 0: none."""
        return self.target_start if self.mode is CompareMode.EXACT and self.begins_late else 0

    @property
    def gone_below(self) -> int:
        """Below this neither side holds records of the source."""
        if self.mode is not CompareMode.OFFSET_MAP:
            return self.source_start
        if self._held_from is None:
            return self.source_start if self.offset_runs else 0
        return min(self.source_start, self._held_from)

    @property
    def reach(self) -> int:
        """How far the target has records, as a source offset; in content mode unknown, so the source's end."""
        if self.mode is CompareMode.CONTENT:
            return self.source_end
        if self.mode is CompareMode.OFFSET_MAP:
            at = 0
            for source, target, length in sorted(self.offset_runs):
                at = source + min(length, max(0, self.target_end - target))
                if self.target_end < target + length:
                    break
            return max(self.seen_to, at)
        return max(self.seen_to, self.target_end)

    @property
    def end(self) -> int:
        """How far both sides can be compared: the lower end, or `kept_from`."""
        return min(self.source_end, self.reach, self.kept_from)

    @property
    def kept_from(self) -> int:
        """From here on the mirror has stopped, or replicates again what the target lost."""
        rests = (row.incident.from_offset for row in self.open_incidents if _holds(row.incident.kind))
        return min(rests, default=self.source_end)

    @property
    def open_incidents(self) -> tuple[IncidentRow, ...]:
        """Open incidents about offsets that would otherwise count as identical."""
        upto = max(min(self.source_end, self.reach), self._known.to_offset if self._known else 0)
        return tuple(
            row
            for row in self.rows
            if row.closed_ms is None
            and not self._ends_itself(row.incident)
            and row.incident.from_offset < upto
            and _to_offset(row.incident) > self.first
        )

    def _ends_itself(self, incident: Incident) -> bool:
        """Whether a proof in this mode closes such an incident."""
        return incident.kind in PROOF_INCIDENT_KINDS and incident.proof_mode in ("", self.mode)

    # What is left of the proof

    @property
    def resumable_proof(self) -> ProofRow | None:
        """The proof to continue, narrowed to what both sides still hold."""
        row = self._known
        if row is None or row.to_offset < self.first or (self.mode is CompareMode.COMPACTED and self.begins_late):
            return None
        start, upto = max(row.from_offset, self.first), min(row.to_offset, self.source_end, self.reach, self._held_to)
        if self.mode is CompareMode.CONTENT and (upto < row.to_offset or self.target_end < row.target_offset):
            return None  # Where the target continues after the shorter proof is unknown.
        lost = self._lost_end()
        row = replace(narrow_proof(row, start, max(start, upto)), last_incident_id=self.last_incident_id)
        if lost is not None and row.state is ProofState.IDENTICAL:
            return replace(row, state=ProofState.DIFFERS, sentence=json.dumps(asdict(lost)))
        parted = difference_of(row)
        if parted is not None and parted.offset < self.first:
            return replace(row, state=ProofState.IDENTICAL, sentence="")
        return row

    def known_difference(self, upto: int) -> ProofDifference | None:
        """Returns the known difference, unless a proof up to `upto` has passed it."""
        row = self.resumable_proof or self.remembered
        found = difference_of(row) if row is not None else None
        return found if found is not None and found.offset >= max(self.first, upto) else None

    def matches_row(self, row: ProofRow) -> bool:
        """Whether the row has these topic ids and this mode."""
        ids = self.source_topic_id, self.target_topic_id
        return row.mode == self.mode and (row.source_topic_id, row.target_topic_id) == ids

    @property
    def proof_invalidated(self) -> bool:
        """Whether part of the stored proof no longer holds."""
        row = self.stored
        return row is not None and row.mode == self.mode and row != self.resumable_proof

    @property
    def log_shrunk(self) -> bool:
        """Whether a log ends before its proven part. A new leader may show less for a moment."""
        row = self._known
        if row is None:
            return False
        return min(self.source_end, self.reach) < row.to_offset or self.target_end < row.target_offset

    @property
    def start(self) -> int:
        """The source offset to continue from."""
        row = self.resumable_proof
        return max(self.first, row.to_offset if row else 0)

    @property
    def _held_to(self) -> int:
        """Behind this the mirror has stopped, or replicated again, since the proof: records may be gone."""
        known_to = self._known.last_incident_id if self._known else 0
        since = [row.incident for row in self.rows if row.id > known_to]
        rested = [one.from_offset for one in since if one.kind not in PROOF_INCIDENT_KINDS and _holds(one.kind)]
        return min([self.kept_from, *rested])

    @property
    def _known(self) -> ProofRow | None:
        return self.stored if self.stored is not None and self.matches_row(self.stored) else None

    def _lost_end(self) -> ProofDifference | None:
        """Returns the loss of records that were proven on the target and that the source still has."""
        row, at = self._known, max(self.reach, self.first)
        if row is None or self.mode is CompareMode.CONTENT or at >= min(row.to_offset, self.source_end):
            return None
        sentence = f"the target ends there, though it held all through offset {row.to_offset - 1} when that was proven"
        return ProofDifference(DifferenceKind.MISSING, at, sentence, None, None)


def difference_of(row: ProofRow) -> ProofDifference | None:
    return json_adapter(ProofDifference).validate_json(row.sentence) if row.sentence else None


def _to_offset(incident: Incident) -> float:
    """Where the incident's offsets end; a difference concerns one offset."""
    if incident.kind is IncidentKind.CONTENT_DIFFERS:
        return incident.from_offset + 1
    return incident.to_offset if incident.to_offset > incident.from_offset else inf


def _holds(kind: IncidentKind) -> bool:
    """Whether the mirror stops, or replicates again, while such an incident is open."""
    return kind is IncidentKind.LOST_BY_TARGET or kind.after is not IncidentOutcome.CONTINUES


class UnreplicatedTopic(NamedTuple):
    """A topic or partition that is not replicated on, and why."""

    topic: str
    partition: int
    sentence: str


def find_unreplicated_topics(
    link: Link, admitted: Iterable[str], known: Collection[str], rows: Iterable[IncidentRow]
) -> Iterator[UnreplicatedTopic]:
    """Yields admitted topics that the link refuses or never began. `known` have twins; `rows` are open incidents."""
    wide = (row for row in rows if row.incident.partition < 0)
    stop = (row for row in wide if stops_replication(row.incident.kind, row.incident.policy))
    refused = grouped((row.incident.topic, row) for row in stop)
    for name in sorted(admitted):
        if name in refused:
            yield UnreplicatedTopic(name, -1, f"the mirror refuses it: {'; '.join(map(_told, refused[name]))}")
        elif name not in known:
            yield UnreplicatedTopic(name, -1, PAUSED_BEFORE_START if link.control.pauses(name) else NEVER_REPLICATED)


def find_unreplicated_partitions(
    looks: Iterable[PartitionScan], rows: Iterable[IncidentRow]
) -> Iterator[UnreplicatedTopic]:
    """Yields partitions that lack records since the mirror stopped at their end, outside compared offsets."""
    stop = (row for row in rows if row.incident.partition >= 0 and row.incident.policy.stops)
    stopped = grouped(((row.incident.topic, row.incident.partition), row) for row in stop)
    for scan in looks:
        over = {row.id for row in scan.open_incidents}
        found = [row for row in stopped.get((scan.partition.topic, scan.partition.partition), ()) if row.id not in over]
        if found and scan.reach < scan.source_end:
            sentence = f"the mirror has stopped it: {'; '.join(map(_told, found))}"
            yield UnreplicatedTopic(scan.partition.topic, scan.partition.partition, sentence)


def _told(row: IncidentRow) -> str:
    return f"open incident {row.id}, {row.incident.kind}: {row.incident.sentence}"
