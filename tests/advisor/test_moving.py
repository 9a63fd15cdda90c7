"""A topic that is on the move on three real brokers is told as that, and as no fault."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.advisor.test_looking import asked_of
from tests.conftest import ClusterFactory
from tests.pages.shell import kafka_tools, play
from tests.scenarios.loss_stage import until
from twinshore.advisor.collect import CollectScope, collect_cluster, collect_topic
from twinshore.advisor.core.advice_report import build_advice, build_reassign_command
from twinshore.advisor.core.model import AdvisorPolicy, PartitionSnapshot
from twinshore.advisor.operations.advice_on_cluster import RULES
from twinshore.kafka.clock import wall_ms
from twinshore.lab.clients import client_settings

SLOW = " --throttle 1000"


@pytest.mark.long
def test_a_topic_that_is_copied_elsewhere_is_not_called_weak(cluster_factory: ClusterFactory, tmp_path: Path) -> None:
    """Metadata names old and new replicas together: four of two, three of which are in sync."""
    cluster = cluster_factory("moving", brokers=3, heap_mb=256)
    seen = collect_cluster(cluster.cluster, CollectScope(apart_s=0), clock=wall_ms, wait=time.sleep)
    tools = kafka_tools(tmp_path / "tools")
    where = f"--bootstrap-server {cluster.cluster.bootstrap[0]}"
    made = "--create --topic orders --replica-assignment 1:2"
    play(f"kafka-topics.sh {where} {made} --config unclean.leader.election.enable=true", tmp_path, tools)
    producer = Producer(client_settings(cluster.cluster))
    for number in range(4):
        producer.produce("orders", bytes(1_000) * 900, partition=0, key=b"%d" % number)
        assert producer.flush(60) == 0
    advice = asked_of(tmp_path, cluster.cluster, "orders").advice
    assert any(one.safe for one in advice.findings if one.subject == "topic orders")
    play(build_reassign_command(seen, "orders", {0: [3, 2]}) + SLOW, tmp_path, tools)

    def partition() -> PartitionSnapshot:
        return collect_topic(cluster.cluster, "orders").topics[0].partitions[0]

    until(lambda: partition().moves, "brokers tell of the move")
    assert (partition().replicas, partition().adding, partition().removing) == ((2, 1), (3,), (1,))
    now = collect_cluster(cluster.cluster, CollectScope(("orders",), apart_s=0), clock=wall_ms, wait=time.sleep)
    assert now.unseen == ()
    told = [one for one in build_advice(now, AdvisorPolicy(), RULES).findings if one.subject == "topic orders"]
    assert {one.rule for one in told} == {"few-copies", "min-insync-low", "unclean-election"}
    for one in told:
        assert one.evidence.endswith("; on the move now: partition 0 (gets 3 and gives up 1)")
        assert one.safe is None
        assert "kafka-reassign-partitions.sh --bootstrap" not in " ".join((*one.commands, one.by_hand))
