"""Where does the log end? Asked of twins at rest, and before what no sequence guards.

Where the source writes no more, nothing of ours meets what somebody else writes to its twin, nor an end that the target
lost. So the ends of twins to which nothing goes are asked for now and then, all of a leader's in one request. And where
a batch is the next that goes, but the broker could not tell that it does not fit, the end is asked for first.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from twinshore.mirror.lane.cutting import Blank
from twinshore.mirror.lane.marking import Marked, Run
from twinshore.mirror.lane.orders import Stoppage
from twinshore.mirror.lane.runs import by_partition
from twinshore.mirror.lane.track import Phase, Track, unmarked

REST_S = 3.0
UNSEEN = -1


class Rest(NamedTuple):
    """A twin with nothing of ours on its way, as it was when its end was asked for."""

    track: Track
    end: int

    @property
    def run(self) -> Run:
        """No markers: only whose end is asked for, and in which leader epoch."""
        named = self.track.order.twin_named
        return Run(named.topic, named.partition, 0, 0, self.track.led[1])


def at_rest(tracks: Iterable[Track], node: int) -> list[Rest]:
    """The twins led by `node` to which nothing goes. A mapped twin may well hold what others write."""
    return [Rest(track, track.acked) for track in tracks if track.route.target == node and _rests(track)]


def unsure(ready: Iterable[Track], now_s: float, now_ms: int) -> list[Rest]:
    """Of the twins to which something waits to go: those whose ends must be seen first, each until it is answered."""
    found = [Rest(track, _end(track)) for track in ready if _stands(track) and _waits(track, now_s, now_ms)]
    for one in found:
        one.track.certain.asking = True
    return found


def look_again(asked: Iterable[Rest], answers: Iterable[Marked], now_s: float) -> tuple[bool, list[Stoppage]]:
    """Has the twins looked at that end elsewhere though nothing went there since. Returns whether some leader could not
    tell, so that leaders are to be looked up; and what is to be told, where that has lasted."""
    found = by_partition(answers)
    untold, told = False, list[Stoppage]()
    for track, end in asked:
        track.certain.asking = False
        answer = found.get(track.order.twin_named)
        seen = answer.end if answer is not None and not answer.error else UNSEEN
        untold |= seen == UNSEEN
        if _end(track) != end or not _stands(track):
            continue
        if seen == end:
            # As of now, though it was so when the target said it: behind a long line nothing would ever go otherwise.
            track.certain.seen_s = now_s
        elif track.waiting:
            told += unmarked(track, answer, track.waiting[0][0], now_s, "its end, before ")
        elif seen != UNSEEN:
            track.again(now_s)
    return untold, told


def _rests(track: Track) -> bool:
    return _stands(track) and not track.waiting and track.fetched == track.acked >= track.write_from


def _waits(track: Track, now_s: float, now_ms: int) -> bool:
    parcel = bool(track.waiting) and not isinstance(track.waiting[0][0], Blank)
    return parcel and not track.certain.asking and track.unsure(now_s, now_ms)


def _end(track: Track) -> int:
    """Where the twin must end while nothing of ours is on its way. Of a batch that lies there in part, `acked` is where
    that begins."""
    return track.waiting[0][0].base if track.waiting else track.acked


def _stands(track: Track) -> bool:
    idle = not (track.in_flight or track.leaving or track.mapped)
    return idle and track.phase is Phase.RUNNING
