"""What a broker's quota lets through crosses steadily: modelled as brokers keep it, whatever the batches are."""

from __future__ import annotations

import itertools
import json
from itertools import pairwise

import pytest

from twinshore.replication.task.core.throttle import (
    FIRST_FETCH_BYTES,
    PAUSE_S_MAX,
    QUOTA_TTL_S,
    STILL_KEY,
    UNREAD_S_MAX,
    FetchQuotaPacer,
    QuotaPacer,
    QuotaSnapshot,
    quota_figures,
    quota_key,
)

MOST = 4 << 20


class Broker:
    """A byte quota as brokers keep it, over eleven windows of a second, each begun by the first bytes that come after
    the one before. It answers at once, then is deaf. Newer brokers keep a window until its last bytes are too old."""

    WINDOWS = 11

    def __init__(self, bytes_s: float, *, fetches: bool, batch: int, newer: bool) -> None:
        self.bytes_s, self.fetches, self.batch, self.newer = bytes_s, fetches, batch, newer
        self._windows: list[tuple[float, float, int]] = []

    def answers(self, asked: int, now_s: float) -> tuple[int, int]:
        """How many bytes move, and the milliseconds of throttle. A fetch brings one whole batch at least, and no
        more than the quota of ten seconds; one that is throttled brings nothing, and counts for nothing."""
        size = asked
        if self.fetches:
            within = min(asked, int(self.bytes_s * (self.WINDOWS - 1)))
            size = max(self.batch, within)
        before = list(self._windows)
        self._count(size, now_s)
        span_s = now_s - self._windows[0][0]
        span_s += max(0, self.WINDOWS - 1 - int(span_s))
        throttle_ms = max(0, int(1000 * (sum(bytes_ for _, _, bytes_ in self._windows) / self.bytes_s - span_s)))
        if self.fetches and throttle_ms:
            self._windows = before
            return 0, throttle_ms
        return size, throttle_ms

    def _count(self, size: int, now_s: float) -> None:
        if not self._windows or now_s - self._windows[-1][0] >= 1.0:
            self._windows.append((now_s, now_s, 0))
        began_s, _, bytes_ = self._windows[-1]
        self._windows[-1] = (began_s, now_s, bytes_ + size)
        self._windows = [window for window in self._windows if now_s - window[int(self.newer)] < self.WINDOWS]


class WholeBatches(Broker):
    """To which a producer's batches go whole, however small the portion is."""

    def answers(self, asked: int, now_s: float) -> tuple[int, int]:
        return super().answers(asked if self.fetches else -(-asked // self.batch) * self.batch, now_s)


def moved(quota: QuotaPacer, broker: Broker, *, seconds: int, start_s: float = 100.0) -> list[tuple[float, int]]:
    """When how much crossed, with a backlog without an end and a round trip of 20 ms. What brokers cut off the last
    batch of an answer is of no use."""
    now_s, found = start_s, []
    while now_s < start_s + seconds:
        if quota.still(now_s):
            now_s += 0.02
            continue
        asked = quota.fetch_bytes if isinstance(quota, FetchQuotaPacer) else quota.portion
        passed, throttle_ms = broker.answers(asked, now_s)
        now_s += 0.02
        quota.answered(asked, passed, throttle_ms, now_s)
        if passed:
            if isinstance(quota, FetchQuotaPacer):
                quota.batch = broker.batch
            found.append((now_s, passed - passed % broker.batch))
    return found


def quota_of(fetches: bool) -> QuotaPacer:
    return FetchQuotaPacer(MOST, FIRST_FETCH_BYTES) if fetches else QuotaPacer(MOST, MOST // 4)


KINDS = {
    "produces": (False, 1),
    "small batches": (True, 10_000),
    "batches of 100 KB": (True, 100_000),
    "batches of 1 MB": (True, 1_000_000),
}


@pytest.mark.parametrize("newer", [False, True], ids=["older", "newer"])
@pytest.mark.parametrize(
    ("kind", "bytes_s"),
    [
        *itertools.product(("produces", "small batches", "batches of 100 KB"), (100_000, 1_000_000, 20_000_000)),
        ("batches of 1 MB", 1_000_000),
        ("batches of 1 MB", 20_000_000),
    ],
)
def test_most_of_a_quota_crosses_and_nothing_rests_for_long(kind: str, bytes_s: int, newer: bool) -> None:
    fetches, batch = KINDS[kind]
    quota = quota_of(fetches)
    found = moved(quota, Broker(bytes_s, fetches=fetches, batch=batch, newer=newer), seconds=150)
    late = [(at_s, size) for at_s, size in found if at_s >= 150.0]
    rate = sum(size for _, size in late) / 100.0
    assert (0.88 if fetches else 0.95) * bytes_s <= rate <= 1.05 * bytes_s, rate
    times = [at_s for at_s, _ in late]
    assert max(after - before for before, after in pairwise(times)) < 5.0
    assert quota.held
    assert quota.bytes_s(times[-1]) == pytest.approx(bytes_s, rel=0.2)


@pytest.mark.parametrize("kind", KINDS)
def test_who_follows_on_a_connection_learns_the_quota_though_others_moved_before(kind: str) -> None:
    fetches, batch = KINDS[kind]
    broker = Broker(1_000_000, fetches=fetches, batch=batch, newer=True)
    found = moved(quota_of(fetches), broker, seconds=30)
    found += moved(quota_of(fetches), broker, seconds=60, start_s=130.0)
    late = [(at_s, size) for at_s, size in found if at_s >= 130.0]
    assert sum(size for _, size in late) / 60.0 >= 850_000
    assert max(after[0] - before[0] for before, after in pairwise(late)) < 7.0


@pytest.mark.parametrize("newer", [False, True], ids=["older", "newer"])
@pytest.mark.parametrize("batch", [1, 100_000, 500_000, 990_000])
@pytest.mark.parametrize("fetches", [False, True], ids=["produces", "fetches"])
@pytest.mark.parametrize("first_s", [2, 7, 12, 17, 22, 27])
def test_run_after_run_a_quota_is_used_though_each_has_lines_of_its_own(
    fetches: bool, batch: int, newer: bool, first_s: int
) -> None:
    """Each goes on with what the line before had learnt: else each begins with a burst, and rests for it."""
    broker = WholeBatches(1_000_000, fetches=fetches, batch=batch, newer=newer)
    line, now_s, found = quota_of(fetches), 100.0, []
    for seconds in (first_s, 30, 30):
        found += moved(line, broker, seconds=seconds, start_s=now_s)
        now_s += seconds
        learnt = line.learnt(now_s)
        line = quota_of(fetches)
        if learnt:
            # As it travels.
            line.follow(QuotaSnapshot(*json.loads(json.dumps(learnt))), now_s)
    late = [(at_s, size) for at_s, size in found if 118.0 <= at_s < 150.0]
    rate = sum(size for _, size in late) / 32.0
    assert (0.8 if fetches else 0.9) * 1_000_000 <= rate <= 1_150_000, rate
    assert max(after[0] - before[0] for before, after in pairwise(late)) < 5.0


def test_what_a_throttled_fetch_would_have_brought_is_no_small_quota() -> None:
    """Ten seconds after a burst nothing has moved for ten seconds: that says nothing of what the quota allows."""
    quota = FetchQuotaPacer(MOST, FIRST_FETCH_BYTES)
    for number in range(10):
        quota.answered(1_000_000, 1_000_000, 0, 100.0 + number / 10)
    for second in range(1, 12):
        quota.answered(quota.portion, 0, 1000, 100.0 + second)
    quota.answered(quota.portion, 1_000_000, 0, 112.0)
    assert not quota.still(113.0)
    assert quota.still(112.5)


def test_a_quota_for_requests_makes_no_portions_smaller() -> None:
    quota = QuotaPacer(MOST, MOST)
    for second in range(60):
        assert not quota.still(float(second)), "the quota decides, not the pace"
        quota.answered(quota.portion, quota.portion, 1000, float(second))
    assert quota.portion == MOST


def test_what_was_held_back_is_free_again_once_the_quota_is_gone() -> None:
    quota = QuotaPacer(MOST, MOST)
    quota.answered(MOST, MOST, 4000, 100.0)
    assert quota.still(103.9)
    assert not quota.still(104.1)
    assert quota.portion < MOST // 2
    assert quota.bytes_s(104.0) > 0
    assert quota.bytes_s(117.0) == 0.0, "nothing is said of what is over"
    quota.answered(1000, 1000, 0, 104.0 + QUOTA_TTL_S + 1)
    assert not quota.held
    for _ in range(6):
        quota.answered(quota.portion, quota.portion, 0, 130.0)
    assert quota.portion == MOST


def freed_s(quota: QuotaPacer, from_s: float) -> float:
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
    quota = QuotaPacer(MOST, MOST // 4)
    for half in range(40):
        quota.answered(MOST // 4, polled, 0, half / 2)
    quota.answered(MOST // 4, polled, 3000, 20.0)
    assert freed_s(quota, 20.0) < 3.0 + PAUSE_S_MAX + 0.2
    quota.answered(quota.portion, batch, 0, 25.0)
    assert freed_s(quota, 25.0) < PAUSE_S_MAX + 0.2


def test_what_was_held_back_is_free_again_though_no_answer_comes() -> None:
    quota = QuotaPacer(MOST, MOST)
    quota.answered(MOST, 0, 4000, 100.0)
    assert quota.still(103.9)
    assert quota.held
    assert not quota.still(104.0 + QUOTA_TTL_S + 0.1)
    assert not quota.held


class Line:
    def __init__(self, throttle_ms: int, now_s: float) -> None:
        self.quota = QuotaPacer(MOST, MOST)
        self.quota.answered(MOST, MOST, throttle_ms, now_s)


def test_a_task_says_for_how_long_what_it_sent_may_still_land_also_on_lines_it_let_go_of() -> None:
    assert quota_figures([Line(30_000, 100.0)], [], 110.0)[STILL_KEY] == 20.0
    assert quota_figures([Line(30_000, 100.0)], [], 110.0, 150.0)[STILL_KEY] == 40.0
    assert STILL_KEY not in quota_figures([Line(30_000, 100.0)], [], 131.0, 120.0)
    assert STILL_KEY not in quota_figures([], [Line(30_000, 100.0)], 110.0), "a fetch writes nothing"


def test_no_request_is_waited_for_longer_than_a_broker_keeps_its_connection() -> None:
    for throttle_ms in (1000 * int(UNREAD_S_MAX) - 1000, 86_400_000):
        line = Line(throttle_ms, 100.0)
        until_s = 100.0 + min(UNREAD_S_MAX, throttle_ms / 1000)
        assert line.quota.lands_until_s(100.0) == until_s
        assert quota_figures([line], [], 100.0)[STILL_KEY] == until_s - 100.0
        assert line.quota.still(until_s - 1.0), "the line itself is not used before the broker listens"


def test_the_key_names_the_side() -> None:
    assert [quota_key(side) for side in ("target", "source")] == ["target_quota_bytes_s", "source_quota_bytes_s"]
