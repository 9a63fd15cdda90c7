"""What is claimed of the delay monitor; a part of `make show-groups`."""

from __future__ import annotations

from collections.abc import Callable, Collection
from random import Random

from bench.kit.claims import Claim, Finding
from twinshore.config.sections.delay import DelaySettings
from twinshore.monitoring.core.alerts import AlarmKind
from twinshore.monitoring.delay_simulation import (
    COMPARED_KINDS,
    SIMULATED_FAULTS,
    SIMULATED_TRAFFICS,
    count_false_alarms_per_day,
    detect_alarms,
    measure_detection,
    simulate_trace,
)

RUNS, RUNS_LONG = 40, 400
HOURS, HOURS_LONG = 24, 240
PERIODS_MAX = 4
SHORT = {AlarmKind.END_OFFSET: "windows", AlarmKind.RECOVERY_POINT: "recovery_point"}


def claims(seed: int, only: Collection[str] = ()) -> list[Claim]:  # noqa: ARG001  # nothing here is shared
    """All that are measured."""
    hour = "an hour of simulated jitter, for each kind of traffic, raises nothing"
    beside = f"on the same seeded traces both find a standstill within {PERIODS_MAX} PT, and no run without one raises"
    return [Claim("delay-jitter", hour, _jitter(seed)), Claim("delay-beside", beside, _beside(seed))]


def _jitter(seed: int) -> Callable[[bool], Finding]:
    def run(long: bool) -> Finding:
        hours = HOURS_LONG if long else HOURS
        alarms = 0
        for traffic in SIMULATED_TRAFFICS:
            for number in range(hours):
                alarms += len(detect_alarms(simulate_trace(traffic, Random(f"{seed} {number}"), 3600), DelaySettings()))
        figure = f"{hours} hours of each of {len(SIMULATED_TRAFFICS)} kinds of traffic, seed {seed}: {alarms} alarms"
        return Finding(
            figure,
            alarms == 0,
            (("delay_jitter_hours", hours * len(SIMULATED_TRAFFICS)), ("delay_jitter_alarms", alarms)),
        )

    return run


def _beside(seed: int) -> Callable[[bool], Finding]:
    def run(long: bool) -> Finding:
        settings = DelaySettings()
        runs = RUNS_LONG if long else RUNS
        words, numbers, well = [], [], True
        for traffic in SIMULATED_TRAFFICS[:3]:
            found = measure_detection(traffic, SIMULATED_FAULTS[0], seed, runs, settings)
            daily = count_false_alarms_per_day(traffic, seed, 6.0, settings)
            for kind in COMPARED_KINDS:
                slowest_s = max(found[kind].times_s, default=float("inf"))
                words.append(f"{traffic.name}, {kind}: {found[kind].words}, {daily[kind]:g} false a day")
                well &= slowest_s <= PERIODS_MAX * settings.section.period_s and daily[kind] == 0
                well &= len(found[kind].times_s) == runs
                if traffic is SIMULATED_TRAFFICS[0]:
                    numbers.append((f"delay_{SHORT[kind]}_slowest_s", slowest_s))
        return Finding(f"{runs} standstills each, seed {seed}: {'; '.join(words)}", well, tuple(numbers))

    return run
