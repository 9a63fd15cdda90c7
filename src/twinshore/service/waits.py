"""What a verb says while it waits for a cluster: whom it waits for, in the third second.

Where nobody watches, as in a script, only a long wait is told.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable

from twinshore.kafka.patience import Wait, waits

WATCHED_S, UNWATCHED_S = 2.5, 10.0
AGAIN_S = 30.0
LOOK_S = 0.25
_UNTOLD = threading.Lock()  # held once somebody tells


class Teller:
    """Each cluster once, and again while the wait lasts."""

    def __init__(self, tell: Callable[[str], None], after_s: float) -> None:
        self._tell, self._after_s = tell, after_s
        self._told_s: dict[str, float] = {}

    def look(self, now: Iterable[Wait], now_s: float) -> None:
        """`now`: what is waited for at this time."""
        for wait in now:
            lasts_s, told_s = now_s - wait.since_s, self._told_s.get(wait.cluster)
            if lasts_s < self._after_s or (told_s is not None and now_s - told_s < AGAIN_S):
                continue
            self._told_s[wait.cluster] = now_s
            since = "" if told_s is None else f" for {lasts_s:.0f} s"
            self._tell(f"waiting{since} for {wait.cluster} at {wait.at} ...")


def tell_waits(tell: Callable[[str], None], *, watched: bool) -> None:
    """From now on, until the process ends; asked again it changes nothing. `watched`: a person reads it."""
    if _UNTOLD.acquire(blocking=False):
        tell_waits_until(threading.Event(), Teller(tell, WATCHED_S if watched else UNWATCHED_S))


def tell_waits_until(over: threading.Event, teller: Teller) -> None:
    """From now on."""

    def go_on() -> None:
        while not over.wait(LOOK_S):
            teller.look(waits(), time.monotonic())

    threading.Thread(target=go_on, name="waits", daemon=True).start()
