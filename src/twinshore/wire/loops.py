"""Compiled loops where this machine can compile; plain Python has the same in any case."""

from __future__ import annotations

import warnings
from importlib import import_module
from types import ModuleType

_being_built: set[str] = set()


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


def being_built(module: str) -> bool:
    """Whether somebody compiles it at present: whoever asked for it now would wait for seconds."""
    return module in _being_built


def do_without(module: str) -> None:
    """Until `take_up`, what has this module for its speed does without it."""
    _being_built.add(module)


def take_up(module: str) -> None:
    """It is built, or cannot be: loading it takes no longer than ever."""
    _being_built.discard(module)
