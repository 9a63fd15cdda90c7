"""What the monitor knows of one link: unreplicated ends, lag of each partition, last readings and verdicts."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from twinshore.monitoring.core.alerts import (
    AlarmKey,
    AlarmKind,
    AlertCondition,
    LostRecords,
    WindowVerdict,
    check_blind_spots,
    check_heartbeats,
    check_link_parts,
    check_lost_records,
    check_recovery_points,
    check_stopped_topics,
    check_unjudged_windows,
)
from twinshore.monitoring.core.partition_lag import (
    GROUPS_PART,
    HEARTBEATS_PART,
    LINK_PARTS,
    NO_COMMITTED_OFFSET_REASON,
    PAUSED_REASON,
    EndSighting,
    LagReading,
    MonitoredPartition,
    OffsetRelation,
    PartitionLag,
    UnreplicatedEnds,
    update_lag,
)
from twinshore.state.core.values import PartitionDelayRow

LAG_KEPT_MS = 60_000
# How long the alarm of a deleted topic reports unreplicated records: checks may be an hour apart.
LOST_RECORDS_KEPT_MS = 2 * 3_600_000
# A broker that has just started may not know a topic for a moment.
MISSING_TOPIC_GRACE_MS = 5_000
# Groups are read once a period, which may be an hour.
GROUP_LAG_KEPT_MS = 7_200_000
# The windows need four readings for a first verdict, and Spark some time.
PERIODS_UNJUDGED_MAX = 6
# A part read once a period gets one more try before it counts as unreadable.
PERIODS_UNREAD_MAX = 2


@dataclass(slots=True)
class MonitoredLink:
    """Takes readings of one link and returns alert conditions. `began_ms`: the default of every unknown time."""

    link: str
    began_ms: int
    arrivals: dict[MonitoredPartition, UnreplicatedEnds] = field(default_factory=dict)
    lags: dict[MonitoredPartition, PartitionLag] = field(default_factory=dict)
    seen_ms: dict[str, int] = field(default_factory=dict)
    failures: Mapping[str, str] = field(default_factory=dict)
    # Partitions of the last sample; other views are old.
    read: frozenset[MonitoredPartition] = frozenset()
    # Since when a topic is known to be over, and why.
    over: dict[str, tuple[int, str]] = field(default_factory=dict)
    # Topics over for good: their figures are not shown any more.
    left: frozenset[str] = frozenset()
    # Those of them that the source lacks, with the replicated offset of each partition.
    deleted: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    # Unreachable clusters, and topics with a stopped partition, each with a sentence; and those partitions.
    away: Mapping[str, str] = field(default_factory=dict)
    stopped: Mapping[str, str] = field(default_factory=dict)
    resting: Mapping[str, frozenset[int]] = field(default_factory=dict)
    # Since when a part is unreadable, and why; None while readable.
    parts: dict[str, tuple[int, str] | None] = field(default_factory=dict)
    beat_offset: int = -1
    beat_seen_ms: int = 0
    beat_late_ms: int = 0
    beat_alive: bool = False
    beat_hushed: bool = False
    judged_ms: int = 0
    # Partitions without a window verdict: since when, as of when, and the last restart's reason.
    unjudged: dict[MonitoredPartition, tuple[int, int, str]] = field(default_factory=dict)
    rulings: int = 0
    why: str = ""
    samples: int = 0
    ever_read: bool = False

    def __post_init__(self) -> None:
        self.seen_ms.setdefault("", self.began_ms)
        self.judged_ms = self.judged_ms or self.began_ms

    def restore(self, rows: Iterable[PartitionDelayRow]) -> None:
        """Restores what an earlier monitor saved: a backlog keeps its age, and a vanished topic is noticed."""
        for row in rows:
            if not row.group:
                waiting = tuple(EndSighting(*pair) for pair in json.loads(row.unreplicated_ends))
                place = MonitoredPartition(row.link, row.topic, row.partition)
                self.arrivals[place] = UnreplicatedEnds(waiting, row.source_end)
                self.lags[place] = _view_of(row)
                self.seen_ms[row.topic] = max(row.at_ms, self.seen_ms.get(row.topic, 0))

    def after_clock_shift(self, now_ms: int, moved_ms: int) -> MonitoredLink:
        """The state after a clock shift of `moved_ms`, as after a restart: backlogs keep their age, the rest is
        unknown.
        """
        found = MonitoredLink(self.link, now_ms)
        for place, one in self.arrivals.items():
            waiting = tuple(seen._replace(at_ms=seen.at_ms + moved_ms) for seen in one.waiting)
            found.arrivals[place] = one._replace(waiting=waiting)
        found.lags = {
            place: replace(lag, at_ms=lag.at_ms + moved_ms) for place, lag in self.lags.items() if not place.group
        }
        found.seen_ms |= {topic: at_ms + moved_ms for topic, at_ms in self.seen_ms.items() if topic}
        return found

    def take(
        self,
        readings: Iterable[LagReading],
        failures: Mapping[str, str],
        now_ms: int,
        over: Mapping[str, str] = MappingProxyType({}),
        deleted: Mapping[str, Mapping[int, int]] = MappingProxyType({}),
    ) -> None:
        """Applies a sample. Only topics in `over` are gone; others without a reading could not be read.

        `deleted`: topics that the source lacks, with the replicated offset of each partition.
        """
        self.samples += 1
        self.failures = {topic: why for topic, why in failures.items() if topic not in LINK_PARTS}
        self.beat_hushed = False
        read = set()
        for reading in readings:
            place = reading.place
            if place.group:
                self.lags[place] = _group_view(reading)
                continue
            read.add(place)
            self.arrivals[place], self.lags[place] = update_lag(self.arrivals.get(place, UnreplicatedEnds()), reading)
            if place.topic not in self.failures:
                self.seen_ms[place.topic] = reading.at_ms
        self.read = frozenset(read)
        for topic in self.failures.keys() - {""}:
            # An expected topic that was never read counts as missing from now on.
            self.seen_ms.setdefault(topic, now_ms)
        if "" not in failures:
            self.seen_ms[""], self.ever_read = now_ms, True
            self.over = {topic: (self.over.get(topic, (now_ms, ""))[0], why) for topic, why in over.items()}
            self.deleted = {topic: _furthest(self.deleted.get(topic, {}), deleted[topic]) for topic in deleted}
            self.left = frozenset(
                topic for topic, (since, _) in self.over.items() if now_ms - since >= MISSING_TOPIC_GRACE_MS
            )
        self._forget(now_ms)

    @property
    def topics(self) -> frozenset[str]:
        """Topics that should be readable."""
        return frozenset(self.seen_ms.keys() - {""})

    def unseen(self, now_ms: int, bound_ms: float) -> frozenset[str]:
        """Topics whose last figures are older than `bound_ms`."""
        return frozenset(topic for topic in self.topics - self.left if now_ms - self.seen_ms[topic] > bound_ms)

    def take_parts(self, failures: Mapping[str, str], now_ms: int) -> None:
        """Applies a tick's sample to groups and heartbeats, unless the link could not be read."""
        for part in LINK_PARTS if "" not in failures else ():
            since_ms, _ = self.parts.get(part) or (now_ms, "")
            self.parts[part] = (since_ms, failures[part]) if part in failures else None

    def take_heartbeat(self, offset: int, written_ms: int, now_ms: int) -> None:
        if offset != self.beat_offset:
            # The first heartbeat found may be the last one that ever came.
            self.beat_alive = self.beat_offset >= 0
            self.beat_offset, self.beat_seen_ms, self.beat_late_ms = offset, now_ms, max(0, now_ms - written_ms)

    def expect_no_heartbeat(self, now_ms: int) -> None:
        """Restarts the heartbeat timer: a paused link expects no heartbeat."""
        self.beat_seen_ms, self.beat_hushed = now_ms if self.beat_seen_ms else 0, True

    def take_verdicts(self, judged: Iterable[WindowVerdict], now_ms: int) -> None:
        for one in judged:
            self.why = one.why or self.why
            since_ms, _, _ = self.unjudged.pop(one.place, (now_ms, 0, ""))
            if one.verdict.judged:
                self.judged_ms = now_ms
                self.rulings += 1
            elif one.why not in (PAUSED_REASON, NO_COMMITTED_OFFSET_REASON):
                self.unjudged[one.place] = since_ms, now_ms, one.why

    def conditions(
        self, now_ms: int, bound_s: Callable[[str], float], *, heartbeat_s: float, blind_s: float, period_s: float
    ) -> list[AlertCondition]:
        """All conditions known now, except window verdicts. Without knowledge nothing counts as well."""
        silent_ms = now_ms - self.beat_seen_ms if self.beat_seen_ms else 0
        fresh = [lag for place, lag in self.lags.items() if place in self.read]
        # With nothing to judge (no topics, all paused, no reading) the windows are not to blame.
        blind = not self.ever_read or now_ms - self.seen_ms[""] > blind_s * 500
        idle = not any(lag.state != "paused" for lag in fresh)
        if blind or idle:
            self.judged_ms = now_ms
        unjudged_s, well = max(blind_s, PERIODS_UNJUDGED_MAX * period_s), not blind and (idle or self.rulings > 0)
        # Without readings there is no verdict, which is no fault of the windows.
        self.unjudged = {place: one for place, one in self.unjudged.items() if now_ms - one[1] <= unjudged_s * 1000}
        left = {
            place: (until_ms - since_ms, why)
            for place, (since_ms, until_ms, why) in self.unjudged.items()
            if until_ms - since_ms > unjudged_s * 1000
        }
        # Unreadable heartbeats may not have stopped.
        known = not self.parts.get(HEARTBEATS_PART)
        alive, paused = self.beat_alive, self.beat_hushed
        beats = check_heartbeats(self.link, silent_ms, heartbeat_s, alive=alive, paused=paused) if known else []
        expected = {topic: at_ms for topic, at_ms in self.seen_ms.items() if topic not in self.over}
        stopped = check_stopped_topics(self.link, expected, self.stopped) if self.ever_read else []
        lasts = {topic: self._last(topic, now_ms) for topic in self.failures}
        return [
            *filter(self.vouches, check_recovery_points(self.link, fresh, bound_s, self.resting)),
            *stopped,
            *beats,
            *check_lost_records(self.link, self._lost(now_ms)),
            *check_link_parts(self.link, self.parts, now_ms, max(blind_s, PERIODS_UNREAD_MAX * period_s)),
            *check_blind_spots(self.link, expected, self.failures, now_ms, blind_s, ever=self.ever_read, lasts=lasts),
            *check_unjudged_windows(self.link, now_ms - self.judged_ms, unjudged_s, self.why, left, well=well),
        ]

    def vouches(self, condition: AlertCondition) -> bool:
        """Whether the condition is reliable. A topic that is partly unreadable or stopped is never reported well."""
        return condition.wrong or not (condition.key.topic in self.failures or condition.key.topic in self.stopped)

    def explain_over(self, key: AlarmKey, now_ms: int) -> str:
        """Why an alarm of a topic or group can never clear by a reading; empty if it can. The topic is over, or the
        group has not been read for long.
        """
        if key.link != self.link or not key.topic:
            return ""
        since_ms, why = self.over.get(key.topic, (now_ms, ""))
        if key.kind is AlarmKind.RECOVERY_POINT and key.topic in self._lost(now_ms):
            return ""
        if now_ms - since_ms > LAG_KEPT_MS:
            return why
        if not key.group or self.parts.get(GROUPS_PART) or self.failures or now_ms - self.began_ms < GROUP_LAG_KEPT_MS:
            return ""
        seen = [lag.at_ms for place, lag in self.lags.items() if (place.topic, place.group) == (key.topic, key.group)]
        gone = now_ms - max(seen, default=0) > GROUP_LAG_KEPT_MS
        return f"{key.group} has no committed offset there any more" if gone else ""

    def rows(self) -> list[PartitionDelayRow]:
        return [
            PartitionDelayRow(
                *(lag.place.link, lag.place.topic, lag.place.partition, lag.place.group),
                *(lag.at_ms, lag.source_end, lag.target_end, lag.lag_records, lag.recovery_point_ms),
                *(lag.axis.value, lag.state, json.dumps(self._waiting(lag.place), separators=(",", ":"))),
            )
            for lag in self.lags.values()
            if lag.place.topic not in self.left
        ]

    def _waiting(self, place: MonitoredPartition) -> list[list[int]]:
        known = self.arrivals.get(place)
        return [list(one) for one in known.waiting] if known and not place.group else []

    def _last(self, topic: str, now_ms: int) -> str:
        lags = [lag for place, lag in self.lags.items() if place.topic == topic and not place.group]
        if not lags:
            return ""
        age_s = (now_ms - min(lag.at_ms for lag in lags)) / 1000
        records = sum(lag.lag_records for lag in lags)
        oldest_s = max(lag.recovery_point_ms for lag in lags) / 1000
        return f"{age_s:.0f} s ago it lacked {records:,} records, the oldest for {oldest_s:.1f} s"

    def _lost(self, now_ms: int) -> dict[str, LostRecords]:
        """Known unreplicated records of deleted topics, for `LOST_RECORDS_KEPT_MS`."""
        found = {}
        for topic in self.left & self.deleted.keys():
            since_ms, why = self.over[topic]
            behind = []
            for place, lag in self.lags.items():
                # What another tool's copy lacks is unknown.
                if place.topic == topic and not place.group and lag.axis is not OffsetRelation.FOREIGN:
                    lacks = lag.source_end - self.deleted[topic].get(place.partition, 0)
                    if records := min(lag.lag_records, max(0, lacks)):
                        behind.append((records, lag.recovery_point_ms))
            if behind and now_ms - since_ms <= LOST_RECORDS_KEPT_MS:
                found[topic] = LostRecords(
                    why, sum(records for records, _ in behind), max(oldest_ms for _, oldest_ms in behind)
                )
        return found

    def _forget(self, now_ms: int) -> None:
        """Drops topics that are over, and partitions and groups that a readable topic no longer has."""
        if now_ms - self.seen_ms[""] > LAG_KEPT_MS:
            return
        gone = {topic for topic, (since_ms, _) in self.over.items() if now_ms - since_ms > LAG_KEPT_MS}
        gone -= self._lost(now_ms).keys()
        for topic in gone:
            self.seen_ms.pop(topic, None)
        for place in [place for place in self.lags if place.topic in gone or self._is_past(place, now_ms)]:
            self.lags.pop(place)
            self.arrivals.pop(place, None)

    def _is_past(self, place: MonitoredPartition, now_ms: int) -> bool:
        seen_ms = self.seen_ms.get(place.topic, 0)
        if self.failures or now_ms - seen_ms > LAG_KEPT_MS:
            return False
        return now_ms - self.lags[place].at_ms > (GROUP_LAG_KEPT_MS if place.group else LAG_KEPT_MS)


def _furthest(before: Mapping[int, int], now: Mapping[int, int]) -> dict[int, int]:
    """The replicated offset of each partition, also after the store has dropped progress reports."""
    return {number: max(before.get(number, 0), now.get(number, 0)) for number in before.keys() | now.keys()}


def _view_of(row: PartitionDelayRow) -> PartitionLag:
    return PartitionLag(
        MonitoredPartition(row.link, row.topic, row.partition),
        *(row.at_ms, row.source_end, row.target_end, row.lag_records, row.recovery_point_ms),
        OffsetRelation(row.offset_relation),
        row.state,
    )


def _group_view(reading: LagReading) -> PartitionLag:
    source = reading.source_commit or 0
    # A group without a committed offset there may start anywhere: nothing is known.
    target = -1 if reading.target_commit is None else reading.target_commit
    behind = max(0, source - max(0, target)) if reading.axis is OffsetRelation.EXACT else 0
    state = "paused" if reading.paused else "watched"
    return PartitionLag(reading.place, reading.at_ms, source, target, behind, 0, reading.axis, state)
