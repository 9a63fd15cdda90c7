"""The traps that the published text leaves open: missing readings, topics made anew, pauses, groups."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from twinshore.monitoring.core.partition_lag import (
    DelayVerdict,
    LagReading,
    MonitoredPartition,
    Thresholds,
    WindowState,
    apply_reading,
)
from twinshore.monitoring.windows import decode_window_state, encode_window_state

pytestmark = pytest.mark.claim(
    "groups",
    "delay-traps",
    "missing readings, partitions that appear or are made anew, pauses, resets: no false alarm, no blind spot",
)

ORDERS = MonitoredPartition("east->west", "orders", 0)
GROUP = MonitoredPartition("east->west", "orders", 0, "billing")


def at(a: int, b: int, *, source: str = "s1", target: str = "t1", paused: bool = False) -> LagReading:
    return LagReading(ORDERS, 0, a, b, source, target, paused=paused)


def of_group(a: int | None, b: int | None) -> LagReading:
    return LagReading(GROUP, 0, 1000, 1000, "s1", "t1", a, b)


def run(
    readings: Iterable[tuple[int, LagReading]], thresholds: Thresholds | None = None
) -> tuple[WindowState, dict[int, DelayVerdict]]:
    state = WindowState()
    verdicts = {}
    for tick, reading in readings:
        # Through its kept form each time, as between two micro-batches.
        state, verdicts[tick] = apply_reading(
            decode_window_state(encode_window_state(state)), reading, tick, thresholds or Thresholds()
        )
    return state, verdicts


def test_a_missing_reading_begins_the_window_anew_and_raises_nothing() -> None:
    # At tick 4 nothing could be read. Without care tick 5 would lay A's two periods against B's three.
    flow = [(tick, at(100 * tick, 100 * tick)) for tick in (0, 1, 2, 3, 5, 6, 7, 8)]
    state, verdicts = run(flow)
    assert [tick for tick, one in verdicts.items() if one.judged] == [3, 8]
    assert not any(one.latest_delayed for one in verdicts.values())
    assert (state.restarts, state.why) == (1, "1 readings are missing")


def test_a_stall_is_still_seen_after_a_missing_reading() -> None:
    _, verdicts = run([(tick, at(100 * tick, 100)) for tick in (1, 2, 3, 5, 6, 7, 8)])
    assert verdicts[8].latest_delayed


def test_a_partition_that_appears_is_judged_from_its_fourth_reading_on() -> None:
    _, verdicts = run([(tick, at(1_000_000 + 100 * tick, 0)) for tick in range(70, 75)])
    assert [one.judged for one in verdicts.values()] == [False, False, False, True, True]


def test_a_topic_made_anew_on_the_target_raises_nothing_while_it_fills_again() -> None:
    flow = [(tick, at(100 * tick, 100 * tick)) for tick in range(5)]
    flow += [(tick, at(100 * tick, 100 * tick - 400, target="t2")) for tick in range(5, 10)]
    state, verdicts = run(flow)
    assert not any(one.latest_delayed for one in verdicts.values())
    assert state.why


def test_a_topic_made_anew_on_the_source_is_judged_as_a_new_one() -> None:
    flow = [(tick, at(100 * tick, 100 * tick)) for tick in range(5)]
    flow += [(tick, at(500 + 100 * tick, 400, source="s2")) for tick in range(5, 10)]
    state, verdicts = run(flow)
    assert [tick for tick, one in verdicts.items() if one.latest_delayed] == [8, 9]
    assert state.restarts == 1


def test_an_end_that_goes_back_without_a_new_topic_begins_anew() -> None:
    flow = [(tick, at(100 * tick, 100 * tick)) for tick in range(6)]
    flow += [(tick, at(100 * tick, 100 * tick - 350)) for tick in range(6, 12)]
    state, verdicts = run(flow)
    assert state.why == "the target's end went back"
    assert not any(one.latest_delayed for one in verdicts.values()), "only differences count afterwards"


def test_a_paused_link_is_not_judged_and_not_at_once_when_it_goes_on() -> None:
    flow = [(tick, at(100 * tick, 100 * tick)) for tick in range(4)]
    flow += [(tick, at(100 * tick, 300, paused=True)) for tick in range(4, 9)]
    flow += [(tick, at(100 * tick, 100 * tick)) for tick in range(9, 14)]
    _, verdicts = run(flow)
    assert [tick for tick, one in verdicts.items() if one.judged] == [3, 12, 13]
    assert not any(one.latest_delayed for one in verdicts.values())


def test_a_group_that_stops_following_is_seen() -> None:
    _, verdicts = run([(tick, of_group(100 * tick, 50)) for tick in range(5)])
    assert verdicts[3].consume_delayed


def test_a_group_that_never_came_to_the_target_is_seen() -> None:
    _, verdicts = run([(tick, of_group(100 * tick, None)) for tick in range(5)])
    assert verdicts[3].consume_delayed
    _, verdicts = run([(tick, of_group(100 * tick, None if tick < 3 else 100 * tick)) for tick in range(5)])
    assert not any(one.consume_delayed for one in verdicts.values()), "it came, all at once"


def test_a_groups_first_commit_is_no_movement() -> None:
    # From nowhere to 10 000 on A; on B the same place is 5 000.
    flow = [(0, of_group(None, None))] + [(tick, of_group(10_000, 5_000)) for tick in range(1, 6)]
    _, verdicts = run(flow)
    assert not any(one.consume_delayed for one in verdicts.values())


def test_a_group_that_is_reset_on_purpose_raises_nothing() -> None:
    places = [100, 200, 300, 400, 50, 150, 250, 350, 450]
    behind = [0, 100, 200, 300, 400, 50, 150, 250, 350]
    flow = [(tick, of_group(a, b)) for tick, (a, b) in enumerate(zip(places, behind, strict=True))]
    _, verdicts = run(flow)
    assert not any(one.consume_delayed for one in verdicts.values())


def test_a_tick_that_is_read_twice_counts_once() -> None:
    flow = [(tick, at(100 * tick, 100 * tick)) for tick in range(4)]
    state, _ = run(flow)
    again, verdict = apply_reading(state, at(900, 900), 3, Thresholds())
    assert (again, verdict.judged) == (state, False)


def test_ticks_of_another_period_or_of_a_clock_set_back_are_judged_from_the_fourth_on() -> None:
    now_ms = 1_790_000_000_000
    fast = [(now_ms // 5_000 + n, at(100 * n, 100 * n)) for n in range(6)]
    later_ms = now_ms + 60_000
    slow = [(later_ms // 60_000 + n, at(1_000 + 100 * n, 600)) for n in range(5)]
    state, verdicts = run([*fast, *slow])
    assert [verdicts[tick].judged for tick, _ in slow] == [False, False, False, True, True]
    assert verdicts[slow[3][0]].latest_delayed and state.why
    again = [((now_ms - 86_400_000) // 60_000 + n, at(2_000 + 100 * n, 600)) for n in range(4)]
    _, verdicts = run([*fast, *slow, *again])
    assert verdicts[again[3][0]].latest_delayed


def test_ticks_of_a_shorter_period_are_judged_from_the_fourth_on() -> None:
    slow = [(30_000 + n, at(100 * n, 100 * n)) for n in range(5)]
    fast = [(360_100 + n, at(1_000 + 100 * n, 600)) for n in range(4)]
    _, verdicts = run([*slow, *fast])
    assert [verdicts[tick].judged for tick, _ in fast] == [False, False, False, True]
