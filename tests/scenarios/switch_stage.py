"""A guarded cluster of three brokers for what a switch leans on: who is who there, and small words for what is done."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import NamedTuple

from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as ClientTopicPartition

from testkit.access import LabSecurity
from testkit.cluster import RigCluster
from tests.scenarios.incident_stage import QUICK
from twinshore.config.model import TopicPartition
from twinshore.kafka.admin import create_acls, delete_acls, read_acls
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.protocol.access_control import Acl, AclOperation, AclPermission, PatternType, ResourceType
from twinshore.lab.clients import client_settings

# Transactions that are late, and logs to compact, are looked for more often than every ten or fifteen seconds.
SETTINGS = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "log.cleaner.backoff.ms": "500",
    # So that what is forgotten can be seen to be forgotten.
    "producer.id.expiration.check.interval.ms": "1000",
}
USERS = ("anna", "bob")


class Stage(NamedTuple):
    """`kafka` is the operator, a super user; `anna` and `bob` may do what rules say."""

    lab: RigCluster
    kafka: KafkaCluster
    anna: KafkaCluster

    @property
    def newest(self) -> bool:
        return self.lab.version.startswith("4.")

    @property
    def nodes(self) -> list[int]:
        return [broker.node_id for broker in self.lab.brokers]


@contextmanager
def staged(version: str) -> Iterator[Stage]:
    with (
        RigCluster(
            "switch",
            version=version,
            brokers=3,
            jvm_flags=QUICK,
            heap_mb=256,
            security=LabSecurity.SASL_PLAIN,
            authorizer=True,
            users=USERS,
            settings=SETTINGS,
        ) as lab,
        closing(KafkaCluster(lab.cluster)) as kafka,
        closing(KafkaCluster(lab.cluster_as("anna"))) as anna,
    ):
        yield Stage(lab, kafka, anna)


def until(holds: Callable[[], bool], within_s: float = 30.0) -> float:
    """Waits until it holds; how long that took."""
    began = time.monotonic()
    while not holds():
        assert time.monotonic() - began < within_s, "it did not come true"
        time.sleep(0.01)
    return time.monotonic() - began


def seen(lab: RigCluster, named: TopicPartition, isolation: str) -> list[int]:
    """The offsets that a consumer is given, up to the partition's end."""
    settings = {"group.id": f"seen-{isolation}", "isolation.level": isolation, "enable.partition.eof": True}
    consumer = Consumer({**client_settings(lab.cluster), **settings})
    found: list[int] = []
    try:
        consumer.assign([ClientTopicPartition(named.topic, named.partition, 0)])
        while True:
            message = consumer.poll(20.0)
            assert message is not None
            if error := message.error():
                assert error.name() == "_PARTITION_EOF", error
                return found
            found.append(message.offset() or 0)
    finally:
        consumer.close()


def write_rule(
    topic: str,
    who: str = "User:anna",
    *,
    deny: bool = False,
    pattern: PatternType = PatternType.LITERAL,
) -> Acl:
    permission = AclPermission.DENY if deny else AclPermission.ALLOW
    return Acl(ResourceType.TOPIC, topic, pattern, who, "*", AclOperation.WRITE, permission)


def rules_of_ids(who: str = "User:anna") -> list[Acl]:
    """What a transactional producer needs beside its topics."""
    everything = (ResourceType.TRANSACTIONAL_ID, "*", PatternType.LITERAL, who, "*")
    return [
        Acl(*everything, operation, AclPermission.ALLOW) for operation in (AclOperation.WRITE, AclOperation.DESCRIBE)
    ]


def add_rules(stage: Stage, rules: Sequence[Acl]) -> None:
    """Returns when every broker shows them."""
    assert not create_acls(stage.kafka, rules)
    until(lambda: all(set(rules) <= (read_acls(stage.kafka, node) or set()) for node in stage.nodes))


def drop_rules(stage: Stage, rules: Sequence[Acl]) -> None:
    """Returns when no broker shows one of them."""
    assert not delete_acls(stage.kafka, rules)
    until(lambda: not any(set(rules) & (read_acls(stage.kafka, node) or set()) for node in stage.nodes))
