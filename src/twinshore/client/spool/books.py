"""What of a spool is done, and what is not yet. Pure.

Marks say it for each topic: a number below which all is done, but for a few that are named. They are one line of text:
its checksum, and JSON. A line that cannot be read marks nothing: what is on disk is sent again then, and nothing is
lost. `next_number` is above every number that was ever given, so that no mark covers a later record.

A book has what of one topic is not done, in the order in which it must be sent. Most records lie in the order of their
numbers: these are **ahead**, and only how many there are is kept here. Those that were given back, or came late, are
named one by one: no more than a client of librdkafka holds at a time.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from crc32c import crc32c

from twinshore.client.spool.frames import SpoolRecord
from twinshore.fleet import NotYetError

VERSION = 1


@dataclass(frozen=True, slots=True)
class Mark:
    """Of one topic: records with a number below `below` are done, but for those in `open`."""

    below: int = 0
    open: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Marks:
    """`end`: the segment, and the byte of it, where the spool ended then. A mark says nothing of what lies behind: what
    comes late has a low number. `gaps`: bytes before there, by segment and where they begin, that are of writes which
    may never have ended: an earlier start said so, when nothing lay behind them yet."""

    next_number: int = 0
    end: tuple[int, int] = (0, 0)
    topics: Mapping[str, Mark] = field(default_factory=dict)
    gaps: frozenset[tuple[int, int]] = frozenset()

    def text(self) -> bytes:
        topics = {name: [mark.below, list(mark.open)] for name, mark in sorted(self.topics.items())}
        told = {"version": VERSION, "next": self.next_number, "end": self.end, "topics": topics}
        if self.gaps:
            told["gaps"] = sorted(self.gaps)
        body = json.dumps(told).encode()
        return b"%08x %s\n" % (crc32c(body), body)


def read_marks(text: bytes) -> Marks | None:
    """None where it cannot be read; NotYetError where it is of a later version."""
    checksum, _, body = text.removesuffix(b"\n").partition(b" ")
    if not body or checksum != b"%08x" % crc32c(body):
        return None
    found = json.loads(body)
    if found["version"] != VERSION:
        raise NotYetError(
            f"the spool's marks are of version {found['version']}, and this is version {VERSION}",
            hint="update the client",
        )
    topics = {name: Mark(below, tuple(still)) for name, (below, still) in found["topics"].items()}
    segment, at = found["end"]
    gaps = frozenset((sequence, begin) for sequence, begin in found.get("gaps", ()))
    return Marks(found["next"], (segment, at), topics, gaps)


HEADER = "twinshore-call"
DIGITS_MAX = 20


def mark_of(headers: Sequence[tuple[str, bytes | None]]) -> bytes | None:
    """By which a call is known; None where it has none."""
    return next((value for name, value in reversed(headers) if name == HEADER and value is not None), None)


def own_mark(headers: Sequence[tuple[str, bytes | None]], number: int) -> bytes | None:
    """By which the call of this number is known. None where it bears only what it was read with, as of a program that
    sends records on: that is the mark of another call."""
    mark = mark_of(headers)
    return mark if mark is not None and _parted(mark)[1] == number else None


def _parted(mark: bytes) -> tuple[bytes, int]:
    """Who called, and the how-manieth call it was; -1 of what was made by nobody of ours."""
    who, _, number = mark.rpartition(b"-")
    return who, int(number) if number.isdigit() and len(number) <= DIGITS_MAX else -1


class Left:
    """Of one topic, the calls that an earlier process left and may have sent, and that bear a mark of their own: a
    header by which each is known again, wherever it was copied to. `below`: most calls with a lower number are done.
    `since_ms`: none of them has an earlier time; None where there are none."""

    __slots__ = ("_below", "_first", "_last", "_named", "_who", "since_ms")

    def __init__(self, below: int) -> None:
        self._below = below
        self._named: set[int] = set()  # those that have a lower number all the same
        self._first = self._last = -1  # of the others, which lie there one behind the other
        self._who: set[bytes] = set()
        self.since_ms: int | None = None

    def add(self, record: SpoolRecord) -> None:
        mark, number = own_mark(record.headers, record.number), record.number
        if mark is None:
            return
        self._who.add(_parted(mark)[0])
        begun_ms = min(record.timestamp, record.made_ms)
        self.since_ms = begun_ms if self.since_ms is None else min(self.since_ms, begun_ms)
        if number < self._below:
            self._named.add(number)
        else:
            self._first = number if self._first < 0 else min(self._first, number)
            self._last = max(self._last, number)

    def __contains__(self, mark: bytes) -> bool:
        """Whether it is one of them, or one of their neighbours: each is not kept in mind, as they may be millions."""
        who, number = _parted(mark)
        return who in self._who and (number in self._named or 0 <= self._first <= number <= self._last)


OPEN_MAX = 10_000  # numbers in a mark; with more of them open it covers less, and more is sent again after a kill


class Place(NamedTuple):
    """Where a record lies."""

    segment: int
    at: int
    size: int


class TopicBook:
    """`mark`: what an earlier process left of it as done."""

    __slots__ = ("_flying", "_highest", "_open", "_reached", "ahead", "back", "begin", "below", "pending", "refused")

    def __init__(self, mark: Mark | None = None) -> None:
        mark = mark or Mark()
        self.below = mark.below  # above every number that was ever handed out
        self._open = frozenset(mark.open)
        self._highest = self._reached = -1
        self.ahead = 0
        self.begin: Place | None = None  # before it nothing is ahead
        self.pending = 0  # not on disk yet
        self.back: list[tuple[int, Place]] = []
        self._flying: dict[int, Place] = {}
        self.refused: dict[int, Place] = {}

    @property
    def unsent(self) -> int:
        return self.ahead + self.pending + len(self.back)

    @property
    def left(self) -> int:
        """On disk, and not done."""
        return self.ahead + len(self.back) + len(self._flying) + len(self.refused)

    def add_found(self, number: int, place: Place, *, covered: bool) -> bool:
        """A record that an earlier process wrote; whether it is still to be sent. `covered`: it was there when the
        mark was made."""
        done = covered and number < self.below and number not in self._open
        if done:
            self._highest = max(self._highest, number)
            return False
        self.added(number, place)
        return True

    def added(self, number: int, place: Place) -> None:
        """It is on disk now."""
        if number < self._highest or number < self.below:
            heapq.heappush(self.back, (number, place))
        else:
            self.ahead += 1
            self.begin = self.begin or place
        self._highest = max(self._highest, number)

    def meet(self, number: int) -> bool:
        """A record is met where reading goes on; whether it is ahead. It is not where it is done or named here: what
        came late has a lower number than one that was met before it."""
        if number < self.below or number <= self._reached:
            return False
        self._reached = number
        return True

    def handed_out(self, number: int, place: Place, *, came_back: bool) -> None:
        """`came_back`: it was one of those that are named, though a lower one may have come since."""
        if came_back:
            self.back.remove((number, place))
            heapq.heapify(self.back)
        else:
            self.ahead -= 1
        self._flying[number] = place
        self.below = max(self.below, number + 1)

    def given_back(self, number: int) -> None:
        """It was not sent after all, or nobody acknowledged it: it goes before whatever has a higher number."""
        heapq.heappush(self.back, (number, self._flying.pop(number)))

    def done(self, number: int) -> Place | None:
        return self._flying.pop(number, None)

    def refuse(self, number: int) -> None:
        """A broker will not have it, and nobody is there to hear of it: it stays, and is tried at the next start."""
        self.refused[number] = self._flying.pop(number)

    def mark(self) -> Mark:
        named = [*(number for number, _ in self.back), *self._flying, *self.refused]
        still = sorted(number for number in named if number < self.below)
        if len(still) > OPEN_MAX:
            return Mark(still[OPEN_MAX], tuple(still[:OPEN_MAX]))
        return Mark(self.below, tuple(still))
