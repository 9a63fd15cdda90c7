"""The clock by which grants and leases are judged, in the driver as in its pumps."""

from __future__ import annotations

import time


def steady_s() -> float:
    """Seconds on a clock that no one sets and that runs on while the machine sleeps."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()
