"""Takes on target topics that hold data already. What must be read to prove where to go on is read in a task of its
own: the link's driver asks, and gets the answer when there is one."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from twinshore.fleet import KafkaError, Link, NamedPartition, StoreError
from twinshore.fleet.incidents import IncidentKind
from twinshore.fleet.once import Once, in_words
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.questions import OffsetKind
from twinshore.mirror.lane.answers import RIGHTS
from twinshore.mirror.mapping.evidence import Notes, Positions, Row, Unproven, refusal
from twinshore.mirror.planned import CarryTopic, Refuse
from twinshore.service.connections import PATIENT
from twinshore.service.scheduler import UNTIL_WOKEN, Task, tasks
from twinshore.store import Store, TwinRow

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
