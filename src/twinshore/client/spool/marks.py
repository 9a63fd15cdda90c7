"""What of a spool is done: for each topic a number below which all is, but for a few that are named; and which calls an
earlier process left. Pure.

One line of text: its checksum, and JSON. A line that cannot be read marks nothing: what is on disk is sent again then,
and nothing is lost. `next_number` is above every number that was ever given, so that no mark covers a later record.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

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
