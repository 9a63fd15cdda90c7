"""Leader decisions of `routing.core.leader_cluster` for all topics behind a proxy."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from twinshore.config.frozen import GROUPS_HOME
from twinshore.config.model import Link, TwinNaming
from twinshore.replication.core.filters import admits, is_internal_topic
from twinshore.replication.core.ownership import find_reverse_link
from twinshore.routing.core.leader_cluster import (
    KnownHome,
    Leader,
    LeaderDecision,
    NoLeader,
    NoLeaderReason,
    TopicCopy,
    leader_cluster,
)
from twinshore.routing.core.subscribers import SUBSCRIPTION_LEASE_S

if TYPE_CHECKING:
    from twinshore.proxy.core.model import ProxiedCluster

_ANY: Final = (1, 0)  # records compared here are the highest already


@dataclass(frozen=True, slots=True)
class KnownHomes:
    """What a process has read.

    `links`: None while unknown, as the store does not answer. `unheard`: clusters whose home records were not read
    since the process began, `waited_s` ago.
    """

    links: tuple[Link, ...] | None = ()
    unheard: frozenset[str] = frozenset()
    waited_s: float = math.inf
    start_all: bool = False


def choose_leader_clusters(
    clusters: Iterable[ProxiedCluster], homes: Mapping[str, str], heard: KnownHomes = KnownHomes()
) -> dict[str, LeaderDecision]:
    """Decide each topic without home records. `homes`: from the store."""
    table = _Table(tuple(clusters), heard)
    topics = {topic for cluster in table.clusters for topic in cluster.topics}
    return {topic: table.decision(topic, homes.get(topic)) for topic in topics | homes.keys()}


def find_doubted_leaders(
    words: Mapping[str, str], clusters: Iterable[ProxiedCluster], homes: Mapping[str, str], heard: KnownHomes
) -> dict[str, LeaderDecision]:
    """Returns decisions for topics whose home record is in doubt: a silent cluster may have a newer one.

    Such topics wait, or get a leader with an incident. `words`: clusters by home record. The store's homes are not
    doubted.
    """
    if not heard.unheard:
        return {}
    table = _Table(tuple(clusters), heard)
    found = {topic: table.decision(topic, None, home) for topic, home in words.items() if topic not in homes}
    return {topic: one for topic, one in found.items() if isinstance(one, NoLeader) or one.unheard}


class _Table:
    def __init__(self, clusters: tuple[ProxiedCluster, ...], heard: KnownHomes) -> None:
        self.clusters, self._heard = clusters, heard
        names = {cluster.name for cluster in clusters}
        self._links = [link for link in heard.links or () if link.naming is TwinNaming.SAME]
        self._answered = {cluster.name for cluster in clusters if cluster.has_answered} - heard.unheard
        self._outside = sorted({end for link in self._links for end in (link.source, link.target)} - names)
        self._all_answered = not self._outside and len(self._answered) == len(clusters)

    def decision(self, topic: str, stored: str | None, word: str | None = None) -> LeaderDecision:
        heard = self._heard
        if is_internal_topic(topic) and topic != GROUPS_HOME:
            holders = [cluster.name for cluster in self.clusters if topic in cluster.topics]
            return Leader(holders[0] if holders else self.clusters[0].name)
        carriers = self._carriers(topic)
        twins = self._twins(topic)
        home = KnownHome(word, _ANY) if word is not None else None
        copies = []
        for cluster in self.clusters:
            could_carry = carriers is None or cluster.name in carriers
            has_topic, is_twin = topic in cluster.topics, cluster.name in twins
            answered = cluster.name in self._answered
            copies.append(TopicCopy(cluster.name, answered, could_carry, has_topic, is_twin, home))
        copies += [TopicCopy(name, False, name in carriers) for name in self._outside if carriers]
        remembered = KnownHome(stored, _ANY) if stored is not None else None
        found = leader_cluster(remembered, copies, heard.waited_s, SUBSCRIPTION_LEASE_S, start_all=heard.start_all)
        if isinstance(found, Leader) and found.cluster in self._outside:
            return NoLeader(NoLeaderReason.ELSEWHERE, (found.cluster,))
        return found

    def _carriers(self, topic: str) -> frozenset[str] | None:
        """Returns clusters of links that replicate the topic; None if any could."""
        if self._all_answered:
            return frozenset()
        if self._heard.links is None or topic == GROUPS_HOME:
            return None
        return frozenset(end for link in self._links if admits(link, topic) for end in (link.source, link.target))

    def _twins(self, topic: str) -> set[str]:
        """Returns clusters with a twin, by their own records or a one-way link between two clusters with the topic."""
        holders = {cluster.name for cluster in self.clusters if topic in cluster.topics}
        found = {cluster.name for cluster in self.clusters if topic in cluster.twins}
        if len(holders - found) > 1:
            for link in self._links:
                if {link.source, link.target} <= holders and admits(link, topic):
                    back = find_reverse_link(link, self._links)
                    if back is None or not admits(back, topic):
                        found.add(link.target)
        return found
