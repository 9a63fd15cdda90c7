"""Where MirrorMaker stopped with a partition, out of what both logs and its notes say. Only asks.

What cannot be proven is refused: at a wrong place records would be skipped, or carried twice, and nothing would tell.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TypeVar

from twinshore.fleet import Link, MappedFrom, NamedPartition, SourceOffset, TargetOffset, WireError
from twinshore.fleet.extents import Extent
from twinshore.fleet.incidents import IncidentKind
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.questions import OffsetKind
from twinshore.logs.looks import batches, bounds, contents, copies
from twinshore.logs.visible import Dated
from twinshore.mirror.mapping.offset_syncs import (
    TAIL_RECORDS,
    Note,
    Theirs,
    best_notes,
    gather,
    notes_topic,
    places,
    walk,
)
from twinshore.mirror.planned import CarryTopic, Refuse
from twinshore.service.clock import wall_ms
from twinshore.store import Store, TwinRow
from twinshore.wire.batch import CONTROL, next_sequence
from twinshore.wire.records import iter_records

UNPROVEN = IncidentKind.POSITION_DISAGREEMENT
HINT = "stop what else copies it; or set mapped_from to start or end if that is what you mean"
UNREADABLE_HINT = "let the topic's owner mend or delete what cannot be read, or set mapped_from to start or end"
Notes = dict[NamedPartition, list[Note]]
# A partition that goes on there, and how that is known.
Row = tuple[TwinRow, Extent, str]
T = TypeVar("T")
SEARCHED_RECORDS = 500_000
Span = tuple[int, int]
# MirrorMaker reads either what was committed, or all.
READINGS = (False, True)


class Positions:
    """For one link and one thread."""

    def __init__(self, link: Link, source: KafkaCluster, target: KafkaCluster, store: Store) -> None:
        self._link, self._source, self._target, self._store = link, source, target, store
        self._evidence = Evidence(source, target)

    def propose(self, steps: Sequence[CarryTopic]) -> tuple[list[Row], list[Refuse]]:
        """Where each partition that is to be adopted goes on, and how that is known. Nothing is changed by asking."""
        rows: list[Row] = []
        refused: list[Refuse] = []
        notes: Notes | None = None
        for step, numbers in self.to_adopt(steps):
            # A log or a note that nobody understands is one topic's trouble.
            try:
                notes = self.notes() if notes is None else notes
                rows += self.of(step, numbers, notes)
            except (Unproven, WireError) as error:
                refused.append(refusal(step, error))
        return rows, refused

    def to_adopt(self, steps: Sequence[CarryTopic]) -> list[tuple[CarryTopic, list[int]]]:
        """The mapped topics among these with their partitions of which nothing is known yet."""
        reached = self._store.extents.reached(self._link.name) if any(step.mapped for step in steps) else {}
        found = [
            (step, [n for n in range(step.partitions) if step.mapped and (step.topic, n) not in reached])
            for step in steps
        ]
        return [(step, numbers) for step, numbers in found if numbers]

    def of(self, step: CarryTopic, numbers: Sequence[int], notes: Notes) -> list[Row]:
        """All of these partitions, or Unproven."""
        return [self._begin(step, number, notes, grown=len(numbers) < step.partitions) for number in numbers]

    def ends(self, step: CarryTopic, numbers: Sequence[int]) -> tuple[int, ...]:
        """Where both sides' logs of these partitions end."""
        sides = ((self._source, step.topic), (self._target, step.twin or step.topic))
        found = []
        for cluster, topic in sides:
            named = [NamedPartition(topic, number) for number in numbers]
            ends = cluster.list_offsets(named, OffsetKind.LOG_END)
            found += [ends[one] for one in named]
        return tuple(found)

    def notes(self) -> Notes:
        """What MirrorMaker has noted of its offsets, where the link goes on behind it."""
        return self._notes() if self._link.mapped_from is MappedFrom.MIRRORMAKER else {}

    def _begin(self, step: CarryTopic, number: int, notes: Notes, *, grown: bool) -> Row:
        named, twin = NamedPartition(step.topic, number), NamedPartition(step.twin or step.topic, number)
        span, theirs = bounds(self._target, twin), bounds(self._source, named)
        stated = self._stated(span, theirs, grown=grown)
        where, how = stated or self._evidence.position(named, twin, span, theirs, best_notes(notes, named, span[1]))
        if stated is None and bounds(self._target, twin)[1] != span[1]:
            raise Unproven(f"{twin} is still being written: MirrorMaker, or another, is at work on it")
        sequence = self._sequence(twin)
        extent = Extent(SourceOffset(where), TargetOffset(span[1]), 0, sequence)
        ids = (step.source_topic_id, step.target_topic_id)
        row = TwinRow(self._link.name, step.topic, number, *ids, where, sequence, wall_ms())
        return row, extent, how

    def _stated(self, span: tuple[int, int], theirs: tuple[int, int], *, grown: bool) -> tuple[int, str] | None:
        """Where the settings say it goes on, or where nothing was ever copied. `grown`: neighbours of it are carried
        already, so the partition is new, and all of it comes from now on."""
        never = span[1] == 0
        if self._link.mapped_from is MappedFrom.END and not (never and grown):
            return theirs[1], "the source's end, as set"
        if never:
            return theirs[0], "since the twin has never held anything"
        return (theirs[0], "the source's beginning, as set") if self._link.mapped_from is MappedFrom.START else None

    def _sequence(self, twin: NamedPartition) -> int:
        """The link may have written here before its topic was forgotten: its producer goes on counting then."""
        identity = self._store.links.identity(self._link.name)
        states = self._target.describe_producers([twin])[twin] if identity else []
        ours = [one for one in states if identity and one.producer_id == identity.producer_id]
        return next_sequence(ours[0].last_sequence, 1) if ours else 0

    def _notes(self) -> Notes:
        """MirrorMaker's notes lie on the source or on the target, as it was set."""
        for cluster, alias in ((self._source, self._link.target), (self._target, self._link.source)):
            topic = notes_topic(cluster.metadata(None).topics, alias)
            if topic:
                named = NamedPartition(topic, 0)
                start, end = bounds(cluster, named)
                read = batches(cluster, named, start, end, committed=True)
                plain = (pair for pair in read if not pair[1].attributes & CONTROL)
                return gather(record for view, header in plain for record in iter_records(view, header))
        return {}


def refusal(step: CarryTopic, error: Exception) -> Refuse:
    """Of a topic where nobody can say where to go on, or whose bytes or notes nobody understands."""
    if isinstance(error, Unproven):
        return Refuse(step.topic, UNPROVEN, str(error), HINT)
    sentence = f"where to go on with topic {step.topic} cannot be proven: {error}"
    return Refuse(step.topic, UNPROVEN, sentence, UNREADABLE_HINT)


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
