"""The stage of a prefix pair: a mirror that the test itself is, writers that move, and members that read."""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, Producer, TopicPartition

from tests.scenarios.switch_rig import transactional
from tests.scenarios.test_client_homes import sites
from twinshore.client import FailoverPairConsumer
from twinshore.lab.clients import client_settings, create_topic
from twinshore.lab.cluster import LabCluster

PARTITIONS = 4
KEYS = 12
LAG_S = 2.0
Reads = list[tuple[str, int]]


class Crossing:
    """Copies a topic to its twin, each record `lag_s` after it was seen."""

    def __init__(self, source: LabCluster, target: LabCluster, topic: str, lag_s: float) -> None:
        self.lag_s = lag_s
        self._twin = f"{source.cluster.name}.{topic}"
        self._consumer = Consumer({**client_settings(source.cluster), "group.id": f"crossing-{topic}"})
        self._consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(PARTITIONS)])
        self._producer = Producer(
            {**client_settings(target.cluster), "enable.idempotence": True, "linger.ms": 0, "message.timeout.ms": 0}
        )
        self._late = deque[tuple[float, Message]]()
        self.crossed = 0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopping.is_set():
            message = self._consumer.poll(0.01)
            if message is not None and message.error() is None:
                self._late.append((time.monotonic(), message))
            while self._late and time.monotonic() >= self._late[0][0] + self.lag_s:
                one = self._late.popleft()[1]
                key, number, time_ms = one.key(), one.partition() or 0, one.timestamp()[1]
                self._producer.produce(self._twin, one.value(), key, number, timestamp=time_ms)
                self.crossed += 1
            self._producer.poll(0)

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(30)
        self._consumer.close()


class Writers:
    """One for each key; a record's value is the key's own count."""

    def __init__(self, topic: str, *labs: LabCluster) -> None:
        self._topic = topic
        self.counts = Counter[str]()
        self._producers = {
            lab.cluster.name: Producer({**client_settings(lab.cluster), "acks": "all", "linger.ms": 0}) for lab in labs
        }

    def write(self, at: str, rounds: int = 1, pause_s: float = 0.0) -> None:
        """Each key, so many times; returns when all are there."""
        for _ in range(rounds):
            for number in range(KEYS):
                key = f"key-{number}"
                self._producers[at].produce(self._topic, b"%d" % self.counts[key], key, number % PARTITIONS)
                self.counts[key] += 1
            if pause_s:
                assert self._producers[at].flush(30) == 0
                time.sleep(pause_s)
        assert self._producers[at].flush(30) == 0

    def total(self) -> int:
        return self.counts.total()


def record_of(message: Message) -> tuple[str, int]:
    assert message.error() is None, message.error()
    return (message.key() or b"").decode(), int(message.value() or b"-1")


class Reading:
    """A member that reads in a thread of its own, into a list that it may share."""

    def __init__(self, consumer: FailoverPairConsumer, topic: str, reads: Reads | None = None) -> None:
        self.consumer, self.topic = consumer, topic
        self.reads: Reads = [] if reads is None else reads
        self.homes = Counter[str]()
        self.errors: list[BaseException] = []
        self.orders = deque[str]()  # where to go
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.consumer.subscribe([self.topic])
            while not self._stopping.is_set():
                if self.orders:
                    self.consumer.move(self.orders.popleft())
                message = self.consumer.poll(0.1)
                if message is not None:
                    self.homes[self.consumer.written_at(message)] += 1
                    self.reads.append(record_of(message))
            self.consumer.close()
        except BaseException as error:
            self.errors.append(error)

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(60)
        assert not self.errors, self.errors


def add(reads: Reads, reader: FailoverPairConsumer) -> int:
    """What it hands out now; how many there are with it."""
    reads.extend(record_of(one) for one in reader.consume(100, 0.05))
    return len(reads)


def has_read(reads: Reads, reader: FailoverPairConsumer, count: int) -> bool:
    return add(reads, reader) >= count


def in_order(reads: Reads) -> bool:
    found = defaultdict[str, list[int]](list)
    for key, number in reads:
        found[key].append(number)
    return all(numbers == list(range(len(numbers))) for numbers in found.values())


def aborts(lab: LabCluster, *names: str) -> None:
    """What nobody reads, and a marker behind it, in each partition."""
    producer = transactional(lab, f"aborts-{names[0]}-{time.monotonic_ns()}")
    producer.begin_transaction()
    for number in range(PARTITIONS):
        for name in names:
            producer.produce(name, b"0", b"aborted", number)
    assert producer.flush(30) == 0
    producer.abort_transaction(30)


def reads_all(reading: Reading, writers: Writers, reads: Reads | None = None) -> Callable[[], bool]:
    return lambda: bool(reading.errors) or len(reading.reads if reads is None else reads) >= writers.total()


def make_topics(topic: str, *labs: LabCluster) -> None:
    for lab in labs:
        for name in (topic, *(f"{other.cluster.name}.{topic}" for other in labs if other is not lab)):
            create_topic(lab.cluster, name, partitions=PARTITIONS)


@contextmanager
def crossing(topic: str, source: LabCluster, target: LabCluster, lag_s: float = LAG_S) -> Iterator[Crossing]:
    made = Crossing(source, target, topic, lag_s)
    try:
        yield made
    finally:
        made.stop()


def pair_consumer(topic: str, *labs: LabCluster, **named: Any) -> FailoverPairConsumer:
    more = {"group.id": f"{topic}-readers", "auto.offset.reset": "earliest", "auto.commit.interval.ms": 200}
    return FailoverPairConsumer(more | named.pop("config", {}), clusters=sites(*labs), **named)


class Plainly:
    """Both names, read by confluent-kafka alone: what the order is at stake against."""

    def __init__(self, lab: LabCluster, names: list[str], count: int) -> None:
        self.reads: Reads = []
        consumer = Consumer({**client_settings(lab.cluster), "group.id": "plain", "auto.offset.reset": "earliest"})
        consumer.assign([TopicPartition(name, number, OFFSET_BEGINNING) for name in names for number in range(4)])
        deadline_s = time.monotonic() + 60
        while len(self.reads) < count and time.monotonic() < deadline_s:
            message = consumer.poll(0.1)
            if message is not None:
                self.reads.append(record_of(message))
        consumer.close()
