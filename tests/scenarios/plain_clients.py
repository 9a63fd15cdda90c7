"""Clients that know nothing of Twinshore: of librdkafka in this process, and Kafka's verifiable producer in Java."""

from __future__ import annotations

import json
import math
import signal
import subprocess
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Mapping
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from testkit.jars import fetch_tools_classpath
from twinshore.lab.clients import client_settings
from twinshore.lab.cluster import LabCluster
from twinshore.lab.jars import ONE_COMPILER_FLAG, find_java

KEYS = 24
CLOSED = ("Cannot perform operation after producer has been closed", "Producer closed while allocating memory")
NOTHING: Mapping[str, object] = MappingProxyType({})
Place = tuple[int, int]


class Acked(NamedTuple):
    key: str
    number: int
    place: Place
    at_s: float


class PlainWriter:
    """Each key counts up from 0, in a thread; `failed` are errors that the application was told."""

    def __init__(self, bootstrap: str, topic: str, per_s: float = 500.0, name: str = "w", **settings: Any) -> None:
        self._name = name
        usual = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5, "log_level": 2}
        self._producer = Producer({**usual, **settings})
        self._topic, self._per_s = topic, per_s
        self.acked: list[Acked] = []
        self.failed: list[str] = []
        self.sent = 0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._write()
        except KafkaException as error:  # fatal, from any call: an idempotent producer ends
            self.failed.append(error.args[0].str())

    def _write(self) -> None:
        began_s = time.monotonic()
        while not self._stopping.is_set():
            while self.sent < (time.monotonic() - began_s) * self._per_s:
                key, number = f"{self._name}-{self.sent % KEYS}", self.sent // KEYS
                try:
                    self._producer.produce(self._topic, f"{number}", key, on_delivery=partial(self._heard, key, number))
                except BufferError:
                    break
                self.sent += 1
            self._producer.poll(0.005)
        self._producer.flush(60)

    def _heard(self, key: str, number: int, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failed.append(error.str())
            return
        place = message.partition() or 0, -1 if message.offset() is None else int(message.offset() or 0)
        self.acked.append(Acked(key, number, place, time.monotonic()))

    def stop(self) -> list[Acked]:
        self._stopping.set()
        self._thread.join(90)
        assert not self._thread.is_alive(), "it cannot end"
        return self.acked

    def longest_pause_s(self) -> float:
        times = [one.at_s for one in self.acked]
        return max(after - before for before, after in pairwise(times))


class TransactionalWriter:
    """A transaction of one record after the other, in a thread. `aborted`: codes of errors, behind which it went on."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "transactional.id": topic, "linger.ms": 0, "log_level": 2}
        )
        self._topic = topic
        self.committed_s: list[float] = []
        self.aborted: list[int] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        self._producer.init_transactions(60)
        while not self._stopping.wait(0.02):
            try:
                self._producer.begin_transaction()
                self._producer.produce(self._topic, b"x", partition=0)
                self._producer.commit_transaction(60)
                self.committed_s.append(time.monotonic())
            except KafkaException as error:
                self.aborted.append(error.args[0].code())
                self._producer.abort_transaction(60)

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(90)
        assert not self._thread.is_alive(), "it cannot end"

    def longest_pause_s(self) -> float:
        return max(after - before for before, after in pairwise(self.committed_s))


class JavaWriter:
    """Kafka's verifiable producer: a number under one of the keys, which it acknowledges as JSON."""

    def __init__(
        self,
        folder: Path,
        bootstrap: str,
        topic: str,
        per_s: int = 500,
        more: Mapping[str, object] = NOTHING,
    ) -> None:
        """`more`: settings, before which its own give way."""
        self._said, self._log = folder / "java-writer.said", folder / "java-writer.log"
        settings = folder / "java-writer.properties"
        own = {"enable.idempotence": "true", "retries": 2147483647, "linger.ms": 5}
        own["max.in.flight.requests.per.connection"] = 5
        settings.write_text("".join(f"{name}={value}\n" for name, value in {**own, **more}.items()))
        words = ["--bootstrap-server", bootstrap, "--topic", topic, "--throughput", str(per_s), "--acks", "-1"]
        words += ["--repeating-keys", str(KEYS), "--command-config", str(settings)]
        command = [
            find_java(),
            ONE_COMPILER_FLAG,
            "-cp",
            fetch_tools_classpath(),
            "org.apache.kafka.tools.VerifiableProducer",
            *words,
        ]
        with self._said.open("wb") as said, self._log.open("wb") as log:
            self._process = subprocess.Popen(command, stdout=said, stderr=log)

    def _lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._said.read_text().split("\n")[:-1] if line.startswith("{")]

    def acked(self) -> list[Acked]:
        found = [one for one in self._lines() if one["name"] == "producer_send_success"]
        return [
            Acked(str(one["key"]), int(one["value"]), (one["partition"], one["offset"]), one["timestamp"] / 1000)
            for one in found
        ]

    def writes(self, more: int) -> None:
        """Returns once so many more are acknowledged."""
        count, until_s = len(self.acked()) + more, time.monotonic() + 60
        while len(self.acked()) < count:
            assert time.monotonic() < until_s, self.said()
            time.sleep(0.1)

    def failed(self) -> list[str]:
        """What it was refused, but for the send that its own end met: that record was never given to a broker."""
        told = [str(one["message"]) for one in self._lines() if one["name"] == "producer_send_error"]
        return [one for one in told if one not in CLOSED]

    def stop(self) -> list[Acked]:
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(60)
        return self.acked()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(30)

    def said(self) -> str:
        return self._log.read_text()[-3000:]


class PlainReader:
    """A member of a group, in a thread. `read`: each record as it came."""

    def __init__(self, bootstrap: str, group: str, topics: list[str], **settings: Any) -> None:
        usual = {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest", "log_level": 2}
        self._consumer = Consumer({**usual, "auto.commit.interval.ms": 500, **settings})
        self._consumer.subscribe(topics, on_assign=self._assigned)
        self.read: list[tuple[Place, str, str]] = []
        self.longest_pause_s = 0.0
        self.errors: list[str] = []
        self.assigned = 0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _assigned(self, *_: object) -> None:
        self.assigned += 1

    def _run(self) -> None:
        last_s = math.inf
        while not self._stopping.is_set():
            for one in self._consumer.consume(500, 0.1):
                if (error := one.error()) is not None:
                    self.errors.append(error.str())
                    continue
                now_s = time.monotonic()
                self.longest_pause_s, last_s = max(self.longest_pause_s, now_s - last_s), now_s
                place = one.partition() or 0, int(one.offset() or 0)
                self.read.append((place, (one.key() or b"").decode(), (one.value() or b"").decode()))
        self._consumer.close()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(60)

    def again(self) -> int:
        """How many it has read more than once."""
        return sum(count - 1 for count in Counter(place for place, _, _ in self.read).values())


class Written(NamedTuple):
    """What became of what was acknowledged: `wrong` in whichever way."""

    records: int
    lost: int
    doubled: int
    reordered: int

    @property
    def wrong(self) -> int:
        return self.lost + self.doubled + self.reordered


def written(lab: LabCluster, topic: str, acked: list[Acked], partitions: int) -> Written:
    """By all that a consumer of committed records finds there."""
    there = records_there(lab, topic, partitions)
    count = Counter((key, number) for _, key, number in there)
    by_key: dict[str, list[int]] = defaultdict(list)
    for _, key, number in there:
        by_key[key].append(number)
    reordered = sum(after < before for some in by_key.values() for before, after in pairwise(some))
    lost = sum((one.key, one.number) not in count for one in acked)
    return Written(len(there), lost, sum(one - 1 for one in count.values()), reordered)


def records_there(lab: LabCluster, topic: str, partitions: int) -> list[tuple[Place, str, int]]:
    """Place, key and number, in the order of each partition; what these writers did not write is left out."""
    settings = {**client_settings(lab.cluster), "group.id": "look", "enable.partition.eof": True}
    settings["auto.offset.reset"] = "earliest"  # a log may begin later
    consumer = Consumer(settings)
    found: list[tuple[Place, str, int]] = []
    try:
        consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
        left, until_s = set(range(partitions)), time.monotonic() + 60  # an end is told again once there is more
        while left and time.monotonic() < until_s:
            for one in consumer.consume(10_000, 1.0):
                if (error := one.error()) is not None:
                    if error.code() == KafkaError._PARTITION_EOF:
                        left.discard(one.partition() or 0)
                    continue
                place, value = (one.partition() or 0, int(one.offset() or 0)), (one.value() or b"").decode()
                if value.isdigit():
                    found.append((place, (one.key() or b"").decode(), int(value)))
    finally:
        consumer.close()
    assert not left, f"{topic} could not be read to its end"
    return sorted(found)
