"""Deletion and re-creation, with hands: looks at every known topic, decides by `lifecycle`, and does it.

What concerns lanes and the planner is left as orders for the driver's thread, which takes them at its next turn.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from twinshore.fleet import Follow, Link
from twinshore.kafka.cluster import KafkaCluster
from twinshore.mirror.follow import lifecycle
from twinshore.mirror.follow.change import Change
from twinshore.mirror.follow.hands import DONE, Hands, now_ms
from twinshore.mirror.follow.lifecycle import (
    Act,
    Archive,
    DeleteTwin,
    Forget,
    LookAgain,
    Memory,
    Presence,
    Remember,
    Side,
    Span,
    State,
    Tell,
    TopicLook,
    Withdraw,
)
from twinshore.mirror.follow.reading import sides, spans
from twinshore.mirror.follow.topic_settings import KIND as SETTINGS
from twinshore.mirror.incidents.kinds import OF_KNOWN_TOPICS
from twinshore.store import Followed, Incident, IncidentKind, PartitionState, Store, TwinRow

DELETION = IncidentKind.DELETED_TOPIC
ENDED = (DELETION, IncidentKind.RECREATED_TOPIC)
ASKING = (None, State.GONE, State.BEGINNING)  # states whose next step depends on what the twin holds


@dataclass(frozen=True, slots=True)
class Order:
    """For the driver. `withdraw`: off the lanes first. `again`: the planner decides anew. `forget`: the store has."""

    topic: str
    withdraw: bool = False
    again: bool = False
    forget: bool = False


class Endings:
    """`orders` and `doubt` may be called by any thread, the rest by the follower's alone."""

    def __init__(self, link: Link, source: KafkaCluster, target: KafkaCluster, store: Store, hands: Hands) -> None:
        self._link, self._source, self._target, self._store, self._hands = link, source, target, store, hands
        self._orders: deque[Order] = deque()
        self._guard = threading.Lock()
        self._doubted: set[str] = set()
        self._missed: dict[str, int] = {}
        self._unusual: set[str] = set()
        self._told: dict[str, set[str]] = {}
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
        """One look at every topic that has, or had, a twin."""
        known: dict[str, TwinRow] = {}
        for row in self._store.twins(self._link.name):
            known.setdefault(row.topic, row)
        with self._guard:
            doubted, self._doubted = self._doubted, set()
        # The target first: a topic that grows in between must not look as if its twin had grown.
        target = sides(self._target, [self._link.twin_of(topic) for topic in known])
        source = sides(self._source, known)
        memories = self._memories()
        mapped = {topic for topic, _ in self._store.reached(self._link.name)}
        opened = self._opened()
        for topic, row in known.items():
            look = self._one(row, source[topic], target[self._link.twin_of(topic)], doubted=topic in doubted)
            memory, follow = memories.get(topic, Memory()), self._link.follow
            if topic in mapped:
                look, memory, follow = lifecycle.for_mapped(look, memory, follow)
            plain = _plain(look) and memory == Memory()
            (self._unusual.discard if plain else self._unusual.add)(topic)
            if plain:
                self._over(topic, opened.get(topic, set()))
            if not plain or look.doubted:
                self._act(look, memory, follow)

    def _one(self, row: TwinRow, source: Side, target: Side, *, doubted: bool) -> TopicLook:
        topic = row.topic
        missed = self._missed.get(topic, 0) + 1 if source.presence is Presence.GONE else 0
        self._missed[topic] = missed
        twin = self._link.twin_of(topic)
        return TopicLook(topic, twin, row.source_topic_id, row.target_topic_id, source, target, missed, doubted)

    def _memories(self) -> dict[str, Memory]:
        states = {row.subject: row for row in self._store.followed(self._link.name, lifecycle.KIND)}
        agreed = {row.subject: row for row in self._store.followed(self._link.name, lifecycle.CONFIRMED)}
        return {
            topic: Memory(
                State(states[topic].state) if topic in states else None,
                states[topic].since_ms if topic in states else 0,
                agreed[topic].since_ms if topic in agreed else None,
            )
            for topic in states.keys() | agreed.keys()
        }

    def _act(self, look: TopicLook, memory: Memory, follow: Follow) -> None:
        held: list[Span] = []
        if memory.state in ASKING and look.target.presence is Presence.THERE:
            positions = self._store.positions(self._link.name)
            held = spans(self._target, look.topic, look.twin, look.target, positions)
        for act in lifecycle.decide(look, memory, follow, held, now_ms()):
            if not self._do(act, look):
                return

    def _do(self, act: Act, look: TopicLook) -> bool:
        """Whether the next act may follow at once: a twin is not touched before its pumps have let go of it."""
        match act:
            case Remember(topic, state):
                self._remember(topic, state)
            case Withdraw(topic):
                if topic in self._carried:
                    self._orders.append(Order(topic, withdraw=True))
            case LookAgain(topic):
                self._orders.append(Order(topic, again=True))
            case Tell():
                self._tell(act)
            case Archive(topic):
                self._archive(topic, look.target)
            case DeleteTwin(topic, twin, reason):
                return topic not in self._carried and self._hands.delete_twin(twin, look.known_target_id, reason)
            case Forget(topic):
                if topic in self._carried:
                    return False
                self._forget(topic)
        return True

    def _remember(self, topic: str, state: State | None) -> None:
        row = Followed(self._link.name, lifecycle.KIND, topic, "", state or "", now_ms())
        if state:
            self._store.remember([row])
        else:
            self._store.forget([row])
            self._close(topic, DELETION)
            self._hands.account([Change(lifecycle.KIND, topic, "", "there again on the source")], DONE)

    def _tell(self, act: Tell) -> None:
        if act.kind in self._told.get(act.topic, ()):
            return
        at_ms = now_ms()
        incident = Incident(self._link.name, act.topic, -1, IncidentKind(act.kind), -1, -1, act.policy, act.sentence)
        row = self._store.add_incident(incident, now_ms=at_ms)
        self._told.setdefault(act.topic, set()).add(act.kind)
        change = Change(lifecycle.KIND, act.topic, "", act.sentence)
        if row.opened_ms == at_ms:
            self._hands.account([change], act.policy)
        else:
            self._hands.log(f"{self._link.name}: {change} ({act.policy})")

    def _opened(self) -> dict[str, set[str]]:
        """What the ledger says became of topics, whoever told it: an earlier process, or another mirror meanwhile."""
        found: dict[str, set[str]] = {}
        for row in self._store.incidents(self._link.name, open_only=True):
            if row.incident.partition < 0 and row.incident.kind in ENDED:
                found.setdefault(row.incident.topic, set()).add(row.incident.kind)
        return found

    def _over(self, topic: str, opened: set[str]) -> None:
        """Both sides are as they are known: what was told of them is past."""
        told = self._told.get(topic, set()) | opened
        if told:
            self._close(topic, *map(IncidentKind, told))
        self._told.pop(topic, None)

    def _archive(self, topic: str, twin: Side) -> None:
        for partition in range(twin.partitions):
            self._store.set_partition_state(self._link.name, topic, partition, PartitionState.ARCHIVED)
        self._close(topic, DELETION)
        self._hands.account(
            [Change(lifecycle.KIND, topic, "", "archived: its twin stays and is watched no more")], DONE
        )

    def _forget(self, topic: str) -> None:
        self._close(topic, *OF_KNOWN_TOPICS)
        self._told.pop(topic, None)
        self._store.forget_topic(self._link.name, topic)
        kinds = (lifecycle.KIND, lifecycle.CONFIRMED, SETTINGS)
        self._store.forget([Followed(self._link.name, kind, topic, "", "", 0) for kind in kinds])
        self._orders.append(Order(topic, forget=True))
        self._hands.account([Change(lifecycle.KIND, topic, "", "forgotten: a new twin may begin")], DONE)

    def _close(self, topic: str, *kinds: IncidentKind) -> None:
        for row in self._store.incidents(self._link.name, open_only=True):
            if (row.incident.topic, row.incident.partition) == (topic, -1) and row.incident.kind in kinds:
                self._store.close_incident(row.id, now_ms=now_ms())


def _plain(look: TopicLook) -> bool:
    """Both sides are what the store knows, and of one shape."""
    ids = (look.source.topic_id, look.target.topic_id)
    return ids == (look.known_source_id, look.known_target_id) and look.target.partitions <= look.source.partitions
