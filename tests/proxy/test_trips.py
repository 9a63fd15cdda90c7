"""Fuses trip where a limit is passed for long enough, close once all is quiet for longer, and do not flutter."""

from __future__ import annotations

import pytest

from twinshore.kafka.protocol.record_batch import HEADER_BYTES, Record, encode_batch
from twinshore.proxy.core.breakers import Gauge, Rate, step
from twinshore.proxy.core.records import count_in
from twinshore.state.core.proxy_values import Limits

LIMITS = Limits(records_s=100, bytes_s=1_000, latency_ms=50, above_s=5, quiet_s=30)
MUCH, NEAR, LITTLE = Rate(records_s=101), Rate(records_s=60), Rate(records_s=49)


def at(rates: list[tuple[float, Rate]], gauge: Gauge = Gauge()) -> Gauge:  # noqa: B008
    for now_s, rate in rates:
        gauge = step(gauge, LIMITS, rate, now_s)
    return gauge


@pytest.mark.parametrize("rate", [MUCH, Rate(bytes_s=1_001), Rate(latency_ms=51)])
def test_it_trips_where_one_limit_is_passed_for_long_enough(rate: Rate) -> None:
    assert at([(0, rate), (4.9, rate)]) == Gauge(False, 0)
    assert at([(0, rate), (5, rate)]) == Gauge(True)


def test_a_moment_below_the_limit_begins_anew() -> None:
    assert at([(0, MUCH), (3, NEAR), (4, MUCH), (8, MUCH)]) == Gauge(False, 4)
    assert at([(0, MUCH), (3, NEAR), (4, MUCH), (9, MUCH)]) == Gauge(True)


def test_it_closes_only_behind_a_long_time_below_half() -> None:
    tripped = Gauge(True)
    assert at([(0, LITTLE), (29, LITTLE)], tripped) == Gauge(True, 0)
    assert at([(0, LITTLE), (30, LITTLE)], tripped) == Gauge(False)
    assert at([(0, LITTLE), (20, NEAR), (30, LITTLE), (59, LITTLE)], tripped) == Gauge(True, 30)


def test_a_rate_about_the_limit_does_not_have_it_flutter() -> None:
    gauge, turns = Gauge(), 0
    for half_s in range(2_000):
        before = gauge.tripped
        gauge = step(gauge, LIMITS, Rate(records_s=130 if half_s % 40 < 20 else 90), half_s / 2)
        turns += gauge.tripped is not before
    assert (gauge.tripped, turns) == (True, 1)


def test_without_limits_nothing_trips() -> None:
    assert not Limits().any
    assert step(Gauge(False, 0), Limits(), Rate(1e9, 1e9, 1e9), 1e9) == Gauge()


def test_a_batch_is_counted_by_its_own_word_and_what_is_none_counts_nothing() -> None:
    batch = encode_batch([Record(number, 1, None, b"x") for number in range(3)])
    assert count_in(batch) == count_in(memoryview(batch)) == 3
    assert count_in(batch[: HEADER_BYTES - 4] + b"\xff\xff\xff\xff" + batch[HEADER_BYTES:]) == 0
    assert (count_in(None), count_in(b""), count_in(batch[: HEADER_BYTES - 1])) == (0, 0, 0)
