"""Two clusters' answers to admin requests, for pure transcripts: what each was asked is kept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

from tests.proxy.talks import EAST, LAYOUT, answer, by_kio, request, said_part, seen
from twinshore.kafka.protocol.apis import METADATA
from twinshore.kafka.protocol.requests import Request
from twinshore.proxy.core.message_codec import build_message, decode_request, to_error_code
from twinshore.proxy.core.model import (
    BrokerAddressing,
    BrokerId,
    BrokerRequest,
    BrokerResponse,
    FanOut,
    NewTopicRules,
    RequestDecision,
    RespondNow,
    RoutingTable,
)
from twinshore.proxy.core.session import ClientSession

UNKNOWN_TOPIC, TIMED_OUT, EXISTS, BAD_ASSIGNMENT, NOT_CONTROLLER, BAD_REQUEST, POLICY, THROTTLED = (
    3,
    7,
    36,
    39,
    41,
    42,
    44,
    89,
)
RULED = replace(LAYOUT, new_topics=NewTopicRules("", (("app-*", "west"),)))
Answers = Callable[[BrokerRequest, Any], "memoryview | None"]


class Clusters:
    """Each has the topics that it is seen to have, and `more`. `answers` says the rest; a cluster in `silent` says
    nothing."""

    def __init__(self, answers: Answers, *, more: dict[str, set[str]] | None = None, silent: tuple[str, ...] = ()):
        self._answers, self._silent = answers, silent
        self._has = {name: one.topics | (more or {}).get(name, set()) for name, one in seen().clusters.items()}
        self.heard: list[tuple[BrokerId, int, Any]] = []

    def __call__(self, ask: BrokerRequest) -> memoryview | None:
        if ask.place.cluster in self._silent:
            return None
        found = decode_request(request(ask.key, ask.version, ask.body))
        if ask.key == METADATA:
            return self._metadata(ask, found)
        self.heard.append((ask.place, ask.key, found))
        return self._answers(ask, found)

    def _metadata(self, ask: BrokerRequest, found: Any) -> memoryview:
        assert not found.allow_auto_topic_creation, "a question makes no topic"
        kind, has = said_part(METADATA, ask.version, "topics"), self._has[ask.place.cluster]
        topics = (
            build_message(kind, name=one.name, error_code=to_error_code(0 if str(one.name) in has else UNKNOWN_TOPIC))
            for one in found.topics
        )
        return answer(METADATA, ask.version, topics=tuple(topics))

    def asked(self, array: str) -> dict[BrokerId, list[Any]]:
        """The parts that each broker was asked about."""
        return {place: list(getattr(found, array)) for place, _, found in self.heard}


def played(
    asks: Request,
    clusters: Callable[[BrokerRequest], BrokerResponse],
    *,
    now: RoutingTable | None = None,
    place: BrokerId | None = EAST,
    layout: BrokerAddressing = RULED,
    news: Callable[[], None] = lambda: None,
) -> Any:
    """The answer to the client, as kio has it."""
    move: RequestDecision = ClientSession(place, layout, news).move(asks, now or seen())
    if isinstance(move, RespondNow):
        return by_kio(asks.key, asks.version, memoryview(b"".join(move.body)))
    assert isinstance(move, FanOut), move
    said: list[BrokerResponse] | None = None
    while True:
        try:
            questions = next(move.errand) if said is None else move.errand.send(said)
        except StopIteration as end:
            return by_kio(asks.key, asks.version, memoryview(b"".join(end.value)))
        said = [clusters(one) for one in questions]


def each_done(told: str, names: Callable[[Any], dict[str, Any]], array: str = "topics", **values: Any) -> Answers:
    """A broker that does all that it is asked; with its throttle, which is nobody else's."""

    def says(ask: BrokerRequest, found: Any) -> memoryview:
        kind = said_part(ask.key, ask.version, told)
        results = tuple(build_message(kind, **names(one), **values) for one in getattr(found, array))
        return answer(ask.key, ask.version, **{told: results, "throttle_time": timedelta(milliseconds=7)})

    return says


def codes(results: Any, name: str = "name") -> dict[str, int]:
    """The error of each."""
    return {str(getattr(one, name)): int(one.error_code) for one in results}
