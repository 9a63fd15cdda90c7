"""`python -m bench.measure.wan`: the source is far away, 60 ms there and back; the copier stands beside the target."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.kit.ballast import Ballast
from bench.kit.machine import Machine, this_machine
from bench.kit.page import table, write_section
from bench.kit.tree import end_in_order_on_sigterm
from bench.measure.drain import Drain, Sides, drain
from bench.measure.mirror import OURS, THEIRS, middle
from testkit.clients import delete_all_topics
from testkit.copiers import Copier, CopyJob, Twinshore, bench_cluster, mirror_makers
from testkit.figures import WindowRule, ratio
from testkit.loader import PARTITIONS, WORKLOADS, load, warm_broker
from testkit.watermarks import TopicEndReader

ROUND_TRIP_MS = 60.0
WORKLOAD = "plain"
# The window ends with the backlog for both: what copiers read ahead would bend the bytes on the line.
# MirrorMaker, at its defaults, needs most of a minute for it at this distance.
_BACKLOG = 1_500_000
_RULE = WindowRule(8, 0.3, 600)


@dataclass(frozen=True, slots=True)
class Crossing:
    """One drain over the line at one delay."""

    round_trip_ms: float
    drain: Drain


@dataclass(frozen=True, slots=True)
class WanBench:
    """Every run, in order."""

    machine: Machine
    crossings: tuple[Crossing, ...]

    def of(self, copier: str, setting: str, round_trip_ms: float) -> list[Crossing]:
        """The runs of one copier at one delay."""
        return [
            one
            for one in self.crossings
            if (one.drain.copier, one.drain.setting, one.round_trip_ms) == (copier, setting, round_trip_ms)
        ]

    def rate(self, copier: str, setting: str, round_trip_ms: float) -> float:
        """Median records/s."""
        return middle([one.drain for one in self.of(copier, setting, round_trip_ms)], lambda one: one.window.rate)

    def line_bytes(self, copier: str, setting: str) -> float:
        """Bytes on the line for a record, both ways, at the full distance."""
        found = self.of(copier, setting, ROUND_TRIP_MS)
        return sum(one.drain.line_bytes for one in found) / len(found)

    def peer(self) -> str:
        """MirrorMaker's setting that is the faster one over the distance."""
        tried = {one.drain.setting for one in self.crossings if one.drain.copier != OURS}
        return max(tried, key=lambda setting: self.rate(THEIRS, setting, ROUND_TRIP_MS))

    def figures(self) -> dict[str, float]:
        """`rate_kept`: ours at the distance by ours without it. The others: ours by MirrorMaker's at the distance."""
        ours, peer = Twinshore().setting, self.peer()
        far = self.rate(OURS, ours, ROUND_TRIP_MS)
        return {
            "round_trip_ms": ROUND_TRIP_MS,
            "rate_kept": ratio(far, self.rate(OURS, ours, 0)),
            "rate": ratio(far, self.rate(THEIRS, peer, ROUND_TRIP_MS)),
            "bytes_per_record": ratio(self.line_bytes(OURS, ours), self.line_bytes(THEIRS, peer)),
        }

    def words(self) -> dict[str, str]:
        """By figure: what was divided by what."""
        ours, peer = Twinshore().setting, self.peer()
        near, far = (self.rate(OURS, ours, delay) for delay in (0, ROUND_TRIP_MS))
        lines = self.line_bytes(OURS, ours), self.line_bytes(THEIRS, peer)
        runs = f"{len(self.of(OURS, ours, ROUND_TRIP_MS))} runs each"
        return {
            "rate_kept": f"{far:,.0f}/s by {near:,.0f}/s through the same proxy without delay, {runs}",
            "bytes_per_record": f"{lines[0]:,.0f} bytes by {lines[1]:,.0f} of MirrorMaker with {peer}",
        }

    def to_json(self) -> str:
        """One flat line."""
        return json.dumps({"bench": "wan"} | self.figures())


def run_wan_bench(short: bool = False, say: Callable[[str], None] = print) -> WanBench:
    """Ours near and far by turns, twice or (long) three times; MirrorMaker at each setting far."""
    workload = WORKLOADS[WORKLOAD]()
    crossings = []
    with (
        bench_cluster("east", via_proxy=True) as east,
        bench_cluster("west") as west,
        Ballast() as ballast,
    ):
        sides = Sides(east, west, tuple(east.proxy(index) for index in range(len(east.brokers))))
        east.create_topic(workload.topic, partitions=PARTITIONS)
        TopicEndReader(east.cluster, workload.topic, PARTITIONS).wait_ready()
        warm_broker(west, workload)
        backlog = load(east.cluster, workload.topic, workload.batches, _BACKLOG)
        for run, (copier, round_trip_ms) in enumerate(_order(short), start=1):
            for proxy in sides.line:
                proxy.set_delay_ms(round_trip_ms / 2)
            job = CopyJob(east.wan_cluster, west.cluster, workload.topic, run)
            found = Crossing(round_trip_ms, drain(copier, job, workload, sides, ballast, backlog, _RULE))
            crossings.append(found)
            delete_all_topics(west.cluster)
            delete_all_topics(east.cluster, keep=workload.topic)
            say(
                f"{copier.name} ({copier.setting}) at {round_trip_ms:.0f} ms: {found.drain.window.rate:,.0f} records/s,"
                f" {found.drain.line_bytes:,.0f} bytes on the line for each"
            )
    return WanBench(this_machine(), tuple(crossings))


def _order(short: bool) -> list[tuple[Copier, float]]:
    near, far = (Twinshore(), 0.0), (Twinshore(), ROUND_TRIP_MS)
    theirs: list[tuple[Copier, float]] = [(setting, ROUND_TRIP_MS) for setting in mirror_makers(WORKLOAD, few=short)]
    return [theirs[0], near, far, *theirs[1:], far, near, *(() if short else (near, far))]


def wan_section(found: WanBench) -> str:
    """Markdown."""
    figures = found.figures()
    rows = [
        [
            f"{one.drain.copier}, {one.drain.setting}",
            f"{one.round_trip_ms:.0f}",
            f"{one.drain.window.rate:,.0f}",
            f"{one.drain.line_bytes:,.0f}",
        ]
        for one in found.crossings
    ]
    return "\n\n".join(
        [
            "## Over a distance",
            f"On {found.machine.dated()}.",
            "The plain workload. The source is reached through a TCP proxy that delays every byte; the copier stands "
            "beside the target. Bytes on the line are what the proxy counted, both ways.",
            table(["copier", "round trip ms", "records/s", "bytes on the line per record"], rows),
            f"At {ROUND_TRIP_MS:.0f} ms there and back ours keeps {figures['rate_kept']:.0%} of the rate that it has "
            f"through the same proxy without delay, {figures['rate']:.1f} times MirrorMaker's ({found.peer()}), with "
            f"{figures['bytes_per_record']:.3f} times the bytes on the line.",
            f"```json\n{found.to_json()}\n```",
        ]
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Progress to standard error, the section to docs/benchmarks.md, one line of JSON to standard output."""
    parser = argparse.ArgumentParser(prog="bench.measure.wan", description=__doc__)
    parser.add_argument(
        "--short", action="store_true", help="two rounds of ours in place of three; does not write the page"
    )
    parser.add_argument("--page", type=Path, help="write this page, however short the run")
    chosen = parser.parse_args(arguments)
    end_in_order_on_sigterm()
    found = run_wan_bench(chosen.short, lambda line: print(line, file=sys.stderr, flush=True))
    write_section("wan", wan_section(found), chosen.page, by_default=not chosen.short)
    print(found.to_json(), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
