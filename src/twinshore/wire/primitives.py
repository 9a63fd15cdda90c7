"""The protocol's small values: unsigned and zigzag varints, compact strings, tagged fields.

Readers take a buffer and a position and return the value and the position after it. They raise IndexError or
struct.error past the end; `truncated` turns those into WireError once, at each walker's edge.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TypeAlias

from twinshore.fleet.errors import WireError

Buffer: TypeAlias = bytes | memoryview

I16 = struct.Struct(">h")
I32 = struct.Struct(">i")
I64 = struct.Struct(">q")
PAIR32 = struct.Struct(">ii")

NO_TAGS = b"\0"
PAST_END = (IndexError, struct.error)
_SHORT_VARINTS = [bytes([n]) if n < 0x80 else bytes([n & 0x7F | 0x80, n >> 7]) for n in range(1 << 14)]


class LongVarintError(WireError):
    """A varint that goes on beyond the bits its field has."""


def uvarint(value: int) -> bytes:
    """Unsigned varint of a value that is not negative."""
    if value < 0x4000:
        return _SHORT_VARINTS[value]
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def varint(value: int) -> bytes:
    """Zigzag varint, as records use it for lengths, deltas and counts."""
    if 0 <= value < 0x2000:
        return _SHORT_VARINTS[value << 1]
    return uvarint(value << 1 if value >= 0 else (-value << 1) - 1)


def read_uvarint(view: Buffer, position: int, limit_bits: int = 32) -> tuple[int, int]:
    byte = view[position]
    if byte < 0x80:
        return byte, position + 1
    value = byte & 0x7F
    start = position
    byte = view[position + 1]
    if byte < 0x80:
        return value | byte << 7, position + 2
    shift = 7
    while True:
        position += 1
        byte = view[position]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift >= limit_bits:
            raise LongVarintError(f"a varint is longer than {limit_bits} bits", offset=start)
    if value >> limit_bits:
        raise LongVarintError(f"a varint is longer than {limit_bits} bits", offset=start)
    return value, position + 1


def read_varint(view: Buffer, position: int, limit_bits: int = 32) -> tuple[int, int]:
    value, position = read_uvarint(view, position, limit_bits)
    return (value >> 1) ^ -(value & 1), position


def compact_string(text: str | None) -> bytes:
    if text is None:
        return b"\0"
    encoded = text.encode()
    return uvarint(len(encoded) + 1) + encoded


def read_compact_string(view: Buffer, position: int) -> tuple[str | None, int]:
    length, start = view[position], position + 1
    if length >= 0x80:
        length, start = read_uvarint(view, position)
    if length == 0:
        return None, start
    end = start + length - 1
    if end > len(view):
        raise WireError("a string runs past the end", offset=position)
    try:
        return str(view[start:end], "utf-8"), end
    except UnicodeDecodeError as error:
        raise WireError("a string is not UTF-8", offset=start + error.start) from error


def read_uuid(view: Buffer, position: int) -> tuple[bytes, int]:
    end = position + 16
    if end > len(view):
        raise WireError("a topic id runs past the end", offset=position)
    return bytes(view[position:end]), end


def read_count(view: Buffer, position: int) -> tuple[int, int]:
    """Length of a compact array; a null array counts as empty."""
    count, position = read_uvarint(view, position)
    return (count - 1 if count else 0), position


def skip_tags(view: Buffer, position: int) -> int:
    if view[position] == 0:
        return position + 1
    return read_tags(view, position, {})


def read_tags(view: Buffer, position: int, handlers: dict[int, Callable[[Buffer, int], None]]) -> int:
    """Calls the handler of each known tag with the position of its value; skips the others."""
    count, position = read_uvarint(view, position)
    for _ in range(count):
        tag, position = read_uvarint(view, position)
        size, position = read_uvarint(view, position)
        if position + size > len(view):
            raise WireError("a tagged field runs past the end", offset=position)
        handler = handlers.get(tag)
        if handler is not None:
            handler(view, position)
        position += size
    return position


def truncated(what: str, view: Buffer) -> WireError:
    return WireError(f"{what} ends too early", offset=len(view))
