"""By which numbers, and at which ports, clients know the brokers behind the proxy. Pure.

Each cluster has a block of numbers, by its place in the settings. So a number, and the port that follows from it, is
the same after a restart, at every proxy, and whichever brokers are away.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from twinshore.proxy.core.naming import NewTopics

NOBODY: Final = -1
ANY: Final = -2


class Place(NamedTuple):
    """A broker of a cluster, by its own number there; `ANY` for whichever answers."""

    cluster: str
    node: int


@dataclass(frozen=True, slots=True)
class Layout:
    """`port` leads to no broker in particular; those behind it lead to one each. `cluster_id` is what clients take the
    whole for, `host` where they reach it, `new_topics` on which cluster a topic is made."""

    host: str
    port: int
    clusters: tuple[str, ...]
    nodes_per_cluster: int
    cluster_id: str = "twinshore"
    new_topics: NewTopics = field(default_factory=NewTopics)

    def number(self, cluster: str, node: int) -> int:
        """As which clients know the broker; what names none stays as it is."""
        if node < 0:
            return node
        return self.clusters.index(cluster) * self.nodes_per_cluster + node % self.nodes_per_cluster

    def port_of(self, cluster: str, node: int) -> int:
        """Where clients reach the broker."""
        return self.port + 1 + self.number(cluster, node)

    @property
    def last_port(self) -> int:
        """The highest that a broker can have."""
        return self.port + self.nodes_per_cluster * len(self.clusters)

    def apart(self, nodes: Iterable[int]) -> tuple[list[int], list[int]]:
        """Those brokers of one cluster that have a number of their own, and those whose number a lower one has."""
        taken: dict[int, int] = {}
        for node in sorted(nodes):
            taken.setdefault(node % self.nodes_per_cluster, node)
        ours = sorted(taken.values())
        return ours, sorted(set(nodes) - set(ours))
