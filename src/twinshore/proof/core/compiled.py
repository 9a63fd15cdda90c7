"""The inner loops of a comparison, compiled by numba: `record_rows` and `keys` call these through `compiled()`."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numba import types

from twinshore.kafka.protocol.compiled import BYTES, big_endian, crc_of, inlined, load_word, machine_code, read_varint

_HEADER: Final = 61
_APPEND_TIME: Final = 8
_NEAR_BYTES: Final = 512 << 10
_FIRST: Final = np.uint64(0x9E3779B97F4A7C15)
_SECOND: Final = np.uint64(0xC2B2AE3D27D4EB4F)
_THIRD: Final = np.uint64(0xFF51AFD7ED558CCD)
_ROWS = types.int64[:, ::1]
_INT = types.int64


@machine_code(_INT(BYTES, *[_INT] * 7, _ROWS, _INT))
def index_records(
    data: Any, place: Any, end: Any, count: Any, base: Any, last_delta: Any, time: Any, fixed: Any, rows: Any, at: Any
) -> Any:
    """Fills `rows` from row `at` on. Returns the row behind the last; -1 for malformed records."""
    before = np.int64(-1)
    for _ in range(count):
        length, start = read_varint(data, place, end)
        stop = start + length
        if start < 0 or length < 6 or stop > end:
            return -1
        late, after = read_varint(data, start + 1, stop)
        if after < 0:
            return -1
        delta, rest = read_varint(data, after, stop)
        if rest < 0 or rest >= stop or delta <= before or delta > last_delta:
            return -1
        rows[at, 0] = base + delta
        rows[at, 1] = time if fixed else time + late
        rows[at, 2] = rest
        rows[at, 3] = stop
        at += 1
        before = delta
        place = stop
    return at if place == end else -1


@machine_code(types.void(BYTES, *[_INT] * 2, _ROWS, _INT[::1]))
def index_plain(source: Any, place: Any, expected: Any, rows: Any, out: Any) -> None:
    """Indexes uncompressed batches until another kind, enough bytes, or full rows. `out`: the position, the offset
    behind the last batch, rows, batches.
    """
    filled, batches = np.int64(0), np.int64(0)
    begun = place
    # The indexed bytes are compared next, and should still be in the processor's cache.
    while place + _HEADER + 7 <= source.size and place - begun < _NEAR_BYTES:
        end = place + 12 + big_endian(source, place + 8, 4)
        attributes = big_endian(source, place + 21, 2)
        last_delta, count = big_endian(source, place + 23, 4), big_endian(source, place + 57, 4)
        base = big_endian(source, place, 8)
        if (
            source[place + 16] != 2
            or end > source.size
            or attributes & ~_APPEND_TIME
            or not 0 < count <= last_delta + 1
            or count * 7 > end - place - _HEADER
            or base < expected
            or filled + count > rows.shape[0]
        ):
            break
        if crc_of(source, place + 21, end) != big_endian(source, place + 17, 4) & 0xFFFFFFFF:
            break
        fixed = attributes & _APPEND_TIME
        time = big_endian(source, place + 35 if fixed else place + 27, 8)
        after = index_records(source, place + _HEADER, end, count, base, last_delta, time, fixed, rows, filled)
        if after < 0:
            break
        filled = after
        batches += 1
        expected = base + last_delta + 1
        place = end
    out[0], out[1], out[2], out[3] = place, expected, filled, batches


@inlined
def _same(one: Any, i: Any, other: Any, j: Any, size: Any) -> Any:
    stop = i + size
    while i + 8 <= stop:
        if load_word(one, i) != load_word(other, j):
            return False
        i += 8
        j += 8
    while i < stop:
        if one[i] != other[j]:
            return False
        i += 1
        j += 1
    return True


@machine_code(types.boolean(BYTES, BYTES))
def same_bytes(one: Any, other: Any) -> Any:
    return one.size == other.size and _same(one, 0, other, 0, one.size)


@inlined
def _finished(task: Any) -> Any:
    task ^= task >> np.uint64(33)
    task *= _THIRD
    task ^= task >> np.uint64(29)
    task *= _SECOND
    return task ^ (task >> np.uint64(32))


@inlined
def _add(data: Any, rows: Any, i: Any, sums: Any) -> Any:
    """Adds one record's digest to both sums."""
    place, stop = rows[i, 2], rows[i, 3]
    offset, time = np.uint64(rows[i, 0]), np.uint64(rows[i, 1])
    one = (offset ^ np.uint64(stop - place)) * _FIRST
    two = (offset + time) * _SECOND
    one ^= (one >> np.uint64(32)) ^ time
    two ^= two >> np.uint64(29)
    while place + 8 <= stop:
        word = load_word(data, place)
        one = (one ^ word) * _FIRST
        one ^= one >> np.uint64(32)
        two = (two + word) * _SECOND
        two ^= two >> np.uint64(29)
        place += 8
    if place < stop:
        word = np.uint64(0)
        shift = np.uint64(0)
        while place < stop:
            word |= np.uint64(data[place]) << shift
            shift += np.uint64(8)
            place += 1
        one = (one ^ word) * _FIRST
        one ^= one >> np.uint64(32)
        two = (two + word) * _SECOND
        two ^= two >> np.uint64(29)
    sums[0] += _finished(one)
    sums[1] += _finished(two ^ one)


@machine_code(types.void(BYTES, _ROWS, _INT, _INT, types.uint64[::1]))
def add_rows(data: Any, rows: Any, i: Any, n: Any, sums: Any) -> None:
    for row in range(i, n):
        _add(data, rows, row, sums)


@machine_code(_INT(BYTES, _ROWS, _INT, _INT, BYTES, _ROWS, _INT, _INT, _INT, types.boolean, types.uint64[::1]))
def matching(
    one: Any, ones: Any, i: Any, n: Any, other: Any, others: Any, j: Any, m: Any, shift: Any, placed: Any, sums: Any
) -> Any:
    """Returns how many rows from `i` and `j` on are the same, and adds their digests. `placed`: offsets count, the
    other's plus `shift`.
    """
    most = min(n - i, m - j)
    for step in range(most):
        row, peer = i + step, j + step
        start, size = ones[row, 2], ones[row, 3] - ones[row, 2]
        if (
            (placed and ones[row, 0] != others[peer, 0] + shift)
            or ones[row, 1] != others[peer, 1]
            or size != others[peer, 3] - others[peer, 2]
            or not _same(one, start, other, others[peer, 2], size)
        ):
            return step
        _add(one, ones, row, sums)
    return most


@machine_code(types.void(BYTES, _ROWS, _INT, _INT, types.uint64[::1], types.int8[::1]))
def hash_keys(data: Any, rows: Any, i: Any, n: Any, hashes: Any, kinds: Any) -> None:
    """Hashes each key of rows [i, n), and sets what the record is: 0 a value, 1 a tombstone, 2 without a key."""
    for row in range(i, n):
        stop = rows[row, 3]
        size, place = read_varint(data, rows[row, 2], stop)
        if size < 0:
            hashes[row - i], kinds[row - i] = np.uint64(0), 2
            continue
        end = min(place + size, stop)
        value_size, _ = read_varint(data, end, stop)
        kinds[row - i] = 1 if value_size < 0 else 0
        task = np.uint64(size) * _SECOND
        while place + 8 <= end:
            task = (task ^ load_word(data, place)) * _FIRST
            task ^= task >> np.uint64(32)
            place += 8
        if place < end:
            word, shift = np.uint64(0), np.uint64(0)
            while place < end:
                word |= np.uint64(data[place]) << shift
                shift += np.uint64(8)
                place += 1
            task = (task ^ word) * _FIRST
            task ^= task >> np.uint64(32)
        hashes[row - i] = _finished(task)
