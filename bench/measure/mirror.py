"""`python -m bench.measure.mirror`: Twinshore beside MirrorMaker 2, on the same clusters, in one run, by turns."""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from bench.kit.ballast import Ballast
from bench.kit.machine import Machine, this_machine
from bench.kit.page import write_section
from bench.kit.tree import end_in_order_on_sigterm
from bench.measure.drain import Drain, Sides, drain
from bench.measure.latency import Latency, Pace, copied_latency, direct_latency
from testkit.clients import delete_all_topics
from testkit.copiers import Copier, CopyJob, MirrorMaker, Twinshore, bench_cluster, mirror_makers
from testkit.figures import WindowRule, median, ratio
from testkit.loader import PARTITIONS, WARM_PART, WORKLOADS, Workload, load, warm_broker, warm_source
from testkit.watermarks import TopicEndReader

OURS, THEIRS = Twinshore().name, MirrorMaker().name
PARTS = (*WORKLOADS, "latency", "replicated")
SHORT_PARTS = (*WORKLOADS, "latency")
LATENCY_RATE = 100
Run = TypeVar("Run", Drain, Latency)
_RUN_S = 10.0


@dataclass(frozen=True, slots=True)
class Plan:
    """How long each thing is measured."""

    short: bool
    rule: WindowRule
    repeats: int
    paces: tuple[Pace, ...]
    direct_s: float


SHORT = Plan(True, WindowRule(8, 0.3, 8), 2, (Pace(LATENCY_RATE, 20, 45),), 10)
FULL = Plan(False, WindowRule(12, 0.3, 15), 3, (Pace(LATENCY_RATE, 20, 120), Pace(1_000, 20, 60)), 20)
LATENCY_REPEATS = 2


@dataclass(frozen=True, slots=True)
class MirrorBench:
    """Every run, in order. `peers` says which of MirrorMaker's settings was the faster one for each workload."""

    machine: Machine
    plan: Plan
    drains: tuple[Drain, ...]
    replicated: tuple[Drain, ...]
    latencies: tuple[Latency, ...]
    peers: tuple[tuple[str, str], ...]

    def figures(self) -> dict[str, float]:
        """Ours divided by theirs; only those that were measured."""
        found: dict[str, float] = {}
        for workload, _ in self.peers:
            ours, theirs = self.pair(workload)
            found[f"{workload}_rate"] = ratio(middle(ours, _rate), middle(theirs, _rate))
            found[f"{workload}_cpu"] = ratio(middle(ours, _cpu), middle(theirs, _cpu))
        mine, other = self.delays(OURS), self.delays(THEIRS)
        if mine and other:
            found["p50"] = ratio(middle(mine, _p50), middle(other, _p50))
            found["p99_vs_p50"] = ratio(middle(mine, _p99), middle(other, _p50))
            found["p999"] = ratio(middle(mine, _p999), middle(other, _p999))
        if "plain" in dict(self.peers):
            found["task_share"] = ratio(middle(self.pair("plain")[0], lambda one: one.window.task_share), 1)
        return found

    def words(self) -> dict[str, str]:
        """By figure: what was divided by what, and how often it was measured."""
        found: dict[str, str] = {}
        for workload, peer in self.peers:
            pair = self.pair(workload)
            runs = f"{len(pair[0])} and {len(pair[1])} runs of {self.plan.rule.window_s:g} s"
            rates, costs = ([middle(one, figure) for one in pair] for figure in (_rate, _cpu))
            found[f"{workload}_rate"] = f"{rates[0]:,.0f}/s by {rates[1]:,.0f}/s of MirrorMaker with {peer}, {runs}"
            found[f"{workload}_cpu"] = f"{costs[0]:.2f} us by {costs[1]:.2f} us of MirrorMaker with {peer}, {runs}"
        mine, other = self.delays(OURS), self.delays(THEIRS)
        for name, (ours, theirs) in {"p50": (_p50, _p50), "p99_vs_p50": (_p99, _p50), "p999": (_p999, _p999)}.items():
            if mine and other:
                counted = f"{sum(one.records for one in mine):,} records in {len(mine)} runs"
                values = f"{middle(mine, ours):.1f} ms by {middle(other, theirs):.1f} ms"
                found[name] = f"{values}, {counted} at {LATENCY_RATE}/s"
        return found

    def delays(self, copier: str) -> list[Latency]:
        """The runs at the rate that the figures are of."""
        return [one for one in self.latencies if (one.copier, one.rate) == (copier, LATENCY_RATE)]

    def cpu_us(self, workload: str) -> float:
        """What a record of this workload cost us."""
        return middle(self.pair(workload)[0], _cpu)

    def pair(self, workload: str) -> tuple[list[Drain], list[Drain]]:
        """Our runs of a workload, and the peer's."""
        of = [one for one in self.drains if one.workload == workload]
        peer = dict(self.peers)[workload]
        return [one for one in of if one.copier == OURS], [
            one for one in of if (one.copier, one.setting) == (THEIRS, peer)
        ]

    def to_json(self) -> str:
        """One flat line."""
        order = [f"{name}_rate" for name in WORKLOADS] + [f"{name}_cpu" for name in WORKLOADS]
        order += ["p50", "p99_vs_p50", "p999", "task_share"]
        found = self.figures()
        return json.dumps({"bench": "mirror"} | {name: found[name] for name in order if name in found})


def middle(runs: Sequence[Run], figure: Callable[[Run], float]) -> float:
    """The median of a figure over several runs."""
    return median([figure(one) for one in runs])


def _p50(one: Latency) -> float:
    return one.p50_ms


def _p99(one: Latency) -> float:
    return one.p99_ms


def _p999(one: Latency) -> float:
    return one.p999_ms


def _rate(one: Drain) -> float:
    return one.window.rate


def _cpu(one: Drain) -> float:
    return one.window.cpu_us


def run_mirror_bench(
    short: bool = False, only: Collection[str] = (), say: Callable[[str], None] = print
) -> MirrorBench:
    """Measures the parts in `only` (PARTS; by default all, and in a short run SHORT_PARTS). `say` gets progress."""
    plan = SHORT if short else FULL
    parts = [part for part in PARTS if part in (only or (SHORT_PARTS if short else PARTS))]
    run = _Run(plan, say)
    with bench_cluster("east") as east, bench_cluster("west") as west:
        sides = Sides(east, west)
        with Ballast() as ballast:
            for part in parts:
                if part in WORKLOADS:
                    run.workload(sides, ballast, WORKLOADS[part]())
        if "latency" in parts:  # Without ballast: letting go of it would show in the rarest delays.
            run.latency(sides)
    if "replicated" in parts:
        with Ballast() as ballast:
            run.replicated_plain(ballast)
    return run.result()


class _Run:
    """One bench run: what was measured so far."""

    def __init__(self, plan: Plan, say: Callable[[str], None]) -> None:
        self._plan = plan
        self._say = say
        self._numbers: Iterator[int] = itertools.count(1)
        self._drains: list[Drain] = []
        self._replicated: list[Drain] = []
        self._latencies: list[Latency] = []
        self._peers: dict[str, MirrorMaker] = {}

    def result(self) -> MirrorBench:
        peers = tuple((workload, peer.setting) for workload, peer in self._peers.items())
        return MirrorBench(
            this_machine(), self._plan, tuple(self._drains), tuple(self._replicated), tuple(self._latencies), peers
        )

    def workload(self, sides: Sides, ballast: Ballast, workload: Workload) -> None:
        """Each of MirrorMaker's settings once, ours after the first; then the fastest and ours by turns."""
        backlog = self._load(sides, workload, copies=1)
        warm_broker(sides.target, workload)
        warm_source(sides.source, workload.topic, workload.short_backlog // WARM_PART)
        tried: list[tuple[float, MirrorMaker]] = []
        for setting in mirror_makers(workload.name):
            found = self._drain(sides, ballast, workload, setting, backlog)
            tried.append((found.window.rate, setting))
            if len(tried) == 1:
                self._drain(sides, ballast, workload, Twinshore(), backlog)
        fastest = max(tried, key=lambda each: each[0])[1]
        self._peers[workload.name] = fastest
        for copier in (fastest, Twinshore()) * (self._plan.repeats - 1):
            self._drain(sides, ballast, workload, copier, backlog)
        delete_all_topics(sides.source.cluster)

    def latency(self, sides: Sides) -> None:
        """Ours changes its Spark task every task run: a short one, so that many borders lie in the counted time."""
        peer = self._peers.get("plain", MirrorMaker())
        copiers: tuple[Copier, ...] = (peer, Twinshore(task_run_s=_RUN_S))
        for pace in self._plan.paces:
            topic = self._new_topic(sides, f"bench-direct-{pace.rate}")
            direct = Pace(pace.rate, pace.warm_s, self._plan.direct_s)
            self._took(direct_latency(sides.source.cluster, topic, direct))
            for copier in copiers * LATENCY_REPEATS:
                run = next(self._numbers)
                job = CopyJob(
                    sides.source.cluster, sides.target.cluster, self._new_topic(sides, f"bench-pace-{run}"), run
                )
                self._took(copied_latency(copier, job, pace))
                delete_all_topics(sides.target.cluster)
            delete_all_topics(sides.source.cluster)

    def replicated_plain(self, ballast: Ballast) -> None:
        """The plain workload between clusters of three brokers, everything in three copies."""
        with (
            bench_cluster("east", brokers=3) as east,
            bench_cluster("west", brokers=3) as west,
        ):
            sides, workload = Sides(east, west), WORKLOADS["plain"]()
            warm_broker(west, workload)
            backlog = self._load(sides, workload, copies=3)
            peer = self._peers.get("plain", MirrorMaker())
            for copier in (peer, Twinshore()) * min(2, self._plan.repeats):
                self._replicated.append(self._one_drain(sides, ballast, workload, copier, backlog, copies=3))

    def _load(self, sides: Sides, workload: Workload, *, copies: int) -> int:
        self._new_topic(sides, workload.topic, copies=copies)
        wanted = workload.short_backlog if self._plan.short or copies > 1 else workload.backlog
        begun_s = time.monotonic()
        backlog = load(sides.source.cluster, workload.topic, workload.batches, wanted)
        self._say(f"{workload.name}: {backlog:,} records lie ready after {time.monotonic() - begun_s:.0f} s")
        return backlog

    def _drain(self, sides: Sides, ballast: Ballast, workload: Workload, copier: Copier, backlog: int) -> Drain:
        found = self._one_drain(sides, ballast, workload, copier, backlog, copies=1)
        self._drains.append(found)
        return found

    def _one_drain(
        self, sides: Sides, ballast: Ballast, workload: Workload, copier: Copier, backlog: int, *, copies: int
    ) -> Drain:
        job = CopyJob(sides.source.cluster, sides.target.cluster, workload.topic, next(self._numbers), copies)
        found = drain(copier, job, workload, sides, ballast, backlog, self._plan.rule)
        delete_all_topics(sides.target.cluster)
        delete_all_topics(sides.source.cluster, keep=workload.topic)
        window = found.window
        self._say(
            f"{workload.name}: {found.copier} ({found.setting}) {window.rate:,.0f} records/s, {window.cpu_us:.2f} us"
            f" of CPU each, over {window.seconds:.1f} s, others on {window.others_cores:.1f}"
            f" cores; first record after {found.startup_s:.1f} s"
        )
        return found

    def _new_topic(self, sides: Sides, topic: str, *, copies: int = 1) -> str:
        sides.source.create_topic(topic, partitions=PARTITIONS, copies=copies)
        TopicEndReader(sides.source.cluster, topic, PARTITIONS).wait_ready()
        return topic

    def _took(self, found: Latency) -> None:
        self._latencies.append(found)
        self._say(
            f"latency at {found.rate}/s: {found.copier} {found.setting or '-'}: p50 {found.p50_ms:.1f}, p99"
            f" {found.p99_ms:.1f}, p99.9 {found.p999_ms:.1f}, worst {found.max_ms:.1f} ms"
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Progress to standard error, the page to docs/benchmarks.md, one line of JSON to standard output."""
    from bench.measure.mirror_page import mirror_section

    parser = argparse.ArgumentParser(prog="bench.measure.mirror", description=__doc__)
    parser.add_argument("--short", action="store_true", help="about 12 minutes in place of 30; does not write the page")
    parser.add_argument("--only", default="", help=f"some of {','.join(PARTS)}; does not write the page")
    parser.add_argument("--page", type=Path, help="write this page, whatever was measured")
    chosen = parser.parse_args(arguments)
    end_in_order_on_sigterm()
    only = [part for part in chosen.only.split(",") if part]
    unknown = [part for part in only if part not in PARTS]
    if unknown:
        parser.error(f"--only {unknown[0]}: there is {', '.join(PARTS)}")
    found = run_mirror_bench(chosen.short, only, lambda line: print(line, file=sys.stderr, flush=True))
    whole = not chosen.short and not only
    write_section("mirror", mirror_section(found), chosen.page, by_default=whole)
    print(found.to_json(), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
