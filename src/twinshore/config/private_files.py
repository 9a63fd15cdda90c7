"""Files that hold records or passwords: their owner alone reads them."""

from __future__ import annotations

import os
from pathlib import Path


def make_private_folder(folder: Path) -> None:
    """One that is there already keeps its mode: it may hold other things."""
    folder.mkdir(0o700, parents=True, exist_ok=True)


def private_opener(path: str, flags: int) -> int:
    """For `open`. A file that is there already gets the mode as well."""
    handle = os.open(path, flags, 0o600)
    os.fchmod(handle, 0o600)
    return handle
