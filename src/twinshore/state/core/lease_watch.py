"""Rules of leases that trust no clock but a process's own.

A holder trusts a renewal for the ttl, less a margin, from BEFORE sending it. A watcher counts the ttl from AFTER
first reading that: later and longer, so two never hold at once. Times are `now_s` of one process's CLOCK_BOOTTIME,
where available: CLOCK_MONOTONIC stops while a machine is suspended.
"""

from __future__ import annotations

from dataclasses import dataclass

from twinshore.state.core.values import LeaseRow

CLOCK_MARGIN_RATIO = 0.1  # Of the ttl: far more than two quartz clocks drift apart in it.
RENEWALS_PER_TTL = 4


@dataclass(frozen=True, slots=True)
class HeldLease:
    """A lease held until `valid_until_s` on this process's clock. The row's ttl may be longer: others must wait for
    requests in flight.
    """

    row: LeaseRow
    sent_s: float
    ttl_s: float

    @property
    def valid_until_s(self) -> float:
        """Afterwards nothing may be done under the lease."""
        return self.sent_s + self.ttl_s * (1 - CLOCK_MARGIN_RATIO)

    def holds(self, now_s: float) -> bool:
        return now_s < self.valid_until_s

    def renewal_due(self, now_s: float) -> bool:
        return now_s >= self.sent_s + self.ttl_s / RENEWALS_PER_TTL

    def renewed(self, row: LeaseRow, sent_s: float) -> HeldLease:
        """Returns the lease after a renewal. `sent_s` was read BEFORE the call to the store."""
        return HeldLease(row, sent_s, self.ttl_s)


class LeaseWatch:
    """Watches one lease of another process. One instance for each lease and process."""

    __slots__ = ("_grace_s", "_row", "_since_s", "_ttl_s")

    def __init__(self, ttl_s: float, grace_s: float = 0.0) -> None:
        """`ttl_s`: the least wait. `grace_s` comes on top, for the holder's requests in flight."""
        self._ttl_s = ttl_s
        self._grace_s = grace_s
        self._row: LeaseRow | None = None
        self._since_s = 0.0

    def observe(self, row: LeaseRow | None, now_s: float) -> bool:
        """Whether `row`, just read, may be taken; `now_s` was read AFTER the row. Call at least once in a ttl."""
        if row is None or row.released:
            return True
        if row != self._row:
            self._row = row
            self._since_s = now_s
            return False
        return now_s >= self._since_s + self.waits_s(row)

    def wait_s(self, now_s: float) -> float:
        """How long the last observed lease must still stay unchanged to be taken."""
        if self._row is None:
            return 0.0
        return max(0.0, self._since_s + self.waits_s(self._row) - now_s)

    def waits_s(self, row: LeaseRow) -> float:
        """How long this row must stay unchanged to be taken."""
        return max(self._ttl_s, row.ttl_ms / 1000) + self._grace_s
