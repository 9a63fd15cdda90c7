"""What the live table shows of one link, by what its pumps told."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from twinshore.fleet import NamedPartition
from twinshore.mirror.lane.aligning import Alignments
from twinshore.mirror.lane.quota import by_side
from twinshore.mirror.lane.reading import summed

RATE_HALF_LIFE_S = 3.0
SPEED_S = 5.0  # what a lane told of its speed longer ago says nothing of now


@dataclass(slots=True)
class LinkLive:
    """What the live table shows of one link."""

    records: int = 0
    bytes: int = 0
    records_total: int = 0
    bytes_total: int = 0
    since_s: float = 0.0
    records_per_s: float = 0.0
    bytes_per_s: float = 0.0
    lag: dict[NamedPartition, int] = field(default_factory=dict)
    rate: dict[NamedPartition, float] = field(default_factory=dict)
    # By lane: when it was told, on the monotonic clock, and what.
    speed: dict[int, tuple[float, dict[str, float]]] = field(default_factory=dict)
    starts: dict[NamedPartition, int] = field(default_factory=dict)
    cut_to: dict[NamedPartition, int] = field(default_factory=dict)
    aligning: Alignments = field(default_factory=Alignments)
    # Bytes that a link of a broadcast has read by itself, since this process began.
    read_total: float = 0.0
    read_before: float = 0.0
    read_per_s: float = 0.0
    # When a pump last told of it, on the monotonic clock.
    heard_s: dict[NamedPartition, float] = field(default_factory=dict)

    def cuts(self) -> dict[NamedPartition, int]:
        """Twins whose source begins later than it did when they were last cut, and where they should begin."""
        return {named: at for named, at in self.starts.copy().items() if at > self.cut_to.get(named, 0)}

    def speeds(self) -> list[dict[str, float]]:
        """What its lanes told of late."""
        now_s = time.monotonic()
        return [speed for told_s, speed in self.speed.copy().values() if now_s - told_s < SPEED_S]

    def quotas(self) -> dict[str, float]:
        """Bytes a second by the side whose quota lets no more through; a side that holds nothing back is not there."""
        return by_side(self.speeds())

    def held_back(self) -> str:
        """What to add to how a link stands."""
        return "".join(
            f"; held back by the {side}'s quota: {size / 1e6:.2f} MB/s" for side, size in self.quotas().items()
        )

    def let_go(self) -> None:
        """Drops what pumps told of where partitions stand: whoever carries the link meanwhile knows that."""
        # New ones, since others may be reading the old.
        self.lag, self.starts, self.heard_s, self.aligning = {}, {}, {}, Alignments()

    def forget(self, topic: str) -> None:
        """Drops what is shown of a topic."""
        self.aligning.forget(topic)
        tables: tuple[dict[NamedPartition, Any], ...] = (self.lag, self.rate, self.starts, self.cut_to, self.heard_s)
        for table in tables:
            for named in [named for named in table if named.topic == topic]:
                del table[named]

    def rates(self, now_s: float) -> None:
        """Rates as they are now: what came since they were asked last counts the more, the longer that was."""
        took_s = now_s - self.since_s
        if self.since_s and took_s > 0:
            keep = 0.5 ** (took_s / RATE_HALF_LIFE_S)
            self.records_per_s = keep * self.records_per_s + (1 - keep) * self.records / took_s
            self.bytes_per_s = keep * self.bytes_per_s + (1 - keep) * self.bytes / took_s
            self.read_per_s = keep * self.read_per_s + (1 - keep) * (self.read_total - self.read_before) / took_s
            self.rate = {named: keep * size for named, size in self.rate.items() if size > 1.0}
        self.since_s, self.records, self.bytes, self.read_before = now_s, 0, 0, self.read_total

    def reading(self) -> dict[str, float]:
        """Of a link of a broadcast, how it is read together with others; empty of others."""
        return summed(self.speeds(), self.read_total)
