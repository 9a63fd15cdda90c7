"""Launches tides: single-task Spark jobs, each pumping one lane for a while. The next stands by before one ends."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from twinshore.mirror.driver.desk import Desk, LaneKey
from twinshore.mirror.lane.orders import TideOrder
from twinshore.service.workers import keep_on

TURN_S = 0.05
HEIRS_MAX = 2
ARRIVE_S_MAX = 30.0
RETRY_S_MAX = 5.0
WAIT_S_TOLD = 5.0


@dataclass(slots=True)
class LaneJobs:
    """A lane's Spark jobs that have not returned. `make` gives the order of the next tide."""

    make: Callable[[int], TideOrder]
    stagger_s: float
    running: dict[int, float] = field(default_factory=dict)
    next_tide: int = 0
    failures: int = 0
    retry_at_s: float = 0.0
    # Whether the log says that no pump begins.
    waits: bool = False


class Tides:
    """`run(order, name)` is the Spark job; `heard(sentence)` gets what is worth a line in the log."""

    def __init__(self, desk: Desk, tide_s: float, run: Callable[[str, str], str], heard: Callable[[str], None]) -> None:
        self._desk = desk
        self._tide_s = tide_s
        self._run = run
        self._heard = heard
        self._lanes: dict[LaneKey, LaneJobs] = {}
        self._lock = threading.Lock()
        self._closed = threading.Event()
        keep_on(self._work, "tides")

    def open_lane(self, key: LaneKey, make: Callable[[int], TideOrder]) -> None:
        """From now on there is always a tide for this lane."""
        with self._lock:
            stagger_s = self._tide_s * (0.37 * key[1] % 1.0) * 0.3
            self._lanes.setdefault(key, LaneJobs(make, stagger_s))

    def close_link(self, link: str) -> None:
        """No more tides for this link; those that run end by the desk's word."""
        with self._lock:
            for key in [key for key in self._lanes if key[0] == link]:
                del self._lanes[key]

    def close(self) -> None:
        self._closed.set()

    def _work(self) -> None:
        while not self._closed.wait(TURN_S):
            with self._lock:
                lanes = dict(self._lanes)
                now_s = time.monotonic()
                heirs = sum(len(jobs.running) - 1 for jobs in lanes.values() if len(jobs.running) > 1)
                for key, jobs in lanes.items():
                    self._tell_wait(key, jobs)
                    if self._due(key, jobs, heirs, now_s):
                        heirs += bool(jobs.running)
                        self._launch(key, jobs, now_s)

    def _tell_wait(self, key: LaneKey, jobs: LaneJobs) -> None:
        wait_s = self._desk.waits_s(key)
        if wait_s > WAIT_S_TOLD and not jobs.waits:
            self._heard(
                f"{key[0]} lane {key[1]}: no pump begins for {wait_s:.0f} s: a broker of the target throttled the last "
                "one, and what it was sent may land until then (hint: the quota is too small for this link)"
            )
        jobs.waits = wait_s > 0.0 and (jobs.waits or wait_s > WAIT_S_TOLD)

    def _due(self, key: LaneKey, jobs: LaneJobs, heirs: int, now_s: float) -> bool:
        if now_s < jobs.retry_at_s:
            return False
        if not jobs.running:
            return True
        holder, age_s, heir = self._desk.holding(key)
        if heir or any(tide != holder and now_s - at_s < ARRIVE_S_MAX for tide, at_s in jobs.running.items()):
            return False
        if holder is None:
            return True
        return age_s >= self._tide_s + jobs.stagger_s and heirs < HEIRS_MAX

    def _launch(self, key: LaneKey, jobs: LaneJobs, now_s: float) -> None:
        tide = jobs.next_tide
        jobs.next_tide += 1
        name = f"{key[0]} lane {key[1]} tide {tide}"
        try:
            order = jobs.make(tide)
            jobs.running[tide] = now_s
            threading.Thread(target=self._ride, args=(jobs, tide, order, name), name=name, daemon=True).start()
        except Exception as error:
            # This lane's alone: the other lanes' tides come from the same thread. The machine may be out of threads.
            jobs.running.pop(tide, None)
            self._heard(f"{name}: it cannot begin ({_first_line(error)}); the lane begins again")
            self._pause(jobs, now_s)

    def _ride(self, jobs: LaneJobs, tide: int, order: TideOrder, name: str) -> None:
        started_s = time.monotonic()
        try:
            sentence = self._run(order.to_json(), name)
            if sentence != "finished":
                self._heard(f"{name}: {sentence}")
            failed = sentence != "finished" and time.monotonic() - started_s < RETRY_S_MAX
        except Exception as error:
            # Whatever Spark raises: the task, the worker or the executor is gone; the lane begins again.
            if not self._closed.is_set():
                self._heard(f"{name}: its task died ({_first_line(error)}); the lane begins again")
            failed = True
        with self._lock:
            jobs.running.pop(tide, None)
            if failed:
                self._pause(jobs, time.monotonic())
            else:
                jobs.failures, jobs.retry_at_s = 0, 0.0

    def _pause(self, jobs: LaneJobs, now_s: float) -> None:
        jobs.failures += 1
        jobs.retry_at_s = now_s + min(RETRY_S_MAX, 0.1 * 2**jobs.failures)


def _first_line(error: Exception) -> str:
    text = str(error).strip()
    for line in text.splitlines():
        if "Error" in line or "Exception" in line:
            return line.strip()[:200]
    return text.splitlines()[0][:200] if text else type(error).__name__
