"""The arithmetic of what is measured: windows of a growing count, percentiles, medians, ratios."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise


class StageError(Exception):
    """A run that gave no figure; says why."""


@dataclass(frozen=True, slots=True)
class Sample:
    """At `at_s` the target held `records`; the copier had used `copier_cpu_s`, the brokers `brokers_cpu_s`, and the
    whole machine, whoever worked on it, `machine_cpu_s`.

    `line_bytes` went over the line between the sites, both ways, where a proxy counts them.
    """

    at_s: float
    records: int
    copier_cpu_s: float
    brokers_cpu_s: float
    machine_cpu_s: float
    line_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Window:
    """What happened between two samples."""

    seconds: float
    records: int
    copier_cpu_s: float
    brokers_cpu_s: float
    machine_cpu_s: float

    @property
    def rate(self) -> float:
        """Records a second."""
        return self.records / self.seconds

    @property
    def cpu_us(self) -> float:
        """The copier's CPU for one record, in microseconds."""
        return self.copier_cpu_s / self.records * 1e6

    @property
    def task_share(self) -> float:
        """The copier's part of all CPU that was spent, brokers included."""
        return self.copier_cpu_s / (self.copier_cpu_s + self.brokers_cpu_s)

    @property
    def others_cores(self) -> float:
        """How many cores everybody else kept busy meanwhile: much of it, and the figures are noise."""
        return max(0.0, self.machine_cpu_s - self.copier_cpu_s - self.brokers_cpu_s) / self.seconds


@dataclass(frozen=True, slots=True)
class WindowRule:
    """The same for every copier: counting starts `warm_s` after the first record, or when `warm_part` of the backlog
    is copied if that is sooner; it ends with the last look before the backlog was empty, or after `window_s`."""

    warm_s: float
    warm_part: float
    window_s: float


def window_of(samples: Sequence[Sample], backlog: int, rule: WindowRule) -> Window | None:
    """The measured window of a drain, None as long as it is not over. Nothing counts before the first record."""
    copying = [sample for sample in samples if sample.records > 0]
    if not copying:
        return None
    warm_at_s = copying[0].at_s + rule.warm_s
    warm = [each for each in copying if each.at_s >= warm_at_s or each.records >= backlog * rule.warm_part]
    if not warm:
        return None
    start = warm[0]
    for before, end in pairwise(warm):
        if end.records >= backlog:
            # When the copier reached the end is not known, only that it was between these two looks.
            return _between(start, before if before is not start else end)
        if end.at_s - start.at_s >= rule.window_s:
            return _between(start, end)
    return None


def _between(start: Sample, end: Sample) -> Window:
    if end.records <= start.records or end.at_s <= start.at_s:
        raise StageError("nothing was copied in the measured window: the copier stands, or the backlog is too small")
    return Window(
        end.at_s - start.at_s,
        end.records - start.records,
        end.copier_cpu_s - start.copier_cpu_s,
        end.brokers_cpu_s - start.brokers_cpu_s,
        end.machine_cpu_s - start.machine_cpu_s,
    )


def percentile(ordered: Sequence[float], part: float) -> float:
    """The smallest value that at least `part` of all values do not exceed. `ordered` rises."""
    if not ordered:
        raise StageError("no values to take a percentile of")
    return ordered[max(0, math.ceil(part * len(ordered)) - 1)]


def median(values: Sequence[float]) -> float:
    """The middle value; of two, their mean."""
    return statistics.median(values)


def ratio(ours: float, theirs: float) -> float:
    """Ours divided by theirs, to four significant digits."""
    return float(f"{ours / theirs:.4g}")
