"""The threads of clients. Each belongs to one object, whose docstring says how it ends."""

from __future__ import annotations

import threading
from collections.abc import Callable

PREFIX = "twinshore"


def thread_name(does: str, whose: str = "") -> str:
    """By which whoever looks at an application's threads knows ours."""
    return f"{PREFIX}-{does} {whose}".rstrip()


def client_thread(does: str, whose: str, run: Callable[[], object]) -> threading.Thread:
    """Not begun yet. No process waits at its end for one: a cluster that is gone may keep it for long."""
    return threading.Thread(target=run, name=thread_name(does, whose), daemon=True)
