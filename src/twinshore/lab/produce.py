"""Writes a given number of records to a topic, or a steady, varied load. Acknowledged ones are counted: the twin must
have them.
"""

from __future__ import annotations

import itertools
import json
import random
import threading
import time
from collections.abc import Iterable, Mapping, Sequence

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from twinshore.config.model import Cluster
from twinshore.lab.clients import client_settings, create_admin_client, create_topic
from twinshore.lab.processes import LabError

COMPRESSIONS = ("none", "gzip", "lz4", "zstd", "snappy")

_SLICE_S = 0.02
_DELIVERY_MS_MAX = 120_000
_FLUSH_S_MAX = 150.0
_POOL = 64
ProducedRecord = tuple[bytes | None, bytes | None, int]


class Workload:
    """Idempotent producers, one per compression, that share a rate. Records have keys, headers and values of mixed
    sizes.

    `heard_s`: gets the monotonic time of each acknowledgement. Use as `with Workload(...)`, or call `start` and `stop`.
    """

    def __init__(
        self,
        cluster: Cluster,
        topic: str,
        *,
        records_per_s: float,
        compressions: Sequence[str] = COMPRESSIONS,
        value_bytes: int = 400,
        seed: int = 1,
        settings: dict[str, str | int] | None = None,
        heard_s: list[float] | None = None,
    ) -> None:
        self._records_per_s = records_per_s
        self._topic = topic
        self._heard_s = heard_s
        self._acked = 0
        self._sent = 0
        self._failed = ""
        self._stopping = threading.Event()
        self._samples = _samples(random.Random(seed), value_bytes)
        self._producers = [
            Producer(
                {
                    **client_settings(cluster),
                    "enable.idempotence": True,
                    "linger.ms": 5,
                    "delivery.timeout.ms": _DELIVERY_MS_MAX,
                    "compression.type": compression,
                    **(settings or {}),
                }
            )
            for compression in compressions
        ]
        self._thread = threading.Thread(target=self._run, name=f"workload-{topic}", daemon=True)

    @property
    def acked(self) -> int:
        return self._acked

    @property
    def sent(self) -> int:
        return self._sent

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> int:
        """Stops sending, waits for pending records, and returns the number acknowledged.

        Raises LabError if a record was given up, since the twin's contents are then undefined.
        """
        self._stopping.set()
        self._thread.join()
        for producer in self._producers:
            left = producer.flush(_FLUSH_S_MAX)
            if left and not self._failed:
                self._failed = f"{left} records were not acknowledged within {_FLUSH_S_MAX:.0f} s"
        if self._failed:
            raise LabError("lab.workload-failed", topic=self._topic, cause=self._failed)
        return self._acked

    def __enter__(self) -> Workload:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if not self._stopping.is_set():
            self.stop()

    def slow_down(self) -> None:
        self._records_per_s /= 2

    def _run(self) -> None:
        before_s, owed = time.monotonic(), 0.0
        producers = itertools.cycle(self._producers)
        while not self._stopping.wait(_SLICE_S):
            now_s = time.monotonic()
            owed += (now_s - before_s) * self._records_per_s
            before_s, due = now_s, int(owed)
            # One producer a slice, so that each compression makes batches of more than one record.
            producer = next(producers)
            try:
                while self._sent < due and not self._stopping.is_set():
                    self._send(producer)
            except KafkaException as error:
                self._failed = str(error)
                return
            for one in self._producers:
                one.poll(0)

    def _send(self, producer: Producer) -> None:
        key, value, headers = self._samples[self._sent % _POOL]
        number = str(self._sent).encode()
        try:
            producer.produce(
                self._topic,
                number + value if value is not None else None,
                key + number if key is not None else None,
                headers=headers,
                on_delivery=self._delivered,
            )
        except BufferError:
            producer.poll(0.1)
            return
        self._sent += 1

    def _delivered(self, error: KafkaError | None, _message: Message) -> None:
        if error is None:
            self._acked += 1
            if self._heard_s is not None:
                self._heard_s.append(time.monotonic())
        else:
            self._failed = error.str()


_Sample = tuple[bytes | None, bytes | None, list[tuple[str, str | bytes | None]]]


def _samples(chance: random.Random, value_bytes: int) -> list[_Sample]:
    """Records of every shape: without key, without value, empty, and with no header, one, or a null one."""
    words = [bytes(chance.choices(b"abcdefghijklmnopqrstuvwxyz ", k=32)) for _ in range(32)]
    samples: list[_Sample] = []
    for number in range(_POOL):
        key = None if number % 8 == 7 else b"key-%d-" % number
        size = chance.randrange(value_bytes // 2, value_bytes * 3 // 2 + 1)
        value = b"".join(chance.choices(words, k=size // 32 + 1))[:size]
        headers: list[tuple[str, str | bytes | None]] = []
        if number % 4:
            headers.append(("trace", chance.randbytes(16)))
        if number % 4 == 3:
            headers.append(("nothing", None))
        samples.append((key, None if number == 11 else b"" if number == 12 else value, headers))
    return samples


_ANSWER_S = 60.0
_POLL_EVERY = 1_000


def fill_topic(cluster: Cluster, topic: str, *, records: int, partitions: int) -> int:
    """Appends records to the topic, created if missing; returns its number of partitions. Records are small JSON with a
    key.
    """
    found = create_admin_client(cluster).list_topics(timeout=_ANSWER_S).topics.get(topic)
    if found is None:
        create_topic(cluster, topic, partitions=partitions)
    produce_records(cluster, topic, map(_filling, range(records)), {"linger.ms": 20})
    return len(found.partitions) if found is not None else partitions


def _filling(number: int) -> ProducedRecord:
    value = json.dumps({"number": number, "item": f"item {number % 97}", "amount": number % 1_000 / 10})
    return str(number % 1_000).encode(), value.encode(), -1


def produce_records(
    cluster: Cluster, topic: str, records: Iterable[ProducedRecord], settings: Mapping[str, str | int] | None = None
) -> None:
    """Writes records of key, value and partition; -1: the key decides. Raises LabError if some are not acknowledged."""
    producer = Producer({**client_settings(cluster), "enable.idempotence": True, "linger.ms": 5, **(settings or {})})
    for number, (key, value, partition) in enumerate(records):
        while True:
            try:
                producer.produce(topic, value, key, partition=partition)
                break
            except BufferError:
                producer.poll(0.5)
        if number % _POLL_EVERY == 0:
            producer.poll(0)
    if left := producer.flush(_ANSWER_S):
        raise LabError("lab.not-acknowledged", records=left, topic=topic, cluster=cluster.name, seconds=_ANSWER_S)
