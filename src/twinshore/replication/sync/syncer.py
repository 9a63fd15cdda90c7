"""Compares both clusters every few seconds in everything but records, and changes the target to follow.

`ConfigSync` is a separate task, so that slow calls do not delay replication. It acts only while this process owns the
link, and may repeat any action.

`AclSync` makes ACLs follow, and tells whether a new twin's rules are in place, before which nothing is replicated
there. The controller asks for new topics, and the sync thread checks them: rules are in place once a poll finds all on
the target.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

from twinshore.config.errors import KafkaError, TwinshoreError
from twinshore.config.grouping import in_slices
from twinshore.config.incident_policy import IncidentKind, IncidentSide
from twinshore.config.model import Link
from twinshore.config.sections.links import unmatched_outputs
from twinshore.config.sentences import join_names
from twinshore.config.settings import Settings
from twinshore.kafka.admin import read_acls
from twinshore.kafka.clock import wall_ms
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.protocol.access_control import Acl, ResourceType
from twinshore.replication import stopped_partitions
from twinshore.replication.core.model import CarryTopic, Refuse
from twinshore.replication.sync.cluster_comparison import ClusterComparison, own_users, target_principal
from twinshore.replication.sync.core import decisions
from twinshore.replication.sync.core.decisions import (
    ARCHIVED_OUTCOME,
    FORGOTTEN_OUTCOME,
    RETURNED_OUTCOME,
    AclContext,
    ArchiveTwin,
    Change,
    DeleteTwin,
    DropTopicState,
    Remark,
    RememberState,
    ReportIncident,
)
from twinshore.replication.sync.core.lifecycle import (
    COMPACTED_KIND,
    MISSED_POLLS_MIN,
    TOPIC_KIND,
    CompactedTopic,
    compacted_row,
    describe_topic_state,
    is_compacted_policy,
    parse_compacted,
)
from twinshore.replication.sync.deletion_guard import SafetyPolicy
from twinshore.replication.sync.target_admin import TargetAdmin
from twinshore.replication.sync.topic_lifecycle import DeletedTopics, JudgedTopic, TopicJudge
from twinshore.replication.task.core.error_actions import AUTHORIZATION_CODES
from twinshore.runtime.endpoints import LONG_TIMEOUT_CONNECTIONS, LinkClients, SharedConnections, pin_cluster_ids
from twinshore.runtime.logging import FailureLog, OutageLog
from twinshore.runtime.scheduler import process_scheduler
from twinshore.state.core.values import LinkStateRow
from twinshore.state.store import Store

log = logging.getLogger(__name__)

PreviewLine = Change | Remark
PREVIEW_TOPICS_PER_REQUEST = 500


def preview_sync(
    link: Link, settings: Settings, store: Store, shared: SharedConnections, soon: Iterable[str]
) -> list[PreviewLine]:
    """Returns every change and remark. `soon`: topics whose twins would be made first."""
    with LinkClients(link, settings, patience_s=10.0, shared=shared) as clients:
        safety = SafetyPolicy(settings, link.name)
        judging = TopicJudge(link, clients.source, clients.target, store, links=settings.links, safety=safety)
        return _lines(ClusterComparison(link, clients.source, clients.target, store), judging, soon)


def _lines(comparison: ClusterComparison, judging: TopicJudge, soon: Iterable[str]) -> list[PreviewLine]:
    link = comparison.link
    judged = judge_topics(judging)
    topics = judged.keys() | set(soon)
    plain = sorted(topic for topic, one in judged.items() if one.is_plain)
    parts: list[tuple[str, Callable[[], list[PreviewLine]]]] = [
        *((TOPIC_KIND, partial(preview_topic, judging, one)) for one in judged.values() if not one.is_plain),
        (decisions.SETTING_KIND, lambda: _settings(comparison, plain)),
        (decisions.ACL_KIND, lambda: _acls(comparison, topics)),
        ("outputs", lambda: _outputs(link, topics)),
        (decisions.QUOTA_KIND, lambda: _quotas(comparison)),
        (decisions.USER_KIND, lambda: _users(comparison)),
    ]
    found: list[PreviewLine] = []
    for kind, part in parts:
        try:
            found += part()
        except KafkaError as error:
            found.append(Remark(kind, link.name, f"does not follow: {error}"))
    return found


def judge_topics(judging: TopicJudge) -> dict[str, JudgedTopic]:
    """Judges known topics, with as many polls as `ConfigSync` needs to count one as gone."""
    judged: dict[str, JudgedTopic] = {}
    for _ in range(MISSED_POLLS_MIN):
        judged = judging.look()
        if all(not one.observation.source.is_gone for one in judged.values()):
            break
    return judged


def preview_topic(judging: TopicJudge, one: JudgedTopic) -> list[PreviewLine]:
    topic = one.observation.topic
    found: list[PreviewLine] = []
    for act in judging.decide(one, wall_ms()):
        match act:
            case ReportIncident(_, _, sentence, policy):
                found.append(Remark(TOPIC_KIND, topic, f"{sentence} ({policy.words})"))
            case DeleteTwin(_, twin, reason):
                found.append(Change(TOPIC_KIND, topic, "", f"its twin {twin} is deleted: {reason}"))
            case ArchiveTwin():
                found.append(Change(TOPIC_KIND, topic, "", ARCHIVED_OUTCOME))
            case DropTopicState():
                found.append(Change(TOPIC_KIND, topic, "", FORGOTTEN_OUTCOME))
            case RememberState(_, None):
                found.append(Change(TOPIC_KIND, topic, "", RETURNED_OUTCOME))
    says = describe_topic_state(*one)
    return found or ([Remark(TOPIC_KIND, topic, says)] if says else [])


def _settings(comparison: ClusterComparison, plain: list[str]) -> list[PreviewLine]:
    found: list[PreviewLine] = []
    for some in in_slices(plain, PREVIEW_TOPICS_PER_REQUEST):
        plan = comparison.settings(some)
        found += [Remark(decisions.SETTING_KIND, name, why) for name, why in plan.silent.items()]
        for topic, wanted in plan.wanted.items():
            found += decisions.settings_to_changes(comparison.link.twin_of(topic), wanted)
    return found


def _acls(comparison: ClusterComparison, topics: set[str]) -> list[PreviewLine]:
    link = comparison.link
    if not link.follow.acls or not topics:
        return []
    theirs = read_acls(comparison.source)
    ours = read_acls(comparison.target) if theirs is not None else None
    if theirs is None or ours is None:
        return []
    known = comparison.store.link_states.of(link.name, decisions.ACL_WRITTEN_KIND)
    acls = comparison.acls(theirs, ours, topics, known)
    if acls.reason:
        return [Remark(decisions.ACL_KIND, link.name, f"none follows: {acls.reason}")]
    held = [Remark(decisions.ACL_KIND, str(acl), f"held back: {why}") for acl, why in sorted(acls.want.held.items())]
    return [*acls.plan.changes(), *held, *decisions.find_exposing_acls(ours, acls.floor)]


def _outputs(link: Link, topics: Collection[str]) -> list[PreviewLine]:
    unmatched = unmatched_outputs(link.groups.outputs, topics)
    return [Remark("outputs", repr(expression), sentence) for expression, sentence in unmatched]


def _quotas(comparison: ClusterComparison) -> list[PreviewLine]:
    plan = comparison.quotas()
    return [*(change.as_change() for change in plan.changes), *plan.remarks] if plan else []


def _users(comparison: ClusterComparison) -> list[PreviewLine]:
    plan = comparison.users()
    return [*plan.changes(), *plan.remarks] if plan else []


EXPECTED_S_MIN = 30.0  # a topic is expected so long after it was asked for
NO_ACLS_HINT = "or `acls = false` in the link's section `follow`, to replicate it without rules"


class AclSync:
    """ACLs of one link; `link` returns it as it is now. `admit` and `news` are for the controller, `look` for the sync
    thread. `wake`: poll soon. `ours`: all Twinshore users in the settings.
    """

    def __init__(
        self,
        link: Callable[[], Link],
        source: KafkaCluster,
        target: KafkaCluster,
        store: Store,
        admin: TargetAdmin,
        *,
        active: Callable[[], bool],
        wake: Callable[[], None],
        survey_s: float,
        ours: frozenset[str] = frozenset(),
    ) -> None:
        self._link, self._source, self._target, self._store, self._admin = link, source, target, store, admin
        self._active, self._wake, self._ours = active, wake, ours
        self._asked_s_max = max(EXPECTED_S_MIN, 3 * survey_s)
        self._guard = threading.Lock()
        self._asked_s: dict[str, float] = {}
        self._standing: set[str] = set()
        self._why: dict[str, Refuse] = {}  # without the topic
        self._none_follow = not link().follow.acls
        self._news = False

    # -- for the controller

    def admit(self, steps: Sequence[CarryTopic], known: Container[str]) -> tuple[list[CarryTopic], list[Refuse]]:
        """Returns the steps of `known` topics and of those with rules in place, and why some others wait."""
        now_s = time.monotonic()
        with self._guard:
            if self._none_follow:
                return list(steps), []
            fresh = {step.topic for step in steps if step.topic not in known}
            self._asked_s.update(dict.fromkeys(fresh, now_s))
            waiting = fresh - self._standing
            refused = [
                replace(why, topic=topic, sentence=f"topic {topic} waits for its ACLs: {why.sentence}")
                for topic in sorted(waiting)
                if (why := self._why.get(topic)) is not None
            ]
        if waiting:
            self._wake()
        return [step for step in steps if step.topic not in waiting], refused

    def news(self) -> bool:
        """Whether waiting topics may go since the last call."""
        with self._guard:
            news, self._news = self._news, False
        return news

    # -- for the sync thread

    def look(self) -> None:
        """Compares both sides' rules, and changes the target's if ACLs follow. Reports other users that may change
        Twinshore's own topics.
        """
        if not self._link().follow.acls:
            self._set_none_follow(none=True)
            with suppress(TwinshoreError):
                self._tell_open_topics(read_acls(self._source), read_acls(self._target))
            return
        stored = {row.topic for row in self._store.twins.of(self._link().name)}
        soon = self._expected(stored)
        try:
            theirs = self._read(self._source, IncidentKind.SOURCE_AWAY, soon)
            ours = self._read(self._target, IncidentKind.TARGET_AWAY, soon)
        except KafkaError as error:
            if error.code in AUTHORIZATION_CODES:
                self._set_none_follow(none=True)
            raise
        self._tell_open_topics(theirs, ours)
        self._set_none_follow(none=theirs is None or ours is None)
        if theirs is None or ours is None or not (soon or stored):
            return
        try:
            reason = self._follow(theirs, ours, stored | soon, soon)
        except KafkaError as error:
            self._tell(dict.fromkeys(soon, _because(IncidentKind.TARGET_AWAY, error)))
            raise
        if reason:
            raise KafkaError(reason)

    def _tell_open_topics(self, *rules: frozenset[Acl] | None) -> None:
        """Reports nothing of a cluster where the mirror's principal is unknown."""
        if not self._active():
            return
        sentences = []
        for cluster, acls in zip((self._source, self._target), rules, strict=True):
            if acls is not None and (us := target_principal(self._link(), cluster)):
                exposing = decisions.find_open_topic_acls(acls, self._ours | {us})
                sentences.append(decisions.describe_open_topics(cluster.name, cluster.cluster.bootstrap[0], exposing))
        sentence = "; ".join(filter(None, sentences))
        stopped_partitions.report_link_incident(self._store, self._link().name, IncidentKind.OWN_TOPICS_OPEN, sentence)

    def _follow(self, theirs: frozenset[Acl], ours: frozenset[Acl], topics: set[str], soon: set[str]) -> str:
        known = self._store.link_states.of(self._link().name)
        compared = ClusterComparison(self._link(), self._source, self._target, self._store).acls(
            theirs, ours, topics, known
        )
        twins = compared.floor.twins
        if compared.reason:
            self._judge(soon, _without_us(theirs, compared.floor, soon, compared.reason), set())
            return compared.reason
        if not self._active():
            return ""
        refused = self._admin.apply_acls(compared.plan, compared.want, known)
        refused = {acl: error for acl, error in refused.items() if acl.resource == ResourceType.TOPIC}
        why = {acl.name: _because(IncidentKind.TARGET_AWAY, error) for acl, error in refused.items()}
        made = {acl.name for acl in compared.plan.create if acl.resource == ResourceType.TOPIC}
        self._judge(soon, {topic: why[twins[topic]] for topic in soon if twins[topic] in why}, made)
        return ""

    def _judge(self, soon: set[str], why: Mapping[str, Refuse], made: set[str]) -> None:
        """Rules made just now count once the next poll finds them."""
        self._tell(why)
        unseen = {topic for topic in soon if self._link().twin_of(topic) in made}
        stands = soon - why.keys() - unseen
        with self._guard:
            self._news |= bool(stands - self._standing)
            self._standing |= stands
            self._standing -= why.keys()
            for topic in stands:
                self._why.pop(topic, None)
        if unseen - why.keys():
            self._wake()

    def _expected(self, stored: Container[str]) -> set[str]:
        now_s = time.monotonic()
        with self._guard:
            self._asked_s = {
                topic: at_s
                for topic, at_s in self._asked_s.items()
                if topic not in stored and now_s - at_s < self._asked_s_max
            }
            self._standing &= self._asked_s.keys()
            self._why = {topic: why for topic, why in self._why.items() if topic in self._asked_s}
            return set(self._asked_s)

    def _read(self, cluster: KafkaCluster, kind: IncidentKind, soon: set[str]) -> frozenset[Acl] | None:
        try:
            return read_acls(cluster)
        except KafkaError as error:
            if error.code not in AUTHORIZATION_CODES:
                self._tell(dict.fromkeys(soon, _because(kind, error)))
            raise

    def _set_none_follow(self, *, none: bool) -> None:
        """Sets whether no ACL follows: by settings, without an authorizer or the right to read. Then no topic waits."""
        with self._guard:
            self._news |= none and not self._none_follow
            self._none_follow = none

    def _tell(self, why: Mapping[str, Refuse]) -> None:
        with self._guard:
            self._why.update(why)
            self._standing -= why.keys()


def _because(away: IncidentKind, error: KafkaError) -> Refuse:
    kind, hint = stopped_partitions.kind_of_error(error, away), error.hint or "it continues by itself once that is over"
    if kind is IncidentKind.RIGHTS_LOST:
        hint = f"{error.hint}, {NO_ACLS_HINT}"
    return Refuse("", kind, error.message, hint, away.side)


def _without_us(theirs: frozenset[Acl], floor: AclContext, soon: set[str], reason: str) -> dict[str, Refuse]:
    """Topics whose twins all users could use until the mirror's principal is known."""
    shut = {topic for topic in soon if floor.shut_unless_ruled or decisions.has_acl_for(theirs, topic)}
    hint = f"set `principal`, {NO_ACLS_HINT}"
    return dict.fromkeys(shut, Refuse("", IncidentKind.REFUSED, reason, hint, IncidentSide.TARGET))


TOPICS_PER_POLL = 100  # compared in one poll; the others follow in the next ones
PAUSE_S = 0.2


class ConfigSync:
    """Makes the target of one link follow. `link` returns the link as it is now. `active`: whether this process acts
    for the link. `leaves`: whether a switch has the topic and changes its twin's settings.
    """

    def __init__(
        self,
        link: Callable[[], Link],
        settings: Settings,
        store: Store,
        safety: SafetyPolicy,
        *,
        active: Callable[[], bool],
        outages: OutageLog,
        leaves: Callable[[str], bool] = lambda _: False,
    ) -> None:
        self._leaves = leaves
        self._link, begins = link, link()
        self._clients = LinkClients(begins, settings, patience_s=10.0, shared=LONG_TIMEOUT_CONNECTIONS)
        self._source, self._target = self._clients.source, self._clients.target
        self._store = store
        self._active = active
        self._outages = outages
        self._admin = TargetAdmin(begins.name, self._target, store)
        given = (self._source, self._target, store, self._admin)
        self.endings = DeletedTopics(begins, *given, links=settings.links, safety=safety, active=active)
        self._troubles: dict[str, FailureLog] = {}
        self._held = False
        self._next_topic = ""
        us = own_users(settings)
        survey_s = settings.mirror.refresh_s
        self.rules = AclSync(link, *given, active=active, wake=self.poll_soon, survey_s=survey_s, ours=us)
        name, asks, first_s = f"follow {begins.name}", (begins.source, begins.target), begins.follow.every_s
        self._task = process_scheduler.every(name, self._go, asks=asks, first_s=first_s, rest_s=PAUSE_S)

    def doubt(self, topics: Iterable[str]) -> None:
        """Polls at once: tasks stopped at these topics."""
        if self.endings.doubt(topics):
            self._task.wake()

    def poll_soon(self) -> None:
        self._task.wake()

    def close(self) -> None:
        self._task.close()
        self._clients.close()

    def _go(self) -> float:
        if self._active():
            self.look()
        return PAUSE_S + self._link().follow.every_s

    def look(self) -> None:
        """Polls everything. Failures are logged and do not stop other parts."""
        try:
            self._held = self._held or pin_cluster_ids(self._link(), self._store, self._source, self._target)
        except Exception as error:
            self._trouble("anything").say("nothing follows now", error)
            return
        self._trouble("anything").well("the target follows again")
        parts: dict[str, Callable[[], None]] = {
            "ACLs": self.rules.look,  # first: new topics wait for it
            "topics": self.endings.look,
            "topic settings": self._settings,
            "quotas": self._quotas,
            "SCRAM users": self._users,
            "notes for the audit": self._admin.write_audit,
        }
        for what, part in parts.items():
            if not self._active():
                return
            try:
                part()
            except Exception as error:
                self._trouble(what).say(f"{what} do not follow now", error)
            else:
                self._trouble(what).well(f"{what} follow again")

    def _trouble(self, what: str) -> FailureLog:
        if what not in self._troubles:
            self._troubles[what] = FailureLog(self._link().name, what, log, self._outages)
        return self._troubles[what]

    # -- topic settings

    def _settings(self) -> None:
        name = self._link().name
        ids = {row.topic: row.target_topic_id for row in self._store.twins.of(name)}
        chosen = self._turn(sorted(topic for topic in ids if self.endings.is_plain(topic) and not self._leaves(topic)))
        if not chosen:
            return
        plan = self._comparing().settings(chosen)
        self._remark("settings left", list(plan.silent.values()))
        for topic, wanted in plan.wanted.items():
            if self._active() and not self._leaves(topic):
                self._admin.alter_settings(self._link().twin_of(topic), ids[topic], wanted)
        known = {row.subject: row.value for row in self._store.link_states.of(name, decisions.SETTING_KIND)}
        rows = []
        for topic, settings in plan.source.items():
            value = decisions.dump_promotion_settings(settings)
            if known.get(topic) != value:
                rows.append(LinkStateRow(name, decisions.SETTING_KIND, topic, value, "source", wall_ms()))
            if topic in known and _cleanup(known[topic]) != _cleanup(value):
                self.endings.again(topic)  # The planner decides what kind of twin it needs.
        # First, as only the earlier row shows it.
        self._store.link_states.remember(self._compacted(plan.source, known))
        self._store.link_states.remember(rows)

    def _compacted(self, source: Mapping[str, decisions.TopicSettings], known: Mapping[str, str]) -> list[LinkStateRow]:
        """Topics compacted now or at the last poll: a proof must know while the cleaned part exists."""
        before = parse_compacted(self._store.link_states.of(self._link().name, COMPACTED_KIND))
        ids = {row.topic: row.source_topic_id for row in self._store.twins.of(self._link().name)}
        rows = []
        for topic, settings in source.items():
            is_compacted = is_compacted_policy(settings.in_force.get("cleanup.policy"))
            old, new = before.get(topic), CompactedTopic(ids.get(topic, ""))
            changed = old is None or old.source_id != new.source_id
            if (is_compacted and old != new) or (changed and is_compacted_policy(_cleanup(known.get(topic, "")))):
                rows.append(compacted_row(self._link().name, topic, new, wall_ms()))
        return rows

    def _turn(self, topics: list[str]) -> list[str]:
        if len(topics) <= TOPICS_PER_POLL:
            return topics
        rest = [topic for topic in topics if topic > self._next_topic]
        chosen = (rest + topics)[:TOPICS_PER_POLL]
        self._next_topic = chosen[-1]
        return sorted(set(chosen))

    # -- quotas and users

    def _quotas(self) -> None:
        plan = self._comparing().quotas()
        if plan is None:
            return
        self._remark("quotas left", [str(remark) for remark in plan.remarks])
        if self._active():
            self._admin.apply_quotas(plan)

    def _users(self) -> None:
        plan = self._comparing().users()
        if plan is None:
            return
        self._remark("users left", [str(remark) for remark in plan.remarks])
        if self._active():
            self._admin.apply_users(plan, dict(self._link().follow.users))

    def _comparing(self) -> ClusterComparison:
        return ClusterComparison(self._link(), self._source, self._target, self._store)

    def _remark(self, what: str, sentences: list[str]) -> None:
        if sentences:
            self._trouble(what).remark(join_names(sentences, 5, "; "))
        else:
            self._trouble(what).well()


def _cleanup(remembered: str) -> str:
    return str(json.loads(remembered or "{}").get("cleanup.policy", ""))
