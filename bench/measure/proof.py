"""How fast a proof is beside a plain consumer comparison, and what it finds among many records.

    python -m bench.measure.proof

Both read the same topics of two real clusters, one after the other, each in one process. The proof is that of
`twinshore prove --here`, as many threads as `tasks` of `[proof]` says by default. The plain comparison is what people
write: two confluent-kafka consumers, whose records are compared in Python. Both are also told by second of CPU.
LONG=1 takes 10 million records for the rates too.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property

from testkit.figures import StageError, median, ratio
from testkit.loader import Batch, Workload, load, lz4, plain
from testkit.watermarks import TopicEndReader
from twinshore.config.model import Cluster, TopicPartition
from twinshore.config.settings import Settings, parse_settings
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.protocol.produce import PRODUCE_KEY, encode_produce, read_produce_response
from twinshore.kafka.protocol.record_batch import (
    HEADER_BYTES,
    Record,
    codec_of,
    decode_batch,
    encode_batch,
    split_batches,
)
from twinshore.lab.cluster import LabCluster
from twinshore.lab.topic_comparison import compare_topic
from twinshore.proof.core.model import CompareMode, DifferenceKind
from twinshore.proof.core.planning import ProofOptions
from twinshore.proof.jobs import run_bundle_in_process
from twinshore.proof.rounds import ProofReport, ProofRounds
from twinshore.state.store import open_store

LINK = "east->west"
SHORT_RECORDS = 2_000_000
LONG_RECORDS = 10_000_000
PLAIN_RECORDS = 400_000  # What the plain comparison is given: its rate does not depend on how much there is.
PARTITIONS = 5
TURNS = 3
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Speed:
    """Rates over one workload. `mb_core` counts what was read from both sides, by second of CPU."""

    workload: str
    records: int
    records_s: float
    records_core: float
    mb_core: float
    plain_records_s: float
    plain_records_core: float

    @property
    def times(self) -> float:
        """Ours to theirs, by the clock."""
        return ratio(self.records_s, self.plain_records_s)

    @property
    def times_core(self) -> float:
        """Ours to theirs, by CPU."""
        return ratio(self.records_core, self.plain_records_core)

    def sentence(self) -> str:
        return (
            f"{self.workload}: {self.records_s:,.0f} records/s, {self.times:.1f} times the plain"
            f" {self.plain_records_s:,.0f}; per core {self.mb_core:,.0f} MB/s read,"
            f" {self.records_core:,.0f} records/s, {self.times_core:.1f} times"
        )


class Stage:
    """Two clusters with the same topics on both."""

    def __init__(self, say: Say) -> None:
        self._stack = ExitStack()
        self._say = say

    def __enter__(self) -> Stage:
        self.east, self.west = (self._stack.enter_context(LabCluster(name)) for name in ("east", "west"))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @cached_property
    def tasks(self) -> int:
        return self._settings("none").proof.tasks

    def _settings(self, topic: str) -> Settings:
        lines = [f"[clusters.{one.name}]\nbootstrap = {list(one.bootstrap)}" for one in (self.east, self.west)]
        return parse_settings("\n".join([*lines, f'[links."{LINK}"]\ntopics = ["{topic}"]']), name="bench", env={})

    def fill(self, topic: str, batches: Sequence[Batch], records: int) -> int:
        """The same batches in the same order on both sides; how many records."""
        self.create(topic)
        for side in (self.east, self.west):
            found = load(side.cluster, topic, batches, records)
        return found

    def create(self, topic: str) -> None:
        """On both sides; returns when every partition is served."""
        for side in (self.east, self.west):
            side.create_topic(topic, partitions=PARTITIONS)
            TopicEndReader(side.cluster, topic, PARTITIONS).wait_ready()

    def prove(self, topic: str, *, digest: bool = True) -> ProofReport:
        """Compares the whole topic."""
        loaded, run = self._settings(topic), run_bundle_in_process
        wishes = ProofOptions(digest=digest)
        with tempfile.TemporaryDirectory() as folder, open_store(f"sqlite:///{folder}/store.db") as store:
            proving = ProofRounds(loaded, store, run, options=wishes, tasks=self.tasks, mode=CompareMode.EXACT)
            return proving.round(loaded.links)

    def say(self, sentence: str) -> None:
        self._say(sentence)


def measure(stage: Stage, workload: Workload, records: int) -> Speed:
    """Ours over so many records, the plain comparison over fewer of the same, by turns; the median of each."""
    few, many = f"{workload.name}-few", f"{workload.name}-many"
    stage.fill(few, workload.batches, PLAIN_RECORDS)
    stage.fill(many, workload.batches, records)
    stage.prove(few)  # Warm, as the brokers and the compiled loops are in a proof that goes on.
    proofs, plains = [], []
    for _ in range(TURNS):
        report = stage.prove(many)
        compared, size, cpu_s = totals(report)
        if report.differs or report.incomplete or compared < records:
            raise StageError(f"{many} is not proven: {report}")
        proofs.append((compared / report.seconds, compared / cpu_s, size / 1e6 / cpu_s))
        began_s, began_cpu_s = time.monotonic(), time.process_time()
        found = compare_topic(stage.east.cluster, stage.west.cluster, few)
        took_s, took_cpu_s = time.monotonic() - began_s, time.process_time() - began_cpu_s
        if not found.identical or found.records < PLAIN_RECORDS:
            raise StageError(str(found))
        plains.append((found.records / took_s, found.records / took_cpu_s))
    ours, theirs = ([median(figures) for figures in zip(*runs, strict=True)] for runs in (proofs, plains))
    speed = Speed(workload.says, compared, *ours, *theirs)
    stage.say(speed.sentence())
    return speed


def totals(report: ProofReport) -> tuple[int, int, float]:
    """Records compared, bytes read, CPU."""
    parts = report.partitions
    return sum(one.compared for one in parts), sum(one.bytes for one in parts), sum(one.cpu_s for one in parts)


@dataclass(frozen=True, slots=True)
class Found:
    """What was hidden, and whether it was found at its offset as what it is."""

    records: int
    kinds: tuple[str, ...]
    missed: tuple[str, ...]
    seconds: float


Spoil = Callable[[list[Record]], None]


def _flip(records: list[Record]) -> None:
    value = bytearray(records[7].value or b"")
    value[len(value) // 2] ^= 1
    records[7] = records[7]._replace(value=bytes(value))


def _drop(records: list[Record]) -> None:
    del records[7]


def _swap(records: list[Record]) -> None:
    records[7], records[8] = records[8], records[7]


def _add(records: list[Record]) -> None:
    records.insert(7, Record(0, records[7].timestamp, b"who", b"are you"))


def _date(records: list[Record]) -> None:
    records[7] = records[7]._replace(timestamp=records[7].timestamp + 1)


SPOILT: tuple[tuple[DifferenceKind, Spoil], ...] = (
    (DifferenceKind.CHANGED_VALUE, _flip),
    (DifferenceKind.MISSING, _drop),
    (DifferenceKind.SWAPPED, _swap),
    (DifferenceKind.FOREIGN, _add),
    (DifferenceKind.CHANGED_TIMESTAMP, _date),
)


def find(stage: Stage, records: int) -> Found:
    """Hides one fault in each partition of the twin, in the midst of all records, and proves."""
    topic, batches = "bench-spoilt", lz4().batches
    stage.create(topic)
    before = load(stage.east.cluster, topic, batches, records // 2)
    load(stage.west.cluster, topic, batches, records // 2)
    good = batches[0]
    for partition, (_, spoil) in enumerate(SPOILT):
        produce(stage.east.cluster, TopicPartition(topic, partition), good.data)
        produce(stage.west.cluster, TopicPartition(topic, partition), spoilt(good, spoil))
    total = before + good.records * PARTITIONS + load(stage.east.cluster, topic, batches, records // 2)
    load(stage.west.cluster, topic, batches, records // 2)
    report = stage.prove(topic)
    at = before // PARTITIONS + 7
    found = {one.row.partition: json.loads(one.row.sentence or "{}") for one in report.partitions}
    missed = [
        f"{kind} at {at}: {found.get(partition)}"
        for partition, (kind, _) in enumerate(SPOILT)
        if (found[partition].get("kind"), found[partition].get("offset")) != (kind, at)
    ]
    return Found(total, tuple(kind for kind, _ in SPOILT), tuple(missed), report.seconds)


def spoilt(batch: Batch, spoil: Spoil) -> bytes:
    """The batch with one thing in it changed, its checksum right."""
    ((view, header),) = split_batches(memoryview(batch.data))
    records = decode_batch(view, header)
    spoil(records)
    anew = [record._replace(offset=place) for place, record in enumerate(records)]
    return encode_batch(anew, codec=codec_of(header.attributes))


def produce(cluster: Cluster, named: TopicPartition, data: bytes) -> None:
    """Appends one batch as it is."""
    kafka = KafkaCluster(cluster)
    try:
        topic_id = kafka.metadata([named.topic]).topics[named.topic].topic_id
        leader = kafka.connection_to(kafka.leader_of(named))
        version = leader.handwritten_version(PRODUCE_KEY)
        parts = [(named.topic, topic_id, [(named.partition, data[:HEADER_BYTES], data[HEADER_BYTES:])])]
        body = b"".join(encode_produce(version, parts))
        (answer,) = read_produce_response(leader.call_raw(PRODUCE_KEY, version, body), 0, version).appended
        if answer.error:
            raise StageError(f"{named}: a batch was refused: {answer}")
    finally:
        kafka.close()


def run_speed(long: bool, say: Say) -> list[Speed]:
    """Both workloads."""
    records = LONG_RECORDS if long else SHORT_RECORDS
    with Stage(say) as stage:
        return [measure(stage, one, records) for one in (lz4(), plain())]


def run_find(say: Say) -> Found:
    """All five kinds, always among as many records as was promised: loading them takes seconds."""
    with Stage(say) as stage:
        return find(stage, LONG_RECORDS)


def main() -> int:
    """Sentences to standard error, one line of JSON to standard output."""
    long = os.environ.get("LONG", "") not in ("", "0")

    def say(sentence: str) -> None:
        print(sentence, file=sys.stderr, flush=True)

    found = run_find(say)
    speeds = run_speed(long, say)
    line: dict[str, object] = {"bench": "proof", "found": not found.missed, "records": found.records}
    for speed, name in zip(speeds, ("lz4", "plain"), strict=True):
        line |= {f"{name}_times": speed.times, f"{name}_times_core": speed.times_core}
        line |= {f"{name}_records_s": round(speed.records_s), f"{name}_mb_core": round(speed.mb_core)}
    print(json.dumps(line), flush=True)
    return 1 if found.missed else 0


if __name__ == "__main__":
    sys.exit(main())
