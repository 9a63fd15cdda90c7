"""What a home took and never answered is looked for at the new home, and is there once."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer
from confluent_kafka import TopicPartition as ClientTopicPartition

from testkit.cluster import RigCluster
from tests.conftest import ClusterFactory
from tests.scenarios.spool_stage import SpoolingProcess, key_of
from tests.scenarios.test_client_homes import Heard, sites
from tests.scenarios.test_following_writers import Hand, records, until
from twinshore.client import FailoverProducer
from twinshore.client.core.spool_format import SpoolRecord
from twinshore.client.spool import Spool, SpoolFiles, load_spool
from twinshore.config.frozen import CALL_HEADER
from twinshore.config.model import TopicPartition
from twinshore.kafka.clock import wall_ms
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.leader_queries import OffsetKind
from twinshore.lab.clients import client_settings
from twinshore.routing.core.home_records import HomeState

PARTITIONS, CALLS, CROSSED, MANY = 2, 400, 150, 50_000
LATE_MS = 4_000  # so long each byte is on its way: an answer comes when its cluster is gone


@pytest.fixture
def east(cluster_factory: ClusterFactory) -> RigCluster:
    return cluster_factory("east", via_proxy=True)


def behind_its_proxy(east: RigCluster, *others: RigCluster) -> dict[str, dict[str, object]]:
    return {"east": dict(client_settings(east.wan_cluster)), **sites(*others)}


def whole(lab: RigCluster, topic: str, partition: int) -> list[Message]:
    """Each record as it is, with its headers and its time."""
    consumer = Consumer({**client_settings(lab.cluster), "group.id": "whole", "enable.partition.eof": True})
    found: list[Message] = []
    try:
        consumer.assign([ClientTopicPartition(topic, partition, 0)])
        while True:
            for message in consumer.consume(500, 1.0):
                error = message.error()
                if error is not None and error.code() == KafkaError._PARTITION_EOF:
                    return found
                assert error is None, error.str()
                found.append(message)
    finally:
        consumer.close()


def copied(east: RigCluster, west: RigCluster, topic: str, counts: Sequence[int]) -> None:
    """The test is the mirror: it has copied so many of each partition when east was gone."""
    producer = Producer({**client_settings(west.cluster), "enable.idempotence": True})
    for partition, count in enumerate(counts):
        for one in whole(east, topic, partition)[:count]:
            time_ms = one.timestamp()[1]
            producer.produce(topic, one.value(), one.key(), partition, headers=one.headers(), timestamp=time_ms)
    assert producer.flush(60) == 0


def numbers(lab: RigCluster, topic: str) -> list[list[int]]:
    return [[int(value) for _, _, value in records(lab, topic, partition)] for partition in range(PARTITIONS)]


def all_taken(east: KafkaCluster, topic: str, count: int) -> None:
    parts = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    until(lambda: sum(east.list_offsets(parts, OffsetKind.LOG_END).values()) == count, 60, "east takes them all")


@pytest.mark.claim(
    "client", "recognised", "forced: what the dead home took and sent on, and never answered, is there once"
)
@pytest.mark.parametrize("spooled", [pytest.param(False, marks=pytest.mark.long), True])
def test_what_had_crossed_unanswered_is_there_once(
    east: RigCluster, west: RigCluster, unique_topic: str, tmp_path: Path, spooled: bool
) -> None:
    for lab in (east, west):
        lab.create_topic(unique_topic, partitions=PARTITIONS)
    heard, spool = Heard(), tmp_path / "spool" if spooled else None
    where = behind_its_proxy(east, west)
    with (
        closing(KafkaCluster(east.cluster, patience_s=10)) as here,
        closing(KafkaCluster(west.cluster, patience_s=10)) as there,
        FailoverProducer({"linger.ms": 50}, clusters=where, topics=[unique_topic], spool=spool, recognise=True) as ours,
    ):
        ours.produce(unique_topic, b"-1", b"key 0", on_delivery=heard)
        assert ours.flush(60) == 0
        east.proxy(0).set_delay_ms(LATE_MS)
        for number in range(CALLS):
            ours.produce(unique_topic, b"%d" % number, b"key %d" % (number % 10), on_delivery=heard)
        all_taken(here, unique_topic, 1 + CALLS)
        east.proxy(0).cut()
        ours.poll(0)
        assert len(heard.acked) == 1, "no answer has come"
        copied(east, west, unique_topic, [CROSSED, CROSSED // 2])
        east.brokers[0].pause()
        Hand(unique_topic, there).say("west", 2, 0, HomeState.SETTLED)
        assert ours.flush(120) == 0
    assert not heard.errors
    assert sorted(map(int, heard.acked)) == list(range(-1, CALLS)), "each is told of once"
    found = numbers(west, unique_topic)
    assert sorted(one for some in found for one in some) == list(range(-1, CALLS)), "each is there once"
    assert all(some == sorted(some) for some in found), "in order"
    print(f"told: {CROSSED + CROSSED // 2} of {CALLS} had crossed and were not answered: 0 lost, 0 are there twice")


@pytest.mark.long
def test_what_a_killed_process_had_sent_is_not_sent_again_by_the_next_one(
    west: RigCluster, unique_topic: str, tmp_path: Path
) -> None:
    """Many calls lie on the disk; a process is killed while it sends them, and the next one goes on."""
    west.create_topic(unique_topic, partitions=PARTITIONS)
    spool = Spool(tmp_path / "spool")
    made = [
        SpoolRecord(
            *(number, unique_topic, b"%d" % number, key_of(number), -1, wall_ms()),
            headers=((CALL_HEADER, b"before-%d" % number),),
            made_ms=wall_ms(),
        )
        for number in range(MANY)
    ]
    batch = spool.keep(made)
    assert batch is not None
    spool.commit(batch)
    spool.close()
    ours = SpoolingProcess("send", sites(west), unique_topic, tmp_path / "spool", tmp_path / "said")
    try:
        until(lambda: any(left < MANY * 0.9 for left in ours.said("left")[-20:]), 60, "it sends")
    finally:
        ours.kill()
    left = load_spool(SpoolFiles(tmp_path / "spool")).tallies[unique_topic].records
    there = sum(map(len, numbers(west, unique_topic)))
    assert there > MANY - left, "some of those that are left are there, and were not answered"
    with FailoverProducer(
        {}, clusters=sites(west), topics=[unique_topic], spool=tmp_path / "spool", recognise=True
    ) as after:
        after.produce(unique_topic, b"%d" % MANY, key_of(MANY))
        assert after.close(120) == 0
    found = numbers(west, unique_topic)
    assert sorted(one for some in found for one in some) == list(range(MANY + 1)), "each is there once"
    print(f"told: {there - (MANY - left)} of {left} that were left had been sent: 0 lost, 0 are there twice")
