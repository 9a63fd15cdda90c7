"""Takes over target topics that already hold data: finds where MirrorMaker stopped, from both logs and its offset
syncs.

A position without proof is refused: from a wrong one records would be skipped or duplicated, unnoticed. `Adopter` reads
the evidence in a separate task; the controller gets the result later.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from typing import TypeVar

from twinshore.config.errors import KafkaError, StoreError, WireError
from twinshore.config.incident_policy import IncidentKind
from twinshore.config.model import Link, MappedStart, OffsetRun, SourceOffset, TargetOffset, TopicPartition
from twinshore.config.repeat_filter import RepeatFilter, describe_error
from twinshore.kafka.clock import wall_ms
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.leader_queries import OffsetKind
from twinshore.kafka.log_reader import read_batches, read_contents, read_dated_contents, read_log_bounds
from twinshore.kafka.protocol.record_batch import CONTROL_FLAG, DatedContent, iter_records, next_sequence
from twinshore.replication.core.mapping import (
    TAIL_RECORDS,
    OffsetSync,
    SourceEntry,
    collect_offset_syncs,
    find_offset_syncs_topic,
    find_tail_offsets,
    follow_copied_records,
    usable_offset_syncs,
)
from twinshore.replication.core.model import CarryTopic, Refuse
from twinshore.replication.stopped_partitions import kind_of_error
from twinshore.runtime.endpoints import LONG_TIMEOUT_CONNECTIONS
from twinshore.runtime.logging import LinkLogger
from twinshore.runtime.scheduler import UNTIL_WOKEN, ScheduledTask, process_scheduler
from twinshore.state.core.values import TwinRow
from twinshore.state.store import Store

log = logging.getLogger(__name__)

UNPROVEN_KIND = IncidentKind.POSITION_DISAGREEMENT
UNPROVEN_HINT = "stop what else copies it; or set mapped_from to start or end if that is what you mean"
UNREADABLE_HINT = "let the topic's owner mend or delete what cannot be read, or set mapped_from to start or end"
OffsetSyncs = dict[TopicPartition, list[OffsetSync]]
# A partition with its position, and how that is known.
AdoptedPartition = tuple[TwinRow, OffsetRun, str]
T = TypeVar("T")
SEARCH_RECORDS_MAX = 500_000
LogRange = tuple[int, int]
# MirrorMaker reads either what was committed, or all.
COMMITTED_OPTIONS = (False, True)


class AdoptionPlanner:
    """Finds the positions of partitions to adopt. For one link and one thread."""

    def __init__(self, link: Link, source: KafkaCluster, target: KafkaCluster, store: Store) -> None:
        self._link, self._source, self._target, self._store = link, source, target, store

    def propose(self, steps: Sequence[CarryTopic]) -> tuple[list[AdoptedPartition], list[Refuse]]:
        """Returns where each partition to adopt continues and how that is known, and refusals. Changes nothing."""
        rows: list[AdoptedPartition] = []
        refused: list[Refuse] = []
        notes: OffsetSyncs | None = None
        for step, numbers in self.to_adopt(steps):
            # An unreadable log or offset sync affects one topic only.
            try:
                notes = self.notes() if notes is None else notes
                rows += self.of(step, numbers, notes)
            except (UnprovenPosition, WireError) as error:
                refused.append(refuse_adoption(step, error))
        return rows, refused

    def to_adopt(self, steps: Sequence[CarryTopic]) -> list[tuple[CarryTopic, list[int]]]:
        """The mapped topics among `steps`, with partitions still unknown."""
        reached = self._store.offset_runs.reached(self._link.name) if any(step.mapped for step in steps) else {}
        found = [
            (step, [n for n in range(step.partitions) if step.mapped and (step.topic, n) not in reached])
            for step in steps
        ]
        return [(step, numbers) for step, numbers in found if numbers]

    def of(self, step: CarryTopic, numbers: Sequence[int], notes: OffsetSyncs) -> list[AdoptedPartition]:
        """Positions of all these partitions; raises UnprovenPosition."""
        return [self._begin(step, number, notes, grown=len(numbers) < step.partitions) for number in numbers]

    def ends(self, step: CarryTopic, numbers: Sequence[int]) -> tuple[int, ...]:
        sides = ((self._source, step.topic), (self._target, step.twin or step.topic))
        found = []
        for cluster, topic in sides:
            partitions = [TopicPartition(topic, number) for number in numbers]
            ends = cluster.list_offsets(partitions, OffsetKind.LOG_END)
            found += [ends[partition] for partition in partitions]
        return tuple(found)

    def notes(self) -> OffsetSyncs:
        """MirrorMaker's offset syncs, if the link continues from them."""
        return self._notes() if self._link.mapped_from is MappedStart.MIRRORMAKER else {}

    def _begin(self, step: CarryTopic, number: int, notes: OffsetSyncs, *, grown: bool) -> AdoptedPartition:
        partition, twin = TopicPartition(step.topic, number), TopicPartition(step.twin or step.topic, number)
        twin_range, source_range = read_log_bounds(self._target, twin), read_log_bounds(self._source, partition)
        end = twin_range[1]
        if stated := self._stated(end, source_range, grown=grown):
            where, how = stated
        else:
            finder = PositionFinder(self._source, self._target, partition, twin, source_range, twin_range)
            where, how = finder.position(usable_offset_syncs(notes, partition, end))
            if read_log_bounds(self._target, twin)[1] != end:
                raise UnprovenPosition(f"{twin} is still being written, by MirrorMaker or another")
        sequence = self._sequence(twin)
        offset_run = OffsetRun(SourceOffset(where), TargetOffset(end), 0, sequence)
        ids = (step.source_topic_id, step.target_topic_id)
        row = TwinRow(self._link.name, step.topic, number, *ids, where, sequence, wall_ms())
        return row, offset_run, how

    def _stated(self, twin_end: int, source_range: LogRange, *, grown: bool) -> tuple[int, str] | None:
        """The position by settings, or of a partition never copied. `grown`: others are replicated already, so this one
        is new and replicated in full.
        """
        start, end = source_range
        if self._link.mapped_from is MappedStart.END and (twin_end or not grown):
            return end, "the source's log end, as set"
        if not twin_end:
            return start, "since the twin has never held anything"
        return (start, "the source's log start, as set") if self._link.mapped_from is MappedStart.START else None

    def _sequence(self, twin: TopicPartition) -> int:
        """The link may have written here before the topic was forgotten; then its producer continues."""
        identity = self._store.links.identity(self._link.name)
        states = self._target.describe_producers([twin])[twin] if identity else []
        ours = [one for one in states if identity and one.producer_id == identity.producer_id]
        return next_sequence(ours[0].last_sequence, 1) if ours else 0

    def _notes(self) -> OffsetSyncs:
        """Reads the offset syncs from source or target, as MirrorMaker has them."""
        for cluster, alias in ((self._source, self._link.target), (self._target, self._link.source)):
            topic = find_offset_syncs_topic(cluster.metadata(None).topics, alias)
            if topic:
                partition = TopicPartition(topic, 0)
                start, end = read_log_bounds(cluster, partition)
                read = read_batches(cluster, partition, start, end, committed=True)
                plain = (pair for pair in read if not pair[1].attributes & CONTROL_FLAG)
                return collect_offset_syncs(record for view, header in plain for record in iter_records(view, header))
        return {}


def refuse_adoption(step: CarryTopic, error: Exception) -> Refuse:
    if isinstance(error, UnprovenPosition):
        return Refuse(step.topic, UNPROVEN_KIND, str(error), UNPROVEN_HINT)
    sentence = f"where to continue with topic {step.topic} cannot be proven: {error}"
    return Refuse(step.topic, UNPROVEN_KIND, sentence, UNREADABLE_HINT)


class UnprovenPosition(Exception):
    """Why a position cannot be proven."""


class PositionFinder:
    """Finds where MirrorMaker stopped with one partition. `source_range`, `twin_range`: log starts and ends."""

    def __init__(
        self,
        source: KafkaCluster,
        target: KafkaCluster,
        partition: TopicPartition,
        twin: TopicPartition,
        source_range: LogRange,
        twin_range: LogRange,
    ) -> None:
        self._source, self._target, self._partition, self._twin = source, target, partition, twin
        self._source_range, self._twin_range = source_range, twin_range

    def position(self, notes: Sequence[OffsetSync]) -> tuple[int, str]:
        """Returns the source offset to continue from, and how that is known. `notes`: offset syncs, latest first.
        Raises UnprovenPosition.
        """
        if self._twin_range[0] == self._twin_range[1]:
            return self._position_of_empty_twin(notes)
        for note in notes:
            if note.source >= self._source_range[0]:
                walks = [self._walk(note, committed=committed) for committed in COMMITTED_OPTIONS]
                if found := {at for at in walks if at is not None}:
                    return self._highest(found), f"record by record behind MirrorMaker's offset sync of {note.source}"
        at, count = self._position_by_tail()
        if notes:
            self._check_last_sync(notes[0], at)
        return at, f"where the source holds the twin's last {count} records"

    def _position_of_empty_twin(self, notes: Sequence[OffsetSync]) -> tuple[int, str]:
        """Retention removed all copies: only an offset sync of the very last record tells."""
        end = self._twin_range[1]
        for note in notes:
            if note.target == end - 1:
                last = f"MirrorMaker's offset sync of {note.source}, the last record that the twin held"
                return note.source + 1, f"behind {last}"
        raise UnprovenPosition(
            f"{self._twin} held {end} records and holds none now: nothing tells which of {self._partition} they were"
        )

    def _walk(self, note: OffsetSync, *, committed: bool) -> int | None:
        source = self._source_records(note.source, committed=committed)
        begin = max(self._twin_range[0], note.target)
        return follow_copied_records(source, self._twin_records(begin), begin - note.target)

    def _source_records(self, begin: int, *, committed: bool) -> Iterator[SourceEntry]:
        end = self._source_range[1]
        return read_dated_contents(self._source, self._partition, begin, end, committed=committed, theirs=True)

    def _twin_records(self, begin: int) -> Iterator[SourceEntry]:
        end = self._twin_range[1]
        return read_dated_contents(self._target, self._twin, begin, end, committed=True, theirs=False)

    def _position_by_tail(self) -> tuple[int, int]:
        """The only source position with the copy's last records, and their number."""
        partition, twin = self._partition, self._twin
        begin = max(self._twin_range[0], self._twin_range[1] - TAIL_RECORDS)
        tail = [content for _, content in self._twin_records(begin)]
        times = [content.timestamp_ms for content in tail if content.timestamp_ms is not None]
        if not tail or len(times) < len(tail):
            raise UnprovenPosition(
                f"where MirrorMaker stopped with {partition} cannot be proven from {twin}'s records: none of its offset"
                " syncs helps, and the records have no timestamps of the source"
            )
        first = self._source_range[0]
        if len(tail) == TAIL_RECORDS and min(times) > 0:
            since = self._source.first_since(partition, min(times))
            first = self._source_range[1] if since < 0 else max(first, since)
        found: set[int] = set()
        lasts: list[set[int]] = []
        for committed in COMMITTED_OPTIONS:
            read = self._source_records(first, committed=committed)
            last: set[int] = set()
            at = find_tail_offsets(_noted(_bounded(read, partition), tail[-1], last), tail)
            if len(at) > 1:
                raise UnprovenPosition(
                    f"the source holds {twin}'s last {len(tail)} records of {partition} {len(at)} times"
                )
            found.update(at)
            lasts.append(last)
        if not found:
            raise UnprovenPosition(f"where MirrorMaker stopped with {partition} cannot be proven from {twin}'s records")
        at_last = self._highest(found)
        if any(at_last in last and len(last) > 1 for last in lasts):
            # MirrorMaker may have restarted within those records, and copied equal ones.
            raise UnprovenPosition(f"the source holds {twin}'s last record of {partition} more than once")
        if len(tail) < TAIL_RECORDS and not self._has_all_records(at_last):
            raise UnprovenPosition(
                f"{twin} holds only {len(tail)} records, and the source has lost some of {partition}:"
                " the same may have been there before"
            )
        return at_last, len(tail)

    def _has_all_records(self, at: int) -> bool:
        records = read_contents(self._source, self._partition, 0, at)
        return self._source_range[0] == 0 and sum(1 for _ in _bounded(records, self._partition)) == at

    def _highest(self, found: set[int]) -> int:
        """The highest position, if no visible record is between them."""
        low, high = min(found), max(found)
        if low < high and any(read_contents(self._source, self._partition, low, high, committed=True)):
            raise UnprovenPosition(
                f"{self._twin}'s records are those of {self._partition} up to {low} with an aborted transaction, and up"
                f" to {high} without: which of them MirrorMaker read is unknown"
            )
        return high

    def _check_last_sync(self, note: OffsetSync, at: int) -> None:
        """Raises UnprovenPosition if the last offset sync contradicts: MirrorMaker continues there record by record."""
        since, start = self._twin_range[1] - note.target, self._source_range[0]
        lost = note.source < start
        before = at <= note.source or (lost and at - note.source < since)
        seen = islice(read_contents(self._source, self._partition, start, at), since + 1) if lost else ()
        if before or sum(1 for _ in seen) > since:
            raise UnprovenPosition(
                f"the source holds {self._partition}'s last records on the target before {at}, and MirrorMaker's offset"
                f" sync of {note.source} contradicts that"
            )


def _noted(records: Iterable[SourceEntry], ours: DatedContent, ends: set[int]) -> Iterator[SourceEntry]:
    """Adds the offset after each record that equals `ours` to `ends`."""
    for one in records:
        if ours.copied_from(one[1]):
            ends.add(one[0] + 1)
        yield one


def _bounded(records: Iterable[T], partition: TopicPartition) -> Iterator[T]:
    for count, one in enumerate(records):
        if count >= SEARCH_RECORDS_MAX:
            raise UnprovenPosition(f"more than {SEARCH_RECORDS_MAX:,} records of {partition} would have to be searched")
        yield one


RETRY_INTERVAL_S = 30.0
RETRY_INTERVAL_S_MAX = 1800.0
AWAY_RETRY_S = 5.0  # Until a silent cluster is asked again.
CLOSE_TIMEOUT_S = 2.0
PROOF_TTL_S = 120.0  # An older proof is repeated before any replication by it.
PATIENCE_S = 10.0


@dataclass(frozen=True, slots=True)
class AdoptionResult:
    """`rows`, or `why` not. `ends`: both sides' log ends then. Retry after `wait_s`, earlier if the ends moved."""

    step: CarryTopic
    rows: tuple[AdoptedPartition, ...]
    why: Refuse | None
    ends: tuple[int, ...]
    at_s: float
    wait_s: float


class Adopter:
    """Adopts topics of one link. `made` gets the rows of empty twins."""

    def __init__(
        self, link: Link, source: KafkaCluster, target: KafkaCluster, store: Store, made: set[TwinRow]
    ) -> None:
        self._link, self._source, self._target, self._store = link, source, target, store
        self._made, self._log = made, LinkLogger(log, link.name)
        self._positions = AdoptionPlanner(link, source, target, store)
        self._found: dict[str, AdoptionResult] = {}
        self._wanted: dict[str, tuple[CarryTopic, list[int]]] = {}
        self._due_s: dict[str, float] = {}
        self._topics: set[CarryTopic] = set()
        self._news = threading.Lock()
        self._closed = False
        self._task: ScheduledTask | None = None
        self._own: tuple[KafkaCluster, ...] = ()
        self._trouble = RepeatFilter(self._log)

    def adopt(self, steps: Sequence[CarryTopic]) -> tuple[list[CarryTopic], list[Refuse]]:
        """Returns the steps that may go, and why others may not; for the rest, call again. Adopted partitions are
        stored.
        """
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
        self, cuts: Mapping[TopicPartition, int], partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """The cuts of exact twins: mapped ones keep data by their own settings. Drops offset runs that mapped twins
        have lost. `partitions`: partitions reported since this process started.
        """
        reached = self._store.offset_runs.reached(self._link.name)
        if reached:
            called = {place: TopicPartition(self._link.twin_of(place[0]), place[1]) for place in reached}
            starts, _ = self._target.offsets_of_each(called.values(), OffsetKind.EARLIEST)
            below = {place: starts[twin] for place, twin in called.items() if twin in starts}
            self._store.offset_runs.trim(self._link.name, below, told={(tp.topic, tp.partition) for tp in partitions})
        return {
            partition: at for partition, at in cuts.items() if (partition.topic, partition.partition) not in reached
        }

    def close(self) -> None:
        """Does not wait for a search under way, which changes nothing."""
        with self._news:
            self._closed = True
            task = self._task
        self._close_own()
        if task is not None:
            task.close(CLOSE_TIMEOUT_S)

    # -- the controller's side

    def _stands(self, found: AdoptionResult) -> bool:
        """Whether the twin has the proven end; otherwise drops the proof."""
        twin = found.step.twin or found.step.topic
        ends = {TopicPartition(twin, row.partition): int(offset_run.target) for row, offset_run, _ in found.rows}
        stands = not _old(found) and self._target.offsets_of_each(ends, OffsetKind.LOG_END)[0] == ends
        if not stands:
            with self._news:
                del self._found[found.step.topic]
        return stands

    def _take(self, found: AdoptionResult) -> None:
        self._store.offset_runs.adopt([(row, offset_run) for row, offset_run, _ in found.rows], self._link.naming)
        # A twin with data may be a topic that the link wrote before it was forgotten.
        self._made |= {row for row, offset_run, _ in found.rows if not offset_run.target}
        for row, offset_run, how in found.rows:
            continues = f"continues with {offset_run.source} of the source at {offset_run.target} of the twin, {how}"
            partition = TopicPartition(row.topic, row.partition)
            self._log.info(f"{partition} is mapped: {continues}", extra=asdict(partition))
        with self._news:
            del self._found[found.step.topic]

    def _ask(self, step: CarryTopic, numbers: list[int]) -> None:
        if step not in self._topics:
            self._topics.add(step)
            finding = f"topic {step.topic}: finding where to continue behind what the target holds"
            self._log.info(finding, extra={"topic": step.topic})
        with self._news:
            self._wanted[step.topic] = (step, numbers)
            if self._closed:
                return
            if self._task is None:
                link = self._link
                asks = (link.source, link.target)
                self._task = process_scheduler.every(f"adopts {link.name}", self._turn, asks=asks, last=self._close_own)
        self._task.wake()

    # -- the task's side

    def _turn(self) -> float:
        self._own = self._own or tuple(
            KafkaCluster(cluster.cluster, patience_s=PATIENCE_S, pool=LONG_TIMEOUT_CONNECTIONS.pool)
            for cluster in (self._source, self._target)
        )
        planner = AdoptionPlanner(self._link, self._own[0], self._own[1], self._store)
        with self._news:
            wanted, self._wanted = self._wanted, {}
        notes: list[OffsetSyncs] = []
        for step, numbers in wanted.values():
            if not self._closed and time.monotonic() >= self._due_s.get(step.topic, 0.0):
                self._one(planner, step, numbers, notes)
        return UNTIL_WOKEN

    def _close_own(self) -> None:
        for cluster in self._own:
            cluster.close()

    def _one(self, positions: AdoptionPlanner, step: CarryTopic, numbers: list[int], notes: list[OffsetSyncs]) -> None:
        with self._news:
            last = self._found.get(step.topic)
        last = last if last is not None and last.step == step else None
        if last is not None and last.rows and not _old(last):
            return  # The controller has not taken it yet.
        rows: tuple[AdoptedPartition, ...] = ()
        why: Refuse | None = None
        ends: tuple[int, ...] = ()
        try:
            ends = positions.ends(step, numbers)
            moved = last is None or last.ends != ends
            if last is not None and not moved and time.monotonic() < last.at_s + last.wait_s:
                self._due_s[step.topic] = time.monotonic() + RETRY_INTERVAL_S
                return
            if not notes:
                notes.append(positions.notes())
            rows = tuple(positions.of(step, numbers, notes[0]))
        except UnprovenPosition as reason:
            why = refuse_adoption(step, reason)
        except Exception as error:
            passing = isinstance(error, StoreError) or (isinstance(error, KafkaError) and error.retriable)
            if passing or self._closed:
                if not self._closed:
                    self._trouble.say(f"adoptions wait: {describe_error(error)}")
                self._due_s[step.topic] = time.monotonic() + AWAY_RETRY_S
                return
            if isinstance(error, KafkaError):
                why = Refuse(step.topic, kind_of_error(error), error.message, error.hint)
            else:
                why = refuse_adoption(step, error)
        self._trouble.well()
        wait_s = (
            min(RETRY_INTERVAL_S_MAX, last.wait_s * 2) if last is not None and last.ends == ends else RETRY_INTERVAL_S
        )
        now_s = time.monotonic()
        self._due_s[step.topic] = now_s + RETRY_INTERVAL_S if why else 0.0
        with self._news:
            self._found[step.topic] = AdoptionResult(step, rows, why, ends, now_s, wait_s)


def _old(found: AdoptionResult) -> bool:
    return time.monotonic() - found.at_s > PROOF_TTL_S
