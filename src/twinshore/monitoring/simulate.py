"""Made-up traffic of one partition, with a mirror that carries it well, late, slowly, or not at all, seeded; and both
algorithms on the same traces: what each finds, how soon, and what each says for nothing.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import sin
from random import Random
from statistics import median
from typing import NamedTuple

from twinshore.config.sections.delay import DelaySettings
from twinshore.monitoring.core.alerts import AlarmKind, Happening, Judged, Standing, recovery_signs, turn, window_signs
from twinshore.monitoring.core.lag import Arrivals, Axis, Guarded, Reading, Thresholds, WatchedPlace, look, observe
from twinshore.monitoring.notify import manners_of

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


PLACE = WatchedPlace("east->west", "orders", 0)
BEGIN_S, FAULT_S, AFTER_S = 60.0, 120.0, 60.0
DAY_S = 86_400.0
KINDS = (AlarmKind.END_OFFSET, AlarmKind.RECOVERY_POINT)
FAULTS = (
    Fault("the mirror stands still", BEGIN_S, BEGIN_S + FAULT_S),
    Fault("it stands still, and producers fall silent", BEGIN_S, BEGIN_S + FAULT_S, mute=True),
    Fault("it carries half", BEGIN_S, BEGIN_S + FAULT_S, carries=0.5),
    Fault("it carries a quarter", BEGIN_S, BEGIN_S + FAULT_S, carries=0.25),
)


@dataclass(frozen=True, slots=True)
class Raised:
    """An alarm of one trace; `until_s` is None where it never cleared."""

    kind: AlarmKind
    at_s: float
    until_s: float | None = None


@dataclass(frozen=True, slots=True)
class Found:
    """How one algorithm did with a fault, over some runs. `kept`: the part of the runs whose alarm stood to the end."""

    runs: int
    times_s: tuple[float, ...]
    kept: float

    @property
    def words(self) -> str:
        """As in "12 s (at most 14 s)"."""
        if not self.times_s:
            return "not found"
        missed = self.runs - len(self.times_s)
        text = f"{median(self.times_s):.0f} s (at most {max(self.times_s):.0f} s)"
        text += f", missed in {missed} of {self.runs}" if missed else ""
        return text + ("" if self.kept > 0.99 else f"; stands to the end in {self.kept:.0%}")


def watch(steps: Iterable[Ends], settings: DelaySettings) -> list[Raised]:
    """Every alarm of both algorithms on one trace."""
    section = settings.section
    manners = manners_of(section)
    thresholds = Thresholds(settings.latest_threshold(PLACE.topic), settings.consume_threshold(PLACE.topic))
    window, arrivals = Guarded(), Arrivals()
    book: dict[object, Standing] = {}
    raised: dict[AlarmKind, list[Raised]] = {kind: [] for kind in KINDS}
    for seen in steps:
        at_ms = int(seen.at_s * 1000)
        reading = Reading(PLACE, at_ms, seen.source, seen.target, axis=Axis.EXACT)
        arrivals, view = look(arrivals, reading)
        signs = recovery_signs(PLACE.link, [view], settings.recovery_point_s)
        tick = int(seen.at_s / section.period_s)
        if tick > window.tick:
            window, verdict = observe(window, reading, tick, thresholds)
            signs += window_signs([Judged(PLACE, tick, verdict)], section.period_s)
        book, events = turn(book, signs, at_ms, manners)  # type: ignore[assignment, arg-type]  # one book, one key
        for event in events:
            ours = raised[event.key.kind]
            if event.happening is Happening.RAISED:
                ours.append(Raised(event.key.kind, seen.at_s))
            elif event.happening is Happening.CLEARED:
                ours[-1] = Raised(event.key.kind, ours[-1].at_s, seen.at_s)
    return [one for ours in raised.values() for one in ours]


def false_alarms_a_day(traffic: Traffic, seed: int, hours: float, settings: DelaySettings) -> dict[AlarmKind, float]:
    """Alarms of a mirror without any fault."""
    found = watch(trace(traffic, Random(f"{seed} {traffic.name}"), hours * 3600), settings)
    return {kind: sum(one.kind is kind for one in found) * 24 / hours for kind in KINDS}


def detection(traffic: Traffic, fault: Fault, seed: int, runs: int, settings: DelaySettings) -> dict[AlarmKind, Found]:
    """How soon each finds the fault."""
    times: dict[AlarmKind, list[float]] = {kind: [] for kind in KINDS}
    kept = dict.fromkeys(KINDS, 0)
    for number in range(runs):
        rng = Random(f"{seed} {traffic.name} {fault.name} {number}")
        # Faults do not wait for a period to begin.
        shift_s = rng.random() * settings.section.period_s
        ours = Fault(fault.name, fault.begin_s + shift_s, fault.end_s + shift_s, fault.carries, fault.mute)
        found = watch(trace(traffic, rng, BEGIN_S + FAULT_S + AFTER_S, ours), settings)
        for kind in KINDS:
            during = [one for one in found if one.kind is kind and ours.begin_s <= one.at_s < ours.end_s]
            if during:
                times[kind].append(during[0].at_s - ours.begin_s)
                kept[kind] += len(during) == 1 and (during[0].until_s is None or during[0].until_s >= ours.end_s)
    return {kind: Found(runs, tuple(times[kind]), kept[kind] / max(1, len(times[kind]))) for kind in KINDS}


def table(seed: int, hours: float, runs: int, settings: DelaySettings, traffics: Sequence[Traffic] = TRAFFIC) -> str:
    """Everything as a table in Markdown."""
    lines = ["| traffic | fault | published windows | recovery point |", "| --- | --- | --- | --- |"]
    for traffic in traffics:
        daily = false_alarms_a_day(traffic, seed, hours, settings)
        cells = " | ".join(f"{daily[kind]:g} alarms a day" for kind in KINDS)
        lines.append(f"| {traffic.name} | none | {cells} |")
        for fault in FAULTS:
            found = detection(traffic, fault, seed, runs, settings)
            lines.append(f"| {traffic.name} | {fault.name} | {' | '.join(found[kind].words for kind in KINDS)} |")
    return "\n".join(lines)


SEED, HOURS, RUNS = 1, 3.0, 10
BEGIN, END = "<!-- simulated -->\n", "<!-- end -->"


def with_table(page: str) -> str:
    """The page with the table as the code makes it now."""
    head, _, rest = page.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}{_table()}\n{END}{tail}"


@functools.cache
def _table() -> str:
    return table(SEED, HOURS, RUNS, DelaySettings())
