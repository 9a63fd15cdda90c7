"""How fast a copier empties a backlog, and what that costs."""

from __future__ import annotations

import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from bench.kit.ballast import Ballast
from bench.kit.tree import ProcessTree, machine_cpu_s, own_cpu_s
from testkit.copiers import Copier, CopyJob
from testkit.fault_proxy import FaultProxy
from testkit.figures import Sample, StageError, Window, WindowRule, window_of
from testkit.loader import PARTITIONS, Workload
from testkit.watermarks import TopicEndReader
from twinshore.lab.cluster import LabCluster
from twinshore.lab.processes import ChildProcess, log_tail

_SAMPLE_EVERY_S = 0.1
_FIRST_RECORD_WITHIN_S = 120.0
_DRAINED_WITHIN_S = 600.0
STOP_PATIENCE_S = 15.0


@dataclass(frozen=True, slots=True)
class Drain:
    """One copier, one backlog. `startup_s`: from the process's start to the first record on the target.

    `line_bytes` is for each record, over the whole run; right only where the window ends with the backlog, as copiers
    read ahead.
    """

    copier: str
    setting: str
    workload: str
    window: Window
    startup_s: float
    memory_mb: float
    line_bytes: float = 0.0


@dataclass(frozen=True, slots=True)
class Sides:
    """The two clusters of a bench, and the proxies of the line between them if it has any."""

    source: LabCluster
    target: LabCluster
    line: tuple[FaultProxy, ...] = ()

    def brokers_cpu_s(self) -> float:
        """What all brokers have cost so far."""
        return sum(own_cpu_s(broker.pid) for side in (self.source, self.target) for broker in side.brokers)

    def line_bytes(self) -> int:
        """What has gone over the line so far, both ways."""
        counts = [proxy.counters() for proxy in self.line]
        return sum(each.bytes_to_source + each.bytes_to_target for each in counts)


def drain(
    copier: Copier,
    job: CopyJob,
    workload: Workload,
    sides: Sides,
    ballast: Ballast,
    backlog: int,
    rule: WindowRule,
) -> Drain:
    """Starts the copier on a topic that holds `backlog` records, measures by `rule`, and ends the copier.

    Before that the disk is given what earlier runs left for it, so that nobody is slowed by another's writing.
    """
    os.sync()
    ballast.fill()
    with tempfile.TemporaryDirectory(prefix="twinshore-bench-") as name:
        folder = Path(name)
        end = TopicEndReader(job.target, copier.target_topic(job), PARTITIONS)
        started_s = time.monotonic()
        child = copier.start(job, folder)
        tree = ProcessTree(child.pid)
        try:
            samples, window = _watch(child, folder, tree, end, sides, backlog, rule)
            memory_mb = tree.memory_mb()
            copier.check(folder)
        finally:
            stop(child, tree)
    first_s = next(sample.at_s for sample in samples if sample.records)
    line_bytes = (samples[-1].line_bytes - samples[0].line_bytes) / samples[-1].records
    return Drain(copier.name, copier.setting, workload.name, window, first_s - started_s, memory_mb, line_bytes)


def stop(child: ChildProcess, tree: ProcessTree) -> None:
    """An orderly stop, and then nothing of the copier is left."""
    child.end(patience_s=STOP_PATIENCE_S)
    tree.kill()


def _watch(
    child: ChildProcess,
    folder: Path,
    tree: ProcessTree,
    end: TopicEndReader,
    sides: Sides,
    backlog: int,
    rule: WindowRule,
) -> tuple[list[Sample], Window]:
    samples: list[Sample] = []
    begun_s = time.monotonic()
    while True:
        records = end.records()
        at_s = time.monotonic()
        samples.append(Sample(at_s, records, tree.cpu_s(), sides.brokers_cpu_s(), machine_cpu_s(), sides.line_bytes()))
        window = window_of(samples, backlog, rule)
        if window:
            return samples, window
        if not child.alive():
            raise StageError(f"the copier ended with code {child.exit_code}; its last words:\n{_last_words(folder)}")
        if at_s - begun_s > (_DRAINED_WITHIN_S if records else _FIRST_RECORD_WITHIN_S):
            raise StageError(f"{records} of {backlog} records in {at_s - begun_s:.0f} s:\n{_last_words(folder)}")
        time.sleep(_SAMPLE_EVERY_S)


def _last_words(folder: Path) -> str:
    return log_tail(folder / "copier.log")
