"""Topics with records of every shape, and what their source's log holds on disk: a test must know it had the case."""

from __future__ import annotations

from confluent_kafka import Producer

from twinshore.kafka.cluster import KafkaCluster
from twinshore.lab import LabCluster
from twinshore.lab.clients import client_settings
from twinshore.lab.stages.log_kinds import close
from twinshore.lab.stages.raw_writer import RawWriter
from twinshore.service.clock import wall_ms
from twinshore.wire.batch import BatchHeader, split_batches

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
LIMIT_BYTES = 50_000
FUTURE_MS = 30 * 86_400_000


def codecs(cluster: LabCluster, topic: str) -> None:
    for codec in CODECS:
        producer = Producer(
            {
                **client_settings(cluster.cluster),
                "compression.type": codec,
                "linger.ms": 50,
                "message.timeout.ms": 30000,
            }
        )
        for number in range(300):
            producer.produce(topic, b"value %s %d" % (codec.encode(), number), b"key %d" % number, partition=number % 2)
        assert producer.flush(30) == 0


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


def headers_on_disk(cluster: LabCluster, topic: str, partition: int = 0) -> list[BatchHeader]:
    """Of all batches that the source's only broker has in its files; read when nothing writes."""
    (broker,) = cluster.brokers
    found: list[BatchHeader] = []
    for path in sorted((broker.log_dir / f"{topic}-{partition}").glob("*.log")):
        found += [header for _, header in split_batches(memoryview(path.read_bytes()))]
    return found
