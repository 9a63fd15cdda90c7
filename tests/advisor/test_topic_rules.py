"""Rules about topics and partitions: where each fires, and just beside it does not."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace

import pytest

from tests.advisor.seen_kit import SOUND, broker, found, having, part, topic
from twinshore.advisor.core import advice_report
from twinshore.advisor.core.advice_report import build_advice
from twinshore.advisor.core.model import AdvisorPolicy, ClusterSnapshot, TopicConfigChange
from twinshore.advisor.operations.advice_on_cluster import RULES

WHERE = "--bootstrap-server kafka-1:9092,kafka-2:9092"


def test_nothing_is_found_on_a_sound_cluster() -> None:
    assert build_advice(SOUND, AdvisorPolicy(), RULES).findings == ()


def test_one_replica() -> None:
    (one,) = found(having(topic("orders", part(0, 1), part(1, 2, 3, 1), min_insync_replicas="1")), "single-copy")
    assert one.subject == "topic orders"
    assert "partition 0;" in one.evidence
    text = '{"version":1,"partitions":[{"topic":"orders","partition":0,"replicas":[1,2,3]}]}'
    assert one.commands == (
        f"kafka-reassign-partitions.sh {WHERE} --reassignment-json-file <(echo '{text}') --execute --additional",
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
    (one,) = found(having(topic("orders", min_insync_replicas="1", own=False)), "min-insync-low")
    assert one.evidence.startswith("min.insync.replicas=1 of 3 replicas; 2 ")
    assert one.commands == (f"kafka-configs.sh {WHERE} --alter --topic orders --add-config min.insync.replicas=2",)
    assert one.safe == TopicConfigChange("orders", (("min.insync.replicas", "2"),))
    assert not found(having(topic("orders", min_insync_replicas="2")), "min-insync-low")
    five = having(topic("orders", part(0, 1, 2, 3, 4, 5), min_insync_replicas="2", own=False))
    assert found(five, "min-insync-low")[0].safe == TopicConfigChange("orders", (("min.insync.replicas", "3"),))


def test_min_insync_that_somebody_set_on_the_topic_is_not_raised_by_itself() -> None:
    """Writing goes on with the last replica then, and that may be what was asked for."""
    (one,) = found(having(topic("orders", min_insync_replicas="1")), "min-insync-low")
    assert one.commands and one.safe is None and "policy" in one.by_hand


def test_what_an_owner_asked_for_is_a_note() -> None:
    """Both settings of a promise stand on the topic: it is one, and another topic under the same rule is none."""
    unclean = "unclean.leader.election.enable"
    kept = topic("orders", also={"min.insync.replicas": "1", unclean: "false"})
    other = topic("other", min_insync_replicas="1")
    told = found(having(kept, other), "min-insync-low")
    assert [(one.subject, one.severity) for one in told] == [("topic other", "warning"), ("topic orders", "note")]
    text = "\n".join(advice_report.describe_advice(build_advice(having(kept, other), AdvisorPolicy(), RULES)))
    assert "WARNING min-insync-low" in text and "NOTE min-insync-low" in text
    (one,) = found(having(topic("orders", also={"min.insync.replicas": "1", unclean: "true"})), "unclean-election")
    assert (one.severity, one.safe) == ("warning", None), "neither CP nor AP: what was acknowledged is lost"
    (one,) = found(having(topic("orders", also={"min.insync.replicas": "2", unclean: "true"})), "unclean-election")
    assert one.severity == "grave" and one.safe, "the one promises what the other one breaks"
    two = topic("orders", part(0, 1, 2), also={"min.insync.replicas": "2", unclean: "false"})
    assert [one.severity for one in found(having(two), "min-insync-high")] == ["note"]
    few = AdvisorPolicy(limits={("", "copies"): 1})
    assert not found(having(topic("orders", part(0, 1), min_insync_replicas="1")), "single-copy", few)


def test_min_insync_is_not_raised_by_itself_where_one_more_loss_would_stop_writers() -> None:
    (one,) = found(
        having(topic("orders", part(0, 1, 2, 3, isr=(1, 2)), min_insync_replicas="1", own=False)), "min-insync-low"
    )
    assert (one.commands, one.safe) == ((), None)
    assert "kafka-configs.sh" in one.by_hand
    (two,) = found(having(topic("orders", part(0, 1, 2), min_insync_replicas="1")), "min-insync-low")
    assert two.safe is None
    assert [line.split()[0] for line in two.commands] == ["kafka-reassign-partitions.sh"]
    assert "kafka-configs.sh" in two.by_hand


def test_min_insync_of_all_replicas_stops_writers_with_one_broker_down() -> None:
    (one,) = found(having(topic("orders", min_insync_replicas="3")), "min-insync-high")
    assert one.evidence == "min.insync.replicas=3 of 3 replicas"
    assert one.commands[0].endswith("--topic orders --add-config min.insync.replicas=2")
    assert one.safe is None, "it takes back a promise that the owner may have meant"
    waits = topic("orders", part(0, 1, 2, 3, isr=(), leader=-1), min_insync_replicas="3")
    assert found(having(waits), "min-insync-high")[0].commands == (), "the cluster would forget who can lead"
    assert not found(having(topic("orders", min_insync_replicas="2")), "min-insync-high")
    assert not found(having(topic("orders", part(0, 1), min_insync_replicas="1")), "min-insync-high")
    (two,) = found(having(topic("orders", part(0, 1, 2), min_insync_replicas="2")), "min-insync-high")
    assert two.safe is None and "kafka-reassign-partitions.sh" in two.commands[0]


def test_no_more_replicas_are_asked_for_than_there_are_since_kafka_3_7() -> None:
    alone = having(topic("orders", part(0, 1), min_insync_replicas="2"))
    assert not found(alone, "min-insync-high"), "it takes acks=all, and one replica is another matter"
    older = replace(alone, brokers=(broker(1), broker(2, supports=14), broker(3)))
    assert found(older, "min-insync-high")[0].evidence == "min.insync.replicas=2 of 1 replica"
    unknown = replace(alone, brokers=(broker(1), broker(2, supports=0), broker(3)))
    assert found(unknown, "min-insync-high")
    (two,) = found(having(topic("orders", part(0, 1, 2), min_insync_replicas="3")), "min-insync-high")
    assert two.evidence.startswith("min.insync.replicas=3 of 2 replicas, ")
    away = topic("orders", part(0, 1, 2, isr=(1,)), min_insync_replicas="3")
    assert found(having(away), "below-min-insync") and not found(replace(older, topics=(away,)), "below-min-insync")


def test_unclean_election_of_a_topic_and_by_default() -> None:
    (one,) = found(having(topic("orders", unclean_leader_election_enable="true")), "unclean-election")
    assert one.evidence == "unclean.leader.election.enable=true, set on the topic"
    assert one.safe == TopicConfigChange("orders", (("unclean.leader.election.enable", "false"),))
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


def _in_two_zones(seen: ClusterSnapshot) -> ClusterSnapshot:
    return replace(seen, brokers=(broker(1, "a"), broker(2, "a"), broker(3, "b"), broker(4, "a")))


def test_all_replicas_in_one_rack() -> None:
    (one,) = found(_in_two_zones(having(topic("orders", part(0, 1, 2, 4), part(1, 1, 2, 3)))), "one-rack")
    assert one.evidence == "all replicas of partition 0 (rack a)"
    assert '"partition":0,"replicas":[1,2,3]' in one.commands[0] and '"partition":1' not in one.commands[0]
    few = _in_two_zones(having(topic("orders", part(0, 1, 2))))
    assert found(few, "one-rack")[0].commands == found(few, "few-copies")[0].commands, "one must not undo the other"


def test_topics_that_are_mended_together_are_spread() -> None:
    """Each is placed behind those before it: against the same load all would go to the same brokers."""
    six = tuple(broker(number, "") for number in range(1, 7))
    alone = [topic(f"t-{number}", part(0, 1 + number % 6), min_insync_replicas="1") for number in range(600)]
    told = found(having(*alone, seen=replace(SOUND, brokers=six)), "single-copy")
    given = Counter(node for one in told for node in map(int, re.findall(r"\d+", one.commands[0].split("replicas")[1])))
    assert len(told) == 600 and set(given) == {1, 2, 3, 4, 5, 6}
    assert max(given.values()) - min(given.values()) <= 6, given


def test_a_partition_whose_brokers_are_away_is_given_no_others() -> None:
    there = replace(SOUND, brokers=tuple(broker(number) for number in (1, 2, 4)))
    (one,) = found(having(topic("orders", part(0, 3, isr=(3,), leader=-1)), seen=there), "single-copy")
    assert one.commands == () and "brokers" in one.by_hand and "kafka-" not in one.by_hand
    (one,) = found(having(topic("orders", part(0, 1), part(1, 1, 2, 3, 5, isr=(1, 2))), seen=there), "single-copy")
    assert '"replicas":[1,4,2]' in one.commands[0] and '"partition":1' not in one.commands[0]


@pytest.mark.parametrize("copies", [2, 3, 4, 5])
def test_all_that_is_advised_gives_a_partition_the_same_replicas(copies: int) -> None:
    racks = ("a", "a", "b", "c", "d")
    six = replace(SOUND, brokers=tuple(broker(number, rack) for number, rack in enumerate(racks, 1)))
    for replicas, minimum in (((1,), "1"), ((1, 2), "1"), ((1, 2), "2"), ((1, 2, 3), "3")):
        seen = having(topic("orders", part(0, *replicas), min_insync_replicas=minimum), seen=six)
        told = build_advice(seen, AdvisorPolicy(limits={("", "copies"): copies}), RULES)
        lines = [line for one in told.findings if one.subject == "topic orders" for line in one.commands]
        placed = {line for line in lines if "kafka-reassign-partitions" in line}
        assert len(placed) <= 1, (replicas, minimum, placed)
    assert not found(_in_two_zones(having(topic("orders", part(0, 1, 2, 3)))), "one-rack")
    assert not found(_in_two_zones(having(topic("orders", part(0, 1)))), "one-rack"), "single-copy says it"


def test_a_topic_on_the_move_lacks_nothing_that_is_copied_to_it_now() -> None:
    moves = replace(part(0, 1, 2, 3), adding=(4,), removing=(3,))
    assert build_advice(having(topic("orders", moves, part(1, 2, 3, 1))), AdvisorPolicy(), RULES).findings == ()
    weak = topic("orders", moves, own=False, min_insync_replicas="1", unclean_leader_election_enable="true")
    for one in build_advice(having(weak), AdvisorPolicy(), RULES).findings:
        assert one.evidence.endswith("; on the move now: partition 0 (gets 4 and gives up 3)")
        assert one.safe is None, "it is judged when it has moved"
    alone = having(topic("orders", replace(part(0, 1), adding=(2, 3))))
    (one,) = found(alone, "single-copy")
    assert one.commands == () and one.by_hand
    replaced = having(topic("orders", replace(part(0, 1, 2, 3, isr=(1, 2)), adding=(4,), removing=(3,))))
    (one,) = found(replaced, "under-replicated")
    assert one.commands == () and "broker" not in one.by_hand
    elsewhere = replace(part(0, 3, 2, 1, isr=(1, 2, 3, 4)), adding=(4,), removing=(1,), leader=1)
    assert not found(having(topic("orders", elsewhere)), "leader-elsewhere")


def test_no_leader() -> None:
    (one,) = found(having(topic("orders", part(0, 1, 2, 3, isr=(3,), leader=-1))), "offline")
    assert one.evidence == "no leader of partition 0 (replicas 1,2,3, in sync 3)"
    assert one.by_hand.startswith("start broker 3 again: ")
    (one,) = found(having(topic("orders", part(0, 1, 2, isr=(), leader=-1))), "offline")
    assert one.by_hand.startswith("start broker 1, 2 again: ")
    assert "in sync last" not in one.by_hand
    assert not found(having(topic("orders", part(0, 1, 2, 3, isr=(1,)))), "offline")


def test_fewer_in_sync_than_asked_for() -> None:
    (one,) = found(having(topic("orders", part(0, 1, 2, 3, isr=(1,)))), "below-min-insync")
    assert one.evidence == "min.insync.replicas=2, partition 0 (replicas 1,2,3, in sync 1)"
    assert one.by_hand == "see why broker 2, 3 does not keep up: its log, its disk, its network"
    assert not found(having(topic("orders", part(0, 1, 2, 3, isr=(1, 2)))), "below-min-insync")


def test_a_replica_that_is_not_in_sync() -> None:
    away = replace(having(topic("orders", part(0, 1, 2, 3, isr=(1, 2)))), brokers=(broker(1), broker(2)))
    (one,) = found(away, "under-replicated")
    assert one.by_hand.startswith("bring broker 3 back: ")
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
