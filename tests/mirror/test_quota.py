"""What a broker's quota lets through crosses steadily: modelled as brokers compute it, whatever the portions are."""

from __future__ import annotations

from collections import deque
from itertools import pairwise

import pytest

from twinshore.mirror.quota import FORGET_S, REST_S_MAX, Quota, key_of

WINDOWS = 11
MOST = 4 << 20


class Broker:
    """A byte quota over eleven windows of a second, as brokers keep it: it answers at once, then is deaf."""

    def __init__(self, bytes_s: float) -> None:
        self.bytes_s = bytes_s
        self._windows: deque[tuple[int, float]] = deque()

    def takes(self, size: int, now_s: float) -> int:
        """The milliseconds of throttle after so many bytes."""
        second = int(now_s)
        if not self._windows or self._windows[-1][0] != second:
            self._windows.append((second, 0.0))
        self._windows[-1] = (second, self._windows[-1][1] + size)
        while self._windows[0][0] <= second - WINDOWS:
            self._windows.popleft()
        took_s = now_s - (second - WINDOWS + 1)
        rate = sum(bytes_ for _, bytes_ in self._windows) / took_s
        return max(0, int(1000 * (rate - self.bytes_s) / self.bytes_s * took_s))

    def gives_back(self, size: int) -> None:
        """A fetch that is throttled gives nothing, and counts for nothing."""
        second, bytes_ = self._windows[-1]
        self._windows[-1] = (second, bytes_ - size)


def moved(
    quota: Quota, broker: Broker, *, fetches: bool, seconds: int, start_s: float = 100.0
) -> list[tuple[float, int]]:
    """When how much crossed, with a backlog without an end and a round trip of 20 ms."""
    now_s, found = start_s, []
    while now_s < start_s + seconds:
        if quota.still(now_s):
            now_s += 0.02
            continue
        size = quota.portion
        throttle_ms = broker.takes(size, now_s)
        passed = size
        if fetches and throttle_ms:
            broker.gives_back(size)
            passed = 0
        now_s += 0.02
        quota.answered(size, passed, throttle_ms, now_s)
        if passed:
            found.append((now_s, passed))
    return found


@pytest.mark.parametrize("fetches", [False, True], ids=["produces", "fetches"])
@pytest.mark.parametrize("bytes_s", [100_000, 1_000_000, 20_000_000])
def test_nine_tenths_of_a_quota_cross_and_nothing_rests_for_long(fetches: bool, bytes_s: int) -> None:
    quota = Quota(MOST, MOST // 4)
    found = moved(quota, Broker(bytes_s), fetches=fetches, seconds=90)
    late = [(at_s, size) for at_s, size in found if at_s >= 150.0]
    rate = sum(size for _, size in late) / 40.0
    assert 0.9 * bytes_s <= rate <= 1.1 * bytes_s, rate
    times = [at_s for at_s, _ in late]
    assert max(after - before for before, after in pairwise(times)) < 5.0
    assert quota.held
    assert quota.bytes_s(times[-1]) == pytest.approx(bytes_s, rel=0.15)


def test_a_quota_for_requests_makes_no_portions_smaller() -> None:
    quota = Quota(MOST, MOST)
    for second in range(60):
        assert not quota.still(float(second)), "the quota decides, not the pace"
        quota.answered(quota.portion, quota.portion, 1000, float(second))
    assert quota.portion == MOST


def test_what_was_held_back_is_free_again_once_the_quota_is_gone() -> None:
    quota = Quota(MOST, MOST)
    quota.answered(MOST, MOST, 4000, 100.0)
    assert quota.still(103.9)
    assert not quota.still(104.1)
    assert quota.portion < MOST // 2
    assert quota.bytes_s(104.0) > 0
    assert quota.bytes_s(111.0) == 0.0, "nothing is said of what is over"
    quota.answered(1000, 1000, 0, 104.0 + FORGET_S + 1)
    assert not quota.held
    for _ in range(6):
        quota.answered(quota.portion, quota.portion, 0, 130.0)
    assert quota.portion == MOST


def freed_s(quota: Quota, from_s: float) -> float:
    """For how long the line asks nothing."""
    now_s = from_s
    while quota.still(now_s) and now_s < from_s + 600.0:
        now_s += 0.1
    return now_s - from_s


@pytest.mark.parametrize(("polled", "batch"), [(60, 500_000), (0, 500_000), (1000, 300_000)])
def test_a_quiet_line_that_others_had_throttled_does_not_rest_for_the_first_batch_that_comes(
    polled: int, batch: int
) -> None:
    """What it moved before says nothing of the quota, and no answer comes while it asks nothing."""
    quota = Quota(MOST, MOST // 4)
    for half in range(40):
        quota.answered(MOST // 4, polled, 0, half / 2)
    quota.answered(MOST // 4, polled, 3000, 20.0)
    assert freed_s(quota, 20.0) < 3.0 + REST_S_MAX + 0.2
    quota.answered(quota.portion, batch, 0, 25.0)
    assert freed_s(quota, 25.0) < REST_S_MAX + 0.2


def test_what_was_held_back_is_free_again_though_no_answer_comes() -> None:
    quota = Quota(MOST, MOST)
    quota.answered(MOST, 0, 4000, 100.0)
    assert quota.still(103.9)
    assert quota.held
    assert not quota.still(104.0 + FORGET_S + 0.1)
    assert not quota.held


def test_the_key_names_the_side() -> None:
    assert [key_of(side) for side in ("target", "source")] == ["target_quota_bytes_s", "source_quota_bytes_s"]
