"""What went through since the process began, by topic and by client, in few enough series for Prometheus. Pure.

Sums never fall: a topic that is idle stays, and what comes once there are too many counts for others.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from twinshore.store.traffic_values import OTHERS, Flow, FlowKey, FlowKind

SERIES_MAX: Final = 300
RECORDS_KINDS: Final = (FlowKind.PRODUCE, FlowKind.FETCH)


class ByTopic(NamedTuple):
    """A topic on a cluster, and what is done with it."""

    topic: str
    cluster: str
    kind: FlowKind


class Totals:
    """`topics`: of producers and consumers. `clients`: of all connections of a client id. `clusters`: producers, with
    how long brokers took."""

    def __init__(self, most: int = SERIES_MAX) -> None:
        self._most = most
        self.topics: dict[ByTopic, Flow] = {}
        self.clients: dict[str, Flow] = {}
        self.clusters: dict[str, Flow] = {}

    def take(self, grown: Iterable[tuple[FlowKey, Flow]]) -> None:
        """One more window."""
        for key, flow in grown:
            if key.kind is FlowKind.CLIENT:
                name = key.client if key.client in self.clients or len(self.clients) < self._most else OTHERS
                self.clients.setdefault(name, Flow()).add(flow)
            elif key.kind in RECORDS_KINDS:
                by_topic = ByTopic(key.topic, key.cluster, key.kind)
                if by_topic not in self.topics and len(self.topics) >= self._most:
                    by_topic = by_topic._replace(topic=OTHERS)
                self.topics.setdefault(by_topic, Flow()).add(flow)
            if key.kind is FlowKind.PRODUCE:
                self.clusters.setdefault(key.cluster, Flow()).add(flow)
