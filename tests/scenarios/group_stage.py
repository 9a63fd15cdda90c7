"""A consumer group and a writer, at work until they are told to stop: for a group that moves alone."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import Consumer, KafkaException, Producer

from tests.scenarios.mirror_rig import until
from tests.scenarios.switch_rig import SwitchRig
from twinshore.lab.clients import client_settings
from twinshore.lab.cluster import LabCluster


class Reading:
    """A member of the group on one cluster; what it was given is kept. It commits now and then, and as it leaves."""

    def __init__(self, lab: LabCluster, topic: str, group: str, read: list[tuple[int, int]]) -> None:
        self._topic, self._group = topic, group
        self._lab, self._read, self._over = lab, read, threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.failed: Exception | None = None

    def __enter__(self) -> Reading:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(60)
        assert not self._thread.is_alive()
        assert self.failed is None

    def _run(self) -> None:
        settings = {"group.id": self._group, "auto.offset.reset": "earliest", "enable.auto.commit": False}
        consumer = Consumer({**client_settings(self._lab.cluster), **settings, "isolation.level": "read_committed"})
        try:
            consumer.subscribe([self._topic])
            while not self._over.is_set():
                some = consumer.consume(50, 0.05)
                for message in some:
                    if error := message.error():
                        raise KafkaException(error)
                    self._read.append((message.partition() or 0, message.offset() or 0))
                if some:
                    consumer.commit(asynchronous=False)
        except Exception as error:
            self.failed = error
        finally:
            consumer.close()


@contextmanager
def written(lab: LabCluster, topic: str, partitions: int = 3) -> Iterator[None]:
    """Some records all the time, to each partition."""
    over = threading.Event()

    def write() -> None:
        producer = Producer({**client_settings(lab.cluster), "linger.ms": 0})
        number = 0
        while not over.wait(0.02):
            number += 1
            producer.produce(topic, b"value %d" % number, partition=number % partitions)
            producer.flush(10)

    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(60)


def more(read: list[tuple[int, int]], rig: SwitchRig) -> None:
    """Waits until it has read some more."""
    goal = len(read) + 30
    until(lambda: len(read) >= goal, 120, "the group reads", rig.rig)
