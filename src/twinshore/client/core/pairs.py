"""In which order the records of one partition number are handed out that lie in two logs: the topic's own log, and the
twin of the log that has the topic's name on the other cluster. Pure: records, ends and moments in, records out.

A producer of a key may go from one cluster to the other, so older records of the key lie in one log and newer ones in
the other. What is older is told by the time stamps. That nothing older is still to come is told by ends: a log is known
up to a moment once it is read up to where its home ended at that moment or later. A record may go once the other log
is known up to the moment at which the record was fetched, and holds no older record of its key.

The clocks of many writers stand in one log, so its time stamps may fall: the other log's first record may be later than
this one, and an older record of this one's key may lie behind it. So it is not enough to look at first records.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

BUFFERED_RECORDS_MAX = 2_000  # of one log of one partition, before it is paused
BUFFERED_BYTES_MAX = 16 << 20
UNKNOWN_POSITION = -1
_NEVER_S = -math.inf
_DEEP, _ROOMY = 0.25, 0.5  # parts of what a log may hold

Item = TypeVar("Item")


def local_topic_name(topic: str, home: str, cluster: str) -> str:
    """What the log of this home is called on this cluster."""
    return topic if home == cluster else f"{home}.{topic}"


def explain_unequal_assignment(
    topics: Iterable[str], homes: Iterable[str], at: str, dealt: Iterable[tuple[str, int]]
) -> str:
    """Why what is dealt out to a member cannot be read in order, by name and partition; empty where it can."""
    parts = sorted(dealt)
    for topic in topics:
        numbers = {name: [number for one, number in parts if one == name] for name in _names(topic, homes, at)}
        if len({tuple(found) for found in numbers.values()}) > 1:
            said = ", and ".join(f"{_pairs_in_words(found)} of {name}" for name, found in numbers.items())
            return (
                f"{said} on {at}: a pair is read in order only where both topics are there with equally many"
                f" partitions, and all members of the group read both"
            )
    return ""


def _names(topic: str, homes: Iterable[str], at: str) -> list[str]:
    return [local_topic_name(topic, home, at) for home in homes]


def _pairs_in_words(numbers: list[int]) -> str:
    return f"partitions {', '.join(map(str, numbers))}" if numbers else "no partition"


class BufferedRecord(NamedTuple, Generic[Item]):
    """A record that was fetched. `fetched_s` is a moment that is not before it was written."""

    offset: int
    time_ms: int
    key: bytes | None
    size: int
    fetched_s: float
    item: Item


@dataclass(slots=True)
class _Log(Generic[Item]):
    """One log. `read_to`: all offsets below were fetched, or hold nothing to read."""

    rank: int
    records_max: int
    bytes_max: int
    queue: deque[BufferedRecord[Item]] = field(default_factory=deque)
    size: int = 0
    read_to: int = UNKNOWN_POSITION
    times: dict[bytes, deque[int]] = field(default_factory=dict)  # of what is in the queue, by key
    ends: deque[tuple[float, int]] = field(default_factory=deque)  # that are still to be reached; both grow
    asked_s: float = _NEVER_S
    known_s: float = _NEVER_S

    def depth(self) -> float:
        """How full it is; 1 or more is as much as it may hold."""
        return max(len(self.queue) / self.records_max, self.size / self.bytes_max)

    def has_room(self) -> bool:
        return self.depth() < _ROOMY

    def append(self, held: BufferedRecord[Item]) -> None:
        self.queue.append(held)
        self.size += held.size
        if held.key is not None:
            self.times.setdefault(held.key, deque()).append(held.time_ms)
        self.reach(held.offset + 1)

    def popleft(self) -> BufferedRecord[Item]:
        held = self.queue.popleft()
        self.size -= held.size
        if held.key is not None:
            times = self.times[held.key]
            times.popleft()
            if not times:
                del self.times[held.key]
        return held

    def reach(self, offset: int) -> None:
        self.read_to = max(self.read_to, offset)
        while self.ends and self.ends[0][1] <= self.read_to:
            self.known_s = self.ends.popleft()[0]

    def begin_anew(self, offset: int) -> None:
        """What was said of ends was said of another log."""
        self.read_to = offset
        self.ends.clear()
        self.asked_s = self.known_s = _NEVER_S

    def ended(self, end: int, asked_s: float, *, is_wanted: bool) -> None:
        """An end that was asked for later and is no further says all that the ones before it say. One that is further
        says nothing which anybody waits for, unless it is wanted: so there are no more ends than records."""
        if asked_s <= self.asked_s or not (is_wanted or not self.ends or end < self.ends[-1][1]):
            return
        self.asked_s = asked_s
        while self.ends and self.ends[-1][1] >= end:
            self.ends.pop()
        self.ends.append((asked_s, end))
        self.reach(self.read_to)

    def has_shown(self, fetched_s: float) -> bool:
        """Whether what was written before this moment is here. Of a log that holds a good part of what it may, this
        part must do: who is that far behind goes by time stamps. A log that has no room always does, or it would never
        be read again."""
        is_deep = len(self.queue) >= _DEEP * self.records_max or not self.has_room()
        return self.known_s >= fetched_s or is_deep

    def has_before(self, key: bytes | None, time_ms: int, rank: int) -> bool:
        """Whether a record of the key is here that goes first. Records of one key lie in the order of their writing,
        so the first one tells."""
        times = self.times.get(key) if key is not None else None
        return times is not None and (times[0], self.rank) < (time_ms, rank)


class PartitionPair(Generic[Item]):
    """The logs of one partition number, named by the clusters where they are written. Of two records with one time
    stamp that of the home named first goes first: so the order is the same wherever the pair is read."""

    def __init__(
        self, homes: Iterable[str], *, records_max: int = BUFFERED_RECORDS_MAX, bytes_max: int = BUFFERED_BYTES_MAX
    ) -> None:
        self._logs: dict[str, _Log[Item]] = {
            home: _Log(rank, records_max, bytes_max) for rank, home in enumerate(homes)
        }

    def fetched(self, home: str, held: BufferedRecord[Item]) -> None:
        """The next record of a log. One that lies before what was read already is not taken a second time."""
        if held.offset >= self._logs[home].read_to:
            self._logs[home].append(held)

    def read_to(self, home: str) -> int:
        """All offsets below were fetched, or hold nothing to read; NOWHERE where nothing is known yet."""
        return self._logs[home].read_to

    def begins_anew(self, home: str, offset: int) -> None:
        """The log is read again from an offset that it was read beyond: it is another one now, or was cut off."""
        self._logs[home].begin_anew(offset)

    def reached(self, home: str, offset: int) -> None:
        """The log holds nothing to read below this offset but what was fetched."""
        self._logs[home].reach(offset)

    def ended(self, home: str, end: int, asked_s: float) -> None:
        """The log ended there at this moment or later, where it is written."""
        self._logs[home].ended(end, asked_s, is_wanted=home in self.wanted())

    def wanted(self) -> list[str]:
        """The logs whose end must be asked: records of the other ones were fetched since it was."""
        return [
            home
            for home, log in self._logs.items()
            if any(one.queue and one.queue[-1].fetched_s > log.asked_s for one in self._logs.values() if one is not log)
        ]

    def awaited(self) -> dict[str, tuple[int, int]]:
        """How far each log is read that others wait for, and how far it must be."""
        waiting = any(log.queue for log in self._logs.values())
        return {home: (log.read_to, log.ends[0][1]) for home, log in self._logs.items() if waiting and log.ends}

    def take(self) -> BufferedRecord[Item] | None:
        """The record that goes next, if it is known yet which one that is: the earliest, or the earliest of the log
        that holds an older record of its key."""
        logs = sorted(
            (log for log in self._logs.values() if log.queue), key=lambda log: (log.queue[0].time_ms, log.rank)
        )
        for log in logs:
            head = log.queue[0]
            others = [one for one in self._logs.values() if one is not log]
            if not all(one.has_shown(head.fetched_s) for one in others):
                return None
            if not any(one.has_before(head.key, head.time_ms, log.rank) for one in others):
                return log.popleft()
        # Each waits for the other, so the clocks contradict what was written when. The earliest goes.
        return logs[0].popleft() if logs else None

    def is_full(self, home: str) -> bool:
        """Read no more of it for now."""
        return self._logs[home].depth() >= 1

    def has_room(self, home: str) -> bool:
        """Read on, where it was full."""
        return self._logs[home].has_room()

    def place(self, home: str) -> int:
        """Behind the last record that was handed out, and behind what holds nothing to read; NOWHERE where nothing is
        known yet."""
        log = self._logs[home]
        return log.queue[0].offset if log.queue else log.read_to
