"""`twinshore.protection` and `twinshore.gates` on one cluster."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final, Generic, TypeVar

from twinshore.config.frozen import GATES_TOPIC, PROTECTION_TOPIC
from twinshore.config.model import TopicPartition
from twinshore.kafka.clock import wall_ms
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.leader_queries import OffsetKind
from twinshore.kafka.state_topic import KeyValue, split_into_batches
from twinshore.protection.core.account import LossAccount, account_of
from twinshore.protection.core.records import GateLog, ProtectionLog
from twinshore.routing.homes_topic import HOMES_SETTINGS, TopicTail

Log = TypeVar("Log", ProtectionLog, GateLog)


# Gates write each second, so records of the last day would take long to read.
GATES_SETTINGS: Final = {**HOMES_SETTINGS, "segment.ms": "600000", "min.compaction.lag.ms": "0"}


class _RecordTopic(Generic[Log]):
    _settings = HOMES_SETTINGS

    def __init__(self, cluster: KafkaCluster, topic: str, empty: Callable[[], Log]) -> None:
        self._cluster = cluster
        self._empty: Callable[[], Log] = empty
        self._tail = TopicTail(cluster, topic)
        self.log: Log = empty()

    def make(self) -> None:
        with self._cluster.errand():
            if not self._tail.state_topic.exists():
                self._tail.state_topic.make(self._settings, lasting=True)

    def read(self) -> Log:
        """Reads on with each call."""
        with self._cluster.errand():
            self.log = self._tail.read(self.log, self._empty())
        return self.log

    def say(self, lines: Sequence[KeyValue]) -> None:
        """Writes records. KafkaError: they may still have been written."""
        with self._cluster.errand():
            for some in split_into_batches(lines):
                self._tail.state_topic.append(some, wall_ms())


class ProtectionTopic(_RecordTopic[ProtectionLog]):
    """Only Twinshore writes here."""

    def __init__(self, cluster: KafkaCluster) -> None:
        super().__init__(cluster, PROTECTION_TOPIC, ProtectionLog)


class GatesTopic(_RecordTopic[GateLog]):
    """Each process that holds acknowledgements writes here, so applications too."""

    _settings = GATES_SETTINGS

    def __init__(self, cluster: KafkaCluster) -> None:
        super().__init__(cluster, GATES_TOPIC, GateLog)


def read_accounts(new: KafkaCluster, topics: Collection[str]) -> list[LossAccount]:
    """Returns what a forced switch to `new` would lose, for each protected topic of these."""
    levels = ProtectionTopic(new).read().levels
    protected = [topic for topic in sorted(topics) if topic in levels and levels[topic].holds]
    if not protected:
        return []
    gates = GatesTopic(new).read().gates
    ends = _ends(new, protected)
    return [
        account_of(
            topic,
            levels[topic],
            {gate: record for (name, gate), record in gates.items() if name == topic},
            {partition.partition: end for partition, end in ends.items() if partition.topic == topic},
        )
        for topic in protected
    ]


def _ends(cluster: KafkaCluster, topics: Iterable[str]) -> dict[TopicPartition, int]:
    found = cluster.metadata(sorted(topics)).topics
    every = [TopicPartition(name, one.partition) for name, topic in found.items() for one in topic.partitions]
    return dict(cluster.list_offsets(every, OffsetKind.LOG_END))
