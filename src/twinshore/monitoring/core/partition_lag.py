"""Lag, recovery point and the published delay windows of one partition.

A broker's list of all topics silently omits deleted topics and those that the client may not describe. A request by
name tells the two apart, so only answers by name count.

The recovery point in seconds is how long the oldest unreplicated records have existed. Time starts when this monitor
first sees the source's end beyond the target's, never at record timestamps, which belong to the application.

`advance_window` is the published sliding-window algorithm, one call per tick and partition. "MQ_Sync_Monitor" keeps
four long arrays as rings of four (A_maxOffset, A_consumeOffset, B_maxOffset, B_consumeOffset) and one number, times,
which grows by one every PT. From times >= 3 on the monitor judges. B gets three PT for what A did in one, since a sync
may start just before a reading and take over a second. Only differences count, so offsets need not be equal.

`apply_reading` adds what the publication leaves open: when a window restarts. A window compares ticks one PT apart, of
one log on each side. So a missing tick, a changed period, a recreated topic, an offset that went back or a pause
restarts the window, and three ticks get no verdict. Long silence of a window raises an alarm of its own.
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

# Parts of a link that are read beside its topics; no topic can have these names.
GROUPS_PART, HEARTBEATS_PART = "/groups", "/heartbeats"
LINK_PARTS = (GROUPS_PART, HEARTBEATS_PART)
# In the name of a group whose id is too long, before the digest.
DIGEST_SEPARATOR = " ... sha256 "


GROUP_NAME_CHARS_MAX = 255
_HEAD = 200


def shorten_group_id(group: str) -> str:
    """The group's id, or its beginning and a digest if the store cannot keep it: too long, or with a NUL."""
    if len(group) <= GROUP_NAME_CHARS_MAX and "\0" not in group:
        return group
    return (
        f"{group[:_HEAD]}".replace("\0", "\ufffd") + DIGEST_SEPARATOR + hashlib.sha256(group.encode()).hexdigest()[:32]
    )


class MonitoredPartition(NamedTuple):
    """A partition of a link, by its source's name; with `group`, that group's committed offset in the partition."""

    link: str
    topic: str
    partition: int
    group: str = ""

    def __str__(self) -> str:
        group = f" for {self.group}" if self.group else ""
        return f"{self.link} {self.topic}-{self.partition}{group}"


class OffsetRelation(StrEnum):
    EXACT = "exact"  # A twin with the same offsets.
    MAPPED = "mapped"  # Twinshore knows the map of offsets.
    FOREIGN = "foreign"  # Another tool's copy: only differences count.


class LagReading(NamedTuple):
    """A partition at one tick. `source_id` and `target_id` are topic ids. A commit is None if the group has none.

    `carried`: the end of a mapped twin in the source's offsets; -1 if unknown.
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
    """Lag of one partition. With a foreign `axis`, lag and recovery point are lower bounds."""

    place: MonitoredPartition
    at_ms: int
    source_end: int
    target_end: int
    lag_records: int
    recovery_point_ms: int
    axis: OffsetRelation
    state: str = "watched"


class MissingTopic(NamedTuple):
    """`over`: replication is no longer expected, so nothing is late. `why`: ends a sentence. `deleted`: the source
    lacks the topic.
    """

    over: bool
    why: str
    deleted: bool = False


def explain_missing_topic(link: Link, name: str, source: int | None, target: int | None) -> MissingTopic:
    """Explains a missing topic by the error codes of both clusters. A code is None if the cluster gave no answer."""
    if is_heartbeats_topic(name):
        return MissingTopic(True, "heartbeats are watched by themselves")
    if not admits(link, name):
        return MissingTopic(True, f"the link does not replicate {name} any more")
    if source == Code.unknown_topic_or_partition:
        return MissingTopic(True, f"{name} was deleted on {link.source}", deleted=True)
    twin = link.twin_of(name)
    for cluster, topic, code in ((link.source, name, source), (link.target, twin, target)):
        if code is None:
            return MissingTopic(False, f"{cluster} says nothing of {topic}")
        if code == Code.topic_authorization_failed:
            return MissingTopic(
                False, f"{cluster} refuses to describe {topic}: the monitor's user needs Describe on it"
            )
        if code == Code.unknown_topic_or_partition:
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
    """When the source's end was first seen at this offset."""

    at_ms: int
    end: int


class UnreplicatedEnds(NamedTuple):
    """Unreplicated ends of the source, oldest first. `least_gap`: the smallest difference of both ends so far, which
    with foreign offsets means that nothing is missing.
    """

    waiting: tuple[EndSighting, ...] = ()
    seen_end: int = -1
    least_gap: int | None = None
    source_id: str = ""
    target_id: str = ""


def update_lag(before: UnreplicatedEnds, reading: LagReading) -> tuple[UnreplicatedEnds, PartitionLag]:
    """Returns the ends still unreplicated after this reading, and the partition's lag."""
    if _other_log(before, reading):
        before = UnreplicatedEnds()
    gap = reading.source_end - reading.target_end
    least = gap if before.least_gap is None else min(before.least_gap, gap)
    replicated_end = _replicated_end(reading, least)
    # Times in the future, left by a clock that was set back, become now.
    waiting = tuple(
        one if one.at_ms <= reading.at_ms else EndSighting(reading.at_ms, one.end) for one in before.waiting
    )
    waiting = tuple(one for one in waiting if one.end > replicated_end)
    # Every missing end has a time, also if the target lost replicated records: those are missing from now on.
    if reading.source_end > max(replicated_end, waiting[-1].end if waiting else -1):
        waiting = (*waiting, EndSighting(reading.at_ms, reading.source_end))
    waiting = thin_sightings(waiting)
    oldest_ms = max(0, reading.at_ms - waiting[0].at_ms) if waiting else 0
    lag = PartitionLag(
        reading.place,
        reading.at_ms,
        reading.source_end,
        reading.target_end,
        max(0, reading.source_end - replicated_end),
        oldest_ms,
        reading.axis,
        "paused" if reading.paused else "watched",
    )
    return UnreplicatedEnds(waiting, reading.source_end, least, reading.source_id, reading.target_id), lag


def get_mapped_end(furthest: OffsetRun, end: int, told: int) -> int:
    """The mapped twin's end in the source's offsets.

    If the furthest offset run is complete, the progress `told` counts too: offsets without records, such as a
    transaction's end, are in no run.
    """
    into = max(0, min(end - furthest.target, furthest.length))
    return max(furthest.source + into, told if end >= target_end(furthest) else 0)


def thin_sightings(waiting: Sequence[EndSighting], most: int = END_SIGHTINGS_MAX) -> tuple[EndSighting, ...]:
    """Reduces the sightings to at most `most`, unless they span years.

    Those of about the same age merge to the older time and the later end. So an age is never too small, and at most a
    tenth too large.
    """
    if len(waiting) <= most:
        return tuple(waiting)
    newest_ms = waiting[-1].at_ms
    joined: dict[int, EndSighting] = {}
    for one in waiting:
        age = int(log(1 + (newest_ms - one.at_ms) / 1000) / AGE_BUCKET_LOG)
        joined[age] = EndSighting(joined[age].at_ms, one.end) if age in joined else one
    return tuple(joined.values())


def find_worst_lag(views: Iterable[PartitionLag]) -> PartitionLag | None:
    """The partition furthest behind, by time and then by records."""
    return max(views, key=lambda lag: (lag.recovery_point_ms, lag.lag_records), default=None)


def _replicated_end(reading: LagReading, least_gap: int) -> int:
    if reading.axis is OffsetRelation.EXACT:
        return reading.target_end
    if reading.axis is OffsetRelation.MAPPED and reading.carried >= 0:
        return reading.carried
    return reading.target_end + least_gap


def _other_log(before: UnreplicatedEnds, reading: LagReading) -> bool:
    """Whether the log is another: a topic was recreated, or the source's end went back."""
    recreated = any(
        was and now and was != now
        for was, now in ((before.source_id, reading.source_id), (before.target_id, reading.target_id))
    )
    return recreated or reading.source_end < before.seen_end


RING_SLOTS = 4
FIRST_JUDGED_TICK = 3
# A Java long, as in the published arrays. The restart value uses the next slot and still counts as begun.
TICK_COUNT_MAX = (1 << 63) - 1
TICK_COUNT_RESTART = RING_SLOTS

OffsetRing = tuple[int, int, int, int]
_EMPTY: OffsetRing = (0, 0, 0, 0)


class TickOffsets(NamedTuple):
    """One tick. A is the source, B the target; "max" is a log's end, "consume" the group's committed offset."""

    a_max: int
    b_max: int
    a_consume: int = 0
    b_consume: int = 0


class Thresholds(NamedTuple):
    """How far A must move in one PT before B is checked. A topic that moves less counts as quiet."""

    min_delay_latest_offset: int = 0
    min_delay_consume_offset: int = 0


class DelayWindow(NamedTuple):
    """The four rings. `times` counts ticks and is the number of the next one."""

    times: int = 0
    a_max: OffsetRing = _EMPTY
    b_max: OffsetRing = _EMPTY
    a_consume: OffsetRing = _EMPTY
    b_consume: OffsetRing = _EMPTY


class DelayVerdict(NamedTuple):
    """The `_sub` fields: how far A moved from the first reading to the second, and B from the first to the last."""

    judged: bool
    latest_delayed: bool = False
    consume_delayed: bool = False
    a_max_sub: int = 0
    b_max_sub: int = 0
    a_consume_sub: int = 0
    b_consume_sub: int = 0


NO_VERDICT_YET = DelayVerdict(judged=False)


def advance_window(window: DelayWindow, seen: TickOffsets, thresholds: Thresholds) -> tuple[DelayWindow, DelayVerdict]:
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
    """Returns times + 1. After the maximum, counting restarts where the same ring slots follow."""
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
    """The difference between the oldest of the four readings and the one `until` readings back."""
    return ring[(times - until) % RING_SLOTS] - ring[(times - 3) % RING_SLOTS]


# Valid reasons for no verdict.
PAUSED_REASON, NO_COMMITTED_OFFSET_REASON = "paused", "the group has no committed offset on the source"


class WindowState(NamedTuple):
    """A window and its last tick. `restarts` counts window restarts; `why` is the reason of the last."""

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
    """Applies a tick's reading and returns the published algorithm's verdict. Repeating the last tick changes nothing.

    A smaller tick is no repetition, since engines replay a reading from the state before. The clock was set back or the
    period changed, and all later ticks will be smaller too.
    """
    if tick == before.tick:
        return before, NO_VERDICT_YET
    seen = _offsets(reading)
    why = _why_restarted(before, reading, seen, tick)
    base = before._replace(window=DelayWindow(), restarts=before.restarts + 1, why=why) if why else before
    if seen is None:
        return base._replace(tick=tick, last=None), NO_VERDICT_YET
    window, verdict = advance_window(base.window, seen, thresholds)
    return base._replace(
        window=window, tick=tick, source_id=reading.source_id, target_id=reading.target_id, last=seen
    ), verdict


def _offsets(reading: LagReading) -> TickOffsets | None:
    """None if there is nothing to compare: paused, or a group without a commit on the source."""
    if reading.paused:
        return None
    if not reading.place.group:
        return TickOffsets(reading.source_end, reading.target_end)
    if reading.source_commit is None:
        return None
    # A group without a committed offset on the target has not moved there; its first one counts from 0.
    return TickOffsets(reading.source_end, reading.target_end, reading.source_commit, reading.target_commit or 0)


def _why_restarted(before: WindowState, reading: LagReading, seen: TickOffsets | None, tick: int) -> str:
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
            return f"the {side}'s topic was created again"
    names = ("the source's end", "the target's end", "the group on the source", "the group on the target")
    back = [name for name, was, now in zip(names, before.last, seen, strict=True) if now < was]
    return f"{back[0]} went back" if back else ""
