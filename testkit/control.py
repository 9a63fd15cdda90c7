"""Two clusters, a mirror between them and `twinshore link`: what operators' words do, measured while all runs."""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from testkit.figures import StageError, percentile
from testkit.loader import load, plain
from testkit.verbs import run_verb
from testkit.watermarks import TopicEndReader
from twinshore.config.model import Cluster
from twinshore.lab.clients import client_settings

T = TypeVar("T")

IN_FORCE_S = 5.0
SETTLE_S = 2.0
# What is written crosses while it is still being written: so long that may take, and nothing has run dry.
LOADED_S = 10.0
NEIGHBOUR_RATE = 100
# Four times that of all others.
PRIORITY = 40
_SENT = struct.Struct(">q")
_FILLER = bytes(200)


class Neighbour:
    """A quiet topic of one partition at a steady rate: how long each of its records takes to the other side."""

    def __init__(self, source: Cluster, target: Cluster, topic: str) -> None:
        self._topic = topic
        self._producer = Producer({**client_settings(source), "linger.ms": 0, "acks": "all", "log_level": 0})
        quick = {"group.id": "neighbour", "fetch.min.bytes": 1, "enable.auto.commit": False, "log_level": 0}
        self._consumer = Consumer({**client_settings(target), **quick})
        self._ended = threading.Event()
        self._seen_ms: list[float] = []
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._send, self._receive)]

    def __enter__(self) -> Neighbour:
        self._consumer.assign([TopicPartition(self._topic, 0, 0)])
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join(timeout=30)
        self._producer.flush(10)
        self._consumer.close()

    def _send(self) -> None:
        begun_s, number = time.monotonic(), 0
        while not self._ended.wait(max(0.0, begun_s + number / NEIGHBOUR_RATE - time.monotonic())):
            number += 1
            self._producer.produce(self._topic, _SENT.pack(time.monotonic_ns()) + _FILLER, partition=0)
            self._producer.poll(0)

    def _receive(self) -> None:
        while not self._ended.is_set():
            message = self._consumer.poll(0.1)
            if message is None:
                continue
            if message.error():
                raise KafkaException(message.error())
            took_ms = (time.monotonic_ns() - _SENT.unpack_from(message.value() or b"")[0]) / 1e6
            with self._lock:
                self._seen_ms.append(took_ms)

    def latency(self, during_s: float) -> Latency:
        """Of what arrives from now on."""
        with self._lock:
            self._seen_ms.clear()
        time.sleep(during_s)
        with self._lock:
            found = sorted(self._seen_ms)
        if not found:
            raise StageError(f"nothing of {self._topic} arrived in {during_s:.0f} s")
        return Latency(len(found) / during_s, percentile(found, 0.5), percentile(found, 0.99))


@dataclass(frozen=True, slots=True)
class Latency:
    """Of a neighbour: records that arrived per second, and how long they took."""

    records_per_s: float
    p50_ms: float
    p99_ms: float

    def in_words(self) -> str:
        return f"{self.records_per_s:.0f}/s, p50 {self.p50_ms:.1f} ms, p99 {self.p99_ms:.1f} ms"


@dataclass(slots=True)
class ControlStage:
    """`said` is the mirror's log so far; topics have `partitions` each."""

    source: Cluster
    target: Cluster
    link: str
    settings: Path
    said: Callable[[], str]
    partitions: int = 2
    _ends: dict[str, TopicEndReader] = field(default_factory=dict)

    def tell(self, *words: str) -> str:
        """Runs `twinshore link`; returns what it says."""
        return run_verb(["link", *words], self.settings)

    def in_force(self, words: str, *, gone: bool = False) -> float:
        """How long it took until the mirror said so, or with `gone` no longer; the line of its last `now holds` is
        searched."""
        begun_s = time.monotonic()
        while (words in self.said().rpartition("in effect now: ")[2].partition("\n")[0]) == gone:
            if time.monotonic() - begun_s > IN_FORCE_S:
                wanted = f"{'still says' if gone else 'did not say'} {words!r}"
                raise StageError(f"the mirror {wanted} after {IN_FORCE_S:.0f} s: {self.said()[-800:]}")
            time.sleep(0.02)
        return time.monotonic() - begun_s

    def backlog(self, topic: str, size: int) -> None:
        """Adds about so many bytes to the topic, in 16 KB batches of records that do not compress."""
        kind = plain()
        load(self.source, topic, kind.batches, int(size / kind.bytes_per_record))

    def crossed(self, topic: str) -> float:
        """Bytes of the topic on the target, if `backlog` wrote all of them."""
        end = self._ends.setdefault(topic, TopicEndReader(self.target, topic, self.partitions))
        return end.records() * plain_bytes()

    def rates(self, topics: Collection[str], during_s: float) -> dict[str, float]:
        """Bytes per second that cross."""
        before = {topic: self._crossed_at(topic) for topic in topics}
        time.sleep(during_s)
        after = {topic: self._crossed_at(topic) for topic in topics}
        return {topic: (after[topic][0] - before[topic][0]) / (after[topic][1] - before[topic][1]) for topic in topics}

    def beside(self, topic: str, work: Callable[[], T]) -> tuple[T, float]:
        """What the work gives, and how many bytes per second of the topic cross meanwhile."""
        before_bytes, before_s = self._crossed_at(topic)
        found = work()
        after_bytes, after_s = self._crossed_at(topic)
        return found, (after_bytes - before_bytes) / (after_s - before_s)

    def _crossed_at(self, topic: str) -> tuple[float, float]:
        """And the moment: the middle of the question, which may take its time."""
        begun_s = time.monotonic()
        crossed = self.crossed(topic)
        return crossed, (begun_s + time.monotonic()) / 2


def plain_bytes() -> float:
    """Of one record of a backlog, its part of the batch's header included."""
    return _PLAIN_BYTES


_PLAIN_BYTES = plain().bytes_per_record


@dataclass(frozen=True, slots=True)
class Throttled:
    """What crossed under a throttle, as a part of it, and how long the throttle took to be in force."""

    bytes_s: float
    bound: float
    in_force_s: float

    @property
    def off(self) -> float:
        return abs(self.bytes_s / self.bound - 1)

    def in_words(self) -> str:
        return f"{self.bytes_s / 1e6:.2f} of {self.bound / 1e6:.2f} MB/s, in force after {self.in_force_s:.1f} s"


def throttle(stage: ControlStage, topic: str, bound: int, during_s: float, *, whole_link: bool) -> Throttled:
    """Throttles the link, or one topic, sends more than that through it, and takes the throttle away again. The others
    of a throttled link must be quiet."""
    named = [] if whole_link else ["--topic", topic]
    stage.tell("throttle", stage.link, str(bound), *named)
    took_s = stage.in_force(f"at most {bound:,} bytes/s")
    time.sleep(SETTLE_S)
    stage.backlog(topic, int(bound * (during_s + LOADED_S + 2 * SETTLE_S)))
    time.sleep(SETTLE_S)
    rate = stage.rates([topic], during_s)[topic]
    stage.tell("throttle", stage.link, "0", *named)
    return Throttled(rate, bound, took_s)


def prioritised(stage: ControlStage, first: str, other: str, bound: int, during_s: float) -> dict[str, float]:
    """Bytes per second of two topics while a throttle of the link keeps both waiting, the first with priority."""
    # Both wait until all is written, and one word lets both go: what went before would run dry while it is measured.
    stage.tell("pause", stage.link, "--topic", first, "--topic", other)
    stage.in_force(f"topics {first}, {other} paused")
    for topic in (first, other):
        stage.backlog(topic, int(bound * (during_s + 3 * SETTLE_S)))
    stage.tell("throttle", stage.link, str(bound))
    stage.tell("priority", stage.link, first, str(PRIORITY))
    stage.in_force(f"{first} has priority {PRIORITY}")
    stage.tell("resume", stage.link, "--all")
    stage.in_force("paused", gone=True)
    time.sleep(2 * SETTLE_S)
    rates = stage.rates([first, other], during_s)
    stage.tell("reset", stage.link)
    return rates


def drained(stage: ControlStage, topic: str, within_s: float = 60.0) -> float:
    """How long it takes until the twin has all that the source has."""
    begun_s, source = time.monotonic(), TopicEndReader(stage.source, topic, stage.partitions)
    while stage.crossed(topic) < source.records() * plain_bytes():
        if time.monotonic() - begun_s > within_s:
            raise StageError(f"{topic} did not cross within {within_s:.0f} s: {stage.said()[-800:]}")
        time.sleep(0.02)
    return time.monotonic() - begun_s
