"""Claims about `twinshore link`: what operators change is in force while all runs, exact, and costs nobody else.

`python -m bench.show.control` tries them alone; LONG=1 measures for longer.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.kit.claims import Claim, Finding, Once
from bench.kit.showing import run_show
from testkit.control import (
    IN_FORCE_S,
    SETTLE_S,
    ControlStage,
    Latency,
    Neighbour,
    Throttled,
    drained,
    prioritised,
    throttle,
)
from twinshore.lab.cluster import LabCluster
from twinshore.lab.mirror_process import MirrorProcess, settings_of

HEAD = """\
# Live control, shown

Written by `python -m bench.show.control`, which changes a running link on real clusters; no figure is typed by hand.
"""
LINK = "east->west"
BOUND = 5_000_000
# Of the topic whose neighbour is watched: so little that it crosses through the whole of the watch.
BESIDE_BOUND = 200_000
OFF_MOST = 0.1
# What a machine that does other things besides may add by itself, between two measurements of the same.
NOISE = 1.5
NOISE_MS = 2.0
START_S = 120.0


@dataclass(frozen=True, slots=True)
class Trial:
    """All that one run of a mirror showed. While their neighbour was watched, `paused_bytes_s` of the paused topic
    crossed, and `beside` of the throttled one."""

    link: Throttled
    topic: Throttled
    alone: Latency
    beside_paused: Latency
    paused_bytes_s: float
    beside_throttled: Latency
    beside: Throttled
    resumed_s: float
    rate_of_priority: float


def run_trial(long: bool) -> Trial:
    """Two clusters, one mirror that is never started again, and every word of its operators."""
    during_s = 20.0 if long else 8.0
    with (
        LabCluster("east") as source,
        LabCluster("west") as target,
        tempfile.TemporaryDirectory(prefix="twinshore-show-") as folder,
    ):
        for topic in ("flow-one", "flow-two"):
            source.create_topic(topic, partitions=2)
        source.create_topic("flow-neighbour")
        # A border of task runs takes its milliseconds whatever stands beside it: none lies in a window.
        limits = {"refresh_s": 1, "tasks_per_link": 2, "task_run_s": 600}
        store = Path(folder) / "store.db"
        text = settings_of(source.cluster, target.cluster, store=store, topics="flow-.*", mirror=limits)
        mirror = MirrorProcess(Path(folder), text)
        stage = ControlStage(source.cluster, target.cluster, LINK, mirror.settings, lambda: mirror.said)
        mirror.start()
        try:
            return _played(stage, mirror, during_s)
        finally:
            mirror.end()


def _played(stage: ControlStage, mirror: MirrorProcess, during_s: float) -> Trial:
    stage.backlog("flow-one", 1_000_000)
    stage.backlog("flow-two", 1_000_000)
    for topic in ("flow-one", "flow-two"):
        drained(stage, topic, START_S)
    whole = throttle(stage, "flow-one", BOUND, during_s, whole_link=True)
    drained(stage, "flow-one")
    with Neighbour(stage.source, stage.target, "flow-neighbour") as neighbour:
        neighbour.latency(SETTLE_S)
        alone = neighbour.latency(during_s)
        one = throttle(stage, "flow-two", BOUND, during_s, whole_link=False)
        drained(stage, "flow-two")
        beside_throttled, beside = _throttled(stage, neighbour, during_s)
        beside_paused, paused_bytes_s, resumed_s = _paused(stage, neighbour, during_s)
    rates = prioritised(stage, "flow-one", "flow-two", BOUND, during_s)
    mirror.check()
    rate = rates["flow-one"] / max(1.0, rates["flow-two"])
    return Trial(whole, one, alone, beside_paused, paused_bytes_s, beside_throttled, beside, resumed_s, rate)


def _throttled(stage: ControlStage, neighbour: Neighbour, during_s: float) -> tuple[Latency, Throttled]:
    """The neighbour of a topic that has more to carry than it may, and what crossed of that topic meanwhile."""
    stage.tell("throttle", LINK, str(BESIDE_BOUND), "--topic", "flow-two")
    took_s = stage.in_force(f"flow-two at most {BESIDE_BOUND:,} bytes/s")
    # A fetch that was on its way before brings what it brings, and what is over the throttle is waited out.
    time.sleep(SETTLE_S)
    stage.backlog("flow-two", int(BESIDE_BOUND * (during_s + 6 * SETTLE_S)))
    time.sleep(SETTLE_S)
    found, bytes_s = stage.beside("flow-two", lambda: neighbour.latency(during_s))
    stage.tell("reset", LINK)
    drained(stage, "flow-two")
    return found, Throttled(bytes_s, BESIDE_BOUND, took_s)


def _paused(stage: ControlStage, neighbour: Neighbour, during_s: float) -> tuple[Latency, float, float]:
    """The neighbour of a topic that is paused and whose source grows on, the bytes per second of it that crossed all
    the same, and how long the topic needs to come back."""
    stage.tell("pause", LINK, "--topic", "flow-one")
    stage.in_force("topics flow-one paused")
    time.sleep(SETTLE_S)

    def grow_and_watch() -> Latency:
        stage.backlog("flow-one", 5_000_000)
        time.sleep(SETTLE_S)
        return neighbour.latency(during_s)

    found, bytes_s = stage.beside("flow-one", grow_and_watch)
    stage.tell("resume", LINK, "--topic", "flow-one")
    begun_s = time.monotonic()
    drained(stage, "flow-one")
    return found, bytes_s, time.monotonic() - begun_s


def claims(_seed: int = 0, _only: Collection[str] = ()) -> list[Claim]:
    """All rest on one run of about a minute."""
    trial = Once(run_trial)
    return [
        Claim(
            "throttle-link", "a throttle of a link is kept within 10 %", lambda long: _kept("link", trial(long).link)
        ),
        Claim(
            "throttle-topic",
            "a throttle of a topic is kept within 10 %",
            lambda long: _kept("topic", trial(long).topic),
        ),
        Claim(
            "paused-neighbour",
            "a paused topic stands and costs its neighbours nothing; resumed, it goes on within 5 s",
            lambda long: _unmoved("paused", trial(long), trial(long).beside_paused),
        ),
        Claim(
            "throttled-neighbour",
            "a topic that is held to its throttle, within 10 %, costs its neighbours nothing",
            lambda long: _unmoved("throttled", trial(long), trial(long).beside_throttled),
        ),
        Claim(
            "priority",
            "under a link's throttle a topic with four times the weight has four times the bytes, within a quarter",
            lambda long: _first(trial(long).rate_of_priority),
        ),
    ]


def _kept(name: str, found: Throttled) -> Finding:
    figure = f"{found.in_words()}: {100 * found.off:.1f} % off"
    numbers = (
        (f"throttle_{name}_off", round(found.off, 4)),
        (f"throttle_{name}_in_force_s", round(found.in_force_s, 2)),
    )
    return Finding(figure, found.off <= OFF_MOST and found.in_force_s <= IN_FORCE_S, numbers)


def _unmoved(name: str, trial: Trial, beside: Latency) -> Finding:
    alone = trial.alone
    figure = f"neighbour alone {alone.in_words()}; beside a {name} topic {beside.in_words()}"
    well = (
        beside.records_per_s >= 0.95 * alone.records_per_s
        and beside.p50_ms <= NOISE * alone.p50_ms + NOISE_MS
        and beside.p99_ms <= NOISE * alone.p99_ms + 5 * NOISE_MS
    )
    numbers = [(f"beside_{name}_p50_ms", round(beside.p50_ms, 2)), (f"beside_{name}_p99_ms", round(beside.p99_ms, 2))]
    if name == "paused":
        figure += f", of which {trial.paused_bytes_s:.0f} bytes/s cross"
        figure += f"; resumed, level again after {trial.resumed_s:.1f} s"
        well = well and trial.paused_bytes_s == 0 and trial.resumed_s <= IN_FORCE_S
        numbers.append(("resumed_s", round(trial.resumed_s, 2)))
    else:
        figure += f", of which {trial.beside.in_words()} cross"
        well = well and trial.beside.off <= OFF_MOST
        numbers.append((f"beside_{name}_off", round(trial.beside.off, 4)))
    return Finding(figure, well, tuple(numbers))


def _first(rate: float) -> Finding:
    return Finding(
        f"{rate:.2f} times the bytes of its neighbour", 3.0 <= rate <= 5.0, (("priority_ratio", round(rate, 2)),)
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Progress to standard error; the table and, last, one line of JSON to standard output."""
    return run_show("control", HEAD, claims, arguments)


if __name__ == "__main__":
    sys.exit(main())
