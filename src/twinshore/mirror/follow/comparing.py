"""What should follow besides topics themselves: both sides are read and compared, and nothing is changed.

The follower does what comes out, `mirror plan` prints it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from twinshore.fleet import Link
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.rights import Acl
from twinshore.kafka.rights_requests import read_quotas, read_scram_users
from twinshore.mirror.follow import acls, quotas, topic_settings
from twinshore.mirror.follow.acls import AclPlan, Ground, Wanted
from twinshore.mirror.follow.quotas import QuotaPlan, UserPlan
from twinshore.mirror.follow.reading import copies, ground, principal, settings_of
from twinshore.mirror.follow.topic_settings import SettingsOf
from twinshore.store import Remembered, Store


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
        return AclSight(floor, want, acls.decide(want, ours, written, floor))

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
