"""Real clients see two clusters as one through the proxy: they produce, consume, and read as a group over both."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Message, Producer
from confluent_kafka.admin import AdminClient

from tests.kafka.protocol.serving.java_clients import java_clients
from tests.proxy.served import ProxyProcess, proxy_before
from tests.scenarios.mirror_rig import spans
from twinshore.config.model import TopicPartition
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.leader_queries import ProducerState
from twinshore.lab.clients import read_group_offsets
from twinshore.lab.cluster import LabCluster
from twinshore.lab.jars import KAFKA_NEWEST, KAFKA_OLDEST
from twinshore.proxy.cluster_view import HOME_RECORDS_INTERVAL_S, POLL_INTERVAL_S
from twinshore.proxy.core.model import get_cluster_mark
from twinshore.state.core.values import HomeRow
from twinshore.state.store import open_store

COUNT = 200
MEMORY_MB_MAX = 200


@pytest.fixture(scope="module")
def proxy(east: LabCluster, west: LabCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxyProcess]:
    """Topics at home on one cluster each, and one that both have, at home on the second."""
    east.create_topic("proxy-orders", partitions=2)
    west.create_topic("proxy-bills", partitions=2)
    for lab in (east, west):
        lab.create_topic("proxy-shared")
    folder = tmp_path_factory.mktemp("proxy")
    with open_store(f"sqlite:///{folder}/store.db") as store:
        store.homes.settle([HomeRow("east<>west", "proxy-shared", "west", 1, 1, "test")])
    with proxy_before(folder, east.cluster, west.cluster) as made:
        yield made


def producer_of(bootstrap: str, **settings: object) -> Producer:
    usual = {"bootstrap.servers": bootstrap, "log_level": 2, "reconnect.backoff.max.ms": 500}
    return Producer({**usual, **settings})


def produce(producer: Producer, topic: str, values: list[str]) -> None:
    failed: list[object] = []

    def heard(error: object, _: Message) -> None:
        if error is not None:
            failed.append(error)

    for value in values:
        producer.produce(topic, value, on_delivery=heard)
        producer.poll(0)
    assert producer.flush(60) == 0
    assert failed == []


def consume(bootstrap: str, group: str, topics: list[str], count: int, within_s: float = 60) -> list[tuple[str, str]]:
    """Topic and value of so many records; commits where it stands."""
    settings = {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest", "log_level": 2}
    consumer = Consumer({**settings, "enable.auto.commit": False})
    consumer.subscribe(topics)
    found: list[tuple[str, str]] = []
    until_s = time.monotonic() + within_s
    try:
        while len(found) < count and time.monotonic() < until_s:
            for message in consumer.consume(500, timeout=1):
                assert message.error() is None, message.error()
                found.append((message.topic() or "", (message.value() or b"").decode()))
        if found:
            consumer.commit(asynchronous=False)
    finally:
        consumer.close()
    return found


def values(name: str, count: int = COUNT) -> list[str]:
    return [f"{name} {number}" for number in range(count)]


def test_two_topics_at_home_on_two_clusters_are_written_and_read_at_one_address(
    proxy: ProxyProcess, east: LabCluster, west: LabCluster
) -> None:
    told = AdminClient({"bootstrap.servers": proxy.bootstrap}).list_topics(timeout=20)
    ports = {broker.port for broker in told.brokers.values()}
    assert ports == {proxy.port_of("east", 1), proxy.port_of("west", 1)}
    assert {"proxy-orders", "proxy-bills", "proxy-shared"} <= told.topics.keys()
    assert told.cluster_id == "twinshore"

    producer = producer_of(proxy.bootstrap, **{"enable.idempotence": True, "linger.ms": 5})
    produce(producer, "proxy-orders", values("order"))
    produce(producer, "proxy-bills", values("bill"))
    produce(producer, "proxy-shared", values("shared"))
    # Each cluster has what is at home there, and nothing else.
    assert sorted(consume(east.bootstrap[0], "straight", ["proxy-orders"], COUNT)) == sorted(
        ("proxy-orders", value) for value in values("order")
    )
    assert len(consume(west.bootstrap[0], "straight", ["proxy-bills", "proxy-shared"], 2 * COUNT)) == 2 * COUNT

    found = consume(proxy.bootstrap, "both", ["proxy-orders", "proxy-bills"], 2 * COUNT)
    wanted = [("proxy-orders", value) for value in values("order")] + [("proxy-bills", one) for one in values("bill")]
    assert sorted(found) == sorted(wanted)
    # Places live at the group's home, or with a topic that is not there.
    for lab, topic in ((east, "proxy-orders"), (west, "proxy-bills")):
        # A partition in which nothing was written has no place.
        assert sum(max(0, place) for place in read_group_offsets(lab.cluster, "both", topic, [0, 1])) == COUNT
    assert consume(proxy.bootstrap, "both", ["proxy-orders", "proxy-bills"], 1, within_s=8) == []

    # One producer wrote to both, by a number that no other producer of either cluster has.
    numbers = {
        state.producer_id
        for lab, topic in ((east, "proxy-orders"), (west, "proxy-shared"))
        for state in producers_of(lab, topic)
    }
    assert len(numbers) == 1
    assert numbers.pop() >> 48 in {get_cluster_mark(lab.cluster_id) for lab in (east, west)}


def producers_of(lab: LabCluster, topic: str) -> list[ProducerState]:
    with closing(KafkaCluster(lab.cluster)) as cluster:
        return [one for found in cluster.describe_producers([TopicPartition(topic, 0)]).values() for one in found]


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
def test_the_members_of_a_group_share_topics_of_both_clusters(proxy: ProxyProcess, assignor: str) -> None:
    group = f"members-{assignor}"
    topics = ["proxy-orders", "proxy-bills"]
    settings = {"bootstrap.servers": proxy.bootstrap, "group.id": group, "log_level": 2}
    settings |= {"partition.assignment.strategy": assignor, "auto.offset.reset": "latest"}
    members = [Consumer(settings) for _ in range(2)]
    try:
        for member in members:
            member.subscribe(topics)
        shares: list[set[tuple[str, int]]] = []
        until_s = time.monotonic() + 60
        while sorted(map(len, shares)) != [2, 2]:
            assert time.monotonic() < until_s, shares
            for member in members:
                member.poll(0.1)
            shares = [{(one.topic, one.partition) for one in member.assignment()} for member in members]
        assert shares[0] | shares[1] == {(topic, number) for topic in topics for number in range(2)}
        admin = AdminClient({"bootstrap.servers": proxy.bootstrap})
        told = admin.describe_consumer_groups([group])[group].result(20)
        assert (len(told.members), told.coordinator.port) == (2, proxy.port_of("east", 1))
    finally:
        for member in members:
            member.close()


def test_a_request_of_ten_megabytes_is_written_and_read(proxy: ProxyProcess, east: LabCluster) -> None:
    east.create_topic("proxy-large", settings={"max.message.bytes": str(16 << 20)})
    value = "x" * (10 << 20)
    produce(
        producer_of(proxy.bootstrap, **{"message.max.bytes": 12 << 20, "enable.idempotence": True}),
        "proxy-large",
        [value, value],
    )
    found = consume(proxy.bootstrap, "large", ["proxy-large"], 2)
    assert [len(value) for _, value in found] == [10 << 20] * 2


def test_a_topic_that_moves_is_followed_by_who_writes_and_who_reads_it(
    proxy: ProxyProcess, east: LabCluster, west: LabCluster
) -> None:
    for lab in (east, west):
        lab.create_topic("proxy-moves")
    row = HomeRow("east<>west", "proxy-moves", "east", 1, 1, "test")
    with open_store(proxy.url) as store:
        store.homes.settle([row])
    time.sleep(2 * POLL_INTERVAL_S)  # before that it is not known which one is the home, and it has no leader
    # As a mirror would have it, west has what was written on east.
    produce(producer_of(west.bootstrap[0]), "proxy-moves", values("before"))
    producer = producer_of(proxy.bootstrap)
    consumer = Consumer(
        {"bootstrap.servers": proxy.bootstrap, "group.id": "moves", "auto.offset.reset": "earliest", "log_level": 2}
    )
    found: list[str] = []
    try:
        consumer.subscribe(["proxy-moves"])
        produce(producer, "proxy-moves", values("before"))
        read_up_to(consumer, found, COUNT)
        with open_store(proxy.url) as store:
            assert store.homes.move(replace(row, home="west"), seen=1) is not None
        time.sleep(
            HOME_RECORDS_INTERVAL_S + 2 * POLL_INTERVAL_S
        )  # for so long the clusters' own word of it is waited for
        produce(producer, "proxy-moves", values("after"))
        read_up_to(consumer, found, 2 * COUNT)
    finally:
        consumer.close()
    assert found == values("before") + values("after")
    assert [end for _, end in spans(east.cluster, "proxy-moves", 1)] == [COUNT], "nothing more was written there"
    assert [end for _, end in spans(west.cluster, "proxy-moves", 1)] == [2 * COUNT]


def read_up_to(consumer: Consumer, found: list[str], count: int) -> None:
    until_s = time.monotonic() + 60
    while len(found) < count:
        assert time.monotonic() < until_s, f"{len(found)} of {count} came"
        for message in consumer.consume(500, timeout=0.5):
            assert message.error() is None, message.error()
            found.append((message.value() or b"").decode())


def test_garbage_and_half_requests_cost_others_nothing(proxy: ProxyProcess) -> None:
    before = proxy.metrics()["twinshore_proxy_connections_closed_total"]
    with ExitStack() as opened:
        lines = [opened.enter_context(closing(connected(proxy))) for _ in range(60)]
        for number, line in enumerate(lines):
            # Garbage from every second one, and half a request from the others, who stay.
            line.sendall(b"GET / HTTP/1.1\r\n\r\n" if number % 2 else b"\0\0\0\x20\0")
        produce(producer_of(proxy.bootstrap), "proxy-orders", values("meanwhile", 20))
        assert {line.recv(100) for line in lines[1::2]} == {b""}
        figures = proxy.metrics()
    assert figures["twinshore_proxy_connections_closed_total"] == before + 30
    assert figures["twinshore_proxy_connections"] >= 30
    assert proxy.health()[0] == 200


def connected(proxy: ProxyProcess) -> socket.socket:
    return socket.create_connection(("127.0.0.1", proxy.port_of("east", 1)), timeout=20)


def test_two_hundred_clients_are_served_at_once(proxy: ProxyProcess) -> None:
    with ThreadPoolExecutor(20) as pool:
        producers = [producer_of(proxy.bootstrap) for _ in range(200)]
        jobs = [
            pool.submit(produce, one, "proxy-orders" if number % 2 else "proxy-bills", [f"client {number}"])
            for number, one in enumerate(producers)
        ]
        for job in jobs:
            job.result(120)
        assert proxy.metrics()["twinshore_proxy_connections"] >= 200
        assert proxy.memory_mb() < MEMORY_MB_MAX
    assert len(consume(proxy.bootstrap, "of-200", ["proxy-orders", "proxy-bills"], 200)) >= 200


def test_java_s_clients_of_the_oldest_and_the_newest_version_are_served(
    proxy: ProxyProcess, east: LabCluster, west: LabCluster
) -> None:
    for version in (KAFKA_OLDEST, KAFKA_NEWEST):
        with java_clients(version) as java:
            topics = [f"proxy-java-{lab.name}-{version}" for lab in (east, west)]
            for lab, topic in zip((east, west), topics, strict=True):
                lab.create_topic(topic)
                java.produce(proxy.bootstrap, topic, values(lab.name, 50), {"linger.ms": "5"})
                assert java.consume(proxy.bootstrap, topic, 50, 30) == values(lab.name, 50)
            found = java.consume_as(f"java-{version}", proxy.bootstrap, topics, 100, 60)
            assert sorted(found) == sorted(values("east", 50) + values("west", 50))
            java.produce(proxy.bootstrap, topics[1], ["one more"], {})
            assert java.consume_as(f"java-{version}", proxy.bootstrap, topics, 1, 60) == ["one more"]


def test_it_ends_in_good_order(east: LabCluster, west: LabCluster, tmp_path: Path) -> None:
    with proxy_before(tmp_path, east.cluster, west.cluster) as ours:
        producer = producer_of(ours.bootstrap)
        east.create_topic("proxy-ends")
        produce(producer, "proxy-ends", values("before the end", 10))
        began_s = time.monotonic()
        assert ours.end() == 0
        assert time.monotonic() - began_s < 8
        assert ours.said().splitlines()[-1].endswith("ended")
        ours.start()
        produce(producer, "proxy-ends", values("behind it", 10))
    assert len(consume(east.bootstrap[0], "ends", ["proxy-ends"], 20)) == 20
