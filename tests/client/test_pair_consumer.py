"""What a consumer of prefix pairs refuses before it reads, and where it says that it reads."""

from __future__ import annotations

import time
from typing import Any

import pytest
from confluent_kafka import TopicPartition as ClientTopicPartition

from testkit.errors import raises
from twinshore.client.log_ends import REQUEST_TIMEOUT_S, LogEndPoller, UnansweredTimes
from twinshore.client.paired_consumer import FailoverPairConsumer
from twinshore.client.sites import sites_of
from twinshore.config.errors import ConfigError
from twinshore.config.model import TopicPartition
from twinshore.kafka.clock import steady_s

CLUSTERS = {"east": {"bootstrap.servers": "127.0.0.1:1"}, "west": {"bootstrap.servers": "127.0.0.1:2"}}
CONFIG = {"group.id": "ours", "log_level": 0}


@pytest.mark.parametrize(
    ("config", "clusters", "named", "wrong"),
    [
        ({**CONFIG, "partition.assignment.strategy": "roundrobin"}, CLUSTERS, {}, "pair-assigned-apart"),
        ({**CONFIG, "partition.assignment.strategy": "range,roundrobin"}, CLUSTERS, {}, "pair-assigned-apart"),
        ({**CONFIG, "group.protocol": "consumer"}, CLUSTERS, {}, "pair-assigned-apart"),
        ({}, CLUSTERS, {}, "setting-missing"),
        (CONFIG, {"east": CLUSTERS["east"]}, {}, "pair-of-two"),
        (CONFIG, {**CLUSTERS, "south": CLUSTERS["east"]}, {}, "pair-of-two"),
        (CONFIG, CLUSTERS, {"cluster": "south"}, "no-such-cluster"),
    ],
)
def test_settings_under_which_no_order_can_be_kept_are_refused(
    config: dict[str, Any], clusters: dict[str, Any], named: dict[str, str], wrong: str
) -> None:
    with raises(ConfigError, f"client.{wrong}"):
        FailoverPairConsumer(config, clusters=clusters, **named)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("topics", "wrong"),
    [
        (["^orders"], "topic-is-an-expression"),
        (["orders", "west.orders"], "twin-named"),
    ],
)
def test_topics_are_named_plainly(topics: list[str], wrong: str) -> None:
    with FailoverPairConsumer(CONFIG, clusters=CLUSTERS) as reader, raises(ConfigError, f"client.{wrong}"):
        reader.subscribe(topics)


def test_before_it_subscribes_it_moves_and_reads_nothing() -> None:
    with FailoverPairConsumer(CONFIG, clusters=CLUSTERS, cluster="west") as reader:
        assert reader.where() == "west"
        reader.move("east")
        assert reader.where() == "east"
        with raises(ConfigError, "client.no-such-cluster", cluster="south"):
            reader.move("south")
        with pytest.raises(RuntimeError, match=r"ours .* subscribed"):
            reader.poll(0)
        with pytest.raises(RuntimeError, match=r"ours .* subscribed"):
            reader.position([ClientTopicPartition("orders", 0)])


def test_a_cluster_that_is_away_is_silent_and_keeps_nobody_waiting() -> None:
    orders = TopicPartition("orders", 0)
    ends = LogEndPoller(sites_of(CLUSTERS, CONFIG), "ours", lambda: None)
    ends.start()
    try:
        assert ends.silent_s("west", orders) == 0
        ends.want("west", [orders])
        ends.want("west", [orders])
        until_s = steady_s() + 60
        while not ends.silent_s("west", orders):
            assert steady_s() < until_s
            time.sleep(0.01)
        assert (ends.silent_s("east", orders), list(ends.take_answers()), ends.refusal()) == (0, [], None)
    finally:
        ends.stop()


def test_who_stood_still_takes_no_cluster_for_silent() -> None:
    """Of a try that was under way meanwhile no more counts than a try may take."""
    orders, bills = TopicPartition("orders", 0), TopicPartition("bills", 0)
    silences = UnansweredTimes()
    silences.want([orders])
    silences.in_vain([orders], 7.0)
    assert silences.of(orders) == REQUEST_TIMEOUT_S
    silences.want([orders, bills])
    silences.in_vain(silences.wanted(), 0.5)
    assert (silences.of(orders), silences.of(bills)) == (REQUEST_TIMEOUT_S + 0.5, 0.5)
    silences.answered([orders])
    assert (silences.of(orders), silences.wanted()) == (0, [bills])
