"""From a producer's call to a consumer's hands, through a copier or without one, at a steady rate."""

from __future__ import annotations

import struct
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from bench.kit.tree import ProcessTree
from bench.measure.drain import stop
from testkit.copiers import Copier, CopyJob
from testkit.figures import StageError, percentile
from testkit.loader import PARTITIONS
from testkit.watermarks import TopicEndReader
from twinshore.config.model import Cluster
from twinshore.lab.clients import client_settings

_SENT = struct.Struct(">qi")  # when, and which record it is
_RECORD_BYTES = 1_000
_FILLER = bytes(_RECORD_BYTES - _SENT.size)
_TOPIC_WITHIN_S = 120.0
_LATE_AFTER_S = 30.0
_PRIMER = -1
NO_COPIER = "none"


@dataclass(frozen=True, slots=True)
class Latency:
    """Milliseconds from produce() to poll(), of `records` records at `rate` records a second.

    A record's first arrival counts; `repeated` is how many arrived again.
    """

    copier: str
    setting: str
    rate: int
    records: int
    repeated: int
    p50_ms: float
    p99_ms: float
    p999_ms: float
    max_ms: float


@dataclass(frozen=True, slots=True)
class Pace:
    """`rate` records a second for `warm_s` uncounted and then `count_s` counted seconds."""

    rate: int
    warm_s: float
    count_s: float


def copied_latency(copier: Copier, job: CopyJob, pace: Pace) -> Latency:
    """Starts the copier on the empty topic of the job, measures, and ends it."""
    with tempfile.TemporaryDirectory(prefix="twinshore-bench-") as name:
        child = copier.start(job, Path(name))
        tree = ProcessTree(child.pid)
        try:
            found = _measure(job.source, job.topic, job.target, copier.target_topic(job), pace)
        finally:
            stop(child, tree)
    return _latency(copier.name, copier.setting, pace, *found)


def direct_latency(cluster: Cluster, topic: str, pace: Pace) -> Latency:
    """The same producer and consumer with no copier between them."""
    return _latency(NO_COPIER, "", pace, *_measure(cluster, topic, cluster, topic, pace))


def _latency(copier: str, setting: str, pace: Pace, found_ms: list[float], repeated: int) -> Latency:
    found_ms.sort()
    p50, p99, p999 = (percentile(found_ms, part) for part in (0.5, 0.99, 0.999))
    return Latency(copier, setting, pace.rate, len(found_ms), repeated, p50, p99, p999, found_ms[-1])


def _measure(source: Cluster, topic: str, target: Cluster, copied: str, pace: Pace) -> tuple[list[float], int]:
    """Latencies in milliseconds and the number of records that came twice; StageError when a record does not arrive."""
    producer = Producer({**client_settings(source), "linger.ms": 0, "acks": "all", "log_level": 0})
    _wait_for_copy(producer, topic, TopicEndReader(target, copied, PARTITIONS))
    consumer = Consumer(
        {
            **client_settings(target),
            "group.id": "bench-latency",
            "enable.auto.commit": False,
            "fetch.min.bytes": 1,
            "log_level": 0,
        }
    )
    first = _first_offsets(consumer, copied)
    consumer.assign([TopicPartition(copied, partition, offset) for partition, offset in enumerate(first)])
    warm, counted = int(pace.rate * pace.warm_s), int(pace.rate * pace.count_s)
    sender = threading.Thread(target=_send, args=(producer, topic, pace.rate, warm + counted), daemon=True)
    try:
        sender.start()
        found, repeated = _receive(consumer, warm + counted)
        sender.join()
    finally:
        consumer.close()
    return found[warm:], repeated


def _wait_for_copy(producer: Producer, topic: str, end: TopicEndReader) -> None:
    """Sends a record to every partition and returns when all of them have arrived: then the copier runs."""
    for partition in range(PARTITIONS):
        producer.produce(topic, _SENT.pack(0, _PRIMER) + _FILLER, partition=partition)
    producer.flush(30)
    deadline = time.monotonic() + _TOPIC_WITHIN_S
    while end.records() < PARTITIONS:
        if time.monotonic() > deadline:
            raise StageError(f"the copier brought no record within {_TOPIC_WITHIN_S:.0f} s")
        time.sleep(0.1)


def _first_offsets(consumer: Consumer, topic: str) -> list[int]:
    """Where what is sent from now on begins."""
    return [
        consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=10)[1]
        for partition in range(PARTITIONS)
    ]


def _send(producer: Producer, topic: str, rate: int, records: int) -> None:
    begun_s = time.monotonic()
    for number in range(records):
        wait_s = begun_s + number / rate - time.monotonic()
        if wait_s > 0:
            time.sleep(wait_s)
        producer.produce(topic, _SENT.pack(time.monotonic_ns(), number) + _FILLER, partition=number % PARTITIONS)
        producer.poll(0)
    producer.flush(30)


def _receive(consumer: Consumer, records: int) -> tuple[list[float], int]:
    """Each record's latency at its first arrival, in the order of sending, and how many arrived again."""
    found = [0.0] * records
    left, repeated = records, 0
    while left:
        message = consumer.poll(_LATE_AFTER_S)
        now_ns = time.monotonic_ns()
        if message is None:
            raise StageError(f"{left} of {records} records did not arrive in {_LATE_AFTER_S:.0f} s")
        if message.error():
            raise KafkaException(message.error())
        sent_ns, number = _SENT.unpack_from(message.value() or b"")
        if number == _PRIMER or found[number]:
            repeated += 1
            continue
        found[number] = (now_ns - sent_ns) / 1e6
        left -= 1
    return found, repeated
