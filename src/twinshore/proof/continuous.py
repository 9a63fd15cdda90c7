"""Proving without an end: round after round, by itself or beside a running mirror in the mirror's own Spark."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace

from twinshore.fleet import TwinshoreError
from twinshore.fleet.settings.sections.proof import ProofSettings
from twinshore.proof.job import on_spark
from twinshore.proof.planning import Wishes
from twinshore.proof.proving import Proving, Report
from twinshore.proof.rereading import Rereading
from twinshore.proof.telling import COULD_NOT, exit_code, verdict
from twinshore.service.companions import Beside, Companion
from twinshore.service.workers import keep_on

TURN_S = 0.2
JOIN_S = 10.0


def wishes_of(settings: ProofSettings) -> Wishes:
    """As the settings want it."""
    return Wishes(settings.stretch_records, settings.throttle_mb_s * 1e6, settings.digest)


def wishes_beside(settings: ProofSettings) -> Wishes:
    """For what is new, where something is read again at the same time: both together are within the throttle."""
    wishes = wishes_of(settings)
    return replace(wishes, bytes_s=max(0.0, wishes.bytes_s - settings.reread_mb_s * 1e6)) if wishes.bytes_s else wishes


def keep_proving(
    one_round: Callable[[], Report],
    tell: Callable[[Report], None],
    every_s: float,
    stopped: Callable[[], bool],
    log: Callable[[str], None],
    between: Callable[[], None] = lambda: None,
) -> int:
    """Rounds with a pause between them until `stopped`, which is asked often; the exit code of the last whole one. One
    that fails is told, and the next may succeed. `between` is called often in the pauses."""
    code = COULD_NOT
    while not stopped():
        try:
            report = one_round()
        except TwinshoreError as error:
            log(f"not proven: {error}")
            code = COULD_NOT
        else:
            if not stopped():
                tell(report)
                code = exit_code(report)
        next_s = time.monotonic() + every_s
        while not stopped() and time.monotonic() < next_s:
            _turn(between, log)
            time.sleep(min(TURN_S, every_s))
    return code


def _turn(between: Callable[[], None], log: Callable[[str], None]) -> None:
    try:
        between()
    except TwinshoreError as error:
        log(f"nothing is read again: {error}")


class Nobody:
    """Where nothing is to be proven beside the mirror."""

    def close(self) -> None:
        """Nothing to end."""


def begin(beside: Beside) -> Companion:
    """Starts what the settings ask for."""
    settings = beside.settings.proof
    return ProofBeside(beside, settings) if settings.beside_mirror else Nobody()


class ProofBeside:
    """Proves one link while this process mirrors it, in a thread of its own."""

    def __init__(self, beside: Beside, settings: ProofSettings) -> None:
        self._beside, self._settings = beside, settings
        self._stop = threading.Event()
        self._last = ""
        self._thread = keep_on(self._work, f"proof of {beside.link.name}")

    def close(self) -> None:
        """Begins nothing more, and waits a little for what is on its way."""
        self._stop.set()
        self._thread.join(JOIN_S)

    def _work(self) -> None:
        beside, settings = self._beside, self._settings
        proving = Proving(
            beside.settings,
            beside.store,
            _on_the_mirrors_spark,
            wishes=wishes_beside(settings),
            tasks=settings.tasks,
            stopped=self._stop.is_set,
            log=beside.log,
        )
        again = Rereading(
            beside.settings,
            beside.store,
            _on_the_mirrors_spark,
            wishes_of(settings),
            looks=proving.seen,
            keep=proving.keep,
            log=beside.log,
        )
        next_s = time.monotonic() + settings.every_s
        while not self._stop.wait(TURN_S):
            if not beside.active():
                continue
            if time.monotonic() < next_s:
                _turn(again.turn, beside.log)
                continue
            try:
                self._tell(proving.round([beside.link]))
            except TwinshoreError as error:
                beside.log(f"{beside.link.name}: not proven: {error}")
            next_s = time.monotonic() + settings.every_s
        again.close()

    def _tell(self, report: Report) -> None:
        said = verdict(report)
        word = said.partition(":")[0]
        if word != self._last:
            self._beside.log(f"{self._beside.link.name}: proof: {said}")
            self._last = word


def _on_the_mirrors_spark(bundle: str, name: str) -> list[str]:
    from pyspark import SparkContext

    return on_spark(SparkContext.getOrCreate())(bundle, name)
