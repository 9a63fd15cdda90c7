"""The steady clock, by which replication and clients judge leases, and the wall clock for people."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

_SINCE_BOOT = getattr(time, "CLOCK_BOOTTIME", None)
# Seconds on a clock that no one sets and that runs on while the machine sleeps. A producer asks it at each call.
steady_s: Callable[[], float] = time.monotonic if _SINCE_BOOT is None else partial(time.clock_gettime, _SINCE_BOOT)


def wall_ms() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000
