"""Arrival times of source offsets, and a mirror's statuses in the store for `twinshore status`.

A recovery point is an age of arrival: time stamps of records may be old, as in a backfill, or wrong.

Statuses: `lag`: the last read of log ends. `reading`: how a broadcast's link shares reads. `standby`: a standby mirror
lives. `waits`: since when twins lack records, so that the next mirror's recovery point is no younger. `groups`: the
last rounds of consumer groups.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple

from twinshore.config.grouping import in_slices
from twinshore.config.model import TopicPartition
from twinshore.config.sentences import count_phrase
from twinshore.replication.task.core.shared_read import JOINED_KEY, QUEUED_KEY
from twinshore.state.core.values import LinkStateRow, ReplicatedPosition, TwinRow

ARRIVALS_MAX = 64


class OffsetArrivals:
    """Marks of one partition: (time, log end), both rising. All offsets below the end existed then."""

    __slots__ = ("_marks", "end")

    def __init__(self) -> None:
        self.end = -1
        self._marks: deque[tuple[float, int]] = deque()

    def saw(self, end: int, now_s: float) -> None:
        """Takes the source's log end, which may have fallen."""
        if end < self.end:
            while self._marks and self._marks[-1][1] > end:
                last = self._marks.pop()
                if not self._marks or self._marks[-1][1] < end:
                    self._marks.append((last[0], end))
                    break
        elif end > self.end:
            self._marks.append((now_s, end))
            if len(self._marks) > ARRIVALS_MAX:
                self._thin()
        self.end = end

    def recall(self, marks: Sequence[tuple[float, int]]) -> None:
        """Puts earlier marks before the present ones, as far as the source still has them."""
        older = [mark for mark in marks if mark[1] < self.end]
        if len(older) < len(marks):
            older.append((marks[len(older)][0], self.end))
        last = older[-1][1] if older else -1
        self._marks = deque([*older, *(mark for mark in self._marks if mark[1] > last)])

    def missing(self, reached: int) -> list[tuple[float, int]]:
        """Returns marks beyond this offset, oldest first."""
        return [mark for mark in self._marks if mark[1] > reached]

    def age_s(self, reached: int, now_s: float) -> float:
        """Returns for how many seconds the oldest offset from `reached` on has been seen; 0: none. Never too small by
        thinning.
        """
        while self._marks and self._marks[0][1] <= reached:
            self._marks.popleft()
        return max(0.0, now_s - self._marks[0][0]) if self._marks else 0.0

    def _thin(self) -> None:
        """Joins pairs of marks under the earlier time: offsets seem a little older."""
        self._marks = deque((pair[0][0], pair[-1][1]) for pair in in_slices(self._marks, 2))


GROUPS_KIND = "groups"
PutMetric = Callable[[str, Sequence[str], float], None]
BACKLOG_KIND = "waits"
# Younger backlogs are about as old as the mirror's last status.
BACKLOG_S_MIN = 10.0
# The oldest ones; a link's recovery point is the first one's.
BACKLOG_PARTITIONS_MAX = 200
BACKLOG_MARKS_MAX = 4
# Of several standbys, the last writer is shown.
STANDBY_KIND = "standby"
SHARED_FETCH_KIND = "reading"
# Bytes a second below which a link does not count as reading: responses without records have a few.
SOURCE_READ_BYTES_S_MIN = 1_000.0
LAG_KIND = "lag"
LAG_TOPICS_MAX = 1_000
END_OFFSETS_TIMEOUT_S = 3.0
STATUS_TTL_S_MIN = 5.0
STATUS_INTERVALS_MISSED = 4
# If the clocks of two hosts differ by more, the age of what one wrote is unknown.
CLOCK_SKEW_S_MAX = 5.0


class AlignmentProgress:
    """Twins being filled up to the source's log start."""

    def __init__(self) -> None:
        self._at: dict[TopicPartition, tuple[int, int]] = {}

    def note(self, partition: TopicPartition, end: int, source_start: int) -> None:
        """Notes that the twin's log end is `end` now."""
        if end < source_start:
            self._at[partition] = (end, source_start)
        else:
            self._at.pop(partition, None)

    def forget(self, topic: str) -> None:
        self._at = {partition: at for partition, at in self._at.items() if partition.topic != topic}

    def sentence(self) -> str:
        """Describes these, naming the partition with most left; empty: none."""
        at = dict(self._at)
        if not at:
            return ""
        tp = max(at, key=lambda partition: (at[partition][1] - at[partition][0], partition))
        end, start = at[tp]
        others = f", {len(at) - 1} more too" if len(at) > 1 else ""
        return f"{tp} is aligned, {end} of {start} offsets ({100 * end // start} %){others}"


def parse_groups_status(rows: Iterable[LinkStateRow]) -> Mapping[str, Any]:
    return next((dict(json.loads(row.value)) for row in rows), {})


def put_group_metrics(put: PutMetric, link: str, status: Mapping[str, Any], now_s: float) -> None:
    if status:
        for state, count in status["states"].items():
            put("groups", (link, state), count)
        put("groups_lag_records", (link,), status["behind"])
        put("groups_sync_seconds", (link,), status["took_ms"] / 1000)
        put("groups_status_age_seconds", (link,), max(0.0, now_s - status["at_ms"] / 1000))


class ArrivalMark(NamedTuple):
    """All offsets below `end` existed at this wall-clock time."""

    at_ms: int
    end: int


def select_oldest_backlogs(
    waits: Mapping[TopicPartition, Sequence[ArrivalMark]],
) -> dict[TopicPartition, tuple[ArrivalMark, ...]]:
    """Returns the oldest partitions with a few marks each, joined so that no age shrinks."""
    oldest = sorted((tp for tp in waits if waits[tp]), key=lambda partition: (waits[partition][0].at_ms, partition))
    return {partition: _joined(waits[partition]) for partition in oldest[:BACKLOG_PARTITIONS_MAX]}


def backlog_row(link: str, waits: Mapping[TopicPartition, Sequence[ArrivalMark]], now_ms: int) -> LinkStateRow:
    topics: dict[str, dict[int, list[list[int]]]] = {}
    for partition, marks in waits.items():
        topics.setdefault(partition.topic, {})[partition.partition] = [list(mark) for mark in marks]
    return _row(link, BACKLOG_KIND, topics, now_ms)


def parse_backlog(rows: Iterable[LinkStateRow]) -> dict[TopicPartition, tuple[ArrivalMark, ...]]:
    return {
        TopicPartition(topic, int(partition)): tuple(ArrivalMark(*mark) for mark in marks)
        for row in rows
        for topic, partitions in json.loads(row.value).items()
        for partition, marks in partitions.items()
    }


def _joined(marks: Sequence[ArrivalMark]) -> tuple[ArrivalMark, ...]:
    """Joins neighbours: the older time, the later end."""
    size = -(-len(marks) // BACKLOG_MARKS_MAX)
    return tuple(ArrivalMark(group[0].at_ms, group[-1].end) for group in in_slices(marks, size))


@dataclass(frozen=True, slots=True)
class StandbyStatus:
    """`who` stands by; `sentence`: for which mirror, until when."""

    who: str
    sentence: str


def standby_row(link: str, who: str, sentence: str, now_ms: int) -> LinkStateRow:
    return _row(link, STANDBY_KIND, asdict(StandbyStatus(who, sentence)), now_ms)


def parse_standby(rows: Iterable[LinkStateRow], now_ms: int, holds_s: float) -> StandbyStatus | None:
    """Returns the last status; None: older than `holds_s`."""
    row = _fresh_row(rows, now_ms, holds_s)
    return StandbyStatus(**json.loads(row.value)) if row else None


@dataclass(frozen=True, slots=True)
class SharedFetchStatus:
    """`joined` of `partitions` share reads with other links; `queue_bytes` wait for the target; `read_per_s`: bytes a
    second that the link's own requests read, for all who share.
    """

    told_ms: int
    partitions: int
    joined: int
    queue_bytes: int
    read_per_s: float

    @property
    def reads(self) -> bool:
        """Whether the link itself fetches now; else other links feed it."""
        return self.read_per_s >= SOURCE_READ_BYTES_S_MIN

    def __str__(self) -> str:
        rate = f"{self.read_per_s / 1e6:.2f} MB/s of the source" if self.reads else "nothing"
        how = f"it reads {rate} itself"
        share = f"{self.joined} of {count_phrase(self.partitions, 'partition')} read together with others"
        return f"{share}; {how}; {self.queue_bytes / 1e6:.2f} MB wait for its target"


def shared_fetch_row(
    link: str, reading: Mapping[str, float], partitions: int, read_per_s: float, now_ms: int
) -> LinkStateRow:
    """Returns the row. `reading`: the tasks' last reports, summed."""
    joined, queued = int(reading[JOINED_KEY]), int(reading[QUEUED_KEY])
    value = {"partitions": max(partitions, joined), "joined": joined, "queue_bytes": queued, "read_per_s": read_per_s}
    return _row(link, SHARED_FETCH_KIND, value, now_ms)


def parse_shared_fetch(rows: Iterable[LinkStateRow], now_ms: int, holds_s: float) -> SharedFetchStatus | None:
    """Returns the last status; None: older than `holds_s`."""
    row = _fresh_row(rows, now_ms, holds_s)
    return SharedFetchStatus(row.since_ms, **json.loads(row.value)) if row else None


def describe_broadcast(broadcast: str, status: SharedFetchStatus | None) -> str:
    """Describes a broadcast's link; empty: no broadcast."""
    if not broadcast:
        return ""
    return f"of broadcast {broadcast}: {status or 'how it is read is unknown now'}"


def broadcast_values(broadcast: str, status: SharedFetchStatus | None) -> dict[str, object] | None:
    """For JSON; None: no broadcast; unknown values are null."""
    if not broadcast:
        return None
    now = ("reads", "partitions", "joined", "queue_bytes", "read_per_s")
    return {"name": broadcast, **{name: None if status is None else getattr(status, name) for name in now}}


def end_offsets_ttl_s(ends_s: float) -> float:
    """Returns the age at which a log end counts as old: one read was missed or unanswered."""
    return 2 * ends_s + END_OFFSETS_TIMEOUT_S


def status_ttl_s(progress_s: float) -> float:
    """Returns the age up to which a status shows that its mirror runs; each write of progress renews the status."""
    return max(STATUS_TTL_S_MIN, STATUS_INTERVALS_MISSED * progress_s)


def is_clock_ahead(age_s: float) -> bool:
    """Whether the writer's clock is ahead, so that the true age is unknown."""
    return age_s < -CLOCK_SKEW_S_MAX


def is_fresh(age_s: float, bound_s: float) -> bool:
    return age_s <= bound_s and not is_clock_ahead(age_s)


class TopicLag(NamedTuple):
    """Sums over partitions; `lag` and `source_end` without those `unseen`. `since_ms`: arrival of the oldest record
    that a twin is known to lack; 0: none.
    """

    partitions: int = 0
    reached: int = 0
    source_end: int = 0
    lag: int = 0
    unseen: int = 0
    since_ms: int = 0

    def with_one(self, reached: int, end: int, since_ms: int) -> TopicLag:
        """Adds a partition; an `end` below 0 was not seen."""
        lag = self.lag + (max(0, end - reached) if end >= 0 else 0)
        sums = self.partitions + 1, self.reached + reached, self.source_end + max(0, end)
        return TopicLag(*sums, lag, self.unseen + (end < 0), _earliest((self.since_ms, since_ms)))


def _earliest(moments: Iterable[int]) -> int:
    """Returns the earliest time; 0: none."""
    return min(filter(None, moments), default=0)


@dataclass(frozen=True, slots=True)
class LagStatus:
    """`seen_ms`: when log ends were requested. Partitions `unseen` did not answer."""

    seen_ms: int
    lag: int
    partitions: int
    unseen: int
    topics: Mapping[str, TopicLag] = field(default_factory=dict)
    since_ms: int = 0

    def only(self, admits: Callable[[str], bool]) -> LagStatus:
        """Drops topics that the link no longer replicates."""
        kept = {name: lag for name, lag in self.topics.items() if admits(name)}
        return self if len(kept) == len(self.topics) else _summed(kept, self.seen_ms)


def summarize_lag(
    places: Iterable[tuple[TopicPartition, int, int]],
    seen_ms: int,
    since_ms: Mapping[TopicPartition, int] | None = None,
) -> LagStatus:
    """Sums up `places`: partition, twin's offset, source's log end (below 0: not seen)."""
    topics: dict[str, TopicLag] = {}
    for partition, reached, end in places:
        since = (since_ms or {}).get(partition, 0)
        topics[partition.topic] = topics.get(partition.topic, TopicLag()).with_one(max(0, reached), end, since)
    return _summed(topics, seen_ms)


def _summed(topics: Mapping[str, TopicLag], seen_ms: int) -> LagStatus:
    every = topics.values()
    lag, partitions, unseen = (sum(getattr(topic, name) for topic in every) for name in ("lag", "partitions", "unseen"))
    return LagStatus(seen_ms, lag, partitions, unseen, topics, _earliest(topic.since_ms for topic in every))


def replicated_offsets(twins: Iterable[TwinRow], positions: Iterable[ReplicatedPosition]) -> dict[TopicPartition, int]:
    """Returns each twin's recorded progress; without any, the anchor."""
    anchors = {TopicPartition(row.topic, row.partition): row.base_offset for row in twins}
    reported = {TopicPartition(position.topic, position.partition): position.to_offset for position in positions}
    return {partition: reported.get(partition, anchor) for partition, anchor in anchors.items()}


def lag_row(link: str, lag_status: LagStatus) -> LinkStateRow:
    """Returns the row, without topics when there are more than `LAG_TOPICS_MAX`."""
    value = asdict(lag_status if len(lag_status.topics) <= LAG_TOPICS_MAX else replace(lag_status, topics={}))
    seen_ms = value.pop("seen_ms")
    return _row(link, LAG_KIND, value, seen_ms)


def parse_lag(rows: Iterable[LinkStateRow]) -> LagStatus | None:
    """Returns the last status; None: none yet."""
    for row in rows:
        value = json.loads(row.value)
        topics = {name: TopicLag(*numbers) for name, numbers in value["topics"].items()}
        return LagStatus(**value | {"seen_ms": row.since_ms, "topics": topics})
    return None


def _fresh_row(rows: Iterable[LinkStateRow], now_ms: int, holds_s: float) -> LinkStateRow | None:
    return next((row for row in rows if is_fresh((now_ms - row.since_ms) / 1000, holds_s)), None)


def _row(link: str, kind: str, value: object, at_ms: int) -> LinkStateRow:
    return LinkStateRow(link, kind, "", json.dumps(value, separators=(",", ":")), kind, at_ms)
