"""Whatever brokers answer, no client hears of a broker's own number, address or cluster: all answers are walked."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, get_args, get_origin

import pytest

from tests.proxy.talks import request, seen, view
from twinshore.config.errors import WireError
from twinshore.kafka.protocol.apis import API_VERSIONS, DESCRIBE_CONFIGS, FETCH, PRODUCE, api_name
from twinshore.proxy.core.admin_requests import BROKER_RESOURCE_TYPE, HIDDEN_BROKER_CONFIGS, TOPIC_RESOURCE_TYPE
from twinshore.proxy.core.api_versions import HANDLED_API_VERSIONS
from twinshore.proxy.core.message_codec import (
    build_message,
    decode_response,
    encode_message,
    get_request_type,
    get_response_type,
)
from twinshore.proxy.core.model import (
    BrokerAddressing,
    BrokerId,
    BrokerRequest,
    BrokerResponse,
    FanOut,
    ForwardRequest,
    RequestDecision,
    RespondNow,
)
from twinshore.proxy.core.session import ClientSession

# The first cluster's numbers differ from what clients know as well.
FAR = BrokerAddressing("proxy.example", 19092, ("spare", "east", "west"), 100, "twinshore")
PLACES = [BrokerId("east", 3), BrokerId("west", 2), None]
# Records and fetches are walked by tests of their own; ApiVersions asks no broker.
KEYS = sorted(HANDLED_API_VERSIONS.keys() - {PRODUCE, FETCH, API_VERSIONS})
OF_BROKERS = re.compile(
    r"(broker|node|leader|controller|coordinator)_ids?|.*replicas|(.*_)?(isr|replica)_nodes|preferred.*"
)
REAL_HOST, REAL_PORT, REAL_ID, REAL_NODES = "real.example", 9999, "real-cluster", (2, 3)
NAMES = {"name", "topic", "topic_name", "topic_names", "resource_name"}


def poisoned(kind: Any, **given: Any) -> Any:
    """A message with one element in each array, and what must not be told wherever a field could hold it."""
    values: dict[str, Any] = dict(given)
    for field in dataclasses.fields(kind):
        # The host in an ACL is a client's.
        value = None if kind.__name__.startswith("Acl") else _value(field.name, field.type)
        if value is not None and field.name not in values:
            values[field.name] = value
    return build_message(kind, **values)


def _value(name: str, kind: Any) -> Any:
    options = [one for one in get_args(kind) if one is not type(None)]
    if get_origin(kind) is not tuple and options:
        kind = options[0]
    if get_origin(kind) is tuple:
        (element, *_) = get_args(kind)
        inner = poisoned(element) if dataclasses.is_dataclass(element) else _value(name, element)
        return None if inner is None else (inner,)
    if dataclasses.is_dataclass(kind):
        return poisoned(kind)
    if OF_BROKERS.fullmatch(name):
        return REAL_NODES[0]
    texts = {"host": REAL_HOST, "port": REAL_PORT, "cluster_id": REAL_ID, "rack": None}
    if name in texts:
        return texts[name]
    return "bills" if name in NAMES else None


def played(key: int, version: int, asks: Any, place: BrokerId | None) -> Any:
    """What the client hears; None where the request is none, or the answer does not come from here."""
    move: RequestDecision = ClientSession(place, FAR, lambda: None).move(
        request(key, version, encode_message(asks)), seen()
    )
    said: list[BrokerResponse] | None = None
    if isinstance(move, ForwardRequest):
        broker = view(encode_message(poisoned(get_response_type(key, version))))
        parts = move.rewrite(broker, 0) if move.rewrite else None
        return decode_response(key, version, broker if parts is None else view(parts))
    if isinstance(move, RespondNow):
        return decode_response(key, version, view(move.body))
    assert isinstance(move, FanOut), move
    while True:
        try:
            asked = next(move.errand) if said is None else move.errand.send(said)
        except StopIteration as end:
            return decode_response(key, version, view(end.value))
        said = [_broker(one) for one in asked]


def _broker(ask: BrokerRequest) -> memoryview:
    return view(encode_message(poisoned(get_response_type(ask.key, ask.version), throttle_time=timedelta(0))))


def walked(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Every field with its name."""
    if dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            yield from walked(getattr(value, field.name), field.name)
    elif isinstance(value, tuple):
        for one in value:
            yield from walked(one, name)
    else:
        yield name, value


def leaks(answer: Any) -> list[tuple[str, Any]]:
    return [
        (name, value)
        for name, value in walked(answer)
        if value in (REAL_HOST, REAL_PORT, REAL_ID) or (OF_BROKERS.fullmatch(name) and value in REAL_NODES)
    ]


@pytest.mark.parametrize("key", KEYS, ids=api_name)
def test_no_answer_tells_of_a_broker_as_it_really_is(key: int) -> None:
    for version in range(HANDLED_API_VERSIONS[key][0], HANDLED_API_VERSIONS[key][1] + 1):
        for place in PLACES:
            for named in ("bills", "orders"):
                asks = poisoned(get_request_type(key, version), key_type=0, endpoint_type=1)
                asks = _about(asks, named)
                try:
                    answer = played(key, version, asks, place)
                except WireError as error:
                    pytest.fail(f"v{version}: {error}")
                assert leaks(answer) == [], (version, place)


def _about(asks: Any, topic: str) -> Any:
    """The request, about this topic."""
    if not dataclasses.is_dataclass(asks):
        return asks
    values: dict[str, Any] = {}
    for field in dataclasses.fields(asks):
        value = getattr(asks, field.name)
        if isinstance(value, tuple):
            values[field.name] = tuple(topic if one == "bills" else _about(one, topic) for one in value)
        elif field.name in NAMES and value == "bills":
            values[field.name] = topic
        elif field.name == "resource_type":
            values[field.name] = TOPIC_RESOURCE_TYPE
    return dataclasses.replace(asks, **values)  # type: ignore[type-var]


def test_the_walk_sees_what_is_told() -> None:
    """Else the test above could not fail."""
    seen_of = {
        name for key in KEYS for name, _ in leaks(poisoned(get_response_type(key, HANDLED_API_VERSIONS[key][1])))
    }
    assert seen_of >= {"host", "port", "cluster_id", "controller_id", "node_id", "broker_id", "replicas", "leader_id"}


def test_a_broker_s_settings_tell_none_of_its_addresses() -> None:
    asks = build_message(get_request_type(DESCRIBE_CONFIGS, 4))
    part = build_message(
        type_of(get_request_type(DESCRIBE_CONFIGS, 4), "resources"),
        resource_type=BROKER_RESOURCE_TYPE,
        resource_name="202",
    )
    kind = get_response_type(DESCRIBE_CONFIGS, 4)
    config = type_of(type_of(kind, "results"), "configs")
    synonym = type_of(config, "synonyms")
    said = tuple(
        build_message(
            config, name=name, value=f"{REAL_HOST}:{REAL_PORT}", synonyms=(build_message(synonym, value=REAL_HOST),)
        )
        for name in sorted(HIDDEN_BROKER_CONFIGS)
    )

    def broker(_: BrokerRequest) -> memoryview:
        told = build_message(
            type_of(kind, "results"), resource_type=BROKER_RESOURCE_TYPE, resource_name="2", configs=said
        )
        return view(encode_message(build_message(kind, results=(told,))))

    move = ClientSession(PLACES[1], FAR, lambda: None).move(
        request(DESCRIBE_CONFIGS, 4, encode_message(dataclasses.replace(asks, resources=(part,)))), seen()
    )
    assert isinstance(move, FanOut)
    asked = next(move.errand)
    assert [ask.place for ask in asked] == [BrokerId("west", 2)]
    with pytest.raises(StopIteration) as end:
        move.errand.send([broker(ask) for ask in asked])
    (told,) = decode_response(DESCRIBE_CONFIGS, 4, view(end.value.value)).results
    assert (told.resource_name, {one.value for one in told.configs}) == ("202", {None})


def type_of(kind: Any, name: str) -> Any:
    (field,) = [one for one in dataclasses.fields(kind) if one.name == name]
    return next(one for one in get_args(field.type) if one is not type(None))
