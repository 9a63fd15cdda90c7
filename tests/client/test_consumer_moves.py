"""From where a consumer reads on behind a move, and behind a push; librdkafka is played."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from tests.client.turning import CLUSTERS, ByHand
from twinshore.client import HotConsumer
from twinshore.client.centres.pushed import Pushed
from twinshore.client.sites import sites_of
from twinshore.homes.following import Order
from twinshore.homes.home_lines import HomeLine, HomeState

PLACE, HANDED_OUT = 17, 5_000


class PlayedReader:
    """The group's place is the same wherever it is asked for."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = settings
        self.assigned: list[TopicPartition] = []

    def subscribe(self, topics: list[str], on_assign: Any, **_: object) -> None:
        on_assign(self, [TopicPartition(one, 0) for one in topics])

    def assign(self, partitions: list[TopicPartition]) -> None:
        self.assigned = partitions

    def assignment(self) -> list[TopicPartition]:
        return [TopicPartition("orders", 0)]

    def committed(self, partitions: list[TopicPartition], _: float) -> list[TopicPartition]:
        return [TopicPartition(one.topic, one.partition, PLACE) for one in partitions]

    def commit(self, **_: object) -> None:
        pass

    def close(self) -> None:
        pass


def follow(consumer: HotConsumer) -> PlayedReader:
    consumer._looked_s = 0.0
    consumer._follow()
    (found,) = consumer._consumers.values()
    assert isinstance(found, PlayedReader)
    return found


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> Iterator[HotConsumer]:
    """It reads orders on east."""
    monkeypatch.setattr("twinshore.client.consumer.Consumer", PlayedReader)
    monkeypatch.setattr("twinshore.client.reach.HomesCentre", ByHand)
    with HotConsumer({"group.id": "billing"}, clusters=CLUSTERS) as consumer:
        consumer.subscribe(["orders"])
        follow(consumer)
        yield consumer


@pytest.mark.parametrize("told", [False, True])
@pytest.mark.parametrize(("address", "begins"), [("127.0.0.1:1", [HANDED_OUT]), ("127.0.0.1:3", [])])
def test_behind_a_push_it_reads_on_where_it_was_on_the_same_cluster_alone(
    monkeypatch: pytest.MonkeyPatch, address: str, begins: list[int], told: bool
) -> None:
    monkeypatch.setattr("twinshore.client.consumer.Consumer", PlayedReader)
    monkeypatch.setattr("twinshore.client.reach.HomesCentre", ByHand)
    consumer = HotConsumer({"group.id": "billing"}, clusters=CLUSTERS)
    consumer.subscribe(["orders"])
    follow(consumer)
    consumer._next["orders", 0] = HANDED_OUT
    clusters = {"east": {"bootstrap.servers": address, "fetch.min.bytes": 2}}
    consumer._reach._push(Pushed(sites_of(clusters, {"group.id": "billing"}), "east", "another one"))
    if told:  # by a line of the cluster that was pushed: it counts terms of its own
        heard = HomeLine("orders", "east", address, 1)
        monkeypatch.setattr(ByHand, "start", lambda self: (begin(self), self.hears(heard))[0])
    assert [one.offset for one in follow(consumer).assigned] == begins
    consumer.close()


def hears(consumer: HotConsumer, home: str, term: int, *points: int, step: int = 0, held: bool = False) -> None:
    state = HomeState.HELD if held else HomeState.SETTLED
    centre = consumer._centre
    assert isinstance(centre, ByHand)
    address = CLUSTERS[home]["bootstrap.servers"]
    centre.hears(HomeLine("orders", home, address, term, step, state, "a" * 32 if held else "", points=points))


def test_a_topic_that_is_held_while_orders_are_taken_is_not_parked_and_joined(played: HotConsumer) -> None:
    hears(played, "east", 1, step=1, held=True)
    played._looked_s = 0.0
    played._follow()
    centre = played._centre
    assert isinstance(centre, ByHand)
    assert centre._following.says().parked == {"orders"}
    hears(played, "east", 1, step=2)

    first = centre.heard

    def heard(topic: str) -> Order:
        found = first(topic)
        hears(played, "east", 1, step=3, held=True)
        return found

    centre.heard = heard  # type: ignore[method-assign]
    played._looked_s = 0.0
    played._follow()
    assert not (centre._following.says().parked and played.where("orders") == "east")
    played._looked_s = 0.0
    played._follow()
    assert centre._following.says().parked == {"orders"}
    assert "held" in played.where("orders")


begin = ByHand.start
