"""One cluster, asked while its leaders move, its addresses die and its topics come and go."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from random import Random

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as ClientTopicPartition
from confluent_kafka.admin import AdminClient

from testkit.clients import delete_topic, topic_id
from testkit.errors import raises
from testkit.fault_proxy import FaultProxy
from tests.conftest import ClusterFactory
from tests.kafka.peers import peer, silent
from twinshore.config.errors import ConfigError, KafkaError
from twinshore.config.model import Cluster, TopicPartition
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.connection import librdkafka_settings
from twinshore.kafka.leader_queries import OffsetKind
from twinshore.kafka.pool import ConnectionPool, parse_address
from twinshore.lab.cluster import LabCluster


@pytest.fixture
def kafka(east: LabCluster) -> Iterator[KafkaCluster]:
    with closing(KafkaCluster(east.cluster)) as cluster:
        yield cluster


def write(cluster: Cluster, named: TopicPartition, count: int) -> None:
    producer = Producer({**librdkafka_settings(cluster), "linger.ms": 0})
    for number in range(count):
        producer.produce(named.topic, str(number).encode(), partition=named.partition)
    assert producer.flush(30) == 0


class Hours:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.slept: list[float] = []

    def clock(self) -> float:
        return self.now_s

    def sleep(self, wait_s: float) -> None:
        self.slept.append(wait_s)
        self.now_s += wait_s


def test_what_cannot_be_answered_holds_nothing_else_up(
    east: LabCluster, kafka: KafkaCluster, unique_topic: str
) -> None:
    east.create_topic(unique_topic)
    there, ghost = TopicPartition(unique_topic, 0), TopicPartition(f"{unique_topic}-ghost", 0)
    write(east.cluster, there, 3)
    begun_s = time.monotonic()
    found, failed = kafka.offsets_of_each([ghost, there], OffsetKind.LOG_END)
    cut, uncut = kafka.delete_records_of_each({there: 2}, {unique_topic: topic_id(east.cluster, unique_topic)})
    took_s = time.monotonic() - begun_s
    assert (found, set(failed)) == ({there: 3}, {ghost})
    assert "ghost-0" in failed[ghost].message
    assert (cut, uncut) == ({there: 2}, {})
    _, unlike = kafka.delete_records_of_each({there: 3}, {unique_topic: bytes(16)})
    assert unique_topic in unlike[there].message and not unlike[there].retriable
    assert kafka.offsets_of_each([], OffsetKind.LOG_END) == ({}, {})
    assert took_s < 30, "it is not waited for"


def test_metadata_says_who_is_there(east: LabCluster, kafka: KafkaCluster, unique_topic: str) -> None:
    east.create_topic(unique_topic, partitions=3)
    seen = kafka.metadata([unique_topic])
    assert seen.cluster_id == east.cluster_id == kafka.cluster_id()
    (broker,) = seen.brokers.values()
    assert f"{broker.host}:{broker.port}" == east.bootstrap[0]
    topic = seen.topics[unique_topic]
    assert (topic.error, topic.internal, len(topic.topic_id)) == (0, False, 16)
    assert topic.topic_id != bytes(16)
    assert [one.partition for one in topic.partitions] == [0, 1, 2]
    assert {(one.leader, one.replicas, one.isr) for one in topic.partitions} == {(1, (1,), (1,))}
    assert unique_topic in kafka.metadata().topics
    assert kafka.metadata(["ghost"]).topics["ghost"].error == 3
    assert "ghost" not in kafka.metadata().topics, "asking must not create"


def test_each_end_of_a_log(east: LabCluster, kafka: KafkaCluster, unique_topic: str) -> None:
    east.create_topic(unique_topic, partitions=2)
    cut, open_ended = TopicPartition(unique_topic, 0), TopicPartition(unique_topic, 1)
    write(east.cluster, cut, 10)
    assert kafka.delete_records({cut: 4}, {unique_topic: topic_id(east.cluster, unique_topic)}) == {cut: 4}
    transaction = Producer({**librdkafka_settings(east.cluster), "transactional.id": unique_topic})
    transaction.init_transactions(30)
    transaction.begin_transaction()
    transaction.produce(unique_topic, b"uncertain", partition=1)
    assert transaction.flush(30) == 0
    ends = {kind.name: list(kafka.list_offsets([cut, open_ended], kind).values()) for kind in OffsetKind}
    assert ends == {"EARLIEST": [4, 0], "HIGH_WATERMARK": [10, 1], "LAST_STABLE": [10, 0], "LOG_END": [10, 1]}
    (state,) = kafka.describe_producers([open_ended])[open_ended]
    assert (state.last_sequence, state.current_txn_start) == (0, 0)
    transaction.commit_transaction(30)
    deadline = time.monotonic() + 20
    while kafka.list_offsets([open_ended], OffsetKind.LAST_STABLE)[open_ended] != 2:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_the_tail_batch_is_the_one_that_covers_the_offset(
    east: LabCluster, kafka: KafkaCluster, unique_topic: str
) -> None:
    east.create_topic(unique_topic)
    named = TopicPartition(unique_topic, 0)
    write(east.cluster, named, 7)
    for offset in range(7):
        header = kafka.read_tail_batch(named, offset)
        assert header is not None
        assert header.base_offset <= offset <= header.last_offset
    assert kafka.read_tail_batch(named, 7) is None
    with pytest.raises(KafkaError, match=rf"east: records from offset 8 of {named}: .*OFFSET_OUT_OF_RANGE, code 1"):
        kafka.read_tail_batch(named, 8)


def test_what_is_not_there_is_named_soon(east: LabCluster, unique_topic: str) -> None:
    east.create_topic(unique_topic)
    hours = Hours()
    with closing(KafkaCluster(east.cluster, clock=hours.clock, sleep=hours.sleep)) as kafka:
        for named in (TopicPartition("ghost", 0), TopicPartition(unique_topic, 1)):
            with pytest.raises(KafkaError, match=rf"east: .*{named}: .*UNKNOWN_TOPIC_OR_PARTITION, code 3"):
                kafka.list_offsets([named], OffsetKind.LOG_END)
            with pytest.raises(KafkaError, match="code 3"):
                kafka.leader_of(named)
        with pytest.raises(KafkaError, match="broker 99 "):
            kafka.dial(99)
    assert 2 < hours.now_s - 1000 < 13


def test_a_topic_created_again_is_seen_as_new(east: LabCluster, kafka: KafkaCluster, unique_topic: str) -> None:
    east.create_topic(unique_topic)
    named = TopicPartition(unique_topic, 0)
    write(east.cluster, named, 3)
    old = kafka.metadata([unique_topic]).topics[unique_topic].topic_id
    delete_topic(east.cluster, unique_topic)
    east.create_topic(unique_topic)
    write(east.cluster, named, 1)
    assert kafka.metadata([unique_topic], refresh=False).topics[unique_topic].topic_id == old
    header = kafka.read_tail_batch(named, 0)
    assert header is not None
    assert header.last_offset == 0
    assert kafka.metadata([unique_topic], refresh=False).topics[unique_topic].topic_id != old


def test_one_object_serves_many_threads(east: LabCluster, kafka: KafkaCluster, unique_topic: str) -> None:
    east.create_topic(unique_topic, partitions=4)
    parts = [TopicPartition(unique_topic, number) for number in range(4)]
    found: list[object] = []

    def ask() -> None:
        for _ in range(10):
            found.append(kafka.list_offsets(parts, OffsetKind.LOG_END))
            found.append(kafka.init_producer_id())

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ids = [one for one in found if isinstance(one, tuple)]
    assert len(found) == 160
    assert len(set(ids)) == 80


def test_dead_bootstrap_addresses_are_passed_over(east: LabCluster) -> None:
    with peer(silent) as (_, dead):
        pass
    cluster = replace(east.cluster, bootstrap=(f"127.0.0.1:{dead}", "no-such-host.invalid:9092", *east.bootstrap))
    hours = Hours()
    with closing(KafkaCluster(cluster, clock=hours.clock, sleep=hours.sleep)) as kafka:
        assert kafka.cluster_id() == east.cluster_id
    assert hours.slept == []


def test_nobody_there_is_said_after_growing_bounded_pauses() -> None:
    with peer(silent) as (_, dead):
        pass
    hours = Hours()
    cluster = Cluster("nowhere", (f"127.0.0.1:{dead}",))
    kafka = KafkaCluster(cluster, patience_s=60, clock=hours.clock, sleep=hours.sleep, rng=Random(5))
    with pytest.raises(KafkaError) as caught:
        kafka.cluster_id()
    assert "60 s" in str(caught.value)
    assert f"127.0.0.1:{dead}: cannot connect" in str(caught.value)
    assert caught.value.retriable
    assert 50 < sum(hours.slept) <= 60
    assert max(hours.slept) <= 2
    assert max(hours.slept[:3]) < 0.25
    assert len(set(hours.slept)) == len(hours.slept), "jitter"


def test_addresses_of_two_clusters_in_one_are_noticed(cluster_factory: ClusterFactory, east: LabCluster) -> None:
    lab = cluster_factory(heap_mb=256)
    mixed = replace(lab.cluster, bootstrap=(*lab.bootstrap, *east.bootstrap))
    with closing(KafkaCluster(mixed)) as kafka:
        assert kafka.cluster_id() == lab.cluster_id
        lab.brokers[0].kill()
        with pytest.raises(KafkaError, match=east.cluster_id) as caught:
            kafka.metadata([])
        assert not caught.value.retriable


@pytest.mark.long
def test_questions_follow_leaders_that_die_hang_and_return(cluster_factory: ClusterFactory) -> None:
    lab = cluster_factory(brokers=3, heap_mb=256)
    lab.create_topic("moving", partitions=3, copies=3)
    parts = [TopicPartition("moving", number) for number in range(3)]
    for named in parts:
        write(lab.cluster, named, 5)
    expected = dict.fromkeys(parts, 5)
    with closing(KafkaCluster(lab.cluster, call_s=1.0, patience_s=60)) as kafka:
        assert kafka.list_offsets(parts, OffsetKind.LOG_END) == expected
        first_epoch = kafka.partition_of(parts[0]).leader_epoch
        assert kafka.epoch_ends({parts[0]: first_epoch})[parts[0]] == (first_epoch, 5)

        victim = next(broker for broker in lab.brokers if broker.node_id == kafka.leader_of(parts[0]))
        victim.kill()
        assert kafka.list_offsets(parts, OffsetKind.LOG_END) == expected
        moved = kafka.partition_of(parts[0])
        assert moved.leader != victim.node_id
        assert moved.leader_epoch > first_epoch
        write(lab.cluster, parts[0], 2)
        assert kafka.epoch_ends({parts[0]: first_epoch})[parts[0]] == (first_epoch, 5)
        assert kafka.list_offsets(parts[:1], OffsetKind.LOG_END) == {parts[0]: 7}
        victim.restart()
        _wait_for_all_copies(kafka, parts, 3)

        sleeper = next(broker for broker in lab.brokers if broker.node_id == kafka.leader_of(parts[0]))
        sleeper.pause()
        try:
            assert kafka.list_offsets(parts[:1], OffsetKind.LOG_END) == {parts[0]: 7}
            _wait_for_another_leader(kafka, parts[0], sleeper.node_id)
        finally:
            sleeper.resume()
        # The leader that slept must not answer from the past: its epoch is over.
        assert kafka.list_offsets(parts[:1], OffsetKind.LOG_END) == {parts[0]: 7}


def _wait_for_another_leader(kafka: KafkaCluster, named: TopicPartition, old: int) -> None:
    """The new leader answers some moments before each broker names it."""
    deadline = time.monotonic() + 30
    while kafka.partition_of(named, refresh=True).leader == old:
        assert time.monotonic() < deadline
        time.sleep(0.1)


def _wait_for_all_copies(kafka: KafkaCluster, parts: list[TopicPartition], copies: int) -> None:
    deadline = time.monotonic() + 30
    while any(len(kafka.partition_of(named, refresh=True).isr) < copies for named in parts):
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.mark.parametrize(
    ("text", "address"), [("a:1", ("a", 1)), (" kafka-1.east:9092 ", ("kafka-1.east", 9092)), ("[::1]:5", ("::1", 5))]
)
def test_addresses(text: str, address: tuple[str, int]) -> None:
    assert parse_address(text, "east") == address


@pytest.mark.parametrize("text", ["", "kafka", ":9092", "kafka:", "kafka:port", "kafka:0", "kafka:65536", "kafka:-1"])
def test_what_is_no_address_is_refused_before_anything_is_asked(text: str) -> None:
    with raises(ConfigError, "kafka.invalid-address", cluster="east"):
        KafkaCluster(Cluster("east", (text,)))
    with raises(ConfigError, "kafka.no-address"):
        KafkaCluster(Cluster("east", ()))


def test_the_admin_client_settings_fit_other_clients(east: LabCluster, unique_topic: str) -> None:
    east.create_topic(unique_topic)
    admin = AdminClient(librdkafka_settings(east.cluster))
    assert unique_topic in admin.list_topics(timeout=10).topics
    with closing(Consumer({**librdkafka_settings(east.cluster), "group.id": unique_topic})) as consumer:
        assert consumer.get_watermark_offsets(ClientTopicPartition(unique_topic, 0), timeout=10) == (0, 0)


def test_a_closed_client_keeps_no_connection(east: LabCluster) -> None:
    kafka = KafkaCluster(east.cluster)
    kept = kafka.connection_to(1)
    kafka.close()
    assert kept.closed
    with pytest.raises(KafkaError, match="east: this client was closed"):
        kafka.metadata([])


def test_askers_that_share_connections_keep_each_to_its_own_cluster(east: LabCluster) -> None:
    pool = ConnectionPool(2)
    with (
        closing(KafkaCluster(east.cluster, pool=pool)) as one,
        closing(KafkaCluster(east.cluster, pool=pool)) as two,
        closing(KafkaCluster(east.cluster, pool=pool, cluster_id="another")) as wrong,
    ):
        line = one.connection_to(1)
        assert two.connection_to(1) is line, "nobody waits on it"
        with pytest.raises(KafkaError, match=east.cluster_id):
            wrong.metadata([])
        assert one.metadata([]).cluster_id == two.metadata([]).cluster_id == east.cluster_id
        two.expect_cluster_id(east.cluster_id)
        with pytest.raises(KafkaError, match=east.cluster_id):
            two.expect_cluster_id("another")
        one.close()
        assert not two.connection_to(1).closed


def test_an_advertised_address_that_leads_nowhere_is_told_from_a_bootstrap_address(
    cluster_factory: ClusterFactory,
) -> None:
    lab = cluster_factory(heap_mb=256)
    with FaultProxy("127.0.0.1", lab.brokers[0].port) as proxy:
        behind = replace(lab.cluster, bootstrap=(proxy.address,))
        with closing(KafkaCluster(behind, patience_s=1)) as kafka:
            assert kafka.cluster_id() == lab.cluster_id
            lab.brokers[0].kill()
            with pytest.raises(KafkaError, match=f"own {lab.bootstrap[0]}: cannot connect") as caught:
                kafka.dial(1)
            assert "advertise" in caught.value.hint
