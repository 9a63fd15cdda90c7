"""What a pause does to alarms: it raises none, and ends none that stands."""

from __future__ import annotations

import pytest

from tests.monitoring.test_state import LINK, conditions, reading
from twinshore.monitoring.core.alerts import (
    PAUSED_NOTE,
    AlarmBook,
    AlarmEvent,
    AlarmKey,
    AlarmKind,
    AlarmTiming,
    update_alarms,
)
from twinshore.monitoring.core.monitored_link import MonitoredLink


@pytest.mark.claim(
    "groups",
    "delay-pause",
    "a pause ends no alarm: what stands stays open as paused, nobody is told again, and it is well when it crossed",
)
def test_an_alarm_that_stands_is_not_well_again_by_a_pause() -> None:
    state = MonitoredLink(LINK, 0)
    key = AlarmKey(LINK, AlarmKind.RECOVERY_POINT, "orders")
    book: AlarmBook = {}
    told: list[AlarmEvent] = []

    def play(begin: int, end: int, *, paused: bool, target: int = 100) -> None:
        nonlocal book
        for ms in range(begin, end, 1_000):
            state.take([reading(ms, 500, target)._replace(paused=paused)], {}, ms)
            timings = {AlarmKind.RECOVERY_POINT: AlarmTiming(repeat_s=20)}
            book, events = update_alarms(
                book, [condition for condition in conditions(state, ms) if condition.key == key], ms, timings
            )
            told.extend(events)

    play(0, 15_000, paused=False)
    assert [one.happening for one in told] == ["raised"]
    play(15_000, 90_000, paused=True)
    assert [one.happening for one in told] == ["raised"], "nobody is told again, and nothing is over"
    assert "400 records of orders" in book[key].sentence
    assert book[key].sentence.endswith(PAUSED_NOTE)
    play(90_000, 92_000, paused=False)
    assert [one.happening for one in told] == ["raised", "repeated"] and "paused" not in told[-1].sentence
    play(92_000, 95_000, paused=False, target=500)
    assert [one.happening for one in told] == ["raised", "repeated", "cleared"]
    assert "well again" in told[-1].sentence


def test_a_pause_ends_no_alarm_of_heartbeats_and_the_next_heartbeat_does() -> None:
    state = MonitoredLink(LINK, 0)
    state.take([], {}, 0)
    for at in (1, 2):
        state.take_heartbeat(at, 0, at)
    state.expect_no_heartbeat(50_000)
    (condition,) = [one for one in conditions(state, 51_000) if one.key.kind is AlarmKind.HEARTBEAT]
    assert not condition.wrong and condition.held and "paused" in condition.sentence
    state.take([], {}, 60_000)
    state.take_heartbeat(3, 60_000, 60_000)
    (condition,) = [one for one in conditions(state, 61_000) if one.key.kind is AlarmKind.HEARTBEAT]
    assert not condition.wrong and not condition.held
