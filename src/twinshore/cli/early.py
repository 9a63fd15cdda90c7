"""Ctrl-C while a command is still being loaded: it ends at once and without a trace, as nothing has begun."""

from __future__ import annotations

import os
import signal
import threading

INTERRUPTED = 130  # what shells make of it


def end_when_interrupted() -> None:
    """From now on, until `interruptible` or somebody else's handler."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, lambda *_: os._exit(INTERRUPTED))


def interruptible() -> None:
    """As Python has it: KeyboardInterrupt, for which every `finally` is run."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.default_int_handler)
