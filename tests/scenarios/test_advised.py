"""Each kind of weakness is made on three real brokers, is found there, and the command that is printed mends it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as ClientTopicPartition

from testkit.clients import alter_topic, commit_group_offsets, topic_id
from testkit.errors import mentions
from tests.conftest import ClusterFactory
from tests.pages.shell import kafka_tools, play
from tests.scenarios.mirror_rig import settings_text
from twinshore.advisor.collect import CollectScope, collect_cluster
from twinshore.advisor.core.advice_report import Advice, build_bootstrap_options
from twinshore.advisor.core.model import OFFSETS_TOPIC
from twinshore.advisor.operations.advice_on_cluster import AdviceRequest, advise_on_cluster
from twinshore.config.model import TopicPartition
from twinshore.config.settings import parse_settings
from twinshore.kafka.clock import wall_ms
from twinshore.kafka.cluster import KafkaCluster
from twinshore.lab.clients import client_settings
from twinshore.lab.cluster import LabCluster

Rules = Mapping[str, set[str]]
WITHIN_S, ROUNDS = 240.0, 3
HOUR_MS = 3_600_000
# Weaknesses that are settings of a topic, and the rules that find them.
WEAK_TOPICS = {
    "low": ({"min.insync.replicas": "1"}, {"min-insync-low"}),
    "high": ({"min.insync.replicas": "3"}, {"min-insync-high"}),
    "unclean": ({"unclean.leader.election.enable": "true"}, {"unclean-election"}),
    "flushed": ({"flush.messages": "1"}, {"flush-forced"}),
}
# Too strong a change to make twice: three copies in place of one or two, or a second zone.
COPIES = {"single": "3", "few": "1:2", "zone": "1:2"}


class Stage:
    """Three brokers in two zones, on which nothing is weak at first; Kafka's own tools, and a folder for them."""

    def __init__(self, cluster: LabCluster, folder: Path) -> None:
        self.cluster, self.folder = cluster, folder
        self.tools = kafka_tools(folder / "tools")
        text = settings_text(folder, [cluster.cluster], {})
        self.settings = parse_settings(text, name="settings", env={})

    def advice(self) -> Advice:
        return advise_on_cluster(AdviceRequest("weak", apart_s=0), self.settings, clock=wall_ms, wait=time.sleep).advice

    def rules(self) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        for one in self.advice().findings:
            found.setdefault(one.subject, set()).add(one.rule)
        return found

    def until(self, holds: Callable[[Mapping[str, set[str]]], bool]) -> None:
        """Until what is found is so: brokers hear of changes by and by, and copies take their time."""
        deadline = time.monotonic() + WITHIN_S
        while not holds(found := self.rules()):
            assert time.monotonic() < deadline, found
            time.sleep(0.5)

    def run(self, line: str) -> str:
        return play(line, self.folder, self.tools)

    def mend(self, subjects: set[str]) -> int:
        """Every line that is printed for these subjects, as it stands; how many they are."""
        lines = [line for one in self.advice().findings if one.subject in subjects for line in one.commands]
        for line in dict.fromkeys(lines):
            self.run(line)
        return len(set(lines))


@pytest.fixture
def stage(cluster_factory: ClusterFactory, tmp_path: Path) -> Stage:
    sound = {"min.insync.replicas": "2", "transaction.state.log.min.isr": "2"}
    cluster = cluster_factory("weak", brokers=3, settings=sound, heap_mb=256)
    for broker, rack in zip(cluster.brokers, ("a", "a", "b"), strict=True):
        broker.settings["broker.rack"] = rack
        broker.restart()
    return Stage(cluster, tmp_path)


def weaken(stage: Stage) -> dict[str, set[str]]:
    """Makes each weakness; which rules must find it."""
    cluster, expected = stage.cluster, {}
    for name, (settings, rules) in WEAK_TOPICS.items():
        cluster.create_topic(name, settings=settings)
        expected[f"topic {name}"] = rules
    where = build_bootstrap_options(
        collect_cluster(cluster.cluster, CollectScope(("low",), apart_s=0), clock=wall_ms, wait=time.sleep)
    )
    for name, nodes in COPIES.items():
        least = " --config min.insync.replicas=1"
        stage.run(f"kafka-topics.sh {where} --create --topic {name} --replica-assignment {nodes}{least}")
    expected["topic single"] = {"single-copy"}
    expected["topic few"] = expected["topic zone"] = {"few-copies", "min-insync-low", "one-rack"}
    cluster.create_topic("read")
    producer = Producer(client_settings(cluster.cluster))
    for number in range(100):
        producer.produce("read", b"%d" % number, partition=0, timestamp=wall_ms() - HOUR_MS)
    assert producer.flush(60) == 0
    commit_group_offsets(cluster.cluster, "late", ClientTopicPartition("read", 0, 10))
    meant = topic_id(cluster.cluster, "read")
    with closing(KafkaCluster(cluster.cluster)) as kafka:
        kafka.delete_records({TopicPartition("read", 0): 50}, {"read": meant})
    alter_topic(cluster.cluster, OFFSETS_TOPIC, {"min.insync.replicas": "1"})
    expected |= {f"topic {OFFSETS_TOPIC}": {"offsets-topic"}, "group late on read": {"group-lost", "group-abandoned"}}
    return expected


@pytest.mark.long
@pytest.mark.claim(
    "advisor",
    "made-and-mended",
    "weaknesses that are made on three real brokers are all found, none is found before, and the printed commands mend"
    " them",
)
def test_what_is_made_weak_is_found_and_the_printed_command_mends_it(stage: Stage) -> None:
    """Brokers that were restarted left their leaders elsewhere: that is the first finding, and mended the same way."""
    stage.cluster.create_topic("sound")
    commit_group_offsets(stage.cluster.cluster, "early", ClientTopicPartition("sound", 0, 0))
    stage.until(lambda found: set().union(*found.values(), {"leader-elsewhere"}) == {"leader-elsewhere"})
    stage.mend({subject for subject, rules in stage.rules().items() if rules == {"leader-elsewhere"}})
    stage.until(lambda found: found == {})
    expected = weaken(stage)

    def all_found(found: Rules) -> bool:
        return all(rules <= found.get(subject, set()) for subject, rules in expected.items())

    stage.until(all_found)
    beside = {subject: rules - {"leader-elsewhere"} for subject, rules in stage.rules().items()}
    assert {subject: rules for subject, rules in beside.items() if rules} == expected
    # What is gone unread stays gone: no command brings it back.
    lost = {"group late on read"}
    # With new copies in sync there is more to be asked for, so it is looked at again.
    lines = sum(stage.mend(set(expected)) for _ in range(ROUNDS))
    stage.until(lambda found: {subject for subject, rules in found.items() if rules - {"leader-elsewhere"}} <= lost)
    kinds = set().union(*expected.values())
    print(
        f"told: {len(kinds)} kinds at {len(expected)} places found; {lines} printed lines were run, and mended all but"
        " records that were gone unread"
    )


@pytest.mark.long
def test_a_broker_that_is_away_and_comes_back(stage: Stage) -> None:
    where = build_bootstrap_options(
        collect_cluster(stage.cluster.cluster, CollectScope(apart_s=0), clock=wall_ms, wait=time.sleep)
    )
    stage.run(f"kafka-topics.sh {where} --create --topic alone --replica-assignment 3 --config min.insync.replicas=1")
    stage.cluster.create_topic("strict", settings={"min.insync.replicas": "3"})
    stage.cluster.brokers[2].stop()
    stage.until(
        lambda found: (
            "offline" in found.get("topic alone", ())
            and {"below-min-insync", "under-replicated"} <= found.get("topic strict", set())
        )
    )
    told = {(one.rule, one.subject): one.by_hand for one in stage.advice().findings}
    assert told["offline", "topic alone"].startswith("start broker 3 again")
    assert mentions(told["under-replicated", "topic strict"], "broker 3")
    stage.cluster.brokers[2].restart()
    gone = {"offline", "below-min-insync", "under-replicated"}
    stage.until(lambda found: not gone & set().union(*found.values()))
