"""What a lane may fetch: token buckets for its share of a link's and of topics' throttles, and who goes first. Pure.

Bytes are counted as they are fetched, not as they are sent: a throttled partition is then simply not asked for, keeps
no receive buffer busy and holds back nobody. A bucket may go into debt by one answer; what is over is waited out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from twinshore.fleet.control import PRIORITY_DEFAULT

BURST_S = 0.25
ASK_BYTES_MIN = 16 << 10
# Below this part of its burst a bucket is not asked from: many tiny fetches would cost more than they bring.
OPEN_PART = 0.25


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
    busy: dict[str, int] = field(default_factory=dict)

    def bound(self, link_bytes_s: float, topics: Mapping[str, float], weights: Mapping[str, int]) -> None:
        """New bounds, 0 for none; what was saved or owed under the old ones stays."""
        self.link = _adjusted(self.link, link_bytes_s) if link_bytes_s else None
        self.topics = {topic: _adjusted(self.topics.get(topic), rate) for topic, rate in topics.items()}
        self.weights = dict(weights)
        self.busy.clear()

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

    def partition_bytes(self, topic: str, wanted: int) -> int:
        """How much of one partition is asked for at a time: less where it is throttled, or where others go first."""
        bucket = self.topics.get(topic)
        if bucket:
            wanted = min(wanted, max(ASK_BYTES_MIN, int(bucket.burst) // max(1, self.partitions.get(topic, 1))))
        if self.weights:
            first = max(self.busy.values(), default=0)
            weight = self.weight(topic)
            if weight < first:
                wanted = min(wanted, max(ASK_BYTES_MIN, wanted * weight // first))
        return wanted

    def weight(self, topic: str) -> int:
        return self.weights.get(topic, PRIORITY_DEFAULT)

    def spend(self, topic: str, size: int, asked: int) -> bool:
        """So much was fetched of what was asked; whether other partitions are to be asked otherwise now."""
        if self.link:
            self.link.spend(size)
        changed = False
        bucket = self.topics.get(topic)
        if bucket:
            was_open = bucket.open
            bucket.spend(size)
            changed = was_open and not bucket.open
        if self.weights:
            before = max(self.busy.values(), default=0)
            if 2 * size >= asked:
                self.busy[topic] = self.weight(topic)
            else:
                self.busy.pop(topic, None)
            changed = changed or before != max(self.busy.values(), default=0)
        return changed

    def report(self) -> dict[str, list[float]]:
        """By topic, "" for the link: bytes spent and whether it was hungry, since the last report."""
        found: dict[str, list[float]] = {}
        whole = {"": self.link, **self.topics} if self.link else self.topics
        for name, bucket in whole.items():
            found[name] = [bucket.spent, float(bucket.hungry)]
            bucket.spent, bucket.hungry = 0, not bucket.open
        return found


def _adjusted(bucket: Bucket | None, bytes_s: float) -> Bucket:
    if bucket is None:
        return Bucket(bytes_s)
    bucket.bytes_s = bytes_s
    bucket.level = min(bucket.level, bucket.burst)
    return bucket
