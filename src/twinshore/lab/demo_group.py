"""A consumer group of the demo: reads on the source for a while, and later goes on at the target where it stood."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping

from confluent_kafka import Consumer, Message, TopicPartition

from twinshore.fleet import Cluster, NamedPartition
from twinshore.lab.clients import client_settings
from twinshore.lab.errors import LabError

GROUP = "demo-readers"
_BATCH = 500
_WAIT_S = 0.2
_JOINED_WITHIN_S = 60.0
_SILENT_S_MAX = 30.0


class GroupReader:
    """A member of the group, in a thread of its own from the start of each topic, until `leave`."""

    def __init__(self, cluster: Cluster, topics: Mapping[str, int]) -> None:
        self._next = {NamedPartition(topic, one): 0 for topic, count in topics.items() for one in range(count)}
        self._consumer = _member(cluster, "earliest")
        self._consumer.subscribe(list(topics))
        self._leaving = threading.Event()
        self._thread = threading.Thread(target=self._work, name="demo-group", daemon=True)
        self._thread.start()

    def leave(self) -> dict[NamedPartition, int]:
        """Commits, leaves the group, and says where it stands: what it reads next of each partition."""
        self._leaving.set()
        self._thread.join(timeout=30)
        places = [TopicPartition(one.topic, one.partition, offset) for one, offset in self._next.items()]
        self._consumer.commit(offsets=places, asynchronous=False)
        self._consumer.close()
        return dict(self._next)

    def close(self) -> None:
        """Ends the thread, in whatever state it is."""
        self._leaving.set()
        self._thread.join(timeout=10)

    def _work(self) -> None:
        while not self._leaving.is_set():
            for message in self._consumer.consume(_BATCH, timeout=_WAIT_S):
                if message.error() is None:
                    named, offset = _place(message)
                    self._next[named] = offset + 1


def places_on(cluster: Cluster, stood: Mapping[NamedPartition, int]) -> dict[NamedPartition, int]:
    """Where the group stands on this cluster; below 0: nowhere."""
    consumer = _member(cluster, "error")
    try:
        places = [TopicPartition(one.topic, one.partition) for one in stood]
        return {NamedPartition(one.topic, one.partition): one.offset for one in consumer.committed(places, timeout=10)}
    finally:
        consumer.close()


def read_on(cluster: Cluster, stood: Mapping[NamedPartition, int], ends: Mapping[NamedPartition, int]) -> int:
    """Joins the group here and reads to these ends; how many records. LabError where the first record of a partition
    is not the one that comes next, or any later one is not. A switch leaves one marker in each partition that it
    moves, which no consumer is given: so one offset of each partition may be passed over."""
    consumer = _member(cluster, "error")
    expected, passed = dict(stood), set[NamedPartition]()
    read, heard_s = 0, time.monotonic() + _JOINED_WITHIN_S - _SILENT_S_MAX
    try:
        consumer.subscribe(sorted({one.topic for one in stood}))
        while any(expected[one] < end for one, end in ends.items()):
            messages = consumer.consume(_BATCH, timeout=_WAIT_S)
            for message in messages:
                if message.error() is not None:
                    raise LabError(f"group {GROUP} cannot read on: {message.error()}")
                named, offset = _place(message)
                if offset == expected[named] + 1 and named not in passed:
                    passed.add(named)
                elif offset != expected[named]:
                    raise LabError(f"group {GROUP} read offset {offset} of {named}, next was {expected[named]}")
                expected[named] = offset + 1
                read += 1
            heard_s = max(heard_s, time.monotonic()) if messages else heard_s
            if time.monotonic() - heard_s > _SILENT_S_MAX:
                raise LabError(f"group {GROUP} was given nothing more after {read} records")
        consumer.commit(asynchronous=False)
        return read
    finally:
        consumer.close()


def _member(cluster: Cluster, reset: str) -> Consumer:
    return Consumer(
        {
            **client_settings(cluster),
            "group.id": GROUP,
            "enable.auto.commit": False,
            "auto.offset.reset": reset,
            "log_level": 0,
        }
    )


def _place(message: Message) -> tuple[NamedPartition, int]:
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    assert topic is not None and partition is not None and offset is not None
    return NamedPartition(topic, partition), offset
