"""Made-up traffic of one partition, and a mirror that carries it: well, late, slowly, or not at all. Seeded."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from math import sin
from random import Random
from typing import NamedTuple

STEP_S = 1.0


class Ends(NamedTuple):
    """Both ends at a moment."""

    at_s: float
    source: int
    target: int


@dataclass(frozen=True, slots=True)
class Traffic:
    """`records_s` on average; `wild`: how much of it comes in bursts; `sync_s`: a mirror that copies only so often,
    0 for one that copies all the time; `late_s`: how late it is, between nothing and this."""

    name: str
    records_s: float
    wild: float = 0.2
    sync_s: float = 0.0
    late_s: float = 0.5


@dataclass(frozen=True, slots=True)
class Fault:
    """From `begin_s` until `end_s` the mirror carries no more than `carries` of the traffic; `mute`: the source's
    producers fall silent at the same moment, as when a whole site loses its line."""

    name: str
    begin_s: float
    end_s: float
    carries: float = 0.0
    mute: bool = False

    def holds(self, at_s: float) -> bool:
        return self.begin_s <= at_s < self.end_s


TRAFFIC = (
    Traffic("steady, copied at once", 200),
    Traffic("bursts, up to 4 s late", 200, wild=0.9, late_s=4),
    Traffic("copied once a period", 200, sync_s=5, late_s=1.5),
    Traffic("bursts, up to 9 s late", 200, wild=0.9, late_s=9),
    Traffic("a record now and then", 0.05, wild=0.9, late_s=2),
)


def trace(traffic: Traffic, rng: Random, lasts_s: float, fault: Fault | None = None) -> Iterator[Ends]:
    """Both ends, a step apart."""
    source = target = 0
    on_the_way: deque[tuple[float, int]] = deque()
    phase, owed, room = rng.random() * 60, 0.0, 0.0
    for step in range(int(lasts_s / STEP_S)):
        at_s = step * STEP_S
        broken = fault is not None and fault.holds(at_s)
        if not (fault is not None and broken and fault.mute):
            owed += _arrivals(traffic, rng, at_s + phase)
        written, owed = int(owed), owed - int(owed)
        source += written
        on_the_way.append((_visible_s(traffic, rng, at_s), source))
        due = target
        while on_the_way and on_the_way[0][0] <= at_s:
            due = max(due, on_the_way.popleft()[1])
        if broken and fault is not None:
            room += fault.carries * traffic.records_s * STEP_S
            moved = min(int(room), due - target)
            room -= moved
            if target + moved < due:
                # What was due stays due.
                on_the_way.appendleft((at_s, due))
            target += moved
        else:
            target = due
        yield Ends(at_s, source, target)


def _arrivals(traffic: Traffic, rng: Random, at_s: float) -> float:
    calm = traffic.records_s * (1 - traffic.wild) * (1 + 0.3 * sin(at_s / 300))
    burst = traffic.records_s * traffic.wild * 20 if rng.random() < 0.05 else 0.0
    return max(0.0, (calm + burst) * STEP_S)


def _visible_s(traffic: Traffic, rng: Random, at_s: float) -> float:
    late_s = rng.random() * traffic.late_s
    if not traffic.sync_s:
        return at_s + late_s
    # Waits for the next sync, which takes its time.
    return (at_s // traffic.sync_s + 1) * traffic.sync_s + late_s
