"""What runs bundles of stretches: Spark, or this process."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

from twinshore.fleet.settings import Settings
from twinshore.proof.job import RunBundle, in_this_process, on_spark
from twinshore.service.gateway import stop_quietly
from twinshore.service.spark import open_session


@contextlib.contextmanager
def runner(
    settings: Settings, *, here: bool, stop: threading.Event, log: Callable[[str], None]
) -> Iterator[RunBundle | None]:
    """`here`: without Spark. None where `stop` came while Spark was starting, which takes some seconds."""
    if here:
        yield in_this_process
        return
    log(f"starting Spark on {settings.mirror.spark.master}, which takes some seconds; --here goes without it")
    session = open_session(settings.mirror, settings.proof.tasks, stop, ("twinshore.proof.prover",))
    if session is None:
        log("stopped before anything was compared")
        yield None
        return
    try:
        yield on_spark(session.sparkContext)
    finally:
        stop_quietly(session.stop)
