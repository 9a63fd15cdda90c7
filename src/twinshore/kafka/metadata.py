"""Brokers, topics, partitions and leaders of a cluster, as one broker reports them."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kio.schema.metadata.v12 import MetadataRequest, MetadataResponse
from kio.schema.metadata.v12.request import MetadataRequestTopic
from kio.schema.metadata.v12.response import MetadataResponsePartition, MetadataResponseTopic
from kio.schema.types import TopicName

from twinshore.config.errors import KafkaError
from twinshore.kafka.connection import Connection
from twinshore.kafka.protocol.error_codes import Code

NO_LEADER = -1
NO_TOPIC_ID = bytes(16)
# Far beyond any cluster: a larger claim is a fault or an attack.
PARTITIONS_MAX = 1_000_000


class BrokerAddress(NamedTuple):
    host: str
    port: int
    rack: str | None


@dataclass(frozen=True, slots=True)
class PartitionMetadata:
    """`leader`: -1 for none. `error`: Kafka's code."""

    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    error: int


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    """`partitions[n]` is partition n. `topic_id`: 16 bytes, all zero where the topic does not exist."""

    name: str
    topic_id: bytes
    internal: bool
    error: int
    partitions: tuple[PartitionMetadata, ...]


@dataclass(frozen=True, slots=True)
class ClusterMetadata:
    cluster_id: str
    controller: int
    brokers: dict[int, BrokerAddress]
    topics: dict[str, TopicMetadata]


def metadata_request(topics: Sequence[str] | None) -> MetadataRequest:
    wanted = None if topics is None else tuple(MetadataRequestTopic(topic_id=None, name=TopicName(t)) for t in topics)
    return MetadataRequest(topics=wanted, allow_auto_topic_creation=False, include_topic_authorized_operations=False)


def read_metadata(connection: Connection, topics: Sequence[str] | None, *, timeout_s: float) -> ClusterMetadata:
    """Returns metadata of these topics, or all. Never creates one."""
    answer = connection.call(metadata_request(topics), MetadataResponse, timeout_s=timeout_s)
    return ClusterMetadata(
        cluster_id=answer.cluster_id or "",
        controller=int(answer.controller_id),
        brokers={int(one.node_id): BrokerAddress(one.host, int(one.port), one.rack) for one in answer.brokers},
        topics={str(one.name): _topic(one, connection.place) for one in answer.topics if one.name is not None},
    )


def _topic(answer: MetadataResponseTopic, place: str) -> TopicMetadata:
    known = {int(one.partition_index): _partition(one) for one in answer.partitions}
    absent = int(Code.leader_not_available)
    total = max(known, default=-1) + 1
    if total > PARTITIONS_MAX:
        raise KafkaError(f"{place}: topic {answer.name} would have {total} partitions")
    return TopicMetadata(
        name=str(answer.name),
        topic_id=answer.topic_id.bytes if answer.topic_id else NO_TOPIC_ID,
        internal=answer.is_internal,
        error=int(answer.error_code),
        partitions=tuple(
            known.get(number) or PartitionMetadata(number, NO_LEADER, -1, (), (), absent) for number in range(total)
        ),
    )


def _partition(answer: MetadataResponsePartition) -> PartitionMetadata:
    return PartitionMetadata(
        partition=int(answer.partition_index),
        leader=int(answer.leader_id),
        leader_epoch=int(answer.leader_epoch),
        replicas=tuple(map(int, answer.replica_nodes)),
        isr=tuple(map(int, answer.isr_nodes)),
        error=int(answer.error_code),
    )


class MetadataCache:
    """The last metadata seen. Thread-safe."""

    def __init__(self, place: str, cluster_id: str = "") -> None:
        """`cluster_id`: the expected cluster; empty for the first one seen."""
        self._place = place
        self._guard = threading.Lock()
        self._cluster_id = cluster_id
        self._metadata = ClusterMetadata("", -1, {}, {})
        self._complete = False

    @property
    def cluster_id(self) -> str:
        """Empty before any cluster was seen or expected."""
        return self._cluster_id

    def same(self, cluster_id: str) -> None:
        """KafkaError for another cluster than before, for which cached data is wrong."""
        with self._guard:
            before = self._cluster_id
            if before and cluster_id != before:
                raise KafkaError(
                    f"{self._place}: its addresses lead to another cluster now: {cluster_id}, it was {before}",
                    hint="check the bootstrap addresses: do they all belong to one cluster?",
                )
            self._cluster_id = cluster_id

    def recall(self, topics: Sequence[str] | None) -> ClusterMetadata | None:
        """Returns these topics (None: all) as last seen; None where one is unknown or had an error."""
        with self._guard:
            metadata, complete = self._metadata, self._complete
        if not metadata.cluster_id or topics is None:
            return metadata if complete else None
        known = {name: metadata.topics[name] for name in topics if name in metadata.topics}
        if len(known) < len(set(topics)) or any(topic.error for topic in known.values()):
            return None
        return ClusterMetadata(metadata.cluster_id, metadata.controller, metadata.brokers, known)

    def learn(self, metadata: ClusterMetadata, *, everything: bool) -> None:
        """KafkaError for another cluster than before."""
        self.same(metadata.cluster_id)
        with self._guard:
            topics = metadata.topics if everything else {**self._metadata.topics, **metadata.topics}
            self._metadata = ClusterMetadata(metadata.cluster_id, metadata.controller, metadata.brokers, topics)
            self._complete = self._complete or everything
