"""Records as rows, and one side's log as chunks of rows. Indexes, compares and digests rows in loops that numba
compiles.

A row is (offset, timestamp, first byte after the deltas, byte behind the record). Between the last two are key, value
and headers, the same bytes in any batch. A digest is the sum of records' digests, modulo 2^64 in each of two halves:
batching does not matter, and adjacent ranges add up.

A chunk covers all offsets up to its end. Those without a row are invisible to consumers: control records, aborted ones,
gaps of compaction. A compressed batch is unpacked only when needed.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from twinshore.config.errors import WireError
from twinshore.kafka.protocol.fetch import AbortedTransactions
from twinshore.kafka.protocol.primitives import PAST_END_ERRORS, read_varint
from twinshore.kafka.protocol.record_batch import (
    CODEC_MASK,
    HEADER_BYTES,
    LOG_APPEND_TIME_FLAG,
    RECORD_BYTES_MIN,
    BatchHeader,
    Headers,
    Record,
    check_crc,
    codec_of,
    decompress_into,
    next_batch,
    record_frames,
)
from twinshore.proof.core.model import PREVIEW_BYTES_MAX, RecordPreview

Array: TypeAlias = "np.ndarray[Any, Any]"

ROW_FIELDS: Final = 4
_WORD: Final = (1 << 64) - 1
_FIRST: Final = 0x9E3779B97F4A7C15
_SECOND: Final = 0xC2B2AE3D27D4EB4F
_THIRD: Final = 0xFF51AFD7ED558CCD


def record_at(data: Array, row: Array) -> Record:
    """Returns a row's record. Raises WireError where its fields do not fill the row."""
    offset, timestamp, start, end = row.tolist()
    rest = data[start:end].tobytes()
    try:
        key, place = _blob(rest, 0)
        value, place = _blob(rest, place)
        headers, place = _headers(rest, place)
    except PAST_END_ERRORS as error:
        raise WireError(f"the record at offset {offset} ends too early") from error
    if place != len(rest):
        raise WireError(f"the record at offset {offset} has {len(rest) - place} bytes too many")
    return Record(offset, timestamp, key, value, headers)


def key_at(data: Array, row: Array) -> tuple[bytes | None, bool]:
    """Returns the record's key, and whether it is a tombstone."""
    _, _, start, end = row.tolist()
    rest = data[start:end].tobytes()
    key, place = _blob(rest, 0)
    size, _ = read_varint(rest, place)
    return key, size == -1


def same_record(data: Array, row: Array, peer_data: Array, peer: Array) -> bool:
    """Whether timestamp, key, value and headers are the same, in any encoding."""
    one, other = row.tolist(), peer.tolist()
    if one[1] != other[1]:
        return False
    return record_at(data, row)[1:] == record_at(peer_data, peer)[1:]


def preview_record(record: Record) -> RecordPreview:
    headers = tuple((as_text(name) or "", as_text(content)) for name, content in record.headers)
    return RecordPreview(record.offset, record.timestamp, as_text(record.key), as_text(record.value), headers)


def as_text(content: bytes | None) -> str | None:
    """Formats bytes for people: long ones cut off, in hex if not text."""
    if content is None:
        return None
    cut = content[:PREVIEW_BYTES_MAX]
    try:
        text = cut.decode()
        plain = text.isprintable()
    except UnicodeDecodeError:
        plain = False
    words = text if plain else f"0x{cut.hex()}"
    return words if len(content) <= PREVIEW_BYTES_MAX else f"{words}... ({len(content)} bytes)"


def _blob(data: bytes, place: int) -> tuple[bytes | None, int]:
    size, start = read_varint(data, place)
    if size == -1:
        return None, start
    if size < 0 or start + size > len(data):
        raise WireError(f"a field claims {size} bytes of {len(data) - start}")
    return data[start : start + size], start + size


def _headers(data: bytes, place: int) -> tuple[Headers, int]:
    count, place = read_varint(data, place)
    if not 0 <= count <= len(data):
        raise WireError(f"a record claims {count} headers in {len(data)} bytes")
    found = []
    for _ in range(count):
        name, place = _blob(data, place)
        content, place = _blob(data, place)
        found.append((name or b"", content))
    return tuple(found), place


@cache
def compiled() -> ModuleType:
    """Loads the compiled loops, which takes half a second."""
    return import_module("twinshore.proof.core.compiled")


def no_rows() -> Array:
    return np.zeros((0, ROW_FIELDS), dtype=np.int64)


def new_row_table(rows: int) -> Array:
    return np.empty((rows, ROW_FIELDS), dtype=np.int64)


def as_byte_array(data: bytes | memoryview) -> Array:
    """Returns the bytes as loops take them, without a copy."""
    return np.frombuffer(memoryview(data).toreadonly(), dtype=np.uint8)


def index_batch(data: bytes | memoryview, header: BatchHeader) -> Array:
    """Returns the rows of one batch's plain records. Raises WireError for malformed ones."""
    rows = new_row_table(header.count)
    fixed = header.attributes & LOG_APPEND_TIME_FLAG
    time = header.max_timestamp if fixed else header.base_timestamp
    batch = header.count, header.base_offset, header.last_offset_delta, time, fixed
    if compiled().index_records(as_byte_array(data), 0, len(data), *batch, rows, 0) == header.count:
        return rows
    # Reports what is malformed, and takes what the loop leaves.
    for at, frame in enumerate(record_frames(bytes(data), header)):
        stamp = time if fixed else time + frame.timestamp_delta
        if not -(1 << 63) <= stamp < 1 << 63:
            raise WireError(f"batch at offset {header.base_offset}: a record's timestamp is out of range")
        rows[at] = (header.base_offset + frame.offset_delta, stamp, frame.rest, frame.end)
    return rows


def same_bytes(one: memoryview, other: memoryview) -> bool:
    return bool(compiled().same_bytes(as_byte_array(one), as_byte_array(other)))


class RunningDigest:
    def __init__(self, start: int = 0) -> None:
        self.tasks = np.array([start >> 64, start & _WORD], dtype=np.uint64)

    @property
    def value(self) -> int:
        """A number of 128 bits."""
        return int(self.tasks[0]) << 64 | int(self.tasks[1])

    def add(self, data: Array, rows: Array, first: int, end: int) -> None:
        """Adds the records of rows [first, end)."""
        compiled().add_rows(data, rows, first, end, self.tasks)

    def match(
        self, one: tuple[Array, Array, int, int], other: tuple[Array, Array, int, int], shift: int, *, placed: bool
    ) -> int:
        """Returns how many rows of both are the same, and adds them. Each side is (data, rows, first, end). `placed`:
        offsets count, the other's plus `shift`.
        """
        return int(compiled().matching(*one, *other, shift, placed, self.tasks))


def combine_digests(*digests: int) -> int:
    high = sum(digest >> 64 for digest in digests) & _WORD
    low = sum(digest & _WORD for digest in digests) & _WORD
    return high << 64 | low


def _finished(task: int) -> int:
    task ^= task >> 33
    task = task * _THIRD & _WORD
    task ^= task >> 29
    task = task * _SECOND & _WORD
    return task ^ (task >> 32)


def hash_key(key: bytes) -> int:
    """Returns the key's 64-bit hash, the same as from `hash_keys`."""
    task = len(key) * _SECOND & _WORD
    for place in range(0, len(key), 8):
        task = (task ^ int.from_bytes(key[place : place + 8], "little")) * _FIRST & _WORD
        task ^= task >> 32
    return _finished(task)


ROWS_MAX = 1 << 16
NO_BYTES = as_byte_array(b"")


class MappedRun(NamedTuple):
    """An offset run: `length` offsets from `source` on correspond to those from `target` on."""

    source: int
    target: int
    length: int


def exclude_ranges(chunks: Iterable[Chunk], dropped: Sequence[tuple[int, int]]) -> Iterator[Chunk]:
    """Yields the source's chunks without records of these ordered ranges, which the twin lacks."""
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


class OffsetAlignment:
    """How both sides' offsets correspond: here an exact twin's, which are equal."""

    def placed(self, chunks: Iterable[Chunk]) -> Iterator[Chunk]:
        """Yields the target's chunks, shifted to the source's offsets, without foreign records."""
        return iter(chunks)

    def target_of(self, source: int) -> int:
        """Returns the target offset for this source offset, or just before."""
        return source

    def source_from(self, _target: int, /) -> int:
        """Returns the first source offset that a target with this log start should hold. -1: all, since an exact twin's
        log start follows its source's.
        """
        return -1


class MappedAlignment(OffsetAlignment):
    """A mapped twin's. Records between its offset runs were there before the link, or are foreign."""

    def __init__(self, offset_runs: Sequence[MappedRun], end: int) -> None:
        """`end`: how far on the source the runs are complete. Source offsets without a run are invisible."""
        self._runs = sorted(run for run in offset_runs if run.length)
        self._sources = [run.source for run in self._runs]
        self._end = end

    def target_of(self, source: int) -> int:
        if not self._runs:
            return 0
        run = self._runs[max(0, bisect_right(self._sources, source) - 1)]
        return run.target + min(max(0, source - run.source), run.length)

    def source_from(self, target: int, /) -> int:
        """Returns the source offset behind the last below this target offset: a mapped twin has its own retention."""
        gone = (run.source + min(run.length, target - run.target) for run in self._runs if run.target < target)
        return max(gone, default=-1)

    def placed(self, chunks: Iterable[Chunk]) -> Iterator[Chunk]:
        runs = iter(self._runs)
        run = next(runs, None)
        for chunk in chunks:
            while run is not None and run.target < chunk.end:
                stop = min(run.target + run.length, chunk.end)
                whole = chunk.packed is not None and run.target <= chunk.packed[1].base_offset and stop == chunk.end
                yield _part(chunk, run.target, stop, run.source - run.target, whole=whole)
                if run.target + run.length > chunk.end:
                    break
                run = next(runs, None)
            if run is None:
                break
        yield empty_chunk(self._end)


def _part(chunk: Chunk, first: int, stop: int, shift: int, *, whole: bool) -> Chunk:
    if whole:
        part = Chunk(stop, NO_BYTES, no_rows(), chunk.packed, chunk.room)
    else:
        data, rows = chunk.opened()
        chunk.skip_below(first)
        part = Chunk(stop, data, rows[chunk.first : chunk.rows_below(stop)])
    part.shift = shift
    return part


class UnpackBuffer:
    """The buffer for one side's unpacked batches, one at a time."""

    def __init__(self) -> None:
        self._room = bytearray(1 << 16)

    def unpacked(self, view: memoryview, header: BatchHeader) -> memoryview:
        """Returns the batch's records, valid until the next call. Raises WireError for an impossible count."""
        try:
            codec = codec_of(header.attributes)
            self._room, plain = decompress_into(codec, view[HEADER_BYTES:], self._room)
        except WireError as error:
            raise error.within(f"batch at offset {header.base_offset}") from error
        if header.count * RECORD_BYTES_MIN > len(plain):
            raise WireError(
                f"batch at offset {header.base_offset} claims {header.count} records in {len(plain)} bytes of records"
            )
        return plain


class Chunk:
    """A part of a log. `end`: behind the last offset. `first`: the first unprocessed row. `packed`: the only batch,
    until unpacked into `room`. `shift`: the source's offsets minus the chunk's.
    """

    __slots__ = ("_data", "_rows", "end", "first", "packed", "room", "shift")

    def __init__(
        self,
        end: int,
        data: Array,
        rows: Array,
        packed: tuple[memoryview, BatchHeader] | None = None,
        room: UnpackBuffer | None = None,
    ) -> None:
        self.end = end
        self.first = 0
        self.shift = 0
        self._data = data
        self._rows = rows
        self.packed = packed
        self.room = room

    def opened(self) -> tuple[Array, Array]:
        """Returns bytes and rows, after unpacking."""
        if self.packed is not None:
            view, header = self.packed
            plain = (self.room or UnpackBuffer()).unpacked(view, header)
            self._data, self._rows = as_byte_array(plain), index_batch(plain, header)
            self.packed = None
        return self._data, self._rows

    @property
    def source_end(self) -> int:
        return self.end + self.shift

    def skip_below(self, offset: int) -> None:
        """Skips records below this offset, by the chunk's own offsets."""
        if self.packed is not None and self.packed[1].base_offset >= offset:
            return
        rows = self.opened()[1]
        if self.first < len(rows) and rows[self.first, 0] < offset:
            self.first = int(np.searchsorted(rows[:, 0], offset))

    def rows_below(self, offset: int) -> int:
        """Counts rows below this offset, by the chunk's own offsets."""
        rows = self.opened()[1]
        if not len(rows) or rows[-1, 0] < offset:
            return len(rows)
        return int(np.searchsorted(rows[:, 0], offset))


def empty_chunk(end: int) -> Chunk:
    """A chunk without visible records."""
    return Chunk(end, NO_BYTES, no_rows())


class Chunker:
    """Makes chunks. Reuses its table, so a chunk is valid until the next."""

    def __init__(self) -> None:
        self._table = new_row_table(ROWS_MAX)
        self._out = np.zeros(4, dtype=np.int64)
        self._room = UnpackBuffer()

    def chunks(self, records: memoryview, aborted: Iterable[tuple[int, int]]) -> Iterator[Chunk]:
        """Yields the chunks of one fetch, without an incomplete last batch. Raises WireError for a corrupt one."""
        ours = AbortedTransactions(aborted)
        loops = compiled()
        place, size = 0, len(records)
        source = as_byte_array(records)
        expected = 0
        while place < size:
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


def _chunk(view: memoryview, header: BatchHeader, aborted: AbortedTransactions, room: UnpackBuffer) -> Chunk:
    if aborted.hides(view, header) or not header.count:
        return empty_chunk(header.last_offset + 1)
    return Chunk(header.last_offset + 1, NO_BYTES, no_rows(), (view, header), room)


def same_packed_batch(chunk: Chunk, other: Chunk) -> bool:
    """Whether both are packed and surely hold the same records, so that at most one needs unpacking."""
    if chunk.packed is None or other.packed is None:
        return False
    (view, header), (peer_view, peer) = chunk.packed, other.packed
    alike = (
        header.length == peer.length
        and header.base_offset == peer.base_offset + other.shift
        and header.last_offset_delta == peer.last_offset_delta
        and header.count == peer.count
        and header.base_timestamp == peer.base_timestamp
        and (header.attributes ^ peer.attributes) & (CODEC_MASK | LOG_APPEND_TIME_FLAG) == 0
        and (not header.attributes & LOG_APPEND_TIME_FLAG or header.max_timestamp == peer.max_timestamp)
    )
    return alike and same_bytes(view[HEADER_BYTES:], peer_view[HEADER_BYTES:])
