"""Names the cluster that a command waits for, in the third second; in a script, later."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable

from twinshore.config.sentences import Tell
from twinshore.kafka.pool import ClusterWait, current_waits

INTERACTIVE_WAIT_S, BATCH_WAIT_S = 2.5, 10.0
REPORT_WAIT_AGAIN_S = 30.0
WAIT_POLL_INTERVAL_S = 0.25
_UNTOLD = threading.Lock()  # held once a reporter runs


class WaitReporter:
    """Reports each wait once, and again if long."""

    def __init__(self, tell: Tell, after_s: float) -> None:
        self._tell, self._after_s = tell, after_s
        self._told_s: dict[str, float] = {}

    def look(self, now: Iterable[ClusterWait], now_s: float) -> None:
        for wait in now:
            lasts_s, told_s = now_s - wait.since_s, self._told_s.get(wait.cluster)
            if lasts_s < self._after_s or (told_s is not None and now_s - told_s < REPORT_WAIT_AGAIN_S):
                continue
            self._told_s[wait.cluster] = now_s
            since = "" if told_s is None else f" for {lasts_s:.0f} s"
            self._tell(f"waiting{since} for {wait.cluster} at {wait.at} ...")


def report_waits(tell: Tell, *, watched: bool) -> None:
    """Reports waits until the process ends; further calls change nothing. `watched`: a person reads the output."""
    if _UNTOLD.acquire(blocking=False):
        report_waits_until(threading.Event(), WaitReporter(tell, INTERACTIVE_WAIT_S if watched else BATCH_WAIT_S))


def report_waits_until(over: threading.Event, teller: WaitReporter) -> None:
    """Reports waits until `over` is set."""

    def go_on() -> None:
        while not over.wait(WAIT_POLL_INTERVAL_S):
            teller.look(current_waits(), time.monotonic())

    threading.Thread(target=go_on, name="waits", daemon=True).start()
