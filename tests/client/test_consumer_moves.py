"""From where a consumer reads on behind a move, and behind a push; librdkafka is played."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import OFFSET_INVALID, Consumer, Producer, TopicPartition

from tests.client.turning import CLUSTERS, ByHand
from twinshore.client import FailoverConsumer
from twinshore.client.core.pushes import PushedSettings
from twinshore.client.sites import sites_of
from twinshore.kafka.clock import steady_s
from twinshore.routing.core.home_records import HomeRecord, HomeState
from twinshore.routing.core.subscribers import WriteOrder

PLACE, HANDED_OUT = 17, 5_000


class PlayedReader:
    """The group's place is the same wherever it is asked for."""

    deals_next = True

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = settings
        self.assigned: list[TopicPartition] = []
        self.dealt = False
        self.revoked: Callable[..., object] = lambda *_: None

    def subscribe(self, topics: list[str], on_assign: Any, on_revoke: Any, **_: object) -> None:
        self.revoked = on_revoke
        self.dealt = self.deals_next
        if self.dealt:
            on_assign(self, [TopicPartition(one, 0) for one in topics])

    def assign(self, partitions: list[TopicPartition]) -> None:
        self.assigned = partitions

    def assignment(self) -> list[TopicPartition]:
        return [TopicPartition("orders", 0)] if self.dealt else []

    def committed(self, partitions: list[TopicPartition], _: float) -> list[TopicPartition]:
        return [TopicPartition(one.topic, one.partition, PLACE) for one in partitions]

    def commit(self, offsets: list[TopicPartition] | None = None, **_: object) -> None:
        pass

    def close(self) -> None:
        self.revoked(self, self.assignment())


def follow(consumer: FailoverConsumer) -> PlayedReader:
    consumer._router._looked_s = 0.0
    consumer._router.follow()
    (member,) = consumer._router.members.values()
    found: object = member.consumer
    assert isinstance(found, PlayedReader)
    return found


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> Iterator[FailoverConsumer]:
    """It reads orders on east."""
    monkeypatch.setattr("twinshore.client.group_member.Consumer", PlayedReader)
    monkeypatch.setattr("twinshore.client.discovery.routing_topic.HomeTracker", ByHand)
    with FailoverConsumer({"group.id": "billing"}, clusters=CLUSTERS) as consumer:
        consumer.subscribe(["orders"])
        follow(consumer)
        yield consumer


@pytest.mark.parametrize("told", [False, True])
@pytest.mark.parametrize(("address", "begins"), [("127.0.0.1:1", [HANDED_OUT]), ("127.0.0.1:3", [OFFSET_INVALID])])
def test_behind_a_push_it_reads_on_where_it_was_on_the_same_cluster_alone(
    monkeypatch: pytest.MonkeyPatch, address: str, begins: list[int], told: bool
) -> None:
    monkeypatch.setattr("twinshore.client.group_member.Consumer", PlayedReader)
    monkeypatch.setattr("twinshore.client.discovery.routing_topic.HomeTracker", ByHand)
    consumer = FailoverConsumer({"group.id": "billing"}, clusters=CLUSTERS)
    consumer.subscribe(["orders"])
    follow(consumer)
    consumer._handed.next["orders", 0] = HANDED_OUT
    clusters = {"east": {"bootstrap.servers": address, "fetch.min.bytes": 2}}
    consumer._discovery._push(PushedSettings(sites_of(clusters, {"group.id": "billing"}), "east", "another one"))
    if told:  # by a line of the cluster that was pushed: it counts terms of its own
        heard = HomeRecord(topic="orders", home="east", cluster_id=address, term=1)
        monkeypatch.setattr(ByHand, "start", lambda self: (begin(self), self.hears(heard))[0])
    assert [one.offset for one in follow(consumer).assigned] == begins
    consumer.close()


def hears(
    consumer: FailoverConsumer, home: str, term: int, *points: int, step: int = 0, held: bool = False, address: str = ""
) -> None:
    state = HomeState.HELD if held else HomeState.SETTLED
    centre = consumer._router.tracker
    assert isinstance(centre, ByHand)
    cluster_id = address or CLUSTERS[home]["bootstrap.servers"]
    centre.hears(
        HomeRecord(
            topic="orders",
            home=home,
            cluster_id=cluster_id,
            term=term,
            step=step,
            state=state,
            switch="a" * 32 if held else "",
            points=points,
        )
    )
    consumer._news.set()


def test_a_topic_that_is_held_while_orders_are_taken_is_not_parked_and_joined(played: FailoverConsumer) -> None:
    hears(played, "east", 1, step=1, held=True)
    played._router._looked_s = 0.0
    played._router.follow()
    centre = played._router.tracker
    assert isinstance(centre, ByHand)
    assert centre._following.says().parked == {"orders"}
    hears(played, "east", 1, step=2)

    first = centre.heard

    def heard(topic: str) -> WriteOrder:
        found = first(topic)
        hears(played, "east", 1, step=3, held=True)
        return found

    centre.heard = heard  # type: ignore[method-assign]
    played._router._looked_s = 0.0
    played._router.follow()
    assert not (centre._following.says().parked and played.where("orders") == "east")
    played._router._looked_s = 0.0
    played._router.follow()
    assert centre._following.says().parked == {"orders"}
    assert "held" in played.where("orders")


@pytest.mark.parametrize("dealt", [True, False])
@pytest.mark.parametrize(("point", "begins"), [(HANDED_OUT + 1, HANDED_OUT), (HANDED_OUT - 1, HANDED_OUT - 1)])
def test_of_two_moves_with_nothing_read_between_them_its_place_is_carried(
    monkeypatch: pytest.MonkeyPatch, played: FailoverConsumer, dealt: bool, point: int, begins: int
) -> None:
    """Behind the second one's point other records lie there."""
    played._handed.next["orders", 0] = HANDED_OUT
    monkeypatch.setattr(PlayedReader, "deals_next", dealt)
    hears(played, "west", 2, HANDED_OUT)
    follow(played)
    monkeypatch.setattr(PlayedReader, "deals_next", True)
    hears(played, "east", 3, point)
    assert [one.offset for one in follow(played).assigned] == [begins]


def test_another_cluster_that_takes_a_topic_back_late_says_nothing_of_its_place_here(played: FailoverConsumer) -> None:
    hears(played, "west", 2, HANDED_OUT)
    follow(played)
    played._handed.next["orders", 0] = HANDED_OUT
    late = Consumer({"group.id": "billing", "bootstrap.servers": "127.0.0.1:1"})
    for cluster in ("east", "west"):
        played._router._revoked(cluster, None, late, [TopicPartition("orders", 0)])
        assert [one.offset for one in played.position([TopicPartition("orders", 0)])] == [HANDED_OUT]
    played._router._revoked("west", None, played._router.members["west"].consumer, [TopicPartition("orders", 0)])
    assert played.position([TopicPartition("orders", 0)])[0].offset < 0
    late.close()


@pytest.mark.parametrize(
    "strategy",
    [
        pytest.param({"group.protocol": "consumer"}, id="consumer"),
        pytest.param({"partition.assignment.strategy": "cooperative-sticky"}, id="cooperative", marks=pytest.mark.long),
        pytest.param({}, id="eager", marks=pytest.mark.long),
    ],
)
def test_what_it_leaves_is_committed_no_further_than_it_was_handed_out_where_a_neighbour_stays(
    monkeypatch: pytest.MonkeyPatch, strategy: dict[str, str]
) -> None:
    """By librdkafka's own played cluster. With the newer protocol partitions are dealt anew a while after."""
    server = Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "x", "log_level": 0})
    (broker,) = server.list_topics(timeout=10).brokers.values()
    address = f"{broker.host}:{broker.port}"
    for number in range(2_000):
        server.produce("orders", b"%d" % number, partition=0)
    server.produce("stays", b"", partition=0)
    assert server.flush(10) == 0
    monkeypatch.setattr("twinshore.client.discovery.routing_topic.HomeTracker", ByHand)
    usual = {"auto.offset.reset": "earliest", "auto.commit.interval.ms": 50, "log_level": 0}
    if "group.protocol" not in strategy:
        usual |= {"session.timeout.ms": 6_000, "heartbeat.interval.ms": 200}
    settings = {"group.id": "billing", **usual, **strategy}
    clusters = {"east": {"bootstrap.servers": address}, "west": CLUSTERS["west"]}
    with FailoverConsumer(settings, clusters=clusters) as consumer:
        consumer.subscribe(["orders", "stays"])
        read = taken(consumer, 30.0, lambda found: len(found) >= 100)
        hears(consumer, "east", 1, step=1, held=True, address=address)
        assert taken(consumer, 1.0) == []
        (place,) = consumer._router.members["east"].consumer.committed([TopicPartition("orders", 0)], 10.0)
        assert place.offset == len(read)
        hears(consumer, "east", 1, step=2, address=address)
        read += taken(consumer, 30.0, lambda found: len(found) + len(read) >= 2_000)
    assert read == list(range(2_000)), "each once, in order"


def taken(consumer: FailoverConsumer, for_s: float, enough: Callable[[list[int]], bool] = lambda _: False) -> list[int]:
    """Offsets of orders that were handed out."""
    until_s, found = steady_s() + for_s, list[int]()
    while steady_s() < until_s and not enough(found):
        found += [one.offset() or 0 for one in consumer.consume(10, 0.1) if one.topic() == "orders"]
    return found


begin = ByHand.start
