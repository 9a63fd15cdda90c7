"""How much room brokers have on their disks, as DescribeLogDirs tells since Kafka 3.3."""

from __future__ import annotations

from typing import NamedTuple

from kio.schema.describe_log_dirs.v4 import DescribeLogDirsRequest, DescribeLogDirsResponse

from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.errors import kafka_error

CALL_S = 5.0


class Disk(NamedTuple):
    """A log directory of one broker, and the volume it is on."""

    node_id: int
    log_dir: str
    total_bytes: int
    usable_bytes: int

    @property
    def free_percent(self) -> float:
        return 100.0 * self.usable_bytes / max(1, self.total_bytes)


def read_disks(cluster: KafkaCluster, node_id: int) -> list[Disk]:
    """The broker's log directories; those that failed, or whose room is not known, are left out."""
    # No topics: what is asked about is the disks, not what lies on them.
    request = DescribeLogDirsRequest(topics=())
    answer = cluster.connection_to(node_id).call(request, DescribeLogDirsResponse, timeout_s=CALL_S)
    if answer.error_code:
        raise kafka_error(int(answer.error_code), f"{cluster.name}: disks of broker {node_id}", right="Describe")
    return [
        Disk(node_id, one.log_dir, int(one.total_bytes), int(one.usable_bytes))
        for one in answer.results
        if not one.error_code and one.total_bytes > 0
    ]
