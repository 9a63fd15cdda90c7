"""What was read of both clusters: values that the windows, the recovery point and the alarms are judged by; and what
became of a topic that should be seen and is not: over for good, or out of sight. Pure.

A broker's list of all topics leaves out those that are gone and those that its asker may not describe, without a word.
Asked for a topic by name it tells the two apart, so that only what it says by name counts.

The recovery point in seconds: for how long the oldest records that have not crossed have been there. Pure.

Counted from when this monitor first saw an end of the source that lies beyond the target's, never from timestamps in
records, which are the application's: a backfill of last year's data is young, and a batch of tomorrow's is not.

The published sliding-window algorithm, exactly: one `advance_window` per tick of each place. And around it, never
inside, what its text leaves open: when a window must begin anew (`apply_reading`). Pure.

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

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import log
from typing import NamedTuple

from twinshore.config.model import Link, OffsetRun, is_heartbeats_topic, target_end
from twinshore.kafka.protocol.error_codes import Code, error_kind
from twinshore.replication.core.filters import admits

# Parts of a link that are read beside its topics; no topic can be called so.
GROUPS_PART, HEARTBEATS_PART = "/groups", "/heartbeats"
LINK_PARTS = (GROUPS_PART, HEARTBEATS_PART)
# Stands in the name of a group whose id is too long, before the digest.
DIGEST_SEPARATOR = " ... sha256 "


GROUP_NAME_CHARS_MAX = 255
_HEAD = 200


def shorten_group_id(group: str) -> str:
    """What a group is called here: its id, unless that is longer than a store keeps, or none can; then its beginning
    and a digest of all of it."""
    if len(group) <= GROUP_NAME_CHARS_MAX and "\0" not in group:
        return group
    return (
        f"{group[:_HEAD]}".replace("\0", "\ufffd") + DIGEST_SEPARATOR + hashlib.sha256(group.encode()).hexdigest()[:32]
    )


class MonitoredPartition(NamedTuple):
    """What is watched: a partition of a link, by its source's name; with a group, where that group stands in it."""

    link: str
    topic: str
    partition: int
    group: str = ""

    def __str__(self) -> str:
        group = f" for {self.group}" if self.group else ""
        return f"{self.link} {self.topic}-{self.partition}{group}"


class OffsetRelation(StrEnum):
    """How the target's offsets can be laid on the source's."""

    EXACT = "exact"  # A twin: they are the same.
    MAPPED = "mapped"  # Twinshore knows what lies where.
    FOREIGN = "foreign"  # Somebody else's copy: only differences tell.


class LagReading(NamedTuple):
    """A place at one tick. `source_id` and `target_id` are topic ids. A commit is None where the group has none.

    `carried` is the target's end on the source's axis, for a mapped twin; -1 where nobody knows it.
    """

    place: MonitoredPartition
    at_ms: int
    source_end: int
    target_end: int
    source_id: str = ""
    target_id: str = ""
    source_commit: int | None = None
    target_commit: int | None = None
    axis: OffsetRelation = OffsetRelation.FOREIGN
    carried: int = -1
    paused: bool = False


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """How a place stands. Where the axis is foreign, lag and recovery point are the least they can be."""

    place: MonitoredPartition
    at_ms: int
    source_end: int
    target_end: int
    lag_records: int
    recovery_point_ms: int
    axis: OffsetRelation
    state: str = "watched"


class MissingTopic(NamedTuple):
    """`over`: nobody expects it to be carried any more, so that nothing is late. `why` is a sentence's end. `deleted`:
    the source has it no more."""

    over: bool
    why: str
    deleted: bool = False


def explain_missing_topic(link: Link, name: str, source: int | None, target: int | None) -> MissingTopic:
    """What is so of a topic of the source, by the error codes with which both clusters answer to its name; None where
    one said nothing."""
    if is_heartbeats_topic(name):
        return MissingTopic(True, "heartbeats are watched by themselves")
    if not admits(link, name):
        return MissingTopic(True, f"the link does not carry {name} any more")
    if source == Code.UNKNOWN_TOPIC_OR_PARTITION:
        return MissingTopic(True, f"{name} was deleted on {link.source}", deleted=True)
    twin = link.twin_of(name)
    for cluster, topic, code in ((link.source, name, source), (link.target, twin, target)):
        if code is None:
            return MissingTopic(False, f"{cluster} says nothing of {topic}")
        if code == Code.TOPIC_AUTHORIZATION_FAILED:
            return MissingTopic(
                False, f"{cluster} refuses to describe {topic}: the monitor's user needs Describe on it"
            )
        if code == Code.UNKNOWN_TOPIC_OR_PARTITION:
            return MissingTopic(
                False,
                f"{topic} is not on {cluster} any more, and {name} still is on {link.source}; leave it out with"
                " `twinshore link filter` if that is on purpose",
            )
        if code:
            return MissingTopic(False, f"{cluster} says of {topic}: {error_kind(code).name}")
    return MissingTopic(False, f"{link.target} has fewer partitions of {twin} than {link.source} has of {name}")


END_SIGHTINGS_MAX = 256
AGE_BUCKET_LOG = log(1.1)


class EndSighting(NamedTuple):
    """At this moment the source's end was seen to be here, for the first time."""

    at_ms: int
    end: int


class UnreplicatedEnds(NamedTuple):
    """What of the source has not crossed, oldest first. `least_gap`: the smallest difference of both ends ever seen,
    which is what lies between them when nothing is missing, where the two number their records differently."""

    waiting: tuple[EndSighting, ...] = ()
    seen_end: int = -1
    least_gap: int | None = None
    source_id: str = ""
    target_id: str = ""


def update_lag(before: UnreplicatedEnds, reading: LagReading) -> tuple[UnreplicatedEnds, PartitionLag]:
    """What still waits after this reading, and how the place stands."""
    if _other_log(before, reading):
        before = UnreplicatedEnds()
    gap = reading.source_end - reading.target_end
    least = gap if before.least_gap is None else min(before.least_gap, gap)
    crossed = _crossed(reading, least)
    # What a clock that was set back since has left in the future is seen now.
    waiting = tuple(
        one if one.at_ms <= reading.at_ms else EndSighting(reading.at_ms, one.end) for one in before.waiting
    )
    waiting = tuple(one for one in waiting if one.end > crossed)
    # All that lacks has its moment, also where the target lost what had crossed: then it lacks from now on.
    if reading.source_end > max(crossed, waiting[-1].end if waiting else -1):
        waiting = (*waiting, EndSighting(reading.at_ms, reading.source_end))
    waiting = thin_sightings(waiting)
    oldest_ms = max(0, reading.at_ms - waiting[0].at_ms) if waiting else 0
    view = PartitionLag(
        reading.place,
        reading.at_ms,
        reading.source_end,
        reading.target_end,
        max(0, reading.source_end - crossed),
        oldest_ms,
        reading.axis,
        "paused" if reading.paused else "watched",
    )
    return UnreplicatedEnds(waiting, reading.source_end, least, reading.source_id, reading.target_id), view


def get_mapped_end(furthest: OffsetRun, end: int, told: int) -> int:
    """The mapped twin's end on the source's axis. Where all of its furthest extent is there `told` decides, how far
    receipts reach on the source: offsets without records, a transaction's end, are in no extent."""
    into = max(0, min(end - furthest.target, furthest.length))
    return max(furthest.source + into, told if end >= target_end(furthest) else 0)


def thin_sightings(waiting: Sequence[EndSighting], most: int = END_SIGHTINGS_MAX) -> tuple[EndSighting, ...]:
    """At most so many, unless years lie between them. Those of about the same age are joined to the older moment and
    the later end, so that an age is never too small, and too large by a tenth at most."""
    if len(waiting) <= most:
        return tuple(waiting)
    newest_ms = waiting[-1].at_ms
    joined: dict[int, EndSighting] = {}
    for one in waiting:
        age = int(log(1 + (newest_ms - one.at_ms) / 1000) / AGE_BUCKET_LOG)
        joined[age] = EndSighting(joined[age].at_ms, one.end) if age in joined else one
    return tuple(joined.values())


def find_worst_lag(views: Iterable[PartitionLag]) -> PartitionLag | None:
    """The place that is furthest behind, in time and then in records."""
    return max(views, key=lambda view: (view.recovery_point_ms, view.lag_records), default=None)


def _crossed(reading: LagReading, least_gap: int) -> int:
    """The target's end on the source's axis."""
    if reading.axis is OffsetRelation.EXACT:
        return reading.target_end
    if reading.axis is OffsetRelation.MAPPED and reading.carried >= 0:
        return reading.carried
    return reading.target_end + least_gap


def _other_log(before: UnreplicatedEnds, reading: LagReading) -> bool:
    """Whether this is no continuation: a topic made anew, or a source's end that went back."""
    made_anew = any(
        was and now and was != now
        for was, now in ((before.source_id, reading.source_id), (before.target_id, reading.target_id))
    )
    return made_anew or reading.source_end < before.seen_end


RING_SLOTS = 4
FIRST_JUDGED_TICK = 3
# Of a long, as the published arrays are; the one after it falls on the slot that follows and still counts as begun.
TICK_COUNT_MAX = (1 << 63) - 1
TICK_COUNT_RESTART = RING_SLOTS

OffsetRing = tuple[int, int, int, int]
_EMPTY: OffsetRing = (0, 0, 0, 0)


class TickOffsets(NamedTuple):
    """One tick: A is the source, B the target; "max" a log's end, "consume" what the group has committed."""

    a_max: int
    b_max: int
    a_consume: int = 0
    b_consume: int = 0


class Thresholds(NamedTuple):
    """What A must move by in one PT before B is asked at all: a topic that moves less counts as quiet."""

    min_delay_latest_offset: int = 0
    min_delay_consume_offset: int = 0


class DelayWindow(NamedTuple):
    """The four rings; `times` is the tick that comes next."""

    times: int = 0
    a_max: OffsetRing = _EMPTY
    b_max: OffsetRing = _EMPTY
    a_consume: OffsetRing = _EMPTY
    b_consume: OffsetRing = _EMPTY


class DelayVerdict(NamedTuple):
    """What a tick showed. The `_sub` are how far A moved from the first reading
    to the second, and B from the first to the last."""

    judged: bool
    latest_delayed: bool = False
    consume_delayed: bool = False
    a_max_sub: int = 0
    b_max_sub: int = 0
    a_consume_sub: int = 0
    b_consume_sub: int = 0


NO_VERDICT_YET = DelayVerdict(judged=False)


def advance_window(window: DelayWindow, seen: TickOffsets, thresholds: Thresholds) -> tuple[DelayWindow, DelayVerdict]:
    """The window after one more PT, and its verdict."""
    times = window.times
    now = DelayWindow(
        times,
        _put(window.a_max, times, seen.a_max),
        _put(window.b_max, times, seen.b_max),
        _put(window.a_consume, times, seen.a_consume),
        _put(window.b_consume, times, seen.b_consume),
    )
    verdict = _judge(now, thresholds) if times >= FIRST_JUDGED_TICK else NO_VERDICT_YET
    return now._replace(times=increment_tick_count(times)), verdict


def increment_tick_count(times: int) -> int:
    """times + 1; beyond the largest number it goes on where the same slots follow and judging has begun."""
    return times + 1 if times < TICK_COUNT_MAX else TICK_COUNT_RESTART


def _judge(now: DelayWindow, thresholds: Thresholds) -> DelayVerdict:
    a_max_sub, b_max_sub = _moved(now.a_max, now.times, 2), _moved(now.b_max, now.times, 0)
    a_consume_sub, b_consume_sub = _moved(now.a_consume, now.times, 2), _moved(now.b_consume, now.times, 0)
    return DelayVerdict(
        judged=True,
        latest_delayed=a_max_sub > thresholds.min_delay_latest_offset and b_max_sub < a_max_sub,
        consume_delayed=a_consume_sub > thresholds.min_delay_consume_offset and b_consume_sub < a_consume_sub,
        a_max_sub=a_max_sub,
        b_max_sub=b_max_sub,
        a_consume_sub=a_consume_sub,
        b_consume_sub=b_consume_sub,
    )


def _put(ring: OffsetRing, times: int, value: int) -> OffsetRing:
    slot = times % RING_SLOTS
    return (*ring[:slot], value, *ring[slot + 1 :])  # type: ignore[return-value]  # as long as it was


def _moved(ring: OffsetRing, times: int, until: int) -> int:
    """From the oldest of the four readings to the one that is `until` readings back."""
    return ring[(times - until) % RING_SLOTS] - ring[(times - 3) % RING_SLOTS]


# Why there is nothing to judge, which is in order.
PAUSED_REASON, NO_COMMITTED_OFFSET_REASON = "paused", "the group has no place on the source"


class WindowState(NamedTuple):
    """A window with what it must know of its last tick; `restarts` counts how often it began anew, `why` the last."""

    window: DelayWindow = DelayWindow()
    tick: int = -1
    source_id: str = ""
    target_id: str = ""
    last: TickOffsets | None = None
    restarts: int = 0
    why: str = ""


def apply_reading(
    before: WindowState, reading: LagReading, tick: int, thresholds: Thresholds
) -> tuple[WindowState, DelayVerdict]:
    """The place after this tick, and what the published algorithm says of it. The last tick again changes nothing.

    A smaller one is no repetition, since whoever keeps states judges what comes again from the state before it: the
    clock was set back, or ticks are of another length now, and all that follow will be smaller too.
    """
    if tick == before.tick:
        return before, NO_VERDICT_YET
    seen = _offsets(reading)
    why = _why_anew(before, reading, seen, tick)
    base = before._replace(window=DelayWindow(), restarts=before.restarts + 1, why=why) if why else before
    if seen is None:
        return base._replace(tick=tick, last=None), NO_VERDICT_YET
    window, verdict = advance_window(base.window, seen, thresholds)
    return base._replace(
        window=window, tick=tick, source_id=reading.source_id, target_id=reading.target_id, last=seen
    ), verdict


def _offsets(reading: LagReading) -> TickOffsets | None:
    """None where nothing is to be compared: paused, or a group that has not committed on the source."""
    if reading.paused:
        return None
    if not reading.place.group:
        return TickOffsets(reading.source_end, reading.target_end)
    if reading.source_commit is None:
        return None
    # A group without a place on the target has not moved there; once it has one, it came all the way.
    return TickOffsets(reading.source_end, reading.target_end, reading.source_commit, reading.target_commit or 0)


def _why_anew(before: WindowState, reading: LagReading, seen: TickOffsets | None, tick: int) -> str:
    if before.last is None:
        return ""
    if seen is None:
        return PAUSED_REASON if reading.paused else NO_COMMITTED_OFFSET_REASON
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
