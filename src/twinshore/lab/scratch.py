"""Temporary folders that know their owner, so that what a killed process left is swept by the next."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import threading
from pathlib import Path

from twinshore.lab.processes import ProcessMark, own_mark

_PREFIX = "twinshore-"
_OWNER = ".owner"
_swept = threading.Event()


def scratch_folder(kind: str) -> Path:
    """A new folder, ours until we remove it or are no more."""
    if not _swept.is_set():
        _swept.set()
        sweep(Path(tempfile.gettempdir()))
    folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{kind}-"))
    (folder / _OWNER).write_text(json.dumps([*own_mark().as_json(), _numbering()]), encoding="ascii")
    return folder


def _numbering() -> str:
    """Whose process numbers these are: a container that shares our temporary folder has others."""
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""


def sweep(where: Path) -> list[Path]:
    """Removes the folders whose owners are gone; returns them. Other people's are left alone."""
    removed = []
    for owner in where.glob(f"{_PREFIX}*/{_OWNER}"):
        try:
            if owner.stat().st_uid != os.getuid():
                continue
            *mark, numbering = json.loads(owner.read_text(encoding="ascii"))
            alive = ProcessMark.from_json(mark).alive()
        except (OSError, ValueError, TypeError):
            # Just being written or removed.
            continue
        if numbering == _numbering() and not alive:
            shutil.rmtree(owner.parent, ignore_errors=True)
            removed.append(owner.parent)
    return removed
