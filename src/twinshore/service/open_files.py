"""How many files and connections a process may have open."""

from __future__ import annotations

import resource
from contextlib import suppress


def allow_most() -> int:
    """Raises the limit as far as this user may without asking anybody; what it is now."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Where the limit is none at all, some systems take only a number that they know.
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        return hard
    return soft
