"""Compares what follows besides topics on both clusters. `ConfigSync` applies that, and `mirror plan` prints it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from twinshore.config.errors import KafkaError
from twinshore.config.grouping import in_slices
from twinshore.config.model import Cluster, Link, SaslMechanism, TopicPartition
from twinshore.config.settings import Settings
from twinshore.kafka.admin import ConfigEntry, read_quotas, read_scram_users
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.leader_queries import OffsetKind
from twinshore.kafka.protocol.access_control import Acl, ResourceType
from twinshore.kafka.protocol.error_codes import Code
from twinshore.replication.sync.core import decisions
from twinshore.replication.sync.core.decisions import (
    AclContext,
    AclSyncPlan,
    QuotaPlan,
    TopicSettings,
    UserPlan,
    WantedAcls,
)
from twinshore.replication.sync.core.lifecycle import ObservedTopic, Presence, TwinRange
from twinshore.state.core.values import LinkStateRow, ReplicatedPosition
from twinshore.state.store import Store

TOPICS_PER_REQUEST = 500
OPEN_WITHOUT_ACLS_SETTING = "allow.everyone.if.no.acl.found"


def observe_topics(cluster: KafkaCluster, names: Iterable[str]) -> dict[str, ObservedTopic]:
    """Returns each topic as the cluster shows it. Asked by name, a cluster tells missing topics from hidden ones."""
    found: dict[str, ObservedTopic] = {}
    for part in in_slices(sorted(set(names)), TOPICS_PER_REQUEST):
        topics = cluster.metadata(part, refresh=True).topics
        for name in part:
            topic = topics.get(name)
            if topic is None or topic.error not in (Code.none, Code.unknown_topic_or_partition):
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
    found, errors = cluster.admin.readable_settings(names)
    return {name: _settings(settings) for name, settings in found.items()}, errors


def read_replication_factors(cluster: KafkaCluster, names: Sequence[str]) -> dict[str, int]:
    topics = cluster.metadata(list(names), refresh=True).topics
    return {
        name: max((len(partition.replicas) for partition in topic.partitions), default=1)
        for name, topic in topics.items()
    }


def read_acl_context(
    link: Link, source: KafkaCluster, target: KafkaCluster, twins: Mapping[str, str], acls: Iterable[Acl]
) -> AclContext:
    """What ACL decisions need besides the rules. `acls`: the link's rules, also for former twins."""
    left = {acl.name for acl in acls if acl.resource == ResourceType.TOPIC and acl.names_one()} - set(twins.values())
    gone = frozenset(name for name, side in observe_topics(target, left).items() if side.is_gone)
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
    reached = {tp.partition: (tp.to_offset, tp.source_end) for tp in positions if tp.topic == topic}
    partitions = [TopicPartition(twin, number) for number in range(side.partitions)]
    starts, away = target.offsets_of_each(partitions, OffsetKind.EARLIEST)
    ends, mute = target.offsets_of_each(partitions, OffsetKind.LOG_END)
    for error in (away | mute).values():
        raise error
    return [TwinRange(tp.partition, starts[tp], ends[tp], *reached.get(tp.partition, (0, 0))) for tp in partitions]


def _settings(found: Mapping[str, ConfigEntry]) -> TopicSettings:
    in_force = {name: entry.value for name, entry in found.items() if entry.value is not None}
    return TopicSettings(in_force, {name: value for name, value in in_force.items() if found[name].own})


def is_open_without_acls(cluster: KafkaCluster) -> bool | None:
    """Whether all users may use a topic without rules; None if unknown. Brokers name the setting if set, and hide its
    value.
    """
    away: KafkaError | None = None
    for node in sorted(cluster.metadata([], refresh=True).brokers):
        try:
            entry = cluster.admin.broker_settings(node).get(OPEN_WITHOUT_ACLS_SETTING)
        except KafkaError as error:
            if error.code == Code.cluster_authorization_failed:
                return None
            if not error.retriable:
                raise
            away = error
            continue
        if entry is None:
            return False
        return None if entry.value is None else entry.value.lower() == "true"
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
        source, hidden = read_topic_settings(self.source, topics)
        target, closed = read_topic_settings(self.target, list(twins.values()))
        replication = read_replication_factors(self.target, list(twins.values()))
        mapped = {topic for topic, _ in self.store.offset_runs.reached(self.link.name)}
        shown = {topic: source[topic] for topic in topics if topic in source and twins[topic] in target}
        wanted = {}
        for topic, settings in shown.items():
            twin = twins[topic]
            before, count, is_mapped = target[twin], replication.get(twin, 1), topic in mapped
            if changes := decisions.diff_settings(self.link, settings, before, count, mapped=is_mapped):
                wanted[topic] = changes
        return SettingsPlan(wanted, shown, {name: error.message for name, error in (hidden | closed).items()})

    def acls(
        self, theirs: frozenset[Acl], ours: frozenset[Acl], topics: Iterable[str], known: Iterable[LinkStateRow]
    ) -> AclComparison:
        """Plans rules for these topics' twins, from both sides' rules and the remembered ones."""
        acls = frozenset(
            decisions.acl_from_text(row.subject) for row in known if row.kind == decisions.ACL_WRITTEN_KIND
        )
        twins = {topic: self.link.twin_of(topic) for topic in topics}
        floor = read_acl_context(self.link, self.source, self.target, twins, acls).ruled(ours, acls)
        reason = decisions.explain_no_acls(floor)
        if reason:
            return AclComparison(floor, WantedAcls(frozenset()), AclSyncPlan((), (), ()), reason)
        want = decisions.wanted_acls(theirs, floor, self.link)
        plan = decisions.plan_acls(want, ours, acls, floor)
        return AclComparison(floor, want, plan.without(self._no_twins(plan.topics())))

    def _no_twins(self, names: frozenset[str]) -> set[str]:
        """Those that are no longer the known twins: deleted, or created again."""
        ids = {self.link.twin_of(row.topic): row.target_topic_id for row in self.store.twins.of(self.link.name)}
        seen = observe_topics(self.target, names & ids.keys())
        return {name for name, side in seen.items() if not side.is_hidden and side.topic_id != ids[name]}

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
