"""Calls that an earlier process left and may have sent: each bears a header by which it is known again, wherever it was
copied to. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from twinshore.client.spool.frames import SpoolRecord

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
    """Of one topic, the calls that bear a mark of their own. `below`: most calls with a lower number are done.
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
