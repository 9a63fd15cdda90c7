"""Both algorithms on made-up traffic: jitter raises nothing, faults are found, and the page says how soon."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest

from twinshore.config.sections.delay import DelaySettings
from twinshore.monitoring.core.alerts import AlarmKind
from twinshore.monitoring.delay_simulation import (
    COMPARED_KINDS,
    SIMULATED_FAULTS,
    SIMULATED_TRAFFICS,
    SimulatedFault,
    SimulatedTraffic,
    count_false_alarms_per_day,
    detect_alarms,
    measure_detection,
    simulate_trace,
)

HOUR_S = 3600.0


@pytest.mark.parametrize("traffic", SIMULATED_TRAFFICS, ids=lambda one: one.name)
def test_an_hour_of_jitter_raises_nothing(traffic: SimulatedTraffic) -> None:
    seed = Random().randrange(1 << 32)
    print(f"seed {seed}")
    found = detect_alarms(simulate_trace(traffic, Random(seed), HOUR_S), DelaySettings())
    assert found == [], f"seed {seed}"


def test_a_mirror_later_than_its_bounds_is_told_by_both() -> None:
    late = SimulatedTraffic("late by up to half a minute", 200, late_s=30)
    daily = count_false_alarms_per_day(late, 1, 0.5, DelaySettings())
    assert all(daily[kind] > 0 for kind in COMPARED_KINDS), daily


def test_a_trace_never_goes_back_nor_ahead_of_its_source() -> None:
    for fault in (None, *SIMULATED_FAULTS):
        steps = list(simulate_trace(SIMULATED_TRAFFICS[1], Random(3), 300, fault))
        for before, now in pairwise(steps):
            assert before.source <= now.source
            assert before.target <= now.target <= now.source
        assert steps[-1].source - steps[-1].target < 3_000, "it caught up after the fault"


def test_a_standstill_is_found_by_both_within_four_periods() -> None:
    found = measure_detection(SIMULATED_TRAFFICS[0], SIMULATED_FAULTS[0], 7, 20, DelaySettings())
    for kind in COMPARED_KINDS:
        assert len(found[kind].times_s) == 20
        assert max(found[kind].times_s) <= 4 * 5.0
    assert "s (at most" in found[AlarmKind.END_OFFSET].words


def test_only_the_recovery_point_stands_when_producers_fall_silent_too() -> None:
    found = measure_detection(SIMULATED_TRAFFICS[0], SIMULATED_FAULTS[1], 7, 20, DelaySettings())
    assert found[AlarmKind.RECOVERY_POINT].kept == 1.0
    assert found[AlarmKind.END_OFFSET].kept < 0.5


def test_the_same_seed_makes_the_same_trace() -> None:
    fault = SimulatedFault("any", 10, 20)
    assert list(simulate_trace(SIMULATED_TRAFFICS[2], Random(5), 60, fault)) == list(
        simulate_trace(SIMULATED_TRAFFICS[2], Random(5), 60, fault)
    )
