"""Checks a response before kio parses it.

kio allocates an array by its claimed count, so a false count can kill the process. kio also rejects unknown tags.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from functools import cache
from struct import Struct
from types import NoneType, UnionType
from typing import Any, Final, TypeAlias, Union, get_args, get_origin

from kio.static.protocol import Entity

from twinshore.config.errors import WireError
from twinshore.kafka.protocol.primitives import I16, I32, read_uvarint, uvarint

# Returns the end of the value at a position; edits are added to the list.
Edit: TypeAlias = tuple[int, int, bytes]
Skipper: TypeAlias = Callable[[memoryview, int, "EditList"], int]

_SIZES: Final = {
    **dict.fromkeys(("bool", "int8", "uint8"), 1),
    **dict.fromkeys(("int16", "uint16", "error_code"), 2),
    **dict.fromkeys(("int32", "uint32", "timedelta_i32"), 4),
    **dict.fromkeys(("int64", "uint64", "float64", "timedelta_i64", "datetime_i64"), 8),
    "uuid": 16,
}
_LENGTHS: Final = {"string": I16, "bytes": I32, "records": I32}


class EditList(list[Edit]):
    """Edits of one message. `left`: how many more array elements are allowed."""

    left = sys.maxsize


def check_response(body: memoryview, answer: type[Entity], elements_max: int = sys.maxsize) -> memoryview:
    """Returns the body without tags unknown to kio. WireError, or one of `primitives.PAST_END_ERRORS`, where it is
    shorter than claimed or has more than `elements_max` array elements.
    """
    cuts = EditList()
    cuts.left = elements_max
    return _mended(body, skipper_of(answer), cuts)


@cache
def skipper_of(entity: type[Entity]) -> Skipper:
    """Returns a function that skips one value of this type."""
    flexible = bool(entity.__flexible__)
    tagged: dict[int, Skipper] = {}
    steps: list[int | Skipper] = []
    for field in dataclasses.fields(entity):
        step = _step(field, flexible)
        if "tag" in field.metadata:
            tagged[int(field.metadata["tag"])] = _in_a_row([step])
        else:
            steps.append(step)
    if flexible:
        steps.append(_tags(tagged))
    return _in_a_row(steps)


def _step(field: dataclasses.Field[Any], flexible: bool) -> int | Skipper:
    """Returns the fixed size of the field, or a function that skips it."""
    kind, nullable = _inner(field.type)
    if get_origin(kind) is not tuple:
        return _single(field, kind, nullable, flexible)
    inner, null_inside = _inner(get_args(kind)[0])
    return _array(_single(field, inner, null_inside, flexible), flexible)


def _single(field: dataclasses.Field[Any], kind: Any, nullable: bool, flexible: bool) -> int | Skipper:
    if dataclasses.is_dataclass(kind):
        walk = skipper_of(kind)  # type: ignore[arg-type]
        return _perhaps(walk) if nullable else walk
    name = field.metadata["kafka_type"]
    return _SIZES[name] if name in _SIZES else _text(name, flexible)


def _inner(kind: Any) -> tuple[Any, bool]:
    """Returns the type, and whether null is allowed."""
    if get_origin(kind) not in (UnionType, Union):
        return kind, False
    (found,) = [one for one in get_args(kind) if one is not NoneType]
    return found, True


def _in_a_row(steps: list[int | Skipper]) -> Skipper:
    """Combine steps, neighbours of fixed size into one: most fields are numbers."""
    merged: list[tuple[int, Skipper | None]] = []
    size = 0
    for step in steps:
        if isinstance(step, int):
            size += step
        else:
            merged.append((size, step))
            size = 0
    if size:
        merged.append((size, None))

    def walk(view: memoryview, at: int, cuts: EditList) -> int:
        for before, then in merged:
            at += before
            if then is not None:
                at = then(view, at, cuts)
        return at

    return walk


def _text(name: str, flexible: bool) -> Skipper:
    legacy = _LENGTHS[name]

    def walk(view: memoryview, at: int, _: EditList) -> int:
        length, at = _length(view, at, None if flexible else legacy)
        return _within(view, at + max(0, length), name)

    return walk


def _array(step: int | Skipper, flexible: bool) -> Skipper:
    def walk(view: memoryview, at: int, cuts: EditList) -> int:
        count, at = _length(view, at, None if flexible else I32)
        if count <= 0:
            return at
        cuts.left -= count
        if cuts.left < 0:
            raise WireError("it has more elements than are taken")
        if isinstance(step, int):
            return _within(view, at + count * step, "array")
        _within(view, at + count, "array")  # an element takes a byte at least
        for _ in range(count):
            at = step(view, at, cuts)
        return at

    return walk


def _length(view: memoryview, at: int, legacy: Struct | None) -> tuple[int, int]:
    """Returns a text's or array's length, -1 for null, and its start. `legacy`: the format of inflexible versions."""
    if legacy is None:
        length, at = read_uvarint(view, at)
        return length - 1, at
    return int(legacy.unpack_from(view, at)[0]), at + legacy.size


def _perhaps(inner: Skipper) -> Skipper:
    """Skip a nullable structure, which has a marker byte."""

    def walk(view: memoryview, at: int, cuts: EditList) -> int:
        return inner(view, at + 1, cuts) if view[at] < 0x80 else at + 1

    return walk


def _tags(known: dict[int, Skipper]) -> Skipper:
    def walk(view: memoryview, at: int, cuts: EditList) -> int:
        if view[at] == 0:
            return at + 1
        kept: list[bytes] = []
        start, strange = at, False
        count, at = read_uvarint(view, at)
        for _ in range(count):
            tag, at = read_uvarint(view, at)
            size, at = read_uvarint(view, at)
            end = _within(view, at + size, "tagged field")
            value, at = view[at:end], end
            if tag in known:
                inside = EditList()
                inside.left = cuts.left
                mended = _mended(value, known[tag], inside)
                cuts.left = inside.left
                kept.append(uvarint(tag) + uvarint(len(mended)) + mended)
                strange = strange or mended is not value
            else:
                strange = True
        if strange:
            cuts.append((start, at, uvarint(len(kept)) + b"".join(kept)))
        return at

    return walk


def _mended(view: memoryview, walk: Skipper, cuts: EditList) -> memoryview:
    _within(view, walk(view, 0, cuts), "value")
    if not cuts:
        return view
    parts: list[bytes | memoryview] = []
    after = 0
    for start, end, instead in cuts:
        parts += view[after:start], instead
        after = end
    return memoryview(b"".join([*parts, view[after:]]))


def _within(view: memoryview, end: int, what: str) -> int:
    if end > len(view):
        article = "an" if what[0] in "aeiou" else "a"
        raise WireError(f"{article} {what} runs past the end", offset=len(view))
    return end
