"""A consumer group that reads where home lines say.

It parks when a switch holds its topic, and reads on at the new home from the place that the switch brought there. What
it was given is kept, partition by partition.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping

from confluent_kafka import Consumer, KafkaException

from twinshore.client.centres.homes import HomesCentre
from twinshore.client.sites import Site
from twinshore.fleet import Cluster
from twinshore.homes.following import Park
from twinshore.lab.clients import client_settings
from twinshore.lab.errors import LabError

_POLL_S = 0.05
_PATIENCE_S = 1.0
_COMMIT_EVERY_S = 0.5
_SETTLE_S = 30.0


class FollowingReader:
    """One member of a group of its own; it reads committed records. `with FollowingReader(...)`."""

    def __init__(self, group: str, topic: str, clusters: Mapping[str, Cluster], begin: str) -> None:
        self.group, self._topic, self._clusters = group, topic, clusters
        self._stopping = threading.Event()
        self._centre = HomesCentre(group, [topic], {one: Site(at) for one, at in clusters.items()}, begin)
        self._consumer: Consumer | None = None
        self._at = ""
        self._broken: Exception | None = None
        self.read: list[tuple[str, int, int]] = []  # cluster, partition, offset
        self._thread = threading.Thread(target=self._run, name=f"reader {group}", daemon=True)

    def __enter__(self) -> FollowingReader:
        self._centre.start()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join(_SETTLE_S)
        self._centre.stop()
        if self._broken:
            raise LabError(f"group {self.group} did not end well: {self._broken}")

    def places(self) -> dict[int, list[int]]:
        """The offsets of each partition, in the order in which they were read."""
        found: dict[int, list[int]] = {}
        for _, partition, offset in list(self.read):
            found.setdefault(partition, []).append(offset)
        return found

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                order = self._centre.order(self._topic)
                if isinstance(order, Park):
                    self._leave()
                    self._centre.parked(self._topic)
                    self._stopping.wait(_POLL_S / 10)
                else:
                    self._read_at(order.cluster)
        except Exception as error:
            self._broken = error
        finally:
            self._leave()

    def _read_at(self, cluster: str) -> None:
        if self._consumer is None or self._at != cluster:
            self._leave()
            self._at = cluster
            self._consumer = Consumer(
                {
                    **client_settings(self._clusters[cluster]),
                    "group.id": self.group,
                    "auto.offset.reset": "earliest",
                    "enable.auto.commit": False,
                    "isolation.level": "read_committed",
                }
            )
            self._consumer.subscribe([self._topic])
        until_s = time.monotonic() + _COMMIT_EVERY_S
        some = self._consumer.consume(2_000, _POLL_S)
        while some and time.monotonic() < until_s:
            for message in some:
                if message.error():
                    raise KafkaException(message.error())
                self.read.append((self._at, message.partition() or 0, message.offset() or 0))
            some = self._consumer.consume(2_000, 0.0)
        for message in some:
            self.read.append((self._at, message.partition() or 0, message.offset() or 0))

    def _leave(self) -> None:
        """Commits what was read, and leaves the group: its places can be copied then."""
        if self._consumer is None:
            return
        try:
            self._consumer.commit(asynchronous=False)
        except KafkaException as error:
            if error.args[0].code() != -168:  # nothing to commit
                raise
        finally:
            self._consumer.close()
            self._consumer = None
