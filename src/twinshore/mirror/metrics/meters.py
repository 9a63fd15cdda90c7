"""What pumps tell and what the source shows, counted for each partition; read at each scrape, written nowhere."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from twinshore.fleet import NamedPartition
from twinshore.mirror.desk import Account
from twinshore.mirror.metrics.arrivals import Arrivals


@dataclass(slots=True)
class PartitionMeter:
    """`reached`: how far the twin is; -1 until something was heard of it."""

    records: int = 0
    bytes: int = 0
    batches: int = 0
    reached: int = -1
    arrivals: Arrivals = field(default_factory=Arrivals)

    @property
    def lag(self) -> int:
        return max(0, self.arrivals.end - self.reached) if self.reached >= 0 else 0


@dataclass(frozen=True, slots=True)
class Reading:
    """A partition, a topic or a link as it stands."""

    records: int
    bytes: int
    batches: int
    lag: int
    recovery_point_s: float

    def __add__(self, other: Reading) -> Reading:
        """Both together: sums, and the older recovery point."""
        return Reading(
            self.records + other.records,
            self.bytes + other.bytes,
            self.batches + other.batches,
            self.lag + other.lag,
            max(self.recovery_point_s, other.recovery_point_s),
        )


NOTHING = Reading(0, 0, 0, 0, 0.0)


class Meters:
    """Any thread. Moments are seconds since 1970."""

    def __init__(self) -> None:
        self._links: dict[str, dict[NamedPartition, PartitionMeter]] = {}
        self._looked_s: dict[str, float] = {}
        self._lock = threading.Lock()

    def take(self, account: Account) -> None:
        """What a pump told of what it carried; quick."""
        now_s = time.time()
        with self._lock:
            link = self._links.setdefault(account.link, {})
            for entry in account.carried:
                named = NamedPartition(entry.topic, entry.partition)
                meter = link.get(named)
                if meter is None:
                    meter = link[named] = PartitionMeter()
                meter.records += entry.records
                meter.bytes += entry.bytes
                meter.batches += entry.batches
                meter.reached = entry.to_offset
                if entry.source_end >= 0:
                    meter.arrivals.saw(entry.source_end, now_s)

    def knew(self, link: str, named: NamedPartition, reached: int, end: int, at_s: float) -> None:
        """What the store remembers from before this process: the source had that end then at the latest."""
        with self._lock:
            meter = self._links.setdefault(link, {}).setdefault(named, PartitionMeter())
            if meter.reached < 0:
                meter.reached = reached
                if meter.arrivals.end < 0:
                    meter.arrivals.saw(end, at_s)

    def looked(self, link: str, ends: Mapping[NamedPartition, int], seen_s: float) -> None:
        """The source's ends as they were asked for, whether or not a pump carries these partitions now. `seen_s`: since
        when what is new among them counts as seen."""
        with self._lock:
            self._looked_s[link] = time.time()
            meters = self._links.setdefault(link, {})
            for named, end in ends.items():
                meter = meters.setdefault(named, PartitionMeter())
                # A pump may have told of more while this answer was on its way.
                if end > meter.arrivals.end or end < meter.reached:
                    meter.arrivals.saw(end, seen_s)

    def keep_only(self, link: str, partitions: Iterable[NamedPartition]) -> None:
        """Drops what is mirrored no more."""
        kept = set(partitions)
        with self._lock:
            meters = self._links.get(link, {})
            for named in [named for named in meters if named not in kept]:
                del meters[named]

    def forget(self, link: str) -> None:
        """Another process carries the link from now on, and tells of it."""
        with self._lock:
            self._links.pop(link, None)
            self._looked_s.pop(link, None)

    def links(self) -> list[str]:
        """Those of which something is known."""
        with self._lock:
            return sorted(self._links)

    def look_age_s(self, link: str, now_s: float) -> float | None:
        """How old the last look at the source's ends is; None before the first."""
        at_s = self._looked_s.get(link)
        return None if at_s is None else max(0.0, now_s - at_s)

    def readings(self, link: str, now_s: float) -> dict[NamedPartition, Reading]:
        """Each partition as it stands, in the order in which they were first heard of."""
        with self._lock:
            return {named: _reading(meter, now_s) for named, meter in self._links.get(link, {}).items()}


def _reading(meter: PartitionMeter, now_s: float) -> Reading:
    age_s = meter.arrivals.age_s(meter.reached, now_s) if meter.reached >= 0 else 0.0
    return Reading(meter.records, meter.bytes, meter.batches, meter.lag, age_s)
