"""The published sliding-window algorithm, exactly: one `step` per tick of each place. And around it, never inside, what
its text leaves open: when a window must begin anew (`observe`). Pure.

"MQ_Sync_Monitor" keeps four long arrays used as rings of four, A_maxOffset, A_consumeOffset, B_maxOffset and
B_consumeOffset, and one number, times. Every PT it reads both clusters; from times >= 3 on it judges, and whatever the
judgement, times grows by one. B is given three PT for what A did in one, since a sync may lie just before a reading and
take longer than a second. Only differences count, so the two clusters' numbers need not be equal.

A window compares ticks that are one PT apart, of one log on each side. It begins anew, and so judges nothing for three
ticks, when that is not so: a tick is missing or its length is another, a topic was recreated, an offset went back, a
link is paused. A window that cannot judge for long is an alarm of its own, so beginning anew never hides anything for
good.
"""

from __future__ import annotations

from typing import NamedTuple

from twinshore.delay.readings import Reading

SLOTS = 4
TIMES_FIRST = 3
# Of a long, as the published arrays are; the one after it falls on the slot that follows and still counts as begun.
TIMES_MAX = (1 << 63) - 1
TIMES_AGAIN = SLOTS

Ring = tuple[int, int, int, int]
_EMPTY: Ring = (0, 0, 0, 0)


class Offsets(NamedTuple):
    """One tick: A is the source, B the target; "max" a log's end, "consume" what the group has committed."""

    a_max: int
    b_max: int
    a_consume: int = 0
    b_consume: int = 0


class Thresholds(NamedTuple):
    """What A must move by in one PT before B is asked at all: a topic that moves less counts as quiet."""

    min_delay_latest_offset: int = 0
    min_delay_consume_offset: int = 0


class Window(NamedTuple):
    """The four rings; `times` is the tick that comes next."""

    times: int = 0
    a_max: Ring = _EMPTY
    b_max: Ring = _EMPTY
    a_consume: Ring = _EMPTY
    b_consume: Ring = _EMPTY


class Verdict(NamedTuple):
    """What a tick showed. The `_sub` are how far A moved from the first reading
    to the second, and B from the first to the last."""

    judged: bool
    latest_delayed: bool = False
    consume_delayed: bool = False
    a_max_sub: int = 0
    b_max_sub: int = 0
    a_consume_sub: int = 0
    b_consume_sub: int = 0


NOT_YET = Verdict(judged=False)


def step(window: Window, seen: Offsets, thresholds: Thresholds) -> tuple[Window, Verdict]:
    """The window after one more PT, and its verdict."""
    times = window.times
    now = Window(
        times,
        _put(window.a_max, times, seen.a_max),
        _put(window.b_max, times, seen.b_max),
        _put(window.a_consume, times, seen.a_consume),
        _put(window.b_consume, times, seen.b_consume),
    )
    verdict = _judge(now, thresholds) if times >= TIMES_FIRST else NOT_YET
    return now._replace(times=after(times)), verdict


def after(times: int) -> int:
    """times + 1; beyond the largest number it goes on where the same slots follow and judging has begun."""
    return times + 1 if times < TIMES_MAX else TIMES_AGAIN


def _judge(now: Window, thresholds: Thresholds) -> Verdict:
    a_max_sub, b_max_sub = _moved(now.a_max, now.times, 2), _moved(now.b_max, now.times, 0)
    a_consume_sub, b_consume_sub = _moved(now.a_consume, now.times, 2), _moved(now.b_consume, now.times, 0)
    return Verdict(
        judged=True,
        latest_delayed=a_max_sub > thresholds.min_delay_latest_offset and b_max_sub < a_max_sub,
        consume_delayed=a_consume_sub > thresholds.min_delay_consume_offset and b_consume_sub < a_consume_sub,
        a_max_sub=a_max_sub,
        b_max_sub=b_max_sub,
        a_consume_sub=a_consume_sub,
        b_consume_sub=b_consume_sub,
    )


def _put(ring: Ring, times: int, value: int) -> Ring:
    slot = times % SLOTS
    return (*ring[:slot], value, *ring[slot + 1 :])  # type: ignore[return-value]  # as long as it was


def _moved(ring: Ring, times: int, until: int) -> int:
    """From the oldest of the four readings to the one that is `until` readings back."""
    return ring[(times - until) % SLOTS] - ring[(times - 3) % SLOTS]


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
