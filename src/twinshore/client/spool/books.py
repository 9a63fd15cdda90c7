"""What of one topic lies in a spool and is not done yet, in the order in which it must be sent. Pure.

Most records lie in the order of their numbers: these are **ahead**, and only how many there are is kept here. Those
that were given back, or came late, are named one by one: no more than a client of librdkafka holds at a time.
"""

from __future__ import annotations

import heapq
from typing import NamedTuple

from twinshore.client.spool.marks import Mark

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
