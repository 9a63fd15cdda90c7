"""What a mirror's pumps run on: jobs of Spark, begun with the mirror and ended with it."""

from __future__ import annotations

import threading
from typing import Protocol

from twinshore.fleet.settings import MirrorSettings

PUMPS = ("twinshore.mirror.pump.loop", "twinshore.mirror.pump.raft")


class Engine(Protocol):
    """`ride` pumps one lane for one tide and returns the sentence that says how that ended; it raises where the task
    died. `end` ends the task of that name from outside. `host` is where the desk can be reached from wherever tides
    run."""

    host: str

    def ride(self, order: str, name: str, /) -> str: ...

    def end(self, name: str, /) -> None: ...

    def alive(self) -> bool: ...

    def close(self) -> None: ...


def begin(settings: MirrorSettings, lanes: int, stop: threading.Event) -> Engine | None:
    """Room for so many lanes; None when `stop` came first."""
    # Loaded here: a command that only looks need not load Spark.
    from twinshore.mirror.pump.tide import carry
    from twinshore.service.compiling import build_ahead
    from twinshore.service.spark import SparkEngine, open_session

    session = open_session(settings, lanes, stop, PUMPS)
    if session is None:
        return None
    if settings.spark.master.startswith("local"):
        build_ahead()
    return SparkEngine(session, carry)
