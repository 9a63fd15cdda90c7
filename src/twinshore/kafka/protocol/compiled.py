"""CRC-32C and the inner loop of joining batches, compiled by numba; without numba the import fails.

A CRC is linear: parts are computed in parallel, and shifted over the bytes that follow. Bytes that two batches share
are read once for both CRCs.

Plain Python takes about a microsecond to move a record between batches; this takes about as long as a copy.
"""

from __future__ import annotations

import platform
from collections.abc import Callable
from typing import Any, Final, TypeVar

import numpy as np
from llvmlite import binding, ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from twinshore.kafka.protocol.record_batch import crc_shift_tables

_Function = TypeVar("_Function", bound=Callable[..., Any])

ONES: Final = 0xFFFFFFFF
# Functions that could not be cached on disk: each process compiles them.
UNKEPT: Final[list[str]] = []
BYTES = types.Array(types.uint8, 1, "C", readonly=True)
ROOM = types.uint8[::1]
TWO_CRCS = types.UniTuple(types.uint64, 2)


def machine_code(signature: Any) -> Callable[[_Function], _Function]:
    """Compile at import, and cache on disk."""

    def compiled(function: _Function) -> _Function:
        try:
            made: _Function = njit(signature, cache=True, nogil=True, boundscheck=False)(function)
        except Exception:  # no write permission, full disk or truncated cache: compile each time
            made = njit(signature, nogil=True, boundscheck=False)(function)
            UNKEPT.append(function.__name__)
        return made

    return compiled


def inlined(function: _Function) -> _Function:
    made: _Function = njit(inline="always")(function)
    return made


def _crc_instruction() -> tuple[str, int] | None:
    """Returns the processor's CRC-32C instruction for eight bytes, and its register width."""
    features = binding.get_host_cpu_features()
    if platform.machine() in {"x86_64", "AMD64"} and features.get("sse4.2"):
        return "llvm.x86.sse42.crc32.64.64", 64
    if platform.machine() in {"aarch64", "arm64"} and features.get("crc"):
        return "llvm.aarch64.crc32cx", 32
    return None


_INSTRUCTION = _crc_instruction()


@intrinsic
def load_word(typing: Any, array: Any, place: Any) -> Any:
    """Load eight bytes at `place`, little-endian."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        word = builder.bitcast(builder.gep(data, [arguments[1]]), ir.IntType(64).as_pointer())
        return builder.load(word, align=1)

    return types.uint64(array, types.int64), build


@intrinsic
def _put_word(typing: Any, array: Any, place: Any, word: Any) -> Any:
    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        into = builder.bitcast(builder.gep(data, [arguments[1]]), ir.IntType(64).as_pointer())
        builder.store(arguments[2], into, align=1)
        return context.get_dummy_value()

    return types.void(array, types.int64, types.uint64), build


@intrinsic
def _step_by_hardware(typing: Any, crc: Any, word: Any) -> Any:
    name, width = _INSTRUCTION or ("", 64)

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        register = ir.IntType(width)
        kind = ir.FunctionType(register, [register, ir.IntType(64)])
        step = cgutils.get_or_insert_function(builder.module, kind, name)
        crc = arguments[0] if width == 64 else builder.trunc(arguments[0], register)
        after = builder.call(step, [crc, arguments[1]])
        return after if width == 64 else builder.zext(after, ir.IntType(64))

    return types.uint64(types.uint64, types.uint64), build


def _byte_table() -> np.ndarray[Any, Any]:
    table = np.arange(256, dtype=np.uint64)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ 0x82F63B78, table >> 1)
    return table


_BYTES = _byte_table()


@inlined
def _step_by_table(crc: Any, word: Any) -> Any:
    for _ in range(8):
        crc = (crc >> np.uint64(8)) ^ _BYTES[(crc ^ word) & np.uint64(255)]
        word >>= np.uint64(8)
    return crc


_step = _step_by_hardware if _INSTRUCTION else _step_by_table


LANE: Final = 1024
_ONE_LANE = np.array(crc_shift_tables(LANE), dtype=np.uint64)
_TWO_LANES = np.array(crc_shift_tables(2 * LANE), dtype=np.uint64)
SHORT: Final = 64
_ONE_SHORT = np.array(crc_shift_tables(SHORT), dtype=np.uint64)
_TWO_SHORT = np.array(crc_shift_tables(2 * SHORT), dtype=np.uint64)
_THREE_SHORT = np.array(crc_shift_tables(3 * SHORT), dtype=np.uint64)


@inlined
def _carried(tables: Any, crc: Any) -> Any:
    low, high = crc & np.uint64(0xFFFF), crc >> np.uint64(16)
    first, second = tables[0, low & np.uint64(255)], tables[1, low >> np.uint64(8)]
    return first ^ second ^ tables[2, high & np.uint64(255)] ^ tables[3, high >> np.uint64(8)]


@inlined
def step_byte(crc: Any, byte: Any) -> Any:
    return (crc >> np.uint64(8)) ^ _BYTES[(crc ^ np.uint64(byte)) & np.uint64(255)]


@machine_code(types.uint64(types.uint64, BYTES, types.int64, types.int64))
def crc_on(crc: Any, source: Any, place: Any, end: Any) -> Any:
    """Continue a CRC, in three parallel parts, since each step waits for the previous one."""
    while place + 3 * LANE <= end:
        second, third = np.uint64(0), np.uint64(0)
        for at in range(place, place + LANE, 8):
            crc = _step(crc, load_word(source, at))
            second = _step(second, load_word(source, at + LANE))
            third = _step(third, load_word(source, at + 2 * LANE))
        crc = _carried(_TWO_LANES, crc) ^ _carried(_ONE_LANE, second) ^ third
        place += 3 * LANE
    while place + 8 <= end:
        crc = _step(crc, load_word(source, place))
        place += 8
    while place < end:
        crc = step_byte(crc, source[place])
        place += 1
    return crc


@machine_code(types.int64(BYTES, types.int64, types.int64))
def crc_of(source: Any, place: Any, end: Any) -> Any:
    return np.int64(crc_on(np.uint64(ONES), source, place, end) ^ np.uint64(ONES))


@machine_code(TWO_CRCS(BYTES, ROOM, *[types.int64] * 3, types.uint64, types.uint64))
def copy_checked(source: Any, room: Any, place: Any, end: Any, to: Any, theirs: Any, ours: Any) -> Any:
    """Copy bytes that both batches share, and continue both CRCs in one read."""
    to -= place
    while place + 3 * SHORT <= end:
        first, second, third = np.uint64(0), np.uint64(0), np.uint64(0)
        for at in range(place, place + SHORT, 8):
            one, two, three = load_word(source, at), load_word(source, at + SHORT), load_word(source, at + 2 * SHORT)
            first, second, third = _step(first, one), _step(second, two), _step(third, three)
            _put_word(room, to + at, one)
            _put_word(room, to + at + SHORT, two)
            _put_word(room, to + at + 2 * SHORT, three)
        both = _carried(_TWO_SHORT, first) ^ _carried(_ONE_SHORT, second) ^ third
        theirs, ours = _carried(_THREE_SHORT, theirs) ^ both, _carried(_THREE_SHORT, ours) ^ both
        place += 3 * SHORT
    while place + 8 <= end:
        word = load_word(source, place)
        theirs, ours = _step(theirs, word), _step(ours, word)
        _put_word(room, to + place, word)
        place += 8
    for at in range(place, end):
        room[to + at] = source[at]
        theirs, ours = step_byte(theirs, source[at]), step_byte(ours, source[at])
    return theirs, ours


RECORD_GROWTH: Final = 24  # bytes by which a record can grow: length 4, timestamp 9, offset 4, and spare
SEEN_FIELDS: Final = 6
SEEN_EACH: Final = 5
SEEN_MAX: Final = 64 * SEEN_EACH
ROW_FIELDS: Final = 9
# Records of so many bytes on average are checked, copied and sealed in one pass; with smaller ones the first bytes
# cost more that way than a second pass.
ONE_PASS_BYTES: Final = 384
_BIG: Final = 1 << 61
_INT64_MIN: Final = -(1 << 63)
_HEADER: Final = 61


@intrinsic
def _swapped(typing: Any, word: Any) -> Any:
    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bswap(arguments[0])

    return types.uint64(types.uint64), build


@intrinsic
def _copy(typing: Any, room: Any, room_place: Any, source: Any, place: Any, size: Any) -> Any:
    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        into = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        data = context.make_array(signature.args[2])(context, builder, arguments[2]).data
        into, data = builder.gep(into, [arguments[1]]), builder.gep(data, [arguments[3]])
        cgutils.raw_memcpy(builder, into, data, arguments[4], 1)
        return context.get_dummy_value()

    return types.void(room, types.int64, source, types.int64, types.int64), build


@inlined
def big_endian(source: Any, place: Any, size: Any) -> Any:
    """Returns a signed big-endian number of `size` bytes; eight bytes must be readable from `place`."""
    return np.int64(_swapped(load_word(source, place))) >> np.int64(64 - 8 * size)


@inlined
def _put_varint(room: Any, place: Any, value: Any) -> Any:
    left = (np.uint64(value) << np.uint64(1)) ^ np.uint64(value >> np.int64(63))
    while left > np.uint64(127):
        room[place] = np.uint8((left & np.uint64(127)) | np.uint64(128))
        place += 1
        left >>= np.uint64(7)
    room[place] = np.uint8(left)
    return place + 1


@inlined
def _varint_size(value: Any) -> Any:
    left = (np.uint64(value) << np.uint64(1)) ^ np.uint64(value >> np.int64(63))
    size = 1
    while left > np.uint64(127):
        left >>= np.uint64(7)
        size += 1
    return size


@machine_code(types.UniTuple(types.int64, 2)(BYTES, types.int64, types.int64))
def read_varint(source: Any, place: Any, end: Any) -> Any:
    """Returns the number at `place` and its end; end -1 where malformed."""
    value, shift = np.uint64(0), np.uint64(0)
    while place < end and shift < np.uint64(70):
        byte = np.uint64(source[place])
        place += 1
        value |= (byte & np.uint64(127)) << shift
        if byte < np.uint64(128):
            return np.int64(value >> np.uint64(1)) ^ -np.int64(value & np.uint64(1)), place
        shift += np.uint64(7)
    return 0, -1


_SHIFTS = types.UniTuple(types.int64, 2)
_MOVED = types.Tuple([types.int64, types.int64, TWO_CRCS])


@machine_code(_MOVED(BYTES, ROOM, *[types.int64] * 4, _SHIFTS, types.int64, types.boolean, TWO_CRCS))
def _move_records(
    source: Any, room: Any, place: Any, end: Any, to: Any, count: Any, shifts: Any, latest: Any, large: Any, crcs: Any
) -> Any:
    """Move `count` records. Returns their end in `room` (-1: malformed), the latest time delta, and both CRCs,
    continued for `large` records only. `shifts`: of times and offsets.
    """
    theirs, ours = crcs
    for index in range(count):
        length, at = read_varint(source, place, end)
        record_end = at + length
        if at < 0 or length < 6 or record_end > end:
            return -1, latest, crcs
        late, after = read_varint(source, at + 1, record_end)
        if after < 0:
            return -1, latest, crcs
        number, rest = read_varint(source, after, record_end)
        if rest < 0 or number != index or late > _BIG or late < -_BIG:
            return -1, latest, crcs
        late += shifts[0]
        number += shifts[1]
        size, begin = record_end - rest, to
        to = _put_varint(room, to, 1 + _varint_size(late) + _varint_size(number) + size)
        room[to] = source[at]
        to = _put_varint(room, to + 1, late)
        to = _put_varint(room, to, number)
        if large:
            for one in range(place, rest):
                theirs = step_byte(theirs, source[one])
            for one in range(begin, to):
                ours = step_byte(ours, room[one])
            theirs, ours = copy_checked(source, room, rest, record_end, to, theirs, ours)
        else:
            _copy(room, to, source, rest, size)
        to += size
        latest = max(latest, late)
        place = record_end
    return (to if place == end else -1), latest, (theirs, ours)


@machine_code(types.int64(types.int64[:, ::1], types.int64, BYTES, types.int64, types.int64, types.int64))
def _note_producer(seen: Any, known: Any, source: Any, place: Any, base: Any, last_delta: Any) -> Any:
    """Keep each producer's last batches in offset order. Returns the number of rows, -1 when full."""
    producer = big_endian(source, place + 43, 8)
    if producer < 0:
        return known
    times, first = 0, 0
    for index in range(known):
        if seen[index, 0] == producer:
            if times == 0:
                first = index
            times += 1
    if times == SEEN_EACH:
        for index in range(first, known - 1):
            seen[index] = seen[index + 1]
        known -= 1
    if known == SEEN_MAX:
        return -1
    sequence = big_endian(source, place + 53, 4)
    seen[known, 0] = producer
    seen[known, 1] = big_endian(source, place + 51, 2)
    seen[known, 2] = sequence
    seen[known, 3] = (sequence + last_delta) % (1 << 31)
    seen[known, 4] = base
    seen[known, 5] = big_endian(source, place + 35, 8)
    return known + 1


@machine_code(types.void(BYTES, ROOM, *[types.int64] * 5, types.int64[::1], types.int64[:, ::1]))
def join_batches(
    source: Any, room: Any, place: Any, offset: Any, to: Any, below: Any, most: Any, row: Any, seen: Any
) -> None:
    """Join batches and fill `row`: end in the source, end of records in `room`, number of batches, next offset, first
    timestamp, latest time delta, last leader epoch, rows of `seen`, CRC of the records.
    """
    start, first_offset = to, offset
    batches, known = 0, 0
    base_time, latest, epoch = np.int64(0), np.int64(_INT64_MIN), np.int64(-1)
    ours = np.uint64(ONES)
    while place + _HEADER + 7 <= source.size:
        length = big_endian(source, place + 8, 4)
        end = place + 12 + length
        last_delta, count = big_endian(source, place + 23, 4), np.int64(np.uint32(big_endian(source, place + 57, 4)))
        body = length - 49
        if (
            big_endian(source, place, 8) != offset
            or source[place + 16] != 2
            or not 49 < length < below
            or end > source.size
            or big_endian(source, place + 21, 2) != 0
            or count != last_delta + 1
            or not 0 < count <= body
            or (batches and to - start + body > most)
            or to + body + count * RECORD_GROWTH > room.size
        ):
            break
        time = big_endian(source, place + 27, 8)
        if time > _BIG or time < -_BIG:
            break
        if batches == 0:
            base_time = time
        large = body >= count * ONE_PASS_BYTES
        theirs = crc_on(np.uint64(ONES), source, place + 21, place + _HEADER if large else end)
        shifts = time - base_time, offset - first_offset
        moved, late, crcs = _move_records(
            source, room, place + _HEADER, end, to, count, shifts, latest, large, (theirs, ours)
        )
        if moved < 0 or np.int64(crcs[0] ^ np.uint64(ONES)) != big_endian(source, place + 17, 4) & ONES:
            break
        noted = _note_producer(seen, known, source, place, offset, last_delta)
        if noted < 0:
            break
        ours = crcs[1] if large else crc_on(ours, room, to, moved)
        known, to, latest = noted, moved, late
        epoch = big_endian(source, place + 12, 4)
        batches += 1
        offset += count
        place = end
    row[0], row[1], row[2], row[3] = place, to, batches, offset
    row[4], row[5], row[6], row[7] = base_time, latest, epoch, known
    row[8] = np.int64(ours ^ np.uint64(ONES))


@machine_code(types.UniTuple(types.int64, 2)(BYTES, types.int64))
def last_of(source: Any, place: Any) -> Any:
    """Returns the offset after the last complete batch, -1 for none, and where that batch ends."""
    after = np.int64(-1)
    while place + _HEADER <= source.size - 8:
        end = place + 12 + big_endian(source, place + 8, 4)
        if end > source.size or end < place + _HEADER or source[place + 16] != 2:
            break
        after = big_endian(source, place, 8) + big_endian(source, place + 23, 4) + 1
        place = end
    return after, place
