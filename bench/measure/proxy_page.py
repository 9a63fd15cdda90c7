"""What `bench.measure.proxy` found, as a section of docs/benchmarks.md."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bench.kit.page import table
from bench.kit.proxies import KROXYLICIOUS, PEERS, UVLOOP
from bench.measure.proxy import (
    ALL,
    ALL_ACKS,
    BATCH_BYTES,
    BULK,
    FETCH,
    LZ4,
    NONE,
    ONE,
    PARTITIONS,
    ProxyBench,
    Run,
    cpu_of,
    p50_of,
    p99_of,
    rate_of,
)
from bench.measure.proxy_load import RECORD_BYTES

_SAYS = {
    BULK: f"produce in bulk: {RECORD_BYTES:,}-byte records, batches up to {BATCH_BYTES >> 10} KB, uncompressed",
    LZ4: "produce in bulk: the same in lz4",
    ONE: "one record to a request, one request at a time, acks=1",
    ALL_ACKS: "one record to a request, one request at a time, acks=all",
    FETCH: "fetch in bulk: what the first one wrote",
}
_HOW = """\
**How.** All stand before the same broker at once, idle but for the one whose turn it is; one client of librdkafka in a
process of its own produces to or reads {partitions} partitions through it. Each proxy has a first turn that is not
counted, and then {repeats}, by turns; a figure is the median. CPU is the proxy's process tree's, user and system, and
what brokers and clients take is not in it. All share the machine's cores, so a rate is what is left for a proxy beside
its broker and its client.

**Ours** stands before two clusters, follows homes, and has a quota and breakers with limits for all topics, so that all
that passes is measured; no limit is reached. **The forwarder** is {uvloop}, in Python too, and reads nothing of what
it passes on: it is the limit, not a peer. **The peers** are kafka-proxy, a
program in Go, and Kroxylicious {kroxylicious} without filters; both know one cluster, and look at less."""
_CROWD = """\
Each client has asked for versions and metadata and has written a record; then {idle:,} of them are idle and {busy}
write one now and then. Memory is the proportional set size, of a fresh process."""


def proxy_section(found: ProxyBench) -> str:
    """Markdown."""
    plan, machine = found.plan, found.machine
    parts = ["## The proxy beside others"]
    parts.append(f"On {machine.dated()}.")
    uvloop = UVLOOP.replace("==", " ")
    parts.append(_HOW.format(partitions=PARTITIONS, repeats=plan.repeats, uvloop=uvloop, kroxylicious=KROXYLICIOUS))
    if found.absent:
        absent = [f"- {name}: {why}" for name, why in found.absent]
        parts.append("\n".join(["**Not here**, and what stands on it says null:", "", *absent]))
    for part, says in _SAYS.items():
        if any(one.part == part for one in found.runs):
            parts += [f"### {says[0].upper()}{says[1:]}", _medians(found, part)]
    if found.crowds:
        parts += ["### Many clients", _CROWD.format(idle=plan.idle, busy=plan.busy), _crowds(found)]
    if found.runs:
        parts += ["### Every turn", _EVERY, _runs(found.runs)]
    parts.append(f"The line that the bench ends with, ours by the best peer's:\n\n```json\n{found.to_json()}\n```")
    return "\n\n".join(parts)


_EVERY = '"others\' cores" is how many cores were busy with what is neither proxy, broker nor client.'

_NOISE = "No rates: a proxy was faster than none in the middle of its turns, so these say more of the machine."


def _medians(found: ProxyBench, part: str) -> str:
    peers = [peer.name for peer in PEERS]
    best = found.best(part, cpu_of, min)
    rates = {one.name: found.middle(part, one.name, rate_of) or 0.0 for one in ALL}
    is_noise = 0.0 < rates[NONE] < max(rates.values())
    rows = []
    for name in (one.name for one in ALL if not (is_noise and one.name == NONE)):
        cpu = found.middle(part, name, cpu_of)
        if cpu is None:
            continue
        beside = f"{cpu / best:.2f}x" if best and name != NONE and name not in peers else ""
        figures: list[tuple[Callable[[Run], float], str]] = [] if is_noise else [(rate_of, ",.0f")]
        figures += [(p50_of, ".3f"), (p99_of, ".3f")] if part in (ONE, ALL_ACKS) else []
        told = [format(found.middle(part, name, figure) or 0.0, shape) for figure, shape in figures]
        rows.append([name, f"{cpu:.2f}" if name != NONE else "", beside, *told])
    head = ["through", "CPU us/record", "CPU by the best peer's", *([] if is_noise else ["records/s"])]
    page = table(head + (["p50 ms", "p99 ms"] if part in (ONE, ALL_ACKS) else []), rows)
    return f"{page}\n\n{_NOISE}" if is_noise else page


def _crowds(found: ProxyBench) -> str:
    rows = [
        [
            one.proxy,
            f"{one.clients:,}",
            f"{one.memory_mb:,.0f}",
            f"{one.empty_mb:,.0f}",
            f"{max(0.0, one.memory_mb - one.empty_mb) / one.clients * 1000:.1f}",
            f"{one.writes_s:,.0f}",
            f"{one.cores:.2f}",
        ]
        for one in found.crowds
    ]
    head = ["through", "clients", "memory MB", "with no client", "KB for each", "writes/s", "cores"]
    return table(head, rows)


def _runs(runs: Sequence[Run]) -> str:
    rows = [
        [
            f"{one.part}: {one.proxy}",
            f"{one.rate:,.0f}",
            f"{one.cpu_us:.2f}",
            f"{one.p50_ms:.3f}" if one.p50_ms else "",
            f"{one.seconds:.1f}",
            f"{one.others_cores:.2f}",
        ]
        for one in runs
    ]
    return table(["in order", "records/s", "CPU us/record", "p50 ms", "seconds", "others' cores"], rows)
