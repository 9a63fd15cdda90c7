"""The arithmetic that stands between the clusters and the page."""

from __future__ import annotations

import pytest

from testkit.figures import Sample, StageError, WindowRule, percentile, ratio, window_of

RULE = WindowRule(warm_s=2, warm_part=0.5, window_s=5)


def steady(until_s: int, per_s: int, begin_s: int = 3) -> list[Sample]:
    """A copier that starts at `begin_s` and uses half a core, with brokers that use a quarter, on a busy machine."""
    return [
        Sample(at_s, max(0, (at_s - begin_s) * per_s), at_s * 0.5, at_s * 0.25, at_s * 1.5) for at_s in range(until_s)
    ]


def test_the_start_does_not_count_and_the_end_of_the_time_ends_the_window() -> None:
    window = window_of(steady(20, 100), 1_000_000, RULE)
    assert window is not None
    assert (window.seconds, window.records, window.rate) == (5, 500, 100)
    assert window.copier_cpu_s == 2.5
    assert window.cpu_us == pytest.approx(5_000)
    assert window.task_share == pytest.approx(2 / 3)
    assert window.others_cores == pytest.approx(0.75)


def test_a_fast_copier_is_warm_after_its_part_of_the_backlog_and_done_with_all_of_it() -> None:
    window = window_of(steady(20, 300), 1_400, RULE)
    assert window is not None
    # Warm with 900 records, 1 200 at the last look before it is done.
    assert (window.seconds, window.records) == (1, 300)
    at_once = window_of(steady(20, 1_000), 1_900, RULE)
    assert at_once is not None
    assert at_once.records == 1_000


@pytest.mark.parametrize(
    ("until_s", "why"), [(3, "no record has come"), (5, "it is not warm"), (10, "the time is not over")]
)
def test_there_is_no_window_before_it_is_over(until_s: int, why: str) -> None:
    assert window_of(steady(until_s, 100), 1_000_000, RULE) is None, why


def test_a_copier_that_stands_still_gives_no_figure() -> None:
    standing = [*steady(6, 100), *(Sample(at_s, 300, 0, 0, 0) for at_s in range(6, 12))]
    with pytest.raises(StageError, match="nothing was copied"):
        window_of([each for each in standing if each.records in (100, 300)], 1_000_000, RULE)


def test_a_percentile_is_a_value_that_was_seen() -> None:
    ordered = [float(value) for value in range(1, 1_001)]
    assert [percentile(ordered, part) for part in (0, 0.5, 0.99, 0.999, 1)] == [1, 500, 990, 999, 1_000]
    assert percentile([7.0], 0.999) == 7
    with pytest.raises(StageError):
        percentile([], 0.5)


def test_a_ratio_keeps_four_digits() -> None:
    assert (ratio(1, 3), ratio(200_000, 3)) == (0.3333, 66_670)
