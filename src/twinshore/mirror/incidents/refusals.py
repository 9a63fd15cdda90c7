"""Topics that are refused as a whole. Their rows in the ledger outlive the process that wrote them, and close with it
or without it: when the topic is carried, and when there is no such topic to carry any more."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Container, Iterable
from typing import Protocol

from twinshore.fleet import is_heartbeats
from twinshore.fleet.incidents import Effect
from twinshore.fleet.sentences import followed
from twinshore.mirror.lane.orders import Stoppage
from twinshore.mirror.planned import Refuse
from twinshore.service.clock import wall_ms
from twinshore.store import IncidentKind, LedgerRow, Store

GONE_S = 2.0  # so long surveys must miss a topic before it counts as gone
# A topic that was just made is led by nobody for a moment: it is looked at again soon, and told of when that lasts.
MADE_S, SOON_S = 10.0, 0.5


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
