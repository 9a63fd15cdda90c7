"""A consumer group that reads where home lines say.

It parks when a switch holds its topic, and reads on at the new home from the place that the switch brought there. What
it was given is kept, partition by partition.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Mapping
from contextlib import closing

from confluent_kafka import Consumer, KafkaException

from twinshore.fleet import Cluster, KafkaError
from twinshore.homes.following import Following, Park
from twinshore.homes.home_notes import FollowerNotes, HomeNotes
from twinshore.kafka.cluster import KafkaCluster
from twinshore.lab.clients import client_settings
from twinshore.lab.errors import LabError
from twinshore.service.clock import wall_ms

_POLL_S = 0.05
_PATIENCE_S = 1.0
_COMMIT_EVERY_S = 0.5
_SETTLE_S = 30.0


class FollowingReader:
    """One member of a group of its own; it reads committed records. `with FollowingReader(...)`."""

    def __init__(self, group: str, topic: str, clusters: Mapping[str, Cluster], begin: str) -> None:
        self.group, self._topic, self._clusters = group, topic, clusters
        self._guard, self._stopping = threading.Lock(), threading.Event()
        self._following = Following(uuid.uuid4().hex, group, [topic], begin)
        self._consumer: Consumer | None = None
        self._at = ""
        self._broken: Exception | None = None
        self.read: list[tuple[str, int, int]] = []  # cluster, partition, offset
        self._threads = [threading.Thread(target=self._run, name=f"reader {group}", daemon=True)]
        for cluster in clusters.values():
            self._threads.append(threading.Thread(target=self._follow, args=(cluster,), daemon=True))

    def __enter__(self) -> FollowingReader:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join(_SETTLE_S)
        if self._broken:
            raise LabError(f"group {self.group} did not end well: {self._broken}")

    def places(self) -> dict[int, list[int]]:
        """The offsets of each partition, in the order in which they were read."""
        found: dict[int, list[int]] = {}
        for _, partition, offset in list(self.read):
            found.setdefault(partition, []).append(offset)
        return found

    def _follow(self, cluster: Cluster) -> None:
        with closing(KafkaCluster(cluster, client_id=f"follower-{self.group}", patience_s=_PATIENCE_S)) as kafka:
            homes, followers = HomeNotes(kafka), FollowerNotes(kafka)
            pause_s = 0.0
            while not self._stopping.wait(pause_s):
                try:
                    pause_s = self._ask(cluster.name, kafka, homes, followers)
                except (KafkaError, KafkaException):
                    pause_s = _PATIENCE_S / 4

    def _ask(self, name: str, kafka: KafkaCluster, homes: HomeNotes, followers: FollowerNotes) -> float:
        cluster_id = kafka.cluster_id()
        if not homes.homes and not followers.exists():
            followers.make()
        with self._guard:
            self._following.met(name, cluster_id)
            saying = self._following.says() if self._following.must_say(name, time.monotonic()) else None
        asked_s = time.monotonic()
        if saying:
            followers.say(saying.line(), wall_ms())
            with self._guard:
                self._following.said(name, saying, asked_s, time.monotonic())
            asked_s = time.monotonic()
        found = homes.read()
        with self._guard:
            self._following.read(found, asked_s)
            return self._following.poll_s()

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                with self._guard:
                    order = self._following.order(self._topic, time.monotonic())
                if isinstance(order, Park):
                    self._leave()
                    with self._guard:
                        self._following.parked(self._topic)
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
