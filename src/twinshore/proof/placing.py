"""Where a target's chunks lie on the source's axis. Pure."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from twinshore.proof.chunks import NO_BYTES, Chunk, nothing
from twinshore.proof.rows import no_rows


class Extent(NamedTuple):
    """An extent of a mapped twin, without its sequence: `length` records of the source from `source` on lie on the
    target from `target` on."""

    source: int
    target: int
    length: int


def without(chunks: Iterable[Chunk], dropped: Sequence[tuple[int, int]]) -> Iterator[Chunk]:
    """The source's chunks, without records of these ranges, which are in order: nobody sees them on the twin."""
    if not dropped:
        yield from chunks
        return
    begins, ends, at = [begin for begin, _ in dropped], [end for _, end in dropped], 0
    for chunk in chunks:
        first = bisect_right(ends, at)
        at = chunk.end
        over = dropped[first : bisect_left(begins, chunk.end)]
        if not over:
            yield chunk
            continue
        data, rows = chunk.opened()
        kept = np.ones(len(rows), dtype=bool)
        for begin, end in over:
            kept[np.searchsorted(rows[:, 0], begin) : np.searchsorted(rows[:, 0], end)] = False
        yield Chunk(chunk.end, data, rows[kept])


class Placement(Protocol):
    """How offsets of the two sides belong together."""

    def placed(self, chunks: Iterable[Chunk]) -> Iterator[Chunk]:
        """The target's chunks, their shift making their offsets the source's; without what is not from there."""
        ...

    def target_of(self, source: int) -> int:
        """Where on the target to begin for this offset of the source, or right before it."""
        ...

    def source_from(self, target: int, /) -> int:
        """From which offset of the source on nobody misses what a target that begins here lacks."""
        ...


class SameOffsets:
    """An exact twin."""

    def placed(self, chunks: Iterable[Chunk]) -> Iterator[Chunk]:
        return iter(chunks)

    def target_of(self, source: int) -> int:
        return source

    def source_from(self, _target: int, /) -> int:
        """What a twin that follows its source's log start lacks is lost, so nothing is let go for it."""
        return -1


class ByExtents:
    """A mapped twin, by its extents. What lies between them was there before the link, or is nobody's."""

    def __init__(self, extents: Sequence[Extent], end: int) -> None:
        """`end`: offsets of the source that are spoken for; those in no extent are seen by nobody there."""
        self._extents = sorted(extent for extent in extents if extent.length)
        self._sources = [extent.source for extent in self._extents]
        self._end = end

    def target_of(self, source: int) -> int:
        if not self._extents:
            return 0
        extent = self._extents[max(0, bisect_right(self._sources, source) - 1)]
        return extent.target + min(max(0, source - extent.source), extent.length)

    def source_from(self, target: int, /) -> int:
        """Behind the last record of the source that lies before this place: a mapped twin's retention is its own."""
        gone = (
            extent.source + min(extent.length, target - extent.target)
            for extent in self._extents
            if extent.target < target
        )
        return max(gone, default=-1)

    def placed(self, chunks: Iterable[Chunk]) -> Iterator[Chunk]:
        extents = iter(self._extents)
        extent = next(extents, None)
        for chunk in chunks:
            while extent is not None and extent.target < chunk.end:
                stop = min(extent.target + extent.length, chunk.end)
                whole = chunk.packed is not None and extent.target <= chunk.packed[1].base_offset and stop == chunk.end
                yield _part(chunk, extent.target, stop, extent.source - extent.target, whole=whole)
                if extent.target + extent.length > chunk.end:
                    break
                extent = next(extents, None)
            if extent is None:
                break
        yield nothing(self._end)


def _part(chunk: Chunk, first: int, stop: int, shift: int, *, whole: bool) -> Chunk:
    if whole:
        part = Chunk(stop, NO_BYTES, no_rows(), chunk.packed, chunk.room)
    else:
        data, rows = chunk.opened()
        chunk.skip_below(first)
        part = Chunk(stop, data, rows[chunk.first : chunk.rows_below(stop)])
    part.shift = shift
    return part
