"""Twins at rest: does the log still end where it was left?

Where the source writes no more, nothing of ours meets what somebody else writes to its twin, nor an end that the target
lost. So the ends of twins to which nothing goes are asked for now and then, all of a leader's in one request.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from twinshore.mirror.passage.marking import Marked, Run
from twinshore.mirror.passage.runs import by_partition
from twinshore.mirror.track import Phase, Track

REST_S = 3.0


class Rest(NamedTuple):
    """A twin at rest, as it was when its end was asked for."""

    track: Track
    end: int

    @property
    def run(self) -> Run:
        """No markers: only whose end is asked for, and in which leader epoch."""
        named = self.track.order.twin_named
        return Run(named.topic, named.partition, 0, 0, self.track.led[1])


def at_rest(tracks: Iterable[Track], node: int) -> list[Rest]:
    """The twins led by `node` to which nothing of ours is on its way. A mapped twin may well hold what others write."""
    return [Rest(track, track.acked) for track in tracks if track.route.target == node and _rests(track)]


def look_again(asked: Iterable[Rest], answers: Iterable[Marked], now_s: float) -> bool:
    """Has the twins looked at that end elsewhere though they rest still. Returns whether some leader could not tell, so
    that leaders are to be looked up."""
    found = by_partition(answers)
    unsure = False
    for track, end in asked:
        answer = found.get(track.order.twin_named)
        if answer is None or answer.error:
            unsure = True
        elif answer.end != end and track.acked == end and _rests(track):
            track.again(now_s)
    return unsure


def _rests(track: Track) -> bool:
    idle = not (track.in_flight or track.waiting or track.leaving) and track.fetched == track.acked >= track.write_from
    return idle and track.phase is Phase.RUNNING and not track.mapped
