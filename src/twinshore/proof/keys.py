"""Keys that one side has and the other has not, in bounded memory. Pure.

A side's keys are kept as hashes of 64 bits. Where there are too many, half of all hashes are left for another reading
of the logs, so the memory needed does not grow with the topic. Two keys of one hash can hide one of them, about one key
of 10^12 in a topic of ten million, and never accuse one: what is told is found by its bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np

from twinshore.proof.chunks import Chunk
from twinshore.proof.rows import Array, compiled, hash_of, key_at

HASHES_MAX: Final = 8_000_000
KEYS_MAX: Final = 200_000
_FRESH_MAX: Final = 1 << 20
VALUE, TOMBSTONE, NO_KEY = range(3)


class Slice(NamedTuple):
    """The hashes that leave `rest` when divided by `parts`, a power of two."""

    parts: int = 1
    rest: int = 0

    def halves(self) -> tuple[Slice, Slice]:
        return Slice(self.parts * 2, self.rest), Slice(self.parts * 2, self.rest + self.parts)

    def holds(self, hashes: Array) -> Array:
        found: Array = (hashes & np.uint64(self.parts - 1)) == np.uint64(self.rest)
        return found


def hashed(chunk: Chunk) -> tuple[Array, Array]:
    """The hash of each key of the chunk's rows that are not dealt with, and what its record is."""
    data, rows = chunk.opened()
    first, end = chunk.first, len(rows)
    hashes, kinds = np.zeros(end - first, dtype=np.uint64), np.zeros(end - first, dtype=np.int8)
    loops = compiled()
    if loops is not None:
        loops.hash_keys(data, rows, first, end, hashes, kinds)
        return hashes, kinds
    for at in range(first, end):
        key, tombstone = key_at(data, rows[at])
        hashes[at - first] = 0 if key is None else hash_of(key)
        kinds[at - first] = NO_KEY if key is None else TOMBSTONE if tombstone else VALUE
    return hashes, kinds


@dataclass(slots=True)
class Work:
    """The part of all hashes that is looked at now, and those that another reading must look at."""

    part: Slice
    left: list[Slice] = field(default_factory=list)

    def halve(self) -> None:
        self.part, other = self.part.halves()
        self.left.append(other)


class KnownKeys:
    """The keys of one side, as sorted hashes."""

    def __init__(self, work: Work, most: int = HASHES_MAX) -> None:
        self._work, self._most = work, most
        self._sorted: Array = np.zeros(0, dtype=np.uint64)
        self._fresh: list[Array] = []
        self._waiting = 0

    def add(self, hashes: Array) -> None:
        """Takes those of the part that is looked at, which is halved where they become too many."""
        mine = hashes[self._work.part.holds(hashes)]
        if len(mine):
            self._fresh.append(mine)
            self._waiting += len(mine)
        if self._waiting > min(_FRESH_MAX, self._most):
            self._settle()

    def lacks(self, hashes: Array) -> Array:
        """Which of these belong to the part that is looked at, and are not known."""
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
    """Keys of one side whose latest record so far is a value, with its offset, of those that the other side lacks."""

    def __init__(self, work: Work, most: int = KEYS_MAX) -> None:
        self.at: dict[bytes, int] = {}
        self._work, self._most = work, most

    def take(self, chunk: Chunk, known: KnownKeys) -> None:
        """Goes on with the chunk's records."""
        hashes, kinds = hashed(chunk)
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
            self.at = {key: at for key, at in self.at.items() if hash_of(key) % parts == rest}


class Suspects:
    """Some keys by their bytes, to be found again in a log that is read once more."""

    def __init__(self, keys: dict[bytes, int]) -> None:
        self._keys = keys
        self._hashes: Array = np.unique(np.array([hash_of(key) for key in keys], dtype=np.uint64))

    def among(self, chunk: Chunk) -> Iterator[tuple[bytes, int, bool]]:
        """The chunk's records of these keys: key, offset, whether it is a tombstone."""
        if not len(self._hashes):
            return
        hashes, kinds = hashed(chunk)
        data, rows = chunk.opened()
        places = np.minimum(np.searchsorted(self._hashes, hashes), len(self._hashes) - 1)
        for place in np.flatnonzero((self._hashes[places] == hashes) & (kinds != NO_KEY)).tolist():
            row = rows[chunk.first + place]
            key = key_at(data, row)[0] or b""
            if key in self._keys:
                yield key, int(row[0]), kinds[place] == TOMBSTONE
