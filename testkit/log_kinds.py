"""Topics of every kind that a real cluster holds, made on a source for a mirror to carry; and what the source's log
then holds on disk, since a test must know that it had the case.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import closing
from typing import NamedTuple

from confluent_kafka import Producer

from testkit.clients import delete_records
from testkit.raw_writer import RawWriter
from twinshore.kafka.clock import wall_ms
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.protocol.record_batch import (
    CODEC_MASK,
    CONTROL_FLAG,
    DELETE_HORIZON_FLAG,
    LOG_APPEND_TIME_FLAG,
    TRANSACTIONAL_FLAG,
    BatchHeader,
)
from twinshore.kafka.protocol.transactions import FILLER_RECORDS_MAX, make_filler
from twinshore.lab.clients import client_settings, create_log_consumer, read_to_end
from twinshore.lab.cluster import LabCluster
from twinshore.lab.produce import produce_records

Seen = tuple[object, object, object, object, int]
# Cleans within seconds, so that a test can see what compaction leaves.
SOURCE_SETTINGS = {
    "log.cleaner.backoff.ms": "200",
    "log.cleaner.min.cleanable.ratio": "0.01",
    "transaction.state.log.num.partitions": "5",
}
COMPACTED = {
    "cleanup.policy": "compact",
    "segment.ms": "500",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "300",
}


def transactional(cluster: LabCluster, topic: str, seed: int, steps: int = 120) -> None:
    """Transactions of three producers, interleaved, committed and aborted, among plain records; all are closed."""
    chance = random.Random(f"{topic} {seed}")
    settings = client_settings(cluster.cluster)
    writers = [
        Producer({**settings, "transactional.id": f"{topic}-{seed}-{number}", "linger.ms": 0}) for number in range(3)
    ]
    for writer in writers:
        writer.init_transactions(60)
    plain = Producer({**settings, "linger.ms": 0})
    opened = [False] * len(writers)
    for step in range(steps):
        number = chance.randrange(len(writers) + 1)
        writer = plain if number == len(writers) else writers[number]
        if writer is not plain and not opened[number]:
            writer.begin_transaction()
            opened[number] = True
        if writer is plain or chance.random() < 0.6:
            for count in range(chance.randint(1, 5)):
                writer.produce(topic, b"value %d-%d" % (step, count), b"key %d" % count, partition=chance.randrange(2))
            writer.flush(30)
        else:
            close(writer, commit=chance.random() < 0.5)
            opened[number] = False
    for writer, still in zip(writers, opened, strict=True):
        if still:
            close(writer, commit=chance.random() < 0.5)


def close(writer: Producer, *, commit: bool) -> None:
    (writer.commit_transaction if commit else writer.abort_transaction)(60)


def compacted(cluster: LabCluster, topic: str, *, transactions: bool = False) -> None:
    """A few keys written again and again, some deleted; returns when the cleaner has made holes."""
    settings = {**client_settings(cluster.cluster), "linger.ms": 2}
    if transactions:
        settings["transactional.id"] = f"{topic}-writer"
    producer = Producer(settings)
    if transactions:
        producer.init_transactions(60)
    chance = random.Random(topic)
    for burst in range(6):
        if transactions:
            producer.begin_transaction()
        for number in range(150):
            value = None if chance.random() < 0.15 else b"value %d-%d" % (burst, number)
            producer.produce(topic, value, b"key %d" % chance.randrange(40 + number), partition=0)
        producer.flush(30)
        if transactions:
            close(producer, commit=burst % 3 != 1)
        time.sleep(0.6)
    cleaned(cluster, topic, most=6 * 150)


def cleaned(cluster: LabCluster, topic: str, *, most: int) -> None:
    """Waits until compaction has taken records and takes no more."""
    before = -1
    deadline = time.monotonic() + 60.0
    while (count := len(seen(cluster, topic, 0))) != before or count == most:
        before = count
        assert time.monotonic() < deadline, f"{topic} was never cleaned: {count} of {most}"
        time.sleep(1.5)


def seen(cluster: LabCluster, topic: str, partition: int, *, committed: bool = False) -> list[Seen]:
    """All that a consumer is given of a partition, from its start to its end."""
    with closing(create_log_consumer(cluster.cluster, committed=committed)) as consumer:
        return [
            (one.offset(), one.key(), one.value(), one.headers(), one.timestamp()[1])
            for one in read_to_end(consumer, topic, partition)
        ]


def late(cluster: LabCluster, topic: str, start: int) -> None:
    """A log whose first offset is `start`, inside a batch where there is one; its first records were deleted."""
    kafka = KafkaCluster(cluster.cluster)
    try:
        writer = RawWriter(kafka, topic)
        at = 0
        while at < start - 100:
            made = make_filler(min(FILLER_RECORDS_MAX, start - 100 - at))
            answer = writer.send([made.encode_header(writer.producer_id, writer.epoch, at % 2**31) + made.body])
            assert answer.error == 0, answer
            at += made.header.count
        for _ in range(20):
            assert writer.write(30, at % 2**31).base_offset == at
            at += 30
        delete_records(cluster.cluster, {writer.partition: start})
    finally:
        kafka.close()


def plain(cluster: LabCluster, topic: str, count: int = 50, *, codec: str = "none") -> None:
    records = ((b"key %d" % number, b"value %d" % number, 0) for number in range(count))
    produce_records(cluster.cluster, topic, records, {"compression.type": codec})


CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
LIMIT_BYTES = 50_000
FUTURE_MS = 30 * 86_400_000


def codecs(cluster: LabCluster, topic: str) -> None:
    for codec in CODECS:
        values = ((number, b"value %s %d" % (codec.encode(), number)) for number in range(300))
        records = ((b"key %d" % number, value, number % 2) for number, value in values)
        produce_records(cluster.cluster, topic, records, {"compression.type": codec, "linger.ms": 50})


def bare(cluster: LabCluster, topic: str) -> None:
    """No key, no value, neither, both of zero bytes, headers with and without a value."""
    producer = Producer(client_settings(cluster.cluster))
    shapes = ((None, b"value"), (b"key", None), (None, None), (b"", b""), (b"", None), (b"key", b""))
    headers: tuple[list[tuple[str, str | bytes | None]], ...] = (
        [],
        [("name", b"text"), ("name", b"again"), ("none", None), ("", b"")],
    )
    for number in range(8):
        for key, value in shapes:
            producer.produce(topic, value, key, partition=number % 2, headers=list(headers[number // 2 % 2]))
        if number % 3 == 2:
            producer.flush(30)
    assert producer.flush(30) == 0


def at_the_limit(cluster: LabCluster, topic: str) -> None:
    """Batches of exactly `max.message.bytes`; one byte more is refused, or this was not the limit."""
    kafka = KafkaCluster(cluster.cluster)
    try:
        writer = RawWriter(kafka, topic)
        size = LIMIT_BYTES - 200
        while (overhead := _size(writer, size)) < LIMIT_BYTES:
            size += LIMIT_BYTES - overhead
        for number in range(3):
            assert writer.write(1, number, value=b"v" * size).error == 0
        assert writer.write(1, 3, value=b"v" * (size + 1)).error
    finally:
        kafka.close()


def _size(writer: RawWriter, value_bytes: int) -> int:
    return len(writer.batch(1, value=b"v" * value_bytes))


def future(cluster: LabCluster, topic: str) -> None:
    """Time stamps a month ahead, among some of today and one of 1970."""
    producer = Producer({**client_settings(cluster.cluster), "linger.ms": 0})
    now_ms = wall_ms()
    for number in range(30):
        stamp = (now_ms, now_ms + FUTURE_MS, 1)[number % 3]
        producer.produce(topic, b"value %d" % number, b"key", partition=0, timestamp=stamp)
        producer.flush(30)


def idle(cluster: LabCluster, topic: str) -> None:
    """A transaction of long ago: its marker is the last thing in the log. Partition 1 holds nothing but an aborted
    one."""
    for number, commit in enumerate((True, False)):
        writer = Producer({**client_settings(cluster.cluster), "transactional.id": f"{topic}-{number}"})
        writer.init_transactions(60)
        writer.begin_transaction()
        for count in range(5):
            writer.produce(topic, b"value %d" % count, b"key", partition=number)
        close(writer, commit=commit)


LATE_START = 1_000_123


class Kind(NamedTuple):
    """How a topic of this kind is made and filled."""

    settings: dict[str, str]
    fill: Callable[[LabCluster, str], None]


KINDS = {
    "transactional": Kind({}, lambda cluster, topic: transactional(cluster, topic, 1)),
    "compacted": Kind(COMPACTED, lambda cluster, topic: compacted(cluster, topic)),
    "compacted-transactional": Kind(COMPACTED, lambda cluster, topic: compacted(cluster, topic, transactions=True)),
    "late": Kind({}, lambda cluster, topic: late(cluster, topic, LATE_START)),
    "late-compacted": Kind(
        {"cleanup.policy": "compact,delete", "retention.ms": "-1"},
        lambda cluster, topic: late(cluster, topic, 777),
    ),
    "append-time": Kind(
        {"message.timestamp.type": "LogAppendTime"},
        lambda cluster, topic: plain(cluster, topic, codec="gzip"),
    ),
    "delete-horizon": Kind(
        {**COMPACTED, "delete.retention.ms": "86400000"}, lambda cluster, topic: compacted(cluster, topic)
    ),
    "idle": Kind({}, idle),
    "codecs": Kind({}, codecs),
    "bare": Kind({}, bare),
    "at-the-limit": Kind({"max.message.bytes": str(LIMIT_BYTES)}, at_the_limit),
    "future": Kind({"message.timestamp.after.max.ms": str(2 * FUTURE_MS), "retention.ms": "-1"}, future),
    "empty": Kind({}, lambda _cluster, _topic: None),
}
# What must be in the source's files, or the test would show nothing.
HOLDS: dict[str, Callable[[BatchHeader], bool]] = {
    "transactional": lambda batch: bool(batch.attributes & TRANSACTIONAL_FLAG and not batch.attributes & CONTROL_FLAG),
    "compacted": lambda batch: 0 < batch.count <= batch.last_offset_delta,
    "compacted-transactional": lambda batch: bool(batch.attributes & CONTROL_FLAG),
    "delete-horizon": lambda batch: bool(batch.attributes & DELETE_HORIZON_FLAG),
    "append-time": lambda batch: bool(batch.attributes & LOG_APPEND_TIME_FLAG),
    "idle": lambda batch: bool(batch.attributes & CONTROL_FLAG),
    "codecs": lambda batch: batch.attributes & CODEC_MASK == 4,
    "at-the-limit": lambda batch: batch.length + 12 == LIMIT_BYTES,
    "future": lambda batch: batch.max_timestamp > time.time() * 1000 + FUTURE_MS / 2,
}
