"""Whether a link's user may write markers directly: asked with one for a partition that no topic can have."""

from __future__ import annotations

from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.connection import Connection
from twinshore.kafka.errors import Code
from twinshore.mirror.passage.marking import marker_id
from twinshore.wire.markers import MARKERS_KEY, MARKERS_VERSION, Marker, encode_markers, parse_markers

NOWHERE = ("twinshore.nowhere", [2**31 - 1])


def may_write_markers(target: KafkaCluster) -> bool:
    """A broker checks the right before it looks for the partition, and each knows the right."""

    def ask(connection: Connection, timeout_s: float) -> bool:
        connection.api_version(MARKERS_KEY, MARKERS_VERSION, MARKERS_VERSION)
        body = encode_markers([(Marker(marker_id(0), 0, False, 0, [NOWHERE]), 1)])
        answered = connection.ask(MARKERS_KEY, MARKERS_VERSION, body, parse_markers, timeout_s=timeout_s)
        return all(one.error != Code.CLUSTER_AUTHORIZATION_FAILED for one in answered)

    return target.anybody("the right to write markers", ask)
