"""What is known of the clusters and of where topics are at home, as of one moment; and what follows of it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from twinshore.links.homes import BETWEEN
from twinshore.store.values import HomeRow

Ranges = Mapping[int, tuple[int, int]]


class Broker(NamedTuple):
    """Where a broker of a cluster is."""

    host: str
    port: int
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class ClusterSeen:
    """One cluster as it was seen last. `offers`: the versions of each API that all its brokers take. `answers`: whether
    it answered when it was last asked."""

    name: str
    cluster_id: str
    controller: int
    brokers: Mapping[int, Broker]
    topics: frozenset[str]
    offers: Ranges
    answers: bool = True


@dataclass(frozen=True)
class Seen:
    """`clusters` in the order of the settings. `offers`: the versions that clients may send."""

    clusters: Mapping[str, ClusterSeen]
    homes: Mapping[str, str] = field(default_factory=dict)
    offers: Ranges = field(default_factory=dict)
    routes: Mapping[str, str] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "routes", routes_of(self.clusters.values(), self.homes))

    def route(self, topic: str) -> str | None:
        """The cluster that the topic's clients are led to; None where no cluster is known to have it."""
        return self.routes.get(topic)

    def is_elsewhere(self, topic: str, cluster: str) -> bool:
        """Whether the topic is known to be at another cluster. One that is not known yet is its broker's to refuse."""
        return self.routes.get(topic, cluster) != cluster

    def group_home(self) -> str:
        """The cluster where groups are: the first one, also while it is away, since a group in two places would read
        everything twice."""
        return next(iter(self.clusters))

    def stays(self, topic: str) -> bool:
        """Whether places in the topic are kept at the groups' home: it has the topic, or nobody is known to."""
        home = self.group_home()
        return topic in self.clusters[home].topics or self.routes.get(topic, home) == home

    def answering(self) -> list[str]:
        """The clusters that answered when they were last asked."""
        return [name for name, one in self.clusters.items() if one.answers]


def routes_of(clusters: Iterable[ClusterSeen], homes: Mapping[str, str]) -> dict[str, str]:
    """Which cluster the clients of each topic are led to: its home, else the first that has it. A home that has not
    been seen to have the topic stands all the same: it may be away, and what others have is a twin."""
    routes: dict[str, str] = {}
    known = {one.name: one for one in clusters}
    for one in known.values():
        for topic in one.topics:
            routes.setdefault(topic, one.name)
    return routes | {topic: home for topic, home in homes.items() if home in known}


def homes_of(rows: Iterable[HomeRow]) -> dict[str, str]:
    """The home of each topic, from its homes in all pairs of clusters: one that is a twin in no other pair."""
    said: dict[str, dict[str, str]] = {}
    for row in rows:
        said.setdefault(row.topic, {})[row.pair] = row.home
    found: dict[str, str] = {}
    for topic, by_pair in said.items():
        twins = {name for pair, home in by_pair.items() for name in pair.split(BETWEEN) if name != home}
        first = [home for home in by_pair.values() if home not in twins]
        found[topic] = first[0] if first else next(iter(by_pair.values()))
    return found
