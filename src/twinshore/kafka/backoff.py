"""How long to wait before trying again. The caller passes the random generator."""

from __future__ import annotations

from random import Random

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
