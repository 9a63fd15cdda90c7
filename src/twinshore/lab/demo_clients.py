"""The demo's clients and switches: writers behind the proxy, a group that moves from source to target, and a consumer
at the twin's end that measures delay and silence.
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
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import psutil
from confluent_kafka import Consumer, Message
from confluent_kafka import TopicPartition as ClientTopicPartition

from twinshore.config.model import Cluster, TopicPartition
from twinshore.config.sentences import Tell
from twinshore.kafka.clock import wall_ms
from twinshore.lab.clients import client_settings, read_group_offsets
from twinshore.lab.demo_stage import DemoMirror
from twinshore.lab.mirror_process import own_code
from twinshore.lab.processes import LabError
from twinshore.lab.produce import Workload
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
    consumer = _member(cluster, "error")
    expected, passed = dict(stood), set[TopicPartition]()
    read, heard_s = 0, time.monotonic() + _JOINED_WITHIN_S - _SILENT_S_MAX
    try:
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
    finally:
        consumer.close()


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
