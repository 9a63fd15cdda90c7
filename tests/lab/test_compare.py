"""The comparison sees every difference a client can see, and the workload knows what was acknowledged."""

from __future__ import annotations

import time
from typing import NamedTuple

import pytest
from confluent_kafka import Producer

from testkit.errors import raises
from tests.conftest import ClusterFactory
from twinshore.lab.clients import client_settings
from twinshore.lab.cluster import LabCluster
from twinshore.lab.processes import LabError
from twinshore.lab.produce import Workload
from twinshore.lab.topic_comparison import compare_topic


class Sent(NamedTuple):
    value: bytes | None = b"value"
    key: bytes | None = b"key"
    headers: tuple[tuple[str, str | bytes | None], ...] = (("a", b"1"),)
    timestamp_ms: int = 1_700_000_000_000


SAME = [Sent(), Sent(value=None), Sent(key=None), Sent(headers=())]


def write(cluster: LabCluster, topic: str, records: list[Sent]) -> None:
    cluster.create_topic(topic)
    producer = Producer(client_settings(cluster.cluster))
    for sent in records:
        producer.produce(
            topic, sent.value, sent.key, partition=0, headers=list(sent.headers), timestamp=sent.timestamp_ms
        )
    assert producer.flush(30) == 0


def test_equal_topics_are_identical(east: LabCluster, west: LabCluster, unique_topic: str) -> None:
    for cluster in (east, west):
        write(cluster, unique_topic, SAME)
    found = compare_topic(east.cluster, west.cluster, unique_topic)
    assert (found.identical, found.records, found.partitions) == (True, 4, 1)


@pytest.mark.parametrize(
    ("other", "offset", "what"),
    [
        ([SAME[0], Sent(value=b"")], 1, "value differ"),
        ([SAME[0], Sent(value=None, key=b"")], 1, "key differ"),
        ([Sent(headers=(("a", b"1"), ("b", None)))], 0, "headers differ"),
        ([Sent(timestamp_ms=1_700_000_000_001)], 0, "timestamp differ"),
        (SAME[:3], 3, "the target ends before it"),
        ([*SAME, Sent()], 4, "the source ends before it"),
        ([SAME[1], SAME[0]], 0, "value differ"),
    ],
)
def test_any_difference_is_found_at_its_offset(
    east: LabCluster, unique_topic: str, other: list[Sent], offset: int, what: str
) -> None:
    twin = f"{unique_topic}-twin"
    write(east, unique_topic, SAME)
    write(east, twin, other)
    found = compare_topic(east.cluster, east.cluster, unique_topic, target_topic=twin).first_difference
    assert found is not None
    assert (found.partition, found.offset, found.what) == (0, offset, what)


def test_a_shift_by_one_marker_is_found(east: LabCluster, unique_topic: str) -> None:
    """The records are alike, but one log ends with a transaction's marker and the other does not."""
    twin = f"{unique_topic}-twin"
    east.create_topic(unique_topic)
    producer = Producer({**client_settings(east.cluster), "transactional.id": unique_topic})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(unique_topic, b"value", b"key", headers=[("a", b"1")], timestamp=1_700_000_000_000)
    producer.commit_transaction(30)
    write(east, twin, [Sent()])
    found = compare_topic(east.cluster, east.cluster, unique_topic, target_topic=twin)
    assert found.first_difference is not None
    assert found.first_difference.what == "source's log goes from 0 to 2, target's from 0 to 1"


def test_a_topic_that_is_not_there_is_named(east: LabCluster, unique_topic: str) -> None:
    with raises(LabError, "lab.unreadable-topic", topic=unique_topic, cluster="east"):
        compare_topic(east.cluster, east.cluster, unique_topic)


def test_a_workload_keeps_its_rate_and_counts_what_was_acknowledged(east: LabCluster, unique_topic: str) -> None:
    east.create_topic(unique_topic, partitions=3)
    workload = Workload(east.cluster, unique_topic, records_per_s=2_000)
    workload.start()
    time.sleep(3)
    acked = workload.stop()
    assert acked == workload.sent
    assert 2_000 <= acked <= 7_000
    assert compare_topic(east.cluster, east.cluster, unique_topic).records == acked


@pytest.mark.long
def test_a_workload_loses_and_doubles_nothing_when_its_broker_dies(cluster_factory: ClusterFactory) -> None:
    own = cluster_factory(heap_mb=256)
    own.create_topic("survivor", partitions=2)
    with Workload(own.cluster, "survivor", records_per_s=1_000) as workload:
        time.sleep(1.5)
        own.brokers[0].kill()
        own.brokers[0].restart()
        time.sleep(1)
        acked = workload.stop()
    assert acked == workload.sent > 1_000
    assert compare_topic(own.cluster, own.cluster, "survivor").records == acked
