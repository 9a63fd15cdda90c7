"""Sides that are cleaned each in its own time: offsets present on both, and the latest record of each key. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from twinshore.fleet import RefusedError
from twinshore.proof.chunks import Chunk
from twinshore.proof.comparison import Chunks, Tally, step_over
from twinshore.proof.record_bytes import key_at, same_record

OPEN_KEYS_MAX = 2_000_000


class Lone(NamedTuple):
    """The latest record of a key, at this offset, is on one side only."""

    offset: int
    on_source: bool
    tombstone: bool


@dataclass(slots=True)
class Latest:
    """Keys whose latest record so far is on one side only."""

    lone: dict[bytes, Lone] = field(default_factory=dict)

    def alone(self, key: bytes | None, found: Lone) -> None:
        """A record that the other side has not, or has no more. One without a key a cleaner takes whatever follows."""
        if key is None:
            return
        before = self.lone.get(key)
        if before is not None and found.tombstone and not before.tombstone and before.on_source is not found.on_source:
            return  # One side still shows what the other has deleted: the tombstone itself is what is missing.
        self.lone[key] = found
        if len(self.lone) > OPEN_KEYS_MAX:
            raise RefusedError(
                f"more than {OPEN_KEYS_MAX} keys have their latest record on one side only, far into the log",
                hint="let both cleaners finish, or compare again later",
            )

    def met(self, key: bytes | None) -> None:
        """Both sides have a record of this key."""
        if key is not None:
            self.lone.pop(key, None)

    def open(self) -> list[Lone]:
        """Those that are no tombstones; by offset."""
        return sorted(found for found in self.lone.values() if not found.tombstone)

    def values(self) -> dict[bytes, Lone]:
        """Those that are no tombstones, by key."""
        return {key: found for key, found in self.lone.items() if not found.tombstone}

    def superseded(self, keys: Iterable[bytes]) -> None:
        """The source wrote these anew further on: which record is theirs is not for this stretch to say."""
        for key in keys:
            del self.lone[key]

    def deletes(self, *, on_source: bool) -> dict[bytes, Lone]:
        """Tombstones that this side alone has. Each side drops its own in its own time, but never before the records
        that they delete."""
        return {key: found for key, found in self.lone.items() if found.tombstone and found.on_source is on_source}


def still_shown(chunks: Chunks, deletes: Mapping[bytes, Lone]) -> list[Lone]:
    """Of these tombstones those below which this side, which lacks them, shows a value of their key; by offset."""
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


def compare_compacted(source: Chunks, target: Chunks, tally: Tally, end: int, latest: Latest) -> bool:
    """Goes on to `end` while no offset present on both sides differs; False where one does, which is at `tally.at`."""
    ours, theirs = next(source, None), next(target, None)
    while tally.at < end and ours is not None and theirs is not None:
        ours.skip_below(tally.at)
        theirs.skip_below(tally.at)
        stop = min(ours.end, theirs.end, end)
        if not _match(ours, theirs, stop, tally, latest):
            return False
        tally.at = max(tally.at, stop)
        if tally.at >= end:
            break
        if ours.end <= stop:
            ours = next(source, None)
        if theirs.end <= stop:
            theirs = next(target, None)
    return True


def _match(ours: Chunk, theirs: Chunk, stop: int, tally: Tally, latest: Latest) -> bool:
    data, rows = ours.opened()
    peer_data, peers = theirs.opened()
    n, m = max(ours.first, ours.rows_below(stop)), max(theirs.first, theirs.rows_below(stop))
    while ours.first < n or theirs.first < m:
        begin = ours.first
        one, other = (data, rows, begin, n), (peer_data, peers, theirs.first, m)
        done = tally.sums.match(one, other, 0, placed=True)
        tally.records += done
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
            latest.alone(key, Lone(at, True, tombstone))
            ours.first += 1
        elif peer_at < at:
            key, tombstone = key_at(peer_data, peers[theirs.first])
            latest.alone(key, Lone(peer_at, False, tombstone))
            theirs.first += 1
        elif same_record(data, rows[ours.first], peer_data, peers[theirs.first]):
            latest.met(key_at(data, rows[ours.first])[0])
            step_over(ours, theirs, tally)
        else:
            tally.at = at
            return False
    return True
