"""Whoever writes without acks sends as fast as it can, and nothing grows: neither in the proxy nor in the client."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.proxy.served import ProxyProcess, proxy_before
from tests.scenarios.test_following_writers import until
from twinshore.config.model import TopicPartition
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.leader_queries import OffsetKind
from twinshore.lab.cluster import LabCluster

SECONDS, WARM_S = 60.0, 10.0
GROWTH_MB_MAX = 8.0


def sends(producer: Producer, topic: str, seconds: float) -> int:
    """As fast as its queue is emptied; how many."""
    sent, until_s = 0, time.monotonic() + seconds
    while time.monotonic() < until_s:
        try:
            producer.produce(topic, b"x" * 200, partition=0)
            sent += 1
        except BufferError:
            producer.poll(0.01)
    return sent


def records_there(lab: LabCluster, topic: str) -> int:
    with closing(KafkaCluster(lab.cluster)) as kafka:
        ends, _ = kafka.offsets_of_each([TopicPartition(topic, 0)], OffsetKind.HIGH_WATERMARK)
    return ends[TopicPartition(topic, 0)]


def most_mb(proxy: ProxyProcess, producer: Producer, topic: str, seconds: float) -> tuple[int, float]:
    """How many were sent, and the most memory that was seen on the way."""
    sent, most, until_s = 0, 0.0, time.monotonic() + seconds
    while time.monotonic() < until_s:
        sent += sends(producer, topic, 1.0)
        most = max(most, proxy.memory_mb())
    return sent, most


@pytest.mark.long
@pytest.mark.claim("proxy", "no-acks", "acks=0 at full rate for a minute: nothing grows, and every record is there")
def test_a_minute_without_acks_leaves_nothing_behind(
    east: LabCluster, west: LabCluster, unique_topic: str, tmp_path: Path
) -> None:
    east.create_topic(unique_topic)
    with proxy_before(tmp_path, east.cluster, west.cluster) as proxy:
        settings = {"bootstrap.servers": proxy.bootstrap, "acks": 0, "linger.ms": 5, "log_level": 2}
        producer = Producer({**settings, "queue.buffering.max.messages": 20_000})
        warm, before_mb = most_mb(proxy, producer, unique_topic, WARM_S)
        sent, after_mb = most_mb(proxy, producer, unique_topic, SECONDS)
        assert producer.flush(60) == 0
        assert after_mb - before_mb < GROWTH_MB_MAX
        until(lambda: records_there(east, unique_topic) >= warm + sent, 30, "all is written")
        assert records_there(east, unique_topic) == warm + sent
        print(
            f"told: {sent:,} records in {SECONDS:.0f} s without acks, all written; the proxy's memory at most"
            f" {before_mb:.0f} MB while it warmed, {after_mb:.0f} MB then"
        )
