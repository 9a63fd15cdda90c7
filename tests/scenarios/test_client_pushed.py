"""Clients whose settings a configuration centre pushes: they go to another cluster, and nobody restarts them."""

from __future__ import annotations

import json
import threading
import time
from contextlib import closing
from itertools import count
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Message

from testkit.clients import forget_links
from testkit.log_lines import LogLines
from tests.client.test_clients import settings
from tests.scenarios.mirror_rig import Rig, same_ends, settings_text, spans
from tests.scenarios.test_mirror_basic import fill
from twinshore.client import FailoverConsumer, FailoverProducer
from twinshore.client.discovery.config_service import Pushes, PushFile
from twinshore.kafka.cluster import KafkaCluster
from twinshore.lab.cluster import LabCluster
from twinshore.routing.homes_topic import HomesTopic

FIRST_HOME = "a push decides no home of a topic that a link carries: a mirror's first word, told to its target, counts"


def push(path: Path, text: str) -> None:
    part = path.with_suffix(".part")
    part.write_text(text)
    part.replace(path)


def until(what: str, holds: object) -> None:
    until_s = time.monotonic() + 60
    while not holds():  # type: ignore[operator]
        assert time.monotonic() < until_s, what
        time.sleep(0.05)


class Writing:
    """Calls of one thread, numbered, to seven keys; where the topic was written when each was answered."""

    def __init__(self, producer: FailoverProducer, topic: str) -> None:
        self._producer, self._topic = producer, topic
        self.answers: dict[int, str] = {}
        self.errors: list[object] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._write)
        self._thread.start()

    def _answered(self, error: KafkaError | None, message: Message | None) -> None:
        if error is not None or message is None:
            self.errors.append(error)
        else:
            self.answers[int(message.value() or b"-1")] = self._producer.where(self._topic)

    def _write(self) -> None:
        for number in count():
            if self._stop.wait(0.002):
                return
            self._producer.produce(self._topic, b"%d" % number, b"key %d" % (number % 7), on_delivery=self._answered)
            self._producer.poll(0)

    def end(self) -> int:
        """How many calls there were, each answered."""
        self._stop.set()
        self._thread.join(30)
        assert self._producer.flush(60) == 0
        assert not self.errors
        assert len(self.answers) == max(self.answers) + 1, "each call was answered"
        return len(self.answers)


class Reading:
    """What a consumer has handed out, by key."""

    def __init__(self, consumer: FailoverConsumer) -> None:
        self._consumer = consumer
        self.found: dict[bytes, list[int]] = {}

    def has(self, count: int) -> bool:
        for message in self._consumer.consume(500, 0.1):
            assert message.error() is None
            self.found.setdefault(bytes(message.key() or b""), []).append(int(message.value() or b"-1"))
        return sum(map(len, self.found.values())) >= count

    def numbers(self) -> set[int]:
        return {number for some in self.found.values() for number in some}


@pytest.mark.claim(
    "client", "pushed", "clients go where they are pushed, without a restart: 0 lost or doubled; half a push is none"
)
@pytest.mark.parametrize("spooled", [False, True])
def test_clients_go_where_they_are_pushed_without_a_restart(
    east: LabCluster, west: LabCluster, unique_topic: str, tmp_path: Path, spooled: bool, log_lines: LogLines
) -> None:
    """No link carries the topic, so no cluster says where it is at home: the push does."""
    for lab in (east, west):
        lab.create_topic(unique_topic, partitions=2)
    writes, reads = tmp_path / "writes.json", tmp_path / "reads.json"

    def at(home: str, **more: object) -> str:
        clusters = {"east": settings(east), "west": settings(west)}
        return json.dumps({"clusters": clusters, "home": home, **more})

    for path in (writes, reads):
        path.write_text(at("east"))
    config = {"group.id": f"{unique_topic}-readers", "auto.offset.reset": "earliest"}
    spool = tmp_path / "spool" if spooled else None
    first, second = (Pushes(PushFile(path), last_good=path.with_suffix(".last")) for path in (writes, reads))
    with (
        FailoverProducer({}, clusters=first, topics=[unique_topic], spool=spool) as producer,
        FailoverConsumer(config, clusters=second) as consumer,
    ):
        consumer.subscribe([unique_topic])
        writing, reading = Writing(producer, unique_topic), Reading(consumer)
        until("read on east", lambda: reading.has(1))
        push(writes, '{"clusters": {')
        until("half a push is told", lambda: any("this push is not taken" in one for one in log_lines))
        assert producer.where(unique_topic) == consumer.where(unique_topic) == "east"

        push(writes, at("west", settings={"linger.ms": 1}))
        until("written on west", lambda: "west" in writing.answers.values())
        time.sleep(0.5)
        calls = writing.end()
        ends = [sum(end for _, end in spans(lab.cluster, unique_topic, 2)) for lab in (east, west)]
        assert sum(ends) == calls
        until("all of east is read", lambda: reading.has(ends[0]))
        push(reads, at("west"))
        until("all of west is read", lambda: reading.has(calls))
        assert consumer.where(unique_topic) == "west"
    for key, numbers in reading.found.items():
        assert numbers == sorted(set(numbers)), f"{key!r} out of order, or twice"
    assert sum(map(len, reading.found.values())) == calls
    assert len([one for one in log_lines if "this push" in one]) == 1, log_lines


@pytest.mark.claim("client", "first-home", FIRST_HOME)
def test_a_push_decides_no_home_of_a_topic_that_a_link_carries(
    east: LabCluster, west: LabCluster, unique_topic: str, tmp_path: Path
) -> None:
    """The mirror has told the target where its topics are at home, and nothing to the source."""
    topics = [unique_topic, *(f"{unique_topic}-{number}" for number in range(20))]
    for name in topics:
        east.create_topic(name)
    fill(east, unique_topic, 10)
    text = settings_text(tmp_path, [east.cluster, west.cluster], {"east->west": f"{unique_topic}.*"})
    rig = Rig(tmp_path, text)
    rig.process.start()
    try:
        with closing(KafkaCluster(west.cluster)) as kafka:
            notes = HomesTopic(kafka)
            until("each twin's home is said", lambda: notes.read().keys() >= set(topics))
            said = {(one.home, one.word, one.pair, one.link) for name, one in notes.homes.items() if name in topics}
            assert said == {("east", (1, 0), "", "")}
        with closing(KafkaCluster(east.cluster)) as kafka:
            assert not HomesTopic(kafka).read().keys() & set(topics)
        path = tmp_path / "push.json"
        clusters = {"east": settings(east), "west": settings(west)}
        push(path, json.dumps({"clusters": clusters, "home": "west"}))
        with FailoverProducer({}, clusters=Pushes(PushFile(path)), topics=[unique_topic]) as producer:
            producer.produce(unique_topic, b"11", b"key")
            assert producer.flush(60) == 0
            assert producer.where(unique_topic) == "east"
        until("it has crossed", lambda: same_ends(east.cluster, west.cluster, unique_topic, 1))
        assert spans(east.cluster, unique_topic, 1) == [(0, 11)]
    finally:
        rig.process.end()
        for lab in (east, west):
            forget_links(lab.cluster)
