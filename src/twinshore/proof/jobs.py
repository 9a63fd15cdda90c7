"""Ranges as Spark jobs: one task for a bundle, some in parallel, results as they come."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING

from twinshore.config.sentences import Tell
from twinshore.config.settings import Settings
from twinshore.proof.core.model import CompareRange, CompareResult

if TYPE_CHECKING:
    from pyspark import SparkContext

STOP_POLL_INTERVAL_S = 1.0
RunBundle = Callable[[str, str], list[str]]


@contextlib.contextmanager
def open_bundle_runner(
    settings: Settings, *, here: bool, stop: threading.Event, tell: Tell
) -> Iterator[RunBundle | None]:
    """Yields a runner. `here`: without Spark. None where `stop` came during Spark's start, which takes some seconds."""
    if here:
        yield run_bundle_in_process
        return
    from twinshore.runtime.spark import open_session, stop_quietly

    tell(f"starting Spark on {settings.mirror.spark.master}, which takes some seconds; --here goes without it")
    session = open_session(settings.mirror, settings.proof.tasks, stop, ("twinshore.proof.prover",))
    if session is None:
        tell("stopped before anything was compared")
        yield None
        return
    try:
        yield spark_bundle_runner(session.sparkContext)
    finally:
        stop_quietly(session.stop)


def prove_bundle(bundles: Iterable[str]) -> Iterator[str]:
    """Yields the results of a bundle's ranges: the body of a Spark task."""
    # Imported here: the driver ships this function without loading the compiled loops.
    from twinshore.proof.prover import prove_all

    for bundle in bundles:
        for found in prove_all(CompareRange.from_json(text) for text in json.loads(bundle)):
            yield found.to_json()


def spark_bundle_runner(context: SparkContext) -> RunBundle:
    """Runs a bundle as a single-task job, in a pool apart from replication."""

    def run(bundle: str, name: str) -> list[str]:
        context.setLocalProperty("spark.scheduler.pool", "proof")
        context.setJobGroup(name, name, interruptOnCancel=False)
        return [str(text) for text in context.parallelize([bundle], 1).mapPartitions(prove_bundle).collect()]

    return run


def run_bundle_in_process(bundle: str, _name: str) -> list[str]:
    return list(prove_bundle([bundle]))


def run_bundles(
    run: RunBundle, bundles: Iterable[Sequence[CompareRange]], tasks: int, stopped: Callable[[], bool]
) -> Iterator[list[CompareResult]]:
    """Yields bundles' results as they finish. Starts none once `stopped`, which is polled every second. A dead task's
    ranges have `trouble`.
    """
    waiting: dict[Future[list[str]], Sequence[CompareRange]] = {}
    coming = iter(bundles)
    with ThreadPoolExecutor(tasks, thread_name_prefix="proof") as pool:
        while True:
            while len(waiting) < tasks and not stopped():
                bundle = next(coming, None)
                if bundle is None:
                    break
                order = json.dumps([offset_range.to_json() for offset_range in bundle])
                waiting[pool.submit(run, order, f"proof of {bundle[0].partition} from {bundle[0].start}")] = bundle
            if not waiting:
                return
            for done in wait(waiting, STOP_POLL_INTERVAL_S, return_when=FIRST_COMPLETED).done:
                yield read_results(done, waiting.pop(done))


def read_results(done: Future[list[str]], bundle: Sequence[CompareRange]) -> list[CompareResult]:
    """Returns a finished bundle's results; `trouble` for each range if its task died."""
    try:
        return [CompareResult.from_json(text) for text in done.result()]
    except Exception as error:
        # Spark raises a different one for every reason: the task, its worker or its executor is gone.
        lines = [line.strip() for line in str(error).splitlines() if "Error" in line or "Exception" in line]
        reason = f"its task died: {(lines or [type(error).__name__])[0][:200]}"
        return [CompareResult(one.number, one.start, one.start, trouble=reason, hint="prove again") for one in bundle]
