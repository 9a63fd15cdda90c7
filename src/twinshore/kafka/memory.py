"""What was last seen of a cluster, and the watch that it is still the same one."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from twinshore.fleet import KafkaError
from twinshore.kafka.metadata import ClusterMetadata


class Memory:
    """Safe for several threads."""

    def __init__(self, place: str, cluster_id: str = "") -> None:
        """`cluster_id`: which cluster it must be; without it the first one seen."""
        self._place = place
        self._guard = threading.Lock()
        self._cluster_id = cluster_id
        self._seen = ClusterMetadata("", -1, {}, {})
        self._complete = False

    @property
    def cluster_id(self) -> str:
        """Empty before anything was seen or said."""
        return self._cluster_id

    def same(self, cluster_id: str) -> None:
        """KafkaError when it is another cluster than before: then nothing known of the first may be used on it."""
        with self._guard:
            before = self._cluster_id
            if before and cluster_id != before:
                raise KafkaError(
                    f"{self._place}: its addresses lead to another cluster now: {cluster_id}, it was {before}",
                    hint="check the bootstrap addresses: do they all belong to one cluster?",
                )
            self._cluster_id = cluster_id

    def recall(self, topics: Sequence[str] | None) -> ClusterMetadata | None:
        """These topics (None: all) as last seen; None where one was not seen, or was in trouble."""
        with self._guard:
            seen, complete = self._seen, self._complete
        if not seen.cluster_id or topics is None:
            return seen if complete else None
        known = {name: seen.topics[name] for name in topics if name in seen.topics}
        if len(known) < len(set(topics)) or any(topic.error for topic in known.values()):
            return None
        return ClusterMetadata(seen.cluster_id, seen.controller, seen.brokers, known)

    def learn(self, seen: ClusterMetadata, *, everything: bool) -> None:
        """KafkaError as `same` has it."""
        self.same(seen.cluster_id)
        with self._guard:
            topics = seen.topics if everything else {**self._seen.topics, **seen.topics}
            self._seen = ClusterMetadata(seen.cluster_id, seen.controller, seen.brokers, topics)
            self._complete = self._complete or everything
