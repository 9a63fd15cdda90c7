"""The protocol's small values, and JSON text of Twinshore's records on a cluster.

Readers take a buffer and a position, and return the value and the next position. Past the end they raise IndexError or
struct.error; each parser turns these into WireError once, by `truncated_error`. `PLAIN_ENCODING` has fixed lengths,
`COMPACT_ENCODING` varints and tags. JSON is bounded, because strangers may write there.
"""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import wraps
from typing import Any, Final, NamedTuple, ParamSpec, TypeAlias, TypeVar, cast

from twinshore.config.errors import WireError
from twinshore.kafka.protocol.apis import tags_in_request

KEY_BYTES_MAX = 2048
VALUE_BYTES_MAX = 1 << 16
PRINTABLE_CHARS_MAX = 512


def parse_json(text: bytes, bytes_max: int = VALUE_BYTES_MAX) -> Any:
    """Parse text that a stranger may have written. WireError for any fault."""
    if len(text) > bytes_max:
        raise WireError(f"a note of {len(text)} bytes")
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise WireError("a note that is not JSON") from error


def parse_json_or_none(text: bytes | None, bytes_max: int = VALUE_BYTES_MAX) -> Any:
    """Like `parse_json`; None for any fault."""
    try:
        return parse_json(text, bytes_max) if text else None
    except WireError:
        return None


def encode_json(value: object) -> bytes:
    """Encode a key or value of a record."""
    return json.dumps(value, separators=(",", ":")).encode()


def is_printable(text: str, chars_max: int = PRINTABLE_CHARS_MAX) -> bool:
    """Whether text may be shown unchanged. For compared values, which `to_printable` would change."""
    return len(text) <= chars_max and text.isprintable()


def to_printable(text: str) -> str:
    """Returns text safe for terminals and logs."""
    return "".join(sign if sign.isprintable() else "?" for sign in text[:PRINTABLE_CHARS_MAX])


Buffer: TypeAlias = bytes | memoryview
Parameters = ParamSpec("Parameters")
Value = TypeVar("Value")

I16 = struct.Struct(">h")
I32 = struct.Struct(">i")
I64 = struct.Struct(">q")
PAIR32 = struct.Struct(">ii")

NO_TAGS = b"\0"
PAST_END_ERRORS = (IndexError, struct.error)
_SHORT_VARINTS = [bytes([n]) if n < 0x80 else bytes([n & 0x7F | 0x80, n >> 7]) for n in range(1 << 14)]


class LongVarintError(WireError):
    """A varint longer than its field."""


def uvarint(value: int) -> bytes:
    """Encode a value that is not negative."""
    if value < 0x4000:
        return _SHORT_VARINTS[value]
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def varint(value: int) -> bytes:
    """Encode as a zigzag varint, as in records."""
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
    return _read_text(view, start, end), end


def _read_text(view: Buffer, start: int, end: int) -> str:
    try:
        return str(view[start:end], "utf-8")
    except UnicodeDecodeError as error:
        raise WireError("a string is not UTF-8", offset=start + error.start) from error


def read_uuid(view: Buffer, position: int) -> tuple[bytes, int]:
    end = position + 16
    if end > len(view):
        raise WireError("a topic id runs past the end", offset=position)
    return bytes(view[position:end]), end


def read_count(view: Buffer, position: int) -> tuple[int, int]:
    """Returns the length of a compact array; null counts as empty."""
    count, position = read_uvarint(view, position)
    return (count - 1 if count else 0), position


def skip_tags(view: Buffer, position: int) -> int:
    if view[position] == 0:
        return position + 1
    return read_tags(view, position)[1]


def read_tags(view: Buffer, position: int) -> tuple[dict[int, int], int]:
    """Returns where each tagged value begins."""
    starts: dict[int, int] = {}
    count, position = read_uvarint(view, position)
    for _ in range(count):
        tag, position = read_uvarint(view, position)
        size, position = read_uvarint(view, position)
        if position + size > len(view):
            raise WireError("a tagged field runs past the end", offset=position)
        starts[tag] = position
        position += size
    return starts, position


def truncated_error(what: str, view: Buffer) -> WireError:
    return WireError(f"{what} ends too early", offset=len(view))


def parser(what: str) -> Callable[[Callable[Parameters, Value]], Callable[Parameters, Value]]:
    """Decorates a function that parses its first argument: past its end it raises WireError."""

    def decorate(parse: Callable[Parameters, Value]) -> Callable[Parameters, Value]:
        @wraps(parse)
        def checked(*given: Parameters.args, **named: Parameters.kwargs) -> Value:
            try:
                return parse(*given, **named)
            except PAST_END_ERRORS as error:
                raise truncated_error(what, cast(Buffer, given[0])) from error

        return checked

    return decorate


def read_partitions(
    view: Buffer, position: int, fields: struct.Struct, *, tagged: bool = True
) -> tuple[list[tuple[str, tuple[Any, ...]]], int]:
    """Returns topic and `fields` of each partition in a compact array of topics."""
    found: list[tuple[str, tuple[Any, ...]]] = []
    topics, position = read_count(view, position)
    for _ in range(topics):
        topic, position = read_name(COMPACT_ENCODING, view, position)
        partitions, position = read_count(view, position)
        for _ in range(partitions):
            found.append((topic, fields.unpack_from(view, position)))
            position += fields.size
            position = skip_tags(view, position) if tagged else position
        position = skip_tags(view, position)
    return found, position


def write_partitions(topics: Collection[tuple[bytes, Sequence[bytes]]]) -> bytes:
    """Returns a compact array of topics, given by their encoded name or id, with their encoded partitions."""
    out = [uvarint(len(topics) + 1)]
    for topic, partitions in topics:
        out += [topic, uvarint(len(partitions) + 1), *partitions, NO_TAGS]
    return b"".join(out)


class Encoding(NamedTuple):
    """How a version writes strings, arrays and bytes. Null arrays and bytes have length -1. `read_length` returns a
    string's length and start.
    """

    string: Callable[[str | None], bytes]
    read_string: Callable[[Buffer, int], tuple[str | None, int]]
    read_length: Callable[[Buffer, int], tuple[int, int]]
    counted: Callable[[int], bytes]
    read_count: Callable[[Buffer, int], tuple[int, int]]
    sized: Callable[[int], bytes]
    read_size: Callable[[Buffer, int], tuple[int, int]]
    no_tags: bytes
    skip_tags: Callable[[Buffer, int], int]
    read_tags: Callable[[Buffer, int], tuple[dict[int, int], int]]


def plain_string(text: str | None) -> bytes:
    if text is None:
        return b"\xff\xff"
    encoded = text.encode()
    return I16.pack(len(encoded)) + encoded


def read_plain_string(view: Buffer, position: int) -> tuple[str | None, int]:
    (length,) = I16.unpack_from(view, position)
    start = position + I16.size
    if length < 0:
        return None, start
    end = start + length
    if end > len(view):
        raise WireError("a string runs past the end", offset=position)
    return _read_text(view, start, end), end


def _read_plain_length(view: Buffer, position: int) -> tuple[int, int]:
    return I16.unpack_from(view, position)[0], position + I16.size


def _read_plain_count(view: Buffer, position: int) -> tuple[int, int]:
    return max(-1, I32.unpack_from(view, position)[0]), position + I32.size


def _compact_count(count: int) -> bytes:
    return uvarint(count + 1)


def _read_compact_count(view: Buffer, position: int) -> tuple[int, int]:
    byte = view[position]
    if byte < 0x80:  # nearly always, and a call would cost most
        return byte - 1, position + 1
    count, position = read_uvarint(view, position)
    return count - 1, position


PLAIN_ENCODING: Final = Encoding(
    string=plain_string,
    read_string=read_plain_string,
    read_length=_read_plain_length,
    counted=I32.pack,
    read_count=_read_plain_count,
    sized=I32.pack,
    read_size=_read_plain_count,
    no_tags=b"",
    skip_tags=lambda _, position: position,
    read_tags=lambda _, position: ({}, position),
)
COMPACT_ENCODING: Final = Encoding(
    string=compact_string,
    read_string=read_compact_string,
    read_length=_read_compact_count,
    counted=_compact_count,
    read_count=_read_compact_count,
    sized=_compact_count,
    read_size=_read_compact_count,
    no_tags=NO_TAGS,
    skip_tags=skip_tags,
    read_tags=read_tags,
)


def encoding_of(key: int, version: int) -> Encoding:
    """Returns the encoding of bodies, of responses too, by the request header."""
    return COMPACT_ENCODING if tags_in_request(key, version) else PLAIN_ENCODING


def read_name(notation: Encoding, view: Buffer, position: int) -> tuple[str, int]:
    """Returns a string that must not be null."""
    text, after = notation.read_string(view, position)
    if text is None:
        raise WireError("a name is null", offset=position)
    return text, after


# By name or id.
Topic: TypeAlias = str | bytes
Item = TypeVar("Item")
_NOTHING: Final[Mapping[int, tuple[int, int]]] = {}


def read_topics(
    notation: Encoding,
    view: Buffer,
    position: int,
    by_id: bool,
    read: Callable[[Topic, int], tuple[Item, int]],
    *,
    elements_max: int = sys.maxsize,
) -> tuple[list[Item], int]:
    """Returns what `read` makes of each partition in an array of topics."""
    found: list[Item] = []
    topics, position = notation.read_count(view, position)
    for _ in range(topics):
        topic, position = read_uuid(view, position) if by_id else read_name(notation, view, position)
        count, position = notation.read_count(view, position)
        if topics + len(found) + count > elements_max:
            raise WireError(f"an array has more than {elements_max} topics and partitions")
        for _ in range(count):
            item, position = read(topic, position)
            found.append(item)
        position = notation.skip_tags(view, position)
    return found, position


def read_pairs(
    notation: Encoding, view: Buffer, position: int, known: Mapping[int, struct.Struct]
) -> tuple[Mapping[int, tuple[int, int]], int]:
    """Returns tagged fields of two numbers, by tag."""
    if not notation.no_tags:
        return _NOTHING, position
    if view[position] == 0:
        return _NOTHING, position + 1
    starts, position = notation.read_tags(view, position)
    return {tag: known[tag].unpack_from(view, start) for tag, start in starts.items() if tag in known}, position


def read_bytes(notation: Encoding, view: memoryview, position: int, what: str) -> tuple[memoryview | None, int]:
    """Returns a view of the bytes, or None for null."""
    size, start = notation.read_size(view, position)
    if size < 0:
        return None, start
    end = start + size
    if end > len(view):
        raise WireError(f"{what} run past the end", offset=position)
    return view[start:end], end
