"""What functions of an application are given, from wherever they are called; librdkafka is played."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, TopicPartition

from tests.client.test_consumer_moves import HANDED_OUT, follow, hears
from tests.client.test_farewell import Mute, mute, reads
from twinshore.client import FailoverConsumer

__all__ = ["mute"]


class Heard:
    """Which function was called with which object."""

    def __init__(self) -> None:
        self.found: list[tuple[str, object]] = []

    def functions(self) -> dict[str, Any]:
        def noted(name: str) -> Any:
            return lambda consumer, _: self.found.append((name, consumer))

        return {name: noted(name) for name in ("on_assign", "on_revoke", "on_lost")}

    def names(self) -> list[str]:
        return [name for name, _ in self.found]


def test_functions_are_given_the_consumer_that_they_were_given_to_wherever_they_are_called(mute: type[Mute]) -> None:
    """By librdkafka in a poll, by a close in another thread, and where a home that died is left."""
    heard = Heard()
    consumer = reads(heard.functions())
    hears(consumer, "west", 2, HANDED_OUT)
    played = follow(consumer)
    played.revoked(played, [TopicPartition("orders", 0)])
    hears(consumer, "east", 3, HANDED_OUT)
    follow(consumer)
    mute.answers.clear()
    hears(consumer, "west", 4, HANDED_OUT)
    follow(consumer)
    mute.answers.set()
    consumer.close()
    names = ["assign", "revoke", "assign", "revoke", "revoke", "assign", "lost", "assign", "revoke"]
    assert heard.names() == [f"on_{name}" for name in names]
    assert {id(one) for _, one in heard.found} == {id(consumer)}


@pytest.mark.usefixtures("mute")
@pytest.mark.parametrize("calls", [True, False])
def test_what_on_assign_gives_an_offset_is_read_from_there_whether_it_calls_assign_or_not(calls: bool) -> None:
    def begins(consumer: FailoverConsumer, partitions: list[TopicPartition]) -> None:
        for one in partitions:
            one.offset = OFFSET_BEGINNING
        if calls:
            consumer.assign([TopicPartition(one.topic, one.partition, one.offset) for one in partitions])

    with reads({"on_assign": begins}) as consumer:
        assert [one.offset for one in follow(consumer).assigned] == [OFFSET_BEGINNING]
        hears(consumer, "west", 2, HANDED_OUT)
        assert [one.offset for one in follow(consumer).assigned] == [OFFSET_BEGINNING], "what it has read is no matter"


@pytest.mark.usefixtures("mute")
def test_on_assign_may_leave_partitions_out() -> None:
    with reads({"on_assign": lambda consumer, _: consumer.assign([])}) as consumer:
        assert follow(consumer).assigned == []


@pytest.mark.usefixtures("mute")
def test_who_gives_partitions_up_in_on_revoke_needs_not_and_elsewhere_nothing_is_assigned() -> None:
    def revoked(consumer: FailoverConsumer, partitions: list[TopicPartition]) -> None:
        consumer.unassign()
        consumer.incremental_unassign(partitions)

    with reads({"on_revoke": revoked}) as consumer:
        for assign in (consumer.assign, consumer.incremental_assign):
            with pytest.raises(RuntimeError, match="only within on_assign"):
                assign([TopicPartition("orders", 0)])
