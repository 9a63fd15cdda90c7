"""`python -m bench.measure.broadcast [--targets 1 3] [--records N] [--rate N]`: a source that is read once for many.

For each number of targets the same topic goes to all of them by a broadcast, and by as many links without one: how many
bytes left the source for each that was written to it, and how much CPU the mirror took for a record and a target: above
what it takes at rest, in all, and in its tasks. The mirror reaches the source through a proxy that counts. The last
line is flat JSON.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from bench.kit.tree import ProcessTree
from testkit.clients import forget_links
from testkit.cluster import RigCluster
from testkit.figures import StageError
from testkit.loader import PARTITIONS, Workload, load, lz4, plain
from testkit.watermarks import TopicEndReader
from twinshore.lab.mirror_process import MirrorProcess

SOURCE = "source"
TARGETS = (1, 3)
RECORDS, RECORDS_SHORT = 600_000, 150_000
# So many a second the source takes where what a record costs is measured: targets keep up, and time passes.
RATE = 20_000.0
HEAP_MB = 512
BEGIN_S_MAX = 240.0
ARRIVE_S_MAX = 300.0
CALM_S = 3.0
REST_S = 10.0
PACE_S = 0.1


@dataclass(frozen=True, slots=True)
class Carried:
    """What carrying so many records to so many targets cost."""

    targets: int
    together: bool
    records: int
    seconds: float
    copies: float
    cpu_s: float
    tasks_cpu_s: float
    memory_mb: float
    rest_cpu: float  # what the mirror takes while nothing comes, as a part of a core

    @property
    def cpu_us(self) -> float:
        """For a record and a target, of the whole mirror, above what it takes at rest."""
        return self.all_us - self.rest_cpu * self.seconds / self.records / self.targets * 1e6

    @property
    def all_us(self) -> float:
        """For a record and a target, of the whole mirror."""
        return self.cpu_s / self.records / self.targets * 1e6

    @property
    def tasks_us(self) -> float:
        """For a record and a target, of the tasks that carry tasks."""
        return self.tasks_cpu_s / self.records / self.targets * 1e6

    def __str__(self) -> str:
        how = "a broadcast" if self.together else "links"
        return (
            f"{self.targets} targets by {how}: {self.copies:.3f} copies left the source; for a record and a target"
            f" {self.cpu_us:.2f} us of CPU above rest ({self.rest_cpu:.1%} of a core), {self.all_us:.2f} with it,"
            f" {self.tasks_us:.2f} in tasks;"
            f" {self.records / self.seconds:,.0f} records/s each, {self.memory_mb:,.0f} MB"
        )


class Place:
    """A source behind a counting proxy, targets, and one mirror at a time between them."""

    def __init__(self, source: RigCluster, targets: Sequence[RigCluster], workload: Workload) -> None:
        self.source, self.targets, self.workload = source, targets, workload
        self._run = 0

    def given(self) -> int:
        """Bytes that the source has sent to the mirror so far."""
        return sum(proxy.counters().bytes_to_source for proxy in self.source.proxies)

    def settings(self, folder: Path, topic: str, targets: Sequence[RigCluster], *, together: bool, tasks: int) -> str:
        lines = ["[store]", f'url = "sqlite:///{folder / "store.db"}"']
        reached = (one.wan_cluster if one.proxies else one.cluster for one in targets)
        for cluster in (self.source.wan_cluster, *reached):
            lines += [f"[clusters.{cluster.name}]", f"bootstrap = {list(cluster.bootstrap)}"]
        for one in targets:
            lines += [f'[links."{self.source.name}->{one.name}"]', f'topics = ["{topic}.*"]']
            lines += ['broadcast = "prices"'] if together else []
        # One task run, so that each task is there from the beginning to the end.
        lines += [
            "[mirror]",
            "task_run_s = 600",
            f"tasks_per_link = {tasks}",
            "heartbeat_s = 0",
            "disk_warn_percent = 0",
        ]
        return "\n".join(lines) + "\n"

    @contextmanager
    def mirror(self, count: int, *, together: bool, tasks: int = 1) -> Iterator[tuple[MirrorProcess, str]]:
        """A mirror to so many targets that has carried something to each, and the topic that it carries."""
        self._run += 1
        topic, targets = f"prices-{self._run:04}", self.targets[:count]
        self.source.create_topic(topic, partitions=PARTITIONS)
        TopicEndReader(self.source.cluster, topic, PARTITIONS).wait_ready()
        for one in targets:
            forget_links(one.cluster)
        with tempfile.TemporaryDirectory() as folder:
            text = self.settings(Path(folder), topic, targets, together=together, tasks=tasks)
            process = MirrorProcess(Path(folder), text)
            process.start()
            try:
                written = load(self.source.cluster, topic, self.workload.batches, 1_000)
                self.until(process, topic, count, written, BEGIN_S_MAX)
                time.sleep(CALM_S)
                yield process, topic
            finally:
                process.end()

    def until(self, process: MirrorProcess, topic: str, count: int, records: int, within_s: float) -> None:
        """Returns once each target has so many records."""
        ends = [TopicEndReader(one.cluster, topic, PARTITIONS) for one in self.targets[:count]]
        begun_s = time.monotonic()
        while any(end.records() < records for end in ends):
            process.check()
            if time.monotonic() - begun_s > within_s:
                raise StageError(f"not within {within_s:g} s: {[end.records() for end in ends]} of {records}")
            time.sleep(0.02)

    def write(self, topic: str, records: int, rate: float) -> int:
        """As fast as the source takes them, or so many a second; returns how many were written."""
        if not rate:
            return load(self.source.cluster, topic, self.workload.batches, records)
        begun_s, written = time.monotonic(), 0
        while written < records:
            written += load(self.source.cluster, topic, self.workload.batches, int(rate * PACE_S))
            time.sleep(max(0.0, begun_s + written / rate - time.monotonic()))
        return written

    def carried(self, count: int, records: int, rate: float, *, together: bool) -> Carried:
        """What is written, and carried meanwhile."""
        with self.mirror(count, together=together) as (process, topic):
            first = TopicEndReader(self.source.cluster, topic, PARTITIONS).records()
            tree = ProcessTree(process.child.pid)
            rest_cpu = _rest_cpu(tree)
            cpu_s, tasks_s, given, begun_s = tree.cpu_s(), _tasks_s(process), self.given(), time.monotonic()
            written = self.write(topic, records, rate)
            self.until(process, topic, count, first + written, ARRIVE_S_MAX)
            seconds = time.monotonic() - begun_s
            cpu_s, tasks_s, given = tree.cpu_s() - cpu_s, _tasks_s(process) - tasks_s, self.given() - given
            size = written * self.workload.bytes_per_record
            return Carried(count, together, written, seconds, given / size, cpu_s, tasks_s, tree.memory_mb(), rest_cpu)


def _rest_cpu(tree: ProcessTree) -> float:
    """What it takes while nothing comes, as a part of a core."""
    cpu_s, begun_s = tree.cpu_s(), time.monotonic()
    time.sleep(REST_S)
    return (tree.cpu_s() - cpu_s) / (time.monotonic() - begun_s)


def _tasks_s(process: MirrorProcess) -> float:
    """CPU of Spark's Python workers, which carry tasks, so far."""
    total = 0.0
    for one in process.look():
        with contextlib.suppress(psutil.Error):
            if (
                any("pyspark" in word or "forked_workers" in word for word in one.cmdline()[:6])
                and "java" not in one.name()
            ):
                times = one.cpu_times()
                total += times.user + times.system
    return total


@contextmanager
def stage(targets: int, workload: Workload, *, far: int = 0) -> Iterator[Place]:
    """The clusters, ready. The mirror reaches the last `far` targets through a proxy each, which can slow it down."""
    with ExitStack() as stack:
        source = stack.enter_context(RigCluster(SOURCE, heap_mb=HEAP_MB, via_proxy=True))
        numbers = range(1, targets + 1)
        named = [RigCluster(f"target{one}", heap_mb=HEAP_MB, via_proxy=one > targets - far) for one in numbers]
        yield Place(source, [stack.enter_context(one) for one in named], workload)


def main() -> int:
    """Measures, and says so."""
    parser = argparse.ArgumentParser(prog="python -m bench.measure.broadcast", description=__doc__)
    parser.add_argument("--targets", type=int, nargs="+", default=list(TARGETS))
    parser.add_argument("--records", type=int, default=0)
    parser.add_argument(
        "--rate", type=float, default=RATE, help="records a second; 0: as fast as the source takes them"
    )
    parser.add_argument("--workload", choices=("plain", "lz4"), default="plain")
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--only", choices=("broadcast", "links"), default="")
    asked = parser.parse_args()
    records = asked.records or (RECORDS_SHORT if asked.short else RECORDS)
    workload = plain() if asked.workload == "plain" else lz4()
    flat: dict[str, object] = {"bench": "broadcast", "workload": workload.name}
    with stage(max(asked.targets), workload) as place:
        for count in asked.targets:
            for together in (True, False):
                if asked.only and together != (asked.only == "broadcast"):
                    continue
                found = place.carried(count, records, asked.rate, together=together)
                print(found, file=sys.stderr, flush=True)
                name = f"{'broadcast' if together else 'links'}_{count}"
                flat |= {f"{name}_copies": round(found.copies, 3), f"{name}_cpu_us": round(found.cpu_us, 3)}
                flat |= {
                    f"{name}_records_s": round(found.records / found.seconds),
                    f"{name}_all_us": round(found.all_us, 3),
                    f"{name}_tasks_us": round(found.tasks_us, 3),
                    f"{name}_mb": round(found.memory_mb),
                }
    print(json.dumps(flat))
    return 0


if __name__ == "__main__":
    sys.exit(main())
