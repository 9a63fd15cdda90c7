"""Where MirrorMaker stopped with a partition, out of what both logs and its notes say. Only asks.

What cannot be proven is refused: at a wrong place records would be skipped, or carried twice, and nothing would tell.

Takes on target topics that hold data already. What must be read to prove where to go on is read in a task of its
own: the link's driver asks, and gets the answer when there is one.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

from twinshore.config.errors import KafkaError, StoreError, WireError
from twinshore.config.incidents import IncidentKind
from twinshore.config.model import Extent, Link, MappedFrom, NamedPartition, SourceOffset, TargetOffset
from twinshore.config.once import Once, in_words
from twinshore.kafka.clock import wall_ms
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.log_reader import batches, bounds, contents, copies
from twinshore.kafka.protocol.record_batch import CONTROL, iter_records, next_sequence
from twinshore.kafka.protocol.visibility import Dated
from twinshore.kafka.questions import OffsetKind
from twinshore.replication.core.mapping import TAIL_RECORDS, Note, Theirs, best_notes, gather, notes_topic, places, walk
from twinshore.replication.core.model import CarryTopic, Refuse
from twinshore.replication.task.core.position import RIGHTS
from twinshore.runtime.endpoints import PATIENT
from twinshore.runtime.scheduler import UNTIL_WOKEN, Task, tasks
from twinshore.state.core.values import TwinRow
from twinshore.state.store import Store

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


AGAIN_S = 30.0
AGAIN_S_MAX = 1800.0
AWAY_S = 5.0  # Until a cluster that did not answer is asked again.
CLOSE_S = 2.0
FRESH_S = 120.0  # What was proven longer ago is proven again before anything is carried by it.
PATIENCE_S = 10.0


@dataclass(frozen=True, slots=True)
class Finding:
    """What became of a topic's proof: `rows`, or `why` not. `ends` are those of both sides then; the proof is worth
    another try `wait_s` later, sooner where they have moved."""

    step: CarryTopic
    rows: tuple[Row, ...]
    why: Refuse | None
    ends: tuple[int, ...]
    at_s: float
    wait_s: float


@dataclass(frozen=True, slots=True)
class Own:
    """What the task asks by, which the driver does not wait for."""

    clusters: tuple[KafkaCluster, KafkaCluster]
    positions: Positions


class Adopter:
    """For one link. `log` hears where each adopted partition goes on; `made` gets the rows of twins that are empty."""

    def __init__(
        self,
        link: Link,
        source: KafkaCluster,
        target: KafkaCluster,
        store: Store,
        log: Callable[[str], None],
        made: set[TwinRow],
    ) -> None:
        self._link, self._source, self._target, self._store, self._log = link, source, target, store, log
        self._made = made
        self._positions = Positions(link, source, target, store)
        self._found: dict[str, Finding] = {}
        self._wanted: dict[str, tuple[CarryTopic, list[int]]] = {}
        self._due_s: dict[str, float] = {}
        self._asked: set[CarryTopic] = set()
        self._news = threading.Lock()
        self._closed = False
        self._task: Task | None = None
        self._own: Own | None = None
        self._trouble = Once(lambda sentence: log(f"{link.name}: adoptions wait: {sentence}"))

    def adopt(self, steps: Sequence[CarryTopic]) -> tuple[list[CarryTopic], list[Refuse]]:
        """The steps that may be carried now, and why others may not; the rest are being looked into, ask again. What
        is adopted is remembered."""
        to_adopt = {step.topic: (step, numbers) for step, numbers in self._positions.to_adopt(steps)}
        ready = [step for step in steps if step.topic not in to_adopt]
        with self._news:
            for step in ready:
                self._found.pop(step.topic, None)
        refused: list[Refuse] = []
        for topic, (step, numbers) in to_adopt.items():
            with self._news:
                found = self._found.get(topic)
            if found is not None and found.step == step and found.rows and self._stands(found):
                self._take(found)
                ready.append(step)
                continue
            if found is not None and found.step == step and found.why is not None:
                refused.append(found.why)
            self._ask(step, numbers)
        return ready, refused

    def without_mapped(
        self, cuts: Mapping[NamedPartition, int], told: Collection[NamedPartition]
    ) -> dict[NamedPartition, int]:
        """The cuts that are for twins of exact topics: a mapped one keeps its data for as long as it is set to.

        Extents of what mapped twins have lost by that are dropped on the way. `told`: partitions whose pumps have told
        of them since this process began."""
        reached = self._store.extents.reached(self._link.name)
        if reached:
            called = {place: NamedPartition(self._link.twin_of(place[0]), place[1]) for place in reached}
            starts, _ = self._target.offsets_of_each(called.values(), OffsetKind.EARLIEST)
            below = {place: starts[twin] for place, twin in called.items() if twin in starts}
            self._store.extents.trim(self._link.name, below, told={(one.topic, one.partition) for one in told})
        return {named: at for named, at in cuts.items() if (named.topic, named.partition) not in reached}

    def close(self) -> None:
        """A proof that is under way is not waited for: it changes nothing."""
        with self._news:
            self._closed = True
            own, task = self._own, self._task
        for cluster in own.clusters if own else ():
            cluster.close()
        if task is not None:
            task.close(CLOSE_S)

    # -- the driver's side

    def _stands(self, found: Finding) -> bool:
        """Whether the twin still ends where it did when that was proven; if not, it is proven anew."""
        twin = found.step.twin or found.step.topic
        ends = {NamedPartition(twin, row.partition): int(extent.target) for row, extent, _ in found.rows}
        stands = not _old(found) and self._target.offsets_of_each(ends, OffsetKind.LOG_END)[0] == ends
        if not stands:
            with self._news:
                del self._found[found.step.topic]
        return stands

    def _take(self, found: Finding) -> None:
        self._store.extents.adopt([(row, extent) for row, extent, _ in found.rows], self._link.naming)
        # One that holds something may be a topic that the link has written before, in another life.
        self._made |= {row for row, extent, _ in found.rows if not extent.target}
        for row, extent, how in found.rows:
            goes_on = f"goes on with {extent.source} of the source at {extent.target} of the twin, {how}"
            self._log(f"{self._link.name}: {row.topic}-{row.partition} is mapped: {goes_on}")
        with self._news:
            del self._found[found.step.topic]

    def _ask(self, step: CarryTopic, numbers: list[int]) -> None:
        if step not in self._asked:
            self._asked.add(step)
            self._log(f"{self._link.name}: topic {step.topic}: finding where to go on behind what the target holds")
        with self._news:
            self._wanted[step.topic] = (step, numbers)
            if self._closed:
                return
            if self._task is None:
                link = self._link
                asks = (link.source, link.target)
                self._task = tasks.every(f"adopts {link.name}", self._turn, asks=asks, last=self._let_go)
        self._task.wake()

    # -- the task's side

    def _turn(self) -> float:
        own = self._own = self._own or self._own_positions()
        with self._news:
            wanted, self._wanted = self._wanted, {}
        notes: list[Notes] = []
        for step, numbers in wanted.values():
            if not self._closed and time.monotonic() >= self._due_s.get(step.topic, 0.0):
                self._one(own.positions, step, numbers, notes)
        return UNTIL_WOKEN

    def _own_positions(self) -> Own:
        source, target = (
            KafkaCluster(one.cluster, patience_s=PATIENCE_S, pool=PATIENT.pool) for one in (self._source, self._target)
        )
        return Own((source, target), Positions(self._link, source, target, self._store))

    def _let_go(self) -> None:
        for cluster in self._own.clusters if self._own else ():
            cluster.close()

    def _one(self, positions: Positions, step: CarryTopic, numbers: list[int], notes: list[Notes]) -> None:
        """`notes` are read once for many topics."""
        with self._news:
            last = self._found.get(step.topic)
        last = last if last is not None and last.step == step else None
        if last is not None and last.rows and not _old(last):
            return  # The driver has only not come by yet.
        rows: tuple[Row, ...] = ()
        why: Refuse | None = None
        ends: tuple[int, ...] = ()
        try:
            ends = positions.ends(step, numbers)
            moved = last is None or last.ends != ends
            if last is not None and not moved and time.monotonic() < last.at_s + last.wait_s:
                self._due_s[step.topic] = time.monotonic() + AGAIN_S
                return
            if not notes:
                notes.append(positions.notes())
            rows = tuple(positions.of(step, numbers, notes[0]))
        except Unproven as reason:
            why = refusal(step, reason)
        except Exception as error:
            passing = isinstance(error, StoreError) or (isinstance(error, KafkaError) and error.retriable)
            if passing or self._closed:
                if not self._closed:
                    self._trouble.say(in_words(error))
                self._due_s[step.topic] = time.monotonic() + AWAY_S
                return
            if isinstance(error, KafkaError):
                kind = IncidentKind.RIGHTS_LOST if error.code in RIGHTS else IncidentKind.REFUSED
                why = Refuse(step.topic, kind, error.message, error.hint)
            else:
                why = refusal(step, error)
        self._trouble.well()
        wait_s = min(AGAIN_S_MAX, last.wait_s * 2) if last is not None and last.ends == ends else AGAIN_S
        now_s = time.monotonic()
        self._due_s[step.topic] = now_s + AGAIN_S if why else 0.0
        with self._news:
            self._found[step.topic] = Finding(step, rows, why, ends, now_s, wait_s)


def _old(found: Finding) -> bool:
    return time.monotonic() - found.at_s > FRESH_S
