"""Files with records or passwords, readable by their owner alone."""

from __future__ import annotations

import os
from pathlib import Path


def make_private_folder(folder: Path) -> None:
    """Creates the folder. An existing one keeps its mode, since it may hold other files."""
    folder.mkdir(0o700, parents=True, exist_ok=True)


def private_opener(path: str, flags: int) -> int:
    """An opener for `open`. An existing file also gets the mode."""
    handle = os.open(path, flags, 0o600)
    os.fchmod(handle, 0o600)
    return handle


def sync_folder(folder: Path) -> None:
    """Syncs the folder, so that a new or renamed file survives a machine crash."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
