"""Packages of Python that benches try and nobody depends on, each set in a folder of its own, fetched once by pip."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from twinshore.lab.errors import LabError
from twinshore.lab.home import cache_folder, locked, tell

_WITHIN_S = 600.0


def packages(*pinned: str) -> Path:
    """The folder to put on a Python's path, with these packages (as `name==version`) and what they need.

    Wheels alone, so nothing is built. LabError where one cannot be had.
    """
    digest = hashlib.sha256(" ".join((sys.implementation.cache_tag or "", *pinned)).encode()).hexdigest()[:8]
    folder = cache_folder() / "wheels" / f"{'+'.join(pinned).replace('==', '-')}-{digest}"
    if folder.is_dir():
        return folder
    with locked("wheels"):
        if not folder.is_dir():
            _fetch(pinned, folder)
    return folder


def _fetch(pinned: tuple[str, ...], folder: Path) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    tell(f"fetching {', '.join(pinned)} (once; kept in {folder.parent})")
    target = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        command += ["--only-binary", ":all:", "--target", str(target), *pinned]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_WITHIN_S, check=False)
        if done.returncode:
            said = [line for line in done.stderr.splitlines() if "ERROR" in line] or ["pip said nothing"]
            raise LabError(f"{', '.join(pinned)} cannot be had: {said[-1].removeprefix('ERROR: ')}")
        target.chmod(0o755)
        target.rename(folder)
    finally:
        shutil.rmtree(target, ignore_errors=True)
