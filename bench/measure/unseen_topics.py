"""Source topics whose logs are mostly offsets that nobody sees: control records, holes, what lies below the start."""

from __future__ import annotations

import time
from collections.abc import Sequence

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer
from confluent_kafka import TopicPartition as ClientTopicPartition

from testkit.clients import alter_topic
from testkit.figures import StageError
from twinshore.config.model import TopicPartition
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.protocol.produce import PRODUCE_KEY, encode_produce, read_produce_response
from twinshore.kafka.protocol.record_batch import SEQUENCE_SPAN
from twinshore.kafka.protocol.transactions import (
    FILLER_RECORDS_MAX,
    MARKERS_KEY,
    MARKERS_VERSION,
    TransactionMarker,
    encode_markers,
    make_filler,
    parse_markers,
)
from twinshore.lab.clients import client_settings
from twinshore.lab.cluster import LabCluster

# Cleans within seconds.
SOURCE_SETTINGS = {"log.cleaner.backoff.ms": "200", "log.cleaner.min.cleanable.ratio": "0.01"}
COMPACTED = {"cleanup.policy": "compact", "segment.ms": "500", "min.cleanable.dirty.ratio": "0.01"}
_ASKED_MAX = 20_000
_CLEANED_WITHIN_S = 120.0


def write_markers(kafka: KafkaCluster, topic: str, partitions: Sequence[int], times: int) -> None:
    """Control records, as transactions leave them: so many in each partition."""
    at_once = max(1, _ASKED_MAX // len(partitions))
    leader = kafka.connection_to(kafka.leader_of(TopicPartition(topic, 0)))
    for done in range(0, times, at_once):
        marker = TransactionMarker(5_000_000, 0, True, 0, [(topic, list(partitions))])
        body = encode_markers([(marker, min(at_once, times - done))])
        view = leader.call_raw(MARKERS_KEY, MARKERS_VERSION, body, timeout_s=60)
        if any(one.error for one in parse_markers(view, 0)):
            raise StageError("the source refuses markers")


def begin_late(kafka: KafkaCluster, topic: str, start: int) -> None:
    """A log whose first offset is `start`, and which ends there."""
    named = TopicPartition(topic, 0)
    leader = kafka.connection_to(kafka.leader_of(named))
    producer_id, epoch = kafka.init_producer_id()
    version = leader.handwritten_version(PRODUCE_KEY)
    topic_id = kafka.metadata([topic]).topics[topic].topic_id
    at = 0
    while at < start:
        made = make_filler(min(FILLER_RECORDS_MAX, start - at))
        head = made.encode_header(producer_id, epoch, at % SEQUENCE_SPAN)
        body = b"".join(encode_produce(version, [(topic, topic_id, [(0, head, made.body)])]))
        (answer,) = read_produce_response(leader.call_raw(PRODUCE_KEY, version, body), 0, version).appended
        if answer.error:
            raise StageError(f"the source refuses a filler: {answer}")
        at += made.header.count
    kafka.delete_records({named: start}, {topic: topic_id})


def write_holes(source: LabCluster, topic: str, partitions: int, records: int, kept_of: int) -> int:
    """Compacted until one record of every `kept_of` is left, each alone between holes; returns how many offsets are
    missing in all partitions together.

    The short segments serve the cleaner alone, and end with it: a twin with segments of half a second has its broker
    end a hundred of them a second, with their indexes made and forced to disk, and that is then all that is measured.
    """
    settings = {"linger.ms": 20, "batch.size": 16_384, "queue.buffering.max.messages": 2 * partitions * records}
    producer = Producer({**client_settings(source.cluster), **settings})
    for number in range(records):
        key = b"%d" % number if number % kept_of == 0 else b"again"
        for partition in range(partitions):
            producer.produce(topic, b"v" * 50, key, partition=partition)
        producer.poll(0)
    producer.flush(60)
    deadline = time.monotonic() + _CLEANED_WITHIN_S
    wanted = partitions * records * (kept_of - 1) // kept_of
    while True:
        # The active segment is never cleaned: another record ends it.
        time.sleep(1.0)
        for partition in range(partitions):
            producer.produce(topic, b"v", b"again", partition=partition)
        producer.flush(60)
        missing = sum(end - seen for end, seen in _spans(source, topic, partitions))
        if missing >= wanted * 0.98:
            alter_topic(source.cluster, topic, {"segment.ms": None})
            return missing
        if time.monotonic() > deadline:
            raise StageError(f"{topic} has only {missing} holes of {wanted} after {_CLEANED_WITHIN_S:.0f} s")


def _spans(source: LabCluster, topic: str, partitions: int) -> list[tuple[int, int]]:
    """Of each partition its end, and how many records a consumer is given."""
    settings = {"group.id": "holes", "enable.partition.eof": True, "isolation.level": "read_uncommitted"}
    consumer = Consumer({**client_settings(source.cluster), **settings})
    ends, seen = dict.fromkeys(range(partitions), -1), dict.fromkeys(range(partitions), 0)
    try:
        consumer.assign([ClientTopicPartition(topic, number, OFFSET_BEGINNING) for number in range(partitions)])
        while any(end < 0 for end in ends.values()):
            for message in consumer.consume(10_000, timeout=5.0):
                number = message.partition() or 0
                if message.error():
                    ends[number] = message.offset() or 0
                else:
                    seen[number] += 1
    finally:
        consumer.close()
    return [(ends[number], seen[number]) for number in range(partitions)]


def commit_steadily(source: LabCluster, topic: str, partitions: int, *, commits_per_s: float, for_s: float) -> float:
    """Each transaction writes one record to every partition; returns the commits per second that it came to."""
    producer = Producer({**client_settings(source.cluster), "transactional.id": topic, "linger.ms": 0})
    producer.init_transactions(60)
    began_s, done = time.monotonic(), 0
    while time.monotonic() - began_s < for_s:
        producer.begin_transaction()
        for partition in range(partitions):
            producer.produce(topic, b"v" * 100, b"k", partition=partition)
        producer.commit_transaction(60)
        done += 1
        time.sleep(max(0.0, began_s + done / commits_per_s - time.monotonic()))
    return done / (time.monotonic() - began_s)
