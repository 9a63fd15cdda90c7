"""Rules about topics and partitions: where each fires, and just beside it does not."""

from __future__ import annotations

from dataclasses import replace

from tests.advisor.seen_kit import SOUND, broker, found, having, part, topic
from twinshore.advisor import RULES, Policy, advise
from twinshore.advisor.rule import Change
from twinshore.advisor.seen import Seen

WHERE = "--bootstrap-server kafka-1:9092,kafka-2:9092"


def test_nothing_is_found_on_a_sound_cluster() -> None:
    assert advise(SOUND, Policy(), RULES).findings == ()


def test_one_replica() -> None:
    (one,) = found(having(topic("orders", part(0, 1), part(1, 2, 3, 1), min_insync_replicas="1")), "single-copy")
    assert one.subject == "topic orders"
    assert one.evidence.startswith("one replica of partition 0; nothing makes its broker flush")
    text = '{"version":1,"partitions":[{"topic":"orders","partition":0,"replicas":[1,2,3]}]}'
    assert one.commands == (
        f"kafka-reassign-partitions.sh {WHERE} --reassignment-json-file <(echo '{text}') --execute",
    )
    assert one.safe is None, "records would be copied"
    assert not found(having(topic("orders", part(0, 1, 2))), "single-copy")


def test_a_copy_cannot_be_had_where_brokers_are_too_few() -> None:
    alone = replace(having(topic("orders", part(0, 1))), brokers=(broker(1),))
    (one,) = found(alone, "single-copy")
    assert one.commands == ()
    assert one.by_hand == "start 2 more brokers, then reassign the topic's partitions"


def test_fewer_replicas_than_wanted() -> None:
    (one,) = found(having(topic("orders", part(0, 1, 2), part(1, 1, 2, 3))), "few-copies")
    assert one.evidence == "2 replicas"
    assert '"partition":0,"replicas":[1,2,3]' in one.commands[0] and '"partition":1' not in one.commands[0]
    assert not found(having(topic("orders", part(0, 1, 2, 3))), "few-copies")
    assert not found(having(topic("orders", part(0, 1))), "few-copies"), "single-copy says it"


def test_min_insync_below_a_majority() -> None:
    (one,) = found(having(topic("orders", min_insync_replicas="1")), "min-insync-low")
    assert one.evidence == "min.insync.replicas=1 of 3 replicas; 2 would be more than half"
    assert one.commands == (f"kafka-configs.sh {WHERE} --alter --topic orders --add-config min.insync.replicas=2",)
    assert one.safe == Change("orders", (("min.insync.replicas", "2"),))
    assert not found(having(topic("orders", min_insync_replicas="2")), "min-insync-low")
    five = having(topic("orders", part(0, 1, 2, 3, 4, 5), min_insync_replicas="2"))
    assert found(five, "min-insync-low")[0].safe == Change("orders", (("min.insync.replicas", "3"),))


def test_min_insync_is_not_raised_by_itself_where_one_more_loss_would_stop_writers() -> None:
    (one,) = found(having(topic("orders", part(0, 1, 2, 3, isr=(1, 2)), min_insync_replicas="1")), "min-insync-low")
    assert one.commands and one.safe is None
    (two,) = found(having(topic("orders", part(0, 1, 2), min_insync_replicas="1")), "min-insync-low")
    assert two.safe is None
    assert [line.split()[0] for line in two.commands] == ["kafka-reassign-partitions.sh"]
    assert two.by_hand.startswith("once the third replica is in sync: kafka-configs.sh")


def test_min_insync_of_all_replicas_stops_writers_with_one_broker_down() -> None:
    (one,) = found(having(topic("orders", min_insync_replicas="3")), "min-insync-high")
    assert one.evidence == "min.insync.replicas=3 of 3 replicas"
    assert one.safe == Change("orders", (("min.insync.replicas", "2"),))
    assert not found(having(topic("orders", min_insync_replicas="2")), "min-insync-high")
    assert not found(having(topic("orders", part(0, 1), min_insync_replicas="1")), "min-insync-high")
    (two,) = found(having(topic("orders", part(0, 1, 2), min_insync_replicas="2")), "min-insync-high")
    assert two.safe is None and "kafka-reassign-partitions.sh" in two.commands[0]


def test_unclean_election_of_a_topic_and_by_default() -> None:
    (one,) = found(having(topic("orders", unclean_leader_election_enable="true")), "unclean-election")
    assert one.evidence == "unclean.leader.election.enable=true, set on the topic"
    assert one.safe == Change("orders", (("unclean.leader.election.enable", "false"),))
    waits = topic("orders", part(0, 1, 2, 3, isr=(1,), leader=-1), unclean_leader_election_enable="true")
    assert found(having(waits), "unclean-election")[0].safe is None, "it may be the only way back"
    assert not found(having(topic("orders", unclean_leader_election_enable="false")), "unclean-election")


def test_forced_flushes() -> None:
    (one,) = found(having(topic("orders", flush_messages="999", flush_ms="999")), "flush-forced")
    assert one.evidence == "flush.messages=999 and flush.ms=999"
    assert one.commands[0].endswith("--topic orders --delete-config flush.messages,flush.ms")
    assert not found(having(topic("orders", flush_messages="1000", flush_ms="1000")), "flush-forced")
    assert not found(having(topic("orders", part(0, 1), flush_messages="1")), "flush-forced"), "it is all it has"


def test_messages_beyond_a_followers_fetch() -> None:
    (one,) = found(having(topic("orders", max_message_bytes="1048589")), "message-size")
    assert one.evidence == "max.message.bytes=1048589 where broker 1 has replica.fetch.max.bytes=1048576"
    assert not found(having(topic("orders", max_message_bytes="1048588")), "message-size"), "Kafka's own default"


def _in_two_zones(seen: Seen) -> Seen:
    return replace(seen, brokers=(broker(1, "a"), broker(2, "a"), broker(3, "b"), broker(4, "a")))


def test_all_replicas_in_one_rack() -> None:
    (one,) = found(_in_two_zones(having(topic("orders", part(0, 1, 2, 4), part(1, 1, 2, 3)))), "one-rack")
    assert one.evidence == "all replicas of partition 0 (rack a)"
    assert '"partition":0,"replicas":[1,2,3]' in one.commands[0] and '"partition":1' not in one.commands[0]
    few = _in_two_zones(having(topic("orders", part(0, 1, 2))))
    assert found(few, "one-rack")[0].commands == found(few, "few-copies")[0].commands, "one must not undo the other"
    assert not found(_in_two_zones(having(topic("orders", part(0, 1, 2, 3)))), "one-rack")
    assert not found(_in_two_zones(having(topic("orders", part(0, 1)))), "one-rack"), "single-copy says it"


def test_no_leader() -> None:
    (one,) = found(having(topic("orders", part(0, 1, 2, 3, isr=(3,), leader=-1))), "offline")
    assert one.evidence == "no leader of partition 0 (replicas 1,2,3, in sync 3)"
    assert one.by_hand.startswith("start broker 3 again")
    assert not found(having(topic("orders", part(0, 1, 2, 3, isr=(1,)))), "offline")


def test_fewer_in_sync_than_asked_for() -> None:
    (one,) = found(having(topic("orders", part(0, 1, 2, 3, isr=(1,)))), "below-min-insync")
    assert one.evidence == "min.insync.replicas=2, partition 0 (replicas 1,2,3, in sync 1)"
    assert one.by_hand == "see why broker 2, 3 does not keep up: its log, its disk, its network"
    assert not found(having(topic("orders", part(0, 1, 2, 3, isr=(1, 2)))), "below-min-insync")


def test_a_replica_that_is_not_in_sync() -> None:
    away = replace(having(topic("orders", part(0, 1, 2, 3, isr=(1, 2)))), brokers=(broker(1), broker(2)))
    (one,) = found(away, "under-replicated")
    assert one.by_hand == "bring broker 3 back: it does not answer the cluster"
    assert not found(having(topic("orders", part(0, 1, 2, 3))), "under-replicated")


def test_a_leader_that_is_not_the_preferred_one() -> None:
    (one,) = found(having(topic("orders", part(0, 1, 2, 3, leader=2), part(1, 2, 3, 1))), "leader-elsewhere")
    assert one.evidence == "leader of partition 0 (broker 2, not 1)"
    assert one.commands == (
        f"kafka-leader-election.sh {WHERE} --election-type preferred --path-to-json-file"
        ' <(echo \'{"partitions":[{"topic":"orders","partition":0}]}\')',
    )
    behind = having(topic("orders", part(0, 1, 2, 3, isr=(2, 3), leader=2)))
    assert found(behind, "leader-elsewhere")[0].commands == (), "it cannot lead yet"
    assert not found(having(topic("orders", part(0, 1, 2, 3))), "leader-elsewhere")


def test_what_could_not_be_seen_is_judged_by_no_rule() -> None:
    blind = having(replace(topic("orders"), settings=None))
    for rule in ("min-insync-low", "min-insync-high", "unclean-election", "flush-forced", "message-size"):
        assert not found(blind, rule)


def test_a_cluster_that_asks_for_more_than_an_address() -> None:
    secured = replace(having(topic("orders", part(0, 1, 2, 3, leader=2), min_insync_replicas="1")), secured=True)
    assert f"{WHERE} --command-config client.properties --alter" in found(secured, "min-insync-low")[0].commands[0]
    assert f"{WHERE} --admin.config client.properties --election" in found(secured, "leader-elsewhere")[0].commands[0]
