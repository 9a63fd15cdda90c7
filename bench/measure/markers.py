"""`python -m bench.measure.markers`: how fast offsets that nobody sees cross: markers, holes, a late log start.

`--only PART` measures one of markers, run, holes, fragments, late, commits.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.measure.unseen_topics import (
    COMPACTED,
    SOURCE_SETTINGS,
    begin_late,
    commit_steadily,
    write_holes,
    write_markers,
)
from testkit.clients import forget_links
from testkit.figures import StageError
from twinshore.config.errors import KafkaError
from twinshore.config.model import TopicPartition
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.leader_queries import OffsetKind
from twinshore.lab.cluster import LabCluster
from twinshore.lab.mirror_process import MirrorProcess, settings_of

PARTITIONS = 50
MARKERS = 100_000
HOLES = 300_000  # so many that the brokers are warm for most of them
LATE_START = 100_000_000
HOLES_KEPT_OF = 20
FRAGMENTS_KEPT_OF = 5
COMMITS_PER_S = 10
COMMITTING_S = 20.0
WARM_S = 3.0
_PATIENCE_S = 200.0
_WATCH_S = 0.1
PARTS = ("markers", "run", "holes", "fragments", "late", "commits")
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Figures:
    """None where a part was not measured. `run` is on one partition, all else on PARTITIONS. `holes` has one record of
    every HOLES_KEPT_OF left, `fragments` one of every FRAGMENTS_KEPT_OF. `behind_max_s`: the longest that all twins of
    the committed topic together were behind, in seconds of its offsets; `after_s`: how long after the last commit they
    were level."""

    markers_per_s: float | None = None
    run_per_s: float | None = None
    holes_per_s: float | None = None
    fragments_per_s: float | None = None
    late_s: float | None = None
    commits_per_s: float | None = None
    behind_max_s: float | None = None
    after_s: float | None = None


class Stage:
    """Two clusters and a mirror for each topic, one after the other."""

    def __init__(self, folder: Path, source: LabCluster, target: LabCluster) -> None:
        self.folder, self.source, self.target = folder, source, target
        self.kafka = KafkaCluster(source.cluster), KafkaCluster(target.cluster, patience_s=2.0)

    @contextmanager
    def mirror(self, topic: str) -> Iterator[MirrorProcess]:
        store = self.folder / f"{topic}.db"
        text = settings_of(self.source.cluster, self.target.cluster, store=store, topics=topic)
        process = MirrorProcess(self.folder / topic, text)
        forget_links(self.target.cluster)
        process.start()
        try:
            yield process
        finally:
            process.end()

    def total(self, side: int, topic: str, partitions: int, which: OffsetKind = OffsetKind.LOG_END) -> int:
        """All partitions' ends together; -1 while the twin is not there."""
        wanted = [TopicPartition(topic, number) for number in range(partitions)]
        try:
            return sum(self.kafka[side].list_offsets(wanted, which).values())
        except KafkaError:
            return -1

    def carried(self, topic: str, partitions: int, *, leading: int = 0) -> tuple[float, int]:
        """Seconds from the first offset that crossed to the last, log start included, and how many did in that
        time. `leading` records do not count as first: markers of a mirror that has just begun wait some seconds, so
        that nothing a task before it may have sent lands behind them."""
        wanted = self.total(0, topic, partitions)
        begin = self.total(0, topic, partitions, OffsetKind.EARLIEST)
        deadline = time.monotonic() + _PATIENCE_S
        first_s, first = 0.0, 0
        with self.mirror(topic) as process:
            while True:
                now = self.total(1, topic, partitions)
                if now > leading and not first_s:
                    first_s, first = time.monotonic(), now
                if now >= wanted and self.total(1, topic, partitions, OffsetKind.EARLIEST) == begin:
                    return max(time.monotonic() - first_s, 1e-3), wanted - first
                if time.monotonic() > deadline:
                    raise StageError(f"{topic} stands at {now} of {wanted}")
                process.check()
                time.sleep(0.02)

    def close(self) -> None:
        for side in self.kafka:
            side.close()


def run_markers_bench(*, short: bool = False, only: Collection[str] = (), say: Say) -> Figures:
    """Measures these parts, all when none is named; `short` at a fifth of the size."""
    found: dict[str, float] = {}
    with (
        tempfile.TemporaryDirectory(prefix="markers-") as folder,
        LabCluster("east", heap_mb=512, settings=SOURCE_SETTINGS) as source,
        LabCluster("west", heap_mb=512) as target,
    ):
        stage = Stage(Path(folder), source, target)
        try:
            for part in PARTS:
                if part in (only or PARTS):
                    measured = _PARTS[part](stage, 5 if short else 1)
                    say(", ".join(f"{name} {value:,.1f}" for name, value in measured.items()))
                    found |= measured
        finally:
            stage.close()
    return Figures(**found)


def _markers(stage: Stage, part_of: int) -> dict[str, float]:
    stage.source.create_topic("markers", partitions=PARTITIONS)
    write_markers(stage.kafka[0], "markers", range(PARTITIONS), MARKERS // part_of // PARTITIONS)
    took_s, crossed = stage.carried("markers", PARTITIONS)
    return {"markers_per_s": crossed / took_s}


def _run(stage: Stage, part_of: int) -> dict[str, float]:
    stage.source.create_topic("run", partitions=1)
    write_markers(stage.kafka[0], "run", [0], MARKERS // part_of)
    took_s, crossed = stage.carried("run", 1)
    return {"run_per_s": crossed / took_s}


def _holes(stage: Stage, part_of: int) -> dict[str, float]:
    return {"holes_per_s": _compacted(stage, "holes", HOLES // part_of, HOLES_KEPT_OF)}


def _fragments(stage: Stage, part_of: int) -> dict[str, float]:
    return {"fragments_per_s": _compacted(stage, "fragments", MARKERS // part_of, FRAGMENTS_KEPT_OF)}


def _compacted(stage: Stage, topic: str, holes: int, kept_of: int) -> float:
    stage.source.create_topic(topic, partitions=PARTITIONS, settings=COMPACTED)
    records = holes * kept_of // (kept_of - 1) // PARTITIONS
    missing = write_holes(stage.source, topic, PARTITIONS, records, kept_of)
    whole = stage.total(0, topic, PARTITIONS)
    took_s, crossed = stage.carried(topic, PARTITIONS, leading=PARTITIONS)
    return crossed * missing / whole / took_s


def _late(stage: Stage, part_of: int) -> dict[str, float]:
    stage.source.create_topic("late", partitions=1)
    begin_late(stage.kafka[0], "late", LATE_START // part_of)
    took_s, _ = stage.carried("late", 1)
    return {"late_s": took_s}


def _commits(stage: Stage, part_of: int) -> dict[str, float]:
    """The mirror runs first, has carried some and come level, and is warm when it is watched."""
    topic = "commits"
    stage.source.create_topic(topic, partitions=PARTITIONS)
    per_s = 0.0

    def work() -> None:
        nonlocal per_s
        for_s = WARM_S + max(COMMITTING_S / part_of, 8.0)
        per_s = commit_steadily(stage.source, topic, PARTITIONS, commits_per_s=COMMITS_PER_S, for_s=for_s)

    with stage.mirror(topic):
        commit_steadily(stage.source, topic, PARTITIONS, commits_per_s=COMMITS_PER_S, for_s=WARM_S)
        deadline = time.monotonic() + _PATIENCE_S
        while stage.total(1, topic, PARTITIONS) < stage.total(0, topic, PARTITIONS):
            if time.monotonic() > deadline:
                raise StageError(f"{topic} never began to cross")
            time.sleep(0.1)
        worker = threading.Thread(target=work)
        worker.start()
        behind = _watch(stage, topic, worker)
        ended_s = time.monotonic()
        while stage.total(1, topic, PARTITIONS) < stage.total(0, topic, PARTITIONS):
            if time.monotonic() > deadline:
                raise StageError(f"{topic} never came level")
            time.sleep(0.02)
    # Each transaction takes two offsets of each partition: a record and its marker.
    offsets_per_s = 2 * PARTITIONS * per_s
    return {
        "commits_per_s": per_s,
        "behind_max_s": behind / offsets_per_s,
        "after_s": time.monotonic() - ended_s,
    }


def _watch(stage: Stage, topic: str, worker: threading.Thread) -> int:
    """The most offsets that the twins were behind while `worker` worked, once warm."""
    began_s, most = time.monotonic(), 0
    while worker.is_alive():
        theirs = stage.total(0, topic, PARTITIONS)
        behind = theirs - stage.total(1, topic, PARTITIONS)
        if time.monotonic() - began_s > WARM_S:
            most = max(most, behind)
        time.sleep(_WATCH_S)
    return most


_PARTS: dict[str, Callable[[Stage, int], dict[str, float]]] = {
    "markers": _markers,
    "run": _run,
    "holes": _holes,
    "fragments": _fragments,
    "late": _late,
    "commits": _commits,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Progress to standard error, one line of JSON last."""
    parser = argparse.ArgumentParser(prog="bench.measure.markers")
    parser.add_argument("--only", action="append", default=[], choices=PARTS)
    parser.add_argument("--short", action="store_true", help="a fifth of the size")
    asked = parser.parse_args(arguments)
    found = run_markers_bench(short=asked.short, only=asked.only, say=lambda line: print(line, file=sys.stderr))
    print(json.dumps({"bench": "markers", **asdict(found)}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
