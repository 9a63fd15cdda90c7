"""Rules about brokers and Kafka's own topics: where each fires, and just beside it does not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.advisor.seen_kit import SOUND, broker, found, having, part, topic
from twinshore.advisor.core.model import (
    OFFSETS_TOPIC,
    SHARES_TOPIC,
    TRANSACTIONS_TOPIC,
    BrokerSnapshot,
    ClusterSnapshot,
    TopicConfigChange,
)


def brokers(*those: BrokerSnapshot, finalized: int = 25) -> ClusterSnapshot:
    return replace(SOUND, brokers=those, finalized=finalized)


def test_racks_that_are_not_set() -> None:
    (one,) = found(brokers(broker(1, "a"), broker(2, ""), broker(3, "")), "racks-unset")
    assert one.evidence == "no broker.rack at broker 2, 3"
    assert not found(brokers(broker(1, "a"), broker(2, "b"), broker(3, "c")), "racks-unset")
    assert not found(brokers(broker(1, "")), "racks-unset"), "one broker stands where it stands"


def test_brokers_of_several_versions() -> None:
    (one,) = found(brokers(broker(1), broker(2, supports=21), broker(3)), "mixed-versions")
    assert one.evidence == "metadata.version: broker 2 up to 21 (Kafka 3.9); broker 1, 3 up to 25 (Kafka 4.0)"
    assert not found(brokers(broker(1), broker(2), broker(3, supports=0)), "mixed-versions"), "3 could not be asked"


def test_an_upgrade_that_is_not_finished() -> None:
    (one,) = found(brokers(broker(1), broker(2), finalized=21), "upgrade-unfinished")
    assert one.commands[0].endswith("upgrade --feature metadata.version=25")
    assert not found(brokers(broker(1), broker(2)), "upgrade-unfinished")
    assert not found(brokers(broker(1), broker(2, supports=21), finalized=21), "upgrade-unfinished"), "not yet"


@pytest.mark.parametrize(
    ("rule", "setting", "weak", "sound"),
    [
        ("auto-create", "auto.create.topics.enable", "true", "false"),
        ("offsets-retention", "offsets.retention.minutes", "10079", "10080"),
        ("transaction-timeout", "transaction.max.timeout.ms", "900001", "900000"),
        ("producer-expiry", "producer.id.expiration.ms", "86399999", "86400000"),
        ("producer-expiry", "transactional.id.expiration.ms", "86399999", "86400000"),
        ("new-topics", "default.replication.factor", "2", "3"),
        ("new-topics", "min.insync.replicas", "1", "2"),
    ],
)
def test_a_setting_of_one_broker_is_enough(rule: str, setting: str, weak: str, sound: str) -> None:
    (one,) = found(brokers(broker(1), broker(2, also={setting: weak})), rule)
    assert f"{setting}={weak}" in one.evidence
    assert "broker 2" in one.evidence and "broker 1" not in one.evidence
    assert one.commands or setting in one.by_hand
    assert not found(brokers(broker(1), broker(2, also={setting: sound})), rule)
    blind = brokers(broker(1), replace(broker(2), settings=None))
    assert not found(blind, rule)


def test_a_default_of_brokers_is_raised_behind_the_topics_that_have_none_of_their_own() -> None:
    """The same value holds for these at once, and those with few replicas would refuse writers."""
    weak = replace(SOUND, brokers=(broker(1), broker(2, min_insync_replicas="1")))
    raised = "--alter --entity-type brokers --entity-default --add-config min.insync.replicas=2"
    (one,) = found(weak, "new-topics")
    assert [line.endswith(raised) for line in one.commands] == [True] and one.by_hand == ""
    few = topic("few", part(0, 1, 2), own=False, min_insync_replicas="1")
    (one,) = found(having(few, topic("own", part(0, 1, 2), min_insync_replicas="1"), seen=weak), "new-topics")
    assert one.commands == ()
    first, _, then = one.by_hand.partition("; then: ")
    assert "kafka-configs.sh" in first
    assert first.endswith("--topic few --add-config min.insync.replicas=1") and then.endswith(raised)
    away = topic("away", part(0, 1, 2, 3, isr=(1, 2)), own=False, min_insync_replicas="1")
    (one,) = found(having(away, seen=weak), "new-topics")
    assert one.commands == () and one.by_hand.endswith(raised)
    (one,) = found(replace(weak, in_part=True), "new-topics")
    assert one.commands == () and "--add-config" not in one.by_hand


@pytest.mark.parametrize(
    ("rule", "name"),
    [("offsets-topic", OFFSETS_TOPIC), ("transactions-topic", TRANSACTIONS_TOPIC), ("shares-topic", SHARES_TOPIC)],
)
def test_kafkas_own_topics(rule: str, name: str) -> None:
    weak = topic(name, part(0, 1, 2), internal=True, min_insync_replicas="1")
    (one,) = found(having(topic("orders"), weak), rule)
    assert one.evidence == "2 replicas and min.insync.replicas=1"
    assert [line.split()[0] for line in one.commands] == ["kafka-reassign-partitions.sh", "kafka-configs.sh"]
    assert one.safe is None, "with two replicas it would stop writers"
    (alone,) = found(having(topic("orders"), topic(name, part(0, 1), internal=True, min_insync_replicas="1")), rule)
    assert [line.split()[0] for line in alone.commands] == ["kafka-reassign-partitions.sh"]
    assert "kafka-configs.sh" in alone.by_hand
    (one,) = found(having(topic("orders"), topic(name, internal=True, min_insync_replicas="1")), rule)
    assert one.safe == TopicConfigChange(name, (("min.insync.replicas", "2"),))
    behind = topic(name, part(0, 1, 2, 3, isr=(1, 2)), internal=True, min_insync_replicas="1")
    (one,) = found(having(topic("orders"), behind), rule)
    assert (one.commands, one.safe) == ((), None)
    assert "kafka-configs.sh" in one.by_hand
    assert not found(having(topic("orders"), topic(name, internal=True)), rule)


def test_kafkas_own_topics_before_they_are_made() -> None:
    bare = replace(SOUND, topics=(topic("orders"),))
    assert not found(bare, "offsets-topic") and not found(bare, "shares-topic")
    weak = replace(bare, brokers=(broker(1), broker(2, offsets_topic_replication_factor="1")))
    (one,) = found(weak, "offsets-topic")
    assert "offsets.topic.replication.factor=1 at broker 2" in one.evidence
