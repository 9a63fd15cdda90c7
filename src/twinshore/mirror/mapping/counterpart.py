"""An offset of one side, on the other: out of the two extents around it; and which records of the source landed on a
mapped twin, where a fresh queue may have left some out between them. Pure.

Sequences count what was sent, so behind a pump that died they do not say what was dropped before it. The records
themselves do: those of the twin are some of the source's, in the same order. Where the source has a record more than
once, to the byte and the millisecond, the latest counts: then nothing is sent a second time.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from twinshore.fleet import SourceOffset, TargetOffset
from twinshore.fleet.extents import Extent, follow_on, source_end, target_end
from twinshore.mirror.lane.reach import Landed
from twinshore.wire.batch import next_sequence


def latest(landed: Sequence[int], offsets: array[int], marks: array[int]) -> list[int] | None:
    """At which of the source's `offsets`, whose records have these `marks`, the records lie that `landed` has the marks
    of, each as late as can be; None where they are not all there."""
    found = [0] * len(landed)
    at = len(marks)
    for number in range(len(landed) - 1, -1, -1):
        at -= 1
        while at >= 0 and marks[at] != landed[number]:
            at -= 1
        if at < 0:
            return None
        found[number] = offsets[at]
    return found


def extents_of(fresh: Iterable[Landed], offsets: Sequence[int]) -> list[Extent]:
    """What landed, with where each of its records lies on the source."""
    found: list[Extent] = []
    at = 0
    for one in fresh:
        for number in range(one.records):
            sequence = next_sequence(one.sequence, number)
            single = Extent(SourceOffset(offsets[at]), TargetOffset(one.target + number), 1, sequence)
            found[-1:] = follow_on(found[-1] if found else None, [single])
            at += 1
    return found


def between(begin: int, extents: Iterable[Extent]) -> list[tuple[int, int]]:
    """The offsets of the source from `begin` on that lie before and between these, in order."""
    found = []
    for one in extents:
        if one.source > begin:
            found.append((begin, int(one.source)))
        begin = source_end(one)
    return found


class Counterpart(NamedTuple):
    """Where an offset of one side is on the other. `exact`: the record itself is there; else it is the next one that
    both sides have."""

    offset: int
    exact: bool


def on_target(offset: SourceOffset, before: Extent | None, behind: Extent | None) -> Counterpart | None:
    """Where this offset of the source lies on the twin; None where no extent is known."""
    if before is not None and offset < source_end(before):
        return Counterpart(before.target + offset - before.source, exact=True)
    if behind is not None:
        return Counterpart(behind.target, exact=False)
    return None if before is None else Counterpart(target_end(before), exact=False)


def on_source(offset: TargetOffset, before: Extent | None, behind: Extent | None) -> Counterpart | None:
    """Where this offset of the twin came from; records that others wrote have none."""
    if before is not None and offset < target_end(before):
        return Counterpart(before.source + offset - before.target, exact=True)
    if behind is not None:
        return Counterpart(behind.source, exact=False)
    return None if before is None else Counterpart(source_end(before), exact=False)
