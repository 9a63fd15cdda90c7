"""CRC-32C compiled to machine code, and what all compiled loops stand on; without numba this cannot be imported.

A CRC is linear: several stretches are walked at a time, and each one's CRC is carried over the bytes that follow it.
So a stretch that two batches have alike is read once and counts for both.
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

from twinshore.wire.crc import carry_tables

_Function = TypeVar("_Function", bound=Callable[..., Any])

ONES: Final = 0xFFFFFFFF
# What could not be kept on disk: each process compiles it for itself.
UNKEPT: Final[list[str]] = []
BYTES = types.Array(types.uint8, 1, "C", readonly=True)
ROOM = types.uint8[::1]
TWO_CRCS = types.UniTuple(types.uint64, 2)


def machine_code(signature: Any) -> Callable[[_Function], _Function]:
    """Compiled when the module is loaded, and kept on disk for the next process."""

    def compiled(function: _Function) -> _Function:
        try:
            made: _Function = njit(signature, cache=True, nogil=True, boundscheck=False)(function)
        except Exception:  # nothing may be written here, the disk is full, what was kept is cut: compiled each time
            made = njit(signature, nogil=True, boundscheck=False)(function)
            UNKEPT.append(function.__name__)
        return made

    return compiled


def inlined(function: _Function) -> _Function:
    """Becomes part of each function that calls it."""
    made: _Function = njit(inline="always")(function)
    return made


def _crc_instruction() -> tuple[str, int] | None:
    """The processor's own step of CRC-32C over eight bytes, and the width of its register."""
    features = binding.get_host_cpu_features()
    if platform.machine() in {"x86_64", "AMD64"} and features.get("sse4.2"):
        return "llvm.x86.sse42.crc32.64.64", 64
    if platform.machine() in {"aarch64", "arm64"} and features.get("crc"):
        return "llvm.aarch64.crc32cx", 32
    return None


_INSTRUCTION = _crc_instruction()


@intrinsic
def load_word(typing: Any, array: Any, place: Any) -> Any:
    """Eight bytes at `place`, the first one lowest."""

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
_ONE_LANE = np.array(carry_tables(LANE), dtype=np.uint64)
_TWO_LANES = np.array(carry_tables(2 * LANE), dtype=np.uint64)
SHORT: Final = 64
_ONE_SHORT = np.array(carry_tables(SHORT), dtype=np.uint64)
_TWO_SHORT = np.array(carry_tables(2 * SHORT), dtype=np.uint64)
_THREE_SHORT = np.array(carry_tables(3 * SHORT), dtype=np.uint64)


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
    """Goes on with a CRC. A step waits for the one before it, so three lanes are walked at a time."""
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
    """The CRC-32C of a part of `source`."""
    return np.int64(crc_on(np.uint64(ONES), source, place, end) ^ np.uint64(ONES))


@machine_code(TWO_CRCS(BYTES, ROOM, *[types.int64] * 3, types.uint64, types.uint64))
def copy_checked(source: Any, room: Any, place: Any, end: Any, to: Any, theirs: Any, ours: Any) -> Any:
    """Copies what both batches have alike, and goes on with the CRC of each: read once, a stretch counts for both."""
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
