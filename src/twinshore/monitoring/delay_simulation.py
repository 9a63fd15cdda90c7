"""Simulates a partition's traffic and mirror from a seed, and runs both alarm algorithms on the same traces: what each
detects, how soon, and its false alarms.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import sin
from random import Random
from statistics import median
from typing import NamedTuple

from twinshore.config.sections.delay import DelaySettings
from twinshore.monitoring.core.alerts import (
    ActiveAlarm,
    AlarmKind,
    AlarmTransition,
    WindowVerdict,
    check_recovery_points,
    check_windows,
    update_alarms,
)
from twinshore.monitoring.core.partition_lag import (
    LagReading,
    MonitoredPartition,
    OffsetRelation,
    Thresholds,
    UnreplicatedEnds,
    WindowState,
    apply_reading,
    update_lag,
)
from twinshore.monitoring.notify import build_alarm_timings

STEP_S = 1.0


class SimulatedEnds(NamedTuple):
    at_s: float
    source: int
    target: int


@dataclass(frozen=True, slots=True)
class SimulatedTraffic:
    """`records_s`: average rate. `wild`: the part that comes in bursts. `sync_s`: interval of the mirror's copies, 0
    for continuous. `late_s`: its maximum delay.
    """

    name: str
    records_s: float
    wild: float = 0.2
    sync_s: float = 0.0
    late_s: float = 0.5


@dataclass(frozen=True, slots=True)
class SimulatedFault:
    """From `begin_s` until `end_s` the mirror replicates at most `carries` (0 to 1) of the traffic.

    `mute`: the source's producers stop at the same time, as when a whole site loses its network.
    """

    name: str
    begin_s: float
    end_s: float
    carries: float = 0.0
    mute: bool = False

    def holds(self, at_s: float) -> bool:
        return self.begin_s <= at_s < self.end_s


SIMULATED_TRAFFICS = (
    SimulatedTraffic("steady, copied at once", 200),
    SimulatedTraffic("bursts, up to 4 s late", 200, wild=0.9, late_s=4),
    SimulatedTraffic("copied once a period", 200, sync_s=5, late_s=1.5),
    SimulatedTraffic("bursts, up to 9 s late", 200, wild=0.9, late_s=9),
    SimulatedTraffic("a record now and then", 0.05, wild=0.9, late_s=2),
)


def simulate_trace(
    traffic: SimulatedTraffic, rng: Random, lasts_s: float, fault: SimulatedFault | None = None
) -> Iterator[SimulatedEnds]:
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
        yield SimulatedEnds(at_s, source, target)


def _arrivals(traffic: SimulatedTraffic, rng: Random, at_s: float) -> float:
    calm = traffic.records_s * (1 - traffic.wild) * (1 + 0.3 * sin(at_s / 300))
    burst = traffic.records_s * traffic.wild * 20 if rng.random() < 0.05 else 0.0
    return max(0.0, (calm + burst) * STEP_S)


def _visible_s(traffic: SimulatedTraffic, rng: Random, at_s: float) -> float:
    late_s = rng.random() * traffic.late_s
    if not traffic.sync_s:
        return at_s + late_s
    # Waits for the next sync, which takes time.
    return (at_s // traffic.sync_s + 1) * traffic.sync_s + late_s


SIMULATED_PARTITION = MonitoredPartition("east->west", "orders", 0)
FAULT_BEGIN_S, FAULT_DURATION_S, AFTER_FAULT_S = 60.0, 120.0, 60.0
DAY_S = 86_400.0
COMPARED_KINDS = (AlarmKind.END_OFFSET, AlarmKind.RECOVERY_POINT)
SIMULATED_FAULTS = (
    SimulatedFault("the mirror stands still", FAULT_BEGIN_S, FAULT_BEGIN_S + FAULT_DURATION_S),
    SimulatedFault(
        "it stands still, and producers fall silent", FAULT_BEGIN_S, FAULT_BEGIN_S + FAULT_DURATION_S, mute=True
    ),
    SimulatedFault("it replicates half", FAULT_BEGIN_S, FAULT_BEGIN_S + FAULT_DURATION_S, carries=0.5),
    SimulatedFault("it replicates a quarter", FAULT_BEGIN_S, FAULT_BEGIN_S + FAULT_DURATION_S, carries=0.25),
)


@dataclass(frozen=True, slots=True)
class SimulatedAlarm:
    """An alarm of one trace; `until_s` is None if it never cleared."""

    kind: AlarmKind
    at_s: float
    until_s: float | None = None


@dataclass(frozen=True, slots=True)
class DetectionResult:
    """How one algorithm detected a fault over some runs. `kept`: the part of its alarms that stayed open to the fault's
    end.
    """

    runs: int
    times_s: tuple[float, ...]
    kept: float

    @property
    def words(self) -> str:
        """For example "12 s (at most 14 s)"."""
        if not self.times_s:
            return "not found"
        missed = self.runs - len(self.times_s)
        text = f"{median(self.times_s):.0f} s (at most {max(self.times_s):.0f} s)"
        text += f", missed in {missed} of {self.runs}" if missed else ""
        return text + ("" if self.kept > 0.99 else f"; stands to the end in {self.kept:.0%}")


def detect_alarms(steps: Iterable[SimulatedEnds], settings: DelaySettings) -> list[SimulatedAlarm]:
    section = settings.section
    timings = build_alarm_timings(section)
    thresholds = Thresholds(
        settings.latest_threshold(SIMULATED_PARTITION.topic), settings.consume_threshold(SIMULATED_PARTITION.topic)
    )
    window, arrivals = WindowState(), UnreplicatedEnds()
    book: dict[object, ActiveAlarm] = {}
    raised: dict[AlarmKind, list[SimulatedAlarm]] = {kind: [] for kind in COMPARED_KINDS}
    for seen in steps:
        at_ms = int(seen.at_s * 1000)
        reading = LagReading(SIMULATED_PARTITION, at_ms, seen.source, seen.target, axis=OffsetRelation.EXACT)
        arrivals, lag = update_lag(arrivals, reading)
        conditions = check_recovery_points(SIMULATED_PARTITION.link, [lag], settings.recovery_point_s)
        tick = int(seen.at_s / section.period_s)
        if tick > window.tick:
            window, verdict = apply_reading(window, reading, tick, thresholds)
            conditions += check_windows([WindowVerdict(SIMULATED_PARTITION, tick, verdict)], section.period_s)
        book, events = update_alarms(book, conditions, at_ms, timings)  # type: ignore[assignment, arg-type]  # one book, one key
        for event in events:
            ours = raised[event.key.kind]
            if event.happening is AlarmTransition.RAISED:
                ours.append(SimulatedAlarm(event.key.kind, seen.at_s))
            elif event.happening is AlarmTransition.CLEARED:
                ours[-1] = SimulatedAlarm(event.key.kind, ours[-1].at_s, seen.at_s)
    return [alarm for ours in raised.values() for alarm in ours]


def count_false_alarms_per_day(
    traffic: SimulatedTraffic, seed: int, hours: float, settings: DelaySettings
) -> dict[AlarmKind, float]:
    found = detect_alarms(simulate_trace(traffic, Random(f"{seed} {traffic.name}"), hours * 3600), settings)
    return {kind: sum(alarm.kind is kind for alarm in found) * 24 / hours for kind in COMPARED_KINDS}


def measure_detection(
    traffic: SimulatedTraffic, fault: SimulatedFault, seed: int, runs: int, settings: DelaySettings
) -> dict[AlarmKind, DetectionResult]:
    times: dict[AlarmKind, list[float]] = {kind: [] for kind in COMPARED_KINDS}
    kept = dict.fromkeys(COMPARED_KINDS, 0)
    for number in range(runs):
        rng = Random(f"{seed} {traffic.name} {fault.name} {number}")
        # Faults do not begin with a period.
        shift_s = rng.random() * settings.section.period_s
        ours = SimulatedFault(fault.name, fault.begin_s + shift_s, fault.end_s + shift_s, fault.carries, fault.mute)
        found = detect_alarms(
            simulate_trace(traffic, rng, FAULT_BEGIN_S + FAULT_DURATION_S + AFTER_FAULT_S, ours), settings
        )
        for kind in COMPARED_KINDS:
            during = [alarm for alarm in found if alarm.kind is kind and ours.begin_s <= alarm.at_s < ours.end_s]
            if during:
                times[kind].append(during[0].at_s - ours.begin_s)
                kept[kind] += len(during) == 1 and (during[0].until_s is None or during[0].until_s >= ours.end_s)
    return {
        kind: DetectionResult(runs, tuple(times[kind]), kept[kind] / max(1, len(times[kind])))
        for kind in COMPARED_KINDS
    }


def build_table(seed: int, hours: float, runs: int, settings: DelaySettings) -> str:
    lines = ["| traffic | fault | published windows | recovery point |", "| --- | --- | --- | --- |"]
    for traffic in SIMULATED_TRAFFICS:
        daily = count_false_alarms_per_day(traffic, seed, hours, settings)
        cells = " | ".join(f"{daily[kind]:g} alarms a day" for kind in COMPARED_KINDS)
        lines.append(f"| {traffic.name} | none | {cells} |")
        for fault in SIMULATED_FAULTS:
            found = measure_detection(traffic, fault, seed, runs, settings)
            lines.append(
                f"| {traffic.name} | {fault.name} | {' | '.join(found[kind].words for kind in COMPARED_KINDS)} |"
            )
    return "\n".join(lines)
