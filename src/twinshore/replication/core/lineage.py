"""Lineage of topics: where a topic came from, and whether a link may replicate it further.

A twin's lineage is the path of clusters that the records took, oldest first. A topic never goes to a cluster on this
path, under any name; that stops loops. Names alone do not do: `east.orders` may be of another origin.

Anyone with the rights may write to `twinshore.twins`, so a record there is only a claim. A claim counts when confirmed
by this mirror's store, by what this link told the target at the topic's start, or by the link that is said to have made
the twin, with the same topic id.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import TypeVar

from twinshore.config.frozen import HEARTBEATS
from twinshore.config.model import Link, is_heartbeats_topic
from twinshore.config.sentences import join_names
from twinshore.kafka.protocol.primitives import is_printable
from twinshore.replication.core.claim_records import ANY, TOPIC_NAME_PATTERN, parse_twin_ids
from twinshore.replication.core.filters import passes_filters
from twinshore.routing.core.home_records import NewerLine, line_value, read_line

HOPS_MAX = 32
NAME_CHARS_MAX = 128
_is_word = partial(is_printable, chars_max=NAME_CHARS_MAX)


@dataclass(frozen=True, slots=True)
class Hop:
    cluster_id: str
    name: str


@dataclass(frozen=True, slots=True)
class Lineage:
    """`topic_id` in hex; empty while the twin is only announced."""

    topic_id: str
    path: tuple[Hop, ...]

    def onward(self, hop: Hop, topic_id: str) -> Lineage:
        """Returns the lineage of the twin on the next cluster."""
        return Lineage(topic_id, (*self.path, hop))

    def way(self) -> str:
        return " -> ".join(hop.name for hop in self.path)

    def to_json(self, link: str) -> bytes:
        path = [[hop.cluster_id, hop.name] for hop in self.path]
        return line_value({"topic_id": self.topic_id, "path": path, "link": link})

    @staticmethod
    def from_json(text: bytes) -> Lineage | NewerLine | None:
        """None for a foreign form."""
        match record := read_line(text):
            case NewerLine():
                return record
            case {"topic_id": str(topic_id), "path": list(path)} if len(path) <= HOPS_MAX and _is_word(topic_id):
                hops = [hop for hop in map(_hop, path) if hop is not None]
                return Lineage(topic_id, tuple(hops)) if len(hops) == len(path) else None
            case _:
                return None


NO_LINEAGE = Lineage("", ())


def find_lineage(topic: str, topic_id: str, records: Mapping[str, Lineage]) -> Lineage:
    """Returns the topic's lineage; records of another topic with the same name do not count."""
    lineage = records.get(topic)
    if lineage is None or (lineage.topic_id and lineage.topic_id != topic_id):
        return NO_LINEAGE
    return lineage


def explain_not_replicated(link: Link, topic: str, descent: Lineage, target_id: str) -> str:
    """Returns why the link does not replicate the topic; empty: the link does."""
    if not descent.path:
        if is_heartbeats_topic(topic) and f".{link.target}." in f".{topic}":
            return f"{topic} on {link.source} came from {link.target} and does not go back"
        if is_heartbeats_topic(topic) and topic != HEARTBEATS and not passes_filters(link, topic):
            return f"{topic} on {link.source} is no twin, despite its name: the filters exclude it"
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


K = TypeVar("K")
V = TypeVar("V")
LINEAGE_RECORDS_MAX = 200_000  # of each kind: records of strangers must not fill the memory
SHOWN_MAX = 5


@dataclass(slots=True)
class LineageRecords:
    """The records of one cluster, as the log is read. `descents`: lineage by topic name. `made`: by key, the source's
    cluster id and the twin's topic id, `ANY` if unreadable. `unread`: versions of unreadable lineage records.
    """

    descents: dict[str, Lineage] = field(default_factory=dict)
    made: dict[bytes, tuple[str, str]] = field(default_factory=dict)
    unread: dict[str, int] = field(default_factory=dict)

    def take(self, key: bytes | None, value: bytes | None) -> None:
        """Takes a record; ignores those of another form."""
        name = (key or b"").decode("utf-8", "replace")
        if TOPIC_NAME_PATTERN.fullmatch(name):
            lineage = Lineage.from_json(value) if value else None
            _put(self.unread, name, lineage.version if isinstance(lineage, NewerLine) else None)
            _put(self.descents, name, None if isinstance(lineage, NewerLine) else lineage)
        elif key and key.startswith(b"["):
            _put(self.made, key, parse_twin_ids(key, value))

    def claim(self, topic: str, topic_id: str) -> Lineage:
        return find_lineage(topic, topic_id, self.descents)

    def written(self) -> frozenset[tuple[str, str]]:
        """Returns the values of `made`."""
        return frozenset(self.made.values())


def is_confirmed(written: Collection[tuple[str, str]], claim: Lineage) -> bool:
    """Whether a link that carries from the last cluster on the way says that it writes this very topic."""
    if not claim.path or not claim.topic_id:
        return False
    return any((claim.path[-1].cluster_id, topic_id) in written for topic_id in (claim.topic_id, ANY))


class LineageVerdict(Enum):
    """SURE: this is the lineage. WAITING: records may still arrive. DOUBTED: nothing confirms the claim."""

    SURE = "sure"
    WAITING = "waiting"
    DOUBTED = "doubted"


def judge_lineage(
    claim: Lineage, *, own: Lineage | None, before: Lineage | None, borne_out: bool, waited: bool
) -> tuple[LineageVerdict, Lineage]:
    """Returns the lineage to act on. `own`: by this store. `before`: what this link told the target at the topic's
    start. `waited`: an honest link's records would have arrived.
    """
    if own is not None:
        agrees = claim.topic_id == own.topic_id and _last(claim) == _last(own)
        return LineageVerdict.SURE, claim if agrees else own
    if before is not None:
        same = [hop.cluster_id for hop in claim.path] == [hop.cluster_id for hop in before.path]
        return (LineageVerdict.SURE, claim) if same else (LineageVerdict.DOUBTED, before)
    if not claim.path or borne_out:
        return LineageVerdict.SURE, claim
    return (LineageVerdict.DOUBTED, NO_LINEAGE) if waited else (LineageVerdict.WAITING, NO_LINEAGE)


def describe_doubtful_lineage(source: str, topics: Collection[str]) -> str:
    """One sentence, however many records strangers wrote; empty without topics."""
    if not topics:
        return ""
    return (
        f"records of twinshore.twins on {source} call {join_names(sorted(topics), SHOWN_MAX)} twins, and nothing "
        "confirms them: the topics are replicated as before"
    )


def _last(descent: Lineage) -> str:
    return descent.path[-1].cluster_id if descent.path else ""


def _put(lines: dict[K, V], key: K, value: V | None) -> None:
    if value is None:
        lines.pop(key, None)
    elif key in lines or len(lines) < LINEAGE_RECORDS_MAX:
        lines[key] = value
