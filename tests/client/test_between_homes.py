"""What an application wants of a topic that has no home just then: kept, and done where it arrives."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import OFFSET_BEGINNING, OFFSET_INVALID, Producer, TopicPartition

from testkit.errors import mentions, raises
from testkit.log_lines import LogLines
from tests.client.test_consumer_moves import hears
from tests.client.test_farewell import mute, reads
from tests.client.turning import ByHand
from twinshore.client import FailoverConsumer
from twinshore.config.errors import ConfigError
from twinshore.kafka.clock import steady_s

__all__ = ["mute"]
RECORDS = 200


def part(number: int, offset: int = OFFSET_INVALID) -> TopicPartition:
    return TopicPartition("orders", number, offset)


def offsets(places: list[TopicPartition]) -> list[int]:
    return [one.offset for one in places]


class Two:
    """Clusters that librdkafka plays, which hold the same; the consumer reads them as a test says."""

    def __init__(self, said: LogLines) -> None:
        self._servers = [Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "x", "log_level": 0}) for _ in "ew"]
        self.addresses = {name: self._begin(one) for name, one in zip(("east", "west"), self._servers, strict=True)}
        self.said = said
        config = {"group.id": "billing", "auto.offset.reset": "earliest", "log_level": 0}
        config |= {"session.timeout.ms": 6_000, "heartbeat.interval.ms": 200}
        self.consumer = FailoverConsumer(
            config, clusters={one: {"bootstrap.servers": at} for one, at in self.addresses.items()}
        )

    def _begin(self, server: Producer) -> str:
        (broker,) = server.list_topics(timeout=10).brokers.values()
        for number in range(RECORDS):
            for one in range(2):
                server.produce("orders", b"%d" % number, partition=one)
        assert server.flush(10) == 0
        return f"{broker.host}:{broker.port}"

    def hold(self, home: str, term: int) -> None:
        hears(self.consumer, home, term, step=1, held=True, address=self.addresses[home])
        assert self.reads(0.3) == []
        assert "held" in self.consumer.where("orders")

    def settle(self, home: str, term: int, point: int = RECORDS) -> None:
        hears(self.consumer, home, term, *([point] * 4), address=self.addresses[home])

    def reads(
        self, for_s: float, enough: Callable[[list[tuple[int, int]]], bool] = lambda _: False
    ) -> list[tuple[int, int]]:
        """Partition and offset, in the order in which they come."""
        until_s, found = steady_s() + for_s, list[tuple[int, int]]()
        while steady_s() < until_s and not enough(found):
            found += [(one.partition() or 0, one.offset() or 0) for one in self.consumer.consume(10, 0.05)]
        return found

    def first_of(self, number: int, for_s: float = 30.0) -> int:
        found = self.reads(for_s, lambda some: any(one == number for one, _ in some))
        return next(at for one, at in found if one == number)


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch, log_lines: LogLines) -> Iterator[Two]:
    """All of both partitions was read, on east."""
    monkeypatch.setattr("twinshore.client.discovery.routing_topic.HomeTracker", ByHand)
    made = Two(log_lines)
    made.consumer.subscribe(["orders"])
    hears(made.consumer, "east", 1, address=made.addresses["east"])
    made.reads(30.0, lambda found: len(found) >= 2 * RECORDS)
    yield made
    made.consumer.close()


def test_what_is_sought_and_paused_while_a_topic_is_held_is_so_at_its_new_home(two: Two) -> None:
    """Though the group's place lies further, and librdkafka has no consumer that could be told."""
    two.hold("east", 1)
    two.consumer.seek(part(0, 10))
    two.consumer.pause([part(1)])
    two.consumer.seek(part(1, 20))
    assert offsets(two.consumer.position([part(0), part(1), part(9)])) == [10, 20, OFFSET_INVALID]
    assert offsets(two.consumer.committed([part(1), part(0), part(9)])) == [RECORDS, RECORDS, OFFSET_INVALID]
    two.settle("west", 2)
    found = two.reads(30.0, lambda some: len(some) >= RECORDS - 10)
    assert found == [(0, number) for number in range(10, RECORDS)]
    assert two.reads(0.5) == [], "the other one is paused"
    two.consumer.resume([part(1)])
    assert two.first_of(1) == 20
    assert two.consumer.where("orders") == "west"


def test_what_is_sought_right_before_a_move_is_read_behind_it(two: Two) -> None:
    two.consumer.seek(part(0, 30))
    two.consumer.seek(part(1, OFFSET_BEGINNING))
    two.settle("west", 2)
    found = two.reads(30.0, lambda some: len(some) >= 2 * RECORDS - 30)
    assert [at for one, at in found if one == 0] == list(range(30, RECORDS))
    assert [at for one, at in found if one == 1] == list(range(RECORDS))


def test_what_is_paused_stays_so_there_and_back_and_a_seek_waits_for_it(two: Two) -> None:
    two.consumer.pause([part(0), part(1)])
    two.consumer.seek(part(0, 40))
    for term, home in ((2, "west"), (3, "east")):
        two.hold(("west", "east")[term % 2 == 0], term - 1)
        two.settle(home, term)
        assert two.reads(30.0, lambda _, home=home: two.consumer.where("orders") == home) == []  # type: ignore[misc]
    assert two.reads(1.0) == []
    two.consumer.resume([part(0)])
    assert two.first_of(0) == 40


@pytest.mark.long
def test_beyond_the_point_of_a_switch_by_force_nothing_is_sought(two: Two) -> None:
    """Other records lie there."""
    two.hold("east", 1)
    two.consumer.seek(part(0, 150))
    two.settle("west", 2, point=60)
    assert two.first_of(0) == 60
    assert two.said == []


@pytest.mark.long
def test_a_place_of_which_nobody_knows_what_it_is_worth_is_not_sought_in_silence(two: Two) -> None:
    two.hold("east", 1)
    two.consumer.seek(part(0, 150))
    two.consumer.seek(part(1, OFFSET_BEGINNING))
    two.settle("west", 3)
    assert two.first_of(1) == 0
    assert len([one for one in two.said if mentions(one, "billing", "orders-0", "sought")]) == 1


def test_before_partitions_are_dealt_out_for_the_first_time_a_seek_is_kept_as_well(two: Two) -> None:
    two.consumer.close()
    two.consumer.subscribe(["orders"])
    two.consumer.seek(part(0, 70))
    with raises(ConfigError, "client.not-subscribed", consumer="billing", topic="bills"):
        two.consumer.seek(TopicPartition("bills", 0, 7))
    two.settle("west", 2)
    assert two.first_of(0) == 70


@pytest.mark.usefixtures("mute")
def test_a_seek_within_on_assign_is_where_it_begins() -> None:
    def begins(consumer: FailoverConsumer, partitions: list[TopicPartition]) -> None:
        for one in partitions:
            consumer.seek(TopicPartition(one.topic, one.partition, 7))

    with reads({"on_assign": begins}) as consumer:
        assert offsets(consumer._router.members["east"].consumer.assigned) == [7]  # type: ignore[attr-defined]
