"""Where this user's machine keeps what was fetched or made once.

What a process of ours is not to load.

How many files and connections a process may have open.

Signals that ask a command to end: while it is still being loaded, and while it works.
"""

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
    """TWINSHORE_CACHE, or twinshore in XDG_CACHE_HOME, or ~/.cache/twinshore; perhaps not there yet."""
    own = os.environ.get("TWINSHORE_CACHE")
    return Path(own) if own else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "twinshore"


def disable_hypothesis() -> None:
    """The library of Kafka's schemas makes its types known to hypothesis wherever that is installed. That takes longer
    than all else that it does, and writes a folder `.hypothesis` where the command is typed. Where hypothesis cannot be
    loaded, it goes without."""
    sys.modules.setdefault("hypothesis", None)  # type: ignore[arg-type]


def raise_open_files_limit() -> int:
    """Raises the limit as far as this user may without asking anybody; what it is now."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Where the limit is none at all, some systems take only a number that they know.
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        return hard
    return soft


INTERRUPTED_EXIT_CODE = 130  # what shells make of it
STOPPED_MESSAGE = "stopped by Ctrl-C"


def exit_on_interrupt() -> None:
    """At once and without a trace, as nothing has begun: until `raise_on_interrupt` or somebody else's handler."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, _end_at_once)


def raise_on_interrupt() -> None:
    """As Python has it: KeyboardInterrupt, for which every `finally` is run."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.default_int_handler)


def print_interrupted(*left: object) -> None:
    """One line to standard error, where Ctrl-C has ended a verb that has no end of its own for it. `left`: how it left
    what it did."""
    # A terminal has written ^C where the line would begin.
    line = f"{os.linesep if os.isatty(2) else ''}{': '.join(map(str, (STOPPED_MESSAGE, *left)))}{os.linesep}"
    with contextlib.suppress(OSError):
        os.write(2, line.encode())


def _end_at_once(_number: int, _frame: object) -> None:
    print_interrupted()
    os._exit(INTERRUPTED_EXIT_CODE)


def shutdown_signals() -> list[signal.Signals]:
    """By which a process that goes on and on is asked to end: Ctrl-C, SIGTERM, and SIGHUP, which says that the terminal
    is gone. A process that was told to ignore SIGHUP, as `nohup` does, goes on without a terminal."""
    asks = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        asks.append(signal.SIGHUP)
    return asks


def run_outside_handler(work: Callable[[], object]) -> None:
    """Has a handler's work done by a separate thread, begun without any of Python's locks. A handler runs in the
    midst of whatever the main thread does, another handler of the same signal included: where that holds the lock of
    the event that is to be set, setting it here would wait for itself, for ever."""
    try:
        _thread.start_new_thread(work, ())
    except RuntimeError:
        work()  # the machine has no thread left: better now and then too late than never


def on_shutdown_signal(stop: Callable[[], None]) -> None:
    """What asks for a good end is heard, however often it comes."""
    if threading.current_thread() is threading.main_thread():
        for number in shutdown_signals():
            signal.signal(number, lambda *_: run_outside_handler(stop))


@dataclass(slots=True)
class StopRequest:
    """Whether somebody has asked the command to end, and by which signal."""

    stop: threading.Event = field(default_factory=threading.Event)
    number: int = 0

    @property
    def exit_code(self) -> int:
        """What shells make of a process that the signal has ended: 130, 143."""
        return 128 + self.number


@contextlib.contextmanager
def catch_stop_request() -> Iterator[StopRequest]:
    """The first Ctrl-C, SIGTERM or SIGHUP is for the verb, which ends in good order; the second ends the process at
    once."""
    asked = StopRequest()

    def hear(number: int, _frame: object) -> None:
        if asked.number:
            _end_now(128 + number)
        asked.number = number
        run_outside_handler(asked.stop.set)

    old = {}
    if threading.current_thread() is threading.main_thread():
        old = {number: signal.signal(number, hear) for number in shutdown_signals()}
    try:
        yield asked
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)


def _end_now(code: int) -> None:
    """Spark's process as well, where there may be one."""
    gateway = sys.modules.get("twinshore.runtime.spark")
    if gateway is not None:
        gateway.end_gateway()
    os._exit(code)
