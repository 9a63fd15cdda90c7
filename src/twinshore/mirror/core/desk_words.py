"""What the desk and a pump say to each other: typed values, and the lines of JSON that they travel as. Pure.

What a pump says are commands of its core. What the desk says is below. Each side's words are encoded and decoded here
alone, and driver and pump are of one version.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from twinshore.fleet import NamedPartition
from twinshore.mirror.core.commands import Beat, Done, Pace, Released, SayReady, Used
from twinshore.mirror.lane.history import Stand
from twinshore.mirror.lane.orders import Handover, TrackOrder, carried_from, stoppage_from
from twinshore.mirror.lane.quota import Learnt
from twinshore.mirror.lane.reach import Reach


class Assign(NamedTuple):
    """More partitions."""

    tracks: tuple[TrackOrder, ...]


class Go(NamedTuple):
    """Begin to write. `told`: how far each partition is accounted for; `reached`: how far mapped twins are written;
    `paces`: what the pump before learnt of quotas; `untouched`: new twins that no pump was let write before."""

    handovers: tuple[Handover, ...]
    told: Mapping[NamedPartition, Stand]
    reached: Mapping[NamedPartition, Reach]
    paces: tuple[Pace, ...] = ()
    untouched: tuple[NamedPartition, ...] = ()


class Granted(NamedTuple):
    """Go on for so long, counted from the question that was asked at `asked_s` on the pump's own clock."""

    asked_s: float
    grant_s: float


class Release(NamedTuple):
    """Let go of this partition."""

    named: NamedPartition


class Bounds(NamedTuple):
    """The lane's share of each throttle in bytes a second, 0: none, and the weights of topics."""

    link: float
    topics: Mapping[str, float]
    weights: Mapping[str, int]


class Take(NamedTuple):
    """Partitions that another lane let go of stand there."""

    handovers: tuple[Handover, ...]


class Finish(NamedTuple):
    """Stop in good order, and say where each partition stands."""


class Stop(NamedTuple):
    """Stop at once."""


OfDesk = Assign | Go | Granted | Release | Bounds | Take | Finish | Stop
OfPump = SayReady | Beat | Used | Released | Done
Message = dict[str, Any]


def line_of(message: Message) -> bytes:
    """A message on its way: one line, in which a slotted value is the list of its fields."""
    return (json.dumps(message, separators=(",", ":"), default=_fields_of) + "\n").encode()


def _fields_of(value: Any) -> list[Any]:
    return [getattr(value, name) for name in value.__slots__]


def said(word: OfDesk | OfPump) -> Message:
    """A word of either side, as it travels."""
    fields = word._asdict()
    if isinstance(word, Go):  # no key in JSON is more than a text
        fields |= {"told": list(word.told.items()), "reached": list(word.reached.items())}
    return {"what": type(word).__name__.lower(), **fields}


def heard_by_pump(message: Message) -> OfDesk:
    """What the desk said, out of its JSON form."""
    match message["what"]:
        case "assign":
            return Assign(tuple(_orders(message)))
        case "go":
            told = {NamedPartition(*named): Stand(*stand) for named, stand in message["told"]}
            reached = {NamedPartition(*named): Reach(*reach) for named, reach in message["reached"]}
            untouched = tuple(NamedPartition(*raw) for raw in message["untouched"])
            return Go(_handovers(message), told, reached, tuple(_paces(message)), untouched)
        case "granted":
            return Granted(float(message["asked_s"]), float(message["grant_s"]))
        case "release":
            return Release(NamedPartition(*message["named"]))
        case "bounds":
            return Bounds(message["link"], message["topics"], message["weights"])
        case "take":
            return Take(_handovers(message))
        case "finish":
            return Finish()
        case "stop":
            return Stop()
        case other:
            raise ValueError(f"a pump does not know the word {other!r}")


def heard_by_desk(message: Message) -> OfPump:
    """What a pump said, out of its JSON form; KeyError, TypeError or ValueError where it is none."""
    match message["what"]:
        case "sayready":
            return SayReady()
        case "beat":
            return Beat(_carried(message), _incidents(message), message["speed"], float(message["asked_s"]))
        case "used":
            return Used(message["used"])
        case "released":
            handover, carried = message["handover"], message["carried"]
            stand, account = handover and Handover(*handover), carried and carried_from(carried)
            return Released(NamedPartition(*message["named"]), stand, account)
        case "done":
            speed, unread_s, paces = message["speed"], float(message["unread_s"]), list(_paces(message))
            return Done(_carried(message), _incidents(message), list(_handovers(message)), speed, unread_s, paces)
        case other:
            raise ValueError(f"the desk does not know the word {other!r} of a pump")


def _handovers(message: Message) -> tuple[Handover, ...]:
    return tuple(Handover(*raw) for raw in message["handovers"])


def _orders(message: Message) -> Iterator[TrackOrder]:
    for raw in message["tracks"]:
        order = TrackOrder(*raw)
        yield dataclasses.replace(order, reached=Reach(*order.reached)) if order.reached else order


def _paces(message: Message) -> Iterator[Pace]:
    for side, node, stream, raw in message["paces"]:
        learnt = Learnt(*raw)
        yield Pace(side, node, stream, learnt._replace(moved=[(ago_s, size) for ago_s, size in learnt.moved]))


def _carried(message: Message) -> list[Any]:
    return [carried_from(raw) for raw in message["carried"]]


def _incidents(message: Message) -> list[Any]:
    return [stoppage_from(raw) for raw in message["incidents"]]
