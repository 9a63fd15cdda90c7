"""What clients would see at the proxy's address, from one look at the clusters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from twinshore.config.sentences import count_phrase, join_names
from twinshore.kafka.protocol.apis import FETCH, PRODUCE, api_name
from twinshore.proxy.core.model import BrokerAddressing, RoutingTable
from twinshore.replication.core.filters import is_internal_topic
from twinshore.routing.core.leader_cluster import describe_decision

TOPICS_NAMED_MAX: Final = 10


@dataclass(frozen=True, slots=True)
class ProxyPreview:
    """What clients would see.

    `asked`: topics that the operator names; if none, only topics with a problem are listed. `is_own`: whether each site
    has the topic for itself. `remarks`: messages from the look.
    """

    table: RoutingTable
    addressing: BrokerAddressing
    asked: tuple[str, ...]
    is_own: Callable[[str], bool]
    tls: bool = False
    logins: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()

    @property
    def several(self) -> Mapping[str, list[str]]:
        """Clusters of topics on more than one, without Twinshore's own topics, which each cluster should have."""
        count = Counter(topic for cluster in self.table.clusters.values() for topic in cluster.topics)
        names = sorted(topic for topic, times in count.items() if times > 1 and not is_internal_topic(topic))
        return {topic: self.table.holders(topic) for topic in names}

    @property
    def clashes(self) -> Mapping[str, list[str]]:
        """Topics on several clusters without a leader: nothing says where they are at home."""
        several, leaderless = self.several, self.table.leaderless
        return {topic: several[topic] for topic in several if topic in leaderless and not self.is_own(topic)}

    @property
    def unknown(self) -> list[str]:
        """Requested topics that no cluster has."""
        return [topic for topic in self.asked if topic not in self.table.routes and topic not in self.table.leaderless]

    @property
    def exit_code(self) -> int:
        """The exit code: 1 if an operator should look first."""
        silent = len(self.table.answering()) < len(self.table.clusters)
        return int(silent or bool(self.clashes) or bool(self.unknown))

    def sentences(self) -> Iterator[str]:
        addressing = self.addressing
        speak = "TLS" if self.tls else "plain text"
        logins = ", and need no login"
        if self.logins:
            logins = f", and log in by {join_names(self.logins, TOPICS_NAMED_MAX)}"
        yield f"clients connect to {addressing.host}:{addressing.port}, speak {speak}{logins}"
        if addressing.node_hosts:
            hosts = f"{addressing.host}, {addressing.node_hosts}"
            yield f"port to open: {addressing.port} alone; names that must resolve to this proxy: {hosts}"
        else:
            yield f"ports to open: {addressing.port} to {addressing.last_port}, one for each broker that there may be"
        for name, cluster in self.table.clusters.items():
            if not cluster.answers:
                yield f"{name}: does not answer; its topics wait until it does"
                continue
            brokers = [
                f"{node} at {addressing.host_of(name, node)}:{addressing.port_of(name, node)}"
                for node in sorted(cluster.brokers)
            ]
            named = join_names(brokers, TOPICS_NAMED_MAX)
            yield f"{name}: {count_phrase(len(cluster.topics), 'topic')}; broker {named}"
        newer = "those of the new protocol too"
        if not self.table.serves_newer_groups:
            lacking = join_names(self.table.lack_newer_groups, TOPICS_NAMED_MAX)
            newer = f"those of the new protocol are refused, as {lacking} does not have them"
        yield f"groups: at home on {self.table.group_home()}; {newer}"
        yield f"new topics: created on {addressing.new_topics.usual or next(iter(self.table.clusters))}"
        offers = self.table.offers
        versions = [
            f"{api_name(key)} {offers[key][0]} to {offers[key][1]}" for key in (PRODUCE, FETCH) if key in offers
        ]
        if versions:
            yield f"versions that clients may speak: {' and '.join(versions)}; --json has all"
        yield from self._topics()
        yield from self.remarks

    def _topics(self) -> Iterator[str]:
        for topic in self.asked:
            where = self.table.route(topic)
            told = f"routed to {where}{self._why(topic)}" if where is not None else "no cluster has it"
            lacking = self.table.leaderless.get(topic)
            yield f"topic {topic}: {told}" if lacking is None else describe_decision(topic, lacking)
        led = Counter(where for topic, where in self.table.routes.items() if not is_internal_topic(topic))
        several = sum(self.table.has_home(topic) for topic in self.several)
        told = ", ".join(f"{led[name]:,} to {name}" for name in self.table.clusters)
        yield f"topics routed: {told}; {count_phrase(several, 'topic')} of these on several clusters, at home on one"
        clashes = sorted(self.clashes.items(), key=lambda one: one[0] not in self.asked)
        for topic, clusters in clashes[:TOPICS_NAMED_MAX]:
            yield (
                f"CLASH: {topic} is on {' and '.join(clusters)}, and neither links nor clusters say where it is at"
                f" home: no client can write or read it"
            )
        if (more := len(clashes) - TOPICS_NAMED_MAX) > 0:
            yield f"and {count_phrase(more, 'more clash')}: --json names them"

    def _why(self, topic: str) -> str:
        if topic in self.table.leads:
            return ", where the clusters say that it is at home"
        if topic in self.table.homes:
            return ", its home by the store or by links"
        if self.is_own(topic):
            return ", or to the cluster of the client's own site"
        return ", the only one that has it" if topic not in self.several else ""

    def values(self) -> dict[str, Any]:
        addressing = self.addressing
        named = self.asked or [topic for topic in self.table.routes if not is_internal_topic(topic)]
        return {
            "address": f"{addressing.host}:{addressing.port}",
            "last_port": addressing.last_port,
            "node_hosts": addressing.node_hosts,
            "tls": self.tls,
            "logins": list(self.logins),
            "groups_home": self.table.group_home(),
            "clusters": [
                {
                    "name": name,
                    "answers": cluster.answers,
                    "topics": len(cluster.topics),
                    "brokers": {str(node): addressing.port_of(name, node) for node in sorted(cluster.brokers)},
                }
                for name, cluster in self.table.clusters.items()
            ],
            "versions": {api_name(key): list(versions) for key, versions in sorted(self.table.offers.items())},
            "routes": {topic: self.table.route(topic) for topic in sorted(named)},
            "clashes": self.clashes,
            "remarks": list(self.remarks),
            "exit_code": self.exit_code,
        }
