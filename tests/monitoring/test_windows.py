"""The published algorithm, line by line, as its text states it."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from twinshore.monitoring.core.partition_lag import (
    TICK_COUNT_MAX,
    DelayVerdict,
    DelayWindow,
    Thresholds,
    TickOffsets,
    advance_window,
    increment_tick_count,
)

pytestmark = pytest.mark.claim(
    "groups",
    "delay-windows",
    "the published window algorithm, exactly: a test for each of its lines and thresholds",
)

ANY = Thresholds()


def run(
    ticks: Iterable[TickOffsets], thresholds: Thresholds = ANY, window: DelayWindow | None = None
) -> list[DelayVerdict]:
    window = window or DelayWindow()
    verdicts = []
    for seen in ticks:
        window, verdict = advance_window(window, seen, thresholds)
        verdicts.append(verdict)
    return verdicts


def ends(a: Iterable[int], b: Iterable[int]) -> list[TickOffsets]:
    return [TickOffsets(one, other) for one, other in zip(a, b, strict=True)]


def commits(a: Iterable[int], b: Iterable[int]) -> list[TickOffsets]:
    return [TickOffsets(0, 0, one, other) for one, other in zip(a, b, strict=True)]


def test_it_begins_with_times_zero_and_judges_from_three_on() -> None:
    assert DelayWindow().times == 0
    verdicts = run(ends([0, 100, 200, 300], [0, 0, 0, 0]))
    assert [one.judged for one in verdicts] == [False, False, False, True]
    assert verdicts[3].latest_delayed


def test_times_grows_whatever_the_judgement() -> None:
    window = DelayWindow()
    for number, seen in enumerate(ends([0, 0, 100, 200, 300, 300], [0, 0, 0, 0, 0, 300])):
        assert window.times == number
        window, _ = advance_window(window, seen, ANY)
    assert window.times == 6


def test_only_the_last_four_readings_are_kept() -> None:
    window = DelayWindow()
    for number in range(9):
        window, _ = advance_window(window, TickOffsets(number, 10 + number, 20 + number, 30 + number), ANY)
    assert sorted(window.a_max) == [5, 6, 7, 8]
    assert sorted(window.b_max) == [15, 16, 17, 18]
    assert sorted(window.a_consume) == [25, 26, 27, 28]
    assert sorted(window.b_consume) == [35, 36, 37, 38]


def test_the_end_offset_alarm_compares_one_period_of_a_with_three_of_b() -> None:
    # A moves 100 between times-3 and times-2, and nowhere else that is looked at.
    late = run(ends([0, 100, 100, 100], [0, 0, 0, 99]))[-1]
    assert (late.latest_delayed, late.a_max_sub, late.b_max_sub) == (True, 100, 99)
    in_time = run(ends([0, 100, 100, 100], [0, 0, 0, 100]))[-1]
    assert not in_time.latest_delayed, "as much as A moved is enough, even if it came in the last period"
    later = run(ends([0, 0, 100, 100], [0, 0, 0, 0]))[-1]
    assert not later.latest_delayed, "what A did since times-2 is not judged yet"


def test_the_group_alarm_is_the_same_with_the_committed_offsets() -> None:
    late = run(commits([8000, 8100, 8100, 8100], [3000, 3000, 3050, 3099]))[-1]
    assert (late.consume_delayed, late.latest_delayed) == (True, False)
    assert (late.a_consume_sub, late.b_consume_sub) == (100, 99)
    assert not run(commits([8000, 8100, 8100, 8100], [3000, 3000, 3050, 3100]))[-1].consume_delayed


def test_both_alarms_of_one_reading_are_independent() -> None:
    ticks = [TickOffsets(0, 0, 0, 0), TickOffsets(9, 0, 9, 9), TickOffsets(9, 0, 9, 9), TickOffsets(9, 0, 9, 9)]
    verdict = run(ticks)[-1]
    assert (verdict.latest_delayed, verdict.consume_delayed) == (True, False)


def test_the_numbers_of_a_and_b_need_not_be_equal() -> None:
    # The published example: 10 000 and 8 000 on A are 5 000 and 3 000 on B.
    ticks = [TickOffsets(10_000 + 50 * n, 5_000 + 50 * n, 8_000 + 40 * n, 3_000 + 40 * n) for n in range(8)]
    assert not any(one.latest_delayed or one.consume_delayed for one in run(ticks))


@pytest.mark.parametrize(("moved", "alarm"), [(0, False), (10, False), (11, True)])
def test_a_quiet_topic_is_skipped_by_min_delay_latest_offset(moved: int, alarm: bool) -> None:
    thresholds = Thresholds(min_delay_latest_offset=10)
    verdict = run(ends([0, moved, moved, moved], [0, 0, 0, 0]), thresholds)[-1]
    assert verdict.latest_delayed is alarm, "greater than the threshold, not equal to it"


@pytest.mark.parametrize(("moved", "alarm"), [(0, False), (10, False), (11, True)])
def test_a_quiet_group_is_skipped_by_min_delay_consume_offset(moved: int, alarm: bool) -> None:
    thresholds = Thresholds(min_delay_consume_offset=10)
    verdict = run(commits([0, moved, moved, moved], [0, 0, 0, 0]), thresholds)[-1]
    assert verdict.consume_delayed is alarm


def test_the_two_thresholds_do_not_share() -> None:
    ticks = [TickOffsets(20 * min(n, 1), 0, 20 * min(n, 1), 0) for n in range(4)]
    only_groups = run(ticks, Thresholds(100, 0))[-1]
    assert (only_groups.latest_delayed, only_groups.consume_delayed) == (False, True)
    only_ends = run(ticks, Thresholds(0, 100))[-1]
    assert (only_ends.latest_delayed, only_ends.consume_delayed) == (True, False)


@pytest.mark.parametrize("before", range(6))
def test_the_counter_overflows_without_a_gap(before: int) -> None:
    """A stall that lies across the overflow is seen at the very tick at which it is seen anywhere else."""
    a, b = [100 * n for n in range(12)], [100 * min(n, 4) for n in range(12)]
    usual = [one.latest_delayed for one in run(ends(a, b))]
    window = DelayWindow(times=TICK_COUNT_MAX - before)
    # The rings' slots must be those that the counter will use: four ticks of the past fill them.
    past = [TickOffsets(0, 0)] * 4
    for seen in past:
        window, _ = advance_window(window, seen, ANY)
    over = run(ends(a, b), window=window)
    assert all(one.judged for one in over)
    assert [one.latest_delayed for one in over][4:] == usual[4:]


def test_beyond_the_largest_number_comes_one_on_the_next_slot() -> None:
    assert increment_tick_count(TICK_COUNT_MAX) > 3
    assert increment_tick_count(TICK_COUNT_MAX) % 4 == (TICK_COUNT_MAX + 1) % 4
    assert increment_tick_count(6) == 7


def test_a_copy_that_stands_still_is_seen_within_four_periods_whenever_it_stops() -> None:
    for stop in range(1, 12):
        a = [100 * n for n in range(20)]
        b = [100 * min(n, stop) for n in range(20)]
        seen = [number for number, one in enumerate(run(ends(a, b))) if one.latest_delayed]
        assert seen, stop
        assert seen[0] - stop <= 4
        healed = run(ends(a, [*b[:15], *a[15:]]))
        assert not healed[-1].latest_delayed, "and it clears once B has moved again"
