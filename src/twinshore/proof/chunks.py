"""One side's log as chunks: fetched bytes in, stretches without a gap out, records as rows. Pure.

A chunk covers all offsets up to its end. Those without a row are seen by nobody: control records, aborted ones, holes
of compaction. A compressed batch is unpacked only when somebody looks into it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from twinshore.fleet import WireError
from twinshore.logs.visible import Aborted
from twinshore.proof.rows import Array, as_bytes, compiled, index_batch, no_rows, same_bytes, table
from twinshore.wire.batch import (
    CODEC_MASK,
    HEADER_BYTES,
    TIMESTAMP_APPEND,
    BatchHeader,
    check_crc,
    next_batch,
)
from twinshore.wire.codecs import codec_of, decompress_again
from twinshore.wire.records import RECORD_BYTES_MIN

ROWS_MAX = 1 << 16
NO_BYTES = as_bytes(b"")


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


class Placement:
    """How offsets of the two sides belong together: here of an exact twin, where they are the same."""

    def placed(self, chunks: Iterable[Chunk]) -> Iterator[Chunk]:
        """The target's chunks, their shift making their offsets the source's; without what is not from there."""
        return iter(chunks)

    def target_of(self, source: int) -> int:
        """Where on the target to begin for this offset of the source, or right before it."""
        return source

    def source_from(self, _target: int, /) -> int:
        """From which offset of the source on nobody misses what a target that begins here lacks. What a twin that
        follows its source's log start lacks is lost, so nothing is let go for it."""
        return -1


class ByExtents(Placement):
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


class Room:
    """Where a side's batches are unpacked, one after the other."""

    def __init__(self) -> None:
        self._room = bytearray(1 << 16)

    def unpacked(self, view: memoryview, header: BatchHeader) -> memoryview:
        """The batch's records, good until the next batch's are unpacked; WireError where there cannot be so many."""
        try:
            codec = codec_of(header.attributes)
            self._room, plain = decompress_again(codec, view[HEADER_BYTES:], self._room)
        except WireError as error:
            raise error.within(f"batch at offset {header.base_offset}") from error
        if header.count * RECORD_BYTES_MIN > len(plain):
            raise WireError(
                f"batch at offset {header.base_offset} claims {header.count} records in {len(plain)} bytes of records"
            )
        return plain


class Chunk:
    """`end` is behind its last offset, `first` its first row not dealt with. `packed` is its only batch while nobody
    has looked into it, `room` where it is unpacked. `shift` is how far the source's offsets are ahead of its own."""

    __slots__ = ("_data", "_rows", "end", "first", "packed", "room", "shift")

    def __init__(
        self,
        end: int,
        data: Array,
        rows: Array,
        packed: tuple[memoryview, BatchHeader] | None = None,
        room: Room | None = None,
    ) -> None:
        self.end = end
        self.first = 0
        self.shift = 0
        self._data = data
        self._rows = rows
        self.packed = packed
        self.room = room

    def opened(self) -> tuple[Array, Array]:
        """Its bytes and its rows, unpacked by now."""
        if self.packed is not None:
            view, header = self.packed
            plain = (self.room or Room()).unpacked(view, header)
            self._data, self._rows = as_bytes(plain), index_batch(plain, header)
            self.packed = None
        return self._data, self._rows

    @property
    def source_end(self) -> int:
        """Behind its last offset, as the source counts."""
        return self.end + self.shift

    def skip_below(self, offset: int) -> None:
        """Takes no notice of records below this offset of its own."""
        if self.packed is not None and self.packed[1].base_offset >= offset:
            return
        rows = self.opened()[1]
        if self.first < len(rows) and rows[self.first, 0] < offset:
            self.first = int(np.searchsorted(rows[:, 0], offset))

    def rows_below(self, offset: int) -> int:
        """How many of its rows lie below this offset of its own."""
        rows = self.opened()[1]
        if not len(rows) or rows[-1, 0] < offset:
            return len(rows)
        return int(np.searchsorted(rows[:, 0], offset))


def nothing(end: int) -> Chunk:
    """Offsets up to `end` that nobody sees."""
    return Chunk(end, NO_BYTES, no_rows())


class Chunker:
    """Its table, used again and again: so a chunk is good until the next one is asked for."""

    def __init__(self) -> None:
        self._table = table(ROWS_MAX)
        self._out = np.zeros(4, dtype=np.int64)
        self._room = Room()

    def chunks(self, records: memoryview, aborted: Iterable[tuple[int, int]]) -> Iterator[Chunk]:
        """The chunks of one fetch; an incomplete last batch is left out. WireError where one is corrupt."""
        ours = Aborted(aborted)
        loops = compiled()
        place, size = 0, len(records)
        source = as_bytes(records)
        expected = 0
        while place < size:
            if loops is not None:
                loops.index_plain(source, place, expected, self._table, self._out)
                after, expected_after, filled, batches = self._out.tolist()
                if batches:
                    place, expected = after, expected_after
                    yield Chunk(expected, source, self._table[:filled])
                    continue
            found = next_batch(records, place, expected)
            if found is None:
                return
            view, header = found
            check_crc(view, header)
            place += len(view)
            expected = header.last_offset + 1
            yield _chunk(view, header, ours, self._room)


def _chunk(view: memoryview, header: BatchHeader, aborted: Aborted, room: Room) -> Chunk:
    if aborted.hides(view, header) or not header.count:
        return nothing(header.last_offset + 1)
    return Chunk(header.last_offset + 1, NO_BYTES, no_rows(), (view, header), room)


def same_packed(one: Chunk, other: Chunk) -> bool:
    """Both are batches that hold the same records for certain: nobody need look into more than one of them."""
    if one.packed is None or other.packed is None:
        return False
    (view, header), (peer_view, peer) = one.packed, other.packed
    alike = (
        header.length == peer.length
        and header.base_offset == peer.base_offset + other.shift
        and header.last_offset_delta == peer.last_offset_delta
        and header.count == peer.count
        and header.base_timestamp == peer.base_timestamp
        and (header.attributes ^ peer.attributes) & (CODEC_MASK | TIMESTAMP_APPEND) == 0
        and (not header.attributes & TIMESTAMP_APPEND or header.max_timestamp == peer.max_timestamp)
    )
    return alike and same_bytes(view[HEADER_BYTES:], peer_view[HEADER_BYTES:])
