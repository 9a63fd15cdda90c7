"""Where a topic came from, and whether a link may carry it on. Pure.

A twin's descent is the path of clusters its records came by, oldest first. It is what stops a ring: a topic never goes
to a cluster that it has been on, under whatever name. Names alone would not do: east.orders may be somebody's own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from twinshore.fleet import HEARTBEATS, Link, WireError, is_heartbeats
from twinshore.links.filters import passes_filters
from twinshore.wire.note_text import bounded_json, is_word

HOPS_MAX = 32
WORD_CHARS_MAX = 128
_is_word = partial(is_word, chars_max=WORD_CHARS_MAX)


@dataclass(frozen=True, slots=True)
class Hop:
    """A cluster on the way, by its own id; the name is for sentences."""

    cluster_id: str
    name: str


@dataclass(frozen=True, slots=True)
class Descent:
    """`topic_id` in hex; empty while the twin is only announced."""

    topic_id: str
    path: tuple[Hop, ...]

    def onward(self, hop: Hop, topic_id: str) -> Descent:
        """Of this topic's twin, one cluster on."""
        return Descent(topic_id, (*self.path, hop))

    def way(self) -> str:
        return " -> ".join(hop.name for hop in self.path)

    def to_json(self, link: str) -> bytes:
        path = [[hop.cluster_id, hop.name] for hop in self.path]
        return json.dumps({"topic_id": self.topic_id, "path": path, "link": link}, separators=(",", ":")).encode()

    @staticmethod
    def from_json(text: bytes) -> Descent | None:
        """None where it is not one: somebody else wrote there, or a version to come."""
        try:
            raw = bounded_json(text)
        except WireError:
            return None
        match raw:
            case {"topic_id": str(topic_id), "path": list(path)} if len(path) <= HOPS_MAX and _is_word(topic_id):
                hops = [hop for hop in map(_hop, path) if hop is not None]
                return Descent(topic_id, tuple(hops)) if len(hops) == len(path) else None
            case _:
                return None


ORIGINAL = Descent("", ())


def descent_of(topic: str, topic_id: str, told: Mapping[str, Descent]) -> Descent:
    """A topic's descent by what is told of its name; what was told of another topic of that name does not count."""
    found = told.get(topic)
    if found is None or (found.topic_id and found.topic_id != topic_id):
        return ORIGINAL
    return found


def why_it_stays(link: Link, topic: str, descent: Descent, target_id: str) -> str:
    """Why the link does not carry this topic of its source on; empty when it does."""
    if not descent.path:
        if is_heartbeats(topic) and f".{link.target}." in f".{topic}":
            return f"{topic} on {link.source} came from {link.target} and does not go back"
        if is_heartbeats(topic) and topic != HEARTBEATS and not passes_filters(link, topic):
            return f"{topic} on {link.source} is nobody's twin, whatever it is called: the filters leave it out"
        return ""
    if any(hop.cluster_id == target_id for hop in descent.path):
        return f"{topic} on {link.source} came by {descent.way()} and does not go back to {link.target}"
    if not link.chain:
        return f"{topic} on {link.source} is a twin itself, from {descent.way()}; with chain = true it would go on"
    return ""


def _hop(raw: object) -> Hop | None:
    match raw:
        case [str(cluster_id), str(name)] if _is_word(cluster_id) and _is_word(name):
            return Hop(cluster_id, name)
        case _:
            return None
