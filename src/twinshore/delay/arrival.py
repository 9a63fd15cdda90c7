"""The recovery point in seconds: for how long the oldest records that have not crossed have been there. Pure.

Counted from when this monitor first saw an end of the source that lies beyond the target's, never from timestamps in
records, which are the application's: a backfill of last year's data is young, and a batch of tomorrow's is not.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import log
from typing import NamedTuple

from twinshore.delay.readings import Axis, Reading, View
from twinshore.fleet.extents import Extent, target_end

SIGHTINGS_MAX = 256
AGES_APART = log(1.1)


class Sighting(NamedTuple):
    """At this moment the source's end was seen to be here, for the first time."""

    at_ms: int
    end: int


class Arrivals(NamedTuple):
    """What of the source has not crossed, oldest first. `least_gap`: the smallest difference of both ends ever seen,
    which is what lies between them when nothing is missing, where the two number their records differently."""

    waiting: tuple[Sighting, ...] = ()
    seen_end: int = -1
    least_gap: int | None = None
    source_id: str = ""
    target_id: str = ""


def look(before: Arrivals, reading: Reading) -> tuple[Arrivals, View]:
    """What still waits after this reading, and how the place stands."""
    if _other_log(before, reading):
        before = Arrivals()
    gap = reading.source_end - reading.target_end
    least = gap if before.least_gap is None else min(before.least_gap, gap)
    crossed = _crossed(reading, least)
    # What a clock that was set back since has left in the future is seen now.
    waiting = tuple(one if one.at_ms <= reading.at_ms else Sighting(reading.at_ms, one.end) for one in before.waiting)
    waiting = tuple(one for one in waiting if one.end > crossed)
    # All that lacks has its moment, also where the target lost what had crossed: then it lacks from now on.
    if reading.source_end > max(crossed, waiting[-1].end if waiting else -1):
        waiting = (*waiting, Sighting(reading.at_ms, reading.source_end))
    waiting = thinned(waiting)
    oldest_ms = max(0, reading.at_ms - waiting[0].at_ms) if waiting else 0
    view = View(
        reading.place,
        reading.at_ms,
        reading.source_end,
        reading.target_end,
        max(0, reading.source_end - crossed),
        oldest_ms,
        reading.axis,
        "paused" if reading.paused else "watched",
    )
    return Arrivals(waiting, reading.source_end, least, reading.source_id, reading.target_id), view


def carried_to(furthest: Extent, end: int, told: int) -> int:
    """The mapped twin's end on the source's axis. Where all of its furthest extent is there `told` decides, how far
    receipts reach on the source: offsets without records, a transaction's end, are in no extent."""
    into = max(0, min(end - furthest.target, furthest.length))
    return max(furthest.source + into, told if end >= target_end(furthest) else 0)


def thinned(waiting: Sequence[Sighting], most: int = SIGHTINGS_MAX) -> tuple[Sighting, ...]:
    """At most so many, unless years lie between them. Those of about the same age are joined to the older moment and
    the later end, so that an age is never too small, and too large by a tenth at most."""
    if len(waiting) <= most:
        return tuple(waiting)
    newest_ms = waiting[-1].at_ms
    joined: dict[int, Sighting] = {}
    for one in waiting:
        age = int(log(1 + (newest_ms - one.at_ms) / 1000) / AGES_APART)
        joined[age] = Sighting(joined[age].at_ms, one.end) if age in joined else one
    return tuple(joined.values())


def worst(views: Iterable[View]) -> View | None:
    """The place that is furthest behind, in time and then in records."""
    return max(views, key=lambda view: (view.recovery_point_ms, view.lag_records), default=None)


def _crossed(reading: Reading, least_gap: int) -> int:
    """The target's end on the source's axis."""
    if reading.axis is Axis.EXACT:
        return reading.target_end
    if reading.axis is Axis.MAPPED and reading.carried >= 0:
        return reading.carried
    return reading.target_end + least_gap


def _other_log(before: Arrivals, reading: Reading) -> bool:
    """Whether this is no continuation: a topic made anew, or a source's end that went back."""
    made_anew = any(
        was and now and was != now
        for was, now in ((before.source_id, reading.source_id), (before.target_id, reading.target_id))
    )
    return made_anew or reading.source_end < before.seen_end
