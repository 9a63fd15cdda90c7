"""What a driver and a raft say to each other: frozen values that travel as lines of JSON. Pure.

A **raft** is a set of small lanes, of several links, whose pumps run side by side in one Spark task.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from twinshore.mirror.lane.orders import LaneLimits, TideOrder, form_of

# Lanes on a raft take turns: what one turn may fetch and cut is a part of what a lane with a task of its own may.
FETCH_BYTES_MAX = 4 << 20
PARTITION_BYTES_MAX = 1 << 20
JOINED_BYTES_MAX = 8 << 20
WORK_MAX = 10_000
# So many fetches of a broadcast are held at least.
FETCHES_HELD = 8
Word = TypeVar("Word")


@dataclass(frozen=True, slots=True)
class RaftOrder:
    """All that a raft's task needs to begin: which lanes it carries is said at the desk, while it runs. `tells`: it
    says before each turn whose it is."""

    raft: int
    tide: int
    desk_host: str
    desk_port: int
    desk_token: str = field(repr=False)
    tells: bool = False

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self))


@dataclass(frozen=True, slots=True)
class Carry:
    """To the raft: begin a pump with this order. `berth` is this pump's number, never used again."""

    berth: int
    order: TideOrder


@dataclass(frozen=True, slots=True)
class Leave:
    """To the raft: take no more pumps, and end once those there have ended."""


@dataclass(frozen=True, slots=True)
class Afloat:
    """Of the raft: its loop turns. Said every second."""


@dataclass(frozen=True, slots=True)
class Turn:
    """Of the raft: now comes the turn of this berth's pump; 0: nobody's. Said where its order wants that."""

    berth: int


@dataclass(frozen=True, slots=True)
class Ended:
    """Of the raft: the pump of this berth is over, and why."""

    berth: int
    sentence: str
    died: bool = False


OfRaft = Afloat | Turn | Ended


def order_of(text: str) -> TideOrder | RaftOrder:
    """What a Spark task is to carry: one lane, or a raft."""
    kind: type[TideOrder | RaftOrder] = RaftOrder if "raft" in json.loads(text) else TideOrder
    return form_of(kind).validate_json(text)


def said(word: Carry | Leave | OfRaft) -> dict[str, Any]:
    """A word of either side, as it travels."""
    return {"what": type(word).__name__.lower(), **dataclasses.asdict(word)}


def heard_by_raft(message: dict[str, Any]) -> Carry | Leave:
    """A word of the driver, out of its JSON form; ValueError where it is none."""
    return _heard(message, {"carry": Carry, "leave": Leave}, "a raft")


def heard_of_raft(message: dict[str, Any]) -> OfRaft:
    """A word of the raft, out of its JSON form; ValueError where it is none."""
    return _heard(message, {"afloat": Afloat, "turn": Turn, "ended": Ended}, "a driver")


def _heard(message: dict[str, Any], words: Mapping[str, type[Word]], who: str) -> Word:
    what = message["what"]
    if what not in words:
        raise ValueError(f"{who} does not know the word {what!r}")
    return form_of(words[what]).validate_python({name: said for name, said in message.items() if name != "what"})


def narrowed(limits: LaneLimits, high_bytes: int = 0) -> LaneLimits:
    """The limits of a lane on a raft: no turn of one pump keeps the others from asking for their grants in time.
    `high_bytes`: what a broadcast holds for lanes that are behind, of which one fetch may bring a part."""
    fetch_bytes = min(limits.fetch_bytes_max, FETCH_BYTES_MAX)
    partition_bytes = min(limits.partition_bytes_max, PARTITION_BYTES_MAX)
    widest = limits
    if high_bytes:
        # What one fetch brings is fed to all before the next one takes its place.
        fetch_bytes = min(fetch_bytes, high_bytes // 2)
        partition_bytes = min(partition_bytes, high_bytes // 4)
        widest = dataclasses.replace(
            limits,
            fetch_bytes_widest=max(fetch_bytes, high_bytes // FETCHES_HELD),
            partition_bytes_widest=max(partition_bytes, high_bytes // FETCHES_HELD // 4),
        )
    return dataclasses.replace(
        widest,
        fetch_bytes_max=fetch_bytes,
        partition_bytes_max=partition_bytes,
        joined_bytes_max=min(limits.joined_bytes_max, JOINED_BYTES_MAX),
        work_max=min(limits.work_max, WORK_MAX),
        far_streams=1,
    )
