"""Topics and settings, and what a cluster says when it will not."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest
from confluent_kafka import Producer

from testkit.clients import alter_brokers, delete_topic, topic_id
from tests.conftest import ClusterFactory
from twinshore.config.errors import KafkaError
from twinshore.config.model import Cluster, TopicPartition
from twinshore.kafka.admin import alter_quotas
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.leader_queries import OffsetKind
from twinshore.kafka.protocol.access_control import QuotaEntity
from twinshore.lab.clients import client_settings
from twinshore.lab.cluster import LabCluster
from twinshore.replication.incident_watch import PRODUCER_EXPIRY_SETTING, STATE_EXPIRY_MS_DEFAULT, read_state_expiry_ms

NOWHERE = Cluster("nowhere", ("127.0.0.1:1",))


@pytest.fixture
def kafka(east: LabCluster) -> Iterator[KafkaCluster]:
    with closing(KafkaCluster(east.cluster)) as cluster:
        yield cluster


def own_settings(kafka: KafkaCluster, topic: str) -> dict[str, str | None]:
    return {one.name: one.value for one in kafka.admin.topic_settings([topic])[topic].values() if one.own}


def produce_values(cluster: Cluster, topic: str, values: list[str]) -> None:
    producer = Producer(client_settings(cluster))
    for value in values:
        producer.produce(topic, value.encode(), partition=0)
    assert producer.flush(30) == 0


def until(kafka: KafkaCluster, topic: str, expected: dict[str, str | None]) -> None:
    """A broker may not know yet what was made a moment ago."""
    deadline = time.monotonic() + 10
    found: dict[str, str | None] | None = None
    while found != expected:
        with contextlib.suppress(KafkaError):
            found = own_settings(kafka, topic)
        assert time.monotonic() < deadline, found
        time.sleep(0.01 if found == expected else 0.05)


def test_a_topics_life(kafka: KafkaCluster, unique_topic: str) -> None:
    admin = kafka.admin
    admin.create_topic(unique_topic, partitions=1, replication_factor=1, settings={"retention.ms": "5000"})
    with pytest.raises(KafkaError, match="TOPIC_ALREADY_EXISTS") as caught:
        admin.create_topic(unique_topic, partitions=1)
    assert caught.value.code == 36
    meant = topic_id(kafka.cluster, unique_topic)
    admin.create_partitions(unique_topic, 3, topic_id=meant)
    assert kafka.partition_of(TopicPartition(unique_topic, 2)).leader == 1
    until(kafka, unique_topic, {"retention.ms": "5000"})
    admin.alter_topic_settings(
        unique_topic, {"cleanup.policy": "compact", "max.message.bytes": "2000000"}, topic_id=meant
    )
    until(
        kafka,
        unique_topic,
        {"retention.ms": "5000", "cleanup.policy": "compact", "max.message.bytes": "2000000"},
    )
    admin.alter_topic_settings(unique_topic, {"retention.ms": None, "cleanup.policy": "delete"}, topic_id=meant)
    until(kafka, unique_topic, {"cleanup.policy": "delete", "max.message.bytes": "2000000"})
    admin.delete_topic(unique_topic, topic_id=meant)
    with pytest.raises(KafkaError, match=rf"east: .*topic {unique_topic}: .*code 3"):
        admin.delete_topic(unique_topic, topic_id=meant)


def test_settings_tell_where_they_come_from(east: LabCluster, kafka: KafkaCluster, unique_topic: str) -> None:
    east.create_topic(unique_topic, settings={"retention.bytes": "77"})
    (mine,) = [one for one in kafka.admin.topic_settings([unique_topic])[unique_topic].values() if one.own]
    assert (mine.name, mine.value, mine.source) == ("retention.bytes", "77", "DYNAMIC_TOPIC_CONFIG")
    broker = kafka.admin.broker_settings(1)
    assert broker["broker.session.timeout.ms"].value == "4000"
    assert broker["broker.session.timeout.ms"].source == "STATIC_BROKER_CONFIG"
    assert all(one.source != "DEFAULT_CONFIG" for one in broker.values())


def test_how_long_brokers_remember_a_producer_is_asked_anew(cluster_factory: ClusterFactory) -> None:
    lab = cluster_factory(heap_mb=256)
    with closing(KafkaCluster(lab.cluster)) as kafka:
        assert read_state_expiry_ms(kafka) == STATE_EXPIRY_MS_DEFAULT
        alter_brokers(lab.cluster, (1,), {PRODUCER_EXPIRY_SETTING: "50000"})
        deadline = time.monotonic() + 10
        while read_state_expiry_ms(kafka) != 50_000:
            assert time.monotonic() < deadline
            time.sleep(0.1)


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


def test_a_topic_that_may_not_be_asked_about_hinders_no_other(kafka: KafkaCluster, unique_topic: str) -> None:
    kafka.admin.create_topic(unique_topic, partitions=1, settings={"retention.ms": "5000"})
    until(kafka, unique_topic, {"retention.ms": "5000"})
    found, refused = kafka.admin.readable_settings(["ghost", unique_topic])
    assert found[unique_topic]["retention.ms"].value == "5000"
    assert [(name, error.code) for name, error in refused.items()] == [("ghost", 3)]


def test_a_name_that_means_another_topic_by_now_is_left_alone(
    east: LabCluster, kafka: KafkaCluster, unique_topic: str
) -> None:
    """Each change was meant for the topic before, and none may reach the one that somebody put in its place."""
    east.create_topic(unique_topic)
    meant = topic_id(east.cluster, unique_topic)
    delete_topic(east.cluster, unique_topic)
    east.create_topic(unique_topic)
    named = TopicPartition(unique_topic, 0)
    produce_values(east.cluster, unique_topic, ["theirs"] * 10)
    changes: list[Callable[[], object]] = [
        lambda: kafka.delete_records({named: 5}, {unique_topic: meant}),
        lambda: kafka.admin.create_partitions(unique_topic, 3, topic_id=meant),
        lambda: kafka.admin.alter_topic_settings(unique_topic, {"retention.ms": "1"}, topic_id=meant),
        lambda: kafka.admin.delete_topic(unique_topic, topic_id=meant),
    ]
    for change in changes:
        with pytest.raises(KafkaError, match=unique_topic) as caught:
            change()
        assert not caught.value.retriable
    assert own_settings(kafka, unique_topic) == {}
    assert len(kafka.metadata([unique_topic]).topics[unique_topic].partitions) == 1
    assert kafka.list_offsets([named], OffsetKind.EARLIEST) == {named: 0}


def test_a_cluster_that_took_the_address_is_left_alone(
    east: LabCluster, west: LabCluster, kafka: KafkaCluster, unique_topic: str
) -> None:
    """Whoever knows which cluster it must be changes nothing of another, nor of one that answers there later."""
    west.create_topic(unique_topic)
    meant = topic_id(west.cluster, unique_topic)
    named = TopicPartition(unique_topic, 0)
    produce_values(west.cluster, unique_topic, ["theirs"] * 10)
    with closing(KafkaCluster(west.cluster, cluster_id=east.cluster_id)) as strayed:
        changes: list[Callable[[], object]] = [
            lambda: strayed.delete_records({named: 5}, {unique_topic: meant}),
            lambda: strayed.admin.create_topic(f"{unique_topic}-new", partitions=1),
            lambda: strayed.admin.delete_topic(unique_topic, topic_id=meant),
            lambda: strayed.admin.alter_topic_settings(unique_topic, {"retention.ms": "1"}, topic_id=meant),
            lambda: strayed.dial(1),
            lambda: alter_quotas(strayed, QuotaEntity((("user", "u"),)), {"producer_byte_rate": 1.0}),
        ]
        for change in changes:
            with pytest.raises(KafkaError, match=west.cluster_id):
                change()
    with closing(KafkaCluster(west.cluster)) as theirs:
        assert theirs.list_offsets([named], OffsetKind.EARLIEST) == {named: 0}
        assert f"{unique_topic}-new" not in theirs.metadata().topics
        with pytest.raises(KafkaError, match=west.cluster_id):
            theirs.expect_cluster_id(kafka.cluster_id())


def test_offsets_that_cannot_be_cut_are_refused(east: LabCluster, kafka: KafkaCluster, unique_topic: str) -> None:
    east.create_topic(unique_topic)
    with pytest.raises(KafkaError, match="OFFSET_OUT_OF_RANGE") as caught:
        kafka.delete_records({TopicPartition(unique_topic, 0): 5}, {unique_topic: topic_id(east.cluster, unique_topic)})
    assert caught.value.code == 1


def test_nothing_to_do_asks_nobody() -> None:
    with closing(KafkaCluster(NOWHERE, patience_s=1)) as kafka:
        kafka.admin.alter_topic_settings("x", {}, topic_id=bytes(16))
        assert kafka.delete_records({}, {}) == {}
        assert kafka.admin.topic_settings([]) == {}


def test_a_cluster_that_is_away_is_said_in_time() -> None:
    started = time.monotonic()
    with closing(KafkaCluster(NOWHERE, patience_s=5)) as kafka, pytest.raises(KafkaError, match="refused") as caught:
        kafka.admin.create_topic("x", partitions=1)
    assert caught.value.retriable
    assert "create topic x" in caught.value.message
    assert time.monotonic() - started < 60
