"""What kind of difference it is, by the records that follow it on both sides. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from twinshore.proof.record_bytes import shown
from twinshore.proof.values import Difference, DifferenceKind
from twinshore.wire.records import Record

AHEAD = 64  # Records of each side that are looked at to tell a moved record from a changed one.

_CHANGED = {
    "timestamp": DifferenceKind.CHANGED_TIMESTAMP,
    "key": DifferenceKind.CHANGED_KEY,
    "value": DifferenceKind.CHANGED_VALUE,
    "headers": DifferenceKind.CHANGED_HEADERS,
}


def first_difference(
    source: Sequence[Record], target: Sequence[Record], *, end: int = -1, placed: bool = True
) -> Difference | None:
    """Where two stretches of records part, and how; None where they do not.

    Both begin at the same place; the target's offsets are the source's, where they count (`placed`). `end` is how far
    both were read, beyond it nothing is missing; -1: to the end of both logs.
    """
    here = 0
    while here < len(source) and here < len(target) and _same(source[here], target[here], placed=placed):
        here += 1
    ours, theirs = list(source[here:]), list(target[here:])
    if placed and end >= 0:
        ours, theirs = ([one for one in side if one.offset < end] for side in (ours, theirs))
    if not ours and not theirs:
        return None
    at = min(side[0].offset for side in (ours, theirs) if side) if placed else ours[0].offset if ours else -1
    left = ours[0] if ours and (not placed or ours[0].offset == at) else None
    right = theirs[0] if theirs and (not placed or theirs[0].offset == at) else None
    kind, sentence = _kind(left, right, ours, theirs)
    offset = at if at >= 0 else source[-1].offset + 1 if source else theirs[0].offset
    return Difference(kind, offset, sentence, left and shown(left), right and shown(right))


def _kind(
    left: Record | None, right: Record | None, ours: Sequence[Record], theirs: Sequence[Record]
) -> tuple[DifferenceKind, str]:
    if right is None:
        assert left is not None
        return DifferenceKind.MISSING, "the target has no record for this one of the source"
    if left is None:
        return DifferenceKind.FOREIGN, "the target has a record where the source has none"
    here, there = _contents(ours), _contents(theirs)
    moved = _swapped(here, there)
    if moved:
        return DifferenceKind.SWAPPED, f"this record and the one {moved} further on have changed places"
    if _begins_alike(here[1:], there):
        return DifferenceKind.MISSING, "the target lacks this record; those that follow have moved up"
    if _begins_alike(here, there[1:]):
        return DifferenceKind.FOREIGN, "the target has a record that the source has not; those that follow moved down"
    fields = [name for name in _CHANGED if getattr(left, name) != getattr(right, name)]
    if len(fields) == 1:
        return _CHANGED[fields[0]], f"the record's {fields[0]} is another on the target{_where(left, right, fields[0])}"
    if "key" not in fields and "value" not in fields:
        return DifferenceKind.CHANGED_HEADERS, "the record's headers and timestamp are others on the target"
    return DifferenceKind.FOREIGN, f"the target has another record here: {', '.join(fields)} differ"


def _where(left: Record, right: Record, field: str) -> str:
    """Where in a key or value the first byte differs."""
    one, other = getattr(left, field), getattr(right, field)
    if not isinstance(one, bytes) or not isinstance(other, bytes):
        return ""
    at = next(
        (place for place, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
    )
    sizes = "" if len(one) == len(other) else f", which has {len(other)} bytes and not {len(one)}"
    return f", from byte {at} on{sizes}"


def _same(one: Record, other: Record, *, placed: bool) -> bool:
    return one[1:] == other[1:] and (not placed or one.offset == other.offset)


def _contents(records: Sequence[Record]) -> list[tuple[object, ...]]:
    return [record[1:] for record in records[:AHEAD]]


def _swapped(here: list[tuple[object, ...]], there: list[tuple[object, ...]]) -> int:
    """How far on the record lies that has changed places with the first; 0: none has."""
    for far in range(1, min(len(here), len(there))):
        if here[0] == there[far] and here[far] == there[0]:
            return far if here[1:far] == there[1:far] else 0
    return 0


def _begins_alike(here: list[tuple[object, ...]], there: list[tuple[object, ...]]) -> bool:
    """What follows on one side is what is there on the other, as far as both are known."""
    known = min(len(here), len(there))
    return known > 0 and here[:known] == there[:known]


def beginning(source: Sequence[Record], target: Sequence[Record]) -> tuple[int, int] | None:
    """Where both begin to be the same, as places in both; one of them is 0. None: nowhere.

    A single record that happens to be the same is not enough where more are known."""
    here, there = [record[1:] for record in source], [record[1:] for record in target]
    places = [(skipped, 0) for skipped in range(len(here))] + [(0, skipped) for skipped in range(1, len(there))]
    for i, j in sorted(places, key=sum):
        known = min(AHEAD, len(here) - i, len(there) - j)
        if here[i : i + known] == there[j : j + known] and known >= max(1, min(3, len(here), len(there))):
            return i, j
    return None
