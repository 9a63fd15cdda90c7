"""An ordinary consumer at the twin's end: how late records come, and how long a partition was silent."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping

from confluent_kafka import Consumer, TopicPartition

from twinshore.fleet import Cluster, NamedPartition
from twinshore.lab.clients import client_settings
from twinshore.service.clock import wall_ms

_BATCH = 2_000
_WAIT_S = 0.05
_DELAYS_KEPT = 50_000


class TwinTail:
    """Reads these topics of a cluster from where they end now, in a thread of its own, until `close`."""

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
        self._heard_s: dict[NamedPartition, float] = {}
        self._silence_s: dict[NamedPartition, float] = {}
        self._closed = threading.Event()
        places = [(topic, partition) for topic, partitions in topics.items() for partition in range(partitions)]
        self._consumer.assign([self._at_end(topic, partition) for topic, partition in places])
        self._thread = threading.Thread(target=self._work, name="demo-tail", daemon=True)
        self._thread.start()

    def take_delays_ms(self) -> list[int]:
        """Since the last call: from produce() on the source to this consumer, in rising order."""
        with self._lock:
            delays, self._delays_ms = self._delays_ms, []
        return sorted(delays)

    def begin_watch(self) -> None:
        """From now on the longest silence of each partition is remembered."""
        with self._lock:
            self._silence_s = dict.fromkeys(self._heard_s, 0.0)

    def silences_s(self) -> dict[NamedPartition, float]:
        """The longest silence of each partition since `begin_watch`; one that lasts still counts up to now."""
        now_s = time.monotonic()
        with self._lock:
            return {named: max(was, now_s - self._heard_s[named]) for named, was in self._silence_s.items()}

    def silent_now_s(self) -> float:
        """For how long the most silent partition has brought nothing."""
        now_s = time.monotonic()
        with self._lock:
            return max((now_s - at_s for at_s in self._heard_s.values()), default=0.0)

    def close(self) -> None:
        """Ends the thread and the consumer."""
        self._closed.set()
        self._thread.join(timeout=10)
        self._consumer.close()

    def _at_end(self, topic: str, partition: int) -> TopicPartition:
        _, end = self._consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=10)
        return TopicPartition(topic, partition, end)

    def _work(self) -> None:
        while not self._closed.is_set():
            first = self._consumer.poll(_WAIT_S)
            if first is None:
                continue
            # What is there already, without waiting for more: consume would hold the first one back for the last.
            messages = [first, *self._consumer.consume(_BATCH, timeout=0)]
            now_s, now_ms = time.monotonic(), wall_ms()
            heard, delays = set(), []
            for message in messages:
                topic, partition = message.topic(), message.partition()
                if message.error() is None and topic is not None and partition is not None:
                    heard.add(NamedPartition(topic, partition))
                    delays.append(now_ms - message.timestamp()[1])
            with self._lock:
                self._delays_ms = (self._delays_ms + delays)[-_DELAYS_KEPT:]
                for named in heard:
                    silent_s = now_s - self._heard_s.get(named, now_s)
                    self._heard_s[named] = now_s
                    if named in self._silence_s:
                        self._silence_s[named] = max(self._silence_s[named], silent_s)
