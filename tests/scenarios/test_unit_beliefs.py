"""What closed units lean on, shown on real brokers of two Kafka versions to a user who may not write markers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from typing import NamedTuple

import pytest

from testkit.access import LabSecurity
from testkit.clients import add_acl
from testkit.cluster import RigCluster
from tests.scenarios.incident_stage import QUICK
from twinshore.config.errors import KafkaError
from twinshore.config.model import TopicPartition
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.leader_queries import OffsetKind
from twinshore.kafka.protocol.error_codes import UNKNOWN_ERROR, Code
from twinshore.kafka.transactional_ids import TransactionalIds, TransactionalProducer
from twinshore.lab.jars import KAFKA_3, KAFKA_NEWEST
from twinshore.replication.task.core.batches import OffsetGap
from twinshore.replication.task.core.messages import PartitionConfig
from twinshore.replication.task.core.partition import PartitionReplicator
from twinshore.replication.task.core.resync import MarkerRunProgress, PendingMarkers
from twinshore.replication.task.lookups import (
    TransactionalIdWorker,
    inspect_target,
    may_write_markers,
    transactional_id_prefix,
)

pytestmark = pytest.mark.long

PARTITIONS = 4
TIMEOUT_S = 20.0
PREFIX = transactional_id_prefix("a->b", 17)


class Stage(NamedTuple):
    """`bob` has the rights on transactional ids and topics, and none on the cluster but those of any producer."""

    lab: RigCluster
    admin: KafkaCluster
    bob: KafkaCluster


@pytest.fixture(scope="module", params=[KAFKA_NEWEST, KAFKA_3])
def stage(request: pytest.FixtureRequest) -> Iterator[Stage]:
    with RigCluster(
        "units",
        version=request.param,
        brokers=1,
        jvm_flags=QUICK,
        heap_mb=384,
        security=LabSecurity.SASL_PLAIN,
        authorizer=True,
        users=("bob", "ann", "eve"),
        settings={"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500"},
    ) as lab:
        for operation in ("describe", "write"):
            add_acl(lab.cluster, "bob", operation, "transactional_id", "*")
        for operation in ("describe", "read", "write"):
            add_acl(lab.cluster, "bob", operation, "topic", "*")
        with closing(KafkaCluster(lab.cluster)) as admin, closing(KafkaCluster(lab.cluster_as("bob"))) as bob:
            yield Stage(lab, admin, bob)


@pytest.fixture
def parts(stage: Stage, unique_topic: str) -> list[TopicPartition]:
    stage.lab.create_topic(unique_topic, partitions=PARTITIONS, copies=1)
    return [TopicPartition(unique_topic, number) for number in range(PARTITIONS)]


def talk_of(stage: Stage) -> TransactionalIds:
    return TransactionalIds(stage.bob, patience_s=TIMEOUT_S, go=lambda: None)


def ends(stage: Stage, parts: list[TopicPartition], kind: OffsetKind = OffsetKind.LOG_END) -> list[int]:
    return list(stage.admin.list_offsets(parts, kind).values())


def run_at(named: TopicPartition, base: int) -> MarkerRunProgress:
    """One marker for this partition, at this offset."""
    track = PartitionReplicator.of(PartitionConfig(named.topic, named.partition, "aa", "bb"), (17, 0), 0, 1 << 20)
    return MarkerRunProgress(PendingMarkers(track, OffsetGap(base, base + 1)), base, 1)


def unit(talk: TransactionalIds, writer: TransactionalProducer, parts: list[TopicPartition]) -> None:
    assert not talk.begin(writer, parts)
    talk.abort(writer)
    talk.complete(writer)


def test_the_right_to_write_markers_is_told_without_writing(stage: Stage) -> None:
    assert may_write_markers(stage.admin)
    assert not may_write_markers(stage.bob)


@pytest.mark.parametrize(("user", "operation"), [("ann", "alter"), ("eve", "cluster_action")])
def test_either_right_on_the_cluster_is_enough(stage: Stage, user: str, operation: str) -> None:
    with closing(KafkaCluster(stage.lab.cluster_as(user))) as kafka:
        assert not may_write_markers(kafka)
        add_acl(stage.lab.cluster, user, operation, "broker", "kafka-cluster")
        deadline = time.monotonic() + 10
        while not may_write_markers(kafka):
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_a_closed_unit_is_one_marker_in_each_partition(stage: Stage, parts: list[TopicPartition]) -> None:
    talk = talk_of(stage)
    writer = talk.acquire(f"{PREFIX}one", TIMEOUT_S)
    for number in range(1, 21):
        unit(talk, writer, parts)
        assert ends(stage, parts) == [number] * PARTITIONS
    assert ends(stage, parts, OffsetKind.LAST_STABLE) == [20] * PARTITIONS
    seen = inspect_target(stage.admin, stage.admin, 1, {parts[0]: parts[0]})[parts[0]]
    assert seen.last_batch
    assert seen.last_batch.unit
    assert (seen.last_batch.producer_id, seen.last_batch.last_offset) == (writer.producer_id, 19)


def test_who_comes_next_closes_what_was_open(stage: Stage, parts: list[TopicPartition]) -> None:
    talk = talk_of(stage)
    dead = talk.acquire(f"{PREFIX}heir", TIMEOUT_S)
    assert not talk.begin(dead, parts[:2])
    assert talk.open_of(PREFIX) == set(parts[:2])
    assert talk.open_of("another") == set()
    heir = talk.acquire(dead.name, TIMEOUT_S)
    assert ends(stage, parts) == [1, 1, 0, 0], "its marker is there as soon as the id is taken"
    assert talk.open_of(PREFIX) == set()
    for attempt in (lambda: talk.begin(dead, parts), lambda: talk.abort(dead)):
        with pytest.raises(KafkaError) as caught:
            attempt()
        assert caught.value.code in (Code.invalid_producer_epoch, Code.producer_fenced)
    unit(talk, heir, parts)
    assert ends(stage, parts) == [2, 2, 1, 1]


def test_the_coordinator_closes_what_nobody_does(stage: Stage, parts: list[TopicPartition]) -> None:
    talk = talk_of(stage)
    dead = talk.acquire(f"{PREFIX}late", 1.0)
    assert not talk.begin(dead, parts[:1])
    with pytest.raises(KafkaError) as caught:
        talk.complete(dead)
    assert caught.value.code == Code.producer_fenced, "by the coordinator itself"
    assert ends(stage, parts[:1]) == [1]


def test_a_partition_that_is_not_there_keeps_the_unit_shut(stage: Stage, parts: list[TopicPartition]) -> None:
    talk = talk_of(stage)
    writer = talk.acquire(f"{PREFIX}gone", TIMEOUT_S)
    away = TopicPartition(parts[0].topic, PARTITIONS)
    assert talk.begin(writer, [*parts, away]) == {away: Code.unknown_topic_or_partition}
    assert talk.open_of(PREFIX) == set()
    unit(talk, writer, parts)
    assert ends(stage, parts) == [1] * PARTITIONS


def test_markers_wait_where_the_twin_ends_elsewhere_than_it_did(stage: Stage, parts: list[TopicPartition]) -> None:
    with closing(
        TransactionalIdWorker(KafkaCluster(stage.lab.cluster_as("bob")), f"{PREFIX}0.9", lambda: None)
    ) as slot:
        there, elsewhere = run_at(parts[0], 0), run_at(parts[1], 3)
        assert slot.round([there, elsewhere]) == [(elsewhere, elsewhere.answer(UNKNOWN_ERROR))]
        assert ends(stage, parts[:2]) == [0, 0], "no marker is written while one of them is in doubt"
        assert slot.round([there]) == [(there, there.answer(0, 1))]
        assert ends(stage, parts[:2]) == [1, 0]


def test_without_the_right_to_the_id_the_refusal_names_it(stage: Stage) -> None:
    slot = TransactionalIdWorker(KafkaCluster(stage.lab.cluster_as("eve")), f"{PREFIX}0.0", lambda: None)
    try:
        with pytest.raises(KafkaError) as caught:
            slot.hold()
        assert caught.value.code == Code.transactional_id_authorization_failed
        assert "transactional id twinshore.a->b.17.0.0" in caught.value.hint
    finally:
        slot.close()
