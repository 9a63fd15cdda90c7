"""An application of Kafka Streams that is moved by hand: it stops where a switch holds its topics, and goes on where
they are at home then."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, TopicPartition

from testkit.jars import compile_java, fetch_streams_classpath
from twinshore.config.errors import KafkaError
from twinshore.config.model import Cluster
from twinshore.kafka.clock import wall_ms
from twinshore.kafka.cluster import KafkaCluster
from twinshore.lab.clients import client_settings
from twinshore.lab.jars import find_java
from twinshore.lab.processes import ChildProcess, start_child
from twinshore.routing.core.subscribers import HomeSubscription, Pause, WriteTo, unsubscribe_record
from twinshore.routing.homes_topic import HomesTopic, SubscribersTopic

SOURCE = Path(__file__).with_name("streams") / "Counting.java"
APPLICATION = "counter"
INPUT, OUTPUT = "orders", "totals"
REPARTITION, CHANGELOG = f"{APPLICATION}-by-key-repartition", f"{APPLICATION}-counts-changelog"
TOPICS = (INPUT, OUTPUT, REPARTITION, CHANGELOG)
JVM = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")
STOP_S = 90.0
LEASE_S = 30.0  # on a machine that is busy nobody shall miss his lease
PATIENCE_S = 5.0


class Counting:
    """`tests/scenarios/streams/Counting.java`, whose state begins empty at each start: as on another host, it comes
    from the changelog."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        classes = folder / "classes"
        classes.mkdir()
        self._classpath = compile_java(SOURCE, fetch_streams_classpath(), classes)
        self._child: ChildProcess | None = None
        self._starts = 0
        self.log = folder / "streams.log"

    @property
    def runs(self) -> bool:
        return self._child is not None and self._child.alive()

    def start(self, cluster: Cluster, guarantee: str = "exactly_once_v2") -> None:
        self._starts += 1
        state = self._folder / f"state-{self._starts}"
        words = [",".join(cluster.bootstrap), APPLICATION, INPUT, OUTPUT, str(state), guarantee]
        command = [find_java(), *JVM, "-cp", self._classpath, "Counting", *words]
        self._child = start_child(command, folder=self._folder, log=self.log)

    def stop(self) -> None:
        """Orderly: what it has begun is committed."""
        if self._child is not None:
            self._child.end(patience_s=STOP_S)

    def kill(self) -> None:
        if self._child is not None:
            self._child.end()

    def said(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")[-3000:] if self.log.exists() else ""


class FollowingApplication:
    """Runs it where home lines say, as a client library will: it stops when its topics are held, says so, and starts
    at the new home. `with FollowingApplication(...)`."""

    def __init__(self, counting: Counting, clusters: Mapping[str, Cluster], begin: str) -> None:
        self._counting, self._clusters = counting, clusters
        self._id, self._at = uuid.uuid4().hex, ""
        self._following = HomeSubscription(self._id, APPLICATION, TOPICS, clusters, begin, LEASE_S)
        self._guard, self._stopping = threading.Lock(), threading.Event()
        self._broken: Exception | None = None
        self.starts: list[str] = []
        self._threads = [threading.Thread(target=self._run, daemon=True)]
        self._threads += [threading.Thread(target=self._follow, args=(one,), daemon=True) for one in clusters.values()]

    def __enter__(self) -> FollowingApplication:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join(STOP_S + PATIENCE_S)
        self._counting.stop()
        assert self._broken is None, self._broken

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                with self._guard:
                    orders = [self._following.order(topic, time.monotonic()) for topic in TOPICS]
                if any(isinstance(one, Pause) for one in orders):
                    self._counting.stop()
                    with self._guard:
                        for topic in TOPICS:
                            self._following.parked(topic)
                elif isinstance(orders[0], WriteTo) and not (self._counting.runs and self._at == orders[0].cluster):
                    self._counting.stop()
                    self._at = orders[0].cluster
                    self.starts.append(self._at)
                    self._counting.start(self._clusters[self._at])
                self._stopping.wait(0.02)
        except Exception as error:
            self._broken = error

    def _follow(self, cluster: Cluster) -> None:
        with closing(KafkaCluster(cluster, client_id="follower-counter", patience_s=PATIENCE_S)) as kafka:
            homes, followers = HomesTopic(kafka), SubscribersTopic(kafka)
            pause_s = 0.0
            while not self._stopping.wait(pause_s):
                try:
                    pause_s = self._ask(cluster.name, kafka, homes, followers)
                except (KafkaError, KafkaException):
                    pause_s = 0.2
            try:
                followers.say(unsubscribe_record(self._id), wall_ms())
            except KafkaError:
                pass

    def _ask(self, name: str, kafka: KafkaCluster, homes: HomesTopic, followers: SubscribersTopic) -> float:
        cluster_id = kafka.cluster_id()
        if not homes.homes and not followers.exists():
            followers.make()
        with self._guard:
            self._following.met(name, cluster_id)
            saying = self._following.says() if self._following.must_announce(name, time.monotonic()) else None
        asked_s = time.monotonic()
        if saying:
            followers.say(saying.line(), wall_ms())
            with self._guard:
                self._following.said(name, saying, asked_s, time.monotonic())
            asked_s = time.monotonic()
        found = homes.read()
        with self._guard:
            self._following.read(name, found, asked_s)
            return self._following.poll_s()


def counts(cluster: Cluster) -> dict[str, list[int]]:
    """What readers of committed records see of each key in the output, in order: 1, 2, 3 where nothing is torn."""
    found: dict[str, list[int]] = {}
    for key, value in _committed(cluster, OUTPUT):
        found.setdefault(key.decode().removeprefix("of "), []).append(int(value))
    return found


def fed(cluster: Cluster) -> dict[str, int]:
    """How many committed records of each key the input holds: the truth."""
    found: dict[str, int] = {}
    for key, _ in _committed(cluster, INPUT):
        found[key.decode()] = found.get(key.decode(), 0) + 1
    return found


def _committed(cluster: Cluster, topic: str) -> Sequence[tuple[bytes, bytes]]:
    reading = {"group.id": "look", "enable.partition.eof": True, "isolation.level": "read_committed"}
    consumer = Consumer({**client_settings(cluster), **reading})
    found: list[tuple[bytes, bytes]] = []
    try:
        left = set(consumer.list_topics(topic, timeout=20).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, number, 0) for number in left])
        until_s = time.monotonic() + 120
        while left:
            assert time.monotonic() < until_s, f"{topic} cannot be read to its end"
            for message in consumer.consume(10_000, 1.0):
                if message.error():
                    # Told again where records came in between.
                    left.discard(message.partition() or 0)
                    consumer.pause([TopicPartition(topic, message.partition() or 0)])
                    continue
                found.append((bytes(message.key() or b""), bytes(message.value() or b"")))
    finally:
        consumer.close()
    return found
