"""Claims about `twinshore link`: what operators change is in force while all runs, exact, and costs nobody else.

`python -m bench.show_control` tries them alone; LONG=1 measures for longer.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.claims import Claim, Finding, Once
from bench.control_stage import IN_FORCE_S, SETTLE_S, ControlStage, Latency, Neighbour, Throttled, drained, throttle
from bench.fault_stage import MirrorProcess, settings_of
from bench.showing import run_show
from twinshore.lab import LabCluster

HEAD = """\
# Live control, shown

Written by `python -m bench.show_control`, which changes a running link on real clusters; no figure is typed by hand.
"""
LINK = "east->west"
BOUND = 5_000_000
OFF_MOST = 0.1
# What a machine that does other things besides may add by itself, between two measurements of the same.
NOISE = 1.5
NOISE_MS = 2.0
START_S = 120.0
PRIORITY = 40


@dataclass(frozen=True, slots=True)
class Trial:
    """All that one run of a mirror showed."""

    link: Throttled
    topic: Throttled
    alone: Latency
    beside_paused: Latency
    beside_throttled: Latency
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
        limits = {"refresh_s": 1, "lanes": 2}
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
        stage.tell("throttle", LINK, "50000", "--topic", "flow-two")
        stage.in_force("flow-two at most 50,000 bytes/s")
        stage.backlog("flow-two", 5_000_000)
        time.sleep(SETTLE_S)
        beside_throttled = neighbour.latency(during_s)
        stage.tell("reset", LINK)
        drained(stage, "flow-two")
        beside_paused, resumed_s = _paused(stage, neighbour, during_s)
    rate = _with_priority(stage, during_s)
    mirror.check()
    return Trial(whole, one, alone, beside_paused, beside_throttled, resumed_s, rate)


def _paused(stage: ControlStage, neighbour: Neighbour, during_s: float) -> tuple[Latency, float]:
    """The neighbour of a topic that is paused and whose source grows on, and how long the topic needs to come back."""
    stage.tell("pause", LINK, "--topic", "flow-one")
    stage.in_force("topics flow-one paused")
    time.sleep(SETTLE_S)
    stage.backlog("flow-one", 5_000_000)
    time.sleep(SETTLE_S)
    found = neighbour.latency(during_s)
    stage.tell("resume", LINK, "--topic", "flow-one")
    begun_s = time.monotonic()
    drained(stage, "flow-one")
    return found, time.monotonic() - begun_s


def _with_priority(stage: ControlStage, during_s: float) -> float:
    """By how much more of a topic with priority crosses while a link's throttle keeps both waiting."""
    # Both wait before either may begin: what is written first would cross alone, and run dry while it is measured.
    for topic in ("flow-one", "flow-two"):
        stage.tell("pause", LINK, "--topic", topic)
    stage.in_force("topics flow-one, flow-two paused")
    for topic in ("flow-one", "flow-two"):
        stage.backlog(topic, int(BOUND * (during_s + 3 * SETTLE_S)))
    stage.tell("throttle", LINK, str(BOUND))
    stage.tell("priority", LINK, "flow-one", str(PRIORITY))
    stage.in_force(f"flow-one has priority {PRIORITY}")
    for topic in ("flow-one", "flow-two"):
        stage.tell("resume", LINK, "--topic", topic)
    time.sleep(2 * SETTLE_S)
    rates = stage.rates(["flow-one", "flow-two"], during_s)
    stage.tell("reset", LINK)
    return rates["flow-one"] / max(1.0, rates["flow-two"])


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
            "a paused topic costs its neighbours nothing; resumed, it goes on within 5 s",
            lambda long: _unmoved("paused", trial(long), trial(long).beside_paused),
        ),
        Claim(
            "throttled-neighbour",
            "a throttled topic costs its neighbours nothing",
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
        figure += f"; resumed, level again after {trial.resumed_s:.1f} s"
        well = well and trial.resumed_s <= IN_FORCE_S
        numbers.append(("resumed_s", round(trial.resumed_s, 2)))
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
