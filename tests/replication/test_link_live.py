"""The rates that `twinshore status` shows: means that forget."""

from __future__ import annotations

import pytest

from twinshore.replication.recorder import RATE_HALF_LIFE_S, LinkStats


@pytest.mark.parametrize("every_s", [0.25, 1.0, 3.0])
def test_a_rate_is_half_there_after_its_half_life_however_often_it_is_told(every_s: float) -> None:
    live, now_s = LinkStats(), 100.0
    live.rates(now_s)
    found = []
    for records in (1_000, 0, 0):
        for _ in range(round(RATE_HALF_LIFE_S / every_s)):
            now_s += every_s
            live.records += round(records * every_s)
            live.bytes += round(1_000 * records * every_s)
            live.rates(now_s)
        found.append((live.records_per_s, live.bytes_per_s))
    assert found == [pytest.approx((rate, 1_000 * rate)) for rate in (500, 250, 125)]
