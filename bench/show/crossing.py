"""`python -m bench.show.crossing`: every claim about the mirror, tried on real parts; LONG=1 tries all at full size.

`--only NAME` tries one, and says of the others that they were not run; the page of evidence is not written then.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from bench.kit.claims import Claim, Finding, Once
from bench.kit.faulted import finding
from bench.kit.playing import ROOT
from bench.kit.showing import run_show, to_stderr
from bench.measure.mirror import MirrorBench, run_mirror_bench
from bench.measure.partitions import FLOWING_S_MAX, LATE_MS_MAX, PLAN_S_MAX, run_partitions_bench
from bench.measure.relay import bare_relay
from bench.measure.wan import ROUND_TRIP_MS, WanBench, run_wan_bench
from testkit.faults import run_faults
from testkit.figures import StageError
from testkit.loader import WORKLOADS

HEAD = """\
# The crossing, shown

Written by `make show-crossing`, which tries each claim on real clusters and fails when one falls short; no figure is
typed by hand. The full benches are in `docs/benchmarks.md` once `make bench-mirror` has run.
"""
DEMO_S_MAX = 120.0
FAULTS_RATE = 10_000
Measured = Callable[[bool], Finding]


@dataclass(frozen=True, slots=True)
class Bound:
    """A ratio, ours to MirrorMaker's, and what it must reach. `figure` is the bench's name for it."""

    name: str
    figure: str
    says: str
    least: float = 0.0
    most: float = float("inf")
    under: float = float("inf")

    def holds(self, value: float) -> bool:
        """Whether this ratio keeps the promise."""
        return self.least <= value <= self.most and value < self.under


# What was promised. The bench's p99_vs_p50 is our p99 by MirrorMaker's p50.
AGAINST_MIRROR_MAKER = (
    Bound("plain-rate", "plain_rate", "1 KB plain records: at least twice a tuned MirrorMaker's records/s", least=2),
    Bound("lz4-rate", "lz4_rate", "JSON records in lz4: at least 4 times a tuned MirrorMaker's records/s", least=4),
    Bound("single-rate", "single_rate", "single-record batches: at least 4 times its records/s", least=4),
    Bound("plain-cpu", "plain_cpu", "1 KB plain records: at most 1/5.5 of its CPU per record", most=1 / 5.5),
    Bound("lz4-cpu", "lz4_cpu", "JSON records in lz4: at most 1/16 of its CPU per record", most=1 / 16),
    Bound("single-cpu", "single_cpu", "single-record batches: at most 1/10 of its CPU per record", most=1 / 10),
    Bound("p50", "p50", "latency p50 at 100/s: at most a third of MirrorMaker's", most=1 / 3),
    Bound("p99", "p99_vs_p50", "latency p99 at 100/s: under MirrorMaker's p50", under=1),
    Bound("p999", "p999", "latency p99.9 at 100/s, over the borders of task runs: under MirrorMaker's", under=1),
)
OVER_DISTANCE = (
    # Distance speeds nothing up: far above 1, something else slowed the near run, and nothing has been shown.
    Bound("wan-rate", "rate_kept", f"{ROUND_TRIP_MS:.0f} ms away: at least 80 % of the rate without it", 0.8, 1.3),
    # Both fetch the same batches; what may differ is what they say about them.
    Bound("wan-bytes", "bytes_per_record", "bytes on that line per record: MirrorMaker's, within 5 %", most=1.05),
)


@dataclass(frozen=True, slots=True)
class FaultRun:
    """A claim about faults. `faults` by default, `faults_long` at full size."""

    name: str
    says: str
    faults: int
    faults_long: int
    mirrors: int = 1
    brokers: int = 1
    leaders_move: bool = False


FAULT_RUNS = (
    FaultRun("faults", "random faults under 10 000 records/s, within 20 %: nothing lost, doubled or moved", 20, 60),
    FaultRun("two-mirrors", "the same with two whole mirrors started on one link", 8, 20, mirrors=2),
    FaultRun(
        "replicated",
        "the same with replication 3 while leaders move and followers lag",
        8,
        20,
        brokers=3,
        leaders_move=True,
    ),
)


def claims(seed: int, only: Collection[str] = ()) -> list[Claim]:
    """All that are measured, in the order of the promise; what those in `only` rest on is measured, nothing else."""
    parts = bench_parts(only)
    mirror = Once(lambda long: run_mirror_bench(short=not long, only=parts, say=to_stderr))
    wan = Once(lambda long: run_wan_bench(short=not long, say=to_stderr))
    found = [Claim("demo", f"`twinshore demo` ends identical, in less than {DEMO_S_MAX:.0f} s", _demo)]
    relay = Once(lambda _long: bare_relay())
    found += [
        Claim(bound.name, bound.says, _above_a_relay(bound, _measured(bound, mirror), mirror, relay))
        for bound in AGAINST_MIRROR_MAKER
    ]
    found += [Claim(bound.name, bound.says, _measured(bound, wan, "wan_")) for bound in OVER_DISTANCE]
    found += [Claim(run.name, run.says, _under_faults(run, seed)) for run in FAULT_RUNS]
    found.append(
        Claim(
            "partitions",
            f"1 000 partitions planned in {PLAN_S_MAX:.0f} s and flowing in {FLOWING_S_MAX:.0f} s, a trickle to all of"
            f" them {LATE_MS_MAX / 1000:.0f} s behind at most, memory and threads within bounds",
            _partitions,
        )
    )
    return found


def bench_parts(only: Collection[str]) -> list[str]:
    """The parts of the bench against MirrorMaker that these claims need; empty for all."""
    asked = [bound.figure for bound in AGAINST_MIRROR_MAKER if bound.name in only]
    workloads = [figure.partition("_")[0] for figure in asked if figure.endswith(("_rate", "_cpu"))]
    # The peer of the latency is MirrorMaker as it was faster with plain records.
    return workloads + (["plain", "latency"] if len(workloads) < len(asked) else [])


def _demo(_long: bool) -> Finding:
    begun_s = time.monotonic()
    command = [sys.executable, "-m", "twinshore.cli", "demo"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])}
    environment.pop("KEEP", None)
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=600, check=False)
    took_s = time.monotonic() - begun_s
    lines = done.stdout.strip().splitlines() or ["it said nothing"]
    last = re.fullmatch(r"demo: identical, (\d+) records, (\d+) partitions", lines[-1])
    if done.returncode or last is None:
        raise StageError(f"{lines[-1]} {done.stderr.strip()[-300:]}")
    figure = f"identical, {last[1]} records, {last[2]} partitions, in {took_s:.0f} s"
    return Finding(figure, took_s < DEMO_S_MAX, (("demo_s", round(took_s, 1)), ("demo_records", int(last[1]))))


def _measured(bound: Bound, bench: Callable[[bool], MirrorBench | WanBench], prefix: str = "") -> Measured:
    def run(long: bool) -> Finding:
        value = bench(long).figures()[bound.figure]
        # A small ratio is read more easily as a part: 1/9.6 and not 0.104.
        words = f"{value:.2f} times" if value >= 0.6 else f"1/{1 / value:.1f}"
        size = "" if long else ", short run"
        return Finding(
            f"{words}: {bench(long).words()[bound.figure]}{size}", bound.holds(value), ((prefix + bound.figure, value),)
        )

    return run


def _above_a_relay(bound: Bound, measured: Measured, bench: Once[MirrorBench], relay: Once[float]) -> Measured:
    """Beside what is said of MirrorMaker, how far our CPU is from what only passing the bytes on would take."""
    workload, _, what = bound.figure.partition("_")
    if what not in ("rate", "cpu"):
        return measured

    def run(long: bool) -> Finding:
        found = measured(long)
        least_us = relay(long) * WORKLOADS[workload]().bytes_per_record / 1024 / 1000
        times = bench(long).cpu_us(workload) / least_us
        figure = f"{found.figure}; our CPU is {times:.1f} times a bare relay's, {least_us:.2f} us"
        numbers = ((f"{workload}_above_relay", round(times, 2)),) if what == "cpu" else ()
        return Finding(figure, found.passed, found.numbers + numbers)

    return run


def _under_faults(plan: FaultRun, seed: int) -> Callable[[bool], Finding]:
    def run(long: bool) -> Finding:
        found = run_faults(
            faults=plan.faults_long if long else plan.faults,
            seed=seed,
            rate=FAULTS_RATE,
            mirrors=plan.mirrors,
            brokers=plan.brokers,
            leaders_move=plan.leaders_move,
            say=to_stderr,
        )
        return finding(found, plan.name.replace("-", "_"), FAULTS_RATE)

    return run


def _partitions(_long: bool) -> Finding:
    found = run_partitions_bench(say=to_stderr)
    numbers = (
        ("partitions", found.partitions),
        ("partitions_plan_s", round(found.plan_s, 2)),
        ("partitions_flowing_s", round(found.flowing_s, 1)),
        ("partitions_memory_mb", round(found.memory_mb)),
        ("partitions_driver_threads", found.driver_threads),
        ("partitions_late_ms", round(found.late_ms)),
    )
    return Finding(found.sentence(), found.bounded, numbers)


# What tests are marked with, in the order of the page.
KEYS = (
    "paused-pump",
    "beyond-2-31",
    "packed-better",
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Progress to standard error; the table and, last, one line of JSON to standard output."""
    return run_show("crossing", HEAD, claims, arguments, keys=KEYS)


if __name__ == "__main__":
    sys.exit(main())
