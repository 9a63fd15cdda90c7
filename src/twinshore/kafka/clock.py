"""The steady clock, by which replication and clients judge leases; the wall clock for people; and how long to wait
before trying again. The caller passes the random generator.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from random import Random

_SINCE_BOOT = getattr(time, "CLOCK_BOOTTIME", None)
# Seconds on a clock that no one sets and that runs on while the machine sleeps. A producer asks it at each call.
steady_s: Callable[[], float] = time.monotonic if _SINCE_BOOT is None else partial(time.clock_gettime, _SINCE_BOOT)


def wall_ms() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000


FIRST_DELAY_S = 0.05
DELAY_MAX_S = 2.0


def delay_s(failures: int, rng: Random, *, first_s: float = FIRST_DELAY_S, longest_s: float = DELAY_MAX_S) -> float:
    """Returns the wait after so many failures in a row: full jitter under a doubling ceiling, at most `longest_s`.

    Full jitter spreads clients that failed together. A tenth of the ceiling is the minimum, so that no loop spins.
    """
    if failures <= 0:
        return 0.0
    ceiling_s = min(longest_s, first_s * 2.0 ** min(failures - 1, 30))
    return rng.uniform(ceiling_s / 10, ceiling_s)
