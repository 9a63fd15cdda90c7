"""Twins named after their source cluster: every step and refusal speaks of the right name on the right side."""

from __future__ import annotations

from testkit.errors import mentions
from twinshore.config.model import Link, TwinNaming
from twinshore.replication.core.model import CarryTopic, Create, Grow, Refuse
from twinshore.replication.core.planner import KnownTwin, SourceTopic, TargetTopic, plan_topic
from twinshore.replication.operations.run_plan import describe_step
from twinshore.replication.task.core.messages import PartitionConfig

PREFIX = Link("east", "west", naming=TwinNaming.PREFIX)
SOURCE = SourceTopic("orders", "aa", 1, (0, 0))


def test_a_twin_by_prefix_is_made_and_carried_under_its_own_name() -> None:
    (made,) = plan_topic(PREFIX, SOURCE, None, None, target_brokers=1)
    assert isinstance(made, Create)
    assert (made.topic, made.twin) == ("orders", "east.orders")
    assert describe_step(made).startswith("create twin east.orders of orders: 2 partitions")
    there = TargetTopic("east.orders", "bb", ((0, 5),), made.settings)
    steps = plan_topic(PREFIX, SOURCE, there, KnownTwin("aa", "bb"), target_brokers=1)
    assert steps == [Grow("orders", 2, "bb", "east.orders"), CarryTopic("orders", 1, "aa", "bb", "east.orders")]


def test_a_refusal_names_the_topic_that_is_in_the_way() -> None:
    there = TargetTopic("east.orders", "bb", ((0, 5), (0, 0)))
    (refused,) = plan_topic(PREFIX, SOURCE, there, None, target_brokers=1)
    assert isinstance(refused, Refuse)
    assert (refused.topic, refused.kind) == ("orders", "foreign write")
    assert mentions(refused.sentence, "east.orders")


def test_an_order_says_what_the_twin_is_called_only_where_it_differs() -> None:
    assert str(PartitionConfig("orders", 1, "aa", "bb").twin_named) == "orders-1"
    assert str(PartitionConfig("orders", 1, "aa", "bb", twin="east.orders").twin_named) == "east.orders-1"
