"""Requests of clients and answers of brokers, as values, for the proxy's pure core."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any

from twinshore.kafka.protocol.apis import api_format
from twinshore.kafka.protocol.framing import frame_request
from twinshore.kafka.protocol.primitives import Buffer
from twinshore.kafka.protocol.requests import Request, read_request
from twinshore.proxy.core.api_versions import HANDLED_API_VERSIONS
from twinshore.proxy.core.message_codec import (
    build_message,
    decode_response,
    encode_message,
    get_element_type,
    get_request_type,
    get_response_type,
)
from twinshore.proxy.core.model import (
    BrokerAddressing,
    BrokerEndpoint,
    BrokerId,
    BrokerRequest,
    BrokerResponse,
    FanOut,
    Parts,
    ProxiedCluster,
    RequestDecision,
    RespondLater,
    RespondNow,
    RoutingTable,
)
from twinshore.proxy.core.session import ClientSession

LAYOUT = BrokerAddressing("proxy.example", 19092, ("east", "west"), 100)
EAST, WEST = BrokerId("east", 1), BrokerId("west", 2)


def seen(
    *, homes: dict[str, str] | None = None, away: tuple[str, ...] = (), more_on_east: frozenset[str] = frozenset()
) -> RoutingTable:
    """east has orders, west has bills, and both have shared, at home on east unless `homes` says otherwise; whoever is
    asked takes all that is handled."""
    east, west = frozenset({"orders", "shared"}) | more_on_east, frozenset({"bills", "shared"})
    clusters = {
        "east": ProxiedCluster(
            "east",
            "east-id",
            1,
            {1: BrokerEndpoint("e1", 9092), 3: BrokerEndpoint("e3", 9092)},
            east,
            HANDLED_API_VERSIONS,
        ),
        "west": ProxiedCluster("west", "west-id", 2, {2: BrokerEndpoint("w2", 9092, "az")}, west, HANDLED_API_VERSIONS),
    }
    for name in away:
        old = clusters[name]
        clusters[name] = ProxiedCluster(
            name, old.cluster_id, old.controller, old.brokers, old.topics, HANDLED_API_VERSIONS, False
        )
    return RoutingTable(clusters, {"shared": "east"} if homes is None else homes, HANDLED_API_VERSIONS)


def session(place: BrokerId | None = EAST, news: Callable[[], None] = lambda: None) -> ClientSession:
    return ClientSession(place, LAYOUT, news)


def request(key: int, version: int, body: Parts) -> Request:
    """As it would be read from a client's connection."""
    sent = frame_request(key, version, 7, "app", body, api_format(key, version).tags_in_request)
    return read_request(memoryview(b"".join(sent)[4:]))


def asked(key: int, version: int, /, **values: Any) -> Request:
    """A request of kio's."""
    return request(key, version, encode_message(build_message(get_request_type(key, version), **values)))


def asked_part(key: int, version: int, *names: str) -> Any:
    """The type of a part of a request."""
    return get_element_type(get_request_type(key, version), *names)


def said_part(key: int, version: int, *names: str) -> Any:
    """The type of a part of an answer."""
    return get_element_type(get_response_type(key, version), *names)


def answer(key: int, version: int, /, **values: Any) -> memoryview:
    """The body of a broker's answer."""
    return view(encode_message(build_message(get_response_type(key, version), **values)))


def newer_group(ask: BrokerRequest, members: Mapping[str, Sequence[str]], epoch: int) -> memoryview:
    """What a coordinator says of a group of the newer protocol: of each member the topics that it reads."""
    kind = said_part(ask.key, ask.version, "groups", "members")
    nothing = {one.name: build_message(one.type) for one in fields(kind) if one.name.endswith("assignment")}
    some = (
        build_message(kind, member_id=name, member_epoch=epoch, subscribed_topic_names=tuple(topics), **nothing)
        for name, topics in members.items()
    )
    group = build_message(said_part(ask.key, ask.version, "groups"), group_id="g", members=tuple(some))
    return answer(ask.key, ask.version, groups=(group,))


def view(parts: Parts | Buffer | RespondLater) -> memoryview:
    """Of an answer that waits, what it will be."""
    parts = parts.body if isinstance(parts, RespondLater) else parts
    return memoryview(b"".join(parts) if isinstance(parts, list | tuple) else bytes(parts))  # type: ignore[arg-type]


def carried(
    move: RequestDecision, broker: Callable[[BrokerRequest], BrokerResponse]
) -> tuple[memoryview, list[BrokerRequest]]:
    """What an errand says once brokers have answered, and all that they were asked."""
    assert isinstance(move, FanOut), move
    heard: list[BrokerRequest] = []
    said: list[BrokerResponse] | None = None
    while True:
        try:
            asks = next(move.errand) if said is None else move.errand.send(said)
        except StopIteration as end:
            return view(end.value), heard
        heard += asks
        said = [broker(ask) for ask in asks]


def told(move: RequestDecision) -> memoryview:
    """What is answered without asking anybody."""
    assert isinstance(move, RespondNow), move
    return view(move.body)


def by_kio(key: int, version: int, body: memoryview) -> Any:
    return decode_response(key, version, body)
