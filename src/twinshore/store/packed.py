"""Many ranges of offsets as one short text: how far each begins behind the one before, and how long it is. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from twinshore.fleet import StoreError

Range = tuple[int, int]


def joined(ranges: Iterable[Range]) -> tuple[Range, ...]:
    """The same offsets in order; what touches or overlaps is one."""
    found: list[Range] = []
    for begin, end in sorted(ranges):
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((begin, end))
    return tuple(found)


def packed(ranges: Iterable[Range]) -> str:
    """As text; `unpacked` takes it back."""
    words, at = [], 0
    for begin, end in joined(ranges):
        words.append(f"{begin - at}+{end - begin}")
        at = end
    return " ".join(words)


def unpacked(text: str) -> tuple[Range, ...]:
    """StoreError where it is no such text."""
    found, at = list[Range](), 0
    for word in text.split():
        gap, plus, length = word.partition("+")
        if not (plus and gap.isdecimal() and length.isdecimal()):
            raise StoreError(f"the store's table incidents: no ranges of offsets: {word!r}", hint="who wrote it?")
        begin = at + int(gap)
        at = begin + int(length)
        found.append((begin, at))
    return tuple(found)
