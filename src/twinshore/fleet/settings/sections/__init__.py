"""The sections of the settings: a file each, which declares its keys and itself, as `SECTION`.

A new section is a new file here: the reader, the environment and the page find it. All of them stand in this room and
not in the rooms that use them, as one file serves every process, and the client side has this room but not theirs.
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from typing import Any

from twinshore.fleet.settings.edge import Section


@cache
def declared() -> tuple[Section[Any], ...]:
    """Every section that there is, in its order."""
    found = [importlib.import_module(f"{__name__}.{one.name}").SECTION for one in pkgutil.iter_modules(__path__)]
    return tuple(sorted(found, key=lambda section: section.order))
