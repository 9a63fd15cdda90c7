"""Calls on a producer and a consumer whose topics stay: as on those of confluent-kafka, and what is refused."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from testkit.errors import raises
from testkit.log_lines import LogLines
from twinshore.client import FailoverConsumer, FailoverProducer
from twinshore.client.core.delivered import ConsumerMode, consumer_mode
from twinshore.client.group_member import ConsumerCloser, Member
from twinshore.config.errors import ConfigError, UnsupportedError
from twinshore.lab.clients import client_settings
from twinshore.lab.cluster import LabCluster

AWAY: dict[str, Any] = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0}


def settings(lab: LabCluster) -> dict[str, Any]:
    return dict(client_settings(lab.cluster))


def test_what_is_written_is_read_once_and_in_order(east: LabCluster, unique_topic: str) -> None:
    east.create_topic(unique_topic, partitions=2)
    clusters = {"east": settings(east), "away": AWAY}
    told: list[tuple[KafkaError | None, int]] = []

    def answered(error: KafkaError | None, message: Message | None) -> None:
        told.append((error, int((message.value() if message else b"-1") or b"-1")))

    with FailoverProducer({}, clusters=clusters, topics=[unique_topic]) as producer:
        for number in range(200):
            producer.produce(unique_topic, b"%d" % number, b"key %d" % (number % 2), on_delivery=answered)
        assert producer.flush(60) == 0
        assert producer.where(unique_topic) == "east"
    assert sorted(told, key=lambda one: one[1]) == [(None, number) for number in range(200)]
    with pytest.raises(RuntimeError, match="is closed"):
        producer.produce(unique_topic, b"late")
    found: dict[bytes, list[int]] = {}
    config = {"group.id": f"{unique_topic}-readers", "auto.offset.reset": "earliest"}
    with FailoverConsumer(config, clusters=clusters) as consumer:
        consumer.subscribe([unique_topic])
        until_s = time.monotonic() + 60
        while sum(map(len, found.values())) < 200 and time.monotonic() < until_s:
            for message in consumer.consume(50, 0.5):
                assert message.error() is None
                found.setdefault(bytes(message.key() or b""), []).append(int(message.value() or b"-1"))
        assert consumer.where(unique_topic) == "east"
        assert {one.topic for one in consumer.assignment()} == {unique_topic}
    assert found == {b"key 0": list(range(0, 200, 2)), b"key 1": list(range(1, 200, 2))}


def test_where_no_cluster_answers_calls_wait_and_are_told_why() -> None:
    with FailoverProducer({}, clusters={"away": AWAY}, topics=["orders"], max_block_s=0.3, kept_max=2) as producer:
        with pytest.raises(TypeError, match="bytes, str or None, not int"):
            producer.produce("orders", 3)  # type: ignore[arg-type]
        producer.produce("orders", b"one")
        producer.produce("orders", b"two")
        with pytest.raises(BufferError, match=r"no known home: .* silent.*: away"):
            producer.produce("orders", b"three")
        assert len(producer) == 2
        assert producer.close(0.2) == 2, "nobody is told that they were sent"


def test_nothing_goes_to_another_cluster_than_is_expected(
    east: LabCluster, unique_topic: str, log_lines: LogLines
) -> None:
    east.create_topic(unique_topic)
    other = {**settings(east), "twinshore.cluster.id": "somebody-elses"}
    with FailoverProducer({}, clusters={"east": other}, topics=[unique_topic]) as producer:
        producer.produce(unique_topic, b"nowhere")
        until_s = time.monotonic() + 30
        while not log_lines.of("twinshore.client") and time.monotonic() < until_s:
            time.sleep(0.05)
        time.sleep(0.5)
        assert len(producer) == 1
        [said] = log_lines.of("twinshore.client")
        assert "not somebody-elses" in said
        producer.kill()
    clusters = {"east": settings(east)}
    with FailoverConsumer({"group.id": unique_topic, "auto.offset.reset": "earliest"}, clusters=clusters) as consumer:
        consumer.subscribe([unique_topic])
        assert consumer.poll(3.0) is None


def test_what_cannot_be_followed_is_refused() -> None:
    with raises(UnsupportedError, "client.transactional", cluster="away"):
        FailoverProducer({"transactional.id": "one"}, clusters={"away": AWAY})
    with FailoverProducer({}, clusters={"away": AWAY}, topics=["orders", "bills-*"]) as producer:
        with raises(ConfigError, "client.topic-not-followed", topic="payments"):
            producer.produce("payments", b"one")
        producer.produce("bills-of-may", b"one")
        producer.kill()
    with raises(ConfigError, "client.setting-missing", key="group.id"):
        FailoverConsumer({}, clusters={"away": AWAY})
    consumer = FailoverConsumer({"group.id": "readers"}, clusters={"away": AWAY})
    with raises(ConfigError, "client.topic-is-an-expression"):
        consumer.subscribe(["^orders.*"])
    with pytest.raises(RuntimeError, match="subscribed to nothing"):
        consumer.poll(0.0)


def test_how_a_consumer_is_set_is_what_its_own_cluster_says() -> None:
    """A cluster's own settings count before those for all, and so does a push."""
    mine = {**AWAY, "enable.auto.commit": False, "partition.assignment.strategy": "cooperative-sticky"}
    clusters = {"one": {**mine, "group.id": "of one"}, "two": {**AWAY, "group.id": "of two"}}
    consumer = FailoverConsumer({"enable.auto.commit": "true"}, clusters=clusters)
    found = {name: consumer_mode(site.settings()) for name, site in consumer._discovery.sites.items()}
    assert found == {"one": ConsumerMode(False, True, True), "two": ConsumerMode(True, True, False)}
    assert consumer._name == "of one"
    with raises(ConfigError, "client.setting-missing", cluster="two", key="group.id"):
        FailoverConsumer({}, clusters={"one": clusters["one"], "two": AWAY})


def test_what_another_member_gives_back_is_read_from_the_groups_place(east: LabCluster, unique_topic: str) -> None:
    """As a Consumer does: what was handed out and not committed before it was taken away may be in nobody's hands."""
    east.create_topic(unique_topic, partitions=2)
    clusters = {"east": settings(east)}
    with FailoverProducer({}, clusters=clusters, topics=[unique_topic]) as producer:
        for number in range(10):
            producer.produce(unique_topic, b"%d" % number, partition=number % 2)
        assert producer.flush(60) == 0
    config = {"group.id": unique_topic, "auto.offset.reset": "earliest", "enable.auto.commit": False}

    def reads(*ours: FailoverConsumer, until: Callable[[], bool], into: list[bytes]) -> None:
        until_s = time.monotonic() + 90
        while not until():
            assert time.monotonic() < until_s
            into += [bytes(one.value() or b"") for reader in ours for one in reader.consume(10, 0.1) if not one.error()]

    first: list[bytes] = []
    again: list[bytes] = []
    with FailoverConsumer(config, clusters=clusters, name="one") as one:
        one.subscribe([unique_topic])
        reads(one, until=lambda: len(first) == 10, into=first)
        with FailoverConsumer(config, clusters=clusters, name="two") as two:
            two.subscribe([unique_topic])
            reads(one, two, until=lambda: len(two.assignment()) == len(one.assignment()) == 1, into=[])
        reads(one, until=lambda: len(one.assignment()) == 2, into=again)
        reads(one, until=lambda: len(set(again)) == 10, into=again)
    assert sorted(set(first)) == sorted(set(again))


def test_a_member_commits_no_place_of_a_partition_that_is_not_its_own() -> None:
    consumer = FailoverConsumer({"group.id": "readers"}, clusters={"away": AWAY})
    consumer._handed.next = {("orders", 0): 100, ("orders", 1): 7, ("bills", 0): 3}

    class Dealt(Consumer):
        def assignment(self) -> list[TopicPartition]:
            return [TopicPartition("orders", 1), TopicPartition("bills", 0)]

    dealt = Dealt({**AWAY, "group.id": "readers"})
    (place,) = consumer._handed.of(dealt, ["orders"])
    assert (place.topic, place.partition, place.offset) == ("orders", 1, 7)
    consumer._router.at = {"orders": "away"}
    member = consumer._router.members["away"] = Member({**AWAY, "group.id": "readers"}, "readers", "away")
    member.closer = ConsumerCloser(dealt, "readers", "away")
    consumer._router._revoked("away", None, dealt, [TopicPartition("orders", 1)])
    assert consumer._handed.of(dealt, ["orders"]) == []
    dealt.close()
