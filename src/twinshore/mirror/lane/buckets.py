"""What a lane may fetch: token buckets for its share of a link's and of topics' throttles, and who goes first. Pure.

Bytes are counted as they are fetched, not as they are sent: a throttled partition is then simply not asked for, keeps
no receive buffer busy and holds back nobody. A bucket may go into debt by one answer; what is over is waited out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field

from twinshore.fleet.control import PRIORITY_DEFAULT

# A bucket keeps what half a second brings: a slow turn of the loop costs nothing, and a burst is short.
BURST_S = 0.5
ASK_BYTES_MIN = 16 << 10
# Below this part of its burst a bucket is not asked from: many tiny fetches would cost more than they bring.
OPEN_PART = 0.125
LONGEST_WAIT_MS = 1 << 30


@dataclass(slots=True)
class Bucket:
    """Bytes that may be fetched now. `spent` and `hungry` are for whoever shares a throttle out: since the last report,
    and whether more would have been fetched."""

    bytes_s: float
    level: float = 0.0
    filled_at_s: float = 0.0
    spent: int = 0
    hungry: bool = False

    @property
    def burst(self) -> float:
        return self.bytes_s * BURST_S

    def refill(self, now_s: float) -> None:
        if self.filled_at_s:
            self.level = min(self.burst, self.level + (now_s - self.filled_at_s) * self.bytes_s)
        self.filled_at_s = now_s

    @property
    def open(self) -> bool:
        return self.level >= self.burst * OPEN_PART

    def opens_in_s(self) -> float:
        """From its last filling on."""
        return max(0.0, self.burst * OPEN_PART - self.level) / self.bytes_s

    def spend(self, size: int) -> None:
        self.level -= size
        self.spent += size
        if not self.open:
            self.hungry = True


@dataclass(slots=True)
class Buckets:
    """`link` is None where the link has no throttle. Topics without an entry have neither throttle nor weight."""

    link: Bucket | None = None
    topics: dict[str, Bucket] = field(default_factory=dict)
    weights: dict[str, int] = field(default_factory=dict)
    partitions: dict[str, int] = field(default_factory=dict)
    # Partitions whose source has more than was fetched, each with its weight; of each weight, how many.
    _behind: dict[Hashable, int] = field(default_factory=dict)
    _contending: Counter[int] = field(default_factory=Counter)
    _reported_at_s: float = 0.0

    @property
    def bounding(self) -> bool:
        """Whether anything here bounds anything."""
        return bool(self.link or self.topics or self.weights)

    def bound(self, link_bytes_s: float, topics: Mapping[str, float], weights: Mapping[str, int]) -> None:
        """New bounds, 0 for none; what was saved or owed under the old ones stays."""
        self.link = _adjusted(self.link, link_bytes_s) if link_bytes_s else None
        self.topics = {topic: _adjusted(self.topics.get(topic), rate) for topic, rate in topics.items()}
        if weights != self.weights:
            self.weights = dict(weights)
            self._behind.clear()
            self._contending.clear()

    def refill(self, now_s: float) -> list[str]:
        """Time passed; topics that may be fetched again."""
        if self.link:
            self.link.refill(now_s)
        found = []
        for topic, bucket in self.topics.items():
            shut = not bucket.open
            bucket.refill(now_s)
            if shut and bucket.open:
                found.append(topic)
        return found

    def shut(self) -> bool:
        """Whether nothing at all may be fetched now."""
        return self.link is not None and not self.link.open

    def admits(self, topic: str) -> bool:
        bucket = self.topics.get(topic)
        return bucket is None or bucket.open

    def bytes_max(self) -> int:
        """For one fetch; 0: no bound."""
        return max(ASK_BYTES_MIN, int(self.link.level)) if self.link else 0

    def wait_ms_max(self) -> int:
        """How long a broker may hold a fetch: no longer than until a topic that is not asked for now may be."""
        waits = [bucket.opens_in_s() for bucket in self.topics.values() if bucket.hungry and not bucket.open]
        return max(5, int(1000 * min(waits))) if waits else LONGEST_WAIT_MS

    def partition_bytes(self, topic: str, wanted: int, *, weighed: bool = True) -> int:
        """How much of one partition is asked for at a time: less where it is throttled, or where others go first."""
        bucket = self.topics.get(topic)
        if bucket:
            wanted = min(wanted, max(ASK_BYTES_MIN, int(bucket.burst) // max(1, self.partitions.get(topic, 1))))
        if self.weights and weighed:
            weight, first = self.weight(topic), self.first()
            if weight < first:
                wanted = min(wanted, max(ASK_BYTES_MIN, wanted * weight // first))
        return wanted

    def weight(self, topic: str) -> int:
        return self.weights.get(topic, PRIORITY_DEFAULT)

    def first(self) -> int:
        """The highest weight among those that have something to catch up with; 0: nobody has."""
        return max(self._contending, default=0)

    def spend(self, topic: str, size: int) -> bool:
        """So much was fetched; whether the topic may not be asked for any more."""
        if self.link:
            self.link.spend(size)
        bucket = self.topics.get(topic)
        if bucket is None:
            return False
        was_open = bucket.open
        bucket.spend(size)
        return was_open and not bucket.open

    def stands(self, key: Hashable, topic: str, *, behind: bool) -> bool:
        """Whether a partition has something to catch up with; says whether others are to be asked otherwise now."""
        if not self.weights or behind == (key in self._behind):
            return False
        before = self.first()
        if behind:
            self._behind[key] = self.weight(topic)
            self._contending[self._behind[key]] += 1
        else:
            weight = self._behind.pop(key)
            self._contending[weight] -= 1
            if not self._contending[weight]:
                del self._contending[weight]
        return before != self.first()

    def report(self, now_s: float) -> dict[str, list[float]] | None:
        """By topic, "" for the link: bytes per second since the last report, and whether more would have been fetched.
        Those that used nothing are left out; None where nothing is bounded."""
        took_s, self._reported_at_s = now_s - self._reported_at_s, now_s
        whole = {"": self.link, **self.topics} if self.link else self.topics
        if not whole:
            return None
        found = {}
        for name, bucket in whole.items():
            if bucket.spent or bucket.hungry:
                found[name] = [bucket.spent / took_s, float(bucket.hungry)]
            bucket.spent, bucket.hungry = 0, bucket.hungry and not bucket.open
        return found


def whole_batches(records: memoryview) -> tuple[int, int]:
    """Bytes of the whole batches that were fetched, and the offset behind them; -1 where there is none. A batch that
    was cut short comes again and counts then."""
    size, at, following = len(records), 0, -1
    while at + 61 <= size:
        end = at + 12 + int.from_bytes(records[at + 8 : at + 12], "big")
        if not at + 61 <= end <= size:
            break
        following = int.from_bytes(records[at : at + 8], "big") + int.from_bytes(records[at + 23 : at + 27], "big") + 1
        at = end
    return at, following


def _adjusted(bucket: Bucket | None, bytes_s: float) -> Bucket:
    if bucket is None:
        return Bucket(bytes_s)
    bucket.bytes_s = bytes_s
    bucket.level = min(bucket.level, bucket.burst)
    return bucket
