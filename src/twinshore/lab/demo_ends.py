"""Where the demo's topics end on one cluster, asked by a stock client."""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin._listoffsets import OffsetSpec

from twinshore.fleet import Cluster, NamedPartition
from twinshore.lab.clients import admin_of

_TIMEOUT_S = 10.0


class LogEnds:
    """Asks again at each `read`."""

    def __init__(self, cluster: Cluster, topics: Mapping[str, int]) -> None:
        self._admin = admin_of(cluster)
        self._missing = set(topics)
        self._places: list[TopicPartition] = []
        self._latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]

    def read(self) -> dict[NamedPartition, int]:
        """The high watermarks; partitions that do not exist, or cannot answer, are not in it."""
        if self._missing:
            self._look()
        if not self._places:
            return {}
        found = {}
        question = dict.fromkeys(self._places, self._latest)
        for place, answer in self._admin.list_offsets(question, request_timeout=_TIMEOUT_S).items():
            try:
                found[NamedPartition(place.topic, place.partition)] = answer.result(_TIMEOUT_S).offset
            except (KafkaException, TimeoutError):
                continue
        return found

    def _look(self) -> None:
        # Asked about several topics before all of them are there, the client goes on to call the late ones unknown.
        known = self._admin.list_topics(timeout=_TIMEOUT_S).topics
        for topic in self._missing & set(known):
            partitions = known[topic].partitions
            if partitions and all(one.leader >= 0 for one in partitions.values()):
                self._missing.discard(topic)
                self._places += [TopicPartition(topic, partition) for partition in partitions]
