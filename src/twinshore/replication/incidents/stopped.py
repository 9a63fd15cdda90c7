"""One row of the ledger for a link and a kind: what is so now, in one sentence.

Which partitions of a link rest because of an incident, and when they are given back to their lanes.

The ledger decides: a partition rests while a row that stops it is open. Whoever closes the row, an operator with
`twinshore mirror resume` or this class itself when a retry went well, gives it back. So it outlives every restart.

The rows of topics that are refused as a whole outlive the process that wrote them, too, and close with it or without
it: when the topic is carried, and when there is no such topic to carry any more.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Container, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from twinshore.config.incidents import Effect, IncidentKind
from twinshore.config.model import NamedPartition, is_heartbeats
from twinshore.config.sentences import followed
from twinshore.kafka.clock import wall_ms
from twinshore.replication.core.incident_kinds import After, known, passing
from twinshore.replication.core.model import Grow, Refuse
from twinshore.replication.task.core.config import Stoppage
from twinshore.state.core.values import Incident, LedgerRow, PartitionState
from twinshore.state.store import Store


def tell(store: Store, link: str, kind: IncidentKind, sentence: str, log: Callable[[str], None]) -> None:
    """The open row of the whole link says this from now on; it is over where there is nothing to say. `log` gets a new
    sentence too."""
    now_ms = wall_ms()
    rows = [row for row in store.ledger.rows(link, open_only=True) if row.incident.kind is kind]
    for row in [row for row in rows if row.incident.sentence != sentence]:
        store.ledger.close(row.id, now_ms=now_ms)
    if sentence and all(row.incident.sentence != sentence for row in rows):
        store.ledger.add(Incident(link, "", -1, kind, -1, -1, known(kind).policy, sentence, kind.side), now_ms=now_ms)
        log(f"{link}: {sentence}")


LEDGER_S = 1.0
RETRY_S = 4.0
QUIET_S = 5.0  # so long a partition that is tried again must be carried before what stopped it counts as over
GONE_S = 2.0  # so long surveys must miss a topic before it counts as gone
# A topic that was just made is led by nobody for a moment: it is looked at again soon, and told of when that lasts.
MADE_S, SOON_S = 10.0, 0.5


class Stage(Enum):
    LEAVING = "leaving its lane"
    RESTING = "resting"
    TRYING = "tried again"


@dataclass(slots=True)
class Resting:
    """`retries`: it may be tried again unasked. `marked`: the store says so too. `until_s`: when its step is due."""

    retries: bool
    stage: Stage
    marked: bool = False
    until_s: float = 0.0
    tried_s: float = 0.0


class Lanes(Protocol):
    """What it needs of the desk."""

    def placed(self, link: str) -> Mapping[NamedPartition, int]: ...

    def withdraw(self, link: str, topic: str, partition: int) -> bool: ...


class Recorded(Protocol):
    """What it needs of who writes down what pumps tell."""

    def ledgered(self, link: str) -> Collection[Stoppage]: ...

    def passes(self, link: str, named: NamedPartition, kind: IncidentKind, until: int) -> None: ...

    def passing(self, link: str, named: NamedPartition) -> Mapping[IncidentKind, int]:
        """The kinds that are not over, and up to where their rows are."""

    def heard(self, link: str, named: NamedPartition) -> tuple[float, int]:
        """When a pump last told of it, on the monotonic clock, and how far its twin was; zeros where none has."""


class Standing:
    """One link's. All calls are the driver's task's."""

    def __init__(
        self,
        link: str,
        store: Store,
        desk: Lanes,
        recorder: Recorded,
        log: Callable[[str], None],
        *,
        held: Callable[[], frozenset[NamedPartition]] = frozenset,
    ) -> None:
        """`held`: partitions that rest for the time being, whatever the ledger says of them."""
        self._link, self._store, self._desk, self._recorder, self._log = link, store, desk, recorder, log
        self._rests: dict[NamedPartition, Resting] = {}
        self._held_now, self._held = held, frozenset[NamedPartition]()
        self._passing: set[NamedPartition] = set()
        self._looked_at_s = 0.0

    def __len__(self) -> int:
        """How many partitions rest, or are held."""
        return len(self._rests.keys() | self._held)

    def __contains__(self, named: NamedPartition) -> bool:
        """Whether it must not be put on a lane now."""
        rest = self._rests.get(named)
        return named in self._held or (rest is not None and rest.stage is not Stage.TRYING)

    def begin(self) -> None:
        """What the ledger says at the beginning of a term."""
        self._rests.clear()
        self._passing.clear()
        self._recorder.ledgered(self._link)
        for named, rows in self._open().items():
            stopping = _stopping(rows)
            if stopping:
                self._rests[named] = Resting(retries(stopping), Stage.RESTING)
                self._log(f"{self._link}: {named} rests: {stopping[0].incident.kind} (incident {stopping[0].id})")
            for row in rows:
                if passing(row.incident.kind, row.incident.policy):
                    self._passing.add(named)
                    self._recorder.passes(self._link, named, row.incident.kind, row.incident.to_offset)

    def turn(self) -> set[str]:
        """Topics whose partitions shall be supplied again."""
        now_s = time.monotonic()
        for told in self._recorder.ledgered(self._link):
            self._hear(told)
        for named, rest in self._rests.items():
            if rest.stage is Stage.LEAVING and self._desk.withdraw(self._link, named.topic, named.partition):
                rest.stage, rest.until_s = Stage.RESTING, now_s + RETRY_S
            if not rest.marked:
                self._mark(named, PartitionState.STOPPED)
                rest.marked = True
        freed = self._hold()
        if not (self._rests or self._passing) or now_s - self._looked_at_s < LEDGER_S:
            return freed
        self._looked_at_s = now_s
        rows = self._open()
        self._pass(rows)
        return freed | self._resumed(rows) | self._retried(rows, now_s)

    def forget(self, topic: str) -> None:
        """The topic begins anew: what stopped its partitions is past."""
        for named in [named for named in self._rests if named.topic == topic]:
            del self._rests[named]
        for named, rows in self._open().items():
            if named.topic == topic:
                self._close(rows)

    def _hold(self) -> set[str]:
        """Topics of partitions that need not be held any more."""
        before, now = self._held, self._held_now()
        if not (before or now):
            return set()
        # One that is still leaving its lane could not come back to it yet.
        leaving = (before | now).intersection(self._desk.placed(self._link))
        for named in leaving:
            self._desk.withdraw(self._link, named.topic, named.partition)
        self._held = now | leaving
        return {named.topic for named in before - self._held}

    def _hear(self, told: Stoppage) -> None:
        named = NamedPartition(told.topic, told.partition)
        if passing(told.kind, told.policy):
            self._passing.add(named)
        elif told.policy is None:
            self._rests[named] = Resting(known(told.kind).after is After.RETRIES, Stage.LEAVING)

    def _pass(self, rows: dict[NamedPartition, list[LedgerRow]]) -> None:
        for named in list(self._passing):
            left = self._recorder.passing(self._link, named)
            if not left:
                self._passing.discard(named)
            told = [row for row in rows.get(named, ()) if passing(row.incident.kind, row.incident.policy)]
            over = [row for row in told if _over(row, left)]
            self._close(over)
            for kind in dict.fromkeys(row.incident.kind for row in over if row.incident.kind not in left):
                ids = [row.id for row in over if row.incident.kind is kind]
                also = f" and {len(ids) - 1} more" if ids[1:] else ""
                self._log(f"{self._link}: {named}: over: {kind} (incident {ids[-1]}{also})")

    def _resumed(self, rows: dict[NamedPartition, list[LedgerRow]]) -> set[str]:
        """Partitions whose rows somebody closed."""
        found = set()
        for named, rest in list(self._rests.items()):
            if _stopping(rows.get(named, [])) or rest.stage is Stage.LEAVING:
                continue
            self._over(named)
            found.add(named.topic)
            self._log(f"{self._link}: {named} is resumed")
        return found

    def _retried(self, rows: dict[NamedPartition, list[LedgerRow]], now_s: float) -> set[str]:
        found = set()
        for named, rest in list(self._rests.items()):
            if rest.stage is Stage.RESTING and rest.retries and now_s >= rest.until_s:
                rest.stage, rest.tried_s = Stage.TRYING, now_s
                found.add(named.topic)
            elif rest.stage is Stage.TRYING:
                heard_s, reached = self._recorder.heard(self._link, named)
                stopping = _stopping(rows.get(named, []))
                past = all(row.incident.to_offset <= reached for row in stopping)
                if heard_s > rest.tried_s and now_s - rest.tried_s > QUIET_S and past:
                    self._close(stopping)
                    self._over(named)
                    self._log(f"{self._link}: {named} is carried again")
        return found

    def _over(self, named: NamedPartition) -> None:
        self._mark(named, PartitionState.FLOWING)
        self._rests.pop(named, None)

    def _mark(self, named: NamedPartition, state: PartitionState) -> None:
        self._store.receipts.set_state(self._link, named.topic, named.partition, state)

    def _close(self, rows: list[LedgerRow]) -> None:
        if rows:
            self._store.ledger.close_all([row.id for row in rows], now_ms=wall_ms())

    def _open(self) -> dict[NamedPartition, list[LedgerRow]]:
        return _of_partitions(self._store, self._link)


def _over(row: LedgerRow, left: Mapping[IncidentKind, int]) -> bool:
    """Whether the twin is past it, by how far the kinds are that are not over."""
    return row.incident.kind not in left or 0 <= row.incident.to_offset <= left[row.incident.kind]


def stopping(store: Store, link: str) -> dict[NamedPartition, list[LedgerRow]]:
    """Partitions that rest, each with the open rows that stop it."""
    found = {named: _stopping(rows) for named, rows in _of_partitions(store, link).items()}
    return {named: rows for named, rows in found.items() if rows}


def retries(rows: list[LedgerRow]) -> bool:
    """Whether what they stop is tried again unasked."""
    return all(row.incident.policy.effect is Effect.RETRIES for row in rows)


def _of_partitions(store: Store, link: str) -> dict[NamedPartition, list[LedgerRow]]:
    found: dict[NamedPartition, list[LedgerRow]] = {}
    for row in store.ledger.rows(link, open_only=True):
        if row.incident.partition >= 0:
            found.setdefault(NamedPartition(row.incident.topic, row.incident.partition), []).append(row)
    return found


def _stopping(rows: list[LedgerRow]) -> list[LedgerRow]:
    return [row for row in rows if row.incident.policy.stops]


def grown(step: Grow) -> Stoppage:
    """What the ledger says of a topic that got more partitions."""
    kind, twin = IncidentKind.PARTITION_ADDED, step.twin or step.topic
    sentence = f"topic {step.topic} has {step.partitions} partitions on the source now; twin {twin} was given as many"
    return Stoppage(step.topic, -1, kind, -1, -1, sentence, known(kind).policy)


class Ledgering(Protocol):
    """Who writes it into the ledger."""

    def stopped(self, link: str, stoppage: Stoppage) -> None: ...

    def mended(self, link: str, topic: str) -> None: ...


class Refusals:
    """One link's. All calls are the driver's task's. `doubt` gets topics that seem made again: the follower knows
    what their twins hold and what the policy is, and tells."""

    def __init__(
        self,
        link: str,
        store: Store,
        recorder: Ledgering,
        log: Callable[[str], None],
        *,
        doubt: Callable[[Iterable[str]], object],
    ) -> None:
        self._link, self._store, self._recorder, self._log, self._doubt = link, store, recorder, log, doubt
        self._steps: dict[str, Refuse | None] = {}
        self._missed: dict[str, float] = {}
        self._made: dict[str, float] = {}
        self._put_off: set[str] = set()

    def __len__(self) -> int:
        return sum(step is not None for step in self._steps.values())

    def __contains__(self, topic: str) -> bool:
        return self._steps.get(topic) is not None or topic in self._put_off

    def begin(self) -> None:
        """What the ledger says at the beginning of a term; nobody knows yet whether it still holds."""
        self._steps = {row.incident.topic: None for row in self._rows()}
        self._missed.clear()

    def made(self, topics: Iterable[str]) -> None:
        """Their twins have just been made."""
        now_s = time.monotonic()
        self._made = {topic: at_s for topic, at_s in self._made.items() if now_s - at_s < MADE_S}
        self._made |= dict.fromkeys(topics, now_s)

    def pause_s(self, usual_s: float) -> float:
        """When to survey again."""
        return min(usual_s, SOON_S) if self._put_off else usual_s

    def add(self, step: Refuse) -> None:
        """Tells it, unless it is known, or as new as its twin."""
        topic = step.topic
        if step.kind is IncidentKind.TARGET_AWAY and time.monotonic() - self._made.get(topic, -MADE_S) < MADE_S:
            self._put_off.add(topic)
            return
        if self._steps.get(topic) == step:
            return
        if step.kind is IncidentKind.RECREATED_TOPIC:
            self._doubt([topic])
        else:
            sentence = followed(step.sentence, step.hint)
            if not is_heartbeats(topic):  # else nothing of the operator's is missing on the target
                self._recorder.stopped(self._link, Stoppage(topic, -1, step.kind, -1, -1, sentence, None, step.side))
            self._log(f"{self._link}: refused: {step.sentence} (try: {step.hint})")
        # Only now: where the store did not take it, the next survey tells it.
        self._steps[topic] = step

    def over(self, topic: str) -> None:
        """Nothing is said against it any more."""
        if topic in self._steps:
            self._recorder.mended(self._link, topic)
            del self._steps[topic]
            self._log(f"{self._link}: topic {topic} is no longer refused")

    def keep(self, there: Iterable[str], undecided: Collection[Refuse] = (), elsewhere: Iterable[str] = ()) -> None:
        """`there` are the topics that the link carries, `undecided` those whose home nobody knows: others are refused
        no more, since nobody would carry them. Nor are those at home `elsewhere`, which the link the other way has."""
        self._put_off.clear()
        for topic in elsewhere:
            self.over(topic)
        for step in undecided:
            self.add(step)
        there = {*there, *(step.topic for step in undecided)}
        now_s = time.monotonic()
        self._missed = {topic: self._missed.get(topic, now_s) for topic in self._steps if topic not in there}
        gone = {topic for topic, since_s in self._missed.items() if now_s - since_s >= GONE_S}
        if not gone:
            return
        twins = {row.topic for row in self._store.twins.of(self._link)}
        for row in self._rows():
            if row.incident.topic in gone and _ends(row, twins):
                came_to = "the topic is gone from the source, or no longer admitted"
                self._store.ledger.close(row.id, now_ms=wall_ms(), came_to=came_to)
                self._log(f"{self._link}: {row.incident.topic}: {row.incident.kind}: {came_to}")
        for topic in gone:
            del self._steps[topic]

    def _rows(self) -> list[LedgerRow]:
        rows = self._store.ledger.rows(self._link, open_only=True)
        whole = [row for row in rows if row.incident.topic and row.incident.partition < 0]
        return [row for row in whole if row.incident.policy.effect is not Effect.UNCUT]


def _ends(row: LedgerRow, twins: Container[str]) -> bool:
    """Whether the row ends with its topic. What became of twins is the follower's to say."""
    told = row.incident
    if told.policy.effect is not Effect.TOPIC or told.kind is IncidentKind.RECREATED_TOPIC:
        return False
    return told.kind is not IncidentKind.RIGHTS_LOST or told.topic not in twins
