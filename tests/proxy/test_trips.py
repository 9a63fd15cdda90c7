"""Breakers trip where a limit is passed for long enough, close once all is quiet for longer, and do not flutter."""

from __future__ import annotations

import pytest

from twinshore.kafka.protocol.record_batch import HEADER_BYTES, Record, encode_batch
from twinshore.proxy.core.breakers import DemandRate, TripState, update_trip_state
from twinshore.proxy.core.record_requests import count_records
from twinshore.state.core.proxy_values import BreakerLimits

LIMITS = BreakerLimits(records_s=100, bytes_s=1_000, latency_ms=50, above_s=5, quiet_s=30)
MUCH, NEAR, LITTLE = DemandRate(records_s=101), DemandRate(records_s=60), DemandRate(records_s=49)


def at(rates: list[tuple[float, DemandRate]], gauge: TripState = TripState()) -> TripState:  # noqa: B008
    for now_s, rate in rates:
        gauge = update_trip_state(gauge, LIMITS, rate, now_s)
    return gauge


@pytest.mark.parametrize("rate", [MUCH, DemandRate(bytes_s=1_001), DemandRate(latency_ms=51)])
def test_it_trips_where_one_limit_is_passed_for_long_enough(rate: DemandRate) -> None:
    assert at([(0, rate), (4.9, rate)]) == TripState(False, 0)
    assert at([(0, rate), (5, rate)]) == TripState(True)


def test_a_moment_below_the_limit_begins_anew() -> None:
    assert at([(0, MUCH), (3, NEAR), (4, MUCH), (8, MUCH)]) == TripState(False, 4)
    assert at([(0, MUCH), (3, NEAR), (4, MUCH), (9, MUCH)]) == TripState(True)


def test_it_closes_only_behind_a_long_time_below_half() -> None:
    tripped = TripState(True)
    assert at([(0, LITTLE), (29, LITTLE)], tripped) == TripState(True, 0)
    assert at([(0, LITTLE), (30, LITTLE)], tripped) == TripState(False)
    assert at([(0, LITTLE), (20, NEAR), (30, LITTLE), (59, LITTLE)], tripped) == TripState(True, 30)


def test_a_rate_about_the_limit_does_not_have_it_flutter() -> None:
    gauge, turns = TripState(), 0
    for half_s in range(2_000):
        before = gauge.tripped
        gauge = update_trip_state(gauge, LIMITS, DemandRate(records_s=130 if half_s % 40 < 20 else 90), half_s / 2)
        turns += gauge.tripped is not before
    assert (gauge.tripped, turns) == (True, 1)


def test_without_limits_nothing_trips() -> None:
    assert not BreakerLimits().any
    assert update_trip_state(TripState(False, 0), BreakerLimits(), DemandRate(1e9, 1e9, 1e9), 1e9) == TripState()


def test_a_batch_is_counted_by_its_own_word_and_what_is_none_counts_nothing() -> None:
    batch = encode_batch([Record(number, 1, None, b"x") for number in range(3)])
    assert count_records(batch) == count_records(memoryview(batch)) == 3
    assert count_records(batch[: HEADER_BYTES - 4] + b"\xff\xff\xff\xff" + batch[HEADER_BYTES:]) == 0
    assert (count_records(None), count_records(b""), count_records(batch[: HEADER_BYTES - 1])) == (0, 0, 0)
