"""Leases without trust in any clock but one's own: pure rules for who holds one and who may take one.

A holder trusts a beat only for `ttl` from the moment BEFORE he sent it, less a margin; a watcher counts the same `ttl`
from the moment AFTER he first read that beat. The second interval begins later and is longer, whatever any wall clock
says, so two never hold at once. All moments are `now_s` of a monotonic clock of one process: CLOCK_BOOTTIME where there
is one, since CLOCK_MONOTONIC stands still while a machine is suspended.
"""

from __future__ import annotations

from dataclasses import dataclass

from twinshore.state.core.values import LeaseRow

CLOCK_MARGIN_RATIO = 0.1  # Of the ttl: far more than two quartz clocks drift apart in it.
BEATS_PER_TTL = 4


@dataclass(frozen=True, slots=True)
class HeldLease:
    """A lease this process holds, until `valid_until_s` on its own monotonic clock. The row's ttl may be longer than
    the holder's own: others are to wait for what he had sent."""

    row: LeaseRow
    sent_s: float
    ttl_s: float

    @property
    def valid_until_s(self) -> float:
        """Past this moment nothing may be done in the lease's name."""
        return self.sent_s + self.ttl_s * (1 - CLOCK_MARGIN_RATIO)

    def holds(self, now_s: float) -> bool:
        """Whether the lease can be relied on at this moment."""
        return now_s < self.valid_until_s

    def beat_due(self, now_s: float) -> bool:
        """Whether it is time to beat again."""
        return now_s >= self.sent_s + self.ttl_s / BEATS_PER_TTL

    def beaten(self, row: LeaseRow, sent_s: float) -> HeldLease:
        """The lease after a beat that was sent at `sent_s`, read BEFORE the call to the store."""
        return HeldLease(row, sent_s, self.ttl_s)


class LeaseWatch:
    """Watches one lease that somebody else may hold. One instance per lease and process."""

    __slots__ = ("_grace_s", "_seen", "_since_s", "_ttl_s")

    def __init__(self, ttl_s: float, grace_s: float = 0.0) -> None:
        """`ttl_s` is the least time to wait; `grace_s` comes on top: the holder's requests that are on their way."""
        self._ttl_s = ttl_s
        self._grace_s = grace_s
        self._seen: LeaseRow | None = None
        self._since_s = 0.0

    def observe(self, row: LeaseRow | None, now_s: float) -> bool:
        """Whether `row`, just read, may be taken; `now_s` is read AFTER it. Ask again at least once in a ttl."""
        if row is None or row.released:
            return True
        if row != self._seen:
            self._seen = row
            self._since_s = now_s
            return False
        return now_s >= self._since_s + self.waits_s(row)

    def wait_s(self, now_s: float) -> float:
        """How long the lease last observed must still stay as it is before it may be taken."""
        if self._seen is None:
            return 0.0
        return max(0.0, self._since_s + self.waits_s(self._seen) - now_s)

    def waits_s(self, row: LeaseRow) -> float:
        """How long it must stay as it is before it may be taken."""
        return max(self._ttl_s, row.ttl_ms / 1000) + self._grace_s
