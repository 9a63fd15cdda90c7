"""Where the lab keeps what it fetched once, and how two processes agree who fetches it."""

from __future__ import annotations

import contextlib
import fcntl
import sys
from collections.abc import Iterator
from pathlib import Path

from twinshore.service.cache import cache_place


def cache_folder() -> Path:
    """The user's cache; made if missing."""
    folder = cache_place()
    folder.mkdir(parents=True, exist_ok=True)
    return folder.resolve()


@contextlib.contextmanager
def locked(name: str) -> Iterator[None]:
    """Holds the cache's lock `name`; a second process waits. The kernel frees it if the holder dies."""
    with (cache_folder() / f".{name}.lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def tell(sentence: str) -> None:
    """Says what makes the caller wait, where it mixes with no output."""
    print(sentence, file=sys.stderr, flush=True)
