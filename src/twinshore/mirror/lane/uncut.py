"""What was fetched and is not cut yet: an answer that costs much is cut in portions, so that a pump can renew its grant
and serve its other partitions meanwhile. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from twinshore.mirror.lane.cutting import Cutter
from twinshore.mirror.lane.fetch_book import FetchBook, Line
from twinshore.mirror.lane.joining import Hold
from twinshore.mirror.lane.track import Track
from twinshore.wire.fetch import FetchedPartition

# A turn of the pump's loop that took longer is too long: a grant is some seconds, and others wait for theirs.
TURN_S = 0.4


class Portion:
    """How much is cut in one turn: at most so much, less where turns take long, as on a processor that others use too
    or while loops are not compiled yet."""

    def __init__(self, most: int) -> None:
        self.work = self.left = self._most = most
        self._done = 0

    def again(self) -> None:
        """The next turn's begins."""
        self.left = self.work

    def spend(self, work: int) -> None:
        """So much was cut."""
        self.left -= work
        self._done += work

    def took(self, spent_s: float) -> None:
        """A turn is over. One in which little was cut says nothing of a portion."""
        done, self._done = self._done, 0
        if spent_s > TURN_S:
            self.work = max(self._most // 100, int(self.work * TURN_S / spent_s))
        elif spent_s < TURN_S / 2 and done > self.work // 2:
            self.work = min(self._most, 2 * self.work)


class Rest(NamedTuple):
    """One partition of an answer, with its `cutter` where a part is cut. It fits while its partition stands `at` that
    offset, and has begun as often."""

    line: Line
    track: Track
    at: int
    begins: int
    part: FetchedPartition
    hold: Hold
    cutter: Cutter | None = None


class Uncut:
    """Of one lane, the oldest first. The buffers are counted as used, and their lines ask for nothing more."""

    def __init__(self) -> None:
        self._rests: deque[Rest] = deque()

    def __bool__(self) -> bool:
        return bool(self._rests)

    def holds(self, line: Line) -> bool:
        return bool(self._rests) and any(rest.line == line for rest in self._rests)

    def keep(self, line: Line, parts: Iterable[tuple[Track, FetchedPartition]], hold: Hold) -> None:
        """These, of which nothing is cut."""
        for track, part in parts:
            hold.uses += 1
            self._rests.append(Rest(line, track, track.fetched, track.begins, part, hold))

    def go_on_with(self, line: Line, track: Track, part: FetchedPartition, hold: Hold, cutter: Cutter) -> None:
        """A part of it is cut; the rest comes next."""
        hold.uses += 1
        self._rests.appendleft(Rest(line, track, track.fetched, track.begins, part, hold, cutter))

    def next(self, fetches: FetchBook) -> Rest | None:
        """The next one that still fits; what does not is fetched again."""
        while self._rests:
            rest = self._rests.popleft()
            rest.hold.uses -= 1
            track = rest.track
            if track.begins == rest.begins and track.fetched == rest.at and fetches.asks(track, rest.line):
                return rest
            fetches.wake(track)
        return None

    def drop(self) -> None:
        """None of it is wanted any more."""
        for rest in self._rests:
            rest.hold.uses -= 1
        self._rests.clear()

    def uses(self) -> Iterable[Hold]:
        """The buffers that are counted."""
        return (rest.hold for rest in self._rests)
