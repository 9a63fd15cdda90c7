"""`python -m bench.measure.partitions`: what a thousand partitions take, planned and flowing, none missing."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka import TopicPartition as ClientTopicPartition

from bench.kit.tree import ProcessTree
from testkit.figures import StageError
from twinshore.config.model import Cluster, Link, TopicPartition
from twinshore.config.settings import load_settings
from twinshore.lab.clients import LogEndReader, client_settings
from twinshore.lab.cluster import LabCluster
from twinshore.lab.demo_stage import DemoMirror
from twinshore.runtime.endpoints import one_shot_connections

TOPICS = 10
PARTITIONS_EACH = 100
RECORDS_BEFORE = 50
TRICKLE_ROUNDS = 20
TRICKLE_ROUND_S = 0.5
VALUE = b"v" * 200

# What a thousand partitions may take on the smallest machine that we name: two cores, beside both clusters.
PLAN_S_MAX = 10.0
FLOWING_S_MAX = 60.0
LATE_MS_MAX = 5_000.0
MEMORY_MB_MAX = 1_500.0
DRIVER_THREADS_MAX = 100
TASK_THREADS_MAX = 20

_PATIENCE_S = 180.0
_BROKERS = {"log.cleaner.enable": "false", "num.io.threads": "4"}


@dataclass(frozen=True, slots=True)
class ManyPartitions:
    """`plan_s`: both clusters asked and every step decided. `flowing_s`: from the mirror's first survey until each twin
    partition held what its source did, made and carried. `late_ms`: the last of the trickle, behind its send."""

    partitions: int
    records: int
    plan_s: float
    flowing_s: float
    memory_mb: float
    driver_threads: int
    task_threads: int
    late_ms: float
    unequal: int

    @property
    def bounded(self) -> bool:
        """Whether everything is inside its bound and both sides are the same."""
        return (
            self.unequal == 0
            and self.plan_s <= PLAN_S_MAX
            and self.flowing_s <= FLOWING_S_MAX
            and self.late_ms <= LATE_MS_MAX
            and self.memory_mb <= MEMORY_MB_MAX
            and self.driver_threads <= DRIVER_THREADS_MAX
            and self.task_threads <= TASK_THREADS_MAX
        )

    def sentence(self) -> str:
        """Figures with their bounds."""
        return (
            f"{self.partitions} partitions, {self.records} records, {self.unequal} partitions unequal; planned in"
            f" {self.plan_s:.1f} s (bound {PLAN_S_MAX:.0f}), flowing {self.flowing_s:.1f} s after the survey began"
            f" ({FLOWING_S_MAX:.0f});"
            f" whole tree {self.memory_mb:,.0f} MB ({MEMORY_MB_MAX:,.0f}); threads: driver {self.driver_threads}"
            f" ({DRIVER_THREADS_MAX}), task {self.task_threads} ({TASK_THREADS_MAX}); a trickle to all of them arrived"
            f" within {self.late_ms:.0f} ms ({LATE_MS_MAX:,.0f})"
        )


def run_partitions_bench(
    topics: int = TOPICS, each: int = PARTITIONS_EACH, say: Callable[[str], None] = print
) -> ManyPartitions:
    """Plans, runs and measures `topics` times `each` partitions between two clusters of one broker."""
    names = {f"many-{number}": each for number in range(topics)}
    with (
        LabCluster("east", heap_mb=768, settings=_BROKERS) as east,
        LabCluster("west", heap_mb=768, settings=_BROKERS) as west,
        tempfile.TemporaryDirectory(prefix="twinshore-bench-") as folder,
    ):
        for name in names:
            east.create_topic(name, partitions=each)
        _write(east.cluster, names, rounds=RECORDS_BEFORE)
        say(f"{topics * each} partitions with {RECORDS_BEFORE} records each are ready")
        mirror = DemoMirror(Path(folder), east.cluster, west.cluster, "many-.*")
        plan_s = _planned(mirror.settings, topics)
        say(f"planned in {plan_s:.1f} s")
        mirror.start()
        tree = ProcessTree(mirror.mark.pid)
        try:
            return _measure(mirror, tree, east.cluster, west.cluster, names, plan_s, say)
        finally:
            mirror.end()
            tree.kill()


def _planned(settings_file: Path, topics: int) -> float:
    """Seconds for the same planning as the mirror's, by itself."""
    from twinshore.replication.core.model import Create, Refuse
    from twinshore.replication.operations.run_plan import preview_link
    from twinshore.state.store import open_store

    settings = load_settings(settings_file, {})
    (link,) = settings.links
    assert isinstance(link, Link)
    with open_store(f"sqlite:///{settings_file.parent}/plan.db") as store:
        begun_s = time.monotonic()
        steps = preview_link(link, settings, store, one_shot_connections("bench"))
        took_s = time.monotonic() - begun_s
    made = {step.topic for step in steps if isinstance(step, Create)}
    if len(made) != topics or any(isinstance(step, Refuse) for step in steps):
        raise StageError(f"{len(made)} of {topics} topics would get a twin: {steps[:3]}")
    return took_s


def _measure(
    mirror: DemoMirror,
    tree: ProcessTree,
    source: Cluster,
    target: Cluster,
    names: Mapping[str, int],
    plan_s: float,
    say: Callable[[str], None],
) -> ManyPartitions:
    partitions = sum(names.values())
    sources, twins = LogEndReader(source, names), LogEndReader(target, names)
    wanted = sources.read()
    if len(wanted) != partitions or min(wanted.values()) != RECORDS_BEFORE:
        raise StageError(f"the source has {len(wanted)} partitions, the shortest of {min(wanted.values())} records")
    _wait(mirror, lambda: "replicated by this process" in mirror.log.read_text(encoding="utf-8"), "the lease")
    surveyed_s = time.monotonic()
    _wait(mirror, lambda: twins.read() == wanted, "all partitions to flow")
    flowing_s = time.monotonic() - surveyed_s
    say(f"all flowing after {flowing_s:.1f} s")
    _write(source, names, rounds=TRICKLE_ROUNDS, every_s=TRICKLE_ROUND_S)
    sent_s = time.monotonic()
    wanted = sources.read()
    _wait(mirror, lambda: twins.read() == wanted, "the trickle")
    late_ms = (time.monotonic() - sent_s) * 1000
    memory_mb = tree.memory_mb()
    driver_threads = psutil.Process(mirror.mark.pid).num_threads()
    task_threads = max(task.num_threads() for task in mirror.task_processes())
    say("comparing every record")
    here, there = _read(source, wanted), _read(target, wanted)
    unequal = sum(here[named] != there[named] for named in wanted)
    records = sum(len(log) for log in here.values())
    return ManyPartitions(
        partitions, records, plan_s, flowing_s, memory_mb, driver_threads, task_threads, late_ms, unequal
    )


def _wait(mirror: DemoMirror, done: Callable[[], bool], what: str) -> None:
    deadline_s = time.monotonic() + _PATIENCE_S
    while not done():
        mirror.check()
        if time.monotonic() > deadline_s:
            raise StageError(f"waited {_PATIENCE_S:.0f} s for {what}")
        time.sleep(0.05)


def _write(cluster: Cluster, names: Mapping[str, int], *, rounds: int, every_s: float = 0.0) -> None:
    """A record to each partition, `rounds` times."""
    producer = Producer({**client_settings(cluster), "enable.idempotence": True, "linger.ms": 50, "log_level": 0})
    begun_s = time.monotonic()
    for number in range(rounds):
        time.sleep(max(0.0, begun_s + number * every_s - time.monotonic()))
        for topic, partitions in names.items():
            for partition in range(partitions):
                producer.produce(topic, VALUE, b"%d" % number, partition=partition, headers=[("round", b"%d" % number)])
            producer.poll(0)
    if producer.flush(60):
        raise StageError("records were not acknowledged within 60 s")


Log = list[tuple[object, ...]]


def _read(cluster: Cluster, ends: Mapping[TopicPartition, int]) -> dict[TopicPartition, Log]:
    """Everything below these ends that a stock client sees."""
    consumer = Consumer(
        {**client_settings(cluster), "group.id": "bench-many", "enable.auto.commit": False, "log_level": 0}
    )
    logs: dict[TopicPartition, Log] = {named: [] for named in ends}
    left = sum(ends.values())
    try:
        consumer.assign([ClientTopicPartition(named.topic, named.partition, 0) for named in ends])
        while left:
            messages = consumer.consume(10_000, timeout=30)
            if not messages:
                raise StageError(f"{left} records of cluster {cluster.name} did not come")
            for message in messages:
                if message.error():
                    raise KafkaException(message.error())
                named = TopicPartition(str(message.topic()), message.partition() or 0)
                if (message.offset() or 0) < ends[named]:
                    seen = (message.offset(), message.timestamp(), message.key(), message.value(), message.headers())
                    logs[named].append(seen)
                    left -= 1
    finally:
        consumer.close()
    return logs


def main() -> int:
    """One line of JSON last; 1 when a bound is passed."""
    found = run_partitions_bench(say=lambda line: print(line, file=sys.stderr, flush=True))
    print(found.sentence(), file=sys.stderr)
    print(json.dumps({"bench": "partitions", "bounded": found.bounded} | asdict(found)))
    return 0 if found.bounded else 1


if __name__ == "__main__":
    sys.exit(main())
