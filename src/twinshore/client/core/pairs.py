"""The order of records from two logs of one partition number: the topic's own, and the twin of the other cluster's
topic.

A producer may move between the clusters, so one log has older records of a key and the other has newer ones. Timestamps
tell which is older. Log ends tell that nothing older is to come: a log is known up to a moment once it is read up to
its home's end at that moment. A record may leave once the other log is known up to the moment of its fetch and has no
older record of its key.

First records are not enough: writers' clocks differ, so an older record of the key may follow a later one.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

BUFFERED_RECORDS_MAX = 2_000  # of one log of one partition, before a pause
BUFFERED_BYTES_MAX = 16 << 20
UNKNOWN_POSITION = -1
_NEVER_S = -math.inf
_DEEP, _ROOMY = 0.25, 0.5  # fractions of a full buffer

Item = TypeVar("Item")


def local_topic_name(topic: str, home: str, cluster: str) -> str:
    """Returns the name on this cluster of the log written at `home`."""
    return topic if home == cluster else f"{home}.{topic}"


def explain_unequal_assignment(
    topics: Iterable[str], homes: Iterable[str], at: str, dealt: Iterable[tuple[str, int]]
) -> str:
    """Returns why assigned partitions cannot be read in order, or an empty text."""
    assigned = sorted(dealt)
    for topic in topics:
        names = [local_topic_name(topic, home, at) for home in homes]
        numbers = {name: [number for one, number in assigned if one == name] for name in names}
        if len({tuple(found) for found in numbers.values()}) > 1:
            parts = ", and ".join(f"{_describe_partitions(found)} of {name}" for name, found in numbers.items())
            return (
                f"{parts} on {at}: a pair is read in order only where both topics are there with equally many"
                f" partitions, and all members of the group read both"
            )
    return ""


def _describe_partitions(numbers: list[int]) -> str:
    return f"partitions {', '.join(map(str, numbers))}" if numbers else "no partition"


class BufferedRecord(NamedTuple, Generic[Item]):
    """A fetched record. `fetched_s`: a moment not before the record was written."""

    offset: int
    time_ms: int
    key: bytes | None
    size: int
    fetched_s: float
    item: Item


@dataclass(slots=True)
class _Log(Generic[Item]):
    """One log. `read_to`: each lower offset was fetched or holds no record."""

    rank: int
    records_max: int
    bytes_max: int
    queue: deque[BufferedRecord[Item]] = field(default_factory=deque)
    size: int = 0
    read_to: int = UNKNOWN_POSITION
    times: dict[bytes, deque[int]] = field(default_factory=dict)  # timestamps in the queue, by key
    ends: deque[tuple[float, int]] = field(default_factory=deque)  # log ends not reached yet; both fields grow
    asked_s: float = _NEVER_S
    known_s: float = _NEVER_S

    def depth(self) -> float:
        """Returns how full the buffer is; 1 or more is full."""
        return max(len(self.queue) / self.records_max, self.size / self.bytes_max)

    def has_room(self) -> bool:
        return self.depth() < _ROOMY

    def append(self, record: BufferedRecord[Item]) -> None:
        self.queue.append(record)
        self.size += record.size
        if record.key is not None:
            self.times.setdefault(record.key, deque()).append(record.time_ms)
        self.reach(record.offset + 1)

    def popleft(self) -> BufferedRecord[Item]:
        record = self.queue.popleft()
        self.size -= record.size
        if record.key is not None:
            times = self.times[record.key]
            times.popleft()
            if not times:
                del self.times[record.key]
        return record

    def reach(self, offset: int) -> None:
        self.read_to = max(self.read_to, offset)
        while self.ends and self.ends[0][1] <= self.read_to:
            self.known_s = self.ends.popleft()[0]

    def begin_anew(self, offset: int) -> None:
        """Continue in a replaced or truncated log. Known ends were the old log's."""
        self.read_to = offset
        self.ends.clear()
        self.asked_s = self.known_s = _NEVER_S

    def ended(self, end: int, asked_s: float, *, is_wanted: bool) -> None:
        """Note a log end. A later end that is no further replaces earlier ones. A further end is kept only if wanted,
        so ends are never more than records.
        """
        if asked_s <= self.asked_s or not (is_wanted or not self.ends or end < self.ends[-1][1]):
            return
        self.asked_s = asked_s
        while self.ends and self.ends[-1][1] >= end:
            self.ends.pop()
        self.ends.append((asked_s, end))
        self.reach(self.read_to)

    def has_shown(self, fetched_s: float) -> bool:
        """Whether all records written before this moment are here. A deep buffer counts too: a consumer that far behind
        goes by timestamps. A full log always counts, or it would never be read again.
        """
        is_deep = len(self.queue) >= _DEEP * self.records_max or not self.has_room()
        return self.known_s >= fetched_s or is_deep

    def has_before(self, key: bytes | None, time_ms: int, rank: int) -> bool:
        """Whether an older record of this key is here. Records of one key are in write order, so the first decides."""
        times = self.times.get(key) if key is not None else None
        return times is not None and (times[0], self.rank) < (time_ms, rank)


class PartitionPair(Generic[Item]):
    """The logs of one partition number, named by their homes. With equal timestamps the first-named home goes first, on
    either cluster.
    """

    def __init__(
        self, homes: Iterable[str], *, records_max: int = BUFFERED_RECORDS_MAX, bytes_max: int = BUFFERED_BYTES_MAX
    ) -> None:
        logs = {home: _Log[Item](rank, records_max, bytes_max) for rank, home in enumerate(homes)}
        self._logs: dict[str, _Log[Item]] = logs

    def fetched(self, home: str, record: BufferedRecord[Item]) -> None:
        """Add the next record of a log. A record below `read_to` is ignored."""
        if record.offset >= self._logs[home].read_to:
            self._logs[home].append(record)

    def read_to(self, home: str) -> int:
        """Each lower offset was fetched or holds no record; UNKNOWN_POSITION where nothing is known yet."""
        return self._logs[home].read_to

    def begins_anew(self, home: str, offset: int) -> None:
        """Continue at an offset below `read_to`: the log was replaced or truncated."""
        self._logs[home].begin_anew(offset)

    def reached(self, home: str, offset: int) -> None:
        """Note that all records below this offset were fetched."""
        self._logs[home].reach(offset)

    def ended(self, home: str, end: int, asked_s: float) -> None:
        """Note the log's end at its home at `asked_s` or later."""
        self._logs[home].ended(end, asked_s, is_wanted=home in self.wanted())

    def wanted(self) -> list[str]:
        """Returns homes whose log end to ask for: records of other logs were fetched since the last request."""
        return [
            home
            for home, log in self._logs.items()
            if any(one.queue and one.queue[-1].fetched_s > log.asked_s for one in self._logs.values() if one is not log)
        ]

    def awaited(self) -> dict[str, tuple[int, int]]:
        """Returns, of each log that others wait for, how far it is read and must be."""
        waiting = any(log.queue for log in self._logs.values())
        return {home: (log.read_to, log.ends[0][1]) for home, log in self._logs.items() if waiting and log.ends}

    def take(self) -> BufferedRecord[Item] | None:
        """Take the next record: the earliest, or the earliest of a log with an older record of its key. None where that
        is unknown yet.
        """
        logs = [log for log in self._logs.values() if log.queue]
        logs.sort(key=lambda log: (log.queue[0].time_ms, log.rank))
        for log in logs:
            head = log.queue[0]
            others = [one for one in self._logs.values() if one is not log]
            if not all(one.has_shown(head.fetched_s) for one in others):
                return None
            if not any(one.has_before(head.key, head.time_ms, log.rank) for one in others):
                return log.popleft()
        # Each waits for the other, so the clocks contradict the order of writes. The earliest goes.
        return logs[0].popleft() if logs else None

    def is_full(self, home: str) -> bool:
        return self._logs[home].depth() >= 1

    def has_room(self, home: str) -> bool:
        return self._logs[home].has_room()

    def place(self, home: str) -> int:
        """Returns the offset after delivered records and gaps; UNKNOWN_POSITION where nothing is known yet."""
        log = self._logs[home]
        return log.queue[0].offset if log.queue else log.read_to
