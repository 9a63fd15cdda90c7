"""Real clients and brokers are the judges of what is read and written here: all they send goes through our hands."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.kafka.protocol.serving.java_clients import JavaClients, java_clients
from tests.kafka.protocol.serving.relay import Relay
from twinshore.kafka.protocol import fetch, produce
from twinshore.kafka.protocol.apis import FETCH, PRODUCE
from twinshore.lab.cluster import LabCluster
from twinshore.lab.jars import KAFKA_NEWEST, KAFKA_OLDEST

VALUES = [f"value {number} " * 20 for number in range(30)]
# Versions of Produce and Fetch. Which go together does not matter: there are more of Fetch.
CAPS = [(max(3, highest - 5), highest) for highest in reversed(fetch.FETCH_VERSIONS)]


@pytest.fixture
def relay(east: LabCluster) -> Relay:
    host, _, port = east.bootstrap[0].rpartition(":")
    return Relay((host, int(port)))


@pytest.fixture(scope="module")
def newest() -> Iterator[JavaClients]:
    with java_clients(KAFKA_NEWEST) as clients:
        yield clients


def spoken(relay: Relay, key: int) -> dict[int, list[int]]:
    """By version, how many requests and answers came."""
    return {version: counts for (one, version), counts in relay.seen.items() if one == key}


def by_librdkafka(bootstrap: str, topic: str) -> list[str]:
    settings = {"bootstrap.servers": bootstrap, "log_level": 0}
    producer = Producer({**settings, "enable.idempotence": True, "linger.ms": 5})
    for value in VALUES:
        producer.produce(topic, value, partition=0)
    assert producer.flush(30) == 0
    consumer = Consumer({**settings, "group.id": "wire", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[str] = []
    try:
        while len(found) < len(VALUES):
            messages = consumer.consume(len(VALUES) - len(found), timeout=30)
            assert messages, f"{len(found)} of {len(VALUES)} records came"
            assert [message.error() for message in messages] == [None] * len(messages)
            found += [(message.value() or b"").decode() for message in messages]
    finally:
        consumer.close()
    return found


def test_librdkafka_lives_on_what_is_written_here_in_each_version_it_speaks(
    east: LabCluster, relay: Relay, unique_topic: str
) -> None:
    for cap_produce, cap_fetch in CAPS:
        topic = f"{unique_topic}-{cap_fetch}"
        east.create_topic(topic)
        relay.caps = {PRODUCE: cap_produce, FETCH: cap_fetch}
        with relay.open() as bootstrap:
            assert by_librdkafka(bootstrap, topic) == VALUES, f"Produce v{cap_produce}, Fetch v{cap_fetch}"
        assert relay.changed == []
    assert len(spoken(relay, PRODUCE)) >= 3
    assert len(spoken(relay, FETCH)) >= 3


def test_java_s_clients_live_on_what_is_written_here_in_every_version(
    east: LabCluster, relay: Relay, newest: JavaClients, unique_topic: str
) -> None:
    for cap_produce, cap_fetch in CAPS:
        topic = f"{unique_topic}-{cap_fetch}"
        east.create_topic(topic)
        relay.caps = {PRODUCE: cap_produce, FETCH: cap_fetch}
        with relay.open() as bootstrap:
            newest.produce(bootstrap, topic, VALUES, {"linger.ms": "5"})
            found = newest.consume(bootstrap, topic, len(VALUES), polls=30)
            assert found == VALUES, f"Produce v{cap_produce}, Fetch v{cap_fetch}"
        assert relay.changed == []
    assert set(spoken(relay, PRODUCE)) == set(produce.PRODUCE_VERSIONS)
    assert set(spoken(relay, FETCH)) == set(fetch.FETCH_VERSIONS)


def test_java_s_clients_of_old_do_too_and_who_wants_no_answer_gets_none(
    east: LabCluster, relay: Relay, unique_topic: str
) -> None:
    east.create_topic(unique_topic)
    with java_clients(KAFKA_OLDEST) as clients, relay.open() as bootstrap:
        settings = {"acks": "0", "enable.idempotence": "false", "compression.type": "gzip"}
        clients.produce(bootstrap, unique_topic, VALUES, settings)
        assert clients.consume(bootstrap, unique_topic, len(VALUES), polls=30) == VALUES
    assert relay.changed == []
    (counts,) = spoken(relay, PRODUCE).values()
    assert counts[0] > 0 and counts[1] == 0


@pytest.mark.parametrize("caps", [{}, {PRODUCE: 8, FETCH: 11}], ids=["newest", "without tags"])
def test_a_consumer_is_told_of_aborted_transactions(
    east: LabCluster, relay: Relay, unique_topic: str, caps: dict[int, int]
) -> None:
    east.create_topic(unique_topic)
    relay.caps = caps
    with relay.open() as bootstrap:
        settings = {"bootstrap.servers": bootstrap, "log_level": 0}
        producer = Producer({**settings, "transactional.id": unique_topic})
        producer.init_transactions(30)
        for value, end in ((b"undone", producer.abort_transaction), (b"done", producer.commit_transaction)):
            producer.begin_transaction()
            producer.produce(unique_topic, value, partition=0)
            assert producer.flush(30) == 0
            end(30)
        for _ in range(20):
            # Who has learnt its coordinator's address may fetch there, past us: then another one is asked.
            consumer = Consumer({**settings, "group.id": "wire", "isolation.level": "read_committed"})
            consumer.assign([TopicPartition(unique_topic, 0, 0)])
            try:
                message = consumer.poll(30)
                assert message is not None and message.error() is None
                assert message.value() == b"done"
            finally:
                consumer.close()
            if relay.aborted:
                break
    assert relay.changed == []
    assert relay.aborted > 0
