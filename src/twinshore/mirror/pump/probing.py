"""What a link's user may do, asked by requests that change nothing: markers for a partition that no topic can have, the
deletion of records below a log's start."""

from __future__ import annotations

from collections.abc import Mapping

from twinshore.fleet import KafkaError, NamedPartition
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.connection import Connection
from twinshore.kafka.errors import Code
from twinshore.mirror.lane.answers import RIGHTS
from twinshore.mirror.lane.marking import marker_id
from twinshore.wire.markers import MARKERS_KEY, MARKERS_VERSION, Marker, encode_markers, parse_markers

# Answers of a broker that will not cut a log until somebody changes a right, or the topic's settings.
KEPT = RIGHTS | {Code.POLICY_VIOLATION}
NOWHERE = ("twinshore.nowhere", [2**31 - 1])


def may_write_markers(target: KafkaCluster) -> bool:
    """A broker checks the right before it looks for the partition, and each knows the right."""

    def ask(connection: Connection, timeout_s: float) -> bool:
        connection.spoken(MARKERS_KEY)
        body = encode_markers([(Marker(marker_id(0), 0, False, 0, [NOWHERE]), 1)])
        answered = connection.ask(MARKERS_KEY, MARKERS_VERSION, body, parse_markers, timeout_s=timeout_s)
        return all(one.error != Code.CLUSTER_AUTHORIZATION_FAILED for one in answered)

    return target.anybody("the right to write markers", ask)


def not_cut(
    target: KafkaCluster, starts: Mapping[NamedPartition, int], ids: Mapping[str, bytes]
) -> dict[NamedPartition, KafkaError]:
    """Which of these logs cannot be cut now, and why. Each is asked to be cut where it begins. `ids`: which topic each
    name must mean."""
    failed: dict[NamedPartition, KafkaError] = {}
    for topic in sorted({named.topic for named in starts}):
        # One by one: a topic that is another by now would hide what becomes of the others.
        ours = {named: at for named, at in starts.items() if named.topic == topic}
        try:
            failed |= target.cut_each(ours, {topic: ids[topic]})[1]
        except KafkaError as error:
            failed |= dict.fromkeys(ours, error)
    return failed
