"""Where MirrorMaker stopped with a partition, out of what both logs and its notes say. Only asks.

What cannot be proven is refused: at a wrong place records would be skipped, or carried twice, and nothing would tell.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TypeVar

from twinshore.fleet import NamedPartition
from twinshore.kafka.cluster import KafkaCluster
from twinshore.logs.looks import contents, copies
from twinshore.logs.visible import Dated
from twinshore.mirror.mapping.offset_syncs import TAIL_RECORDS, Note, Theirs, places, walk

T = TypeVar("T")
SEARCHED_RECORDS = 500_000
Span = tuple[int, int]
# MirrorMaker reads either what was committed, or all.
READINGS = (False, True)


class Unproven(Exception):
    """Why it cannot be said where to go on."""


class Evidence:
    """Of one link's two clusters. Spans are where logs begin and end; notes are the latest first."""

    def __init__(self, source: KafkaCluster, target: KafkaCluster) -> None:
        self._source, self._target = source, target

    def position(
        self, named: NamedPartition, twin: NamedPartition, span: Span, theirs: Span, notes: Sequence[Note]
    ) -> tuple[int, str]:
        """The source's offset to go on with, and how that is known; Unproven where it is not."""
        if span[0] == span[1]:
            return self._of_nothing(named, twin, span[1], notes)
        for note in notes:
            if note.source >= theirs[0]:
                walks = (self._walk(named, twin, span, theirs, note, committed=one) for one in READINGS)
                found = {at for at in walks if at is not None}
                if found:
                    return self._one(named, twin, found), f"record by record behind MirrorMaker's note of {note.source}"
        at, count = self._by_tail(named, twin, span, theirs)
        if notes:
            self._against(named, span, theirs, notes[0], at)
        return at, f"where the source holds the twin's last {count} records"

    def _of_nothing(
        self, named: NamedPartition, twin: NamedPartition, end: int, notes: Sequence[Note]
    ) -> tuple[int, str]:
        """Retention took all that was copied: only a note of the very last record still tells which that was."""
        last = [note for note in notes if note.target == end - 1]
        if not last:
            raise Unproven(f"{twin} held {end} records and holds none now: nothing tells which of {named} they were")
        return last[0].source + 1, f"behind MirrorMaker's note of {last[0].source}, the last record that the twin held"

    def _walk(
        self, named: NamedPartition, twin: NamedPartition, span: Span, theirs: Span, note: Note, *, committed: bool
    ) -> int | None:
        source = copies(self._source, named, note.source, theirs[1], committed=committed, theirs=True)
        begin = max(span[0], note.target)
        copy = copies(self._target, twin, begin, span[1], committed=True, theirs=False)
        return walk(source, copy, begin - note.target)

    def _by_tail(self, named: NamedPartition, twin: NamedPartition, span: Span, theirs: Span) -> tuple[int, int]:
        """The one place in all of the source that holds the copy's last records, and how many those are."""
        begin = max(span[0], span[1] - TAIL_RECORDS)
        tail = [one for _, one in copies(self._target, twin, begin, span[1], committed=True, theirs=False)]
        times = [one.timestamp_ms for one in tail if one.timestamp_ms is not None]
        if not tail or len(times) < len(tail):
            raise Unproven(
                f"where MirrorMaker stopped with {named} cannot be proven from {twin}'s records: none of its notes"
                " helps, and the records bear no time stamps of the source"
            )
        first = theirs[0]
        if len(tail) == TAIL_RECORDS and min(times) > 0:
            since = self._source.first_since(named, min(times))
            first = theirs[1] if since < 0 else max(first, since)
        found: set[int] = set()
        lasts: list[set[int]] = []
        for committed in READINGS:
            read = copies(self._source, named, first, theirs[1], committed=committed, theirs=True)
            last: set[int] = set()
            at = places(_noted(_bounded(read, named), tail[-1], last), tail)
            if len(at) > 1:
                raise Unproven(f"the source holds {twin}'s last {len(tail)} records of {named} {len(at)} times")
            found.update(at)
            lasts.append(last)
        if not found:
            raise Unproven(f"where MirrorMaker stopped with {named} cannot be proven from {twin}'s records")
        at_last = self._one(named, twin, found)
        if any(at_last in last and len(last) > 1 for last in lasts):
            # MirrorMaker may have begun again within those records, and copied others that are the same.
            raise Unproven(f"the source holds {twin}'s last record of {named} more than once")
        if len(tail) < TAIL_RECORDS and not self._whole(named, theirs[0], at_last):
            raise Unproven(
                f"{twin} holds only {len(tail)} records, and the source has lost some of {named}:"
                " the same may have been there before"
            )
        return at_last, len(tail)

    def _whole(self, named: NamedPartition, begin: int, at: int) -> bool:
        """Whether the source still has every record that it ever had below `at`."""
        return begin == 0 and sum(1 for _ in _bounded(contents(self._source, named, 0, at), named)) == at

    def _one(self, named: NamedPartition, twin: NamedPartition, found: set[int]) -> int:
        """The furthest, if no consumer sees anything between them."""
        low, high = min(found), max(found)
        if low < high and any(contents(self._source, named, low, high, committed=True)):
            raise Unproven(
                f"{twin}'s records are those of {named} up to {low} with an aborted transaction, and up to {high}"
                " without: nobody can tell which MirrorMaker read"
            )
        return high

    def _against(self, named: NamedPartition, span: Span, theirs: Span, note: Note, at: int) -> None:
        """Unproven where the last note contradicts: MirrorMaker goes on from there record by record."""
        since = span[1] - note.target
        lost = note.source < theirs[0]
        before = at <= note.source or (lost and at - note.source < since)
        seen = islice(contents(self._source, named, theirs[0], at), since + 1) if lost else ()
        if before or sum(1 for _ in seen) > since:
            raise Unproven(
                f"the source holds {named}'s last records on the target before {at}, and MirrorMaker's note of"
                f" {note.source} contradicts that"
            )


def _noted(records: Iterable[Theirs], ours: Dated, ends: set[int]) -> Iterator[Theirs]:
    """The records as they come; behind which of them one like `ours` ends goes into `ends`."""
    for one in records:
        if ours.copied_from(one[1]):
            ends.add(one[0] + 1)
        yield one


def _bounded(records: Iterable[T], named: NamedPartition) -> Iterator[T]:
    for count, one in enumerate(records):
        if count >= SEARCHED_RECORDS:
            raise Unproven(f"more than {SEARCHED_RECORDS:,} records of {named} would have to be searched")
        yield one
