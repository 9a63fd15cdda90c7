"""Process basics: the cache folder, unwanted modules, the open files limit, and signals."""

from __future__ import annotations

import _thread
import contextlib
import os
import resource
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path


def user_cache_folder() -> Path:
    """Returns TWINSHORE_CACHE, twinshore in XDG_CACHE_HOME, or ~/.cache/twinshore; perhaps not created yet."""
    own = os.environ.get("TWINSHORE_CACHE")
    return Path(own) if own else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "twinshore"


def disable_hypothesis() -> None:
    """Keeps hypothesis from loading. The library of Kafka's schemas would register its types there, which is slow and
    creates a folder `.hypothesis`.
    """
    sys.modules.setdefault("hypothesis", None)  # type: ignore[arg-type]


def raise_open_files_limit() -> int:
    """Raises the limit as far as this user may; returns the limit now."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Where the limit is none at all, some systems take only a number that they know.
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        return hard
    return soft


INTERRUPTED_EXIT_CODE = 130  # what shells make of it
STOPPED_MESSAGE = "stopped by Ctrl-C"


def exit_on_interrupt() -> None:
    """Makes Ctrl-C end the process silently during startup, until another handler is set."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, _end_at_once)


def raise_on_interrupt() -> None:
    """Makes Ctrl-C raise KeyboardInterrupt, as in Python."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.default_int_handler)


def print_interrupted(*left: object) -> None:
    """Writes one line to standard error when Ctrl-C has ended a command. `left`: the state of the work."""
    # A terminal has written ^C where the line would begin.
    line = f"{os.linesep if os.isatty(2) else ''}{': '.join(map(str, (STOPPED_MESSAGE, *left)))}{os.linesep}"
    with contextlib.suppress(OSError):
        os.write(2, line.encode())


def _end_at_once(_number: int, _frame: object) -> None:
    print_interrupted()
    os._exit(INTERRUPTED_EXIT_CODE)


def shutdown_signals() -> list[signal.Signals]:
    """SIGINT, SIGTERM, and SIGHUP (the terminal is gone) unless ignored, as by `nohup`."""
    asks = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        asks.append(signal.SIGHUP)
    return asks


def run_outside_handler(work: Callable[[], object]) -> None:
    """Runs a signal handler's work in a thread, started without Python's locks.

    A handler interrupts the main thread, even inside another handler that holds the lock of the event to set: setting
    the event here would deadlock.
    """
    try:
        _thread.start_new_thread(work, ())
    except RuntimeError:
        work()  # the machine has no thread left: better now and then too late than never


def on_shutdown_signal(stop: Callable[[], None]) -> None:
    """Calls `stop` at each shutdown signal."""
    if threading.current_thread() is threading.main_thread():
        for number in shutdown_signals():
            signal.signal(number, lambda *_: run_outside_handler(stop))


class RestartPause:
    """When a child process that ended is started again: after `first_s`, then later each time, up to `most_s`, until
    one has lasted for `lasting_s`. Times are the caller's.
    """

    def __init__(self, first_s: float, most_s: float, lasting_s: float) -> None:
        self._first_s, self._most_s, self._lasting_s = first_s, most_s, lasting_s
        self._next_s, self._begun_s, self.due_s = first_s, 0.0, 0.0

    def begin(self, now_s: float) -> None:
        self._begun_s = now_s

    def end(self, now_s: float) -> float:
        """Returns the pause after a child that ended now."""
        pause_s = self._first_s if now_s - self._begun_s >= self._lasting_s else self._next_s
        self.due_s, self._next_s = now_s + pause_s, min(2 * pause_s, self._most_s)
        return pause_s


@dataclass(slots=True)
class StopRequest:
    """Whether the command was asked to end, and by which signal."""

    stop: threading.Event = field(default_factory=threading.Event)
    number: int = 0

    @property
    def exit_code(self) -> int:
        """What shells report for a process that the signal ended: 130, 143."""
        return 128 + self.number


@contextlib.contextmanager
def catch_stop_request() -> Iterator[StopRequest]:
    """Within the block the first shutdown signal asks the command to end; the second ends the process at once."""
    request = StopRequest()

    def hear(number: int, _frame: object) -> None:
        if request.number:
            _end_now(128 + number)
        request.number = number
        run_outside_handler(request.stop.set)

    old = {}
    if threading.current_thread() is threading.main_thread():
        old = {number: signal.signal(number, hear) for number in shutdown_signals()}
    try:
        yield request
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)


def _end_now(code: int) -> None:
    """Ends Spark's process, if any, and this one."""
    gateway = sys.modules.get("twinshore.runtime.spark")
    if gateway is not None:
        gateway.end_gateway()
    os._exit(code)
