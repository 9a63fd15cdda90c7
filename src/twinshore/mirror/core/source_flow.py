"""One connection to a leader on the source: what it asks next and when, and when its answer is late. Pure."""

from __future__ import annotations

import math
from collections import deque

from twinshore.mirror.core.commands import Fetch
from twinshore.mirror.lane.cutting import Hold
from twinshore.mirror.lane.fetch_book import FetchOrder, Line
from twinshore.mirror.lane.orders import LaneLimits
from twinshore.mirror.lane.quota import FIRST_BYTES, FetchQuota
from twinshore.wire.batch import PREFIX_BYTES
from twinshore.wire.fetch import FetchAnswer, FetchedPartition

ANSWER_SLACK_S = 10.0
FAR_S = 0.01
WAITS = 6


class SourceFlow:
    """One fetch at a time, for a share of a leader's partitions, into buffers that are used again. A parcel points into
    the buffer it came in, which stays busy until a target's kernel has taken it."""

    def __init__(self, key: Line, limits: LaneLimits, *, expires_s: float = math.inf) -> None:
        """`expires_s`: when the broker will want a new authentication, which a new connection brings."""
        self.key, self.expires_s = key, expires_s
        self.quota = FetchQuota(limits.fetch_bytes_max, min(FIRST_BYTES, limits.fetch_bytes_max))
        self.holds = [Hold(bytearray()) for _ in range(limits.buffers_per_line)]
        # Into which the answer comes that is due; None while nothing is asked.
        self.receiving: Hold | None = None
        self.deadline_s = math.inf
        self._wait_ms_max = limits.fetch_wait_ms_max
        self._distance = Distance(limits.fetch_bytes_max, limits.fetch_bytes_widest)
        self._asked_s = self._first_s = 0.0
        self._asked_bytes = 0

    def free(self, now_s: float) -> bool:
        """Nothing is asked, the broker listens, and there is a buffer for an answer."""
        return self.receiving is None and not self.quota.still(now_s) and any(hold.uses == 0 for hold in self.holds)

    def ask(self, order: FetchOrder, now_s: float) -> Fetch:
        most = self._distance.fetch_bytes
        if self.quota.portion < self.quota.bytes_max:
            most = min(most, self.quota.fetch_bytes)
        self._asked_bytes = most = min(most, order.bytes_max or most)
        wait_ms = min(self._wait_ms_max, order.wait_ms_max)
        self.receiving = hold = next(hold for hold in self.holds if hold.uses == 0)
        self._asked_s, self._first_s = now_s, 0.0
        self.deadline_s = now_s + wait_ms / 1000 + ANSWER_SLACK_S
        return Fetch(self, order, most, wait_ms, hold)

    def heard(self, now_s: float) -> None:
        """Some bytes of the answer came. Any put its deadline off; of a few nobody is woken, so one looks once more
        before the deadline counts."""
        self._first_s = self._first_s or now_s
        self.deadline_s = now_s + ANSWER_SLACK_S

    def late(self, now_s: float) -> bool:
        return now_s > self.deadline_s

    def answered(self, answer: FetchAnswer, size: int, now_s: float) -> tuple[Hold, bool]:
        """The whole answer is here, of so many bytes: the buffer in which it lies, and whether its source is so far
        away that its partitions should bring more."""
        hold = self.receiving
        assert hold is not None, "something was asked"
        self.receiving, self.deadline_s = None, math.inf
        # A fetch that is throttled brings nothing, and a broker counts nothing of it.
        self.quota.answered(self._asked_bytes, size if answer.partitions else 0, answer.throttle_ms, now_s)
        if self.quota.held:
            self.quota.batch = max(map(batch_bytes, answer.partitions), default=0) or self.quota.batch
        return hold, self._distance.answered(size, self._first_s - self._asked_s, now_s - self._asked_s)


def batch_bytes(part: FetchedPartition) -> int:
    """How large the first batch is, whole or not; 0 where there is none."""
    records = part.records
    return PREFIX_BYTES + int.from_bytes(records[8:PREFIX_BYTES], "big") if len(records) >= PREFIX_BYTES else 0


class Distance:
    """How far away a source is, as its answers tell. `fetch_bytes` is how much the next fetch may bring from there.

    Where the round trip sets the pace, not the reading, a larger fetch is faster. Where the source is near, it only
    grows out of the processor's caches. A busy near broker answers late too, but now and then it answers at once: so it
    is the shortest of several waits that counts.
    """

    def __init__(self, fetch_bytes_least: int, fetch_bytes_widest: int) -> None:
        self.fetch_bytes = self._least = fetch_bytes_least
        self._widest = max(fetch_bytes_least, fetch_bytes_widest)
        self._waits_s: deque[float] = deque(maxlen=WAITS)

    def answered(self, size: int, waited_s: float, took_s: float) -> bool:
        """A fetch brought `size` bytes in `took_s`, `waited_s` of it spent waiting for the first one. Whether the
        source is so far away that partitions which filled what they may bring should bring more."""
        if size < self._least // 8:  # It waited for records, perhaps.
            return False
        self._waits_s.append(waited_s)
        if len(self._waits_s) < WAITS:
            return False
        far = min(self._waits_s) >= max(FAR_S, took_s / 10)
        if not far:
            self.fetch_bytes = max(self._least, self.fetch_bytes // 2)
        elif 4 * size >= 3 * self.fetch_bytes:
            self.fetch_bytes = min(2 * self.fetch_bytes, self._widest)
        return far
