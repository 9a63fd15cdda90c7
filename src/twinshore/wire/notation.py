"""How versions of APIs write strings, arrays and bytes: `PLAIN` with fixed lengths, `COMPACT` with varints and tags."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from twinshore.fleet.errors import WireError
from twinshore.wire.apis import tags_in_request
from twinshore.wire.primitives import (
    I16,
    I32,
    NO_TAGS,
    Buffer,
    compact_string,
    read_compact_string,
    read_tags,
    read_uvarint,
    skip_tags,
    uvarint,
)

Handlers = dict[int, Callable[[Buffer, int], None]]


class Notation(NamedTuple):
    """Each reader returns a value and the position after it. A null array or null bytes have -1 elements. `read_length`
    is that of a string, which begins at the position after it."""

    string: Callable[[str | None], bytes]
    read_string: Callable[[Buffer, int], tuple[str | None, int]]
    read_length: Callable[[Buffer, int], tuple[int, int]]
    counted: Callable[[int], bytes]
    read_count: Callable[[Buffer, int], tuple[int, int]]
    sized: Callable[[int], bytes]
    read_size: Callable[[Buffer, int], tuple[int, int]]
    no_tags: bytes
    skip_tags: Callable[[Buffer, int], int]
    read_tags: Callable[[Buffer, int, Handlers], int]


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
    try:
        return str(view[start:end], "utf-8"), end
    except UnicodeDecodeError as error:
        raise WireError("a string is not UTF-8", offset=start + error.start) from error


def _read_plain_length(view: Buffer, position: int) -> tuple[int, int]:
    return I16.unpack_from(view, position)[0], position + I16.size


def _read_plain_count(view: Buffer, position: int) -> tuple[int, int]:
    return max(-1, I32.unpack_from(view, position)[0]), position + I32.size


def _compact_count(count: int) -> bytes:
    return uvarint(count + 1)


def _read_compact_count(view: Buffer, position: int) -> tuple[int, int]:
    byte = view[position]
    if byte < 0x80:  # nearly always, and a call is most of what it costs
        return byte - 1, position + 1
    count, position = read_uvarint(view, position)
    return count - 1, position


def _no_tags_here(_view: Buffer, position: int, _handlers: Handlers | None = None) -> int:
    return position


PLAIN: Final = Notation(
    string=plain_string,
    read_string=read_plain_string,
    read_length=_read_plain_length,
    counted=I32.pack,
    read_count=_read_plain_count,
    sized=I32.pack,
    read_size=_read_plain_count,
    no_tags=b"",
    skip_tags=_no_tags_here,
    read_tags=_no_tags_here,
)
COMPACT: Final = Notation(
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


def notation_of(key: int, version: int) -> Notation:
    """Bodies are written as the request's header says, those of answers too."""
    return COMPACT if tags_in_request(key, version) else PLAIN


def read_name(notation: Notation, view: Buffer, position: int) -> tuple[str, int]:
    """A string that may not be null."""
    text, after = notation.read_string(view, position)
    if text is None:
        raise WireError("a name is null", offset=position)
    return text, after
