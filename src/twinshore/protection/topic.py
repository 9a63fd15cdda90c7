"""`twinshore.protection` on one cluster."""

from __future__ import annotations

from collections.abc import Sequence

from twinshore.config.frozen import PROTECTION_TOPIC
from twinshore.kafka.clock import wall_ms
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.state_topic import KeyValue, split_into_batches
from twinshore.protection.core.records import ProtectionLog
from twinshore.routing.homes_topic import HOMES_SETTINGS, TopicTail


class ProtectionTopic:
    """Reads on with each call, and writes records. KafkaError: a write may still have succeeded."""

    def __init__(self, cluster: KafkaCluster) -> None:
        self._cluster = cluster
        self._tail = TopicTail(cluster, PROTECTION_TOPIC)
        self.log = ProtectionLog()

    def make(self) -> None:
        with self._cluster.errand():
            if not self._tail.state_topic.exists():
                self._tail.state_topic.make(HOMES_SETTINGS, lasting=True)

    def read(self) -> ProtectionLog:
        with self._cluster.errand():
            self.log = self._tail.read(self.log, ProtectionLog())
        return self.log

    def say(self, lines: Sequence[KeyValue]) -> None:
        with self._cluster.errand():
            for some in split_into_batches(lines):
                self._tail.state_topic.append(some, wall_ms())
