"""What brokers report of themselves: features, partition reassignments, disk space."""

from __future__ import annotations

import datetime
from typing import Final, NamedTuple

from kio.schema.api_versions.v3 import ApiVersionsRequest, ApiVersionsResponse
from kio.schema.describe_log_dirs.v4 import DescribeLogDirsRequest, DescribeLogDirsResponse
from kio.schema.list_partition_reassignments.v0 import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from kio.static.primitive import i32Timedelta

from twinshore import __version__
from twinshore.config.frozen import SOFTWARE_NAME
from twinshore.config.model import TopicPartition
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.connection import Connection
from twinshore.kafka.protocol.error_codes import kafka_error


class PartitionReassignment(NamedTuple):
    """Replicas being added and removed. Until a new one has caught up, metadata lists both."""

    adding: tuple[int, ...]
    removing: tuple[int, ...]


def read_reassignments(connection: Connection, timeout_s: float) -> dict[TopicPartition, PartitionReassignment]:
    """Returns all reassignments. The controller answers, or any broker if controllers are separate."""
    wait = i32Timedelta.parse(datetime.timedelta(milliseconds=int(800 * timeout_s)))
    request = ListPartitionReassignmentsRequest(timeout=wait, topics=None)
    answer = connection.call(request, ListPartitionReassignmentsResponse, timeout_s=timeout_s)
    if answer.error_code:
        place, detail = f"{connection.place}: partition reassignments", answer.error_message or ""
        raise kafka_error(int(answer.error_code), place, detail=detail, right="Describe on the cluster")
    return {
        TopicPartition(str(topic.name), int(one.partition_index)): PartitionReassignment(
            tuple(map(int, one.adding_replicas)), tuple(map(int, one.removing_replicas))
        )
        for topic in answer.topics
        for one in topic.partitions
    }


METADATA_VERSION_FEATURE: Final = "metadata.version"
ELIGIBLE_REPLICAS_FEATURE: Final = "eligible.leader.replicas.version"


class BrokerFeatures(NamedTuple):
    """`supports`: the highest metadata.version that the broker supports. `finalized`: the cluster's current one. 0:
    unknown. `eligible`: the cluster elects eligible leader replicas (KIP-966).
    """

    supports: int
    finalized: int
    eligible: bool = False


def read_features(connection: Connection, timeout_s: float) -> BrokerFeatures:
    """Of the broker at the other end."""
    request = ApiVersionsRequest(client_software_name=SOFTWARE_NAME, client_software_version=__version__)
    answer = connection.call(request, ApiVersionsResponse, timeout_s=timeout_s)
    if answer.error_code:
        raise kafka_error(int(answer.error_code), f"{connection.place}: its versions")
    supported = {one.name: int(one.max_version) for one in answer.supported_features}
    finalized = {one.name: int(one.max_version_level) for one in answer.finalized_features}
    versions = supported.get(METADATA_VERSION_FEATURE, 0), finalized.get(METADATA_VERSION_FEATURE, 0)
    return BrokerFeatures(*versions, finalized.get(ELIGIBLE_REPLICAS_FEATURE, 0) > 0)


LOG_DIRS_TIMEOUT_S = 5.0


class LogDir(NamedTuple):
    node_id: int
    log_dir: str
    total_bytes: int
    usable_bytes: int

    @property
    def free_percent(self) -> float:
        return 100.0 * self.usable_bytes / max(1, self.total_bytes)


def read_log_dirs(cluster: KafkaCluster, node_id: int) -> list[LogDir]:
    """Returns log directories (Kafka 3.3 and newer), without failed ones or unknown sizes."""
    # No topics: only the disks matter.
    request = DescribeLogDirsRequest(topics=())
    answer = cluster.connection_to(node_id).call(request, DescribeLogDirsResponse, timeout_s=LOG_DIRS_TIMEOUT_S)
    if answer.error_code:
        raise kafka_error(int(answer.error_code), f"{cluster.name}: disks of broker {node_id}", right="Describe")
    return [
        LogDir(node_id, one.log_dir, int(one.total_bytes), int(one.usable_bytes))
        for one in answer.results
        if not one.error_code and one.total_bytes > 0
    ]
