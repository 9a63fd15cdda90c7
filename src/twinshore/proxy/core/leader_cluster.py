"""The table of `routing.core.leader_cluster` for all topics that clusters behind a proxy have. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from twinshore.config.frozen import GROUPS_HOME
from twinshore.config.model import Link, Naming
from twinshore.replication.core.filters import admits, is_of_no_application
from twinshore.replication.core.ownership import counterpart
from twinshore.routing.core.followers import LEASE_S
from twinshore.routing.core.leader_cluster import Decision, HomeWord, Lacks, Leader, NoLeader, TopicCopy, leader_cluster

if TYPE_CHECKING:
    from twinshore.proxy.core.model import ClusterSeen

_ANY: Final = (1, 0)  # words that are compared here are the highest ones already


@dataclass(frozen=True, slots=True)
class Heard:
    """What a process has heard by now. `links`: None while they are not known, as the store does not answer. `unheard`:
    clusters whose home words were not read since it began; `waited_s`: how long ago that is."""

    links: tuple[Link, ...] | None = ()
    unheard: frozenset[str] = frozenset()
    waited_s: float = math.inf
    start_all: bool = False


def led_by_copies(
    clusters: Iterable[ClusterSeen], homes: Mapping[str, str], heard: Heard = Heard()
) -> dict[str, Decision]:
    """Of each topic as far as no cluster says a word of it. `homes`: those that the store remembers."""
    table = _Table(tuple(clusters), heard)
    topics = {topic for one in table.clusters for topic in one.topics}
    return {topic: table.decision(topic, homes.get(topic)) for topic in topics | homes.keys()}


def not_believed(
    words: Mapping[str, str], clusters: Iterable[ClusterSeen], homes: Mapping[str, str], heard: Heard
) -> dict[str, Decision]:
    """Topics whose word was heard while a cluster is silent that could say a higher one: they wait for it, or are led
    with an incident. `words`: their clusters. What the store remembers is believed at once."""
    if not heard.unheard:
        return {}
    table = _Table(tuple(clusters), heard)
    found = {topic: table.decision(topic, None, home) for topic, home in words.items() if topic not in homes}
    return {topic: one for topic, one in found.items() if isinstance(one, NoLeader) or one.unheard}


class _Table:
    def __init__(self, clusters: tuple[ClusterSeen, ...], heard: Heard) -> None:
        self.clusters, self._heard = clusters, heard
        names = {one.name for one in clusters}
        self._links = [one for one in heard.links or () if one.naming is Naming.SAME]
        self._answered = {one.name for one in clusters if one.was_seen} - heard.unheard
        self._outside = sorted({end for one in self._links for end in (one.source, one.target)} - names)
        self._all_answered = not self._outside and len(self._answered) == len(clusters)

    def decision(self, topic: str, stored: str | None, word: str | None = None) -> Decision:
        heard = self._heard
        if is_of_no_application(topic) and topic != GROUPS_HOME:
            return Leader(next((one.name for one in self.clusters if topic in one.topics), self.clusters[0].name))
        carriers = self._carriers(topic)
        twins = self._twins(topic)
        said = HomeWord(word, _ANY) if word is not None else None
        copies = [
            TopicCopy(
                *(one.name, one.name in self._answered, carriers is None or one.name in carriers),
                *(topic in one.topics, one.name in twins, said),
            )
            for one in self.clusters
        ]
        copies += [TopicCopy(name, False, name in carriers) for name in self._outside if carriers]
        remembered = HomeWord(stored, _ANY) if stored is not None else None
        found = leader_cluster(remembered, copies, heard.waited_s, LEASE_S, start_all=heard.start_all)
        if isinstance(found, Leader) and found.cluster in self._outside:
            return NoLeader(Lacks.ELSEWHERE, (found.cluster,))
        return found

    def _carriers(self, topic: str) -> frozenset[str] | None:
        """The clusters that a link of the topic names; None where all could carry it."""
        if self._all_answered:
            return frozenset()
        if self._heard.links is None or topic == GROUPS_HOME:
            return None
        return frozenset(end for one in self._links if admits(one, topic) for end in (one.source, one.target))

    def _twins(self, topic: str) -> set[str]:
        """By the clusters' notes, and by links that carry it one way between two that have it."""
        holders = {one.name for one in self.clusters if topic in one.topics}
        found = {one.name for one in self.clusters if topic in one.twins}
        if len(holders - found) > 1:
            for link in self._links:
                if {link.source, link.target} <= holders and admits(link, topic):
                    back = counterpart(link, self._links)
                    if back is None or not admits(back, topic):
                        found.add(link.target)
        return found
