"""Deletion and re-creation of topics. `TopicJudge` observes both clusters, and `lifecycle` decides about each known
topic. `DeletedTopics` carries that out; `mirror plan` prints it. Orders about tasks and the planner are left for the
controller's next turn.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from twinshore.config.errors import KafkaError
from twinshore.config.incident_policy import KNOWN_TOPIC_KINDS, IncidentEffect, IncidentKind, IncidentPolicy
from twinshore.config.model import Link, is_heartbeats_topic
from twinshore.config.repeat_filter import RepeatFilter
from twinshore.kafka.clock import steady_s, wall_ms
from twinshore.kafka.cluster import KafkaCluster
from twinshore.replication.sync.cluster_comparison import observe_topics, read_twin_ranges
from twinshore.replication.sync.core import lifecycle
from twinshore.replication.sync.core.decisions import (
    ARCHIVED_OUTCOME,
    FORGOTTEN_OUTCOME,
    RETURNED_OUTCOME,
    ArchiveTwin,
    AskTwinRanges,
    Change,
    DeleteTwin,
    DropTopicState,
    LifecycleAction,
    RememberState,
    ReplanTopic,
    ReportIncident,
    RevokeApproval,
    WithdrawTopic,
)
from twinshore.replication.sync.core.lifecycle import (
    DeletionDelays,
    DeletionRules,
    LifecycleState,
    ObservedTopic,
    TopicObservation,
    explain_too_many,
    lifecycle_row,
    parse_lifecycle_states,
    rows_to_forget,
)
from twinshore.replication.sync.deletion_guard import DeletionForbiddenError, DeletionGuard, SafetyPolicy
from twinshore.replication.sync.target_admin import DONE, TargetAdmin
from twinshore.runtime.logging import LinkLogger
from twinshore.state.core.values import Incident, IncidentRow, LinkStateRow, PartitionState, TwinRow
from twinshore.state.log import refused_outcome
from twinshore.state.store import Store

log = logging.getLogger(__name__)

DELETED_KIND, DELETION_HELD_KIND = IncidentKind.DELETED_TOPIC, IncidentKind.DELETION_HELD
ENDED_KINDS = (DELETED_KIND, IncidentKind.RECREATED_TOPIC, DELETION_HELD_KIND)
DELETE_RETRY_S = 60.0


class JudgedTopic(NamedTuple):
    observation: TopicObservation
    state: LifecycleState
    rules: DeletionRules

    @property
    def is_plain(self) -> bool:
        """Whether both sides are as the store knows them and of one shape, without a remembered deletion."""
        observation = self.observation
        same = observation.source.topic_id == observation.known_source_id and not observation.twin_replaced
        fits = observation.target.partitions <= observation.source.partitions
        return same and fits and self.state == LifecycleState()


class TopicJudge:
    """Observes and judges known topics, in one thread. `links`: all in the settings. `link` gives names and policies,
    which operators cannot override; their orders are read from the store each time.
    """

    def __init__(
        self,
        link: Link,
        source: KafkaCluster,
        target: KafkaCluster,
        store: Store,
        *,
        links: Sequence[Link],
        safety: SafetyPolicy,
        holds_lease: Callable[[], bool] = lambda: False,
    ) -> None:
        self._link, self._source, self._target, self._store = link, source, target, store
        self.guard = DeletionGuard(link, links, store, safety, holds_lease)
        self._missed: dict[str, int] = {}

    def look(self, doubted: Collection[str] = ()) -> dict[str, JudgedTopic]:
        """Observes topics that have or had a twin. `doubted`: topics where a task stopped."""
        known: dict[str, TwinRow] = {}
        for row in self._store.twins.of(self._link.name):
            known.setdefault(row.topic, row)
        # The target first: a topic that grows in between must not look as if its twin had grown.
        target = observe_topics(self._target, [self._link.twin_of(topic) for topic in known])
        source = observe_topics(self._source, known)
        looks = [
            self._one(row, source[topic], target[self._link.twin_of(topic)], doubted=topic in doubted)
            for topic, row in known.items()
        ]
        return self._judged(looks)

    def decide(self, one: JudgedTopic, at_ms: int) -> list[LifecycleAction]:
        """Decides what to do now; reads what the twin holds if needed."""
        topic, twin, target = one.observation.topic, one.observation.twin, one.observation.target
        acts = lifecycle.decide_actions(*one, None, at_ms)
        if AskTwinRanges(topic) not in acts:
            return acts
        spans = read_twin_ranges(self._target, topic, twin, target, self._store.progress.positions(self._link.name))
        return lifecycle.decide_actions(*one, spans, at_ms)

    def _one(self, row: TwinRow, source: ObservedTopic, target: ObservedTopic, *, doubted: bool) -> TopicObservation:
        topic = row.topic
        missed = self._missed.get(topic, 0) + 1 if source.is_gone else 0
        self._missed[topic] = missed
        twin = self._link.twin_of(topic)
        return TopicObservation(topic, twin, row.source_topic_id, row.target_topic_id, source, target, missed, doubted)

    def _judged(self, looks: Sequence[TopicObservation]) -> dict[str, JudgedTopic]:
        states = parse_lifecycle_states(self._store.link_states.of(self._link.name))
        mapped = {topic for topic, _ in self._store.offset_runs.reached(self._link.name)}
        against = self.guard.objections(look.topic for look in looks if lifecycle.is_source_lost(look))
        found = {}
        for look in looks:
            rules = DeletionRules(self._link.follow, against.get(look.topic, ""))
            judged = look, states.get(look.topic, LifecycleState()), rules
            found[look.topic] = JudgedTopic(*(lifecycle.adapt_to_mapped(*judged) if look.topic in mapped else judged))
        counted = [judged for topic, judged in found.items() if not is_heartbeats_topic(topic)]
        waiting = sum(lifecycle.would_delete(*judged, wall_ms()) for judged in counted)
        lost = sum(lifecycle.is_source_lost(judged.observation) for judged in counted)
        many = explain_too_many(waiting, lost, len(counted), self.guard.safety.known.deletions_at_once_max)
        if not many:
            return found
        return {topic: one._replace(rules=replace(one.rules, many=many)) for topic, one in found.items()}


@dataclass(frozen=True, slots=True)
class ControllerOrder:
    """The controller plans the topic again. `withdraw`: it stops the topic's tasks first. `forget`: the store has
    forgotten the topic.
    """

    topic: str
    withdraw: bool = False
    forget: bool = False


class DeletedTopics:
    """Handles deleted topics of one link. `orders` and `doubt` are safe for any thread, the rest for the sync thread.
    `active`: whether this process acts for the link, checked again before deletions.
    """

    def __init__(
        self,
        link: Link,
        source: KafkaCluster,
        target: KafkaCluster,
        store: Store,
        admin: TargetAdmin,
        *,
        links: Sequence[Link],
        safety: SafetyPolicy,
        active: Callable[[], bool],
        clock_s: Callable[[], float] = steady_s,
    ) -> None:
        self._link, self._source, self._target, self._store, self._admin = link, source, target, store, admin
        self.judging = TopicJudge(link, source, target, store, links=links, safety=safety, holds_lease=active)
        self._active, self._clock_s, self._log = active, clock_s, LinkLogger(log, link.name)
        self._delays = DeletionDelays(link.name)
        self._orders: deque[ControllerOrder] = deque()
        self._guard = threading.Lock()
        self._doubted: set[str] = set()
        self._unusual: set[str] = set()
        self._told: dict[str, set[str]] = {}
        self._troubles: dict[str, RepeatFilter] = {}
        self._refused_s: dict[str, float] = {}
        self._carried: frozenset[str] = frozenset()

    def orders(self, carried: Iterable[str]) -> list[ControllerOrder]:
        """Takes the controller's orders. `carried`: topics that tasks replicate now."""
        self._carried = frozenset(carried)
        found = []
        while self._orders:
            found.append(self._orders.popleft())
        return found

    def doubt(self, topics: Iterable[str]) -> bool:
        """Notes doubted topics; returns whether an earlier poll is needed."""
        with self._guard:
            before = len(self._doubted)
            self._doubted.update(topics)
            return len(self._doubted) > before

    def again(self, topic: str) -> None:
        self._orders.append(ControllerOrder(topic))

    def is_plain(self, topic: str) -> bool:
        """Whether the last poll found both sides as known."""
        return topic not in self._unusual

    def look(self) -> None:
        """Observes and handles every topic. A failure for one does not affect others."""
        with self._guard:
            doubted, self._doubted = self._doubted, set()
        judged = self.judging.look(doubted)
        opened = self._opened()
        for topic, one in judged.items():
            (self._unusual.discard if one.is_plain else self._unusual.add)(topic)
            if one.is_plain:
                self._over(topic, opened.get(topic, set()))
            if (not one.is_plain or one.observation.doubted) and self._active():
                self._try(one)

    def _try(self, one: JudgedTopic) -> None:
        topic = one.observation.topic
        repeat_filter = self._troubles.setdefault(topic, RepeatFilter(self._log))
        try:
            self._act(one)
        except KafkaError as error:
            repeat_filter.say(f"the mirror cannot decide about topic {topic} now: {error}")
        else:
            repeat_filter.well(f"the mirror decides about topic {topic} again")

    def _act(self, one: JudgedTopic) -> None:
        at_ms = wall_ms()
        for act in self.judging.decide(self._waited(one), at_ms):
            if not self._do(act, one.observation, at_ms):
                return

    def _waited(self, one: JudgedTopic) -> JudgedTopic:
        """Adds how long an announced deletion has waited; the store keeps that for the next process."""
        topic = one.observation.topic
        served = self._delays.served(topic, one.state, self._clock_s())
        row = self._delays.row(topic, one.state, served, one.rules.rules.delete_after_s)
        if row is not None:
            self._store.link_states.remember([row])
        return one._replace(state=served)

    def _do(self, act: LifecycleAction, observation: TopicObservation, at_ms: int) -> bool:
        """Returns whether the next action may follow at once: a twin is untouched until its tasks have stopped."""
        match act:
            case AskTwinRanges(topic):
                raise KafkaError(f"{self._target.name} did not show all partitions of twin {observation.twin}")
            case RememberState():
                self._remember(act, at_ms)
            case WithdrawTopic(topic):
                if topic in self._carried:
                    self._orders.append(ControllerOrder(topic, withdraw=True))
            case ReplanTopic(topic):
                self.again(topic)
            case ReportIncident():
                self._report(act)
            case ArchiveTwin(topic):
                self._archive(topic, observation.target)
            case DeleteTwin():
                return self._delete(act, observation.known_target_id)
            case RevokeApproval(topic):
                self._take_back(topic, lifecycle.RECREATE_APPROVAL)
            case DropTopicState(topic):
                if topic in self._carried:
                    return False
                self._forget(topic)
        return True

    def _delete(self, act: DeleteTwin, topic_id: str) -> bool:
        topic, tried_s = act.topic, self._refused_s.get(act.topic)
        if topic in self._carried or (tried_s is not None and time.monotonic() - tried_s < DELETE_RETRY_S):
            return False
        deleted = [Change("twin", act.twin, "", f"deleted: {act.reason}", act.twin)]
        try:
            self.judging.guard.delete(self._target, topic, topic_id)
        except DeletionForbiddenError:
            return False
        except KafkaError as error:
            if error.retriable or not self._active():
                raise
            refused = refused_outcome(error)
        else:
            self._admin.account(deleted, DONE)
            return True
        if tried_s is None:
            self._admin.account(deleted, refused)
        self._refused_s[topic] = time.monotonic()
        policy = IncidentPolicy(f"try again every {DELETE_RETRY_S:g} s", IncidentEffect.TWIN)
        held = f"the twin {act.twin} cannot be deleted: {refused}"
        self._report(ReportIncident(topic, DELETION_HELD_KIND, held, policy))
        return False

    def _take_back(self, topic: str, kind: str) -> None:
        self._store.link_states.forget([LinkStateRow(self._link.name, kind, topic, "", "", 0)])

    def _remember(self, act: RememberState, at_ms: int) -> None:
        row = lifecycle_row(self._link.name, act, at_ms)
        if act.state:
            self._store.link_states.remember([row])
            return
        self._store.link_states.forget([row])
        self._take_back(act.topic, lifecycle.DELETE_APPROVAL)
        self._close(act.topic, DELETED_KIND, DELETION_HELD_KIND)
        self._told.get(act.topic, set()).difference_update((DELETED_KIND, DELETION_HELD_KIND))
        self._admin.account([Change(lifecycle.TOPIC_KIND, act.topic, "", RETURNED_OUTCOME, act.topic)], DONE)

    def _report(self, report: ReportIncident) -> None:
        topic, kind, sentence, policy, side = report.topic, report.kind, report.sentence, report.policy, report.side
        if report.anew:
            for row in self._rows(topic, kind):
                if row.incident.sentence != sentence:
                    self._store.incidents.close(row.id, now_ms=wall_ms())
        elif kind in self._told.get(topic, ()):
            return
        at_ms = wall_ms()
        incident = Incident(self._link.name, topic, -1, kind, -1, -1, policy, sentence, side or kind.side)
        row = self._store.incidents.add(incident, now_ms=at_ms)
        self._told.setdefault(topic, set()).add(kind)
        change = Change(lifecycle.TOPIC_KIND, topic, "", sentence, topic)
        if row.opened_ms == at_ms:
            self._admin.account([change], policy.words)
        else:
            self._log.log(policy.log_level, f"{change} ({policy.words})", extra={"topic": topic})

    def _rows(self, topic: str, *kinds: IncidentKind) -> list[IncidentRow]:
        rows = self._store.incidents.rows(self._link.name, open_only=True)
        here = [row for row in rows if (row.incident.topic, row.incident.partition) == (topic, -1)]
        return [row for row in here if row.incident.kind in kinds]

    def _opened(self) -> dict[str, set[str]]:
        """Open rows about deleted topics, also by an earlier process or another mirror."""
        found: dict[str, set[str]] = {}
        for row in self._store.incidents.rows(self._link.name, open_only=True):
            if row.incident.partition < 0 and row.incident.kind in ENDED_KINDS:
                found.setdefault(row.incident.topic, set()).add(row.incident.kind)
        return found

    def _over(self, topic: str, opened: set[str]) -> None:
        if reported := self._told.pop(topic, set()) | opened:
            self._close(topic, *map(IncidentKind, reported))

    def _archive(self, topic: str, twin: ObservedTopic) -> None:
        for partition in range(twin.partitions):
            self._store.progress.set_state(self._link.name, topic, partition, PartitionState.ARCHIVED)
        self._close(topic, DELETED_KIND)
        self._admin.account([Change(lifecycle.TOPIC_KIND, topic, "", ARCHIVED_OUTCOME, topic)], DONE)

    def _forget(self, topic: str) -> None:
        self._close(topic, *KNOWN_TOPIC_KINDS)
        self._told.pop(topic, None)
        self._store.forget_topic(self._link.name, topic, rows_to_forget(self._link.name, topic))
        self._refused_s.pop(topic, None)
        self._orders.append(ControllerOrder(topic, forget=True))
        self._admin.account([Change(lifecycle.TOPIC_KIND, topic, "", FORGOTTEN_OUTCOME, topic)], DONE)

    def _close(self, topic: str, *kinds: IncidentKind) -> None:
        for row in self._rows(topic, *kinds):
            self._store.incidents.close(row.id, now_ms=wall_ms())
