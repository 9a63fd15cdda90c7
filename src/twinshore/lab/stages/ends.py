"""Where a topic ends: the sum of its partitions' high watermarks, asked again and again while it grows."""

from __future__ import annotations

import time
from concurrent.futures import Future

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, ListOffsetsResultInfo, OffsetSpec  # type: ignore[attr-defined]

from twinshore.fleet import Cluster
from twinshore.lab.clients import admin_of

_TIMEOUT_S = 5.0


class TopicEnd:
    """Asks one cluster for one topic's end; a topic that is not there yet ends at 0."""

    def __init__(self, cluster: Cluster, topic: str, partitions: int) -> None:
        self._admin: AdminClient = admin_of(cluster)
        latest: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        self._question = {TopicPartition(topic, number): latest for number in range(partitions)}

    def records(self) -> int:
        """Offsets in use, all partitions together. A partition that does not answer counts 0."""
        total = 0
        for answer in self._ask():
            try:
                total += answer.result(_TIMEOUT_S).offset
            except (KafkaException, TimeoutError):
                continue
        return total

    def wait_ready(self, within_s: float = 30.0) -> None:
        """Returns when every partition answers; KafkaException when one does not in time."""
        deadline = time.monotonic() + within_s
        while True:
            try:
                for answer in self._ask():
                    answer.result(_TIMEOUT_S)
                return
            except KafkaException:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)

    def _ask(self) -> list[Future[ListOffsetsResultInfo]]:
        return list(self._admin.list_offsets(self._question, request_timeout=_TIMEOUT_S).values())
