"""What can be done about a topic that ended or began anew, as values; and what the store remembers of it. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from twinshore.fleet.incidents import IncidentKind, IncidentSide, Policy

# What is done, in words.
ARCHIVED = "archived: its twin stays and is watched no more"
FORGOTTEN = "forgotten: a new twin may begin"
THERE_AGAIN = "there again on the source"


@dataclass(frozen=True, slots=True)
class Change:
    """`before` and `after` are empty where there is, or will be, nothing. `topic`: which it is about, if any."""

    kind: str
    subject: str
    before: str
    after: str
    topic: str = ""

    def __str__(self) -> str:
        if not self.before:
            return f"{self.kind} {self.subject}" + (f": {self.after}" if self.after else "")
        if not self.after:
            return f"{self.kind} {self.subject}: taken back (was {self.before})"
        return f"{self.kind} {self.subject}: {self.before} becomes {self.after}"


@dataclass(frozen=True, slots=True)
class Remark:
    """Something that does not follow, and why: nothing is done about it."""

    kind: str
    subject: str
    sentence: str

    def __str__(self) -> str:
        return f"{self.kind} {self.subject}: {self.sentence}"


class State(StrEnum):
    """What the store remembers of a topic that is no longer as it was. ANNOUNCED and BEGINNING: the ledger says when
    its twin is deleted. KEPT: the twin is more, or less, than a copy. ASKED: too many would go at once."""

    GONE = "gone"
    KEPT = "kept"
    ASKED = "asked"
    ARCHIVED = "archived"
    ANNOUNCED = "announced"
    BEGINNING = "beginning again"


@dataclass(frozen=True, slots=True)
class Remember:
    """`state` None: the topic was seen, whichever it is now; rows that speak of a deletion are closed."""

    topic: str
    state: State | None
    due_ms: int = 0
    source_id: str = ""


@dataclass(frozen=True, slots=True)
class Withdraw:
    """No lane carries it from now on."""

    topic: str


@dataclass(frozen=True, slots=True)
class LookAgain:
    """The planner decides about it anew."""

    topic: str


@dataclass(frozen=True, slots=True)
class Tell:
    """A row for the ledger. `anew`: in place of an open one that says something else by now."""

    topic: str
    kind: IncidentKind
    sentence: str
    policy: Policy
    anew: bool = False
    side: IncidentSide | None = None


@dataclass(frozen=True, slots=True)
class AskSpans:
    """What the twin holds is to be asked, and the decision made again with the answer: alone it says nothing yet."""

    topic: str


@dataclass(frozen=True, slots=True)
class Archive:
    """Its partitions are marked; nothing watches them any more."""

    topic: str


@dataclass(frozen=True, slots=True)
class DeleteTwin:
    topic: str
    twin: str
    reason: str


@dataclass(frozen=True, slots=True)
class Forget:
    """The store drops all it knows of the topic, but for the ledger and the audit."""

    topic: str


@dataclass(frozen=True, slots=True)
class TakeBack:
    """An operator's word is spent: it spoke of something else."""

    topic: str


Act = AskSpans | Remember | Withdraw | LookAgain | Tell | Archive | DeleteTwin | Forget | TakeBack
