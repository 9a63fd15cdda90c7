"""Records as rows: where each lies in its bytes. Indexing, comparing and digesting them, compiled where numba is there.

A row is (offset, timestamp, first byte after the deltas, byte behind the record): key, value and headers lie between
the last two, and are the same bytes in whatever batch. A digest is the sum, modulo 2^64 in each of two lanes, of the
digests of single records: the same however the records are batched, and stretches proven apart add up.
"""

from __future__ import annotations

from functools import cache
from types import ModuleType
from typing import Any, Final, TypeAlias

import numpy as np

from twinshore.fleet import WireError
from twinshore.proof.values import SHOWN_BYTES_MAX, Shown
from twinshore.wire.batch import TIMESTAMP_APPEND, BatchHeader
from twinshore.wire.loops import loops
from twinshore.wire.primitives import PAST_END, read_varint
from twinshore.wire.records import Headers, Record, frames

Array: TypeAlias = "np.ndarray[Any, Any]"

ROW_FIELDS: Final = 4
_WORD: Final = (1 << 64) - 1
_FIRST: Final = 0x9E3779B97F4A7C15
_SECOND: Final = 0xC2B2AE3D27D4EB4F
_THIRD: Final = 0xFF51AFD7ED558CCD


def record_at(data: Array, row: Array) -> Record:
    """The record of a row; WireError when its fields do not fill it."""
    offset, timestamp, start, end = row.tolist()
    rest = data[start:end].tobytes()
    try:
        key, place = _blob(rest, 0)
        value, place = _blob(rest, place)
        headers, place = _headers(rest, place)
    except PAST_END as error:
        raise WireError(f"the record at offset {offset} ends too early") from error
    if place != len(rest):
        raise WireError(f"the record at offset {offset} has {len(rest) - place} bytes too many")
    return Record(offset, timestamp, key, value, headers)


def key_at(data: Array, row: Array) -> tuple[bytes | None, bool]:
    """The record's key, and whether it is a tombstone."""
    _, _, start, end = row.tolist()
    rest = data[start:end].tobytes()
    key, place = _blob(rest, 0)
    size, _ = read_varint(rest, place)
    return key, size == -1


def same_record(data: Array, row: Array, peer_data: Array, peer: Array) -> bool:
    """Time stamp, key, value and headers are the same, whatever the bytes they are written in."""
    one, other = row.tolist(), peer.tolist()
    if one[1] != other[1]:
        return False
    return record_at(data, row)[1:] == record_at(peer_data, peer)[1:]


def shown(record: Record) -> Shown:
    """The record for people."""
    headers = tuple((as_text(name) or "", as_text(content)) for name, content in record.headers)
    return Shown(record.offset, record.timestamp, as_text(record.key), as_text(record.value), headers)


def as_text(content: bytes | None) -> str | None:
    """Bytes for people: cut off where they are long, in hex where they are no text."""
    if content is None:
        return None
    cut = content[:SHOWN_BYTES_MAX]
    try:
        text = cut.decode()
        plain = text.isprintable()
    except UnicodeDecodeError:
        plain = False
    words = text if plain else f"0x{cut.hex()}"
    return words if len(content) <= SHOWN_BYTES_MAX else f"{words}... ({len(content)} bytes)"


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
def compiled() -> ModuleType | None:
    """The compiled loops; None where numba cannot run. Loading takes half a second."""
    return loops("twinshore.proof.compiled")


def no_rows() -> Array:
    return np.zeros((0, ROW_FIELDS), dtype=np.int64)


def table(rows: int) -> Array:
    """Room for so many rows, its content undefined."""
    return np.empty((rows, ROW_FIELDS), dtype=np.int64)


def as_bytes(data: bytes | memoryview) -> Array:
    """The bytes as loops take them; no copy."""
    return np.frombuffer(memoryview(data).toreadonly(), dtype=np.uint8)


def index_batch(data: bytes | memoryview, header: BatchHeader) -> Array:
    """The rows of one batch's plain records; WireError when they are malformed."""
    rows = table(header.count)
    loops = compiled()
    fixed = header.attributes & TIMESTAMP_APPEND
    time = header.max_timestamp if fixed else header.base_timestamp
    if loops is not None:
        delta, size = header.last_offset_delta, len(data)
        filled = loops.index_records(
            as_bytes(data), 0, size, header.count, header.base_offset, delta, time, fixed, rows, 0
        )
        if filled == header.count:
            return rows
    # Also to say what is malformed.
    for at, frame in enumerate(frames(bytes(data), header)):
        stamp = time if fixed else time + frame.timestamp_delta
        if not -(1 << 63) <= stamp < 1 << 63:
            raise WireError(f"batch at offset {header.base_offset}: a record's timestamp is out of range")
        rows[at] = (header.base_offset + frame.offset_delta, stamp, frame.rest, frame.end)
    return rows


def same_bytes(one: memoryview, other: memoryview) -> bool:
    loops = compiled()
    if loops is not None:
        return bool(loops.same_bytes(as_bytes(one), as_bytes(other)))
    return one == other


class Sums:
    """A digest that grows."""

    def __init__(self, start: int = 0) -> None:
        self.lanes = np.array([start >> 64, start & _WORD], dtype=np.uint64)

    @property
    def value(self) -> int:
        """As one number of 128 bits."""
        return int(self.lanes[0]) << 64 | int(self.lanes[1])

    def add(self, data: Array, rows: Array, first: int, end: int) -> None:
        """Adds the records of rows [first, end)."""
        loops = compiled()
        if loops is not None:
            loops.add_rows(data, rows, first, end, self.lanes)
        else:
            for row in range(first, end):
                self._add(data, rows[row].tolist())

    def match(
        self, one: tuple[Array, Array, int, int], other: tuple[Array, Array, int, int], shift: int, *, placed: bool
    ) -> int:
        """How many rows of both are the same; they are added. Each side is (data, rows, first, end); the other's
        offsets count after `shift` is added, or not at all when not `placed`."""
        loops = compiled()
        if loops is not None:
            return int(loops.matching(*one, *other, shift, placed, self.lanes))
        data, rows, i, n = one
        other_data, others, j, m = other
        for step in range(min(n - i, m - j)):
            ours, theirs = rows[i + step].tolist(), others[j + step].tolist()
            same = (not placed or ours[0] == theirs[0] + shift) and ours[1] == theirs[1]
            if not same or data[ours[2] : ours[3]].tobytes() != other_data[theirs[2] : theirs[3]].tobytes():
                return step
            self._add(data, ours)
        return min(n - i, m - j)

    def _add(self, data: Array, row: list[int]) -> None:
        offset, time, start, end = row
        rest = data[start:end].tobytes()
        time &= _WORD
        one = ((offset ^ len(rest)) * _FIRST) & _WORD
        two = ((offset + time) & _WORD) * _SECOND & _WORD
        one ^= (one >> 32) ^ time
        two ^= two >> 29
        for place in range(0, len(rest), 8):
            word = int.from_bytes(rest[place : place + 8], "little")
            one = (one ^ word) * _FIRST & _WORD
            one ^= one >> 32
            two = ((two + word) & _WORD) * _SECOND & _WORD
            two ^= two >> 29
        old_one, old_two = (int(lane) for lane in self.lanes)
        self.lanes[0] = (old_one + _finished(one)) & _WORD
        self.lanes[1] = (old_two + _finished(two ^ one)) & _WORD


def digest_sum(*digests: int) -> int:
    """The digest of all these stretches together."""
    high = sum(digest >> 64 for digest in digests) & _WORD
    low = sum(digest & _WORD for digest in digests) & _WORD
    return high << 64 | low


def _finished(lane: int) -> int:
    lane ^= lane >> 33
    lane = lane * _THIRD & _WORD
    lane ^= lane >> 29
    lane = lane * _SECOND & _WORD
    return lane ^ (lane >> 32)


def hash_of(key: bytes) -> int:
    """64 bits that stand for a key, as `hash_keys` makes them."""
    lane = len(key) * _SECOND & _WORD
    for place in range(0, len(key), 8):
        lane = (lane ^ int.from_bytes(key[place : place + 8], "little")) * _FIRST & _WORD
        lane ^= lane >> 32
    return _finished(lane)
