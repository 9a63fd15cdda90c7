"""The copier dies at random points while transactions, holes and runs of markers cross: all offsets are the same."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import pytest

from testkit import log_kinds
from testkit.log_kinds import COMPACTED, SOURCE_SETTINGS, seen
from testkit.raw_writer import RawWriter
from tests.scenarios.kill_stage import KillStage
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.leader_queries import OffsetKind
from twinshore.lab.cluster import LabCluster
from twinshore.replication.core.planner import TWIN_SETTINGS

TRANSACTIONS, HOLES, RUNS = TOPICS = ("kill-transactions", "kill-holes", "kill-runs")
PARTITIONS = 2
RUN_MARKERS = 2_500
WHOLE, WHOLE_OF_UNITS = 20, 10
UNITS_REST_S = 2.0
# The source's markers of the long runs carry these, as if many producers had come and gone.
FIRST_EPOCH = 100


class Clusters(NamedTuple):
    source: LabCluster
    target: LabCluster


@pytest.fixture(scope="module")
def clusters() -> Iterator[Clusters]:
    with (
        LabCluster("here", heap_mb=384, settings=SOURCE_SETTINGS) as source,
        LabCluster("there", heap_mb=384) as target,
    ):
        yield Clusters(source, target)


def long_runs(cluster: LabCluster, topic: str, rounds: int, markers: int) -> None:
    """A few records, many control records, again and again."""
    kafka = KafkaCluster(cluster.cluster)
    try:
        writer = RawWriter(kafka, topic)
        for number in range(rounds):
            assert writer.write(20, 20 * number).error == 0
            assert writer.mark(FIRST_EPOCH + number, commit=True, times=markers) == 0
    finally:
        kafka.close()


def play(clusters: Clusters, seed: int, deaths: int, tag: str, *, closed_units: bool = False) -> None:
    """The topics are new for each play."""
    chance = random.Random(seed)
    source, target = clusters
    topics = [f"{topic}-{tag}" for topic in TOPICS]
    transactions, holes, runs = topics
    for topic in topics:
        source.create_topic(topic, partitions=PARTITIONS, settings=COMPACTED if topic == holes else {})
        # Compacting a twin would take away what is to be compared.
        target.create_topic(topic, partitions=PARTITIONS, settings=dict(TWIN_SETTINGS))
    log_kinds.compacted(source, holes, transactions=True)
    long_runs(source, runs, 4 + deaths, RUN_MARKERS // 25 if closed_units else RUN_MARKERS)
    stop = threading.Event()

    def write() -> None:
        number = seed
        while not stop.is_set():
            number += 1
            log_kinds.transactional(source, transactions, number, steps=40)
            # Each marker behind a record is a unit of its own, some tens a second in a partition.
            stop.wait(UNITS_REST_S if closed_units else 0.0)

    writer = threading.Thread(target=write)
    stage = KillStage(source, target, topics, PARTITIONS, closed_units=closed_units)
    writer.start()
    try:
        for number in range(deaths):
            stage.harm(chance, frozen=number % 4 == 1)
    finally:
        stop.set()
        writer.join()
    harmed_s = time.monotonic()
    try:
        settle(stage, topics)
        ends = [stage.ends(1, topic, PARTITIONS, OffsetKind.LOG_END) for topic in topics]
    finally:
        stage.close()
    took_s = time.monotonic() - harmed_s
    print(f"{stage.accounts} accounts, the twins end at {ends} after {took_s:.1f} s more")
    crossing = {topic.removeprefix("kill-").removesuffix(f"-{tag}"): count for topic, count in stage.crossing.items()}
    died = f"deaths: {_counts(stage.kills)}; while the task had these before it: {_counts(crossing)}"
    print(f"told: {died}, seed {seed}")
    assert sum(stage.kills.values()) == deaths
    assert not stage.incidents
    judge(clusters, topics)


def _counts(of: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in of.items())


def settle(stage: KillStage, topics: list[str], within_s: float = 90.0) -> None:
    """Waits until the twins end where the sources do, whose last markers may still be on their way as well."""
    deadline = time.monotonic() + within_s
    for topic in topics:
        while True:
            now = stage.ends(1, topic, PARTITIONS, OffsetKind.LOG_END)
            stable = stage.ends(0, topic, PARTITIONS, OffsetKind.LAST_STABLE)
            wanted = stage.ends(0, topic, PARTITIONS, OffsetKind.LOG_END)
            if now == stable == wanted:
                break
            told = f"{topic} stands at {now}, not {wanted}: {stage.incidents}"
            assert time.monotonic() < deadline, told
            assert all(ours <= theirs for ours, theirs in zip(now, wanted, strict=True)), told
            time.sleep(0.1)


def judge(clusters: Clusters, topics: list[str]) -> None:
    transactions, holes, runs = topics
    for topic in (transactions, runs):
        for partition in range(PARTITIONS):
            ours, theirs = (seen(side, topic, partition, committed=True) for side in clusters)
            assert ours == theirs, f"{topic}-{partition}"
            every = seen(clusters.target, topic, partition)
            assert every == theirs, "what was aborted is seen by nobody"
    ours, theirs = (seen(side, holes, 0, committed=True) for side in clusters)
    # The source may have compacted more since.
    assert set(map(str, ours)) <= set(map(str, theirs))
    assert len(theirs) < theirs[-1][0], "there were holes"  # type: ignore[operator]
    assert seen(clusters.target, holes, 0) == theirs


def the_seed() -> int:
    """Another one each time; TWINSHORE_SEED has one again."""
    seed = int(os.environ.get("TWINSHORE_SEED") or random.SystemRandom().randrange(1_000_000))
    print(f"TWINSHORE_SEED={seed}")
    return seed


def deaths(few: int, whole: int) -> int:
    """TWINSHORE_DEATHS has so many of them, or a `whole` round of those that the long tests play several of."""
    asked = os.environ.get("TWINSHORE_DEATHS") or few
    return whole if asked == "whole" else int(asked)


@pytest.mark.claim(
    "topics",
    "pumps-die",
    "tasks killed, or paused beyond their lease, at random points of transactions, holes, marker runs: equal",
)
@pytest.mark.long
def test_tasks_die_while_markers_cross(clusters: Clusters) -> None:
    play(clusters, the_seed(), deaths(4, WHOLE), "short")


@pytest.mark.claim(
    "topics",
    "units-die",
    "tasks killed, or paused beyond their lease, at random points of closed units: equal",
)
@pytest.mark.long
def test_tasks_die_while_closed_units_cross(clusters: Clusters) -> None:
    play(clusters, the_seed(), deaths(3, WHOLE_OF_UNITS), "short-units", closed_units=True)


@pytest.mark.claim(
    "topics",
    "pumps-die",
    "tasks killed, or paused beyond their lease, at random points of transactions, holes, marker runs: equal",
    full_size=True,
)
@pytest.mark.long
@pytest.mark.timeout(1200)
def test_tasks_die_a_hundred_times_while_markers_cross(clusters: Clusters) -> None:
    seed = the_seed()
    for number in range(5):
        play(clusters, seed + number, WHOLE, f"long{number}")


@pytest.mark.claim(
    "topics",
    "units-die",
    "tasks killed, or paused beyond their lease, at random points of closed units: equal",
    full_size=True,
)
@pytest.mark.long
@pytest.mark.timeout(1200)
def test_tasks_die_a_hundred_times_while_closed_units_cross(clusters: Clusters) -> None:
    seed = the_seed()
    for number in range(10):
        play(clusters, seed + number, WHOLE_OF_UNITS, f"long-units{number}", closed_units=True)
