"""Where this user's machine keeps what was fetched or made once."""

from __future__ import annotations

import os
from pathlib import Path


def cache_place() -> Path:
    """TWINSHORE_CACHE, or twinshore in XDG_CACHE_HOME, or ~/.cache/twinshore; perhaps not there yet."""
    own = os.environ.get("TWINSHORE_CACHE")
    return Path(own) if own else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "twinshore"
