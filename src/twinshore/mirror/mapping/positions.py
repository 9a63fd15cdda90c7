"""Where a link goes on in the source with twins that hold data already: proven by both logs, or stated. Only asks."""

from __future__ import annotations

from collections.abc import Sequence

from twinshore.fleet import Link, MappedFrom, NamedPartition, SourceOffset, TargetOffset, WireError
from twinshore.fleet.extents import Extent
from twinshore.fleet.incidents import IncidentKind
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.questions import OffsetKind
from twinshore.logs.looks import batches, bounds
from twinshore.mirror.mapping.evidence import Evidence, Unproven
from twinshore.mirror.mapping.offset_syncs import Note, best_notes, gather, notes_topic
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
