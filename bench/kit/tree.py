"""What a process and all that it started have cost so far."""

from __future__ import annotations

import contextlib
import signal
import sys
import time
from types import FrameType

import psutil

_LOOK_EVERY_S = 1.0
_BUSY = ("user", "nice", "system", "irq", "softirq", "steal")


class ProcessTree:
    """A root process and its descendants, also those that lose their parent after they were seen.

    A process that has ended and was waited for counts in its parent's `children_` times, so nothing is counted twice;
    what is missed is at most what an orphan's own child did.
    """

    def __init__(self, pid: int) -> None:
        self._root = psutil.Process(pid)
        self._known: dict[int, psutil.Process] = {pid: self._root}
        self._looked_at_s = 0.0

    def cpu_s(self) -> float:
        """User and system seconds of every process of the tree, the dead included."""
        if time.monotonic() - self._looked_at_s > _LOOK_EVERY_S:
            self._look()
        total = 0.0
        for pid, process in list(self._known.items()):
            try:
                times = process.cpu_times()
            except psutil.NoSuchProcess:
                del self._known[pid]
                continue
            total += times.user + times.system + times.children_user + times.children_system
        return total

    def memory_mb(self) -> float:
        """Proportional set size: a page that several of the tree's processes share counts once."""
        self._look()
        total = 0
        for process in self._known.values():
            with contextlib.suppress(psutil.NoSuchProcess):
                total += process.memory_full_info().pss
        return total / 1e6

    def kill(self) -> None:
        """Ends what is left of the tree, orphans too; returns when it is gone."""
        self._look()
        processes = list(self._known.values())
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs([process for process in processes if process is not self._root], timeout=30)

    def _look(self) -> None:
        self._looked_at_s = time.monotonic()
        with contextlib.suppress(psutil.NoSuchProcess):
            for child in self._root.children(recursive=True):
                self._known.setdefault(child.pid, child)


def end_in_order_on_sigterm() -> None:
    """Makes SIGTERM unwind as Ctrl-C does, so that clusters, copiers and folders are ended and removed."""

    def leave(number: int, _: FrameType | None) -> None:
        sys.exit(128 + number)

    signal.signal(signal.SIGTERM, leave)


def machine_cpu_s() -> float:
    """Seconds that all cores together have worked since the machine started, for whomever."""
    times = psutil.cpu_times()
    return float(sum(getattr(times, kind, 0.0) for kind in _BUSY))


def own_cpu_s(pid: int) -> float:
    """User and system seconds of one process that starts no others; 0 when it is gone."""
    try:
        times = psutil.Process(pid).cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return float(times.user + times.system)
