"""Three real brokers on which a loss of the model is done: who leads, who is in sync, what is acknowledged."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from twinshore.advisor.core.simulator.explore import find_story
from twinshore.advisor.core.simulator.model import ModelPartition
from twinshore.advisor.core.simulator.search import play_story
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.metadata import NO_LEADER, PartitionMetadata
from twinshore.lab.clients import client_settings, read_group_offsets
from twinshore.lab.cluster import LabBroker, LabCluster

SETTINGS = {
    "offsets.retention.minutes": "1",
    "offsets.retention.check.interval.ms": "1000",
    "leader.imbalance.check.interval.seconds": "3600",
}
WITHIN_S = 90.0
# A fetch that waits at the leader is answered by then; a follower that stands still sends no other.
FETCHES_OVER_S = 1.5
READER = """
import json, sys, time
from confluent_kafka import Consumer, TopicPartition
consumer = Consumer(json.loads(sys.argv[1]))
place, placed = TopicPartition(sys.argv[2], 0), False
consumer.assign([place])
while True:
    record = consumer.poll(0.2)
    if not placed and consumer.get_watermark_offsets(place, cached=True)[1] >= 0:
        placed = True
        print("placed", flush=True)
    if record is not None and not record.error():
        print(int(record.value()), flush=True)
        # It is at work on the record, and its client goes on by itself.
        while True:
            time.sleep(0.05)
"""


def until(holds: Callable[[], bool], what: str, within_s: float = WITHIN_S) -> None:
    deadline = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < deadline, f"after {within_s:g} s not yet: {what}"
        time.sleep(0.1)


def ended(story: str) -> ModelPartition:
    """How the model's partition stands after the story."""
    return play_story(find_story(story))[-1].after


def log_of(state: ModelPartition) -> list[int]:
    """What its leader has that retention has left."""
    assert state.led is not None
    return [entry.record for entry in state.led.log[state.first :]]


class Sent:
    """Records by number, and which of them the broker acknowledged."""

    def __init__(self, cluster: LabCluster, topic: str, settings: Mapping[str, Any]) -> None:
        self.topic, self.acknowledged, self.refused = topic, list[int](), dict[int, str]()
        self.producer = Producer({**client_settings(cluster.cluster), "linger.ms": 0, **settings})

    def send(self, *records: int) -> None:
        """Returns at once: who waits says `settle`."""
        for record in records:

            def heard(error: Any, _: Any, record: int = record) -> None:
                if error is None:
                    self.acknowledged.append(record)
                else:
                    self.refused[record] = error.name()

            self.producer.produce(self.topic, b"%d" % record, partition=0, on_delivery=heard)
        self.producer.poll(0)

    def settle(self, within_s: float = WITHIN_S) -> None:
        """Until each record is acknowledged or refused."""
        assert self.producer.flush(within_s) == 0


class Stage:
    """The cluster with one topic, whose partition 0 is what it is about."""

    def __init__(self, cluster: LabCluster, topic: str, copies: int, settings: Mapping[str, str]) -> None:
        self.cluster, self.topic = cluster, topic
        cluster.create_topic(topic, copies=copies, settings=settings)
        until(lambda: len(self.seen().isr) == copies, "all are in sync")
        first = self.seen()
        self.copies = copies
        self.leader = self.broker(first.leader)
        self.followers = [self.broker(node) for node in first.replicas if node != first.leader]

    def broker(self, node: int) -> LabBroker:
        return next(one for one in self.cluster.brokers if one.node_id == node)

    def seen(self) -> PartitionMetadata:
        """As a broker tells it that answers."""
        with closing(KafkaCluster(self.cluster.cluster, patience_s=20.0, call_s=5.0)) as kafka:
            (partition,) = kafka.metadata([self.topic]).topics[self.topic].partitions
        return partition

    def led(self) -> None:
        until(lambda: self.seen().leader != NO_LEADER and self.broker(self.seen().leader).answers, "somebody leads")

    def led_by(self, broker: LabBroker) -> None:
        until(lambda: self.seen().leader == broker.node_id, f"broker {broker.node_id} leads")

    def led_by_another(self, than: LabBroker) -> None:
        until(lambda: self.seen().leader not in (NO_LEADER, than.node_id), "another one leads")

    def in_sync(self, count: int) -> None:
        until(lambda: len(self.seen().isr) == count, f"{count} in sync")

    @contextmanager
    def standing_still(self, brokers: Iterable[LabBroker]) -> Iterator[None]:
        """They fetch nothing, and are missed by nobody yet: it has to be short."""
        brokers = list(brokers)
        for one in brokers:
            one.pause()
        try:
            time.sleep(FETCHES_OVER_S)
            yield
        finally:
            for one in brokers:
                one.resume()

    def log(self) -> list[int]:
        """What the leader has, from its beginning to its end."""
        consumer = Consumer({**client_settings(self.cluster.cluster), "group.id": "log", "enable.auto.commit": False})
        try:
            place = TopicPartition(self.topic, 0)
            start, end = _ends(consumer, place)
            consumer.assign([TopicPartition(self.topic, 0, start)])
            found: list[int] = []
            at, deadline = start, time.monotonic() + WITHIN_S
            while at < end:
                assert time.monotonic() < deadline, found
                record = consumer.poll(1.0)
                if record is not None and not record.error():
                    found.append(int(record.value() or b""))
                    at = (record.offset() or 0) + 1
            return found
        finally:
            consumer.close()

    def whole_again(self) -> None:
        """All brokers run, and all replicas are in sync."""
        for one in self.cluster.brokers:
            if not one.alive:
                one.restart()
        self.in_sync(self.copies)


def _ends(consumer: Consumer, place: TopicPartition) -> tuple[int, int]:
    """Asked again while the client still takes another broker for the leader."""
    deadline = time.monotonic() + WITHIN_S
    while True:
        try:
            start, end = consumer.get_watermark_offsets(place, timeout=30)
            return int(start), int(end)
        except KafkaException:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


class Reading:
    """A group that reads the topic: with consumers that die at work, and such that handle what they get."""

    def __init__(self, stage: Stage, **settings: Any) -> None:
        self.stage, self.handled = stage, list[int]()
        base = client_settings(stage.cluster.cluster)
        self.settings = {**base, "group.id": f"of-{stage.topic}", "auto.commit.interval.ms": 200, **settings}
        # A cluster's first group waits for the topic of places; a consumer that meets that asks for its place no more.
        read_group_offsets(stage.cluster.cluster, self.settings["group.id"], stage.topic, [0])

    def dies_at_work(
        self, folder: Path, *, after_s: float = 0.0, once_placed: Callable[[], None] = lambda: None
    ) -> int:
        """A process that gets one record and is killed before it has handled it; the record. `once_placed` is done once
        the process has its place."""
        words = [sys.executable, "-c", READER, json.dumps(self.settings), self.stage.topic]
        with (folder / "reader.log").open("wb") as log:
            process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=log)
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"placed\n"
            once_placed()
            got = int(process.stdout.readline())
            time.sleep(after_s)
        finally:
            process.kill()
            process.wait()
            process.stdout.close()  # type: ignore[union-attr]
        return got

    def committed(self) -> int:
        """Below 0 where the group has no place."""
        consumer = Consumer(self.settings)
        try:
            (place,) = consumer.committed([TopicPartition(self.stage.topic, 0)], timeout=30)
            return int(place.offset)
        finally:
            consumer.close()

    def reads(self, count: int, *, meanwhile: Callable[[], None] = lambda: None) -> list[int]:
        """A consumer handles so many and commits behind each. `meanwhile` is done once it has its place."""
        consumer = Consumer(self.settings)
        place, got = TopicPartition(self.stage.topic, 0), list[int]()
        deadline = time.monotonic() + WITHIN_S
        placed = False
        try:
            consumer.assign([place])
            while len(got) < count:
                assert time.monotonic() < deadline, got
                record = consumer.poll(0.2)
                if record is not None and not record.error():
                    got.append(int(record.value() or b""))
                    self.handled.append(got[-1])
                    consumer.commit(message=record, asynchronous=False)
                # It knows where the log ends once a fetch from its place was answered.
                if not placed and consumer.get_watermark_offsets(place, cached=True)[1] >= 0:
                    placed = True
                    meanwhile()
        finally:
            consumer.close()
        return got
