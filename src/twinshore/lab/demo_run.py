"""The demo: two clusters stay identical while a worker is killed; a topic moves under load; a cluster is lost, clients
continue on the other, and the lost one returns.

Its clients are writers behind the proxy, a group that moves from source to target, and a consumer at the twin's end
that measures delay and silence.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

import psutil
from confluent_kafka import Consumer, Message
from confluent_kafka import TopicPartition as ClientTopicPartition

from twinshore.config.model import Cluster, TopicPartition
from twinshore.config.sentences import Tell
from twinshore.kafka.clock import wall_ms
from twinshore.lab.clients import LogEndReader, client_settings, read_group_offsets
from twinshore.lab.demo_stage import DemoMirror, DemoStage
from twinshore.lab.mirror_process import own_code
from twinshore.lab.processes import LabError, log_tail
from twinshore.lab.produce import Workload
from twinshore.lab.topic_comparison import compare_topic
from twinshore.switch.core.steps import SwitchStep
from twinshore.switch.rescue_steps import read_origin, read_rescued_file

RECORDS_PER_S = 300.0
VERB_TIMEOUT_S = 240.0
UNREPLICATED_RECORDS = 100
_QUIET: dict[str, str | int] = {"log_level": 0}
_A_DEED = re.compile(r"(?!commit|hold)(" + "|".join(step.value for step in SwitchStep) + "): ")


class DemoWriters:
    """One stock producer per topic. It knows one address and nothing of switches."""

    def __init__(self, topics: Iterable[str], address: Cluster) -> None:
        self._heard_s: dict[str, list[float]] = {topic: [] for topic in topics}
        self._writers = [
            Workload(address, one, records_per_s=RECORDS_PER_S, compressions=["lz4"], settings=_QUIET, heard_s=heard_s)
            for one, heard_s in self._heard_s.items()
        ]
        self._stopped = False
        for workload in self._writers:
            workload.start()

    def acknowledged(self, topics: Iterable[str]) -> int:
        return sum(len(self._heard_s[topic]) for topic in topics)

    def first_since(self, since_s: float, topics: Iterable[str]) -> dict[str, float]:
        """When each topic's first record after `since_s` was acknowledged; topics without one are missing."""
        found = {}
        for topic in topics:
            if times := [at_s for at_s in list(self._heard_s[topic]) if at_s > since_s]:
                found[topic] = times[0]
        return found

    def pause_s(self, topic: str, since_s: float) -> float:
        times = [at_s for at_s in list(self._heard_s[topic]) if at_s > since_s]
        return max((after - before for before, after in pairwise(times)), default=0.0)

    def stop(self) -> int:
        """Returns the number of acknowledged records. Raises LabError if one was given up. May be called twice."""
        if self._stopped:
            return 0
        self._stopped = True
        return sum([workload.stop() for workload in self._writers])


class PausedWorkers:
    """Pauses all workers of the mirror, even idle ones, so nothing is replicated."""

    def __init__(self, mirror: DemoMirror) -> None:
        self._workers: Sequence[psutil.Process] = mirror.workers()

    def __enter__(self) -> PausedWorkers:
        self._send(signal.SIGSTOP)
        return self

    def __exit__(self, *_: object) -> None:
        self._send(signal.SIGCONT)

    def _send(self, number: signal.Signals) -> None:
        for worker in self._workers:
            with suppress(psutil.Error):
                worker.send_signal(number)


def run_verb(mirror: DemoMirror, words: Sequence[str], say: Tell) -> None:
    """Runs `twinshore WORDS` and passes on the output, except step details. Raises LabError on failure."""
    say(f"  $ twinshore {' '.join(words)}")
    command = [sys.executable, "-u", "-m", "twinshore.cli", *words, "--settings", str(mirror.settings)]
    child = subprocess.Popen(
        command, env={**os.environ, **own_code()}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    overdue = threading.Timer(VERB_TIMEOUT_S, child.kill)
    overdue.start()
    try:
        assert child.stdout is not None
        lines = []
        for line in child.stdout:
            lines.append(line.rstrip())
            if not _A_DEED.match(line):
                say(f"    {lines[-1].replace(str(mirror.settings.parent), '...')}")
        if child.wait():
            raise LabError(
                "lab.process-ended",
                process=f"twinshore {' '.join(words)}",
                exit_code=child.returncode,
                log="\n".join(lines[-10:]),
            )
    finally:
        overdue.cancel()
        child.kill()
        child.wait()


# Produce time, key and value: a retry changes none of them.
RecordIdentity = tuple[int, bytes | str | None, bytes | str | None]


@dataclass(frozen=True, slots=True)
class DemoAccount:
    """Accounts for every acknowledged record: on both sides, or saved from the lost one.

    `again`: saved records also on both sides, since their producer retried.
    """

    acknowledged: int
    on_both: int
    saved: int
    again: int

    def sentence(self) -> str:
        """Raises LabError if the numbers do not match."""
        found = self.on_both + self.saved - self.again
        if found != self.acknowledged:
            raise LabError("lab.records-differ", acknowledged=self.acknowledged, found=found, account=str(self))
        more = f", {self.saved:,} more were saved from east" if self.saved else ""
        twice = f", {self.again:,} of which their producers sent again" if self.again else ""
        return f"acknowledged: {self.acknowledged:,} records; {self.on_both:,} are on both sides{more}{twice}"


class DemoRescuedRecords:
    """Records that a fail-back saved. No two of a topic are equal in key, value and timestamp."""

    def __init__(self, folder: Path) -> None:
        self._left: dict[str, set[RecordIdentity]] = {}
        self.count = self.again = 0
        for path in sorted(folder.glob("*.jsonl")) if folder.exists() else ():
            topic = self._left.setdefault(read_origin(path).topic, set())
            for record in read_rescued_file(path):
                topic.add((record.record.timestamp, record.record.key, record.record.value))
                self.count += 1

    def listener(self, topic: str) -> Callable[[Message], None]:
        """Returns a callback for every record that is on both sides."""
        left = self._left.get(topic, set())

        def hear(message: Message) -> None:
            record = message.timestamp()[1], message.key(), message.value()
            if record in left:
                left.remove(record)
                self.again += 1

        return hear


_TAIL_BATCH = 2_000
_TAIL_WAIT_S = 0.05
_DELAYS_KEPT = 50_000


class TwinTail:
    """Reads these topics from their present end, in its own thread, until `close`."""

    def __init__(self, cluster: Cluster, topics: Mapping[str, int]) -> None:
        self._consumer = Consumer(
            {
                **client_settings(cluster),
                "group.id": "twinshore-demo-tail",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 100,
                "log_level": 0,
            }
        )
        self._lock = threading.Lock()
        self._delays_ms: list[int] = []
        self._heard_s: dict[TopicPartition, float] = {}
        self._silence_s: dict[TopicPartition, float] = {}
        self._closed = threading.Event()
        places = [(topic, partition) for topic, partitions in topics.items() for partition in range(partitions)]
        self._consumer.assign([self._at_end(topic, partition) for topic, partition in places])
        self._thread = threading.Thread(target=self._work, name="demo-tail", daemon=True)
        self._thread.start()

    def take_delays_ms(self) -> list[int]:
        """Delays since the last call, from produce() on the source to this consumer, ascending."""
        with self._lock:
            delays, self._delays_ms = self._delays_ms, []
        return sorted(delays)

    def begin_watch(self) -> None:
        with self._lock:
            self._silence_s = dict.fromkeys(self._heard_s, 0.0)

    def silences_s(self) -> dict[TopicPartition, float]:
        """The longest silence of each partition since `begin_watch`, a present one included."""
        now_s = time.monotonic()
        with self._lock:
            return {partition: max(was, now_s - self._heard_s[partition]) for partition, was in self._silence_s.items()}

    def silent_now_s(self) -> float:
        """Seconds of silence of the most silent partition."""
        now_s = time.monotonic()
        with self._lock:
            return max((now_s - at_s for at_s in self._heard_s.values()), default=0.0)

    def close(self) -> None:
        self._closed.set()
        self._thread.join(timeout=10)
        self._consumer.close()

    def _at_end(self, topic: str, partition: int) -> ClientTopicPartition:
        _, end = self._consumer.get_watermark_offsets(ClientTopicPartition(topic, partition), timeout=10)
        return ClientTopicPartition(topic, partition, end)

    def _work(self) -> None:
        while not self._closed.is_set():
            first = self._consumer.poll(_TAIL_WAIT_S)
            if first is None:
                continue
            # Only what is there already: consume would hold the first record back until the last.
            messages = [first, *self._consumer.consume(_TAIL_BATCH, timeout=0)]
            now_s, now_ms = time.monotonic(), wall_ms()
            heard, delays = set(), []
            for message in messages:
                topic, partition = message.topic(), message.partition()
                if message.error() is None and topic is not None and partition is not None:
                    heard.add(TopicPartition(topic, partition))
                    delays.append(now_ms - message.timestamp()[1])
            with self._lock:
                self._delays_ms = (self._delays_ms + delays)[-_DELAYS_KEPT:]
                for tp in heard:
                    silent_s = now_s - self._heard_s.get(tp, now_s)
                    self._heard_s[tp] = now_s
                    if tp in self._silence_s:
                        self._silence_s[tp] = max(self._silence_s[tp], silent_s)


GROUP = "demo-readers"
_BATCH = 500
_WAIT_S = 0.2
_JOINED_WITHIN_S = 60.0
_SILENT_S_MAX = 30.0


class GroupReader:
    """A group member that reads the topics from their start, in its own thread, until `leave`."""

    def __init__(self, cluster: Cluster, topics: Mapping[str, int]) -> None:
        self._next = {TopicPartition(topic, one): 0 for topic, count in topics.items() for one in range(count)}
        self._consumer = _member(cluster, "earliest")
        self._consumer.subscribe(list(topics))
        self._leaving = threading.Event()
        self._thread = threading.Thread(target=self._work, name="demo-group", daemon=True)
        self._thread.start()

    def leave(self) -> dict[TopicPartition, int]:
        """Commits, leaves the group, and returns the next offset of each partition."""
        self._leaving.set()
        self._thread.join(timeout=30)
        places = [
            ClientTopicPartition(partition.topic, partition.partition, offset)
            for partition, offset in self._next.items()
        ]
        self._consumer.commit(offsets=places, asynchronous=False)
        self._consumer.close()
        return dict(self._next)

    def close(self) -> None:
        self._leaving.set()
        self._thread.join(timeout=10)

    def _work(self) -> None:
        while not self._leaving.is_set():
            for message in self._consumer.consume(_BATCH, timeout=_WAIT_S):
                if message.error() is None:
                    partition, offset = _place(message)
                    self._next[partition] = offset + 1


def read_demo_group_offsets(cluster: Cluster, stood: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """The group's committed offsets on this cluster; negative for none."""
    counts = Counter(partition.topic for partition in stood)
    return {
        TopicPartition(topic, number): place
        for topic, count in counts.items()
        for number, place in enumerate(read_group_offsets(cluster, GROUP, topic, range(count)))
    }


def read_group_to_ends(
    cluster: Cluster, stood: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> int:
    """Joins the group, reads to these ends, and returns the number of records.

    Raises LabError if a record is not the next one. A switch leaves one invisible marker in each partition that moves,
    so one offset per partition may be skipped.
    """
    expected, passed = dict(stood), set[TopicPartition]()
    read, heard_s = 0, time.monotonic() + _JOINED_WITHIN_S - _SILENT_S_MAX
    with closing(_member(cluster, "error")) as consumer:
        consumer.subscribe(sorted({tp.topic for tp in stood}))
        while any(expected[tp] < end for tp, end in ends.items()):
            messages = consumer.consume(_BATCH, timeout=_WAIT_S)
            for message in messages:
                if message.error() is not None:
                    raise LabError("lab.group-failed", group=GROUP, cause=str(message.error()))
                partition, offset = _place(message)
                if offset == expected[partition] + 1 and partition not in passed:
                    passed.add(partition)
                elif offset != expected[partition]:
                    raise LabError(
                        "lab.group-offset",
                        group=GROUP,
                        partition=str(partition),
                        offset=offset,
                        expected=expected[partition],
                    )
                expected[partition] = offset + 1
                read += 1
            heard_s = max(heard_s, time.monotonic()) if messages else heard_s
            if time.monotonic() - heard_s > _SILENT_S_MAX:
                raise LabError("lab.group-silent", group=GROUP, records=read)
        consumer.commit(asynchronous=False)
        return read


def _member(cluster: Cluster, reset: str) -> Consumer:
    return Consumer(
        {
            **client_settings(cluster),
            "group.id": GROUP,
            "enable.auto.commit": False,
            "auto.offset.reset": reset,
            "log_level": 0,
        }
    )


def _place(message: Message) -> tuple[TopicPartition, int]:
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    assert topic is not None and partition is not None and offset is not None
    return TopicPartition(topic, partition), offset


COMPRESSIONS = ("lz4", "zstd", "gzip")
PROGRESS_INTERVAL_S = 1.0
FIRST_RECORD_TIMEOUT_S = 180.0
# A partition silent for so long means that its task has stopped; records come many times a second.
STALLED_PARTITION_S = 1.0
RECOVERY_TIMEOUT_S = 180.0
CATCH_UP_TIMEOUT_S = 300.0
SLOW_DOWN_AFTER_S = 15.0
RECORDS_PER_S_MIN = 100.0
GROUP_TIMEOUT_S = 90.0
WAIT_NOTICE_INTERVAL_S = 5.0
STALLED_S_MAX = 60.0
MOVED_TOPIC = "payments"
SWITCH_TIMEOUT_S = 120.0
NEW_HOME_PAUSE_S = 2.0


@dataclass(frozen=True, slots=True)
class DemoPlan:
    """`carry_s`: seconds of replication before the kill, and again after."""

    topics: Mapping[str, int] = field(default_factory=lambda: {"orders": 4, "payments": 4, "clicks": 4})
    records_per_s: float = 6_000.0
    carry_s: float = 12.0
    keep: bool = False


@dataclass(frozen=True, slots=True)
class DemoOutcome:
    """`difference`: empty if both sides are identical at the end."""

    records: int
    partitions: int
    difference: str = ""


def run_demo(plan: DemoPlan, say: Tell) -> DemoOutcome:
    """Runs the demo; `say` gets sentences and lines of figures. Leaves nothing behind unless `plan.keep`."""
    stage = DemoStage(keep=plan.keep)
    kept = False
    try:
        outcome = _Play(plan, stage, say).run()
        if plan.keep:
            for line in stage.leave_running():
                say(line)
            kept = True
        return outcome
    except Exception:
        if stage.mirror is not None:
            say(f"the end of the mirror's log:\n{log_tail(stage.mirror.log)}")
        if stage.proxy is not None:
            say(f"the end of the proxy's log:\n{log_tail(stage.proxy.log)}")
        raise
    finally:
        if not kept:
            say("ending both clusters and the mirror")
            stage.close()


class _Play:
    """One run. Each act announces what happens and what to watch."""

    def __init__(self, plan: DemoPlan, stage: DemoStage, say: Tell) -> None:
        self._plan, self._stage = plan, stage
        self._tell = say
        self._started_s = time.monotonic()
        self._line_at_s = 0.0
        self._before = (0.0, 0, 0)
        self._tail: TwinTail | None = None
        self._reader: GroupReader | None = None
        self._writers: DemoWriters | None = None
        self._stood: dict[TopicPartition, int] = {}
        self._acknowledged = 0

    def run(self) -> DemoOutcome:
        self._say("starting two real Kafka clusters on this machine, east and west, one broker each")
        self._stage.start_clusters()
        self._source = LogEndReader(self._stage.east.cluster, self._plan.topics)
        self._target = LogEndReader(self._stage.west.cluster, self._plan.topics)
        try:
            self._begin()
            self._kill()
            outcome = self._finish()
            if outcome.difference:
                return outcome
            self._move()
            if self._plan.keep:
                self._say("east would be killed now; it stays, since everything is kept")
            else:
                self._lose_east()
            read = self._go_on()
            if not self._plan.keep:
                self._come_back()
            return self._end(read)
        finally:
            if self._writers is not None:
                self._writers.stop()
            if self._reader is not None:
                self._reader.close()
            if self._tail is not None:
                self._tail.close()

    def _begin(self) -> None:
        plan, partitions = self._plan, sum(self._plan.topics.values())
        self._stage.create_topics(plan.topics)
        self._say(f"both serve; east has {partitions} partitions of {', '.join(plan.topics)}, west has nothing yet")
        self._mirror = self._stage.start_mirror(plan.topics)
        self._say("starting the mirror east->west, which is a Spark job, and waiting for the twins on west")
        started_s = time.monotonic()
        self._until(
            lambda: len(self._target.read()) == partitions, FIRST_RECORD_TIMEOUT_S, "there are no twins on west"
        )
        self._say(f"the twins are there, {time.monotonic() - started_s:.1f} s after the mirror's start")
        self._proxy = self._stage.start_proxy()
        self._say("a proxy gives clients one address for both clusters; it leads each topic to where it is at home")
        self._stage.start_load(self._proxy, plan.topics, COMPRESSIONS, plan.records_per_s)
        self._say(
            f"a producer writes {plan.records_per_s:,.0f} records/s there, and so to east, with keys and headers,"
            f" compressed with {', '.join(COMPRESSIONS)}"
        )
        self._reader = GroupReader(self._proxy, plan.topics)
        self._say(f"a consumer group, {GROUP}, reads there")
        self._tail = TwinTail(self._stage.west.cluster, plan.topics)
        self._say("look at lag, the records that west lacks, and at delay, from produce on east to a consumer on west:")
        self._watch_until(lambda: sum(self._target.read().values()) > 0, FIRST_RECORD_TIMEOUT_S, "west has no record")
        self._watch(plan.carry_s)
        self._come_level()

    def _come_level(self) -> None:
        """Waits until west lacks less than a second's records. Halves the rate on a machine that does not keep up."""
        rate, least = self._plan.records_per_s, float("inf")
        until_s = time.monotonic() + CATCH_UP_TIMEOUT_S
        slower_s = time.monotonic() + SLOW_DOWN_AFTER_S
        while (lag := self._lag()) >= rate:
            now_s = time.monotonic()
            if now_s > until_s:
                raise LabError("lab.demo-timeout", what="west has not caught up", seconds=CATCH_UP_TIMEOUT_S)
            if now_s > slower_s:
                if lag > least / 2 and rate > RECORDS_PER_S_MIN:
                    rate /= 2
                    self._stage.slow_load()
                    self._say(f"this machine does not keep up with that, beside all else: {rate:,.0f} records/s now")
                least, slower_s = lag, now_s + SLOW_DOWN_AFTER_S
            self._watch(0.1)

    def _kill(self) -> None:
        assert self._tail is not None
        tail = self._tail
        tail.begin_watch()
        killed = self._mirror.kill_one_worker()
        killed_s = time.monotonic()
        self._say(f"kill -9 to process {killed}, a Spark worker that runs a task; look at lag and delay:")
        self._watch(1.5 * STALLED_PARTITION_S)
        # Written after the kill, so arrival proves a living task; records under way at the kill prove nothing.
        goal = self._source.read()
        self._watch_until(lambda: self._reached(goal), RECOVERY_TIMEOUT_S, "the killed task did not come back")
        self._watch_until(
            lambda: tail.silent_now_s() < STALLED_PARTITION_S, RECOVERY_TIMEOUT_S, "some partition brings nothing more"
        )
        self._say(f"{time.monotonic() - killed_s:.1f} s after the kill every partition flows again")
        silences_s = tail.silences_s().values()
        struck_s = [silence_s for silence_s in silences_s if silence_s >= STALLED_PARTITION_S]
        spared_s = [silence_s for silence_s in silences_s if silence_s < STALLED_PARTITION_S]
        gap_s = max(silences_s, default=0.0)
        spared = f"; the other {len(spared_s)} went on, silent for {max(spared_s):.1f} s at most" if spared_s else ""
        self._say(f"the gap: {len(struck_s)} partitions stood still for up to {gap_s:.1f} s{spared}")
        assert self._reader is not None
        self._stood = self._reader.leave()
        self._say(f"{GROUP} stops for now, after {sum(self._stood.values()):,} records; others keep coming")
        self._watch(self._plan.carry_s)

    def _finish(self) -> DemoOutcome:
        acknowledged = self._acknowledged = self._stage.stop_load()
        self._say(f"the producer has stopped: east acknowledged {acknowledged:,} records")
        self._catch_up()
        self._say("west has everything; now an ordinary consumer reads both sides and compares")
        self._say("each offset, key, value, header and timestamp")
        outcome = self._compared()
        if not outcome.difference and outcome.records != acknowledged:
            difference = f"both sides hold {outcome.records} records, {acknowledged} were acknowledged"
            return replace(outcome, difference=difference)
        return outcome

    def _compared(self, rescued: DemoRescuedRecords | None = None) -> DemoOutcome:
        found = []
        for topic in self._plan.topics:
            heard = rescued.listener(topic) if rescued else lambda _message: None
            compared = compare_topic(self._stage.east.cluster, self._stage.west.cluster, topic, heard=heard)
            self._say(f"  {compared}")
            found.append(compared)
        records, partitions = sum(one.records for one in found), sum(one.partitions for one in found)
        difference = next((str(comparison) for comparison in found if not comparison.identical), "")
        return DemoOutcome(records, partitions, difference)

    def _move(self) -> None:
        topics = self._plan.topics
        self._writers = writers = DemoWriters(topics, self._proxy)
        self._say("each topic has a writer now, a stock producer that knows the proxy's address and nothing else")
        self._until(lambda: len(writers.first_since(0, topics)) == len(topics), 30, "not all are written")
        self._say(f"a planned switch: {MOVED_TOPIC} moves to west while it is written:")
        since_s = time.monotonic()
        run_verb(self._mirror, ["switch", "run", MOVED_TOPIC, "--to", "west", "--yes"], self._say)
        done_s, before = time.monotonic(), self._ends_on_west(MOVED_TOPIC)
        self._until(
            lambda: bool(writers.first_since(done_s, [MOVED_TOPIC])), SWITCH_TIMEOUT_S, f"{MOVED_TOPIC} is not written"
        )
        self._watch(NEW_HOME_PAUSE_S, figures=False)
        if self._ends_on_west(MOVED_TOPIC) <= before:
            raise LabError("lab.demo-not-replicated", topic=MOVED_TOPIC)
        self._say(
            f"  its writer goes on at west and was told nothing: its longest pause was"
            f" {writers.pause_s(MOVED_TOPIC, since_s):.1f} s"
        )
        if self._plan.keep:
            self._acknowledged += writers.stop()

    def _lose_east(self) -> None:
        assert self._writers is not None
        writers, others = self._writers, [topic for topic in self._plan.topics if topic != MOVED_TOPIC]
        self._until(self._stands_on_west, GROUP_TIMEOUT_S, f"the committed offsets of {GROUP} are not on west")
        self._say("the mirror's workers are stopped for a moment, so that some records are not replicated; then")
        with PausedWorkers(self._mirror):
            had = writers.acknowledged(others)
            self._until(
                lambda: writers.acknowledged(others) >= had + UNREPLICATED_RECORDS, 30, "east takes nothing more"
            )
            self._stage.kill_east()
        self._say("kill -9 to east: the whole cluster is gone, its topics move by force:")
        begun_s = time.monotonic()
        run_verb(self._mirror, ["switch", "run", *others, "--to", "west", "--force", "--yes"], self._say)
        self._until(
            lambda: len(writers.first_since(begun_s, others)) == len(others), SWITCH_TIMEOUT_S, "west takes nothing"
        )
        took_s = max(writers.first_since(begun_s, others).values()) - begun_s
        self._say(f"  {took_s:.1f} s after the command west takes what is written to {' and '.join(others)}")
        self._say("groups were at home on east as well:")
        run_verb(self._mirror, ["proxy", "groups", "--to", "west", "--force", "--yes"], self._say)
        self._watch(NEW_HOME_PAUSE_S, figures=False)
        self._acknowledged += writers.stop()

    def _go_on(self) -> int:
        """The group reads the rest at the same address. Returns the number of records read in all."""
        self._say(f"{GROUP} goes on at the same address:")
        read = read_group_to_ends(self._proxy, self._stood, self._target.read())
        before = sum(self._stood.values())
        self._say(f"  {before:,} records before, and at the very next one of each partition {read:,} more:")
        return before + read

    def _stands_on_west(self) -> bool:
        return read_demo_group_offsets(self._stage.west.cluster, self._stood) == self._stood

    def _ends_on_west(self, topic: str) -> int:
        return sum(end for partition, end in self._target.read().items() if partition.topic == topic)

    def _come_back(self) -> None:
        self._stage.restart_east()
        self._say("east is back. What it took and never sent is saved, and it becomes a twin of west:")
        topics = [topic for topic in self._plan.topics if topic != MOVED_TOPIC]
        run_verb(self._mirror, ["switch", "failback", *topics, "--old", "east", "--yes"], self._say)
        # The topics were recreated, which a client that knows the old ones does not notice.
        self._source = LogEndReader(self._stage.east.cluster, self._plan.topics)

    def _end(self, read: int) -> DemoOutcome:
        """Checks that both sides are identical and that the group read every record once."""
        self._until(lambda: self._source.read() == self._target.read(), CATCH_UP_TIMEOUT_S, "the sides are not level")
        self._say("both sides are compared again:")
        rescued = DemoRescuedRecords(self._mirror.settings.parent / "rescued")
        outcome = self._compared(rescued)
        if outcome.difference:
            return outcome
        if outcome.records != read:
            raise LabError("lab.group-records", group=GROUP, read=read, records=outcome.records)
        self._say(DemoAccount(self._acknowledged, outcome.records, rescued.count, rescued.again).sentence())
        self._say(f"{GROUP} read {read:,} records in all, none twice, none left out")
        return outcome

    def _catch_up(self) -> None:
        """Returns when the twin's end equals the source's. Raises LabError if replication stalls."""
        ends = self._source.read()
        moved_s, before = time.monotonic(), -1
        while (twins := self._target.read()) != ends:
            self._mirror.check()
            crossed = sum(twins.values())
            if crossed != before:
                moved_s, before = time.monotonic(), crossed
            elif time.monotonic() - moved_s > STALLED_S_MAX:
                lacking = {str(partition): end - twins.get(partition, 0) for partition, end in ends.items()}
                raise LabError("lab.demo-stalled", seconds=STALLED_S_MAX, missing=str(lacking))
            self._line()
            time.sleep(0.05)

    def _watch(self, seconds: float, *, figures: bool = True) -> None:
        """Waits; with `figures` prints a line of them each second."""
        until_s = time.monotonic() + seconds
        while time.monotonic() < until_s:
            self._mirror.check()
            if figures:
                self._line()
            time.sleep(0.05)

    def _until(self, done: Callable[[], bool], within_s: float, otherwise: str) -> None:
        """Waits until `done`. Raises LabError after `within_s`."""
        begun_s = said_s = time.monotonic()
        while not done():
            self._mirror.check()
            now_s = time.monotonic()
            if now_s - begun_s > within_s:
                raise LabError("lab.demo-timeout", what=otherwise, seconds=within_s)
            if now_s - said_s > WAIT_NOTICE_INTERVAL_S:
                said_s = now_s
                self._say(f"  waiting, for {now_s - begun_s:.0f} s so far")
            time.sleep(0.05)

    def _watch_until(self, done: Callable[[], bool], within_s: float, otherwise: str) -> None:
        """As `_until`, with a line of figures each second."""
        deadline_s = time.monotonic() + within_s
        while not done():
            if time.monotonic() > deadline_s:
                raise LabError("lab.demo-timeout", what=otherwise, seconds=within_s)
            self._watch(0.1)

    def _reached(self, goal: Mapping[TopicPartition, int]) -> bool:
        twins = self._target.read()
        return all(twins.get(partition, 0) >= end for partition, end in goal.items())

    def _lag(self) -> int:
        # The target first: in the other order, the twin might seem to be ahead.
        target = sum(self._target.read().values())
        return sum(self._source.read().values()) - target

    def _line(self) -> None:
        now_s = time.monotonic()
        if now_s - self._line_at_s < PROGRESS_INTERVAL_S:
            return
        target, source = sum(self._target.read().values()), sum(self._source.read().values())
        was_s, target_was, source_was = self._before
        took_s = now_s - was_s if was_s else PROGRESS_INTERVAL_S
        delays_ms = self._tail.take_delays_ms() if self._tail else []
        delay = ""
        if delays_ms:
            p50_ms, p99_ms = delays_ms[len(delays_ms) // 2], delays_ms[len(delays_ms) * 99 // 100]
            delay = f"   delay p50 {p50_ms:,} ms, p99 {p99_ms:,} ms"
        self._say(
            f"  east {source:9,} ({(source - source_was) / took_s:7,.0f}/s)   west {target:9,}"
            f" ({(target - target_was) / took_s:7,.0f}/s)   lag {source - target:7,}{delay}"
        )
        self._line_at_s, self._before = now_s, (now_s, target, source)

    def _say(self, sentence: str) -> None:
        self._tell(f"{time.monotonic() - self._started_s:4.0f} s  {sentence}")
