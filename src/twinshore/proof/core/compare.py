"""Compares both sides chunk by chunk, until they differ or the range ends; and sums up what was not compared.

Chunks have no gap. The target's have the shift to the source's offsets.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from twinshore.config.errors import CodedError, RefusedError
from twinshore.kafka.protocol.record_batch import Record
from twinshore.proof.core.model import DifferenceKind, ProofDifference
from twinshore.proof.core.record_rows import (
    Array,
    Chunk,
    RunningDigest,
    key_at,
    preview_record,
    same_packed_batch,
    same_record,
)
from twinshore.proof.link_scan import NotCompared
from twinshore.state.core.values import LinkStateRow

OPEN_KEYS_MAX = 2_000_000
LOOKAHEAD_RECORDS = 64  # Records of each side used to tell a moved record from a changed one.

_CHANGED = {
    "timestamp": DifferenceKind.CHANGED_TIMESTAMP,
    "key": DifferenceKind.CHANGED_KEY,
    "value": DifferenceKind.CHANGED_VALUE,
    "headers": DifferenceKind.CHANGED_HEADERS,
}
Chunks = Iterator[Chunk]
RowSpan = tuple[Array, Array, int, int]


class OneSidedRecord(NamedTuple):
    """A key's latest record, at this offset, on one side only."""

    offset: int
    on_source: bool
    tombstone: bool


@dataclass(slots=True)
class OneSidedKeys:
    """Keys whose latest record so far is on one side only."""

    lone: dict[bytes, OneSidedRecord] = field(default_factory=dict)

    def alone(self, key: bytes | None, found: OneSidedRecord) -> None:
        """Takes a record that the other side lacks. Ignores records without a key, which any cleaner removes."""
        if key is None:
            return
        before = self.lone.get(key)
        if before is not None and found.tombstone and not before.tombstone and before.on_source is not found.on_source:
            return  # One side still shows what the other has deleted: the tombstone is missing.
        self.lone[key] = found
        if len(self.lone) > OPEN_KEYS_MAX:
            raise RefusedError("proof.too-many-open-keys", keys=OPEN_KEYS_MAX)

    def met(self, key: bytes | None) -> None:
        """Takes a record that both sides have."""
        if key is not None:
            self.lone.pop(key, None)

    def open(self) -> list[OneSidedRecord]:
        """Returns those that are no tombstones, by offset."""
        return sorted(found for found in self.lone.values() if not found.tombstone)

    def values(self) -> dict[bytes, OneSidedRecord]:
        """Returns those that are no tombstones, by key."""
        return {key: found for key, found in self.lone.items() if not found.tombstone}

    def superseded(self, keys: Iterable[bytes]) -> None:
        """Drops keys that the source wrote again beyond this range."""
        for key in keys:
            del self.lone[key]

    def deletes(self, *, on_source: bool) -> dict[bytes, OneSidedRecord]:
        """Returns tombstones of this side alone. Each side removes tombstones in its own time, but never before the
        records that they delete.
        """
        return {key: found for key, found in self.lone.items() if found.tombstone and found.on_source is on_source}


def find_missing_tombstones(chunks: Chunks, deletes: Mapping[bytes, OneSidedRecord]) -> list[OneSidedRecord]:
    """Returns tombstones that this side lacks while showing an earlier value of their key; by offset."""
    shown: set[bytes] = set()
    for chunk in chunks:
        data, rows = chunk.opened()
        for row in rows:
            key, tombstone = key_at(data, row)
            found = deletes.get(key) if key is not None else None
            if key is None or found is None or row[0] >= found.offset:
                continue
            if tombstone:
                shown.discard(key)
            else:
                shown.add(key)
    return sorted(deletes[key] for key in shown)


def compare_compacted(
    source: Chunks, target: Chunks, progress: CompareProgress, end: int, latest: OneSidedKeys
) -> bool:
    """Advances to `end` while no offset on both sides differs. False at a difference, which is at `tally.at`."""
    ours, theirs = next(source, None), next(target, None)
    while progress.at < end and ours is not None and theirs is not None:
        ours.skip_below(progress.at)
        theirs.skip_below(progress.at)
        stop = min(ours.end, theirs.end, end)
        if not _match_compacted(ours, theirs, stop, progress, latest):
            return False
        progress.at = max(progress.at, stop)
        if progress.at >= end:
            break
        if ours.end <= stop:
            ours = next(source, None)
        if theirs.end <= stop:
            theirs = next(target, None)
    return True


def _match_compacted(ours: Chunk, theirs: Chunk, stop: int, progress: CompareProgress, latest: OneSidedKeys) -> bool:
    data, rows = ours.opened()
    peer_data, peers = theirs.opened()
    n, m = max(ours.first, ours.rows_below(stop)), max(theirs.first, theirs.rows_below(stop))
    while ours.first < n or theirs.first < m:
        begin = ours.first
        one, other = (data, rows, begin, n), (peer_data, peers, theirs.first, m)
        done = progress.sums.match(one, other, 0, placed=True)
        progress.records += done
        ours.first += done
        theirs.first += done
        if latest.lone:
            for row in range(begin, ours.first):
                latest.met(key_at(data, rows[row])[0])
        at = int(rows[ours.first, 0]) if ours.first < n else stop
        peer_at = int(peers[theirs.first, 0]) if theirs.first < m else stop
        if at == peer_at == stop:
            return True
        if at < peer_at:
            key, tombstone = key_at(data, rows[ours.first])
            latest.alone(key, OneSidedRecord(at, True, tombstone))
            ours.first += 1
        elif peer_at < at:
            key, tombstone = key_at(peer_data, peers[theirs.first])
            latest.alone(key, OneSidedRecord(peer_at, False, tombstone))
            theirs.first += 1
        elif same_record(data, rows[ours.first], peer_data, peers[theirs.first]):
            latest.met(key_at(data, rows[ours.first])[0])
            count_as_equal(ours, theirs, progress)
        else:
            progress.at = at
            return False
    return True


def first_difference(
    source: Sequence[Record], target: Sequence[Record], *, end: int = -1, placed: bool = True
) -> ProofDifference | None:
    """Returns the first difference of two runs of records, or None.

    With `placed` offsets count too, and are the source's on both sides. `end`: how far both were read; -1: to the end
    of both logs.
    """
    here = 0
    while here < len(source) and here < len(target) and _same(source[here], target[here], placed=placed):
        here += 1
    ours, theirs = list(source[here:]), list(target[here:])
    if placed and end >= 0:
        ours, theirs = ([one for one in side if one.offset < end] for side in (ours, theirs))
    if not ours and not theirs:
        return None
    at = min(side[0].offset for side in (ours, theirs) if side) if placed else ours[0].offset if ours else -1
    left = ours[0] if ours and (not placed or ours[0].offset == at) else None
    right = theirs[0] if theirs and (not placed or theirs[0].offset == at) else None
    kind, sentence = _kind(left, right, ours, theirs)
    offset = at if at >= 0 else source[-1].offset + 1 if source else theirs[0].offset
    return ProofDifference(kind, offset, sentence, left and preview_record(left), right and preview_record(right))


def _kind(
    left: Record | None, right: Record | None, ours: Sequence[Record], theirs: Sequence[Record]
) -> tuple[DifferenceKind, str]:
    if right is None:
        assert left is not None
        return DifferenceKind.MISSING, "the target has no record for this one of the source"
    if left is None:
        return DifferenceKind.FOREIGN, "the target has a record where the source has none"
    here, there = _contents(ours), _contents(theirs)
    moved = _swapped(here, there)
    if moved:
        return DifferenceKind.SWAPPED, f"this record and the one {moved} further on have changed places"
    if _begins_alike(here[1:], there):
        return DifferenceKind.MISSING, "the target lacks this record; those that follow have moved up"
    if _begins_alike(here, there[1:]):
        return DifferenceKind.FOREIGN, "the target has a record that the source has not; those that follow moved down"
    fields = [name for name in _CHANGED if getattr(left, name) != getattr(right, name)]
    if len(fields) == 1:
        return _CHANGED[fields[0]], f"the record's {fields[0]} is another on the target{_where(left, right, fields[0])}"
    if "key" not in fields and "value" not in fields:
        return DifferenceKind.CHANGED_HEADERS, "the record's headers and timestamp are others on the target"
    return DifferenceKind.FOREIGN, f"the target has another record here: {', '.join(fields)} differ"


def _where(left: Record, right: Record, field: str) -> str:
    """Names the first differing byte of a key or value."""
    one, other = getattr(left, field), getattr(right, field)
    if not isinstance(one, bytes) or not isinstance(other, bytes):
        return ""
    pairs = enumerate(zip(one, other, strict=False))
    at = next((place for place, (byte, peer) in pairs if byte != peer), min(len(one), len(other)))
    sizes = "" if len(one) == len(other) else f", which has {len(other)} bytes and not {len(one)}"
    return f", from byte {at} on{sizes}"


def _same(one: Record, other: Record, *, placed: bool) -> bool:
    return one[1:] == other[1:] and (not placed or one.offset == other.offset)


def _contents(records: Sequence[Record]) -> list[tuple[object, ...]]:
    return [record[1:] for record in records[:LOOKAHEAD_RECORDS]]


def _swapped(here: list[tuple[object, ...]], there: list[tuple[object, ...]]) -> int:
    """The distance to the record swapped with the first; 0: none."""
    for far in range(1, min(len(here), len(there))):
        if here[0] == there[far] and here[far] == there[0]:
            return far if here[1:far] == there[1:far] else 0
    return 0


def _begins_alike(here: list[tuple[object, ...]], there: list[tuple[object, ...]]) -> bool:
    """Whether the two are the same, as far as both are known."""
    known = min(len(here), len(there))
    return known > 0 and here[:known] == there[:known]


def find_common_start(source: Sequence[Record], target: Sequence[Record]) -> tuple[int, int] | None:
    """Returns the indexes from which both are the same, one of them 0; None: no such.

    One matching record is not enough where more are known.
    """
    here, there = [record[1:] for record in source], [record[1:] for record in target]
    places = [(skipped, 0) for skipped in range(len(here))] + [(0, skipped) for skipped in range(1, len(there))]
    for i, j in sorted(places, key=sum):
        known = min(LOOKAHEAD_RECORDS, len(here) - i, len(there) - j)
        if here[i : i + known] == there[j : j + known] and known >= max(1, min(3, len(here), len(there))):
            return i, j
    return None


@dataclass(slots=True)
class CompareProgress:
    """What was found the same: up to `at` on the source, and `target_at` on the target if offsets do not count."""

    at: int
    target_at: int = -1
    records: int = 0
    sums: RunningDigest = field(default_factory=RunningDigest)


def compare_by_offset(
    source: Chunks, target: Chunks, progress: CompareProgress, end: int, *, digest: bool = True
) -> bool:
    """Advances to `end` of the source while records and offsets are the same. False at a difference, which is at
    `tally.at`.
    """
    if progress.at >= end:
        return True  # Readers of an empty range yield no chunk.
    ours, theirs = _next(source), _next(target)
    while progress.at < end:
        if same_packed_batch(ours, theirs) and progress.at <= _base(ours) and ours.end <= end:
            _take_packed(ours, progress, digest=digest)
            if progress.at < end:
                ours, theirs = _next(source), _next(target)
            continue
        ours.skip_below(progress.at)
        theirs.skip_below(progress.at - theirs.shift)
        stop = min(ours.end, theirs.source_end, end)
        if not _match(ours, theirs, stop, progress):
            return False
        progress.at = max(progress.at, stop)
        if progress.at < end:
            if ours.end <= stop:
                ours = _next(source)
            if theirs.source_end <= stop:
                theirs = _next(target)
    return True


def _match(ours: Chunk, theirs: Chunk, stop: int, progress: CompareProgress) -> bool:
    """Whether all rows below `stop` are the same; if not, `tally.at` is the first that differs."""
    data, rows = ours.opened()
    peer_data, peers = theirs.opened()
    n = max(ours.first, ours.rows_below(stop))
    m = max(theirs.first, theirs.rows_below(stop - theirs.shift))
    while True:
        one, other = (data, rows, ours.first, n), (peer_data, peers, theirs.first, m)
        done = progress.sums.match(one, other, theirs.shift, placed=True)
        progress.records += done
        ours.first += done
        theirs.first += done
        left, right = ours.first < n, theirs.first < m
        if not left and not right:
            return True
        at = int(rows[ours.first, 0]) if left else stop
        peer_at = int(peers[theirs.first, 0]) + theirs.shift if right else stop
        if at == peer_at and same_record(data, rows[ours.first], peer_data, peers[theirs.first]):
            count_as_equal(ours, theirs, progress)
            continue
        progress.at = min(at, peer_at)
        return False


def count_as_equal(ours: Chunk, theirs: Chunk, progress: CompareProgress) -> None:
    """Counts a record of each as the same: a client encoded a length in more bytes than necessary."""
    data, rows = ours.opened()
    progress.sums.add(data, rows, ours.first, ours.first + 1)
    progress.records += 1
    ours.first += 1
    theirs.first += 1


def compare_content(
    source: Chunks, target: Chunks, progress: CompareProgress, ends: tuple[int, int], *, last: bool
) -> bool:
    """Advances while records are the same in order, until one side reaches its end (`ends`: source, target).

    False at a difference: `tally.at`, `tally.target_at`. In the `last` range the target must not continue behind the
    source.
    """
    ours, theirs = _Queue(source, progress.at, ends[0]), _Queue(target, progress.target_at, ends[1])
    while True:
        more = ours.more(), theirs.more()
        progress.at, progress.target_at = ours.at, theirs.at
        if not more[1] or (not more[0] and not last):
            return True
        if not more[0]:
            return False
        one, other = ours.head(), theirs.head()
        data, rows, first, _ = one
        peer_data, peers, peer_first, _ = other
        done = progress.sums.match(one, other, 0, placed=False)
        if not done:
            if not same_record(data, rows[first], peer_data, peers[peer_first]):
                return False
            progress.sums.add(data, rows, first, first + 1)
            done = 1
        progress.records += done
        ours.skip(done)
        theirs.skip(done)


class _Queue:
    """One side's records in order. `at`: the offset of the next record, or behind the last."""

    def __init__(self, chunks: Chunks, at: int, end: int) -> None:
        self.at = at
        self._chunks, self._end = chunks, end
        self._chunk: Chunk | None = None
        self._stop = 0

    def more(self) -> bool:
        """Reads on to the next record; returns whether there is one."""
        while self._chunk is None or self._chunk.first >= self._stop:
            if self._chunk is not None:
                self.at = max(self.at, min(self._chunk.end, self._end))
            if self.at >= self._end:
                return False
            self._chunk = next(self._chunks, None)
            if self._chunk is None:
                return False
            self._chunk.skip_below(self.at)
            self._stop = self._chunk.rows_below(self._end)
        self.at = int(self._chunk.opened()[1][self._chunk.first, 0])
        return True

    def head(self) -> RowSpan:
        """Returns the next adjacent records."""
        assert self._chunk is not None
        return *self._chunk.opened(), self._chunk.first, self._stop

    def skip(self, count: int) -> None:
        assert self._chunk is not None
        self._chunk.first += count


def _take_packed(chunk: Chunk, progress: CompareProgress, *, digest: bool) -> None:
    assert chunk.packed is not None
    progress.records += chunk.packed[1].count
    if digest:
        data, rows = chunk.opened()
        progress.sums.add(data, rows, 0, len(rows))
    progress.at = chunk.end


def _base(chunk: Chunk) -> int:
    return chunk.packed[1].base_offset if chunk.packed is not None else -1


def _next(chunks: Chunks) -> Chunk:
    found = next(chunks, None)
    if found is None:
        raise CodedError("proof.log-ended-early")
    return found


NOT_COMPARED_KIND = "not compared"
NOT_COMPARED_KEPT_MAX = 100
NAMED_MAX = 5


@dataclass(frozen=True, slots=True)
class NotComparedSummary:
    """What a link's last proof could not compare: `count` in all, the first of them with reasons."""

    count: int
    lacks: tuple[NotCompared, ...]
    at_ms: int

    def in_words(self, ago: str) -> str:
        named = "; ".join(f"{_name(lack)}: {lack.sentence}" for lack in self.lacks[:NAMED_MAX])
        more = f"; and {self.count - NAMED_MAX:,} more" if self.count > NAMED_MAX else ""
        what = "topic or partition" if self.count == 1 else "topics or partitions"
        return f"the last proof, {ago} ago, could not tell of {self.count:,} {what}: {named}{more}"


def not_compared_row(link: str, lacks: Sequence[NotCompared], at_ms: int) -> LinkStateRow:
    kept = [(lack.topic, lack.partition, lack.sentence) for lack in lacks[:NOT_COMPARED_KEPT_MAX]]
    value = json.dumps({"count": len(lacks), "lacks": kept})
    return LinkStateRow(link, NOT_COMPARED_KIND, "", value, NOT_COMPARED_KIND, at_ms)


def read_not_compared(rows: Iterable[LinkStateRow]) -> NotComparedSummary | None:
    """Returns the stored summary, or None."""
    for row in rows:
        if row.kind == NOT_COMPARED_KIND:
            raw = json.loads(row.value)
            lacks = tuple(NotCompared(row.link, *lack) for lack in raw["lacks"])
            return NotComparedSummary(raw["count"], lacks, row.since_ms)
    return None


def _name(not_compared: NotCompared) -> str:
    if not not_compared.topic:
        return "the whole link"
    return not_compared.topic if not_compared.partition < 0 else f"{not_compared.topic}-{not_compared.partition}"
