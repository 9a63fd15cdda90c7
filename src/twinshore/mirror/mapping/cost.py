"""What carrying a topic will take: bytes, markers, filler and seconds, estimated before anything runs. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

# What the mirror does on two cores; a measured rate takes the place of the first.
BYTES_S_STATED = 50e6
MARKERS_S = 20_000.0
CLOSED_UNITS_S = 3_000.0
CLOSED_UNITS_S_EACH = 200.0  # Of one partition.
FILLER_S = 5e6
BEGIN_S = 5.0
NOTHING = "nothing is to be carried now"


class Sample(NamedTuple):
    """A piece of a log: how many offsets it spans, how many of them consumers see, in how many bytes."""

    offsets: int
    seen: int
    bytes: int


class Stretch(NamedTuple):
    """One partition: offsets to carry, and those below them that must be filled first."""

    offsets: int
    filler: int


@dataclass(frozen=True, slots=True)
class Rate:
    """`measured`: on this link, or only assumed. `closed_units`: the target takes no markers directly."""

    bytes_s: float
    measured: bool
    closed_units: bool = False

    def markers_s(self, partitions: int) -> float:
        return min(CLOSED_UNITS_S, CLOSED_UNITS_S_EACH * max(1, partitions)) if self.closed_units else MARKERS_S


@dataclass(frozen=True, slots=True)
class Cost:
    """An estimate. `mode` is exact or mapped; `place`: where a mapped topic goes on; `closed_units`: what writes the
    markers."""

    topic: str
    mode: str
    offsets: int
    bytes: int
    markers: int
    filler: int
    seconds: float
    rate_bytes_s: float
    measured: bool
    place: str = ""
    closed_units: bool = False

    def __str__(self) -> str:
        return f"cost of {self.topic}: {self.mode}{self.place and ', ' + self.place}: {self.figures}"

    @property
    def figures(self) -> str:
        """How much there is, and how long it will take."""
        parts = [f"about {_bytes(self.bytes)} in {self.offsets} offsets" if self.offsets else NOTHING]
        if self.markers:
            parts.append(f"{self.markers} markers{' by closed units' if self.closed_units else ''}")
        if self.filler:
            parts.append(f"{self.filler} offsets of filler")
        if self.offsets or self.filler:
            kind = "measured" if self.measured else "assumed"
            parts.append(f"{self.seconds:.0f} s at {_bytes(int(self.rate_bytes_s))}/s ({kind})")
        return ", ".join(parts)


def cost_of(
    topic: str,
    mode: str,
    stretches: Iterable[Stretch],
    samples: Iterable[Sample],
    rate: Rate,
    place: str = "",
) -> Cost:
    """The estimate for a topic, its samples standing for all of its partitions."""
    ours = list(stretches)
    offsets, filler = sum(one.offsets for one in ours), sum(one.filler for one in ours)
    spanned, seen, size = 0, 0, 0
    for sample in samples:
        spanned, seen, size = spanned + sample.offsets, seen + sample.seen, size + sample.bytes
    share = offsets / spanned if spanned else 0.0
    markers = round((spanned - seen) * share) if mode == "exact" else 0
    filler = filler if mode == "exact" else 0
    seconds = BEGIN_S + size * share / rate.bytes_s + markers / rate.markers_s(len(ours)) + filler / FILLER_S
    counts = offsets, round(size * share), markers, filler
    return Cost(topic, mode, *counts, seconds, rate.bytes_s, rate.measured, place, rate.closed_units)


def _bytes(count: int) -> str:
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("KB", 10**3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} bytes"
