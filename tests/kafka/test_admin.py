"""Topics and settings, and what a cluster says when it will not."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from twinshore.fleet import Cluster, KafkaError, NamedPartition
from twinshore.kafka.admin import Admin
from twinshore.kafka.cluster import KafkaCluster
from twinshore.lab import LabCluster


@pytest.fixture
def kafka(east: LabCluster) -> Iterator[KafkaCluster]:
    with closing(KafkaCluster(east.cluster)) as cluster:
        yield cluster


def own_settings(kafka: KafkaCluster, topic: str) -> dict[str, str | None]:
    return {one.name: one.value for one in kafka.admin.topic_settings([topic])[topic].values() if one.own}


def until(kafka: KafkaCluster, topic: str, expected: dict[str, str | None]) -> None:
    deadline = time.monotonic() + 10
    while (found := own_settings(kafka, topic)) != expected:
        assert time.monotonic() < deadline, found
        time.sleep(0.05)


def test_a_topics_life(kafka: KafkaCluster, unique_topic: str) -> None:
    admin = kafka.admin
    admin.create_topic(unique_topic, partitions=1, settings={"retention.ms": "5000"}, validate_only=True)
    assert kafka.metadata([unique_topic]).topics[unique_topic].error == 3, "only validated"
    admin.create_topic(unique_topic, partitions=1, replication_factor=1, settings={"retention.ms": "5000"})
    with pytest.raises(KafkaError, match="TOPIC_ALREADY_EXISTS") as caught:
        admin.create_topic(unique_topic, partitions=1)
    assert caught.value.code == 36
    admin.create_partitions(unique_topic, 3)
    assert kafka.partition_of(NamedPartition(unique_topic, 2)).leader == 1
    until(kafka, unique_topic, {"retention.ms": "5000"})
    admin.alter_topic_settings(unique_topic, {"cleanup.policy": "compact", "max.message.bytes": "2000000"})
    until(
        kafka,
        unique_topic,
        {"retention.ms": "5000", "cleanup.policy": "compact", "max.message.bytes": "2000000"},
    )
    admin.alter_topic_settings(unique_topic, {"retention.ms": None, "cleanup.policy": "delete"})
    until(kafka, unique_topic, {"cleanup.policy": "delete", "max.message.bytes": "2000000"})
    admin.alter_topic_settings(unique_topic, {"retention.ms": "9"}, validate_only=True)
    until(kafka, unique_topic, {"cleanup.policy": "delete", "max.message.bytes": "2000000"})
    admin.delete_topics([unique_topic])
    with pytest.raises(KafkaError, match=rf"east: delete topic {unique_topic}: .*code 3"):
        admin.delete_topics([unique_topic])


def test_settings_tell_where_they_come_from(east: LabCluster, kafka: KafkaCluster, unique_topic: str) -> None:
    east.create_topic(unique_topic, settings={"retention.bytes": "77"})
    (mine,) = [one for one in kafka.admin.topic_settings([unique_topic])[unique_topic].values() if one.own]
    assert (mine.name, mine.value, mine.source) == ("retention.bytes", "77", "DYNAMIC_TOPIC_CONFIG")
    broker = kafka.admin.broker_settings(1)
    assert broker["broker.session.timeout.ms"].value == "4000"
    assert broker["broker.session.timeout.ms"].source == "STATIC_BROKER_CONFIG"
    assert broker["node.id"].read_only
    assert all(one.source != "DEFAULT_CONFIG" for one in broker.values())


@pytest.mark.parametrize(
    ("arguments", "complaint", "code"),
    [
        ({"partitions": 1, "replication_factor": 3}, "INVALID_REPLICATION_FACTOR", 38),
        ({"partitions": 1, "settings": {"retention.ms": "soon"}}, "INVALID_CONFIG", 40),
        ({"partitions": 1, "settings": {"no.such.setting": "1"}}, "INVALID_CONFIG", 40),
    ],
)
def test_a_refused_topic_is_named_with_the_reason(
    kafka: KafkaCluster, unique_topic: str, arguments: dict[str, object], complaint: str, code: int
) -> None:
    with pytest.raises(KafkaError, match=rf"east: create topic .*{complaint}, code {code}") as caught:
        kafka.admin.create_topic(unique_topic.replace("[", "-"), **arguments)  # type: ignore[arg-type]
    assert caught.value.code == code
    assert not caught.value.retriable
    if code == 38:
        assert "smaller replication factor" in caught.value.hint


def test_refusals_keep_what_the_others_got(east: LabCluster, kafka: KafkaCluster, unique_topic: str) -> None:
    east.create_topic(unique_topic)
    with pytest.raises(KafkaError, match="delete topic ghost"):
        kafka.admin.delete_topics(["ghost", unique_topic])
    deadline = time.monotonic() + 10
    while kafka.metadata([unique_topic]).topics[unique_topic].error != 3:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    named = NamedPartition(unique_topic, 0)
    with pytest.raises(KafkaError, match=rf"delete records of {named}"):
        kafka.admin.delete_records({named: 5})


def test_offsets_that_cannot_be_cut_are_refused(east: LabCluster, kafka: KafkaCluster, unique_topic: str) -> None:
    east.create_topic(unique_topic)
    with pytest.raises(KafkaError, match="OFFSET_OUT_OF_RANGE") as caught:
        kafka.admin.delete_records({NamedPartition(unique_topic, 0): 5})
    assert caught.value.code == 1


def test_nothing_to_do_asks_nobody() -> None:
    admin = Admin(Cluster("nowhere", ("127.0.0.1:1",)), timeout_s=1)
    admin.delete_topics([])
    admin.alter_topic_settings("x", {})
    assert admin.delete_records({}) == {}
    assert admin.topic_settings([]) == {}


def test_a_cluster_that_is_away_is_said_in_time() -> None:
    started = time.monotonic()
    with pytest.raises(KafkaError, match=r"nowhere: create topic x: .*refused") as caught:
        Admin(Cluster("nowhere", ("127.0.0.1:1",)), timeout_s=1).create_topic("x", partitions=1)
    assert caught.value.retriable
    assert time.monotonic() - started < 15
