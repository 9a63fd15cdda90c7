"""Takes on target topics that hold data already: where the link goes on in the source, proven or stated."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import islice

from twinshore.fleet import Link, MappedFrom, NamedPartition, SourceOffset, TargetOffset
from twinshore.fleet.extents import Extent
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.questions import OffsetKind
from twinshore.mirror.mapping.offset_syncs import TAIL_RECORDS, Note, align, best_notes, gather, notes_topic, walk
from twinshore.mirror.mapping.reading import batches, contents
from twinshore.mirror.plan import CarryTopic, Refuse
from twinshore.store import Store, TwinRow
from twinshore.wire.batch import CONTROL, next_sequence
from twinshore.wire.records import iter_records

SEARCHED_RECORDS = 500_000
AGAIN_S = 30.0
UNPROVEN = "position disagreement"


class Unproven(Exception):
    """Why it cannot be said where to go on."""


class Adopter:
    """For one link. `log` hears where each adopted partition goes on."""

    def __init__(
        self, link: Link, source: KafkaCluster, target: KafkaCluster, store: Store, log: Callable[[str], None]
    ) -> None:
        self._link, self._source, self._target, self._store, self._log = link, source, target, store, log
        self._refused: dict[str, tuple[float, Refuse]] = {}

    def adopt(self, steps: Sequence[CarryTopic]) -> tuple[list[CarryTopic], list[Refuse]]:
        """The steps that may be carried now, and why the others may not. What is adopted is remembered."""
        lately = {topic: why for topic, (at_s, why) in self._refused.items() if time.monotonic() - at_s < AGAIN_S}
        rows, refused = self.propose([step for step in steps if step.topic not in lately])
        for row in rows:
            where, how, target = row[1].source, row[2], row[1].target
            self._log(f"{self._link.name}: {row[0].topic}-{row[0].partition} is mapped: {_goes_on(where, target, how)}")
        self._store.adopt([(row, extent) for row, extent, _ in rows])
        self._refused |= {why.topic: (time.monotonic(), why) for why in refused}
        refused += [lately[step.topic] for step in steps if step.topic in lately]
        names = {why.topic for why in refused}
        return [step for step in steps if step.topic not in names], refused

    def propose(self, steps: Sequence[CarryTopic]) -> tuple[list[tuple[TwinRow, Extent, str]], list[Refuse]]:
        """Where each partition that is to be adopted goes on, and how that is known. Nothing is changed by asking."""
        reached = self._store.reached(self._link.name) if any(step.mapped for step in steps) else {}
        rows: list[tuple[TwinRow, Extent, str]] = []
        refused: list[Refuse] = []
        notes: dict[NamedPartition, list[Note]] | None = None
        for step in steps:
            fresh = [n for n in range(step.partitions) if step.mapped and (step.topic, n) not in reached]
            if not fresh:
                continue
            if notes is None:
                notes = self._notes() if self._link.mapped_from is MappedFrom.MIRRORMAKER else {}
            try:
                rows += [self._begin(step, number, notes) for number in fresh]
            except Unproven as reason:
                hint = "stop what else copies it; or set mapped_from to start or end if that is what you mean"
                refused.append(Refuse(step.topic, UNPROVEN, str(reason), hint))
        return rows, refused

    def without_mapped(
        self, cuts: Mapping[NamedPartition, int], told: Collection[NamedPartition]
    ) -> dict[NamedPartition, int]:
        """The cuts that are for twins of exact topics: a mapped one keeps its data for as long as it is set to.

        Extents of what mapped twins have lost by that are dropped on the way. `told`: partitions whose pumps have told
        of them since this process began."""
        reached = self._store.reached(self._link.name)
        if reached:
            called = {place: NamedPartition(self._link.twin_of(place[0]), place[1]) for place in reached}
            starts = self._target.list_offsets(called.values(), OffsetKind.EARLIEST)
            below = {place: starts[twin] for place, twin in called.items()}
            self._store.trim_extents(self._link.name, below, told={(one.topic, one.partition) for one in told})
        return {named: at for named, at in cuts.items() if (named.topic, named.partition) not in reached}

    def _begin(
        self, step: CarryTopic, number: int, notes: dict[NamedPartition, list[Note]]
    ) -> tuple[TwinRow, Extent, str]:
        named, twin = NamedPartition(step.topic, number), NamedPartition(step.twin or step.topic, number)
        start, end = self._bounds(self._target, twin)
        where, how = self._position(named, twin, start, end, notes)
        sequence = self._sequence(twin)
        extent = Extent(SourceOffset(where), TargetOffset(end), 0, sequence)
        ids = (step.source_topic_id, step.target_topic_id)
        row = TwinRow(self._link.name, step.topic, number, *ids, where, sequence, int(time.time() * 1000))
        return row, extent, how

    def _position(
        self, named: NamedPartition, twin: NamedPartition, start: int, end: int, notes: dict[NamedPartition, list[Note]]
    ) -> tuple[int, str]:
        begin, stop = self._bounds(self._source, named)
        if end == start:
            return begin, "since the twin is empty"
        if self._link.mapped_from is MappedFrom.START:
            return begin, "the source's beginning, as set"
        if self._link.mapped_from is MappedFrom.END:
            return stop, "the source's end, as set"
        found = self._proven(named, twin, (start, end), (begin, stop), best_notes(notes, named, end))
        if self._bounds(self._target, twin)[1] != end:
            raise Unproven(f"{twin} is still being written: MirrorMaker, or another, is at work on it")
        if found is None:
            raise Unproven(f"where MirrorMaker stopped with {named} cannot be proven from {twin}'s records")
        return found

    def _proven(
        self,
        named: NamedPartition,
        twin: NamedPartition,
        span: tuple[int, int],
        theirs: tuple[int, int],
        notes: list[Note],
    ) -> tuple[int, str] | None:
        (start, end), (begin, stop) = span, theirs
        for note in notes:
            if note.source < begin:
                break
            for committed in (False, True):
                source = contents(self._source, named, note.source, stop, committed=committed)
                copy = contents(self._target, twin, max(start, note.target), end, committed=True)
                found = walk(source, copy, max(0, start - note.target))
                if found is not None:
                    return found, f"record by record behind MirrorMaker's note of {note.source}"
        tail = [
            content for _, content in contents(self._target, twin, max(start, end - TAIL_RECORDS), end, committed=True)
        ]
        first = max(begin, min((note.source for note in notes), default=stop - SEARCHED_RECORDS))
        searched = islice(contents(self._source, named, first, stop), SEARCHED_RECORDS)
        aligned = align(searched, tail)
        return None if aligned is None else (aligned, f"where the source holds the twin's last {len(tail)} records")

    def _bounds(self, cluster: KafkaCluster, named: NamedPartition) -> tuple[int, int]:
        ends = [cluster.list_offsets([named], kind)[named] for kind in (OffsetKind.EARLIEST, OffsetKind.LOG_END)]
        return ends[0], ends[1]

    def _sequence(self, twin: NamedPartition) -> int:
        """The link may have written here before its topic was forgotten: its producer goes on counting then."""
        identity = self._store.link_identity(self._link.name)
        states = self._target.describe_producers([twin])[twin] if identity else []
        ours = [one for one in states if identity and one.producer_id == identity.producer_id]
        return next_sequence(ours[0].last_sequence, 1) if ours else 0

    def _notes(self) -> dict[NamedPartition, list[Note]]:
        """MirrorMaker's notes lie on the source or on the target, as it was set."""
        for cluster, alias in ((self._source, self._link.target), (self._target, self._link.source)):
            topic = notes_topic(cluster.metadata(None).topics, alias)
            if topic:
                named = NamedPartition(topic, 0)
                start, end = self._bounds(cluster, named)
                read = batches(cluster, named, start, end, committed=True)
                plain = (pair for pair in read if not pair[1].attributes & CONTROL)
                return gather(record for view, header in plain for record in iter_records(view, header))
        return {}


def _goes_on(source: int, target: int, how: str) -> str:
    return f"goes on with {source} of the source at {target} of the twin, {how}"
