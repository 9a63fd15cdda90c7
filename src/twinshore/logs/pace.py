"""Bytes per second, held to by pauses. Clock and sleep are arguments."""

from __future__ import annotations

import time
from collections.abc import Callable


class Pace:
    """After each read it waits until so many bytes are due; 0: no bound. What was not used is not saved up."""

    def __init__(
        self,
        bytes_s: float,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._bytes_s, self._clock, self._sleep = bytes_s, clock, sleep
        self._due_s = clock()

    def taken(self, size: int) -> None:
        """So many bytes were read."""
        if not self._bytes_s:
            return
        now_s = self._clock()
        self._due_s = max(self._due_s, now_s - 0.1) + size / self._bytes_s
        if self._due_s > now_s:
            self._sleep(self._due_s - now_s)

    def most(self, wanted: int) -> int:
        """How much to ask for at once, so that no pause is long."""
        return wanted if not self._bytes_s else int(min(wanted, max(16 << 10, self._bytes_s / 4)))
