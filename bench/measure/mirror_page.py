"""What `bench.measure.mirror` found, as a section of docs/benchmarks.md."""

from __future__ import annotations

from collections.abc import Sequence

from bench.kit.page import table
from bench.measure.drain import Drain
from bench.measure.mirror import MirrorBench, middle
from testkit.loader import WORKLOADS

_HOW = """\
**How.** A topic of 4 partitions lies ready in the source. A copier is started afresh, without anything from an earlier
run, and copies it; its start is not counted. Counting begins {warm_s:g} s after its first record on the target, or when
{warm_part:.0%} of the backlog is copied if that is sooner, and ends with the backlog or after {window_s:g} s: one rule
for both. CPU is that of the copier's whole process tree, JVM and Python workers included; memory is its proportional
set size. The copiers run by turns; a figure is the median of its runs. Brokers and MirrorMaker run with the JVM
settings of Kafka's own start scripts.

**The peer.** MirrorMaker 2 runs in its dedicated mode, heartbeats and checkpoints off, at its defaults and at settings
that an operator would try: larger batches (in lz4 where the source is lz4), larger polls, two tasks. The one with the
highest rate is the peer for every figure of that workload, and the plain workload's that for latency and replication.
"""


def mirror_section(found: MirrorBench) -> str:
    """Markdown."""
    rule = found.plan.rule
    parts = ["## Beside MirrorMaker 2", f"On {found.machine.dated()}."]
    parts.append(_HOW.format(warm_s=rule.warm_s, warm_part=rule.warm_part, window_s=rule.window_s))
    if found.peers:
        parts += ["### Draining a backlog", _ratios(found), _medians(found.drains), _shares(found)]
    if found.latencies:
        parts += ["### Latency at a steady rate", _LATENCY, _latencies(found)]
    if found.replicated:
        parts += ["### With replication 3", _REPLICATED, _medians(found.replicated)]
    parts += ["### Every run", _RUNS, _runs([*found.drains, *found.replicated])]
    parts.append(f"The line that the bench ends with:\n\n```json\n{found.to_json()}\n```")
    return "\n\n".join(parts)


_LATENCY = """\
From the call of a producer to the hands of a consumer, one process and one clock, 1 KB records over 4 partitions. Our
copier hands its partitions to a new Spark task after each task run; here `task_run_s = 10` in place of 60, so that the
counted time holds many such hand-overs. The JVM has 20 s to get warm first, and the copiers run by turns. "none" is a
producer and a consumer on one cluster with no copier between them."""
_RUNS = """\
The copier's share is that of its own and the brokers' CPU; "others' cores" is how many cores everything else on the
machine kept busy meanwhile, the bench's own looks included: where that is much, the run was disturbed."""
_REPLICATED = "The plain workload between two clusters of three brokers on this machine, every topic in three copies."


def _ratios(found: MirrorBench) -> str:
    figures = found.figures()
    rows = [
        [
            f"{name}: {WORKLOADS[name]().says}",
            f"{figures[f'{name}_rate']:.2f}x",
            f"1/{1 / figures[f'{name}_cpu']:.1f}",
            peer,
        ]
        for name, peer in found.peers
    ]
    return table(["workload", "records/s, ours by theirs", "CPU per record, ours by theirs", "peer"], rows)


def _medians(drains: Sequence[Drain]) -> str:
    rows = []
    for workload, copier, setting in dict.fromkeys((one.workload, one.copier, one.setting) for one in drains):
        runs = [one for one in drains if (one.workload, one.copier, one.setting) == (workload, copier, setting)]
        rows.append(
            [
                f"{workload}: {copier}, {setting}",
                f"{middle(runs, lambda one: one.window.rate):,.0f}",
                f"{middle(runs, lambda one: one.window.cpu_us):.2f}",
                f"{middle(runs, lambda one: one.window.brokers_cpu_s / one.window.records * 1e6):.2f}",
                f"{middle(runs, lambda one: one.startup_s):.1f}",
                f"{middle(runs, lambda one: one.memory_mb):,.0f}",
                str(len(runs)),
            ]
        )
    head = ["copier", "records/s", "CPU us/record", "brokers' CPU us/record", "start s", "memory MB", "runs"]
    return table(head, rows)


def _shares(found: MirrorBench) -> str:
    if "plain" not in dict(found.peers):
        return ""
    ours, theirs = (middle(runs, lambda one: one.window.task_share) for runs in found.pair("plain"))
    return f"Of all CPU spent in the plain workload, brokers included, ours is {ours:.0%}, MirrorMaker's {theirs:.0%}."


def _latencies(found: MirrorBench) -> str:
    rows = [
        [
            f"{one.rate}/s: {', '.join(filter(None, [one.copier, one.setting]))}",
            *(f"{value:.1f}" for value in (one.p50_ms, one.p99_ms, one.p999_ms, one.max_ms)),
            f"{one.records:,}",
            f"{one.repeated:,}",
        ]
        for one in found.latencies
    ]
    return table(["copier", "p50 ms", "p99 ms", "p99.9 ms", "worst ms", "records", "came twice"], rows)


def _runs(drains: Sequence[Drain]) -> str:
    rows = [
        [
            f"{one.workload}: {one.copier}, {one.setting}",
            f"{one.window.rate:,.0f}",
            f"{one.window.cpu_us:.2f}",
            f"{one.window.task_share:.0%}",
            f"{one.window.others_cores:.2f}",
            f"{one.window.seconds:.1f}",
            f"{one.window.records:,}",
        ]
        for one in drains
    ]
    head = ["in order", "records/s", "CPU us/record", "copier's share of CPU", "others' cores", "window s", "records"]
    return table(head, rows)
