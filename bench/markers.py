"""`python -m bench.markers`: how fast offsets that nobody sees cross: markers, transactions, a late log start."""

from __future__ import annotations

import json
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from confluent_kafka import Producer

from bench.fault_stage import MirrorProcess, settings_of
from twinshore.fleet import NamedPartition
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.questions import OffsetKind
from twinshore.lab import LabCluster
from twinshore.lab.clients import client_settings
from twinshore.wire.batch import SEQUENCE_SPAN
from twinshore.wire.filler import FILLER_RECORDS_MAX, filler
from twinshore.wire.markers import MARKERS_KEY, MARKERS_VERSION, Marker, encode_markers, parse_markers
from twinshore.wire.produce import (
    PRODUCE_KEY,
    PRODUCE_VERSION_BY_ID,
    PRODUCE_VERSION_MIN,
    encode_produce,
    parse_produce,
)

PARTITIONS = 50
MARKERS = 100_000
LATE_START = 100_000_000
COMMITS_PER_S = 10
COMMITTING_S = 20.0
_PATIENCE_S = 200.0


@dataclass(frozen=True, slots=True)
class Figures:
    """`lag_max`: the most offsets that the committed topic's twins were behind together. The `_s` count from the
    topic's making on the twin to its end."""

    markers_per_s: float
    runs_per_s: float
    late_s: float
    lag_max: int
    lag_last_s: float


class Ends:
    """Where logs end on both sides."""

    def __init__(self, source: LabCluster, target: LabCluster) -> None:
        self.source, self.target = KafkaCluster(source.cluster), KafkaCluster(target.cluster, patience_s=2.0)

    def total(self, side: KafkaCluster, topic: str, partitions: int) -> int:
        wanted = [NamedPartition(topic, number) for number in range(partitions)]
        try:
            return sum(side.list_offsets(wanted, OffsetKind.LOG_END).values())
        except Exception:
            return -1  # The twin is not there yet.

    def took(self, topic: str, partitions: int) -> tuple[float, int]:
        """Seconds from the first offset that crossed to the last, and how many did in that time."""
        wanted = self.total(self.source, topic, partitions)
        deadline = time.monotonic() + _PATIENCE_S
        first_s, first = 0.0, 0
        while True:
            now = self.total(self.target, topic, partitions)
            if now > 0 and not first_s:
                first_s, first = time.monotonic(), now
            if now >= wanted:
                return max(time.monotonic() - first_s, 1e-3), wanted - first
            if time.monotonic() > deadline:
                raise SystemExit(f"{topic} stands at {now} of {wanted}")
            time.sleep(0.02)


def write_markers(kafka: KafkaCluster, topic: str, partitions: Sequence[int], times: int) -> None:
    """Control records on the source, as transactions leave them."""
    marker = Marker(5_000_000, 0, True, 0, [(topic, list(partitions))])
    leader = kafka.connection_to(kafka.leader_of(NamedPartition(topic, 0)))
    view = leader.call_raw(MARKERS_KEY, MARKERS_VERSION, encode_markers([(marker, times)]), timeout_s=60)
    if any(one.error for one in parse_markers(view, 0)):
        raise SystemExit("the source refuses markers")


def write_filler(kafka: KafkaCluster, topic: str, end: int) -> None:
    named = NamedPartition(topic, 0)
    leader = kafka.connection_to(kafka.leader_of(named))
    producer_id, epoch = kafka.init_producer_id()
    version = leader.api_version(PRODUCE_KEY, PRODUCE_VERSION_BY_ID, PRODUCE_VERSION_MIN)
    topic_id = kafka.metadata([topic]).topics[topic].topic_id
    at = 0
    while at < end:
        made = filler(min(FILLER_RECORDS_MAX, end - at))
        head = made.stamped(producer_id, epoch, at % SEQUENCE_SPAN)
        body = b"".join(encode_produce(version, [(topic, topic_id, [(0, head, made.body)])]))
        (answer,) = parse_produce(leader.call_raw(PRODUCE_KEY, version, body), 0, version)
        if answer.error:
            raise SystemExit(f"the source refuses a filler: {answer}")
        at += made.header.count


def commit_steadily(source: LabCluster, topic: str, for_s: float) -> None:
    """Each transaction writes one record to every partition."""
    producer = Producer({**client_settings(source.cluster), "transactional.id": topic, "linger.ms": 0})
    producer.init_transactions(60)
    began_s, done = time.monotonic(), 0
    while time.monotonic() - began_s < for_s:
        producer.begin_transaction()
        for partition in range(PARTITIONS):
            producer.produce(topic, b"v" * 100, b"k", partition=partition)
        producer.commit_transaction(60)
        done += 1
        time.sleep(max(0.0, began_s + done / COMMITS_PER_S - time.monotonic()))


def watch(ends: Ends, topic: str, work: Callable[[], None]) -> tuple[int, float]:
    """The largest lag seen while `work` ran, and how long after it the twin was level."""
    worker = threading.Thread(target=work)
    worker.start()
    most = 0
    while worker.is_alive():
        theirs = ends.total(ends.target, topic, PARTITIONS)
        if theirs > 0:
            most = max(most, ends.total(ends.source, topic, PARTITIONS) - theirs)
        time.sleep(0.2)
    ended_s = time.monotonic()
    ends.took(topic, PARTITIONS)
    return most, time.monotonic() - ended_s


def measure(folder: Path) -> Figures:
    with LabCluster("east", heap_mb=512) as source, LabCluster("west", heap_mb=512) as target:
        ends = Ends(source, target)
        for topic, partitions in (("markers", PARTITIONS), ("runs", 1), ("late", 1), ("commits", PARTITIONS)):
            source.create_topic(topic, partitions=partitions)
        for _ in range(10):
            write_markers(ends.source, "markers", range(PARTITIONS), MARKERS // PARTITIONS // 10)
            write_markers(ends.source, "runs", [0], MARKERS // 10)
        write_filler(ends.source, "late", LATE_START)
        ends.source.delete_records({NamedPartition("late", 0): LATE_START})
        figures = {}
        for topic, partitions in (("markers", PARTITIONS), ("runs", 1), ("late", 1)):
            process = MirrorProcess(
                folder / topic, settings_of(source.cluster, target.cluster, store=folder / f"{topic}.db", topics=topic)
            )
            process.start()
            try:
                figures[topic] = ends.took(topic, partitions)
            finally:
                process.end()
        process = MirrorProcess(
            folder / "commits",
            settings_of(source.cluster, target.cluster, store=folder / "commits.db", topics="commits"),
        )
        process.start()
        try:
            lag, last_s = watch(ends, "commits", lambda: commit_steadily(source, "commits", COMMITTING_S))
        finally:
            process.end()
    (many_s, many), (one_s, one), (late_s, _) = figures["markers"], figures["runs"], figures["late"]
    return Figures(many / many_s, one / one_s, late_s, lag, last_s)


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="markers-") as folder:
        found = measure(Path(folder))
    print(f"{MARKERS} markers on {PARTITIONS} partitions: {found.markers_per_s:,.0f} per second")
    print(f"{MARKERS} markers on one partition: {found.runs_per_s:,.0f} per second")
    print(f"a log that begins at {LATE_START:,}: aligned in {found.late_s:.1f} s")
    print(f"{COMMITS_PER_S} commits/s on {PARTITIONS} partitions: {found.lag_max} offsets behind at most")
    print(json.dumps({"bench": "markers", **asdict(found)}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
