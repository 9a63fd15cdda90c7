"""kafka-python."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition  # type: ignore[import-not-found]
from kafka.coordinator.assignors.cooperative_sticky import (  # type: ignore[import-not-found]
    CooperativeStickyAssignor,
)
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor  # type: ignore[import-not-found]
from kafka.errors import KafkaError, KafkaTimeoutError  # type: ignore[import-not-found]
from kafka.structs import OffsetAndMetadata  # type: ignore[import-not-found]

from bench.clients.trying import COOPERATIVE, SERVER, Job, Lacks, Part, run

_TIMEOUT_S = 30.0


class KafkaPython:
    def __init__(self, job: Job, _: dict[str, Any]) -> None:
        self._where = job.bootstrap

    def _asked(self, ask: str, *words: Any) -> Any:
        admin = KafkaAdminClient(bootstrap_servers=self._where)
        try:
            return getattr(admin, ask)(*words)
        finally:
            admin.close()

    def look(self) -> tuple[set[str], int]:
        return set(self._asked("list_topics")), len(self._asked("describe_cluster")["brokers"])

    def _producer(self, **settings: Any) -> Any:
        return KafkaProducer(bootstrap_servers=self._where, **settings)

    def produce(self, topic: str, values: Sequence[str], acks: str, *, idempotent: bool) -> None:
        settings = {"acks": acks if acks == "all" else int(acks), "enable_idempotence": idempotent}
        producer = self._producer(**settings)
        try:
            futures = [producer.send(topic, value.encode(), value.encode()) for value in values]
            producer.flush(_TIMEOUT_S)
            for future in futures:
                future.get(_TIMEOUT_S)
        finally:
            producer.close(5)

    def _reader(self, **settings: Any) -> Any:
        own = {"bootstrap_servers": self._where, "enable_auto_commit": False, "auto_offset_reset": "earliest"}
        return KafkaConsumer(**{**own, "isolation_level": "read_committed", **settings})

    def read(self, topic: str, wanted: Iterable[str], seconds: float) -> set[str]:
        consumer, left, seen = self._reader(), set(wanted), set[str]()
        try:
            parts = [TopicPartition(topic, number) for number in (0, 1)]
            consumer.assign(parts)
            consumer.seek_to_beginning(*parts)
            until_s = time.monotonic() + seconds
            while left - seen and time.monotonic() < until_s:
                seen |= set(taken(consumer, 0.5))
            return seen
        finally:
            consumer.close()

    def transact(self, topic: str, values: Sequence[str], group: str, place: int, *, commit: bool) -> None:
        producer, consumer = self._producer(transactional_id=f"{group}-writer"), self._reader(group_id=group)
        try:
            producer.init_transactions()
            producer.begin_transaction()
            futures = [producer.send(topic, value.encode()) for value in values]
            producer.flush(_TIMEOUT_S)
            for future in futures:
                future.get(_TIMEOUT_S)
            there = {TopicPartition(topic, 0): OffsetAndMetadata(place, "", -1)}
            producer.send_offsets_to_transaction(there, consumer.group_metadata())
            if commit:
                producer.commit_transaction()
            else:
                producer.abort_transaction()
        finally:
            consumer.close()
            producer.close(5)

    def place(self, group: str, topic: str) -> int:
        consumer = self._reader(group_id=group)
        try:
            found = consumer.committed(TopicPartition(topic, 0))
            return -1 if found is None else int(found)
        finally:
            consumer.close()

    def member(self, group: str, topics: Sequence[str], way: str, instance: str) -> Member:
        if way == SERVER:
            raise Lacks("it has only older groups")
        assignor = CooperativeStickyAssignor if way == COOPERATIVE else RoundRobinPartitionAssignor
        settings = {"group_id": group, "partition_assignment_strategy": [assignor], "session_timeout_ms": 10_000}
        settings |= {"group_instance_id": instance} if instance else {}
        consumer = self._reader(heartbeat_interval_ms=500, **settings)
        consumer.subscribe(list(topics))
        return Member(consumer)

    def describe(self) -> tuple[str, int]:
        told = self._asked("describe_cluster")
        return str(told["cluster_id"]), len(told["brokers"])

    def create(self, topic: str) -> None:
        self._asked("create_topics", {topic: {"num_partitions": 1, "replication_factor": 1}})

    def ends(self, topics: Sequence[str]) -> dict[str, int]:
        consumer, found = self._reader(), dict.fromkeys(topics, 0)
        try:
            asked = [TopicPartition(topic, number) for topic in topics for number in (0, 1)]
            for part, end in consumer.end_offsets(asked).items():
                found[part.topic] += end
        finally:
            consumer.close()
        return found

    def groups(self) -> set[str]:
        return {one["group_id"] for one in self._asked("list_groups")}


class Member:
    def __init__(self, consumer: Any) -> None:
        self._consumer = consumer

    def poll(self, seconds: float) -> list[str]:
        return taken(self._consumer, seconds)

    def parts(self) -> set[Part]:
        return {(one.topic, one.partition) for one in self._consumer.assignment()}

    def commit(self) -> None:
        self._consumer.commit()

    def close(self) -> None:
        self._consumer.close()


def taken(consumer: Any, seconds: float) -> list[str]:
    told = consumer.poll(timeout_ms=int(seconds * 1000), max_records=500)
    return [record.value.decode() for records in told.values() for record in records]


def in_words(error: Exception) -> str | None:
    if not isinstance(error, KafkaError) or isinstance(error, KafkaTimeoutError):
        return None
    return f"{type(error).__name__}: {error}"


if __name__ == "__main__":
    run(KafkaPython, in_words)
