"""Which topics are mapped, and that their settings and data stay what they are."""

from __future__ import annotations

from dataclasses import replace

from twinshore.config.model import Link, OffsetMode
from twinshore.replication.core.model import CarryTopic, Grow, Refuse
from twinshore.replication.core.planner import KnownTwin, SourceTopic, TargetTopic, plan_topic

LINK = Link("east", "west", mode=OffsetMode.MAPPED)
SOURCE = SourceTopic("orders", "aa", 1, (7, 0))
HELD = TargetTopic("orders", "bb", ((0, 50), (0, 0)), (("retention.ms", "1000"),))


def test_a_topic_that_holds_data_is_mapped_where_the_link_may() -> None:
    carry = CarryTopic("orders", 2, "aa", "bb", mapped=True)
    assert plan_topic(LINK, SOURCE, HELD, None, target_brokers=1) == [carry]
    (refused,) = plan_topic(replace(LINK, mode=OffsetMode.EXACT), SOURCE, HELD, None, target_brokers=1)
    assert isinstance(refused, Refuse)
    assert 'mode = "mapped"' in refused.hint


def test_an_emptied_topic_is_mapped_too_since_its_offsets_are_not_the_sources() -> None:
    emptied = replace(HELD, spans=((50, 50), (0, 0)))
    assert plan_topic(LINK, SOURCE, emptied, None, target_brokers=1)[-1] == CarryTopic(
        "orders", 2, "aa", "bb", mapped=True
    )


def test_an_empty_or_absent_topic_stays_exact() -> None:
    fresh = replace(HELD, spans=((0, 0), (0, 0)))
    steps = plan_topic(LINK, SOURCE, fresh, None, target_brokers=1)
    assert not any(isinstance(step, CarryTopic) and step.mapped for step in steps)


def test_what_was_adopted_stays_as_it_was_whatever_the_settings_say() -> None:
    exact, mapped = KnownTwin("aa", "bb"), KnownTwin("aa", "bb", mapped=True)
    (*_, carry) = plan_topic(LINK, SOURCE, HELD, exact, target_brokers=1)
    assert isinstance(carry, CarryTopic)
    assert not carry.mapped
    (*_, carry) = plan_topic(replace(LINK, mode=OffsetMode.EXACT), SOURCE, HELD, mapped, target_brokers=1)
    assert isinstance(carry, CarryTopic)
    assert carry.mapped


def test_a_mapped_topic_may_have_more_partitions_and_gets_those_it_lacks_once_it_is_adopted() -> None:
    wide = replace(HELD, spans=((0, 9),) * 3)
    assert plan_topic(LINK, SOURCE, wide, None, target_brokers=1) == [CarryTopic("orders", 2, "aa", "bb", mapped=True)]
    narrow = replace(HELD, spans=((0, 9),))
    carry = CarryTopic("orders", 1, "aa", "bb", mapped=True)
    assert plan_topic(LINK, SOURCE, narrow, None, target_brokers=1) == [carry], "partitions cannot be taken back"
    adopted = KnownTwin("aa", "bb", mapped=True)
    assert plan_topic(LINK, SOURCE, narrow, adopted, target_brokers=1) == [Grow("orders", 2, "bb"), carry]
