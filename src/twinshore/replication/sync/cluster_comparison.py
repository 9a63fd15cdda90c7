"""Compares what follows besides topics on both clusters, and applies changes to the target.

`ClusterComparison` only reads; `ConfigSync` applies the result and `mirror plan` prints it. `TargetAdmin` makes
changes, with an audit row and memory for each.

`SafetyPolicy` is [safety] of the settings file as it is now. The file can forbid at once, but permits nothing: what was
forbidden at the start or since holds until the mirror ends, so a half-written file takes nothing back. While the file
is unreadable, nothing is deleted or cut off.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from twinshore.config.errors import ConfigError, KafkaError, TwinshoreError
from twinshore.config.model import Cluster, Link, SaslMechanism, Secret, TopicPartition
from twinshore.config.repeat_filter import RepeatFilter, describe_error
from twinshore.config.sections.safety import SafetySettings
from twinshore.config.settings import Settings, parse_settings
from twinshore.kafka.admin import (
    ConfigEntry,
    RefusedAcls,
    alter_quotas,
    create_acls,
    delete_acls,
    read_quotas,
    read_scram_users,
    set_scram_password,
)
from twinshore.kafka.clock import wall_ms
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.leader_queries import OffsetKind
from twinshore.kafka.protocol.access_control import Acl, ResourceType, ScramUser
from twinshore.kafka.protocol.error_codes import Code
from twinshore.replication.sync.core import decisions
from twinshore.replication.sync.core.decisions import (
    AclContext,
    AclSyncPlan,
    Change,
    QuotaChange,
    QuotaPlan,
    TopicSettings,
    UserPlan,
    WantedAcls,
)
from twinshore.replication.sync.core.lifecycle import ObservedTopic, Presence, TwinRange
from twinshore.runtime.logging import LinkLogger
from twinshore.state.core.values import AuditRow, LinkStateRow, ReplicatedPosition
from twinshore.state.log import is_refused_outcome, refused_outcome
from twinshore.state.store import Store

log = logging.getLogger(__name__)

DONE = "done"
REFUSAL_LOG_INTERVAL_S = 86_400.0


@dataclass(slots=True)
class TargetAdmin:
    """Changes the target, and logs each change. `unwritten`: audit rows not stored yet."""

    link: str
    target: KafkaCluster
    store: Store
    unwritten: list[AuditRow] = field(default_factory=list)
    _refused: dict[tuple[str, str, str], tuple[str, float]] = field(default_factory=dict)

    def alter_settings(self, twin: str, topic_id: str, wanted: Mapping[str, tuple[str | None, str | None]]) -> None:
        named = bytes.fromhex(topic_id)
        outcome = self._try(lambda: self.target.admin.alter_topic_settings(twin, _after(wanted), topic_id=named))
        self.account(decisions.settings_to_changes(twin, wanted), outcome)

    def apply_acls(self, plan: AclSyncPlan, want: WantedAcls, known: Iterable[LinkStateRow]) -> RefusedAcls:
        """Adds rules before removing others, so that no reader is shut out and no forbidden user admitted in between. A
        refused rule holds back later rules for the same resource, and those that it would have limited. Returns refused
        rules with their errors.
        """
        # Remembered first: a rule of ours that we did not know as ours would stay for ever.
        self.store.link_states.remember([self._acl(acl, decisions.ACL_WRITTEN_KIND) for acl in plan.create])
        refused: RefusedAcls = {}
        done: set[Acl] = set()
        turns = [(create_acls, True, turn) for turn in plan.creating()]
        turns += [(delete_acls, False, turn) for turn in plan.removing()]
        for act, given, turn in turns:
            free = [acl for acl in turn if not decisions.is_blocked(acl, refused, given=given)]
            failed = act(self.target, free) if free else {}
            passed = [acl for acl in free if acl not in failed]
            self.account([decisions.acl_change(acl, given=given) for acl in passed], DONE)
            for acl, error in failed.items():
                self.account([decisions.acl_change(acl, given=given)], refused_outcome(error))
            refused |= failed
            done.update(passed)
        # A request that timed out may have succeeded: then the rule is ours.
        perhaps = done | {acl for acl, error in refused.items() if error.retriable}
        gone = [acl for acl in plan.create if acl not in perhaps]
        gone += [*(acl for acl in plan.remove if acl in done), *plan.forget]
        self.store.link_states.forget([self._acl(acl, decisions.ACL_WRITTEN_KIND) for acl in gone])
        self.hold(want, known)
        return refused

    def hold(self, want: WantedAcls, known: Iterable[LinkStateRow]) -> None:
        before = {row.subject: row for row in known if row.kind == decisions.ACL_HELD_KIND}
        held = {decisions.acl_to_text(acl): reason for acl, reason in want.held.items()}
        fresh = [text for text in held if text not in before]
        over = [row for text, row in before.items() if text not in held]
        for text in fresh:
            acl = decisions.acl_from_text(text)
            self.account([Change(decisions.ACL_KIND, str(acl), "", "")], f"held back: {held[text]}")
        self.store.link_states.remember([self._row(decisions.ACL_HELD_KIND, text, held[text]) for text in fresh])
        self.store.link_states.forget(over)

    def apply_quotas(self, plan: QuotaPlan) -> None:
        for change in plan.changes:
            outcome = self._try(
                lambda change=change: alter_quotas(  # type: ignore[misc]
                    self.target, change.entity, {change.key: change.after}
                )
            )
            self.account([change.as_change()], outcome)
            if outcome == DONE:
                self._remember_quota(change)
        self.store.link_states.forget(
            [self._row(decisions.QUOTA_KIND, decisions.quota_to_text(key)) for key in plan.forget]
        )

    def apply_users(self, plan: UserPlan, secrets: Mapping[str, Secret]) -> None:
        """Makes SCRAM users with known passwords, and remembers those that the target has had."""
        seen = list(plan.seen)
        for user, change in zip(plan.make, plan.changes(), strict=True):
            outcome = self._try(lambda user=user: self._make(user, secrets[user.name]))  # type: ignore[misc]
            self.account([change], outcome)
            if outcome == DONE:
                seen.append(decisions.user_key(user))
        self.store.link_states.remember([self._row(decisions.USER_KIND, decisions.user_to_text(key)) for key in seen])
        self.store.link_states.forget(
            [self._row(decisions.USER_KIND, decisions.user_to_text(key)) for key in plan.forget]
        )

    def delete_twin(
        self, twin: str, topic_id: str, reason: str, *, still: Callable[[], bool], told: bool = False
    ) -> str:
        """Deletes a twin, if there. Returns why the target refused, else "". `still`: the lease, checked before each
        request. `told`: the refusal was reported before.
        """

        def allow() -> None:
            if not still():
                raise KafkaError(f"{self.link}: the lease is lost: twin {twin} is not deleted", retriable=False)

        def delete() -> None:
            try:
                self.target.admin.delete_topic(twin, topic_id=bytes.fromhex(topic_id), allow=allow)
            except KafkaError as error:
                if error.code != Code.UNKNOWN_TOPIC_OR_PARTITION:
                    raise

        outcome = self._try(delete)
        if outcome == DONE or (still() and not told):
            self.account([Change("twin", twin, "", f"deleted: {reason}", twin)], outcome)
        return "" if outcome == DONE else outcome

    def account(self, changes: Sequence[Change], outcome: str) -> None:
        """Logs and audits. A repeated refusal is written once a day, as more rows would crowd out changes."""
        changes = [one for one in changes if self._is_news(one, outcome)]
        for change in changes:
            ended = "" if outcome == DONE else f" ({outcome})"
            level = logging.INFO if outcome == DONE else logging.WARNING
            log.log(level, f"{self.link}: {change}{ended}", extra={"link": self.link, "topic": change.topic})
        at_ms = wall_ms()
        self.unwritten += [
            AuditRow(at_ms, self.link, one.kind, one.subject, one.before, one.after, outcome, topic=one.topic)
            for one in changes
        ]
        self.write_audit()

    def _is_news(self, change: Change, outcome: str) -> bool:
        key = change.kind, change.subject, change.after
        if not is_refused_outcome(outcome):
            self._refused.pop(key, None)
            return True
        told, told_s = self._refused.get(key, ("", 0.0))
        if told == outcome and time.monotonic() - told_s < REFUSAL_LOG_INTERVAL_S:
            return False
        self._refused[key] = outcome, time.monotonic()
        return True

    def write_audit(self) -> None:
        if self.unwritten:
            self.store.audit.add(self.unwritten)
            self.unwritten = []

    def _make(self, user: ScramUser, secret: Secret) -> None:
        set_scram_password(self.target, user, secret.read())

    def _remember_quota(self, change: QuotaChange) -> None:
        row = self._row(decisions.QUOTA_KIND, decisions.quota_to_text((change.entity, change.key)), repr(change.after))
        if change.after is None:
            self.store.link_states.forget([row])
        else:
            self.store.link_states.remember([row])

    def _acl(self, acl: Acl, kind: str) -> LinkStateRow:
        return self._row(kind, decisions.acl_to_text(acl))

    def _row(self, kind: str, subject: str, value: str = "") -> LinkStateRow:
        return LinkStateRow(self.link, kind, subject, value, kind, wall_ms())

    def _try(self, act: Callable[[], None]) -> str:
        try:
            act()
        except TwinshoreError as error:
            if isinstance(error, KafkaError) and error.retriable:
                raise
            return refused_outcome(error)
        return DONE


def _after(wanted: Mapping[str, tuple[str | None, str | None]]) -> dict[str, str | None]:
    return {name: after for name, (_, after) in wanted.items()}


TOPICS_PER_REQUEST = 500
OPEN_WITHOUT_ACLS_SETTING = "allow.everyone.if.no.acl.found"


def observe_topics(cluster: KafkaCluster, names: Iterable[str]) -> dict[str, ObservedTopic]:
    """Returns each topic as the cluster shows it. Asked by name, a cluster tells missing topics from hidden ones."""
    wanted = sorted(set(names))
    found: dict[str, ObservedTopic] = {}
    for start in range(0, len(wanted), TOPICS_PER_REQUEST):
        part = wanted[start : start + TOPICS_PER_REQUEST]
        seen = cluster.metadata(part, refresh=True).topics
        for name in part:
            topic = seen.get(name)
            if topic is None or topic.error not in (Code.NONE, Code.UNKNOWN_TOPIC_OR_PARTITION):
                found[name] = ObservedTopic(Presence.HIDDEN)
            elif topic.error or not topic.partitions:
                found[name] = ObservedTopic(Presence.GONE)
            else:
                found[name] = ObservedTopic(Presence.THERE, topic.topic_id.hex(), len(topic.partitions))
    return found


def read_topic_settings(
    cluster: KafkaCluster, names: Sequence[str]
) -> tuple[dict[str, TopicSettings], dict[str, KafkaError]]:
    """Returns readable topics' settings, and the others' errors."""
    found, refused = cluster.admin.readable_settings(names)
    return {name: _settings(settings) for name, settings in found.items()}, refused


def read_replication_factors(cluster: KafkaCluster, names: Sequence[str]) -> dict[str, int]:
    seen = cluster.metadata(list(names), refresh=True).topics
    return {
        name: max((len(partition.replicas) for partition in topic.partitions), default=1)
        for name, topic in seen.items()
    }


def read_acl_context(
    link: Link, source: KafkaCluster, target: KafkaCluster, twins: Mapping[str, str], written: Iterable[Acl]
) -> AclContext:
    """What ACL decisions need besides the rules. `written`: the link's rules, also for former twins."""
    left = {acl.name for acl in written if acl.resource == ResourceType.TOPIC and acl.names_one()} - set(twins.values())
    gone = frozenset(name for name, side in observe_topics(target, left).items() if side.presence is Presence.GONE)
    us = target_principal(link, target)
    # If unknown, each side counts as the kind that admits no user by mistake.
    is_open = is_open_without_acls(target) is not False
    return AclContext(twins, us, is_open, is_open and is_open_without_acls(source) is False, gone)


def target_principal(link: Link, target: KafkaCluster) -> str:
    """The mirror's principal on the target; empty if unknown."""
    return link.follow.principal or _user(target.cluster)


def own_users(settings: Settings) -> frozenset[str]:
    """Principals of Twinshore's processes, as far as the settings name them."""
    users = map(_user, settings.clusters.values())
    return frozenset([*users, *(link.follow.principal for link in settings.links)]) - {""}


def _user(cluster: Cluster) -> str:
    security = cluster.security
    named = security.sasl and security.sasl is not SaslMechanism.OAUTHBEARER
    return f"User:{security.username}" if named and security.username else ""


def read_twin_ranges(
    target: KafkaCluster, topic: str, twin: str, side: ObservedTopic, positions: Iterable[ReplicatedPosition]
) -> list[TwinRange]:
    """What the twin holds, and how far this link wrote. Raises KafkaError for an unreadable partition."""
    ours = {at.partition: at for at in positions if at.topic == topic}
    parts = [TopicPartition(twin, number) for number in range(side.partitions)]
    starts, away = target.offsets_of_each(parts, OffsetKind.EARLIEST)
    ends, mute = target.offsets_of_each(parts, OffsetKind.LOG_END)
    for error in (away | mute).values():
        raise error
    found = []
    for named in parts:
        at = ours.get(named.partition)
        carried_to, source_end = (at.to_offset, at.source_end) if at else (0, 0)
        found.append(TwinRange(named.partition, starts[named], ends[named], carried_to, source_end))
    return found


def _settings(found: Mapping[str, ConfigEntry]) -> TopicSettings:
    told = {name: setting for name, setting in found.items() if setting.value is not None}
    in_force = {name: setting.value or "" for name, setting in told.items()}
    return TopicSettings(in_force, {name: setting.value or "" for name, setting in told.items() if setting.own})


def is_open_without_acls(cluster: KafkaCluster) -> bool | None:
    """Whether all users may use a topic without rules; None if unknown. Brokers name the setting if set, and hide its
    value.
    """
    away: KafkaError | None = None
    for node in sorted(cluster.metadata([], refresh=True).brokers):
        try:
            setting = cluster.admin.broker_settings(node).get(OPEN_WITHOUT_ACLS_SETTING)
        except KafkaError as error:
            if error.code == Code.CLUSTER_AUTHORIZATION_FAILED:
                return None
            if not error.retriable:
                raise
            away = error
            continue
        if setting is None:
            return False
        return None if setting.value is None else setting.value.lower() == "true"
    if away is not None:
        raise away
    return None


@dataclass(frozen=True, slots=True)
class SettingsPlan:
    """`wanted`: setting changes by topic. `source`: topics whose settings both sides showed. `silent`: why the others'
    were not shown, by name.
    """

    wanted: Mapping[str, Mapping[str, tuple[str | None, str | None]]]
    source: Mapping[str, TopicSettings]
    silent: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class AclComparison:
    """`reason`: why no rule follows, or empty."""

    floor: AclContext
    want: WantedAcls
    plan: AclSyncPlan
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ClusterComparison:
    """Compares the clusters of `link`, as the link is now."""

    link: Link
    source: KafkaCluster
    target: KafkaCluster
    store: Store

    def settings(self, topics: Sequence[str]) -> SettingsPlan:
        """Plans changes for topics that are as known on both sides."""
        twins = {topic: self.link.twin_of(topic) for topic in topics}
        theirs, hidden = read_topic_settings(self.source, topics)
        ours, closed = read_topic_settings(self.target, list(twins.values()))
        held = read_replication_factors(self.target, list(twins.values()))
        mapped = {topic for topic, _ in self.store.offset_runs.reached(self.link.name)}
        told = {topic: theirs[topic] for topic in topics if topic in theirs and twins[topic] in ours}
        wanted = {
            topic: decisions.diff_settings(
                self.link, theirs[topic], ours[twins[topic]], held.get(twins[topic], 1), mapped=topic in mapped
            )
            for topic in told
        }
        silent = {name: error.message for some in (hidden, closed) for name, error in some.items()}
        return SettingsPlan({topic: one for topic, one in wanted.items() if one}, told, silent)

    def acls(
        self, theirs: frozenset[Acl], ours: frozenset[Acl], topics: Iterable[str], known: Iterable[LinkStateRow]
    ) -> AclComparison:
        """Plans rules for these topics' twins, from both sides' rules and the remembered ones."""
        written = frozenset(
            decisions.acl_from_text(row.subject) for row in known if row.kind == decisions.ACL_WRITTEN_KIND
        )
        twins = {topic: self.link.twin_of(topic) for topic in topics}
        floor = read_acl_context(self.link, self.source, self.target, twins, written).ruled(ours, written)
        reason = decisions.explain_no_acls(floor)
        if reason:
            return AclComparison(floor, WantedAcls(frozenset()), AclSyncPlan((), (), ()), reason)
        want = decisions.wanted_acls(theirs, floor, self.link)
        plan = decisions.plan_acls(want, ours, written, floor)
        return AclComparison(floor, want, plan.without(self._no_twins(plan.topics())))

    def _no_twins(self, names: frozenset[str]) -> set[str]:
        """Those that are no longer the known twins: deleted, or created again."""
        ids = {self.link.twin_of(row.topic): row.target_topic_id for row in self.store.twins.of(self.link.name)}
        seen = observe_topics(self.target, names & ids.keys())
        hidden = Presence.HIDDEN
        return {name for name, side in seen.items() if side.presence is not hidden and side.topic_id != ids[name]}

    def quotas(self) -> QuotaPlan | None:
        """None if quotas do not follow."""
        if not self.link.follow.quotas:
            return None
        rows = self.store.link_states.of(self.link.name, decisions.QUOTA_KIND)
        written = {decisions.quota_from_text(row.subject): float(row.value) for row in rows}
        return decisions.plan_quotas(read_quotas(self.source), read_quotas(self.target), written, self._us())

    def users(self) -> UserPlan | None:
        """None if users do not follow."""
        if not self.link.follow.scram_users:
            return None
        rows = self.store.link_states.of(self.link.name, decisions.USER_KIND)
        seen = {decisions.user_from_text(row.subject) for row in rows}
        theirs, ours = read_scram_users(self.source), read_scram_users(self.target)
        return decisions.plan_users(theirs, ours, dict(self.link.follow.users), self._us(), seen)

    def _us(self) -> str:
        return target_principal(self.link, self.target).removeprefix("User:")


NEVER_DELETE_REASON = "[safety] never_delete is set"
READ_TIMEOUT_S = 1.0


class SafetyPolicy:
    """[safety] as it is now, for one link and any thread. Logs changes. Without a file, or after its removal, the last
    known state holds, even an unreadable one.
    """

    def __init__(self, settings: Settings, link: str) -> None:
        self._file, self._known, self._log = settings.file, settings.safety, LinkLogger(log, link)
        self._troubles = RepeatFilter(self._log)
        self._guard = threading.Lock()
        self._reader: threading.Thread | None = None
        self._text: str | None = None
        self._unread = ""

    @property
    def known(self) -> SafetySettings:
        """The last known settings; reads nothing."""
        return self._known

    @property
    def never_cut(self) -> bool:
        """Whether no record may be cut off, by the last read."""
        return self._known.never_delete or bool(self._unread)

    def against(self) -> str:
        """Reads the file, and returns why nothing may be deleted or cut off, or ""."""
        with self._guard:
            if self._file is not None:
                self._read(self._file)
            return NEVER_DELETE_REASON if self._known.never_delete else self._unread

    def _read(self, file: Path) -> None:
        try:
            text = self._text_of(file)
            if not text.strip():
                raise ConfigError(
                    "replication.settings-empty", file=file.name
                )  # half written: no mirror runs by an empty file
            if text != self._text:
                self._hear(parse_settings(text, name=str(file), env=os.environ).safety)
        except FileNotFoundError:
            return
        except Exception as error:  # in any case, what the file forbids is unknown
            self._text = None
            self._unread = f"the settings file {file} cannot be understood, so nobody knows what [safety] forbids"
            why = error.message if isinstance(error, ConfigError) else describe_error(error)
            self._troubles.say(f"nothing is deleted or cut off now: {self._unread}: {why}")
        else:
            self._text = text
            self._unread = ""
            self._troubles.well("the settings file is understood again")

    def _text_of(self, file: Path) -> str:
        """Reads in a separate thread, one at a time, as the file system may hang."""
        found: list[str | Exception] = []

        def read() -> None:
            try:
                found.append(file.read_text(encoding="utf-8"))
            except Exception as error:
                found.append(error)

        if self._reader is None or not self._reader.is_alive():
            self._reader = threading.Thread(target=read, name="settings file", daemon=True)
            self._reader.start()
            self._reader.join(READ_TIMEOUT_S)
        if not found:
            raise TimeoutError(f"its file system does not answer within {READ_TIMEOUT_S:g} s")
        if isinstance(found[0], Exception):
            raise found[0]
        return found[0]

    def _hear(self, now: SafetySettings) -> None:
        known = self._known
        self._known = SafetySettings(
            never_delete=known.never_delete or now.never_delete,
            deletions_at_once_max=min(known.deletions_at_once_max, now.deletions_at_once_max),
        )
        if self._known.never_delete and not known.never_delete:
            now_set = "[safety] never_delete is set from now on: no twin is deleted, no record cut off"
            self._log.info(now_set)
