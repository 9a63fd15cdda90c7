"""Both clusters as the decisions about what follows want to see them.

What should follow besides topics themselves is read on both sides and compared; nothing is changed. The follower does
what comes out, `mirror plan` prints it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from twinshore.fleet import Cluster, KafkaError, Link, NamedPartition, SaslMechanism
from twinshore.fleet.settings import Settings
from twinshore.kafka.admin import Setting
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.errors import Code
from twinshore.kafka.questions import OffsetKind
from twinshore.kafka.rights import Acl, Resource
from twinshore.kafka.rights_requests import read_quotas, read_scram_users
from twinshore.mirror.follow import acls, quotas, topic_settings
from twinshore.mirror.follow.acls import AclPlan, Ground, Wanted
from twinshore.mirror.follow.last_resort import Span
from twinshore.mirror.follow.lifecycle import Presence, SeenTopic
from twinshore.mirror.follow.quotas import QuotaPlan, UserPlan
from twinshore.mirror.follow.topic_settings import SettingsOf
from twinshore.store import Position, Remembered, Store

AT_ONCE = 500
OPEN_UNLESS_RULED = "allow.everyone.if.no.acl.found"


def sides(cluster: KafkaCluster, names: Iterable[str]) -> dict[str, SeenTopic]:
    """Each topic as the cluster shows it, asked by name: only then does it tell gone from not for our eyes."""
    wanted = sorted(set(names))
    found: dict[str, SeenTopic] = {}
    for start in range(0, len(wanted), AT_ONCE):
        part = wanted[start : start + AT_ONCE]
        seen = cluster.metadata(part, refresh=True).topics
        for name in part:
            topic = seen.get(name)
            if topic is None or topic.error not in (Code.NONE, Code.UNKNOWN_TOPIC_OR_PARTITION):
                found[name] = SeenTopic(Presence.HIDDEN)
            elif topic.error or not topic.partitions:
                found[name] = SeenTopic(Presence.GONE)
            else:
                found[name] = SeenTopic(Presence.THERE, topic.topic_id.hex(), len(topic.partitions))
    return found


def settings_of(cluster: KafkaCluster, names: Sequence[str]) -> tuple[dict[str, SettingsOf], dict[str, KafkaError]]:
    """The settings of topics that may be asked about, and why the others may not."""
    found, refused = cluster.admin.readable_settings(names)
    return {name: _settings(settings) for name, settings in found.items()}, refused


def copies(cluster: KafkaCluster, names: Sequence[str]) -> dict[str, int]:
    """How many copies of its partitions each topic has."""
    seen = cluster.metadata(list(names), refresh=True).topics
    return {
        name: max((len(partition.replicas) for partition in topic.partitions), default=1)
        for name, topic in seen.items()
    }


def ground(
    link: Link, source: KafkaCluster, target: KafkaCluster, twins: Mapping[str, str], written: Iterable[Acl]
) -> Ground:
    """What rules stand on, beside this link's twins; `written`: rules of ours, also for what is no twin any more."""
    left = {acl.name for acl in written if acl.resource == Resource.TOPIC and acl.names_one()} - set(twins.values())
    gone = frozenset(name for name, side in sides(target, left).items() if side.presence is Presence.GONE)
    us = principal(link, target)
    # Where it is not ours to know, each side counts as that which lets nobody in by mistake.
    is_open = open_unless_ruled(target) is not False
    return Ground(twins, us, is_open, is_open and open_unless_ruled(source) is False, gone)


def principal(link: Link, target: KafkaCluster) -> str:
    """Whom the target's authorizer takes us for; empty where that cannot be known."""
    return link.follow.principal or _user(target.cluster)


def own_users(settings: Settings) -> frozenset[str]:
    """Whom authorizers take Twinshore's processes for, as far as the settings say."""
    users = map(_user, settings.clusters.values())
    return frozenset([*users, *(link.follow.principal for link in settings.links)]) - {""}


def _user(cluster: Cluster) -> str:
    security = cluster.security
    named = security.sasl and security.sasl is not SaslMechanism.OAUTHBEARER
    return f"User:{security.username}" if named and security.username else ""


def spans(target: KafkaCluster, topic: str, twin: str, side: SeenTopic, positions: Iterable[Position]) -> list[Span]:
    """What the twin holds, and how far this link wrote it; KafkaError at once where a partition cannot be asked."""
    ours = {at.partition: at for at in positions if at.topic == topic}
    parts = [NamedPartition(twin, number) for number in range(side.partitions)]
    starts, away = target.offsets_of_each(parts, OffsetKind.EARLIEST)
    ends, mute = target.offsets_of_each(parts, OffsetKind.LOG_END)
    for error in (away | mute).values():
        raise error
    found = []
    for named in parts:
        at = ours.get(named.partition)
        carried_to, source_end = (at.to_offset, at.source_end) if at else (0, 0)
        found.append(Span(named.partition, starts[named], ends[named], carried_to, source_end))
    return found


def _settings(found: Mapping[str, Setting]) -> SettingsOf:
    told = {name: setting for name, setting in found.items() if setting.value is not None}
    in_force = {name: setting.value or "" for name, setting in told.items()}
    return SettingsOf(in_force, {name: setting.value or "" for name, setting in told.items() if setting.own})


def open_unless_ruled(cluster: KafkaCluster) -> bool | None:
    """Whether everybody may use what no rule speaks of; None where nobody says. Brokers name the setting where it is
    set, and hide its value, since it is their authorizer's."""
    away: KafkaError | None = None
    for node in sorted(cluster.metadata([], refresh=True).brokers):
        try:
            setting = cluster.admin.broker_settings(node).get(OPEN_UNLESS_RULED)
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
    """`wanted`: by topic, what its twin shall have in place of what it has. `source`: each topic whose settings both
    sides tell. `silent`: why the others' are not told, by name."""

    wanted: Mapping[str, Mapping[str, tuple[str | None, str | None]]]
    source: Mapping[str, SettingsOf]
    silent: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class AclSight:
    """`reason`: why none follows; empty where they do."""

    floor: Ground
    want: Wanted
    plan: AclPlan
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Comparing:
    """`link` as it holds now."""

    link: Link
    source: KafkaCluster
    target: KafkaCluster
    store: Store

    def settings(self, topics: Sequence[str]) -> SettingsPlan:
        """Of topics whose two sides are as they are known."""
        twins = {topic: self.link.twin_of(topic) for topic in topics}
        theirs, hidden = settings_of(self.source, topics)
        ours, closed = settings_of(self.target, list(twins.values()))
        held = copies(self.target, list(twins.values()))
        mapped = {topic for topic, _ in self.store.extents.reached(self.link.name)}
        told = {topic: theirs[topic] for topic in topics if topic in theirs and twins[topic] in ours}
        wanted = {
            topic: topic_settings.changes(
                self.link, theirs[topic], ours[twins[topic]], held.get(twins[topic], 1), mapped=topic in mapped
            )
            for topic in told
        }
        silent = {name: error.message for some in (hidden, closed) for name, error in some.items()}
        return SettingsPlan({topic: one for topic, one in wanted.items() if one}, told, silent)

    def acls(
        self, theirs: frozenset[Acl], ours: frozenset[Acl], topics: Iterable[str], known: Iterable[Remembered]
    ) -> AclSight:
        """Of the twins of these topics, by both sides' rules and by those that the link remembers to have written."""
        written = frozenset(acls.from_text(row.subject) for row in known if row.kind == acls.WRITTEN)
        twins = {topic: self.link.twin_of(topic) for topic in topics}
        floor = ground(self.link, self.source, self.target, twins, written).ruled(ours, written)
        reason = acls.cannot(floor)
        if reason:
            return AclSight(floor, Wanted(frozenset()), AclPlan((), (), ()), reason)
        want = acls.wanted(theirs, floor, self.link)
        plan = acls.decide(want, ours, written, floor)
        return AclSight(floor, want, plan.without(self._no_twins(plan.topics())))

    def _no_twins(self, names: frozenset[str]) -> set[str]:
        """Those of these topics that the target has not as the twins that the link knows: gone, or made again."""
        ids = {self.link.twin_of(row.topic): row.target_topic_id for row in self.store.twins.of(self.link.name)}
        seen = sides(self.target, names & ids.keys())
        hidden = Presence.HIDDEN
        return {name for name, side in seen.items() if side.presence is not hidden and side.topic_id != ids[name]}

    def quotas(self) -> QuotaPlan | None:
        """None where none follow."""
        if not self.link.follow.quotas:
            return None
        rows = self.store.memories.of(self.link.name, quotas.QUOTA)
        written = {quotas.quota_from_text(row.subject): float(row.value) for row in rows}
        return quotas.decide_quotas(read_quotas(self.source), read_quotas(self.target), written, self._us())

    def users(self) -> UserPlan | None:
        """None where none follow."""
        if not self.link.follow.scram_users:
            return None
        rows = self.store.memories.of(self.link.name, quotas.USER)
        seen = {quotas.user_from_text(row.subject) for row in rows}
        theirs, ours = read_scram_users(self.source), read_scram_users(self.target)
        return quotas.decide_users(theirs, ours, dict(self.link.follow.users), self._us(), seen)

    def _us(self) -> str:
        return principal(self.link, self.target).removeprefix("User:")
