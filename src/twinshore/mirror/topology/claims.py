"""What the lines of `twinshore.twins` say of a cluster's topics, and how far that is believed. Pure.

Whoever may write to that topic may say anything of any topic. So a line that calls a topic a twin is a claim. It is
believed where something else bears it out: the store of this mirror, what this link told the target when it began to
carry the topic, or the lines of the link that is said to have made the twin, which name the same topic id.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeVar

from twinshore.fleet.sentences import listed
from twinshore.mirror.topology.provenance import ORIGINAL, Descent, descent_of
from twinshore.mirror.topology.target_notes import TOPIC, twin_of_line

K = TypeVar("K")
V = TypeVar("V")
LINES_MAX = 200_000  # of each kind: what strangers write must not fill the memory
SHOWN_MAX = 5


@dataclass(slots=True)
class Lines:
    """The lines of one cluster, as the log goes on. `descents`: of topics by name. `made`: by key, the source's cluster
    id and the twin's topic id of each twin that some link says it writes."""

    descents: dict[str, Descent] = field(default_factory=dict)
    made: dict[bytes, tuple[str, str]] = field(default_factory=dict)

    def take(self, key: bytes | None, value: bytes | None) -> None:
        """One line more; what is none is passed over."""
        name = (key or b"").decode("utf-8", "replace")
        if TOPIC.fullmatch(name):
            _put(self.descents, name, Descent.from_json(value) if value else None)
        elif key and key.startswith(b"["):
            _put(self.made, key, twin_of_line(key, value))

    def claim(self, topic: str, topic_id: str) -> Descent:
        """What is said of this very topic."""
        return descent_of(topic, topic_id, self.descents)

    def written(self) -> frozenset[tuple[str, str]]:
        """Which topics links say that they write: the cluster that they carry from, and the topic's id."""
        return frozenset(self.made.values())


def bears_out(written: Collection[tuple[str, str]], claim: Descent) -> bool:
    """Whether a link that carries from the last cluster on the way says that it writes this very topic."""
    return bool(claim.path and claim.topic_id) and (claim.path[-1].cluster_id, claim.topic_id) in written


class Belief(Enum):
    """SURE: this is the topic's descent. WAITING: its lines may still be on their way. DOUBTED: nothing bears out what
    is claimed."""

    SURE = "sure"
    WAITING = "waiting"
    DOUBTED = "doubted"


def judge(
    claim: Descent, *, own: Descent | None, before: Descent | None, borne_out: bool, waited: bool
) -> tuple[Belief, Descent]:
    """What a topic's descent is taken to be. `own`: by this mirror's store. `before`: what this link told the target
    when it began to carry the topic. `waited`: there was time enough for the lines of an honest link."""
    if own is not None:
        agrees = claim.topic_id == own.topic_id and _last(claim) == _last(own)
        return Belief.SURE, claim if agrees else own
    if before is not None:
        same = [hop.cluster_id for hop in claim.path] == [hop.cluster_id for hop in before.path]
        return (Belief.SURE, claim) if same else (Belief.DOUBTED, before)
    if not claim.path or borne_out:
        return Belief.SURE, claim
    return (Belief.DOUBTED, ORIGINAL) if waited else (Belief.WAITING, ORIGINAL)


def doubts_in_words(source: str, topics: Collection[str]) -> str:
    """One sentence for the ledger, however many lines strangers wrote; empty where they speak of no topic."""
    if not topics:
        return ""
    return (
        f"lines of twinshore.twins on {source} call {listed(sorted(topics), SHOWN_MAX)} twins, and nothing bears them "
        "out: the topics are carried as before"
    )


def _last(descent: Descent) -> str:
    return descent.path[-1].cluster_id if descent.path else ""


def _put(lines: dict[K, V], key: K, value: V | None) -> None:
    if value is None:
        lines.pop(key, None)
    elif key in lines or len(lines) < LINES_MAX:
        lines[key] = value
