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
R = TypeVar("R")
HOLDS_S = 0.1


class Glance(Generic[T]):
    """What `work` reads: begun a tenth of a second before it was asked for at most, however long it took, so all who
    wait for one reading have it, be it a failure. For what is looked at again and again; who decides by it reads it
    anew."""

    def __init__(self, database: Database, work: Callable[[Connection], T]) -> None:
        self._database, self._work = database, work
        self._lock = threading.Lock()
        self._found: list[T] = []
        self._error: Exception | None = None
        self._begun_s = -HOLDS_S
        self._void = True

    def write(self, work: Callable[[Connection], R]) -> R:
        """A transaction that writes what is read here: whoever asks from now on sees it."""
        try:
            return self._database.write(work)
        finally:
            self._void = True

    def now(self) -> T:
        """StoreError where it cannot be read."""
        asked_s = time.monotonic()
        with self._lock:
            if self._void or self._begun_s < asked_s - HOLDS_S:
                self._read()
            if self._error is not None:
                raise self._error
            return self._found[0]

    def _read(self) -> None:
        self._void, self._begun_s = False, time.monotonic()
        try:
            self._found, self._error = [self._database.read(self._work)], None
        except Exception as error:
            self._found, self._error = [], error
