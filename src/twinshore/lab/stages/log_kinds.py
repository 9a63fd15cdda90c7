"""Topics of every kind that a real cluster holds, made on a source for a mirror to carry."""

from __future__ import annotations

import random
import time

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from twinshore.kafka.cluster import KafkaCluster
from twinshore.lab import LabCluster
from twinshore.lab.clients import client_settings, delete_records
from twinshore.lab.stages.raw_writer import RawWriter
from twinshore.wire.filler import FILLER_RECORDS_MAX, filler

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


def cleaned(cluster: LabCluster, topic: str, *, most: int, within_s: float = 60.0) -> None:
    """Waits until compaction has taken records and takes no more."""
    before = -1
    deadline = time.monotonic() + within_s
    while (count := len(seen(cluster, topic, 0))) != before or count == most:
        before = count
        assert time.monotonic() < deadline, f"{topic} was never cleaned: {count} of {most}"
        time.sleep(1.5)


def seen(cluster: LabCluster, topic: str, partition: int, *, committed: bool = False) -> list[Seen]:
    """All that a consumer is given of a partition, from its start to its end."""
    consumer = Consumer(
        {
            **client_settings(cluster.cluster),
            "group.id": "seen",
            "isolation.level": "read_committed" if committed else "read_uncommitted",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            # The end is told when a fetch comes back empty.
            "fetch.wait.max.ms": 10,
        }
    )
    found: list[Seen] = []
    try:
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
        while True:
            message = consumer.poll(30.0)
            assert message is not None, f"{topic}-{partition} cannot be read on {cluster.name}"
            if error := message.error():
                assert error.name() == "_PARTITION_EOF", error
                return found
            entry = (message.offset(), message.key(), message.value(), message.headers(), message.timestamp()[1])
            found.append(entry)
    finally:
        consumer.close()


def late(cluster: LabCluster, topic: str, start: int) -> None:
    """A log whose first offset is `start`, inside a batch where there is one; its first records were deleted."""
    kafka = KafkaCluster(cluster.cluster)
    try:
        writer = RawWriter(kafka, topic)
        at = 0
        while at < start - 100:
            made = filler(min(FILLER_RECORDS_MAX, start - 100 - at))
            answer = writer.send([made.stamped(writer.producer_id, writer.epoch, at % 2**31) + made.body])
            assert answer.error == 0, answer
            at += made.header.count
        for _ in range(20):
            assert writer.write(30, at % 2**31).base_offset == at
            at += 30
        delete_records(cluster.cluster, {writer.named: start})
    finally:
        kafka.close()


def plain(cluster: LabCluster, topic: str, count: int = 50, *, codec: str = "none") -> None:
    producer = Producer({**client_settings(cluster.cluster), "compression.type": codec})
    for number in range(count):
        producer.produce(topic, b"value %d" % number, b"key %d" % number, partition=0)
    assert producer.flush(30) == 0
