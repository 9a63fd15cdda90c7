"""A sound cluster as values, from which a test takes away what its rule is about."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from twinshore.advisor.core.advice_report import build_advice
from twinshore.advisor.core.model import (
    OFFSETS_TOPIC,
    TRANSACTIONS_TOPIC,
    AdvisorPolicy,
    BrokerSnapshot,
    ClusterSnapshot,
    ConfigValue,
    ConsumerGroupSnapshot,
    EarlierPosition,
    Finding,
    GroupPosition,
    PartitionSnapshot,
    TopicSnapshot,
)
from twinshore.advisor.operations.advice_on_cluster import RULES

NOW_MS = 1_800_000_000_000
HOUR_MS = 3_600_000
NONE: Mapping[str, str] = MappingProxyType({})
SOUND_BROKER = {
    "auto.create.topics.enable": "false",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.retention.minutes": "10080",
    "offsets.topic.replication.factor": "3",
    "producer.id.expiration.ms": "86400000",
    "replica.fetch.max.bytes": "1048576",
    "transaction.max.timeout.ms": "900000",
    "transaction.state.log.replication.factor": "3",
    "transactional.id.expiration.ms": "604800000",
}
SOUND_TOPIC = {
    "cleanup.policy": "delete",
    "flush.messages": "9223372036854775807",
    "flush.ms": "9223372036854775807",
    "max.message.bytes": "1048588",
    "min.insync.replicas": "2",
    "retention.ms": "604800000",
    "unclean.leader.election.enable": "false",
}


def dotted(settings: dict[str, str]) -> dict[str, str]:
    return {name.replace("_", "."): value for name, value in settings.items()}


def broker(
    node: int, rack: str | None = None, supports: int = 25, also: Mapping[str, str] = NONE, **settings: str
) -> BrokerSnapshot:
    """Settings with "_" where Kafka has a dot, or as Kafka has them in `also`."""
    told = {**SOUND_BROKER, **dotted(settings), **also}
    known = {name: ConfigValue(value) for name, value in told.items()}
    return BrokerSnapshot(node, f"zone-{node}" if rack is None else rack, known, supports)


def part(
    number: int, *replicas: int, isr: tuple[int, ...] | None = None, leader: int | None = None
) -> PartitionSnapshot:
    in_sync = replicas if isr is None else isr
    return PartitionSnapshot(number, replicas[0] if leader is None else leader, replicas, in_sync)


def topic(
    name: str,
    *parts: PartitionSnapshot,
    internal: bool = False,
    own: bool = True,
    also: Mapping[str, str] = NONE,
    **settings: str,
) -> TopicSnapshot:
    """Settings that are given are the topic's own, or the brokers' defaults."""
    told = {**dotted(settings), **also}
    known = {key: ConfigValue(value, own and key in told) for key, value in {**SOUND_TOPIC, **told}.items()}
    return TopicSnapshot(name, parts or (part(0, 1, 2, 3), part(1, 2, 3, 1)), known, internal)


def place(offset: int, end: int, *, start: int = 0, name: str = "orders", number: int = 0) -> GroupPosition:
    return GroupPosition(name, number, offset, start, end)


def group(*places: GroupPosition, name: str = "billing", live: bool = True) -> ConsumerGroupSnapshot:
    return ConsumerGroupSnapshot(name, live, places)


SOUND = ClusterSnapshot(
    "east",
    ("kafka-1:9092", "kafka-2:9092"),
    NOW_MS,
    "id-of-east",
    finalized=25,
    brokers=(broker(1), broker(2), broker(3)),
    topics=(
        topic(OFFSETS_TOPIC, internal=True),
        topic(TRANSACTIONS_TOPIC, internal=True),
        topic("orders"),
    ),
    groups=(group(place(100, 100), replace(place(50, 60, number=1), before=EarlierPosition(40, 55, 10.0))),),
)


def having(*topics: TopicSnapshot, seen: ClusterSnapshot = SOUND) -> ClusterSnapshot:
    """The cluster with these in place of `orders`, or of those of their names."""
    names = {one.name for one in topics} | {"orders"}
    return replace(seen, topics=(*(one for one in seen.topics if one.name not in names), *topics))


def with_group(*groups: ConsumerGroupSnapshot, seen: ClusterSnapshot = SOUND) -> ClusterSnapshot:
    return replace(seen, groups=groups)


def found(seen: ClusterSnapshot, rule: str, policy: AdvisorPolicy | None = None) -> list[Finding]:
    """What this rule finds."""
    return [one for one in build_advice(seen, policy or AdvisorPolicy(), RULES).findings if one.rule == rule]
