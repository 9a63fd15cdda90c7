"""A FailoverProducer whose turns a test makes one by one: librdkafka is played, what clusters say is told by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Message

from testkit.log_lines import LogLines
from twinshore.client import FailoverProducer
from twinshore.client.core.pushes import PushedSettings
from twinshore.client.discovery.routing_topic import HomeTracker
from twinshore.client.producer_routing import ProducerRouter
from twinshore.client.sites import sites_of
from twinshore.kafka.clock import steady_s
from twinshore.routing.core.home_records import HomeRecord, HomeState
from twinshore.routing.core.subscribers import WriteOrder, WriteTo

CLUSTERS = {"east": {"bootstrap.servers": "127.0.0.1:1"}, "west": {"bootstrap.servers": "127.0.0.1:2"}}
LEASE_S = 60.0
Sent = tuple[str, bytes]


class Played:
    """A producer of librdkafka's: `log` is what its broker was sent, `flying` what it has not answered. `refuses`: with
    what it meets a call for a topic; `lives`: whether flush brings answers."""

    def __init__(self, settings: dict[str, Any], made: list[Played]) -> None:
        self.settings = settings
        self.log: list[Sent] = []
        self.flying: list[tuple[Sent, Callable[..., None]]] = []
        self.refuses: dict[str, Exception] = {}
        self.lives, self.purged = True, 0
        self.meanwhile: Callable[[], None] = lambda: None
        made.append(self)

    def __len__(self) -> int:
        return len(self.flying)

    def produce(self, topic: str, value: bytes, key: bytes, _: int, told: Callable[..., None], *_rest: Any) -> None:
        for one in (value, key):
            if isinstance(one, str):
                one.encode()
        if topic in self.refuses:
            raise self.refuses[topic]
        self.log.append((topic, value))
        self.flying.append(((topic, value), told))

    def poll(self, _: float) -> int:
        self.meanwhile()
        return 0

    def flush(self, _: float) -> int:
        self.meanwhile()
        if self.lives:
            self.answers()
        return len(self.flying)

    def purge(self, **_: bool) -> None:
        self.purged += 1
        self.lives = True
        self.answers(KafkaError._PURGE_INFLIGHT)

    def list_topics(self, *_: object, **__: object) -> None:
        pass

    def answers(self, code: int | None = None) -> None:
        """What is on its way is acknowledged, or refused."""
        for (topic, value), told in self._taken():
            error, at = None if code is None else KafkaError(code), self.log.index((topic, value))
            told(error, Message(topic=topic, partition=0, offset=at, value=value, timestamp=(1, 1)))

    def _taken(self) -> list[tuple[Sent, Callable[..., None]]]:
        taken, self.flying = self.flying, []
        return taken


class ByHand(HomeTracker):
    """Asks nobody. A cluster's id is its address. `silent`: clusters that do not answer."""

    silent: frozenset[str] = frozenset()

    def start(self) -> None:
        self.meanwhile: Callable[[], None] = lambda: None
        self.goodbyes = 0
        for site in self._sites.values():
            self._shown.add(site.name)
            self._following.met(site.name, site.cluster.bootstrap[0])
        self.hears()

    def stop(self, *, goodbye: bool = True) -> None:
        self.goodbyes += goodbye

    def hears(self, *lines: HomeRecord) -> None:
        for name in self._sites.keys() - self.silent:
            self.hears_at(name, *lines)

    def hears_at(self, name: str, *lines: HomeRecord) -> None:
        asked_s = steady_s()
        self._following.said(name, self._following.says(), asked_s - 2e-3, asked_s - 1e-3)
        self._following.read(name, {line.topic: line for line in lines}, asked_s)

    def order(self, topic: str) -> WriteOrder:
        found = super().order(topic)
        self.meanwhile()
        return found


class PlayedGate:
    """Decides nothing. `strict`: the topics whose reports it is given; `shut`: those that are not to be written."""

    def __init__(self) -> None:
        self.strict: set[str] = set()
        self.shut: set[str] = set()

    def why_not(self, topic: str, _: WriteTo) -> str:
        return "its twin takes no records" if topic in self.shut else ""

    def holds(self, topic: str) -> bool:
        return topic in self.strict

    def call(self, _: Callable[[], None]) -> None:
        pass

    def release(self) -> None:
        pass


class Stage:
    def __init__(self, said: LogLines) -> None:
        self.made: list[Played] = []
        self.said = said
        self.gate = PlayedGate()
        self._open: list[FailoverProducer] = []

    def opens(self, *topics: str, **named: Any) -> FailoverProducer:
        """A producer that has made its first turn: calls to topics of these names go straight."""
        usual: dict[str, Any] = {"clusters": CLUSTERS, "lease_s": LEASE_S, "max_block_s": 0.0}
        self.producer = FailoverProducer(named.pop("config", {}), topics=topics, **(usual | named))
        self._open.append(self.producer)
        self.turn()
        for topic in topics:
            self.producer.produce(topic, b"first")
        self.turn()
        for one in self.made:
            one.answers()
        return self.producer

    def pushes(self, home: str, clusters: Mapping[str, Mapping[str, Any]]) -> None:
        """What the producer goes by from its next turn on."""
        sites = sites_of(clusters, {})
        self.producer._router._discovery._push(PushedSettings(sites, home, "another one"))

    @property
    def centre(self) -> ByHand:
        found = self.producer._router.tracker
        assert isinstance(found, ByHand)
        return found

    def at(self, name: str) -> Played:
        """The client that the producer has of this cluster now."""
        found = self.producer._router._clients[name]._producer
        assert isinstance(found, Played)
        return found

    def turn(self, times: int = 1) -> None:
        for _ in range(times):
            self.producer._router.turn()
            self.producer._router._warnings.tell()

    def hears(
        self,
        home: str,
        term: int,
        *topics: str,
        step: int = 0,
        held: bool = False,
        hold_ms: int = 0,
        points: tuple[int, ...] = (),
    ) -> None:
        state = HomeState.HELD if held else HomeState.SETTLED
        address = CLUSTERS[home]["bootstrap.servers"]
        self.centre.hears(
            *(
                HomeRecord(
                    topic=one,
                    home=home,
                    cluster_id=address,
                    term=term,
                    step=step,
                    state=state,
                    switch="a" * 32,
                    hold_ms=hold_ms,
                    points=points,
                )
                for one in topics
            )
        )

    def log(self, *addresses: str) -> list[Sent]:
        """What was sent to this cluster, by whichever client."""
        wanted = [CLUSTERS[one]["bootstrap.servers"] for one in addresses]
        return [sent for one in self.made if one.settings["bootstrap.servers"] in wanted for sent in one.log]

    def end(self) -> None:
        for one in self._open:
            one.kill()


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch, log_lines: LogLines) -> Iterator[Stage]:
    made = Stage(log_lines)
    monkeypatch.setattr("twinshore.client.producer_routing.Producer", lambda settings: Played(settings, made.made))
    monkeypatch.setattr("twinshore.client.discovery.routing_topic.HomeTracker", ByHand)
    monkeypatch.setattr("twinshore.client.producer_routing.share_gate", lambda *_: made.gate)
    monkeypatch.setattr(ProducerRouter, "_run", lambda _: None)
    yield made
    made.end()


def fault(code: int) -> KafkaException:
    return KafkaException(KafkaError(code))


def is_at(order: WriteOrder, cluster: str) -> bool:
    return isinstance(order, WriteTo) and order.cluster == cluster
