"""Key checks of compacted twins: when to compare keys, the incidents, and sets of key hashes.

A source keeps a tombstone for at least `delete.retention.ms`. So none is missed while all replicated records are
younger. Marks bound their age: when the source ended where. Timestamps of records are not trusted, nor marks in the
future.

Keys are 64-bit hashes. Of too many, half wait for another pass over the logs, so memory does not grow with the topic. A
collision may hide a key, one in 10^12 for ten million keys. No report is a collision: reported keys are found by their
bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

import numpy as np

from twinshore.config.incident_policy import IncidentKind
from twinshore.proof.core.model import CompareResult, MissingTombstone
from twinshore.proof.core.partition_scan import PartitionScan
from twinshore.proof.core.record_rows import Array, Chunk, compiled, hash_key, key_at
from twinshore.state.core.values import Incident, IncidentRow, KeyCheckRow, PartitionKey, key_of

INCIDENT_KIND = IncidentKind.DELETIONS_OWED
DELETE_RETENTION_MS = 86_400_000  # As brokers have it by default.
# A new value settles a missing tombstone, which only a check can tell.
MISSING_TOMBSTONES_RECHECK_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class KeyCheck:
    """A partition's key check after a round. `stands_ms`: how long, at least, the twin has lacked records. `looked`: in
    this round.
    """

    row: KeyCheckRow
    stands_ms: int = 0
    looked: bool = False
    keys: tuple[MissingTombstone, ...] = ()
    trouble: tuple[str, str] = ("", "")

    @property
    def warns(self) -> bool:
        """Whether half of the time has passed after which deletions may be missed."""
        return self.stands_ms > 0 and 2 * self.stands_ms >= self.row.retention_ms


def parse_delete_retention_ms(value: str | None) -> int:
    """Parses a topic's delete.retention.ms; None: the broker's default."""
    return int(value) if value and value.isdigit() else DELETE_RETENTION_MS


def update_key_marks(
    row: KeyCheckRow | None, scan: PartitionScan, retention_ms: int, seen_ms: int, now_ms: int
) -> KeyCheckRow:
    """Returns the row after a scan that began at `seen_ms`."""
    if row is None or (row.source_topic_id, row.target_topic_id) != (scan.source_topic_id, scan.target_topic_id):
        return KeyCheckRow(
            link=scan.link,
            topic=scan.partition.topic,
            partition=scan.partition.partition,
            source_topic_id=scan.source_topic_id,
            target_topic_id=scan.target_topic_id,
            mark_end=scan.source_end,
            mark_ms=seen_ms,
            since_ms=seen_ms if scan.target_end >= scan.source_end else 0,
            retention_ms=retention_ms,
        )
    shortest_ms = min(row.retention_ms, retention_ms)
    if max(row.mark_ms, row.since_ms, row.checked_ms) > now_ms:
        # The clock was ahead when these were written: ages are unknown.
        missed = int(scan.target_end > row.checked_end)
        anew = replace(row, mark_end=scan.source_end, mark_ms=seen_ms, since_ms=0, checked_ms=0)
        return replace(anew, retention_ms=shortest_ms, may_lack_tombstones=missed)
    behind = scan.target_end < row.mark_end
    since_ms = max(row.since_ms, row.checked_ms) if behind else row.since_ms
    may_lack = bool(row.may_lack_tombstones) or now_ms - since_ms >= shortest_ms
    row = replace(
        row, retention_ms=shortest_ms, may_lack_tombstones=int(scan.target_end > row.checked_end and may_lack)
    )
    if behind:
        return row
    return replace(row, mark_end=scan.source_end, mark_ms=seen_ms, since_ms=row.mark_ms, retention_ms=retention_ms)


def is_key_check_due(row: KeyCheckRow, scan: PartitionScan, now_ms: int) -> bool:
    owes = bool(row.missing_tombstones) and now_ms - row.checked_ms >= MISSING_TOMBSTONES_RECHECK_MS
    return scan.target_end > max(row.checked_end, scan.target_start) and bool(row.may_lack_tombstones or owes)


def mark_keys_checked(row: KeyCheckRow, scan: PartitionScan, found: CompareResult, now_ms: int) -> KeyCheckRow:
    row = replace(row, may_lack_tombstones=0, checked_ms=now_ms, checked_end=scan.target_end)
    return replace(row, missing_tombstones=found.owed, from_offset=found.owed_from, to_offset=found.owed_to)


def lag_age_ms(row: KeyCheckRow, scan: PartitionScan, now_ms: int) -> int:
    """Returns how long, at least, the twin has lacked records of the source."""
    return now_ms - row.mark_ms if scan.target_end < row.mark_end else 0


def missing_tombstones_incident(row: KeyCheckRow) -> Incident | None:
    """Returns the incident, without keys: incidents are kept forever."""
    if not row.missing_tombstones:
        return None
    keys = "a key that was" if row.missing_tombstones == 1 else f"{row.missing_tombstones} keys that were"
    sentence = (
        f"the twin still shows values of {keys} deleted on the source, at offsets {row.from_offset} to"
        f" {row.to_offset - 1}: the tombstones were cleaned away before they were replicated"
    )
    place = *key_of(row), INCIDENT_KIND, row.from_offset, row.to_offset
    return Incident(*place, INCIDENT_KIND.policy, sentence, INCIDENT_KIND.side)


def find_outdated_incidents(
    opened: Iterable[IncidentRow], rows: Mapping[PartitionKey, KeyCheckRow]
) -> list[tuple[int, str]]:
    """Returns open incidents that these checks have outdated, with what became of each."""
    found = []
    for incident_row in opened:
        incident = incident_row.incident
        row = rows.get(key_of(incident))
        if incident.kind is not INCIDENT_KIND or row is None or missing_tombstones_incident(row) == incident:
            continue
        left = f"a later check found {row.missing_tombstones}"
        found.append((incident_row.id, left if row.missing_tombstones else "no deletion is owed any more"))
    return found


HASHES_MAX: Final = 8_000_000
KEYS_MAX: Final = 200_000
_FRESH_MAX: Final = 1 << 20
VALUE, TOMBSTONE, NO_KEY = range(3)


class HashSlice(NamedTuple):
    """The hashes with remainder `rest` modulo `parts`, a power of two."""

    parts: int = 1
    rest: int = 0

    def halves(self) -> tuple[HashSlice, HashSlice]:
        return HashSlice(self.parts * 2, self.rest), HashSlice(self.parts * 2, self.rest + self.parts)

    def holds(self, hashes: Array) -> Array:
        found: Array = (hashes & np.uint64(self.parts - 1)) == np.uint64(self.rest)
        return found


def hash_chunk_keys(chunk: Chunk) -> tuple[Array, Array]:
    """Returns each key's hash and kind, for rows from `first` on."""
    data, rows = chunk.opened()
    first, end = chunk.first, len(rows)
    hashes, kinds = np.zeros(end - first, dtype=np.uint64), np.zeros(end - first, dtype=np.int8)
    compiled().hash_keys(data, rows, first, end, hashes, kinds)
    return hashes, kinds


@dataclass(slots=True)
class HashPass:
    """The hashes of this pass, and the slices left for other passes."""

    part: HashSlice
    left: list[HashSlice] = field(default_factory=list)

    def halve(self) -> None:
        self.part, other = self.part.halves()
        self.left.append(other)


class KeyHashSet:
    def __init__(self, work: HashPass, most: int = HASHES_MAX) -> None:
        self._work, self._most = work, most
        self._sorted: Array = np.zeros(0, dtype=np.uint64)
        self._fresh: list[Array] = []
        self._waiting = 0

    def add(self, hashes: Array) -> None:
        """Adds those of this pass; halves the pass where they become too many."""
        mine = hashes[self._work.part.holds(hashes)]
        if len(mine):
            self._fresh.append(mine)
            self._waiting += len(mine)
        if self._waiting > min(_FRESH_MAX, self._most):
            self._settle()

    def lacks(self, hashes: Array) -> Array:
        """Returns which of these belong to this pass and are unknown."""
        self._settle()
        if not len(self._sorted):
            return self._work.part.holds(hashes)
        places = np.minimum(np.searchsorted(self._sorted, hashes), len(self._sorted) - 1)
        missing: Array = self._work.part.holds(hashes) & (self._sorted[places] != hashes)
        return missing

    def _settle(self) -> None:
        if not self._fresh:
            return
        self._sorted = np.unique(np.concatenate([self._sorted, *self._fresh]))
        self._fresh, self._waiting = [], 0
        while len(self._sorted) > self._most:
            self._work.halve()
            self._sorted = self._sorted[self._work.part.holds(self._sorted)]


class LiveKeys:
    """Keys that the other side lacks and whose latest record is a value, with its offset."""

    def __init__(self, work: HashPass, most: int = KEYS_MAX) -> None:
        self.at: dict[bytes, int] = {}
        self._work, self._most = work, most

    def take(self, chunk: Chunk, known: KeyHashSet) -> None:
        hashes, kinds = hash_chunk_keys(chunk)
        data, rows = chunk.opened()
        for place in np.flatnonzero(known.lacks(hashes) & (kinds != NO_KEY)).tolist():
            row = rows[chunk.first + place]
            key = key_at(data, row)[0] or b""
            if kinds[place] == TOMBSTONE:
                self.at.pop(key, None)
            else:
                self.at[key] = int(row[0])
        while len(self.at) > self._most:
            self._work.halve()
            parts, rest = self._work.part
            self.at = {key: at for key, at in self.at.items() if hash_key(key) % parts == rest}


class KeyFinder:
    """Finds keys by their bytes in another read of a log."""

    def __init__(self, keys: dict[bytes, int]) -> None:
        self._keys = keys
        self._hashes: Array = np.unique(np.array([hash_key(key) for key in keys], dtype=np.uint64))

    def find_in(self, chunk: Chunk) -> Iterator[tuple[bytes, int, bool]]:
        """Yields the chunk's records of these keys: key, offset, whether a tombstone."""
        if not len(self._hashes):
            return
        hashes, kinds = hash_chunk_keys(chunk)
        data, rows = chunk.opened()
        places = np.minimum(np.searchsorted(self._hashes, hashes), len(self._hashes) - 1)
        for place in np.flatnonzero((self._hashes[places] == hashes) & (kinds != NO_KEY)).tolist():
            row = rows[chunk.first + place]
            key = key_at(data, row)[0] or b""
            if key in self._keys:
                yield key, int(row[0]), kinds[place] == TOMBSTONE
