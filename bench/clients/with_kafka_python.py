"""kafka-python, of which 2 has not all that 3 has."""

from __future__ import annotations

import importlib
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition  # type: ignore[import-not-found]
from kafka.admin import NewTopic  # type: ignore[import-not-found]
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor  # type: ignore[import-not-found]
from kafka.errors import KafkaError, KafkaTimeoutError  # type: ignore[import-not-found]
from kafka.structs import OffsetAndMetadata  # type: ignore[import-not-found]

from bench.clients.client import COOPERATIVE, SERVER, Job, Lacks, Part
from bench.clients.trying import run

_TIMEOUT_S = 30.0
_NEWER = hasattr(KafkaAdminClient, "list_groups")


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
        known = KafkaProducer.DEFAULT_CONFIG
        if lacking := [name for name, value in settings.items() if value and name not in known]:
            raise Lacks(f"its producers have no {lacking[0]}")
        asked = {name: value for name, value in settings.items() if name in known}
        return KafkaProducer(bootstrap_servers=self._where, **asked)

    def produce(self, topic: str, values: Sequence[str], acks: str, *, idempotent: bool) -> None:
        settings = {"acks": acks if acks == "all" else int(acks), "enable_idempotence": idempotent}
        producer = self._producer(**settings)
        try:
            sent(producer, topic, values)
        finally:
            producer.close(5)

    def _reader(self, **settings: Any) -> Any:
        own = {"bootstrap_servers": self._where, "enable_auto_commit": False, "auto_offset_reset": "earliest"}
        own |= {"isolation_level": "read_committed"} if "isolation_level" in KafkaConsumer.DEFAULT_CONFIG else {}
        return KafkaConsumer(**{**own, **settings})

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
            sent(producer, topic, values)
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
        if way == COOPERATIVE and not _NEWER:
            raise Lacks("it has only eager groups")
        if instance and "group_instance_id" not in KafkaConsumer.DEFAULT_CONFIG:
            raise Lacks("it has no static members")
        assignor = cooperative() if way == COOPERATIVE else RoundRobinPartitionAssignor
        settings = {"group_id": group, "partition_assignment_strategy": [assignor], "session_timeout_ms": 10_000}
        settings |= {"group_instance_id": instance} if instance else {}
        consumer = self._reader(heartbeat_interval_ms=500, **settings)
        consumer.subscribe(list(topics))
        return Member(consumer)

    def writer(self, topic: str, transactional: str) -> Writer:
        if transactional:
            producer = self._producer(transactional_id=transactional)
            producer.init_transactions()
        else:
            idempotent = "enable_idempotence" in KafkaProducer.DEFAULT_CONFIG
            producer = self._producer(acks="all", retries=20, enable_idempotence=idempotent)
        return Writer(producer, topic, bool(transactional))

    def describe(self) -> tuple[str, int]:
        told = self._asked("describe_cluster")
        return str(told["cluster_id"]), len(told["brokers"])

    def create(self, topic: str) -> None:
        asked = {topic: {"num_partitions": 1, "replication_factor": 1}} if _NEWER else [NewTopic(topic, 1, 1)]
        self._asked("create_topics", asked)

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
        if not _NEWER:
            return {one[0] for one in self._asked("list_consumer_groups")}
        return {one["group_id"] for one in self._asked("list_groups")}


class Member:
    """With a thread of its own: it joins while it is polled, for which others may have to be polled."""

    def __init__(self, consumer: Any) -> None:
        self._consumer, self._thread = consumer, ThreadPoolExecutor(1)
        self._polling: Future[list[str]] | None = None

    def poll(self, seconds: float) -> list[str]:
        polling = self._polling or self._thread.submit(taken, self._consumer, seconds)
        wait([polling], 2 * seconds)
        self._polling = None if polling.done() else polling
        return polling.result() if polling.done() else []

    def parts(self) -> set[Part]:
        return {(one.topic, one.partition) for one in self._consumer.assignment()}

    def commit(self) -> None:
        self._thread.submit(self._consumer.commit).result(_TIMEOUT_S)

    def close(self) -> None:
        self._thread.submit(self._consumer.close).result(_TIMEOUT_S)


class Writer:
    def __init__(self, producer: Any, topic: str, transactional: bool) -> None:
        self._producer, self._topic, self._transactional = producer, topic, transactional

    def write(self, values: Sequence[str]) -> None:
        if not self._transactional:
            return sent(self._producer, self._topic, values)
        self._producer.begin_transaction()
        try:
            sent(self._producer, self._topic, values)
            self._producer.commit_transaction()
        except KafkaError:
            self._producer.abort_transaction()
            raise

    def close(self) -> None:
        self._producer.close(5)


def sent(producer: Any, topic: str, values: Sequence[str]) -> None:
    futures = [producer.send(topic, value.encode(), value.encode()) for value in values]
    producer.flush(_TIMEOUT_S)
    for future in futures:
        future.get(_TIMEOUT_S)


def cooperative() -> Any:
    return importlib.import_module("kafka.coordinator.assignors.cooperative_sticky").CooperativeStickyAssignor


def taken(consumer: Any, seconds: float) -> list[str]:
    told = consumer.poll(timeout_ms=int(seconds * 1000), max_records=500)
    return [record.value.decode() for records in told.values() for record in records]


def in_words(error: Exception) -> str | None:
    if not isinstance(error, KafkaError) or isinstance(error, KafkaTimeoutError):
        return None
    return f"{type(error).__name__}: {error}"


if __name__ == "__main__":
    run(KafkaPython, in_words)
