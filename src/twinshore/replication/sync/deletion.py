"""Deletion and re-creation, with hands: `Judging` looks at both clusters, and `lifecycle` decides what becomes of each
known topic; the follower does it, `mirror plan` says it.

What concerns lanes and the planner is left as orders for the driver's task, which takes them at its next turn.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from twinshore.config.errors import KafkaError
from twinshore.config.incidents import Effect, IncidentKind, Policy
from twinshore.config.model import Link, is_heartbeats
from twinshore.config.once import Once
from twinshore.kafka.clock import steady_s, wall_ms
from twinshore.kafka.cluster import KafkaCluster
from twinshore.replication.core.incident_kinds import OF_KNOWN_TOPICS
from twinshore.replication.links import standing
from twinshore.replication.sync.clusters import DONE, Hands, SafetyNow, sides, spans
from twinshore.replication.sync.core import lifecycle
from twinshore.replication.sync.core.decisions import (
    ARCHIVED,
    FORGOTTEN,
    THERE_AGAIN,
    Act,
    Archive,
    AskSpans,
    Change,
    DeleteTwin,
    Forget,
    LookAgain,
    Remember,
    TakeBack,
    Tell,
    Withdraw,
)
from twinshore.replication.sync.core.lifecycle import (
    Memory,
    Presence,
    SeenTopic,
    ServedDelays,
    TopicLook,
    TopicRules,
    memories_of,
    objection,
    row_of,
    spent,
    too_many,
)
from twinshore.state.core.values import Incident, LedgerRow, PartitionState, Remembered, TwinRow
from twinshore.state.store import Store

DELETION, HELD = IncidentKind.DELETED_TOPIC, IncidentKind.DELETION_HELD
ENDED = (DELETION, IncidentKind.RECREATED_TOPIC, HELD)
REFUSED_AGAIN_S = 60.0


class Judged(NamedTuple):
    """A topic as it was seen, what is remembered of it, and what holds for it now."""

    look: TopicLook
    memory: Memory
    rules: TopicRules

    @property
    def is_plain(self) -> bool:
        """Whether both sides are what the store knows, and of one shape, and nothing is remembered of an end."""
        seen = self.look
        ids = (seen.source.topic_id, seen.target.topic_id)
        same = ids == (seen.known_source_id, seen.known_target_id)
        return same and seen.target.partitions <= seen.source.partitions and self.memory == Memory()


class Judging:
    """One thread's. `links`: all of the settings. `link` gives names and policies, which no operator's word changes;
    what operators said is asked of the store at each look and each deletion."""

    def __init__(
        self,
        link: Link,
        source: KafkaCluster,
        target: KafkaCluster,
        store: Store,
        *,
        links: Sequence[Link],
        safety: SafetyNow,
    ) -> None:
        self._link, self._source, self._target, self._store = link, source, target, store
        self._links, self._safety = links, safety
        self._missed: dict[str, int] = {}

    def look(self, doubted: Collection[str] = ()) -> dict[str, Judged]:
        """Every topic that has, or had, a twin. `doubted`: where a pump stopped."""
        known: dict[str, TwinRow] = {}
        for row in self._store.twins.of(self._link.name):
            known.setdefault(row.topic, row)
        # The target first: a topic that grows in between must not look as if its twin had grown.
        target = sides(self._target, [self._link.twin_of(topic) for topic in known])
        source = sides(self._source, known)
        looks = [
            self._one(row, source[topic], target[self._link.twin_of(topic)], doubted=topic in doubted)
            for topic, row in known.items()
        ]
        return self._judged(looks)

    def objections(self, topics: Sequence[str]) -> dict[str, str]:
        """Why nothing may delete the twins of these topics, as settings and operators say at this moment."""
        if not topics:
            return {}
        now = standing(self._links, self._store)[self._link.name]
        kept = {row.subject for row in self._store.memories.of(self._link.name, lifecycle.KEEP)}
        never = self._safety.against()
        return {topic: objection(now.link, topic, never=never, kept=kept, troubles=now.troubles) for topic in topics}

    def decide(self, one: Judged, at_ms: int) -> list[Act]:
        """What is to be done at this moment; the target is asked what the twin holds where that matters."""
        look, memory, rules = one
        acts = lifecycle.decide(look, memory, rules, None, at_ms)
        if AskSpans(look.topic) not in acts:
            return acts
        held = spans(self._target, look.topic, look.twin, look.target, self._store.receipts.positions(self._link.name))
        return lifecycle.decide(look, memory, rules, held, at_ms)

    def _one(self, row: TwinRow, source: SeenTopic, target: SeenTopic, *, doubted: bool) -> TopicLook:
        topic = row.topic
        missed = self._missed.get(topic, 0) + 1 if source.presence is Presence.GONE else 0
        self._missed[topic] = missed
        twin = self._link.twin_of(topic)
        return TopicLook(topic, twin, row.source_topic_id, row.target_topic_id, source, target, missed, doubted)

    def _judged(self, looks: Sequence[TopicLook]) -> dict[str, Judged]:
        memories = memories_of(self._store.memories.of(self._link.name))
        mapped = {topic for topic, _ in self._store.extents.reached(self._link.name)}
        against = self.objections([look.topic for look in looks if lifecycle.is_lost(look)])
        found = {}
        for look in looks:
            rules = TopicRules(self._link.follow, against.get(look.topic, ""))
            one = look, memories.get(look.topic, Memory()), rules
            found[look.topic] = Judged(*(lifecycle.for_mapped(*one) if look.topic in mapped else one))
        ours = [one for topic, one in found.items() if not is_heartbeats(topic)]
        waiting = sum(lifecycle.would_delete(*one, wall_ms()) for one in ours)
        lost = sum(lifecycle.is_lost(one.look) for one in ours)
        many = too_many(waiting, lost, len(ours), self._safety.known.deletions_at_once_max)
        if not many:
            return found
        return {topic: one._replace(rules=replace(one.rules, many=many)) for topic, one in found.items()}


@dataclass(frozen=True, slots=True)
class Order:
    """For the driver. `withdraw`: off the lanes first. `again`: the planner decides anew. `forget`: the store has."""

    topic: str
    withdraw: bool = False
    again: bool = False
    forget: bool = False


class Endings:
    """`orders` and `doubt` may be called by any thread, the rest by the follower's alone. `active`: whether the link is
    ours to act for, asked again before each deletion."""

    def __init__(
        self,
        link: Link,
        source: KafkaCluster,
        target: KafkaCluster,
        store: Store,
        hands: Hands,
        *,
        links: Sequence[Link],
        safety: SafetyNow,
        active: Callable[[], bool],
        clock_s: Callable[[], float] = steady_s,
    ) -> None:
        self._link, self._source, self._target, self._store, self._hands = link, source, target, store, hands
        self.judging = Judging(link, source, target, store, links=links, safety=safety)
        self._active, self._clock_s = active, clock_s
        self._delays = ServedDelays(link.name)
        self._orders: deque[Order] = deque()
        self._guard = threading.Lock()
        self._doubted: set[str] = set()
        self._unusual: set[str] = set()
        self._told: dict[str, set[str]] = {}
        self._troubles: dict[str, Once] = {}
        self._refused_s: dict[str, float] = {}
        self._carried: frozenset[str] = frozenset()

    def orders(self, carried: Iterable[str]) -> list[Order]:
        """What the driver shall do now; `carried` are the topics its lanes carry at this moment."""
        self._carried = frozenset(carried)
        found = []
        while self._orders:
            found.append(self._orders.popleft())
        return found

    def doubt(self, topics: Iterable[str]) -> bool:
        """Whether anything is to be looked at sooner for it."""
        with self._guard:
            before = len(self._doubted)
            self._doubted.update(topics)
            return len(self._doubted) > before

    def again(self, topic: str) -> None:
        """The planner shall decide about it anew."""
        self._orders.append(Order(topic))

    def is_plain(self, topic: str) -> bool:
        """Whether the last look found both sides as they are known."""
        return topic not in self._unusual

    def look(self) -> None:
        """One look at every topic that has, or had, a twin. One that cannot be looked at hinders no other."""
        with self._guard:
            doubted, self._doubted = self._doubted, set()
        judged = self.judging.look(doubted)
        opened = self._opened()
        for topic, one in judged.items():
            (self._unusual.discard if one.is_plain else self._unusual.add)(topic)
            if one.is_plain:
                self._over(topic, opened.get(topic, set()))
            if (not one.is_plain or one.look.doubted) and self._active():
                self._try(one)

    def _try(self, one: Judged) -> None:
        topic = one.look.topic
        once = self._troubles.setdefault(topic, Once(self._hands.log))
        try:
            self._act(one)
        except KafkaError as error:
            once.say(f"{self._link.name}: what becomes of topic {topic} is not decided now: {error}")
        else:
            once.well(f"{self._link.name}: what becomes of topic {topic} is decided again")

    def _act(self, one: Judged) -> None:
        at_ms = wall_ms()
        for act in self.judging.decide(self._waited(one), at_ms):
            if not self._do(act, one.look, at_ms):
                return

    def _waited(self, one: Judged) -> Judged:
        """With how long an announced deletion has waited; the store keeps it for the next process."""
        topic = one.look.topic
        served = self._delays.served(topic, one.memory, self._clock_s())
        row = self._delays.row(topic, one.memory, served, one.rules.follow.delete_after_s)
        if row is not None:
            self._store.memories.remember([row])
        return one._replace(memory=served)

    def _do(self, act: Act, look: TopicLook, at_ms: int) -> bool:
        """Whether the next act may follow at once: a twin is not touched before its pumps have let go of it."""
        match act:
            case AskSpans(topic):
                raise KafkaError(f"{self._target.name} did not say of each partition what the twin {look.twin} holds")
            case Remember():
                self._remember(act, at_ms)
            case Withdraw(topic):
                if topic in self._carried:
                    self._orders.append(Order(topic, withdraw=True))
            case LookAgain(topic):
                self._orders.append(Order(topic, again=True))
            case Tell():
                self._tell(act)
            case Archive(topic):
                self._archive(topic, look.target)
            case DeleteTwin():
                return self._delete(act, look.known_target_id)
            case TakeBack(topic):
                self._take_back(topic, lifecycle.CONFIRMED)
            case Forget(topic):
                if topic in self._carried:
                    return False
                self._forget(topic)
        return True

    def _delete(self, act: DeleteTwin, topic_id: str) -> bool:
        """Nothing that is not so at this moment counts: what was asked a while ago may have changed."""
        topic, tried_s = act.topic, self._refused_s.get(act.topic)
        if topic in self._carried or not self._active() or self.judging.objections([topic])[topic]:
            return False
        if tried_s is not None and time.monotonic() - tried_s < REFUSED_AGAIN_S:
            return False
        refused = self._hands.delete_twin(act.twin, topic_id, act.reason, still=self._active, told=tried_s is not None)
        if refused and self._active():
            self._refused_s[topic] = time.monotonic()
            policy = Policy(f"try again every {REFUSED_AGAIN_S:g} s", Effect.TWIN)
            self._tell(Tell(topic, HELD, f"the twin {act.twin} cannot be deleted: {refused}", policy))
        return not refused

    def _take_back(self, topic: str, kind: str) -> None:
        self._store.memories.forget([Remembered(self._link.name, kind, topic, "", "", 0)])

    def _remember(self, act: Remember, at_ms: int) -> None:
        row = row_of(self._link.name, act, at_ms)
        if act.state:
            self._store.memories.remember([row])
            return
        self._store.memories.forget([row])
        self._take_back(act.topic, lifecycle.ALLOWED)
        self._close(act.topic, DELETION, HELD)
        self._told.get(act.topic, set()).difference_update((DELETION, HELD))
        self._hands.account([Change(lifecycle.KIND, act.topic, "", THERE_AGAIN, act.topic)], DONE)

    def _tell(self, act: Tell) -> None:
        incident = Incident(
            self._link.name, act.topic, -1, act.kind, -1, -1, act.policy, act.sentence, act.side or act.kind.side
        )
        if act.anew:
            stale = [row for row in self._rows(act.topic, incident.kind) if row.incident.sentence != act.sentence]
            for row in stale:
                self._store.ledger.close(row.id, now_ms=wall_ms())
        elif act.kind in self._told.get(act.topic, ()):
            return
        at_ms = wall_ms()
        row = self._store.ledger.add(incident, now_ms=at_ms)
        self._told.setdefault(act.topic, set()).add(act.kind)
        change = Change(lifecycle.KIND, act.topic, "", act.sentence, act.topic)
        if row.opened_ms == at_ms:
            self._hands.account([change], act.policy.words)
        else:
            self._hands.log(f"{self._link.name}: {change} ({act.policy.words})")

    def _rows(self, topic: str, *kinds: IncidentKind) -> list[LedgerRow]:
        """Open rows of the whole topic."""
        rows = self._store.ledger.rows(self._link.name, open_only=True)
        here = [row for row in rows if (row.incident.topic, row.incident.partition) == (topic, -1)]
        return [row for row in here if row.incident.kind in kinds]

    def _opened(self) -> dict[str, set[str]]:
        """What the ledger says became of topics, whoever told it: an earlier process, or another mirror meanwhile."""
        found: dict[str, set[str]] = {}
        for row in self._store.ledger.rows(self._link.name, open_only=True):
            if row.incident.partition < 0 and row.incident.kind in ENDED:
                found.setdefault(row.incident.topic, set()).add(row.incident.kind)
        return found

    def _over(self, topic: str, opened: set[str]) -> None:
        """Both sides are as they are known: what was told of them is past."""
        told = self._told.get(topic, set()) | opened
        if told:
            self._close(topic, *map(IncidentKind, told))
        self._told.pop(topic, None)

    def _archive(self, topic: str, twin: SeenTopic) -> None:
        for partition in range(twin.partitions):
            self._store.receipts.set_state(self._link.name, topic, partition, PartitionState.ARCHIVED)
        self._close(topic, DELETION)
        self._hands.account([Change(lifecycle.KIND, topic, "", ARCHIVED, topic)], DONE)

    def _forget(self, topic: str) -> None:
        self._close(topic, *OF_KNOWN_TOPICS)
        self._told.pop(topic, None)
        self._store.forget_topic(self._link.name, topic, spent(self._link.name, topic))
        self._refused_s.pop(topic, None)
        self._orders.append(Order(topic, forget=True))
        self._hands.account([Change(lifecycle.KIND, topic, "", FORGOTTEN, topic)], DONE)

    def _close(self, topic: str, *kinds: IncidentKind) -> None:
        for row in self._rows(topic, *kinds):
            self._store.ledger.close(row.id, now_ms=wall_ms())
