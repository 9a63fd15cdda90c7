"""How far a mapped twin is written, and what landed beyond that: worked out from the batches' own sequences. Pure.

Sequences count the records that this link appended, so the broker compares and swaps as on an exact twin. What a dead
pump told nobody of is found again: the twin has our batches with their sequences, and the source, read from the reach
on, says which record each sequence is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from twinshore.fleet import SourceOffset, TargetOffset
from twinshore.fleet.extents import Extent, follow_on, source_end, target_end
from twinshore.wire.batch import SEQUENCE_SPAN, next_sequence


class Reach(NamedTuple):
    """The next record has `sequence`; it lies at `source` or behind it and will land at `target` or behind it.

    `warm`: told by a pump that was at work until now, so that nothing older can have landed beyond it. The last record
    that landed is that of `last_source`, at `last_target`; -1 where none has."""

    source: int
    target: int
    sequence: int
    warm: bool = False
    last_source: int = -1
    last_target: int = -1

    def passed(self, told_to: int) -> Reach:
        """The reach of a twin that was told to have all below `told_to`: what lies behind the last record and below,
        nobody sees, so it takes no place on the twin."""
        return self._replace(source=max(self.source, told_to))

    def ahead(self, sequence: int) -> int:
        """How many records this sequence lies ahead of the reach's; negative for one before it."""
        distance = (sequence - self.sequence) % SEQUENCE_SPAN
        return distance if distance < SEQUENCE_SPAN // 2 else distance - SEQUENCE_SPAN


class Landed(NamedTuple):
    """A batch of this link's that lies on the twin."""

    target: int
    records: int
    sequence: int


class Unclear(NamedTuple):
    """What landed cannot be told from what is there."""

    sentence: str


def reach_of(extent: Extent) -> Reach:
    """The reach behind an extent."""
    found = Reach(source_end(extent), target_end(extent), next_sequence(extent.sequence, extent.length))
    return found._replace(last_source=found.source - 1, last_target=found.target - 1) if extent.length else found


def beyond(reach: Reach, found: Iterable[Landed]) -> list[Landed] | Unclear:
    """The batches that landed beyond the reach, without a gap in their sequences; those before it are known already.

    A compacted twin may have lost a batch between two others. Where as many offsets as sequences are missing, all of
    them were ours: nobody else's record fits in between.
    """
    fresh: list[Landed] = []
    at, end = 0, reach.target
    for batch in found:
        ahead = reach.ahead(batch.sequence)
        if ahead + batch.records <= at:
            continue
        if ahead < at:
            batch = Landed(batch.target + at - ahead, batch.records - (at - ahead), next_sequence(reach.sequence, at))
            ahead = at
        missing = ahead - at
        if missing and missing != batch.target - end:
            return Unclear(f"{missing} records before offset {batch.target} are the link's, and it is not known where")
        if missing:
            fresh.append(Landed(end, missing, next_sequence(reach.sequence, at)))
        fresh.append(batch)
        at, end = ahead + batch.records, batch.target + batch.records
    return fresh


def complete(reach: Reach, fresh: Iterable[Landed], runs: Iterable[tuple[int, int]]) -> list[Extent] | Unclear:
    """The extents of what landed beyond the reach. `runs` are offsets [first, end) that consumers of the source see,
    from the reach on, in order."""
    seen = _pieces(reach, runs)
    found: list[Extent] = []
    first = end = 0
    for target, count, sequence in fresh:
        while count:
            if first == end:
                first, end = next(seen, (0, 0))
                if first == end:
                    return Unclear(f"the twin holds more of the link's records than the source, from {target} on")
            size = min(count, end - first)
            found.append(Extent(SourceOffset(first), TargetOffset(target), size, sequence))
            first, target, count = first + size, target + size, count - size
            sequence = next_sequence(sequence, size)
    return follow_on(None, found)


def _pieces(reach: Reach, runs: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    for first, end in runs:
        if end > reach.source:
            yield max(first, reach.source), end
