"""The recovery point: by first sight, right within a second, never by timestamps in records."""

from __future__ import annotations

import random

import pytest

from twinshore.monitoring.core.partition_lag import (
    EndSighting,
    LagReading,
    MonitoredPartition,
    OffsetRelation,
    PartitionLag,
    UnreplicatedEnds,
    find_worst_lag,
    thin_sightings,
    update_lag,
)

ORDERS = MonitoredPartition("east->west", "orders", 0)


def at(
    ms: int, a: int, b: int, axis: OffsetRelation = OffsetRelation.EXACT, source: str = "s1", carried: int = -1
) -> LagReading:
    return LagReading(ORDERS, ms, a, b, source, "t1", axis=axis, carried=carried)


def last(readings: list[LagReading]) -> PartitionLag:
    arrivals = UnreplicatedEnds()
    for reading in readings:
        arrivals, view = update_lag(arrivals, reading)
    return view


def test_lag_is_the_difference_of_both_ends_and_zero_means_nothing_to_lose() -> None:
    view = last([at(0, 500, 500), at(500, 700, 650)])
    assert (view.lag_records, view.recovery_point_ms) == (50, 0)
    assert last([at(0, 500, 500), at(500, 700, 700), at(9_000, 700, 700)]).recovery_point_ms == 0


def test_it_is_the_age_of_the_oldest_end_not_crossed() -> None:
    flow = [at(1_000 * n, 100 * n, min(100 * n, 300)) for n in range(10)]
    view = last(flow)
    # 300 has crossed; 400, seen at 4 s, has not.
    assert (view.lag_records, view.recovery_point_ms) == (600, 5_000)
    assert last([*flow, at(10_000, 900, 450)]).recovery_point_ms == 5_000, "now the end of 5 s is the oldest"
    assert last([*flow, at(10_000, 900, 900)]).recovery_point_ms == 0


def test_what_was_there_when_the_monitor_began_is_as_old_as_the_monitor() -> None:
    assert last([at(0, 900, 100), at(7_000, 900, 100)]).recovery_point_ms == 7_000


@pytest.mark.parametrize("seed", range(20))
def test_it_is_right_within_a_second_on_random_traffic(seed: int) -> None:
    chance = random.Random(seed)
    arrivals, written, target = UnreplicatedEnds(), [], 0
    for ms in range(0, 60_000, 500):
        written += [ms - chance.randrange(500) for _ in range(chance.randrange(4))]
        if chance.random() < 0.4:
            target += chance.randrange(len(written) - target + 1)
        arrivals, view = update_lag(arrivals, at(ms, len(written), target))
        true_ms = ms - min(written[target:], default=ms)
        assert abs(view.recovery_point_ms - true_ms) <= 1_000, f"seed {seed} at {ms} ms"


def test_what_a_target_lost_lacks_from_when_that_was_seen() -> None:
    lost = [at(0, 100, 100), at(10_000, 100, 50)]
    assert (last(lost).lag_records, last(lost).recovery_point_ms) == (50, 0)
    assert last([*lost, at(25_000, 100, 50)]).recovery_point_ms == 15_000
    assert last([*lost, at(25_000, 100, 80)]).recovery_point_ms == 15_000
    assert last([*lost, at(25_000, 100, 80), at(30_000, 100, 100)]).recovery_point_ms == 0
    older = [at(0, 100, 100), at(5_000, 130, 100), at(9_000, 130, 40)]
    assert last(older).recovery_point_ms == 4_000, "what waited already is the oldest"
    # A target of which only differences tell may not have moved at all, or have lost its end.
    foreign = [
        at(0, 100, 90, OffsetRelation.FOREIGN),
        at(10_000, 100, 40, OffsetRelation.FOREIGN),
        at(25_000, 100, 40, OffsetRelation.FOREIGN),
    ]
    assert (last(foreign).lag_records, last(foreign).recovery_point_ms) == (50, 15_000)


@pytest.mark.parametrize("seed", range(20))
def test_nothing_lacks_without_an_age(seed: int) -> None:
    chance = random.Random(f"ages {seed}")
    arrivals, source, target, missing_ms = UnreplicatedEnds(), 0, 0, -1
    for ms in range(0, 120_000, 1_000):
        source += chance.randrange(9) if chance.random() < 0.3 else 0
        target = min(source, max(0, target + chance.randrange(-6, 12)) if chance.random() < 0.3 else target)
        missing_ms = -1 if target == source else ms if missing_ms < 0 else missing_ms
        arrivals, view = update_lag(arrivals, at(ms, source, target))
        if missing_ms < 0:
            assert (view.lag_records, view.recovery_point_ms) == (0, 0), f"seed {seed} at {ms} ms"
        else:
            assert view.lag_records == source - target and arrivals.waiting, f"seed {seed} at {ms} ms"
            assert arrivals.waiting[-1].end == source
            assert 0 <= view.recovery_point_ms <= ms - missing_ms, f"seed {seed} at {ms} ms"


def test_a_topic_made_anew_begins_anew() -> None:
    flow = [at(1_000 * n, 100 * n, 0) for n in range(5)]
    assert last([*flow, at(5_000, 20, 0, source="s2")]).recovery_point_ms == 0
    assert last([*flow, at(5_000, 20, 0)]).recovery_point_ms == 0, "an end that went back, too"


def test_what_was_seen_before_a_clock_was_set_back_ages_again() -> None:
    flow = [at(90_000_000, 900, 100), at(5_000, 900, 100), at(25_000, 900, 100)]
    assert last(flow[:2]).recovery_point_ms == 0
    assert last(flow).recovery_point_ms == 20_000


def test_a_mapped_twin_is_judged_on_the_sources_axis() -> None:
    flow = [at(1_000 * n, 100 * n, 7_000 + 100 * n, OffsetRelation.MAPPED, carried=100 * n) for n in range(5)]
    assert last(flow).lag_records == 0
    assert last([*flow, at(5_000, 600, 7_400, OffsetRelation.MAPPED, carried=400)]).lag_records == 200


def test_somebody_elses_copy_is_judged_by_the_least_difference_seen() -> None:
    flow = [at(1_000 * n, 10_000 + 100 * n, 5_000 + 100 * n, OffsetRelation.FOREIGN) for n in range(5)]
    assert last(flow).lag_records == 0
    stalled = [at(1_000 * n, 10_000 + 100 * n, 5_400, OffsetRelation.FOREIGN) for n in range(5, 10)]
    view = last(flow + stalled)
    assert (view.lag_records, view.recovery_point_ms, view.axis) == (500, 4_000, OffsetRelation.FOREIGN)


def test_a_long_stall_costs_bounded_memory_and_never_looks_younger() -> None:
    arrivals = UnreplicatedEnds()
    for n in range(10_000):
        arrivals, view = update_lag(arrivals, at(500 * n, n, 0))
    assert len(arrivals.waiting) <= 256
    assert view.recovery_point_ms == 500 * 9_998
    for crossed in (10, 5_000, 9_000, 9_990):
        _, view = update_lag(arrivals, at(5_000_000, 9_999, crossed))
        true_ms = 5_000_000 - 500 * (crossed + 1)
        assert view.recovery_point_ms >= true_ms
        assert view.recovery_point_ms <= true_ms * 1.11 + 1_000


def test_thinning_keeps_the_older_moment_and_the_later_end() -> None:
    whole = [EndSighting(n * 1_000, n * 10) for n in range(60)]
    assert thin_sightings(whole, 60) == tuple(whole)
    kept = thin_sightings(whole, 6)
    assert len(kept) < 40
    assert kept[0].at_ms == 0
    assert kept[-1] == whole[-1]
    for one in whole:
        first = next(other for other in kept if other.end >= one.end)
        assert first.at_ms <= one.at_ms


def test_the_worst_is_the_one_that_would_lose_most_time() -> None:
    views = [PartitionLag(ORDERS, 0, 0, 0, lag, age, OffsetRelation.EXACT) for lag, age in ((9, 1), (1, 9), (5, 9))]
    found = find_worst_lag(views)
    assert found
    assert found.lag_records == 5
    assert find_worst_lag([]) is None
