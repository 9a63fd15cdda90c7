"""Clusters of every supported Kafka start, serve, die and come back."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from testkit.cluster import RigCluster
from testkit.errors import raises
from tests.conftest import ClusterFactory
from twinshore.config.model import Cluster
from twinshore.kafka.connection import open_connection
from twinshore.kafka.metadata import read_metadata
from twinshore.lab.clients import client_settings, create_admin_client
from twinshore.lab.jars import KAFKA_3, KAFKA_OLDEST, ONE_COMPILER_FLAG
from twinshore.lab.processes import LabError


def write(cluster: Cluster, topic: str, values: list[bytes]) -> None:
    producer = Producer({**client_settings(cluster), "acks": "all"})
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(30) == 0


def read(cluster: Cluster, topic: str, count: int) -> list[bytes]:
    consumer = Consumer({**client_settings(cluster), "group.id": "lab-tests", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    try:
        messages = consumer.consume(count, timeout=30)
    finally:
        consumer.close()
    return [message.value() or b"" for message in messages]


def test_a_cluster_serves_what_was_written(east: RigCluster, unique_topic: str) -> None:
    east.create_topic(unique_topic)
    write(east.cluster, unique_topic, [b"one", b"two"])
    assert read(east.cluster, unique_topic, 2) == [b"one", b"two"]


@pytest.mark.long
@pytest.mark.parametrize("version", [pytest.param(KAFKA_3, marks=pytest.mark.long), KAFKA_OLDEST])
def test_older_kafkas_start_and_come_back_after_kill(cluster_factory: ClusterFactory, version: str) -> None:
    own = cluster_factory(version=version, heap_mb=256)
    own.create_topic("kept")
    write(own.cluster, "kept", [b"before"])
    broker = own.brokers[0]
    port, pid = broker.port, broker.pid
    broker.kill()
    assert not broker.alive
    broker.restart()
    assert (broker.port, broker.pid != pid) == (port, True)
    assert read(own.cluster, "kept", 1) == [b"before"]


def test_three_brokers_hold_copies_and_survive_the_loss_of_one(cluster_factory: ClusterFactory) -> None:
    own = cluster_factory(brokers=3, heap_mb=256, via_proxy=True)
    own.create_topic("copied")
    listed = create_admin_client(own.wan_cluster).list_topics("copied", timeout=10)
    assert sorted(listed.topics["copied"].partitions[0].replicas) == [1, 2, 3]
    assert {f"{one.host}:{one.port}" for one in listed.brokers.values()} == set(own.wan_bootstrap)
    write(own.wan_cluster, "copied", [b"through the proxy"])
    assert sum(proxy.counters().bytes_to_target for proxy in own.proxies) > 0
    leader = listed.topics["copied"].partitions[0].leader
    own.brokers[leader - 1].kill()
    assert read(own.cluster, "copied", 1) == [b"through the proxy"]


def shown_by_each(own: RigCluster) -> list[set[int]]:
    found = []
    for broker in own.brokers:
        with closing(open_connection(("127.0.0.1", broker.port), own.cluster.security)) as connection:
            found.append(set(read_metadata(connection, [], timeout_s=10).brokers))
    return found


@pytest.mark.long
def test_every_broker_knows_every_other_once_a_cluster_has_started_and_one_has_come_back(
    cluster_factory: ClusterFactory,
) -> None:
    """Without it the second answer to a client may show fewer brokers than the first, and its calls end midway."""
    own = cluster_factory(brokers=3, heap_mb=256)
    assert shown_by_each(own) == [{1, 2, 3}] * 3
    own.brokers[1].restart()
    assert shown_by_each(own) == [{1, 2, 3}] * 3
    own.brokers[0].pause()
    own.brokers[2].kill()
    own.brokers[0].resume()
    own.brokers[2].restart()
    assert shown_by_each(own) == [{1, 2, 3}] * 3


def test_a_paused_broker_answers_nothing_until_resumed(cluster_factory: ClusterFactory) -> None:
    own = cluster_factory(heap_mb=256)
    own.brokers[0].pause()
    admin = create_admin_client(own.cluster)
    with pytest.raises(KafkaException):
        admin.list_topics(timeout=1)
    own.brokers[0].resume()
    assert set(admin.list_topics(timeout=20).brokers) == {1}


def test_a_broker_that_cannot_start_shows_the_end_of_its_log() -> None:
    with raises(LabError, "lab.process-ended", process="broker 1", exit_code=1) as caught:
        RigCluster("broken", settings={"num.partitions": "none"}).start()
    assert "num.partitions" in caught.value.values["log"]


def test_data_stays_in_a_folder_that_was_given_and_goes_otherwise(tmp_path: Path) -> None:
    small: dict[str, Any] = {"heap_mb": 256, "jvm_flags": (ONE_COMPILER_FLAG,)}
    with RigCluster("kept", folder=tmp_path / "kept", **small) as kept, RigCluster("gone", **small) as gone:
        kept.create_topic("stays")
    assert list((tmp_path / "kept" / "broker-1" / "data").glob("stays-0/*.log"))
    assert not gone.folder.exists()


def test_an_unknown_user_is_named(east: RigCluster) -> None:
    with raises(LabError, "", user="mallory"):
        east.cluster_as("mallory")
