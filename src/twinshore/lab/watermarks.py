"""Where logs begin and end, as a stock consumer sees it: for whoever asks again and again until something is so.

A new consumer costs a broker some ten milliseconds of CPU each time: asked twenty times a second on two clusters, that
is half a core, taken from what is waited for. So one is kept for each cluster, and thread, until `close_kept`.
"""

from __future__ import annotations

import threading

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.cimpl import KafkaException

from twinshore.fleet import Cluster
from twinshore.lab.clients import client_settings

NOBODY_SAYS = (-1, -1)
_ANSWER_S = 5.0
# By its default a client says where the first open transaction begins, and calls that the end; and it waits for up to
# ten seconds before it connects again to a broker that was away.
_LOOKING = {
    "group.id": "watermarks",
    "isolation.level": "read_uncommitted",
    "reconnect.backoff.max.ms": 200,
    "log_level": 0,
}

_kept: dict[tuple[int, Cluster], Consumer] = {}


def watermarks(cluster: Cluster, topic: str, partitions: int) -> list[tuple[int, int]]:
    """Start and end of each partition, open transactions included; (-1, -1) where it is not there or nobody answers."""
    consumer = _consumer(cluster)
    try:
        # Else it goes by what it has once heard of the topic: that there is none, or who led it.
        consumer.list_topics(topic, timeout=_ANSWER_S)
    except KafkaException:
        # It may have asked a broker that hangs, and would ask it again.
        del _kept[threading.get_ident(), cluster]
        consumer.close()
        return [NOBODY_SAYS] * partitions
    return [_of(consumer, TopicPartition(topic, number)) for number in range(partitions)]


def close_kept() -> None:
    """Before their clusters go, or whoever takes their ports is asked. No thread may be asking meanwhile."""
    while _kept:
        _kept.popitem()[1].close()


def _consumer(cluster: Cluster) -> Consumer:
    place = (threading.get_ident(), cluster)
    if place not in _kept:
        _kept[place] = Consumer({**client_settings(cluster), **_LOOKING})
    return _kept[place]


def _of(consumer: Consumer, place: TopicPartition) -> tuple[int, int]:
    try:
        start, end = consumer.get_watermark_offsets(place, timeout=_ANSWER_S)
    except KafkaException:
        return NOBODY_SAYS
    return start, end
