"""How a topic and its twin differ once the faults are over: every offset of both, compared."""

from __future__ import annotations

import time
from array import array
from collections import Counter
from dataclasses import dataclass

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.cimpl import KafkaException

from twinshore.fleet import Cluster
from twinshore.lab import LabError
from twinshore.lab.clients import client_settings
from twinshore.lab.watermarks import watermarks


def ends(cluster: Cluster, topic: str, partitions: int) -> list[int]:
    """Where each partition ends, open transactions included; -1 where nobody says."""
    return [end for _, end in watermarks(cluster, topic, partitions)]


@dataclass(frozen=True, slots=True)
class Counts:
    """How two topics differ, by record; all zero and `identical` when they do not."""

    records: int
    lost: int
    duplicated: int
    reordered: int
    identical: bool


def compare(source: Cluster, target: Cluster, topic: str, partitions: int) -> Counts:
    """Reads both sides whole: per offset, a fingerprint of key, value, headers and time stamp."""
    records = lost = duplicated = reordered = 0
    identical = True
    for number in range(partitions):
        ours, theirs = fingerprints(source, topic, number), fingerprints(target, topic, number)
        records += len(ours) // 2
        if ours == theirs:
            continue
        identical = False
        wanted, got = Counter(print_ for _, print_ in pairs(ours)), Counter(print_ for _, print_ in pairs(theirs))
        lost += sum((wanted - got).values())
        duplicated += sum((got - wanted).values())
        reordered += sum(one != other for one, other in zip(pairs(ours), pairs(theirs), strict=False))
    return Counts(records, lost, duplicated, reordered, identical)


def pairs(flat: array[int]) -> list[tuple[int, int]]:
    return list(zip(flat[::2], flat[1::2], strict=True))


def fingerprints(cluster: Cluster, topic: str, partition: int) -> array[int]:
    """Offset and fingerprint, one after the other, of every record that a client sees."""
    found: array[int] = array("q")
    settings = {"group.id": "compare", "auto.offset.reset": "error", "check.crcs": True, "fetch.wait.max.ms": 10}
    consumer = Consumer({**client_settings(cluster), **settings, "enable.auto.commit": False})
    try:
        start, end = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=30.0)
        consumer.assign([TopicPartition(topic, partition, start)])
        heard_s = time.monotonic()
        while (found[-2] + 1 if found else start) < end:
            for message in consumer.consume(20_000, timeout=0.2):
                if message.error():
                    raise KafkaException(message.error())
                heard_s = time.monotonic()
                headers = tuple(message.headers() or ())
                seen = hash((message.key(), message.value(), headers, message.timestamp()))
                found.extend((message.offset() or 0, seen))
            if time.monotonic() - heard_s > 60.0:
                raise LabError(f"{cluster.name} sends nothing more of {topic}-{partition} below {end}")
    finally:
        consumer.close()
    return found
