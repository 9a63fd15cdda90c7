"""`python -m bench.measure.beside`: a mirror empties a backlog by every task, alone and beside proof and delay."""

from __future__ import annotations

import itertools
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from testkit.clients import delete_all_topics, forget_links
from testkit.copiers import bench_cluster
from testkit.figures import StageError, ratio
from testkit.loader import PARTITIONS, Workload, load, plain, warm_broker
from testkit.verbs import Verb, delay_text
from testkit.watermarks import TopicEndReader
from twinshore.lab.cluster import LabCluster
from twinshore.lab.mirror_process import MirrorProcess, settings_of
from twinshore.state.store import open_store

LINK = "east->west"
BACKLOG = 7_000_000
WARM_S, WINDOW_S, LOOK_S = 4.0, 10.0, 0.2
PERIOD_S = 2.0
_START_S = 120.0
# Short stretches: what is proven is told when one ends.
PROOF = "[proof]\nbeside_mirror = true\nevery_s = 1\nstretch_records = 100000\n"
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Beside:
    """Records per second by tasks, and what was proven of them meanwhile. `silent_s`: the longest that the delay
    monitor's figures stood still."""

    alone_s: float
    tasks_s: float
    proven_s: float
    silent_s: float

    @property
    def kept(self) -> float:
        return ratio(self.tasks_s, self.alone_s)

    def sentence(self) -> str:
        return (
            f"tasks {self.tasks_s:,.0f} records/s, {self.kept:.0%} of {self.alone_s:,.0f} alone; meanwhile"
            f" {self.proven_s:,.0f}/s were proven, and the monitor, which judges every {PERIOD_S:g} s, was silent for"
            f" {self.silent_s:.1f} s at most"
        )


@dataclass(frozen=True, slots=True)
class _Look:
    at_s: float
    crossed: int
    proven: int
    judged_ms: int


def run_beside(say: Say) -> Beside:
    """Both drains on the same clusters, from the same backlog, on a warm target."""
    workload = plain()
    with bench_cluster("east") as east, bench_cluster("west") as west:
        east.create_topic(workload.topic, partitions=PARTITIONS)
        TopicEndReader(east.cluster, workload.topic, PARTITIONS).wait_ready()
        warm_broker(west, workload)
        load(east.cluster, workload.topic, workload.batches, BACKLOG)
        alone = _window(east, west, workload, "")
        say(f"alone: {_rate(alone, lambda one: one.crossed):,.0f} records/s")
        delete_all_topics(west.cluster)
        delete_all_topics(east.cluster, keep=workload.topic)
        beside = _window(east, west, workload, PROOF)
    found = Beside(
        _rate(alone, lambda one: one.crossed),
        _rate(beside, lambda one: one.crossed),
        _rate(beside, lambda one: one.proven),
        _silent_s(beside),
    )
    say(found.sentence())
    return found


def _rate(looks: list[_Look], of: Callable[[_Look], int]) -> float:
    first, last = looks[0], looks[-1]
    return (of(last) - of(first)) / (last.at_s - first.at_s)


def _silent_s(looks: list[_Look]) -> float:
    """The longest time between two looks that showed a new judgement, the ends of the window counted as such."""
    moments = [looks[0].at_s]
    moments += [now.at_s for before, now in itertools.pairwise(looks) if now.judged_ms > before.judged_ms]
    moments.append(looks[-1].at_s)
    return max(later - earlier for earlier, later in itertools.pairwise(moments))


def _window(east: LabCluster, west: LabCluster, workload: Workload, besides: str) -> list[_Look]:
    """Looks at one drain, from when it is warm."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="twinshore-beside-")))
        store = folder / "store.db"
        text = settings_of(east.cluster, west.cluster, store=store, topics=workload.topic) + besides
        mirror = MirrorProcess(folder, text)
        forget_links(west.cluster)
        end = TopicEndReader(west.cluster, workload.topic, PARTITIONS)
        stack.callback(mirror.end)
        mirror.start()
        if besides:
            stack.enter_context(_watched(folder, text))
        begun_s = time.monotonic()
        while not end.records():
            mirror.check()
            if time.monotonic() - begun_s > _START_S:
                raise StageError(f"nothing crossed within {_START_S:.0f} s: {mirror.said[-800:]}")
            time.sleep(LOOK_S)
        time.sleep(WARM_S)
        looks = list(_looks(store, end))
        mirror.check()
    if looks[-1].crossed >= BACKLOG:
        raise StageError("the backlog ended before the window did")
    return looks


def _looks(store: Path, end: TopicEndReader) -> Iterator[_Look]:
    with open_store(f"sqlite:///{store}") as opened:
        begun_s = time.monotonic()
        while time.monotonic() - begun_s < WINDOW_S + LOOK_S:
            crossed, at_s = end.records(), time.monotonic()
            proven = sum(row.to_offset for row in opened.proofs.of(LINK))
            judged_ms = max((place.at_ms for place in opened.delay.partitions(LINK)), default=0)
            yield _Look(at_s, crossed, proven, judged_ms)
            time.sleep(LOOK_S)


@contextmanager
def _watched(folder: Path, text: str) -> Iterator[None]:
    monitor = Verb(folder, "watch", text + delay_text(folder, {"period_s": PERIOD_S, "sample_s": 1}))
    monitor.start()
    try:
        yield
        if not monitor.child.alive():
            raise StageError(f"the monitor ended: {monitor.said[-800:]}")
    finally:
        monitor.end()


if __name__ == "__main__":
    print(run_beside(lambda line: print(line, file=sys.stderr, flush=True)))
