"""`python -m bench.measure.proxy`: what clients pay for a proxy, ours beside two others and beside none.

Every proxy of this run stands before the same broker, and the same clients come by each in turn. Counted is the CPU
that a proxy's process takes, user and system, from /proc. Progress goes to standard error, the section to
docs/benchmarks.md, one line of JSON to standard output.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient

import twinshore
from bench.kit.machine import Machine, this_machine
from bench.kit.page import write_section
from bench.kit.proxies import PEERS, Between, Direct, Opaque, Ours, Serving, Site
from bench.kit.tree import ProcessTree, end_in_order_on_sigterm, machine_cpu_s
from testkit.cluster import RigCluster
from testkit.copiers import bench_cluster
from testkit.figures import StageError, median, ratio
from twinshore.lab.clients import create_admin_client
from twinshore.lab.processes import ChildProcess, LabError, log_tail, start_child
from twinshore.runtime.process import raise_open_files_limit

OURS, NONE = Ours().name, Direct().name
ALL: tuple[Between, ...] = (Direct(), Opaque(), Ours(), *PEERS)
PARTITIONS = 4
BATCH_BYTES = 256 << 10
# What passes: the part that --only names, and how the page calls it.
BULK, LZ4, ONE, ALL_ACKS, FETCH, CROWD = "bulk", "bulk-lz4", "small", "small-all", "fetch", "crowd"
PARTS = (BULK, LZ4, ONE, ALL_ACKS, FETCH, CROWD)
_EVERY_S = 0.2
_WITHIN_S = 600.0
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Plan:
    """How much of each."""

    repeats: int
    bulk_records: int
    small_records: int
    idle: int
    busy: int
    crowd_s: float


FULL = Plan(repeats=3, bulk_records=500_000, small_records=20_000, idle=5_000, busy=200, crowd_s=20)
SHORT = Plan(repeats=1, bulk_records=100_000, small_records=4_000, idle=500, busy=50, crowd_s=5)


@dataclass(frozen=True, slots=True)
class Run:
    """One turn of one proxy. `cpu_s` is the proxy's; `others_cores` is how many cores were busy with what is neither
    proxy, broker nor load."""

    part: str
    proxy: str
    records: int
    seconds: float
    cpu_s: float
    others_cores: float
    p50_ms: float = 0.0
    p99_ms: float = 0.0

    @property
    def rate(self) -> float:
        return self.records / self.seconds

    @property
    def cpu_us(self) -> float:
        return self.cpu_s / self.records * 1e6


@dataclass(frozen=True, slots=True)
class Crowd:
    """A proxy with so many clients: its memory with none and with all, and how much of a core the busy ones cost."""

    proxy: str
    clients: int
    empty_mb: float
    memory_mb: float
    writes_s: float
    cores: float


@dataclass(frozen=True, slots=True)
class ProxyBench:
    """All that was measured. `absent`: which proxy could not be had, and why."""

    machine: Machine
    plan: Plan
    runs: tuple[Run, ...]
    crowds: tuple[Crowd, ...]
    absent: tuple[tuple[str, str], ...]

    def middle(self, part: str, proxy: str, figure: Callable[[Run], float]) -> float | None:
        """The median of a figure; None where it was not measured."""
        found = [figure(one) for one in self.runs if (one.part, one.proxy) == (part, proxy)]
        return median(found) if found else None

    def best(self, part: str, figure: Callable[[Run], float], choose: Callable[[list[float]], float]) -> float | None:
        """That of the peer that does best."""
        found = [value for peer in PEERS if (value := self.middle(part, peer.name, figure)) is not None]
        return choose(found) if found else None

    def figures(self) -> dict[str, float | None]:
        """Ours by the best peer's, but for the last two, which are ours alone; None: what it takes is not there."""
        found = {
            f"{part}_cpu": _by(self.middle(part, OURS, cpu_of), self.best(part, cpu_of, min))
            for part in (BULK, ONE, FETCH)
        }
        found["rate"] = _by(self.middle(BULK, OURS, rate_of), self.best(BULK, rate_of, max))
        ours, none = (self.middle(ONE, name, p50_of) for name in (OURS, NONE))
        found["p50_added_ms"] = None if ours is None or none is None else round(ours - none, 3)
        held = [one.memory_mb for one in self.crowds if one.proxy == OURS]
        found[f"mb_{self.plan.idle}"] = round(held[0], 1) if held else None
        return found

    def to_json(self) -> str:
        """One flat line."""
        return json.dumps({"bench": "proxy", **self.figures()})


def _by(ours: float | None, theirs: float | None) -> float | None:
    return None if ours is None or theirs is None else ratio(ours, theirs)


def cpu_of(one: Run) -> float:
    return one.cpu_us


def rate_of(one: Run) -> float:
    return one.rate


def p50_of(one: Run) -> float:
    return one.p50_ms


def p99_of(one: Run) -> float:
    return one.p99_ms


class _Stage:
    """Two clusters, and the proxies that serve before the first one."""

    def __init__(self, plan: Plan, cluster: RigCluster, beside: RigCluster, say: Say) -> None:
        self._plan, self._cluster, self._beside, self._say = plan, cluster, beside, say
        self._numbers = itertools.count(1)
        self._admin: AdminClient = create_admin_client(cluster.cluster)
        self.runs: list[Run] = []
        self.crowds: list[Crowd] = []
        self.absent: dict[str, str] = {}

    @contextmanager
    def served(self, between: Between) -> Iterator[Serving | None]:
        """None where it cannot be had."""
        with tempfile.TemporaryDirectory(prefix="twinshore-bench-") as folder:
            serving = None
            if between.name not in self.absent:
                try:
                    serving = between.start(Site(self._cluster, self._beside.cluster, Path(folder)))
                except LabError as error:
                    self.absent[between.name] = str(error).splitlines()[0]
                    self._say(f"{between.name}: {error}")
            try:
                yield serving
            finally:
                if serving is not None:
                    serving.end()

    def turns(self, parts: Sequence[str], proxies: Sequence[Between]) -> None:
        """Each part, by all proxies in turn; the first turn warms them and is not counted."""
        with ExitStack() as stack:
            served = [(one.name, stack.enter_context(self.served(one))) for one in proxies]
            there = [(name, serving) for name, serving in served if serving is not None]
            for part in parts:
                lies = self._lies_ready(there) if part == FETCH else ""
                for turn in range(self._plan.repeats + 1):
                    for name, serving in there:
                        found = self._turn(part, name, serving, lies)
                        if turn:
                            self.runs.append(found)
                            self._say(_told(found))
                if lies:
                    self._delete(lies)

    def _lies_ready(self, there: Sequence[tuple[str, Serving]]) -> str:
        topic = self._new_topic(there)
        self._load(NONE, self._job(BULK, Serving(self._cluster.bootstrap[0]), topic))
        return topic

    def _turn(self, part: str, name: str, serving: Serving, lies: str) -> Run:
        topic = lies or self._new_topic([(name, serving)])
        tree = ProcessTree(serving.child.pid) if serving.child is not None else None
        begun_s, cpu_s, all_s, others_s = time.monotonic(), _cpu_s(tree), machine_cpu_s(), self._known_cpu_s()
        found = self._load(name, self._job(part, serving, topic))
        cpu_s, seconds = _cpu_s(tree) - cpu_s, time.monotonic() - begun_s
        others = machine_cpu_s() - all_s - cpu_s - (self._known_cpu_s() - others_s)
        if not lies:
            self._delete(topic)
        took = (found["seconds"], cpu_s, max(0.0, others) / seconds)
        return Run(part, name, int(found["records"]), *took, found.get("p50_ms", 0.0), found.get("p99_ms", 0.0))

    def _known_cpu_s(self) -> float:
        """That of brokers, and of loads that have ended."""
        ended = resource.getrusage(resource.RUSAGE_CHILDREN)
        brokers = [broker.pid for lab in (self._cluster, self._beside) for broker in lab.brokers]
        return sum(ProcessTree(pid).cpu_s() for pid in brokers) + ended.ru_utime + ended.ru_stime

    def _job(self, part: str, serving: Serving, topic: str) -> dict[str, Any]:
        kind = {BULK: "bulk", LZ4: "bulk", FETCH: "fetch"}.get(part, "single")
        records = self._plan.small_records if kind == "single" else self._plan.bulk_records
        return {
            "kind": kind,
            "bootstrap": serving.bootstrap,
            "topic": topic,
            "partitions": PARTITIONS,
            "records": records,
            "codec": "lz4" if part == LZ4 else "none",
            "batch_bytes": BATCH_BYTES,
            "acks": "all" if part == ALL_ACKS else 1,
        }

    def _load(self, name: str, job: dict[str, Any]) -> dict[str, float]:
        command = [sys.executable, "-m", "bench.measure.proxy_load", json.dumps(job)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_WITHIN_S, check=False, env=_path())
        if done.returncode:
            raise StageError(f"through {name} the load of {job['kind']} ended: {done.stderr.strip()[-800:]}")
        answer: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
        return answer

    def _new_topic(self, there: Sequence[tuple[str, Serving]]) -> str:
        """One that all of them know of."""
        topic = f"bench-{next(self._numbers)}"
        self._cluster.create_topic(topic, partitions=PARTITIONS)
        for name, serving in there:
            asker = AdminClient({"bootstrap.servers": serving.bootstrap, "log_level": 2})
            until_s = time.monotonic() + 60
            while any(one.leader < 0 for one in _partitions(asker, topic)) or not _partitions(asker, topic):
                if time.monotonic() > until_s:
                    raise StageError(f"{name} does not know of a new topic")
                time.sleep(0.05)
        return topic

    def _delete(self, topic: str) -> None:
        for gone in self._admin.delete_topics([topic], operation_timeout=20).values():
            gone.result(30)

    def crowd(self, between: Between) -> None:
        """With a fresh process, so that its memory is that of its clients."""
        with ExitStack() as stack:
            serving = stack.enter_context(self.served(between))
            if serving is None or serving.child is None:
                return
            tree = ProcessTree(serving.child.pid)
            topic = self._new_topic([(between.name, serving)])
            empty_mb = tree.memory_mb()
            job = {"bootstrap": serving.bootstrap, "topic": topic, "every_s": _EVERY_S}
            job |= {"idle": self._plan.idle, "busy": self._plan.busy}
            command = [sys.executable, "-m", "testkit.crowd", json.dumps(job)]
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="twinshore-crowd-")))
            log = folder / "log"
            child = start_child(command, folder=folder, log=log, environment=_path(), pipes=True)
            try:
                came = _line(child, log)
                cpu_s, begun_s = tree.cpu_s(), time.monotonic()
                time.sleep(self._plan.crowd_s)
                memory_mb, cores = tree.memory_mb(), (tree.cpu_s() - cpu_s) / (time.monotonic() - begun_s)
                os.write(child.stdin, b"\n")
                worked = _line(child, log)
            finally:
                child.end()
            found = Crowd(
                between.name, int(came["clients"]), empty_mb, memory_mb, worked["records"] / worked["seconds"], cores
            )
            self.crowds.append(found)
            self._say(
                f"{between.name}: {found.clients} clients after {came['seconds']:.0f} s, {found.memory_mb:.0f} MB"
                f" ({found.empty_mb:.0f} without), {found.writes_s:.0f} writes/s cost {found.cores:.2f} cores"
            )
            self._delete(topic)


def _partitions(asker: AdminClient, topic: str) -> list[Any]:
    return list(asker.list_topics(topic, timeout=30).topics[topic].partitions.values())


def _cpu_s(tree: ProcessTree | None) -> float:
    return tree.cpu_s() if tree is not None else 0.0


def _path() -> dict[str, str]:
    """For a child that runs a module of the bench."""
    root = Path(twinshore.__file__).resolve().parents[2]
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(root / "src"), str(root)])}


def _line(child: ChildProcess, log: Path) -> dict[str, float]:
    text = b""
    while not text.endswith(b"\n"):
        if not (got := os.read(child.stdout, 65_536)):
            raise StageError(f"the crowd has ended: {log_tail(log)}")
        text += got
    found: dict[str, float] = json.loads(text)
    return found


def _told(one: Run) -> str:
    latency = f", p50 {one.p50_ms:.3f} p99 {one.p99_ms:.3f} ms" if one.p50_ms else ""
    return (
        f"{one.part}: {one.proxy} {one.rate:,.0f} records/s, {one.cpu_us:.2f} us of CPU each{latency},"
        f" others on {one.others_cores:.2f} cores"
    )


def run_proxy_bench(plan: Plan, parts: Collection[str], proxies: Sequence[Between], say: Say) -> ProxyBench:
    """Measures these parts by these proxies. `say` gets progress."""
    raise_open_files_limit()
    with bench_cluster("east", via_proxy=True) as east, RigCluster("west", heap_mb=256) as west:
        stage = _Stage(plan, east, west, say)
        stage.turns([part for part in PARTS if part in parts and part != CROWD], proxies)
        if CROWD in parts:
            for one in proxies:
                try:
                    stage.crowd(one)
                except StageError as error:  # one that many clients are too much for does not end the others' figures
                    stage.absent[f"{one.name}, many clients"] = str(error).splitlines()[-1]
    return ProxyBench(this_machine(), plan, tuple(stage.runs), tuple(stage.crowds), tuple(stage.absent.items()))


def main(arguments: Sequence[str] | None = None) -> int:
    """Writes the page where all was measured."""
    from bench.measure.proxy_page import proxy_section

    parser = argparse.ArgumentParser(prog="bench.measure.proxy", description=__doc__)
    parser.add_argument("--short", action="store_true", help="a few minutes; does not write the page")
    parser.add_argument("--only", default="", help=f"some of {','.join(PARTS)}; does not write the page")
    parser.add_argument("--proxies", default="", help="beginnings of names, with commas; does not write the page")
    parser.add_argument("--page", type=Path, help="write this page, whatever was measured")
    chosen = parser.parse_args(arguments)
    end_in_order_on_sigterm()
    only, named = ([word for word in text.split(",") if word] for text in (chosen.only, chosen.proxies))
    if unknown := [part for part in only if part not in PARTS]:
        parser.error(f"--only {unknown[0]}: there is {', '.join(PARTS)}")
    proxies = [one for one in ALL if not named or any(one.name.startswith(name) for name in named)]
    found = run_proxy_bench(
        SHORT if chosen.short else FULL, only or PARTS, proxies, lambda line: print(line, file=sys.stderr, flush=True)
    )
    write_section("proxy", proxy_section(found), chosen.page, by_default=not (chosen.short or only or named))
    print(found.to_json(), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
