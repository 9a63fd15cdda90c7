"""What many parts of a process ask of the store many times a second, as whether anybody has said a word: read once for
all who ask within a moment."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from sqlalchemy import Connection

from twinshore.store.engine import Database

T = TypeVar("T")
HOLDS_S = 0.1


class Glance(Generic[T]):
    """What `work` reads, at most a tenth of a second old, and never older than what this process wrote last. For what
    is looked at again and again; who decides by it reads it anew."""

    def __init__(self, database: Database, work: Callable[[Connection], T]) -> None:
        self._database, self._work = database, work
        self._lock = threading.Lock()
        # What was read, when, and behind how many writes.
        self._read: tuple[T, float, int] | None = None

    def now(self) -> T:
        """StoreError where it has to be read and cannot."""
        with self._lock:
            writes, now_s = self._database.writes, time.monotonic()
            if self._read is None or now_s - self._read[1] >= HOLDS_S or self._read[2] != writes:
                self._read = None
                self._read = self._database.read(self._work), now_s, writes
            return self._read[0]
