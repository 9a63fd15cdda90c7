"""What a monitor says of windows that judge nothing, or nothing of some places."""

from __future__ import annotations

import pytest

from tests.monitoring.test_state import BOUNDS, LINK, reading, wrong
from twinshore.monitoring.core.alerts import AlarmKind, AlertCondition, WindowVerdict
from twinshore.monitoring.core.monitored_link import MonitoredLink
from twinshore.monitoring.core.partition_lag import (
    NO_COMMITTED_OFFSET_REASON,
    NO_VERDICT_YET,
    DelayVerdict,
    MonitoredPartition,
)

pytestmark = pytest.mark.claim(
    "groups",
    "delay-restless-windows",
    "a place whose window begins anew again and again is an alarm though others are judged",
)


def test_windows_that_judge_nothing_are_an_alarm_unless_there_is_nothing_to_judge() -> None:
    state = MonitoredLink(LINK, 0)
    for ms in range(0, 70_000, 1_000):
        state.take([reading(ms, ms, ms)], {}, ms)
        wrong(state, ms)
    state.take_verdicts(
        [WindowVerdict(MonitoredPartition(LINK, "orders", 0), 1, NO_VERDICT_YET, "2 readings are missing")], 70_000
    )
    condition = wrong(state, 70_000)[AlarmKind.BLIND]
    assert "judged nothing for 70 s, last because 2 readings are missing" in condition.sentence
    state.take_verdicts([WindowVerdict(MonitoredPartition(LINK, "orders", 0), 1, DelayVerdict(judged=True))], 70_000)
    assert not wrong(state, 71_000)
    empty = MonitoredLink(LINK, 0)
    empty.take([], {}, 90_000)
    assert not wrong(empty, 90_000)


def test_a_place_whose_window_begins_anew_again_and_again_is_an_alarm_though_others_are_judged() -> None:
    state, restless = MonitoredLink(LINK, 0), MonitoredPartition(LINK, "orders", 1)
    going, paused = MonitoredPartition(LINK, "orders", 0), MonitoredPartition(LINK, "orders", 0, "away")
    why = "1 readings are missing"

    def tick(ms: int, *judged: WindowVerdict) -> dict[AlarmKind, AlertCondition]:
        state.take([reading(ms, ms, ms), reading(ms, ms, ms, partition=1)], {}, ms)
        state.take_verdicts(
            [
                WindowVerdict(going, ms, DelayVerdict(judged=True)),
                WindowVerdict(paused, ms, NO_VERDICT_YET, NO_COMMITTED_OFFSET_REASON),
                *judged,
            ],
            ms,
        )
        return wrong(state, ms)

    for ms in range(0, 61_000, 5_000):
        assert not tick(ms, WindowVerdict(restless, ms, NO_VERDICT_YET, why))
    condition = tick(65_000, WindowVerdict(restless, 65_000, NO_VERDICT_YET, why))[AlarmKind.BLIND]
    assert (condition.key.topic, condition.key.group) == ("", "windows")
    assert "orders-1 for 65 s" in condition.sentence
    assert why in condition.sentence
    assert not tick(70_000, WindowVerdict(restless, 70_000, DelayVerdict(judged=True), why))
    for ms in range(75_000, 146_000, 5_000):
        tick(ms, WindowVerdict(restless, ms, NO_VERDICT_YET, why))
    assert wrong(state, 145_000)
    for ms in range(150_000, 211_000, 5_000):
        tick(ms)
    assert not wrong(state, 210_000), "of what is read no more another alarm speaks"


def test_windows_of_a_long_period_are_given_the_readings_that_they_need() -> None:
    state = MonitoredLink(LINK, 0)
    slow = {**BOUNDS, "period_s": 60.0}
    for ms in range(0, 362_000, 1_000):
        state.take([reading(ms, ms, ms)], {}, ms)
        found = [condition.key for condition in state.conditions(ms, lambda _topic: 1e9, **slow) if condition.wrong]
        assert bool(found) == (ms > 360_000), ms
