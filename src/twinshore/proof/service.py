"""Continuous proof, alone or beside a running mirror in its Spark; and Prometheus metrics of proofs."""

from __future__ import annotations

import contextlib
import json
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import asdict, replace
from functools import partial
from typing import Any

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from twinshore.config.errors import StoreError, TwinshoreError
from twinshore.config.grouping import grouped
from twinshore.config.model import Link
from twinshore.config.sections.proof import ProofSettings
from twinshore.config.settings import Settings
from twinshore.kafka.clock import wall_ms
from twinshore.proof.core.model import CompareResult
from twinshore.proof.core.partition_scan import PartitionScan
from twinshore.proof.core.planning import (
    ProofOptions,
    Reread,
    apply_reread,
    explain_unreachable_age,
    measure_reread_pass,
    plan_rereads,
)
from twinshore.proof.core.report import CANNOT_TELL, exit_code, verdict
from twinshore.proof.jobs import RunBundle, read_results, spark_bundle_runner
from twinshore.proof.link_scan import add_offset_runs
from twinshore.proof.rounds import MergeRow, ProofReport, ProofRounds
from twinshore.runtime.endpoints import LinkContext, LinkService
from twinshore.runtime.http import MetricsServer
from twinshore.runtime.scheduler import DaemonExecutor, supervise
from twinshore.state.core.values import PartitionKey, ProofRow, key_of
from twinshore.state.store import Store

log = logging.getLogger(__name__)

# A task reads for about so long: then it can end in good order, and its results are saved.
REREAD_TASK_S = 5.0
# Records are not read again sooner than this, however few there are.
REREAD_PAUSE_S = 60.0
IDLE_INTERVAL_S = 1.0
POLL_INTERVAL_S = 0.2
JOIN_TIMEOUT_S = 10.0


class Rereader:
    """Reads proven records again. `looks` returns the last round's scans; `keep` saves proofs and incidents. All is
    done in `turn`, except reading, which a thread or Spark does.
    """

    def __init__(
        self,
        settings: Settings,
        store: Store,
        run: RunBundle,
        options: ProofOptions,
        *,
        looks: Callable[[], Sequence[tuple[Link, PartitionScan]]],
        keep: Callable[[Mapping[PartitionKey, ProofRow], MergeRow], object],
        rest_s: float = REREAD_PAUSE_S,
    ) -> None:
        self._settings, self._store, self._run, self._looks, self._keep = settings, store, run, looks, keep
        self._bytes_s = settings.proof.reread_mb_s * 1e6
        self._options = replace(options, bytes_s=self._bytes_s, sample=0.0)
        self._rest_s = rest_s
        # A small budget makes its pauses long: a daemon thread, so a process that ends does not wait.
        self._reader: DaemonExecutor[list[str]] = DaemonExecutor("proof again")
        self._busy: tuple[Future[list[str]], list[Reread], int] | None = None
        self._failed: dict[tuple[str, int], float] = {}
        self._idle_until_s = 0.0
        self._refused = ""
        self.read_bytes = 0

    def close(self) -> None:
        """Starts nothing more. A running read ends by itself, and is not saved."""
        self._reader.close()

    def turn(self) -> None:
        """Saves finished reads and starts the next; never waits."""
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
        stored = {key_of(row): row for row in self._store.proofs.of()}
        looks = grouped((link, replace(scan, stored=stored.get(scan.key))) for link, scan in self._looks())
        self._refuse([row for ours in looks.values() for scan in ours if (row := scan.stored)])
        # The link unread longest; a task reads from one pair of clusters.
        most, before_ms = self._bytes_s * REREAD_TASK_S, now_ms - int(self._rest_s * 1000)
        limits: dict[str, Any] = {"size_max": most, "before_ms": before_ms, "skip": self._failed}
        found = []
        for link, scans in looks.items():
            clusters = self._settings.cluster(link.source), self._settings.cluster(link.target)
            found.append(plan_rereads(scans, clusters, self._options, **limits))
        chosen = min((one for one in found if one), key=lambda one: one[0].read_ms, default=[])
        if not chosen:
            self._idle_until_s = now_s + IDLE_INTERVAL_S
            return
        wanted = []
        for number, errand in enumerate(chosen):
            offset_range = add_offset_runs(self._store, errand.scan.link, errand.offset_range)
            wanted.append(errand._replace(offset_range=replace(offset_range, number=number)))
        order = json.dumps([errand.offset_range.to_json() for errand in wanted])
        name = f"proof again of {wanted[0].scan.partition} from {wanted[0].offset_range.start}"
        self._busy = (self._reader.submit(partial(self._run, order, name)), wanted, now_ms)

    def _take(self, done: Future[list[str]], wanted: Sequence[Reread], read_ms: int) -> None:
        stored = {key_of(row): row for row in self._store.proofs.of()}
        found: dict[PartitionKey, tuple[Reread, CompareResult]] = {}
        for result in read_results(done, [errand.offset_range for errand in wanted]):
            errand = wanted[result.number]
            self.read_bytes += result.bytes
            self._say(errand, result)
            found[errand.scan.key] = errand, result

        def fold(place: PartitionKey, proof_row: ProofRow | None) -> ProofRow | None:
            return apply_reread(proof_row, *found[place], read_ms, wall_ms()) if proof_row is not None else None

        self._keep({place: row for place in found if (row := fold(place, stored.get(place))) is not None}, fold)

    def _say(self, errand: Reread, result: CompareResult) -> None:
        scan, difference = errand.scan, result.difference
        if difference is not None:
            where = f"{scan.partition} at offset {difference.offset}"
            text = f"{scan.link}: read again, {where}: {difference.kind}: {difference.sentence}"
            log.error(text, extra={"link": scan.link, **asdict(scan.partition)})
        if result.to < errand.offset_range.end:
            self._failed[f"{scan.link} {scan.partition}", errand.offset_range.start] = time.monotonic() + REREAD_PAUSE_S
            if result.trouble:
                text = f"{scan.link}: {scan.partition} could not be read again: {result.trouble}"
                log.warning(text, extra={"link": scan.link, **asdict(scan.partition)})

    def _refuse(self, rows: Sequence[ProofRow]) -> None:
        """Logs that the wanted age cannot be met, once until it can."""
        found = measure_reread_pass(rows, self._bytes_s)
        refused = explain_unreachable_age(found, self._bytes_s, self._settings.proof.read_again_h) if found else ""
        if refused and not self._refused:
            log.warning(refused)
        self._refused = refused


def proof_options(settings: ProofSettings) -> ProofOptions:
    return ProofOptions(settings.range_records, settings.throttle_mb_s * 1e6, settings.digest)


def proof_options_beside_reread(settings: ProofSettings) -> ProofOptions:
    """Leaves the re-reads' share of the throttle."""
    options = proof_options(settings)
    return replace(options, bytes_s=max(0.0, options.bytes_s - settings.reread_mb_s * 1e6))


def run_proof_rounds(
    one_round: Callable[[], ProofReport],
    tell: Callable[[ProofReport], None],
    every_s: float,
    stopped: Callable[[], bool],
    between: Callable[[], None] = lambda: None,
) -> int:
    """Runs rounds with pauses until `stopped`, which is polled; returns the last whole one's exit code. Logs a failed
    round and continues. `between` is called often in pauses.
    """
    code = CANNOT_TELL
    while not stopped():
        try:
            report = one_round()
        except TwinshoreError as error:
            log.warning(f"not proven: {error}")
            code = CANNOT_TELL
        else:
            if not stopped():
                tell(report)
                code = exit_code(report)
        next_s = time.monotonic() + every_s
        while not stopped() and time.monotonic() < next_s:
            _turn(between)
            time.sleep(min(POLL_INTERVAL_S, every_s))
    return code


def _turn(between: Callable[[], None]) -> None:
    try:
        between()
    except TwinshoreError as error:
        log.warning(f"nothing is read again: {error}")


def start_proof_service(context: LinkContext) -> LinkService:
    """Proves the link beside its mirror, where the settings say so."""
    if not context.settings.proof.beside_mirror:
        return contextlib.ExitStack()  # nothing to close
    return ProofService(context)


class ProofService:
    """Proves one link beside its mirror, in a thread."""

    def __init__(self, context: LinkContext) -> None:
        self._context, self._settings = context, context.settings.proof
        self._stop = threading.Event()
        self._last = ""
        self._thread = supervise(self._work, f"proof of {context.link.name}")

    def close(self) -> None:
        """Starts nothing more, and waits a little for running work."""
        self._stop.set()
        self._thread.join(JOIN_TIMEOUT_S)

    def _work(self) -> None:
        context, settings = self._context, self._settings
        where = context.settings, context.store, _on_the_mirrors_spark
        options = proof_options_beside_reread(settings)
        proving = ProofRounds(*where, options=options, tasks=settings.tasks, stopped=self._stop.is_set)
        again = Rereader(*where, proof_options(settings), looks=proving.seen, keep=proving.keep)
        next_s = time.monotonic() + settings.every_s
        while not self._stop.wait(POLL_INTERVAL_S):
            if not context.active():
                continue
            if time.monotonic() < next_s:
                _turn(again.turn)
                continue
            try:
                self._tell(proving.round([context.link]))
            except TwinshoreError as error:
                log.warning(f"{context.link.name}: not proven: {error}", extra={"link": context.link.name})
            next_s = time.monotonic() + settings.every_s
        again.close()

    def _tell(self, report: ProofReport) -> None:
        said = verdict(report)
        word = said.partition(":")[0]
        if word != self._last:
            link = self._context.link.name
            log.log(logging.ERROR if report.differs else logging.INFO, f"{link}: proof: {said}", extra={"link": link})
            self._last = word


def _on_the_mirrors_spark(bundle: str, name: str) -> list[str]:
    from pyspark import SparkContext

    return spark_bundle_runner(SparkContext.getOrCreate())(bundle, name)


LABELS = ("link", "topic", "partition")
MISSING_TOMBSTONES_METRIC = "twinshore_proof_owed_deletions"
READ_AGE_METRIC = "twinshore_proof_read_age_seconds"
METRIC_HELP = {
    "twinshore_proof_offset": "Both sides hold the same records up to, not including, this offset of the source.",
    "twinshore_proof_behind_records": "Offsets of the source that were there but not proven, at the last proof.",
    "twinshore_proof_age_seconds": "How long ago that was proven, or seen to be all that there is.",
    "twinshore_proof_differs": "1 where both sides were found to differ.",
    READ_AGE_METRIC: "How long ago the oldest part of what is proven was read from both sides; none if unknown.",
    MISSING_TOMBSTONES_METRIC: "Keys deleted on the source that the compacted twin still shows, at the last check.",
}


class ProofCollector(Collector):
    """Metrics from the store; none while the store is away."""

    def __init__(self, store: Store, now_s: Callable[[], float] = time.time) -> None:
        self._store, self._now_s = store, now_s

    def collect(self) -> Iterator[Metric]:
        families = {name: GaugeMetricFamily(name, says, labels=LABELS) for name, says in METRIC_HELP.items()}
        try:
            rows, looks = self._store.proofs.of(), self._store.key_checks.of()
        except StoreError:
            rows, looks = (), ()
        for check in looks:
            labels = [check.link, check.topic, str(check.partition)]
            families[MISSING_TOMBSTONES_METRIC].add_metric(labels, check.missing_tombstones)
        others = families.keys() - {MISSING_TOMBSTONES_METRIC, READ_AGE_METRIC}
        of_rows = [family for name, family in families.items() if name in others]
        for row in rows:
            labels = [row.link, row.topic, str(row.partition)]
            if row.read_ms:
                families[READ_AGE_METRIC].add_metric(labels, max(0.0, self._now_s() - row.read_ms / 1000))
            values = (
                row.to_offset,
                max(0, row.source_end - row.to_offset),
                max(0.0, self._now_s() - row.proven_ms / 1000),
                row.state == "differs",
            )
            for family, value in zip(of_rows, values, strict=True):
                family.add_metric(labels, value)
        yield from families.values()

    def describe(self) -> list[Metric]:
        """Lets the registry start without the store."""
        return [GaugeMetricFamily(name, says, labels=LABELS) for name, says in METRIC_HELP.items()]

    def links(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for row in self._store.proofs.of():
            link = found.setdefault(row.link, {"partitions": 0, "differ": 0, "oldest_proof_s": 0.0})
            link["partitions"] += 1
            link["differ"] += row.state == "differs"
            link["oldest_proof_s"] = max(link["oldest_proof_s"], round(self._now_s() - row.proven_ms / 1000, 1))
        return found


@contextlib.contextmanager
def serve_proof_metrics(port: int, store: Store) -> Iterator[Callable[[], None]]:
    """Serves /metrics and /health on this port; 0: not at all. Yields a function that the main loop calls as a sign of
    life.
    """
    if not port:
        yield lambda: None
        return
    collector = ProofCollector(store)
    with contextlib.closing(MetricsServer("127.0.0.1", port, collector, collector.links)) as server:
        yield server.beat
