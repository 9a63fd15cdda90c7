"""An application of the client library, as a stage needs it: a HotProducer under load, a HotConsumer of a group.

Both tell what a FollowingWriter and a FollowingReader tell, so that one count judges either.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from confluent_kafka import KafkaError, Message

from twinshore.client import HotConsumer, HotProducer
from twinshore.lab.errors import LabError
from twinshore.lab.stages.following_writer import Acked, Writing, told, value_of

_SLICE_S = 0.01
_SETTLE_S = 60.0
Sites = Mapping[str, Mapping[str, Any]]


class HotWriter:
    """Writes at a rate, from when it is entered until `stop`."""

    def __init__(self, name: str, topic: str, sites: Sites, how: Writing) -> None:
        self.name, self._topic, self._how = name, topic, how
        self.acked: list[Acked] = []
        self.failed: dict[int, str] = {}
        self._producer = HotProducer({"linger.ms": 10}, clusters=sites, topics=[topic], name=name)
        self._stopping = threading.Event()
        self._broken: Exception | None = None
        self._left = 0
        self._thread = threading.Thread(target=self._run, name=f"writer {name}", daemon=True)

    def __enter__(self) -> HotWriter:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> list[Acked]:
        self._stopping.set()
        self._thread.join(2 * _SETTLE_S)
        if self._broken or self._left or self._thread.is_alive():
            raise LabError(f"writer {self.name} did not end well: {self._broken or f'{self._left} have no answer'}")
        return self.acked

    def longest_pause_s(self, since_s: float = 0.0) -> float:
        times = [one.at_s for one in self.acked if one.at_s >= since_s]
        return max((after - before for before, after in pairwise(times)), default=0.0)

    def _run(self) -> None:
        try:
            number, began_s = 0, time.monotonic()
            while not self._stopping.is_set():
                due = int((time.monotonic() - began_s) * self._how.records_per_s)
                for one in range(number, due):
                    key = b"%s-%d" % (self.name.encode(), one % self._how.keys)
                    self._producer.produce(
                        self._topic, value_of(one, self._how.value_bytes), key, on_delivery=self._told
                    )
                number = max(number, due)
                self._producer.poll(_SLICE_S)
                self._stopping.wait(_SLICE_S)
        except Exception as error:
            self._broken = error
        finally:
            self._left = self._producer.close(_SETTLE_S)

    def _told(self, error: KafkaError | None, message: Message | None) -> None:
        if error is not None or message is None:
            self.failed[len(self.failed)] = str(error)
            return
        number = told(message.value() or b"", self._how.keys)
        place = self._producer.where(self._topic), message.partition() or 0, message.offset() or 0
        self.acked.append(Acked(bytes(message.key() or b""), number, *place, time.monotonic()))


class HotReader:
    """One member of a group of its own."""

    def __init__(self, group: str, topic: str, sites: Sites) -> None:
        self.group, self._topic = group, topic
        self.read: list[tuple[str, int, int]] = []  # cluster, partition, offset
        config = {"group.id": group, "auto.offset.reset": "earliest", "isolation.level": "read_committed"}
        self._consumer = HotConsumer(config, clusters=sites)
        self._stopping = threading.Event()
        self._broken: Exception | None = None
        self._thread = threading.Thread(target=self._run, name=f"reader {group}", daemon=True)

    def __enter__(self) -> HotReader:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join(_SETTLE_S)
        if self._broken:
            raise LabError(f"group {self.group} did not end well: {self._broken}")

    def places(self) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for _, partition, offset in list(self.read):
            found.setdefault(partition, []).append(offset)
        return found

    def _run(self) -> None:
        try:
            self._consumer.subscribe([self._topic])
            while not self._stopping.is_set():
                for message in self._consumer.consume(2_000, 0.1):
                    if error := message.error():
                        raise LabError(f"an error surfaced: {error}")
                    where = self._consumer.where(self._topic)
                    self.read.append((where, message.partition() or 0, message.offset() or 0))
        except Exception as error:
            self._broken = error
        finally:
            self._consumer.close()
