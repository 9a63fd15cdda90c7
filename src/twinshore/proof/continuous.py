"""Proving without an end: round after round, by itself or beside a running mirror in the mirror's own Spark."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial

from twinshore.fleet import Link, TwinshoreError
from twinshore.fleet.settings import Settings
from twinshore.fleet.settings.sections.proof import ProofSettings
from twinshore.proof.borders import PartitionLook
from twinshore.proof.job import RunBundle, answers_of, on_spark
from twinshore.proof.planning import Errand, Wishes, errands, folded, refusal, whole_pass
from twinshore.proof.proving import Place, Proving, Refold, Report, place_of
from twinshore.proof.surveying import mapped
from twinshore.proof.telling import COULD_NOT, exit_code, verdict
from twinshore.proof.values import Proven
from twinshore.service.clock import wall_ms
from twinshore.service.companions import Beside, Companion
from twinshore.service.workers import LeftBehind, keep_on
from twinshore.store import ProofRow, Store

# A task reads for about so long: so soon may it end in good order, and so often is what it found kept.
TASK_S = 5.0
# What was just read is not read again at once, however little there is.
REST_S = 60.0
IDLE_S = 1.0
TURN_S = 0.2
JOIN_S = 10.0


class Rereading:
    """`looks` are those that the last round saw; `keep` saves proofs, and tells the ledger. All happens in `turn`, but
    for the reading itself, which is another thread's, or Spark's."""

    def __init__(
        self,
        settings: Settings,
        store: Store,
        run: RunBundle,
        wishes: Wishes,
        *,
        looks: Callable[[], Sequence[tuple[Link, PartitionLook]]],
        keep: Callable[[Mapping[Place, ProofRow], Refold], object],
        log: Callable[[str], None],
        rest_s: float = REST_S,
    ) -> None:
        self._settings, self._store, self._run, self._looks, self._keep = settings, store, run, looks, keep
        self._bytes_s = settings.proof.reread_mb_s * 1e6
        self._wishes = replace(wishes, bytes_s=self._bytes_s, sample=0.0)
        self._log, self._rest_s = log, rest_s
        # A small budget makes its pauses long: no process waits for them at its end.
        self._reader: LeftBehind[list[str]] = LeftBehind("proof again")
        self._busy: tuple[Future[list[str]], list[Errand], int] | None = None
        self._failed: dict[tuple[str, int], float] = {}
        self._idle_until_s = 0.0
        self._refused = ""
        self.read_bytes = 0

    def close(self) -> None:
        """Begins nothing more. What is being read ends by itself, and is not kept."""
        self._reader.close()

    def turn(self) -> None:
        """Keeps what has come, and begins what is next; never waits."""
        if not self._bytes_s:
            return
        if self._busy is not None and self._busy[0].done():
            self._take(*self._busy)
            self._busy = None
        if self._busy is None and time.monotonic() >= self._idle_until_s:
            self._begin()

    def _begin(self) -> None:
        now_ms, now_s = wall_ms(), time.monotonic()
        self._failed = {place: until_s for place, until_s in self._failed.items() if until_s > now_s}
        stored = {place_of(row): row for row in self._store.proofs.of()}
        looks: dict[Link, list[PartitionLook]] = {}
        for link, look in self._looks():
            row = stored.get((look.link, look.named.topic, look.named.partition))
            looks.setdefault(link, []).append(replace(look, stored=row))
        self._refuse([row for ours in looks.values() for look in ours if (row := look.stored)])
        # Of all links the one that waits longest; a task reads from one pair of clusters.
        most, before_ms = self._bytes_s * TASK_S, now_ms - int(self._rest_s * 1000)
        found = [
            errands(
                ours,
                (self._settings.cluster(link.source), self._settings.cluster(link.target)),
                self._wishes,
                size_max=most,
                before_ms=before_ms,
                skip=self._failed,
            )
            for link, ours in looks.items()
        ]
        chosen = min((one for one in found if one), key=lambda one: one[0].read_ms, default=[])
        if not chosen:
            self._idle_until_s = now_s + IDLE_S
            return
        wanted = [
            errand._replace(stretch=replace(mapped(self._store, errand.look.link, errand.stretch), number=number))
            for number, errand in enumerate(chosen)
        ]
        order = json.dumps([errand.stretch.to_json() for errand in wanted])
        name = f"proof again of {wanted[0].look.named} from {wanted[0].stretch.start}"
        self._busy = (self._reader.submit(partial(self._run, order, name)), wanted, now_ms)

    def _take(self, done: Future[list[str]], wanted: Sequence[Errand], read_ms: int) -> None:
        stored = {place_of(row): row for row in self._store.proofs.of()}
        found: dict[Place, tuple[Errand, Proven]] = {}
        for result in answers_of(done, [errand.stretch for errand in wanted]):
            errand = wanted[result.number]
            self.read_bytes += result.bytes
            self._say(errand, result)
            found[errand.look.link, errand.look.named.topic, errand.look.named.partition] = errand, result

        def fold(place: Place, stands: ProofRow | None) -> ProofRow | None:
            return folded(stands, *found[place], read_ms, wall_ms()) if stands is not None else None

        self._keep({place: row for place in found if (row := fold(place, stored.get(place))) is not None}, fold)

    def _say(self, errand: Errand, result: Proven) -> None:
        look, difference = errand.look, result.difference
        if difference is not None:
            where = f"{look.named} at offset {difference.offset}"
            self._log(f"{look.link}: read again, {where}: {difference.kind}: {difference.sentence}")
        if result.to < errand.stretch.end:
            self._failed[f"{look.link} {look.named}", errand.stretch.start] = time.monotonic() + REST_S
            if result.trouble:
                self._log(f"{look.link}: {look.named} could not be read again: {result.trouble}")

    def _refuse(self, rows: Sequence[ProofRow]) -> None:
        """Says it once when the age that was asked for cannot be kept, and again when the figure is another."""
        found = whole_pass(rows, self._bytes_s)
        refused = refusal(found, self._bytes_s, self._settings.proof.read_again_h) if found else ""
        if refused and not self._refused:
            self._log(refused)
        self._refused = refused


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
    """Proves one link while this process mirrors it, in a separate thread."""

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
