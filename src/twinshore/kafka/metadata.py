"""Which brokers, topics, partitions and leaders a cluster has, as one answer of one broker says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kio.schema.metadata.v12 import MetadataRequest, MetadataResponse
from kio.schema.metadata.v12.request import MetadataRequestTopic
from kio.schema.metadata.v12.response import MetadataResponsePartition, MetadataResponseTopic
from kio.schema.types import TopicName

from twinshore.fleet import KafkaError
from twinshore.kafka.connection import Connection
from twinshore.kafka.errors import Code

NO_LEADER = -1
NO_TOPIC_ID = bytes(16)
# Far beyond what a cluster can bear: what claims more has not understood us, or means harm.
PARTITIONS_MAX = 1_000_000


class BrokerAddress(NamedTuple):
    host: str
    port: int
    rack: str | None


@dataclass(frozen=True, slots=True)
class PartitionMetadata:
    """`leader` is -1 while there is none; `error` is Kafka's code."""

    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    error: int


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    """`partitions[n]` is partition n. `topic_id` is 16 bytes, all zero for a topic that does not exist."""

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


def ask_metadata(connection: Connection, topics: Sequence[str] | None, *, timeout_s: float) -> ClusterMetadata:
    """Of these topics, or of all. Never creates a topic."""
    wanted = None if topics is None else tuple(MetadataRequestTopic(topic_id=None, name=TopicName(t)) for t in topics)
    request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False, include_topic_authorized_operations=False)
    answer = connection.call(request, MetadataResponse, timeout_s=timeout_s)
    return ClusterMetadata(
        cluster_id=answer.cluster_id or "",
        controller=int(answer.controller_id),
        brokers={int(one.node_id): BrokerAddress(one.host, int(one.port), one.rack) for one in answer.brokers},
        topics={str(one.name): _topic(one, connection.place) for one in answer.topics if one.name is not None},
    )


def _topic(answer: MetadataResponseTopic, place: str) -> TopicMetadata:
    known = {int(one.partition_index): _partition(one) for one in answer.partitions}
    absent = int(Code.LEADER_NOT_AVAILABLE)
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
