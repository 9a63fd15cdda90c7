"""The Kafka behind a proxy gets a newer version, broker by broker, under clients that know nothing of it."""

from __future__ import annotations

from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from tests.conftest import ClusterFactory
from tests.proxy.served import proxy_before
from tests.scenarios.plain_clients import JavaWriter, PlainReader, PlainWriter, written
from tests.scenarios.test_following_writers import until
from twinshore.kafka.cluster import KafkaCluster
from twinshore.lab.cluster import LabCluster
from twinshore.lab.jars import KAFKA_3, KAFKA_NEWEST

TOPIC, JAVA_TOPIC, PARTITIONS = "upgraded", "upgraded-java", 6


def all_in_sync(lab: LabCluster) -> bool:
    with closing(KafkaCluster(lab.cluster)) as kafka:
        topics = kafka.metadata().topics.values()
    return all(len(part.isr) == len(part.replicas) for topic in topics for part in topic.partitions)


@pytest.mark.long
@pytest.mark.claim(
    "proxy",
    "upgrade",
    "three brokers go from one major version to the next under live clients, in Java too: no error surfaces",
)
def test_brokers_get_a_newer_version_under_clients_who_do_not_know(
    east: LabCluster, cluster_factory: ClusterFactory, tmp_path: Path
) -> None:
    north = cluster_factory(
        "north", version=KAFKA_3, brokers=3, heap_mb=256, settings={"offsets.topic.num.partitions": "3"}
    )
    for topic in (TOPIC, JAVA_TOPIC):
        north.create_topic(topic, partitions=PARTITIONS, copies=3, settings={"min.insync.replicas": "2"})
    with ExitStack() as stack:
        proxy = stack.enter_context(proxy_before(tmp_path, north.cluster, east.cluster))
        java = JavaWriter(tmp_path, proxy.bootstrap, JAVA_TOPIC)
        stack.callback(java.kill)
        writers = [PlainWriter(proxy.bootstrap, TOPIC, name=name) for name in ("one", "other")]
        readers = [PlainReader(proxy.bootstrap, TOPIC, [TOPIC]) for _ in range(2)]
        for stop in (*(one.stop for one in writers), *(one.stop for one in readers)):
            stack.callback(stop)

        def read() -> int:
            return sum(len(one.read) for one in readers)

        def goes_on() -> None:
            count = read() + 500
            java.writes(500)
            until(lambda: read() >= count, 60, "the group reads")

        goes_on()
        for _ in north.upgrade(KAFKA_NEWEST):
            until(lambda: all_in_sync(north), 90, "its replicas are in sync")
            goes_on()
        acked = [one for writer in writers for one in writer.stop()]
        java_acked = java.stop()
        until(lambda: read() >= len(acked), 60, "the group reads all")
        for reader in readers:
            reader.stop()
        assert [writer.failed for writer in writers] == [[], []]
        assert java.failed() == [], java.said()
        assert [reader.errors for reader in readers] == [[], []]
        found = [written(north, TOPIC, acked, PARTITIONS), written(north, JAVA_TOPIC, java_acked, PARTITIONS)]
        assert [(one.records, one.wrong) for one in found] == [(len(acked), 0), (len(java_acked), 0)]
        pause_s = max(writer.longest_pause_s() for writer in writers)
        records = sum(one.records for one in found)
        print(
            f"told: {KAFKA_3} to {KAFKA_NEWEST}: {records} records, 0 lost, doubled or reordered, 0 errors; longest"
            f" between two acknowledgements of a producer {pause_s:.2f} s"
        )
