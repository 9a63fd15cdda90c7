"""What a broker's quota lets through one connection: when to pause, and how much to send.

A throttling broker answers at once, names a time, and reads nothing until then. Requests sent before would land late
and unexpected, so none are sent. A broker counts bytes over about ten seconds: a burst above the quota costs a pause as
long. So once a quota is met, small portions are sent at about its rate.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple, Protocol

# The time over which a broker's quota counts: by default eleven windows of a second, the last incomplete.
WINDOW_S = 10.0
# Above the known rate, so that the quota decides, also one for requests.
PACE_FACTOR = 1.2
PORTION_S = 0.25
REQUEST_S_MAX = 1.0
PORTION_BYTES_MIN = 16 << 10
# The rate is estimated: after this pause the next request shows what the broker allows.
PAUSE_S_MAX = 2.0
QUOTA_TTL_S = 15.0
# Growth while nothing is throttled: 8 % a second, however much one response moves.
PACE_GROWTH_S = 0.08
# For fetches, as a throttled one moves nothing: the last window may have begun up to a second earlier.
WINDOW_S_MAX = 11.0
FETCH_PACE_FACTOR = 1.1
FETCH_PORTION_S = 0.5
# 4 % a second.
FETCH_PACE_GROWTH_S = 0.04
# A new connection asks for little: one burst could use up an unknown quota for ten seconds.
FIRST_FETCH_BYTES = 256 << 10
# Kafka's default size limit of a batch.
DEFAULT_BATCH_BYTES = 1 << 20
# With fewer in a portion, too much would be cut off and fetched twice.
BATCHES_PER_PORTION = 8
# By then a broker has closed a connection that it does not read (`connections.max.idle.ms`,
# by default), and dropped the unread requests.
UNREAD_S_MAX = 600.0
QUOTA_REPORT_S = 12.0
SIDES = ("target", "source")
STILL_KEY = "still_s"


class QuotaSnapshot(NamedTuple):
    """What a throttled connection has learnt, for the next to the same broker, which would begin with a burst
    otherwise. Times are relative, in seconds.
    """

    portion: int
    passing: float
    still_s: float
    next_s: float
    seen_s: float
    # Seconds ago, and bytes moved then.
    moved: list[tuple[float, int]]
    batch: int = 0
    span_s: float = 0.0

    def aged(self, by_s: float) -> QuotaSnapshot:
        """The same snapshot, `by_s` later."""
        moved = [(ago_s + by_s, size) for ago_s, size in self.moved]
        still_s, next_s, seen_s = self.still_s - by_s, self.next_s - by_s, self.seen_s + by_s
        return self._replace(still_s=still_s, next_s=next_s, seen_s=seen_s, moved=moved)


@dataclass(slots=True)
class QuotaPacer:
    """Paces one connection. `portion`: bytes to send at a time, growing while unthrottled."""

    # For so long a broker may count moved bytes.
    counted_s: ClassVar[float] = 12.0
    pace_factor: ClassVar[float] = PACE_FACTOR
    growth_s: ClassVar[float] = PACE_GROWTH_S

    bytes_max: int
    portion: int
    held: bool = False
    # Until `still_until_s` the broker reads nothing. From `next_at_s` on the rate allows the next portion.
    still_until_s: float = 0.0
    next_at_s: float = 0.0
    _moved: deque[tuple[float, int]] = field(default_factory=deque)
    _sum: int = 0
    _since_s: float = -1.0
    _passing: float = 0.0

    def answered(self, asked: int, moved: int, throttle_ms: int, now_s: float) -> None:
        """Takes a response: `asked` bytes requested, `moved` bytes transferred (0 for a throttled fetch)."""
        before_s = self._count(moved, now_s)
        if throttle_ms > 0:
            self.still_until_s = max(self.still_until_s, now_s + throttle_ms / 1000)
            self._throttled(asked, moved, throttle_ms / 1000, now_s)
        elif not self.held:
            if 2 * moved >= self.portion:
                self.portion = min(self.bytes_max, 2 * self.portion)
            return
        elif self._over(now_s):
            return
        elif asked:
            self._grow(1 + self.growth_s * min(1.0, now_s - before_s))
        if self._passing:
            self.next_at_s = now_s + min(PAUSE_S_MAX, moved / (self.pace_factor * self._passing))

    def _grow(self, factor: float) -> None:
        self._passing *= factor
        self.portion = min(self.bytes_max, int(factor * self.portion))

    def _count(self, moved: int, now_s: float) -> float:
        """Returns the time of the response before."""
        if self._since_s < 0:
            self._since_s = now_s
        before_s = self._moved[-1][0] if self._moved else now_s
        self._moved.append((now_s, moved))
        self._sum += moved
        while self._moved[0][0] < now_s - self.counted_s:
            self._sum -= self._moved.popleft()[1]
        return before_s

    def _throttled(self, asked: int, moved: int, throttle_s: float, now_s: float) -> None:
        """Estimates the quota: a broker throttles until its count is within the quota. An earlier estimate stays if
        possible.
        """
        self.held = True
        if not asked:
            return
        most = (self._sum + (0 if moved else asked)) / (WINDOW_S + throttle_s)
        least = self._within(now_s) / (WINDOW_S_MAX + throttle_s)
        if now_s - self._since_s < WINDOW_S:  # Bytes of earlier connections count as well.
            most = max(most, asked / throttle_s)
        self._passing = max(1.0, least, min(most, self._passing or most))
        # A request quota throttles each request equally, however small, and for a second at most.
        span_s = PACE_FACTOR * throttle_s if PORTION_S < throttle_s <= REQUEST_S_MAX else PORTION_S
        self.portion = max(PORTION_BYTES_MIN, min(self.bytes_max, int(span_s * self._passing)))

    def _within(self, now_s: float) -> int:
        return sum(size for at_s, size in self._moved if at_s >= now_s - WINDOW_S)

    def still(self, now_s: float) -> bool:
        """Whether nothing may be sent now."""
        return now_s < self.still_until_s or (self.held and not self._over(now_s) and now_s < self.next_at_s)

    def _over(self, now_s: float) -> bool:
        self.held = self.held and now_s <= self.still_until_s + QUOTA_TTL_S
        return not self.held

    def lands_until_s(self, now_s: float) -> float:
        """Until when the broker may accept earlier requests, even if the connection is closed."""
        return max(now_s, min(self.still_until_s, now_s + UNREAD_S_MAX))

    def learnt(self, now_s: float) -> QuotaSnapshot | None:
        """A snapshot for the next connection; None if unthrottled."""
        if not self.held or self._over(now_s):
            return None
        moved = [(now_s - at_s, size) for at_s, size in self._moved if size]
        still_s, next_s = self.still_until_s - now_s, self.next_at_s - now_s
        return QuotaSnapshot(self.portion, self._passing, still_s, next_s, now_s - self._since_s, moved)

    def follow(self, learnt: QuotaSnapshot, now_s: float) -> None:
        """Continues from an earlier connection."""
        if self.held:
            return
        self.held, self.portion, self._passing = True, min(learnt.portion, self.bytes_max), learnt.passing
        self.still_until_s, self.next_at_s = now_s + learnt.still_s, now_s + learnt.next_s
        self._since_s = now_s - learnt.seen_s
        moved = ((now_s - ago_s, size) for ago_s, size in learnt.moved)
        self._moved = deque([*moved, *self._moved])
        self._sum = sum(size for _, size in self._moved)

    def bytes_s(self, now_s: float) -> float:
        """The rate while throttled, else 0."""
        if not self.held or now_s > self.still_until_s + QUOTA_REPORT_S:
            return 0.0
        return max(1.0, self._within(now_s) / WINDOW_S)


@dataclass(slots=True)
class FetchQuotaPacer(QuotaPacer):
    """The quota of a source connection. A throttled fetch brings nothing and counts nothing."""

    counted_s: ClassVar[float] = WINDOW_S_MAX
    pace_factor: ClassVar[float] = FETCH_PACE_FACTOR
    growth_s: ClassVar[float] = FETCH_PACE_GROWTH_S
    # Batch size of the source. Brokers cut off the last batch of a response, which is then fetched again.
    batch: int = 0
    _last_bytes: int = DEFAULT_BATCH_BYTES
    _span_s: float = FETCH_PORTION_S

    def answered(self, asked: int, moved: int, throttle_ms: int, now_s: float) -> None:
        self._last_bytes = moved or self._last_bytes
        QuotaPacer.answered(self, asked, moved, throttle_ms, now_s)

    def _grow(self, factor: float) -> None:
        self._go_at(self._passing * factor)

    def _throttled(self, asked: int, moved: int, throttle_s: float, now_s: float) -> None:  # noqa: ARG002
        if not self.held:
            self.held, self._passing = True, 0.0
        if not asked:
            return
        # A single batch may be larger than requested.
        refused = max(asked, self.batch, self._last_bytes)
        most = (self._sum + refused) / (WINDOW_S + throttle_s)
        least = self._within(now_s) / (WINDOW_S_MAX + throttle_s)
        young = now_s - self._since_s < WINDOW_S
        if young:  # Bytes of earlier connections count as well.
            most = max(most, refused / throttle_s)
        # A request quota throttles each request equally, however small, and for a second at most.
        by_request = FETCH_PORTION_S < throttle_s <= REQUEST_S_MAX
        self._span_s = FETCH_PACE_FACTOR * throttle_s if by_request else FETCH_PORTION_S
        self._go_at(max(1.0, least, min(most, self._passing or most)))
        if young:  # A larger request would only be throttled for longer.
            self.portion = max(PORTION_BYTES_MIN, min(self.portion, refused))

    def _go_at(self, passing: float) -> None:
        self._passing = passing
        self.portion = max(PORTION_BYTES_MIN, min(self.bytes_max, int(self._span_s * passing)))

    def learnt(self, now_s: float) -> QuotaSnapshot | None:
        snapshot = QuotaPacer.learnt(self, now_s)
        return snapshot and snapshot._replace(batch=self.batch, span_s=self._span_s)

    def follow(self, learnt: QuotaSnapshot, now_s: float) -> None:
        if not self.held:
            self.batch, self._span_s = learnt.batch, learnt.span_s
            QuotaPacer.follow(self, learnt, now_s)
            self._moved.append((now_s, 0))  # growth counts from now

    @property
    def fetch_bytes(self) -> int:
        """Bytes to fetch next. For 1 byte a broker returns one whole batch."""
        return 1 if self.held and BATCHES_PER_PORTION * self.batch > self.portion else self.portion


class HasQuota(Protocol):
    @property
    def quota(self) -> QuotaPacer: ...


def quota_key(side: str) -> str:
    return f"{side}_quota_bytes_s"


def quota_figures(
    targets: Iterable[HasQuota], sources: Iterable[HasQuota], now_s: float, lands_until_s: float = 0.0
) -> dict[str, float]:
    """A task's figures: bytes a second by throttled side, and how long a target may accept earlier requests.
    `lands_until_s`: of closed connections.
    """
    producers = list(targets)
    sums = (sum(line.quota.bytes_s(now_s) for line in lines) for lines in (producers, sources))
    figures = {quota_key(side): size for side, size in zip(SIDES, sums, strict=True) if size}
    still_s = max([lands_until_s, *(line.quota.lands_until_s(now_s) for line in producers)]) - now_s
    return figures | {STILL_KEY: still_s} if still_s > 0.0 else figures


def sum_by_side(said: Iterable[dict[str, float]]) -> dict[str, float]:
    listed = list(said)
    sums = {side: sum(figures.get(quota_key(side), 0.0) for figures in listed) for side in SIDES}
    return {side: bytes_s for side, bytes_s in sums.items() if bytes_s}
