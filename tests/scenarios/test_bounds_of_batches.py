"""Small batches that unpack to a lot: they cross, any consumer reads both sides, and the task stays small."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as ClientTopicPartition

from tests.scenarios.mirror_rig import Rig, same_ends, settings_text, until
from twinshore.config.model import Cluster, TopicPartition
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.protocol.record_batch import split_batches
from twinshore.lab.clients import client_settings
from twinshore.lab.cluster import LabCluster

# Spark starts first, beside whatever else this machine does
pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.claim(
        "topics",
        "small-bombs",
        "160 batches of 120 bytes that unpack to 1 MB each cross as they are: any consumer reads both "
        "sides, the task takes no memory for them",
    ),
]
LINK = "east->west"
BOMBS, VALUE_BYTES = 160, 1_000_000
GROWTH_MB_MAX = 150.0


def workers_mb(root: int) -> float:
    """The memory of the processes that carry tasks: Spark's Python workers."""
    found = 0
    for process in psutil.Process(root).children(recursive=True):
        try:
            if any("pyspark" in word for word in process.cmdline()[:4]):
                found += process.memory_info().rss
        except psutil.NoSuchProcess:
            continue
    return found / 1e6


@contextmanager
def peak_of(root: int) -> Iterator[list[float]]:
    """The most that its workers held meanwhile, in MB, as the list's first."""
    peak, over = [workers_mb(root)], threading.Event()

    def watch() -> None:
        while not over.wait(0.02):
            peak[0] = max(peak[0], workers_mb(root))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield peak
    finally:
        over.set()
        watcher.join()


def read(cluster: Cluster, topic: str) -> list[tuple[int, int]]:
    """Offset and size of all that a consumer with default settings reads; it goes on past what it cannot read."""
    consumer = Consumer({**client_settings(cluster), "group.id": "any", "auto.offset.reset": "error"})
    found: list[tuple[int, int]] = []
    try:
        consumer.assign([ClientTopicPartition(topic, 0, 0)])
        deadline = time.monotonic() + 60.0
        while (not found or found[-1][0] < BOMBS) and time.monotonic() < deadline:
            for message in consumer.consume(50, timeout=0.5):
                assert message.error() is None, message.error()
                found.append((message.offset() or 0, len(message.value() or b"")))
    finally:
        consumer.close()
    return found


@pytest.mark.long
def test_small_batches_that_unpack_to_much_are_read_by_any_consumer(
    east: LabCluster, west: LabCluster, tmp_path: Path
) -> None:
    topic = "bounds"
    east.create_topic(topic, settings={"max.message.bytes": "2000000"})
    producer = Producer(
        {
            **client_settings(east.cluster),
            "compression.type": "zstd",
            "batch.num.messages": 1,
            "message.max.bytes": 2_000_000,
            "linger.ms": 0,
        }
    )
    producer.produce(topic, b"first")
    producer.flush(30)
    mirror = {"tasks_per_link": 1, "task_run_s": 600, "merge_below_bytes": 4096}
    rig = Rig(tmp_path, settings_text(tmp_path, [east.cluster, west.cluster], {LINK: topic}, mirror=mirror), spark=True)
    rig.process.start()
    try:
        until(lambda: same_ends(east.cluster, west.cluster, topic, 1), 180, "it runs", rig)
        with peak_of(rig.process.child.pid) as peak:
            before = peak[0]
            for _ in range(BOMBS):
                producer.produce(topic, bytes(VALUE_BYTES), b"key")
            assert producer.flush(60) == 0
            until(lambda: same_ends(east.cluster, west.cluster, topic, 1), 180, "all has crossed", rig)
        assert not rig.ledger(LINK)
    finally:
        rig.process.end()
    for cluster in (east.cluster, west.cluster):
        assert read(cluster, topic) == [(0, 5)] + [(offset, VALUE_BYTES) for offset in range(1, BOMBS + 1)]
    with closing(KafkaCluster(west.cluster)) as kafka:
        fetched = kafka.read_from(TopicPartition(topic, 0), 1, bytes_max=4 << 20, committed=True)
    assert all(header.count == 1 for _, header in split_batches(fetched.records) if header.base_offset)
    assert peak[0] - before < GROWTH_MB_MAX, f"{before:.0f} MB before, {peak[0]:.0f} MB at most"
    grew = f"the task took {peak[0] - before:.0f} MB more"
    print(f"told: {BOMBS} batches crossed, {VALUE_BYTES} bytes each unpacked; {grew}")
