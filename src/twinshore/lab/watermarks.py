"""Log starts and ends as stock clients see them, for callers that poll.

Each new consumer costs a broker some ten milliseconds of CPU, taken from the system under test. So one is kept per
cluster and thread, until `close_kept_consumers`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Mapping

from confluent_kafka import Consumer, KafkaException
from confluent_kafka import TopicPartition as ClientTopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from twinshore.config.model import Cluster, TopicPartition
from twinshore.lab.clients import client_settings, create_admin_client

NO_WATERMARKS = (-1, -1)
_ANSWER_S = 5.0
_LOOK_S = 10.0
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
        self._places = [ClientTopicPartition(topic, number) for number in range(partitions)]

    def records(self) -> int:
        """Offsets in use over all partitions. A partition without answer counts 0."""
        return sum(end for _, end in _answers(self._admin, self._places))

    def wait_ready(self, within_s: float = 30.0) -> None:
        """Returns when every partition answers. Raises KafkaException if one does not in time."""
        deadline = time.monotonic() + within_s
        while sum(1 for _ in _answers(self._admin, self._places)) < len(self._places):
            if time.monotonic() > deadline:
                raise KafkaException(f"not every partition of {self._places[0].topic} answers")
            time.sleep(0.05)


class LogEndReader:
    """Reads the ends of topics that may not exist yet."""

    def __init__(self, cluster: Cluster, topics: Mapping[str, int]) -> None:
        self._admin = create_admin_client(cluster)
        self._missing = set(topics)
        self._places: list[ClientTopicPartition] = []

    def read(self) -> dict[TopicPartition, int]:
        """The high watermarks, without partitions that do not exist or do not answer."""
        if self._missing:
            self._look()
        return {TopicPartition(one.topic, one.partition): end for one, end in _answers(self._admin, self._places)}

    def _look(self) -> None:
        # Asked about topics before all of them exist, the client would keep calling the late ones unknown.
        known = self._admin.list_topics(timeout=_LOOK_S).topics
        for topic in self._missing & set(known):
            partitions = known[topic].partitions
            if partitions and all(one.leader >= 0 for one in partitions.values()):
                self._missing.discard(topic)
                self._places += [ClientTopicPartition(topic, partition) for partition in partitions]


def _answers(admin: AdminClient, places: Iterable[ClientTopicPartition]) -> Iterator[tuple[ClientTopicPartition, int]]:
    latest: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]
    question = dict.fromkeys(places, latest)
    for place, answer in admin.list_offsets(question, request_timeout=_ANSWER_S).items() if question else ():
        try:
            yield place, answer.result(_ANSWER_S).offset
        except (KafkaException, TimeoutError):
            continue
