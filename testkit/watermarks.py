"""Log starts and ends as stock clients see them, for callers that poll.

Each new consumer costs a broker some ten milliseconds of CPU, taken from the system under test. So one is kept per
cluster and thread, until `close_kept_consumers`.
"""

from __future__ import annotations

import threading
import time

from confluent_kafka import Consumer, KafkaException
from confluent_kafka import TopicPartition as ClientTopicPartition

from twinshore.config.model import Cluster
from twinshore.lab.clients import client_settings, create_admin_client, read_high_watermarks

NO_WATERMARKS = (-1, -1)
_ANSWER_S = 5.0
# By default a client reports the first open transaction's start as the end, and waits up to ten seconds before it
# reconnects to a broker that was away.
_LOOKING = {
    "group.id": "watermarks",
    "isolation.level": "read_uncommitted",
    "reconnect.backoff.max.ms": 200,
    "log_level": 0,
}

_kept: dict[tuple[int, Cluster], Consumer] = {}


def read_watermarks(cluster: Cluster, topic: str, partitions: int) -> list[tuple[int, int]]:
    """Start and end of each partition, open transactions included; (-1, -1) if missing or without answer."""
    consumer = _consumer(cluster)
    try:
        # Otherwise the client uses old knowledge: that the topic is missing, or its old leader.
        consumer.list_topics(topic, timeout=_ANSWER_S)
    except KafkaException:
        # The client may have asked a broker that hangs, and would ask that one again.
        del _kept[threading.get_ident(), cluster]
        consumer.close()
        return [NO_WATERMARKS] * partitions
    return [_of(consumer, ClientTopicPartition(topic, number)) for number in range(partitions)]


def close_kept_consumers() -> None:
    """Call before the clusters stop or other servers take their ports, while no other thread reads."""
    while _kept:
        _kept.popitem()[1].close()


def _consumer(cluster: Cluster) -> Consumer:
    place = (threading.get_ident(), cluster)
    if place not in _kept:
        _kept[place] = Consumer({**client_settings(cluster), **_LOOKING})
    return _kept[place]


def _of(consumer: Consumer, place: ClientTopicPartition) -> tuple[int, int]:
    try:
        start, end = consumer.get_watermark_offsets(place, timeout=_ANSWER_S)
    except KafkaException:
        return NO_WATERMARKS
    return start, end


def read_end_offsets(cluster: Cluster, topic: str, partitions: int) -> list[int]:
    """The end of each partition, open transactions included; -1 if unknown."""
    return [end for _, end in read_watermarks(cluster, topic, partitions)]


class TopicEndReader:
    """Reads one topic's end on one cluster. A missing topic ends at 0."""

    def __init__(self, cluster: Cluster, topic: str, partitions: int) -> None:
        self._admin = create_admin_client(cluster)
        self._partitions = [ClientTopicPartition(topic, number) for number in range(partitions)]

    def records(self) -> int:
        """Offsets in use over all partitions. A partition without answer counts 0."""
        return sum(end for _, end in read_high_watermarks(self._admin, self._partitions))

    def wait_ready(self, within_s: float = 30.0) -> None:
        """Returns when every partition answers. Raises KafkaException if one does not in time."""
        deadline = time.monotonic() + within_s
        while sum(1 for _ in read_high_watermarks(self._admin, self._partitions)) < len(self._partitions):
            if time.monotonic() > deadline:
                raise KafkaException(f"not every partition of {self._partitions[0].topic} answers")
            time.sleep(0.05)
