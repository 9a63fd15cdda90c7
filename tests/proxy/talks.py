"""Requests of clients and answers of brokers, as values, for the proxy's pure core."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any

from twinshore.kafka.protocol.apis import shape_of
from twinshore.kafka.protocol.framing import frame
from twinshore.kafka.protocol.primitives import Buffer
from twinshore.kafka.protocol.server import Request, read_request
from twinshore.proxy.core.messages import answer_kind, filled, part_of, read_said, request_kind, written
from twinshore.proxy.core.model import Ask, Broker, ClusterSeen, Later, Layout, Move, Parts, Place, Run, Said, Say, Seen
from twinshore.proxy.core.offers import HANDLED
from twinshore.proxy.core.session import Session

LAYOUT = Layout("proxy.example", 19092, ("east", "west"), 100)
EAST, WEST = Place("east", 1), Place("west", 2)


def seen(
    *, homes: dict[str, str] | None = None, away: tuple[str, ...] = (), more_on_east: frozenset[str] = frozenset()
) -> Seen:
    """east has orders, west has bills, and both have shared, at home on east unless `homes` says otherwise; whoever is
    asked takes all that is handled."""
    east, west = frozenset({"orders", "shared"}) | more_on_east, frozenset({"bills", "shared"})
    clusters = {
        "east": ClusterSeen("east", "east-id", 1, {1: Broker("e1", 9092), 3: Broker("e3", 9092)}, east, HANDLED),
        "west": ClusterSeen("west", "west-id", 2, {2: Broker("w2", 9092, "az")}, west, HANDLED),
    }
    for name in away:
        old = clusters[name]
        clusters[name] = ClusterSeen(name, old.cluster_id, old.controller, old.brokers, old.topics, HANDLED, False)
    return Seen(clusters, {"shared": "east"} if homes is None else homes, HANDLED)


def session(place: Place | None = EAST, news: Callable[[], None] = lambda: None) -> Session:
    return Session(place, LAYOUT, news)


def request(key: int, version: int, body: Parts) -> Request:
    """As it would be read from a client's connection."""
    sent = frame(key, version, 7, "app", body, shape_of(key, version).tags_in_request)
    return read_request(memoryview(b"".join(sent)[4:]))


def asked(key: int, version: int, /, **values: Any) -> Request:
    """A request of kio's."""
    return request(key, version, written(filled(request_kind(key, version), **values)))


def asked_part(key: int, version: int, *names: str) -> Any:
    """The type of a part of a request."""
    return part_of(request_kind(key, version), *names)


def said_part(key: int, version: int, *names: str) -> Any:
    """The type of a part of an answer."""
    return part_of(answer_kind(key, version), *names)


def answer(key: int, version: int, /, **values: Any) -> memoryview:
    """The body of a broker's answer."""
    return view(written(filled(answer_kind(key, version), **values)))


def newer_group(ask: Ask, members: Mapping[str, Sequence[str]], epoch: int) -> memoryview:
    """What a coordinator says of a group of the newer protocol: of each member the topics that it reads."""
    kind = said_part(ask.key, ask.version, "groups", "members")
    nothing = {one.name: filled(one.type) for one in fields(kind) if one.name.endswith("assignment")}
    some = (
        filled(kind, member_id=name, member_epoch=epoch, subscribed_topic_names=tuple(topics), **nothing)
        for name, topics in members.items()
    )
    group = filled(said_part(ask.key, ask.version, "groups"), group_id="g", members=tuple(some))
    return answer(ask.key, ask.version, groups=(group,))


def view(parts: Parts | Buffer | Later) -> memoryview:
    """Of an answer that waits, what it will be."""
    parts = parts.body if isinstance(parts, Later) else parts
    return memoryview(b"".join(parts) if isinstance(parts, list | tuple) else bytes(parts))  # type: ignore[arg-type]


def carried(move: Move, broker: Callable[[Ask], Said]) -> tuple[memoryview, list[Ask]]:
    """What an errand says once brokers have answered, and all that they were asked."""
    assert isinstance(move, Run), move
    heard: list[Ask] = []
    said: list[Said] | None = None
    while True:
        try:
            asks = next(move.errand) if said is None else move.errand.send(said)
        except StopIteration as end:
            return view(end.value), heard
        heard += asks
        said = [broker(ask) for ask in asks]


def told(move: Move) -> memoryview:
    """What is answered without asking anybody."""
    assert isinstance(move, Say), move
    return view(move.body)


def by_kio(key: int, version: int, body: memoryview) -> Any:
    return read_said(key, version, body)
