"""By which numbers, and at which ports or names, clients know the brokers behind the proxy. Pure.

Each cluster has a block of numbers, by its place in the settings. So a number, and the port that follows from it, is
the same after a restart, at every proxy, and whichever brokers are away. So is its name where all clients come to one
port, and TLS says by which name they do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Final, NamedTuple

NOBODY: Final = -1
ANY: Final = -2
# What stands for a broker's number in the pattern of its name.
ANY_NODE: Final = "*"
_DIGITS_MAX: Final = 9


@dataclass(frozen=True, slots=True)
class NewTopics:
    """`by_name`: patterns with `*`, and a cluster for each; the first that fits the whole name counts, else `usual`,
    which is empty where none is named."""

    usual: str = ""
    by_name: tuple[tuple[str, str], ...] = ()

    def cluster_of(self, topic: str) -> str:
        """Where it is made."""
        return next((cluster for pattern, cluster in self.by_name if fnmatchcase(topic, pattern)), self.usual)


class Place(NamedTuple):
    """A broker of a cluster, by its own number there; `ANY` for whichever answers."""

    cluster: str
    node: int


@dataclass(frozen=True, slots=True)
class Layout:
    """`port` leads to no broker in particular; those behind it lead to one each. `cluster_id` is what clients take the
    whole for, `host` where they reach it, `new_topics` on which cluster a topic is made. `node_hosts`: the name of each
    broker, with `*` for its number; then `port` is the only one."""

    host: str
    port: int
    clusters: tuple[str, ...]
    nodes_per_cluster: int
    cluster_id: str = "twinshore"
    new_topics: NewTopics = field(default_factory=NewTopics)
    node_hosts: str = ""

    def number(self, cluster: str, node: int) -> int:
        """As which clients know the broker; what names none stays as it is."""
        if node < 0:
            return node
        return self.clusters.index(cluster) * self.nodes_per_cluster + node % self.nodes_per_cluster

    def port_of(self, cluster: str, node: int) -> int:
        """Where clients reach the broker."""
        return self.port if self.node_hosts else self.port + 1 + self.number(cluster, node)

    def host_of(self, cluster: str, node: int) -> str:
        """By which name they do."""
        return self.node_hosts.replace(ANY_NODE, str(self.number(cluster, node))) if self.node_hosts else self.host

    @property
    def last_port(self) -> int:
        """The highest that a broker can have."""
        return self.port if self.node_hosts else self.port + self.nodes_per_cluster * len(self.clusters)

    def asked_by(self, name: str) -> int | None:
        """The number of the broker that a client means who comes by this name; None where it means none."""
        before, _, behind = self.node_hosts.casefold().partition(ANY_NODE)
        name = name.casefold().removesuffix(".")
        digits = name[len(before) : len(name) - len(behind)]
        if not self.node_hosts or name != before + digits + behind or not (digits.isascii() and digits.isdecimal()):
            return None
        return int(digits) if len(digits) <= _DIGITS_MAX and str(int(digits)) == digits else None

    def place_of(self, number: int, nodes: Mapping[str, Iterable[int]]) -> Place | None:
        """The broker of this number, of the `nodes` of each cluster that are known; one that is away or not known yet
        keeps its place. None where no cluster has such numbers."""
        index, rest = divmod(number, self.nodes_per_cluster)
        if index >= len(self.clusters):
            return None
        cluster = self.clusters[index]
        same = (node for node in sorted(nodes.get(cluster, ())) if node % self.nodes_per_cluster == rest)
        return Place(cluster, next(same, rest))

    def apart(self, nodes: Iterable[int]) -> tuple[list[int], list[int]]:
        """Those brokers of one cluster that have a number of their own, and those whose number a lower one has."""
        taken: dict[int, int] = {}
        for node in sorted(nodes):
            taken.setdefault(node % self.nodes_per_cluster, node)
        ours = sorted(taken.values())
        return ours, sorted(set(nodes) - set(ours))
