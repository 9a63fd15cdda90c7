"""The cache of files fetched once, with locks between processes."""

from __future__ import annotations

import contextlib
import fcntl
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from twinshore.runtime.process import user_cache_folder


def cache_folder() -> Path:
    """The user's cache folder, created if missing."""
    folder = user_cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    return folder.resolve()


@contextlib.contextmanager
def hold_cache_lock(name: str) -> Iterator[None]:
    """Holds the cache's lock `name`; other processes wait. The kernel frees the lock if the holder dies."""
    with (cache_folder() / f".{name}.lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def make_once(folder: Path, lock: str, make: Callable[[Path], None]) -> Path:
    """Returns the folder. The first call on this machine creates it atomically: `make` fills an empty one."""
    if not folder.is_dir():
        with hold_cache_lock(lock):
            if not folder.is_dir():
                folder.parent.mkdir(parents=True, exist_ok=True)
                making = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
                try:
                    make(making)
                    making.chmod(0o755)
                    making.rename(folder)
                finally:
                    shutil.rmtree(making, ignore_errors=True)
    return folder


def print_notice(sentence: str) -> None:
    """Tells the user why the caller waits, on stderr."""
    print(sentence, file=sys.stderr, flush=True)
