"""A request whose parts are for several clusters: each part goes to its own, and what all say is one answer. Pure."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from twinshore.kafka.errors import Code
from twinshore.proxy.core.layout import ANY, Layout, Place
from twinshore.proxy.core.messages import answer_kind, error, filled, part_of, read_said, request_kind, written
from twinshore.proxy.core.moves import Ask, Errand, Parts, Said
from twinshore.proxy.core.seen import ClusterSeen, Seen
from twinshore.wire.apis import METADATA
from twinshore.wire.serving.requests import Request

T = TypeVar("T")
Piece: TypeAlias = Generator[Sequence[Ask], Sequence[Said], T]

# What changes something may take longer than a question: so long each for finding where and doing it, as clients wait
# for half a minute by default.
CHANGE_S: Final = 12.0
NO_SUCH_TOPIC: Final = "This server does not host this topic-partition."
_THERE: Final = (Code.NONE, Code.LEADER_NOT_AVAILABLE)
_NOT_THERE: Final = (Code.UNKNOWN_TOPIC_OR_PARTITION, Code.INVALID_TOPIC_EXCEPTION)


class Words(NamedTuple):
    """Which array of a request has its parts, which array of the answer has what became of each, and by which fields
    that one names the part."""

    asked: str
    told: str
    names: Callable[[Any], dict[str, Any]]


class Shares:
    """Those of one request. Each part is given to a broker, or refused here. `renamed`: what a cluster says of a part,
    as clients are to see it."""

    def __init__(
        self,
        request: Request,
        asked: Any,
        words: Words,
        seen: Seen,
        renamed: Callable[[str, Any], Any] = lambda _, one: one,
    ) -> None:
        self._request, self._asked, self._words, self._seen, self._renamed = request, asked, words, seen, renamed
        self._given: dict[Place, list[Any]] = {}
        self._told: list[Any] = []

    def give(self, part: Any, place: Place) -> None:
        """The broker is to answer it, if its cluster is there."""
        if self._seen.clusters[place.cluster].answers:
            self._given.setdefault(place, []).append(part)
        else:
            refused = self._refused(part, Code.REQUEST_TIMED_OUT, f"cluster {place.cluster} does not answer")
            self._told.append(self._renamed(place.cluster, refused))

    def refuse(self, part: Any, code: Code, says: str) -> None:
        """It is answered here."""
        self._told.append(self._refused(part, code, says))

    def _refused(self, part: Any, code: Code, says: str) -> Any:
        kind = part_of(answer_kind(self._request.key, self._request.version), self._words.told)
        return filled(kind, error_code=error(code), error_message=says, **self._words.names(part))

    def errand(self) -> Errand:
        """Asks, and joins."""
        key, version, words = self._request.key, self._request.version, self._words
        asks = [
            Ask(place, key, version, written(replace(self._asked, **{words.asked: tuple(parts)})))
            for place, parts in self._given.items()
        ]
        said = (yield asks) if asks else []
        told, throttle = list(self._told), timedelta(0)
        for (place, parts), heard in zip(self._given.items(), said, strict=True):
            if heard is None:
                says = f"cluster {place.cluster} did not answer in time, and it is not known what became of it"
                found = [self._refused(one, Code.REQUEST_TIMED_OUT, says) for one in parts]
            else:
                answer = read_said(key, version, heard)
                found = getattr(answer, words.told)
                if any(one.error_code == Code.THROTTLING_QUOTA_EXCEEDED for one in found):
                    throttle = max(throttle, answer.throttle_time)
            told += [self._renamed(place.cluster, self._settled(place.cluster, one)) for one in found]
        values: dict[str, Any] = {words.told: tuple(told), "throttle_time": throttle}
        return written(filled(answer_kind(key, version), **values))

    def _settled(self, cluster: str, one: Any) -> Any:
        """A client that hears of another controller asks everything again, also what has been done."""
        if one.error_code != Code.NOT_CONTROLLER or len(self._given) + len(self._told) == 1:
            return one
        says = f"cluster {cluster} has another controller by now: ask again"
        return replace(
            one,
            error_code=error(Code.REQUEST_TIMED_OUT),
            **({"error_message": says} if hasattr(one, "error_message") else {}),
        )


def first_of(seen: Seen) -> str:
    """The cluster that stands first in the settings, wherever groups are at home."""
    return next(iter(seen.clusters))


def controller(cluster: str, seen: Seen) -> Place:
    """Whom to ask for what a cluster's controller does. Brokers that run by Raft ask theirs themselves."""
    known = seen.clusters[cluster]
    return Place(cluster, known.controller if known.controller in known.brokers else ANY)


def place_of(number: int, layout: Layout, seen: Seen) -> Place | None:
    """The broker that clients know by this number; None where there is none."""
    index = number // layout.nodes_per_cluster
    if number < 0 or index >= len(layout.clusters):
        return None
    cluster = layout.clusters[index]
    for node in seen.clusters[cluster].brokers:
        if layout.number(cluster, node) == number:
            return Place(cluster, node)
    return None


def holders(topics: Iterable[str], seen: Seen) -> Piece[dict[str, list[str]]]:
    """The clusters that have each of these, as they say now. One that is away has what it had when it was seen last."""
    names = list(dict.fromkeys(topics))
    version = seen.offers[METADATA][1]
    kind = request_kind(METADATA, version)
    wanted = tuple(filled(part_of(kind, "topics"), name=name) for name in names)
    body = written(filled(kind, topics=wanted, allow_auto_topic_creation=False))
    answering = seen.answering() if names else []
    asks = [Ask(Place(name, ANY), METADATA, version, body) for name in answering]
    said = (yield asks) if asks else []
    told = dict(zip(answering, said, strict=True))
    found: dict[str, list[str]] = {}
    for name, cluster in seen.clusters.items():
        for topic in _held(names, cluster, told.get(name), version):
            found.setdefault(topic, []).append(name)
    return found


def _held(names: Sequence[str], cluster: ClusterSeen, said: Said, version: int) -> list[str]:
    topics = () if said is None else read_said(METADATA, version, said).topics
    codes = {str(one.name): int(one.error_code) for one in topics}
    held = []
    for name in names:
        code = codes.get(name)
        if code in _THERE or (code not in _NOT_THERE and name in cluster.topics):
            held.append(name)
    return held


def located(topics: Iterable[str], seen: Seen) -> Piece[dict[str, str]]:
    """Where each of these is at home; only for those that nobody was known to have, the clusters are asked. What is at
    home on a cluster that is none of the proxy's is nowhere, as clients see it."""
    names = set(topics) - seen.leaderless.keys()
    known = {name: home for name in names if (home := seen.route(name)) is not None}
    held = yield from holders(sorted(names - known.keys()), seen)
    return known | {name: clusters[0] for name, clusters in held.items()}


def moves(topic: str) -> str:
    """What is said of one that is not to be changed while a switch moves it."""
    return f"topic {topic} may not be changed now, as a switch moves it or its home is not known: ask again"


def unseen(topic: str, seen: Seen) -> str:
    """Why the topic may not be made or deleted: whether another cluster has it is not known."""
    silent = " and ".join(seen.unseen)
    return f"topic {topic}: cluster {silent} has not answered since this proxy began, and may have it: ask again"


def refused_whole(request: Request, code: Code, says: str) -> Parts:
    """An answer that has one error for all of it."""
    kind = answer_kind(request.key, request.version)
    return written(filled(kind, error_code=error(code), error_message=says))
