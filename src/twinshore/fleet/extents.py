"""Where a mapped twin's records lie: neighbours at one difference become one, nothing is told twice. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from twinshore.fleet.nouns import SourceOffset, TargetOffset

SEQUENCES = 2**31


class Extent(NamedTuple):
    """A mapped twin's records from `source` on lie from `target` on: `length` of them, one behind the other.

    `sequence` is the link's own of the first one. Length 0: nothing yet, the next record goes to `target` or behind it.
    """

    source: SourceOffset
    target: TargetOffset
    length: int
    sequence: int


def source_end(extent: Extent) -> SourceOffset:
    """The offset of the source behind its last record."""
    return SourceOffset(extent.source + extent.length)


def target_end(extent: Extent) -> TargetOffset:
    """The offset of the twin behind its last record."""
    return TargetOffset(extent.target + extent.length)


def without_first(extent: Extent, count: int) -> Extent:
    """The extent without its first records."""
    source, target = SourceOffset(extent.source + count), TargetOffset(extent.target + count)
    return Extent(source, target, extent.length - count, (extent.sequence + count) % SEQUENCES)


def joined(first: Extent, second: Extent) -> Extent | None:
    """Both as one, where the second begins right behind the first on either side; else None."""
    if source_end(first) == second.source and target_end(first) == second.target:
        return first._replace(length=first.length + second.length)
    return None


def follow_on(known: Extent | None, fresh: Iterable[Extent]) -> list[Extent]:
    """What stands from the last known extent on, after those gained since; given in order. What reaches no further than
    what is known is a repetition."""
    standing: list[Extent] = [] if known is None else [known]
    for one in fresh:
        last = standing[-1] if standing else None
        if last is not None and source_end(last) > one.source:
            one = without_first(one, min(one.length, source_end(last) - one.source))
        if not one.length and standing:
            continue
        together = joined(last, one) if last is not None else None
        if together is not None:
            standing[-1] = together
        elif last is not None and not last.length and last.source == one.source:
            standing[-1] = one
        else:
            standing.append(one)
    return standing
