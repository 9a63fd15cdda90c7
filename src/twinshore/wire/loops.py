"""Compiled loops where this machine can compile; plain Python has the same in any case."""

from __future__ import annotations

import warnings
from importlib import import_module
from types import ModuleType


def loops(module: str) -> ModuleType | None:
    """The module of compiled loops; None where numba is not installed, or cannot compile here, which is said."""
    try:
        return import_module(module)
    except ImportError:  # no wheel of numba for this platform
        return None
    except Exception as error:
        # Whatever a compiler, its folder or its disk has: all that is done by loops is done without them.
        warnings.warn(f"no compiled code here, so batches cross one by one: {error!r}", RuntimeWarning, stacklevel=2)
        return None
