"""The clock by which grants and leases are judged, in drivers, pumps and clients; and the one that people read."""

from __future__ import annotations

import time


def steady_s() -> float:
    """Seconds on a clock that no one sets and that runs on while the machine sleeps."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


def wall_ms() -> int:
    """Milliseconds since 1970, as far as this machine knows."""
    return time.time_ns() // 1_000_000
