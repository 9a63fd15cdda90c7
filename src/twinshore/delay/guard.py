"""What the published text leaves open, settled around its step and never inside: when a window must begin anew. Pure.

A window compares ticks that are one PT apart, of one log on each side. It begins anew, and so judges nothing for three
ticks, when that is not so: a tick is missing or its length is another, a topic was recreated, an offset went back, a
link is paused. A window that cannot judge for long is an alarm of its own, so beginning anew never hides anything for
good.
"""

from __future__ import annotations

from typing import NamedTuple

from twinshore.delay.readings import Reading
from twinshore.delay.windows import NOT_YET, Offsets, Thresholds, Verdict, Window, step

# Why there is nothing to judge, which is in order.
PAUSED, NO_PLACE = "paused", "the group has no place on the source"


class Guarded(NamedTuple):
    """A window with what it must know of its last tick; `restarts` counts how often it began anew, `why` the last."""

    window: Window = Window()
    tick: int = -1
    source_id: str = ""
    target_id: str = ""
    last: Offsets | None = None
    restarts: int = 0
    why: str = ""


def observe(before: Guarded, reading: Reading, tick: int, thresholds: Thresholds) -> tuple[Guarded, Verdict]:
    """The place after this tick, and what the published algorithm says of it. The last tick again changes nothing.

    A smaller one is no repetition, since whoever keeps states judges what comes again from the state before it: the
    clock was set back, or ticks are of another length now, and all that follow will be smaller too.
    """
    if tick == before.tick:
        return before, NOT_YET
    seen = _offsets(reading)
    why = _why_anew(before, reading, seen, tick)
    base = before._replace(window=Window(), restarts=before.restarts + 1, why=why) if why else before
    if seen is None:
        return base._replace(tick=tick, last=None), NOT_YET
    window, verdict = step(base.window, seen, thresholds)
    return base._replace(
        window=window, tick=tick, source_id=reading.source_id, target_id=reading.target_id, last=seen
    ), verdict


def _offsets(reading: Reading) -> Offsets | None:
    """None where nothing is to be compared: paused, or a group that has not committed on the source."""
    if reading.paused:
        return None
    if not reading.place.group:
        return Offsets(reading.source_end, reading.target_end)
    if reading.source_commit is None:
        return None
    # A group without a place on the target has not moved there; once it has one, it came all the way.
    return Offsets(reading.source_end, reading.target_end, reading.source_commit, reading.target_commit or 0)


def _why_anew(before: Guarded, reading: Reading, seen: Offsets | None, tick: int) -> str:
    if before.last is None:
        return ""
    if seen is None:
        return PAUSED if reading.paused else NO_PLACE
    if tick < before.tick:
        return "the clock went back, or the period is another"
    if tick != before.tick + 1:
        return f"{tick - before.tick - 1} readings are missing"
    for side, was, now in (
        ("source", before.source_id, reading.source_id),
        ("target", before.target_id, reading.target_id),
    ):
        if was and now and was != now:
            return f"the {side}'s topic was made anew"
    names = ("the source's end", "the target's end", "the group on the source", "the group on the target")
    back = [name for name, was, now in zip(names, before.last, seen, strict=True) if now < was]
    return f"{back[0]} went back" if back else ""
