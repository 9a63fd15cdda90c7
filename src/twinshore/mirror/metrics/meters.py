"""What pumps tell and what the source shows, counted for each partition: lag and recovery point come from here."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from twinshore.fleet import NamedPartition
from twinshore.mirror.desk.desk_core import Account
from twinshore.mirror.metrics.arrivals import Arrivals
from twinshore.mirror.metrics.words import WAITS_S_MIN, LagWord, Mark, fresh_s, lag_word
from twinshore.service.clock import wall_ms

ENDS_S = 2.0
NEVER_S = -1e18


@dataclass(slots=True)
class PartitionMeter:
    """`reached`: how far the twin is; -1 until something was heard of it. `seen_s`: when the source's end was last
    seen, `told_s`: when a pump saw it."""

    records: int = 0
    bytes: int = 0
    batches: int = 0
    reached: int = -1
    seen_s: float = NEVER_S
    told_s: float = NEVER_S
    arrivals: Arrivals = field(default_factory=Arrivals)

    def end(self, since_s: float) -> int:
        """The source's end if it was seen since then, and the twin is known; -1 otherwise."""
        return self.arrivals.end if self.seen_s >= since_s and self.reached >= 0 else -1


@dataclass(frozen=True, slots=True)
class MeterReading:
    """A partition, a topic or a link as it stands. None is what is not known now: the source's ends are `unseen`. What
    was known to be missing is so still, and its recovery point goes on."""

    records: int = 0
    bytes: int = 0
    batches: int = 0
    lag: int | None = None
    recovery_point_s: float | None = None
    unseen: int = 0

    def __add__(self, other: MeterReading) -> MeterReading:
        """Both together: sums over what is known, and the older recovery point."""
        lags = [one.lag for one in (self, other) if one.lag is not None]
        ages = [one.recovery_point_s for one in (self, other) if one.recovery_point_s is not None]
        return MeterReading(
            self.records + other.records,
            self.bytes + other.bytes,
            self.batches + other.batches,
            sum(lags) if lags else None,
            max(ages, default=None),
            self.unseen + other.unseen,
        )


NOTHING = MeterReading()


class Meters:
    """Any thread. Moments are on the monotonic clock: whoever sets the machine's makes nothing old or young. `ends_s`:
    how often looks come by."""

    def __init__(self, ends_s: float = ENDS_S) -> None:
        self._fresh_s = fresh_s(ends_s)
        self._links: dict[str, dict[NamedPartition, PartitionMeter]] = {}
        self._looked_s: dict[str, float] = {}
        self._lock = threading.Lock()

    def take(self, account: Account) -> None:
        """What a pump told of what it carried; quick."""
        now_s = time.monotonic()
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
                if entry.source_end >= 0 and entry.to_offset > meter.reached:
                    meter.seen_s = meter.told_s = now_s
                # What a pump tells may be older than the last look; that the source lost its end is seen by looks.
                if entry.source_end > meter.arrivals.end:
                    meter.arrivals.saw(entry.source_end, now_s)
                meter.reached = entry.to_offset

    def knew(self, link: str, named: NamedPartition, reached: int, end: int, at_s: float) -> None:
        """What the store remembers from before this process: the source had that end then at the latest."""
        with self._lock:
            meter = self._links.setdefault(link, {}).setdefault(named, PartitionMeter())
            if meter.reached < 0:
                meter.reached = reached
                if meter.arrivals.end < 0:
                    meter.arrivals.saw(end, at_s)

    def recall(self, link: str, waits: Mapping[NamedPartition, Sequence[Mark]], now_s: float, now_ms: int) -> None:
        """What a mirror before this one saw of what these still lack; one whose clock was ahead saw it now."""
        with self._lock:
            for named, meter in self._links.get(link, {}).items():
                marks = [(now_s - max(0, now_ms - mark.at_ms) / 1000, mark.end) for mark in waits.get(named, ())]
                meter.arrivals.recall(marks)

    def waits(self, link: str, now_s: float, now_ms: int) -> dict[NamedPartition, list[Mark]]:
        """What has been missing for longer than the next mirror would know by itself."""
        with self._lock:
            places = [(named, one.arrivals.missing(one.reached)) for named, one in self._links.get(link, {}).items()]
        return {
            named: [Mark(now_ms - int((now_s - at_s) * 1000), end) for at_s, end in marks]
            for named, marks in places
            if marks and now_s - marks[0][0] >= WAITS_S_MIN
        }

    def looked(
        self, link: str, ends: Mapping[NamedPartition, int], seen_s: float, asked_s: float | None = None
    ) -> None:
        """The source's ends as they were asked for, whether or not a pump carries these partitions now. `seen_s`: since
        when what is new among them counts as seen; `asked_s`: when they were asked for."""
        with self._lock:
            self._looked_s[link] = now_s = time.monotonic()
            meters = self._links.setdefault(link, {})
            for named, end in ends.items():
                meter = meters.setdefault(named, PartitionMeter())
                meter.seen_s = now_s
                # A pump may have told of more while this answer was on its way.
                if end > meter.arrivals.end or meter.told_s < (now_s if asked_s is None else asked_s):
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

    def lag(self, link: str) -> int | None:
        """The link's lag as far as it is known now; None where nothing is."""
        since_s = time.monotonic() - self._fresh_s
        with self._lock:
            places = [(meter.reached, meter.end(since_s)) for meter in self._links.get(link, {}).values()]
        seen = [max(0, end - reached) for reached, end in places if end >= 0]
        looked = self._looked_s.get(link, since_s) > since_s
        return sum(seen) if seen or (looked and not places) else None

    def word(self, link: str) -> LagWord | None:
        """What the last look came to, with its moment in the world's time; None before the first."""
        at_s = self._looked_s.get(link)
        if at_s is None:
            return None
        now_s, now_ms = time.monotonic(), wall_ms()
        with self._lock:
            meters = self._links.get(link, {})
            places = [(named, one.reached, one.end(at_s - self._fresh_s)) for named, one in meters.items()]
            ages = {named: _age_s(one, now_s) for named, one in meters.items()}
        since_ms = {named: now_ms - int(age_s * 1000) for named, age_s in ages.items() if age_s}
        return lag_word(places, now_ms - int((now_s - at_s) * 1000), since_ms)

    def readings(self, link: str, now_s: float) -> dict[NamedPartition, MeterReading]:
        """Each partition as it stands, in the order in which they were first heard of."""
        with self._lock:
            return {
                named: _reading(meter, now_s, now_s - self._fresh_s)
                for named, meter in self._links.get(link, {}).items()
            }


def _reading(meter: PartitionMeter, now_s: float, since_s: float) -> MeterReading:
    end, age_s = meter.end(since_s), _age_s(meter, now_s)
    counts = (meter.records, meter.bytes, meter.batches)
    if end < 0:
        return MeterReading(*counts, recovery_point_s=age_s or None, unseen=1)
    return MeterReading(*counts, max(0, end - meter.reached), age_s)


def _age_s(meter: PartitionMeter, now_s: float) -> float:
    """For how long the oldest record that the twin lacks has been on the source; 0 where none is known."""
    return meter.arrivals.age_s(meter.reached, now_s) if meter.reached >= 0 else 0.0
