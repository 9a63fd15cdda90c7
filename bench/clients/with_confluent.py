"""confluent-kafka, and so librdkafka."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench.clients.client import COOPERATIVE, SERVER, Job, Lacks, Part
from bench.clients.trying import run

_TIMEOUT_S = 30.0
_OUT_OF_TIME = (KafkaError._TIMED_OUT, KafkaError._MSG_TIMED_OUT, KafkaError._ALL_BROKERS_DOWN)


class Librdkafka:
    def __init__(self, job: Job, own: dict[str, Any]) -> None:
        self._plain: dict[str, Any] = {"bootstrap.servers": job.bootstrap, "log_level": 0}
        self._newer_groups = bool(own["newer_groups"])
        self._admin: Any = AdminClient(self._plain)

    def look(self) -> tuple[set[str], int]:
        told = self._admin.list_topics(timeout=_TIMEOUT_S)
        return set(told.topics), len(told.brokers)

    def produce(self, topic: str, values: Sequence[str], acks: str, *, idempotent: bool) -> None:
        settings = {"acks": acks, "enable.idempotence": idempotent, "message.timeout.ms": 30_000}
        sent(Producer({**self._plain, **settings}), topic, values)

    def _reader(self, group: str, **settings: Any) -> Consumer:
        own = {"group.id": group, "enable.auto.commit": False, "auto.offset.reset": "earliest"}
        return Consumer({**self._plain, **own, **settings})

    def read(self, topic: str, wanted: Iterable[str], seconds: float) -> set[str]:
        consumer, left, seen = self._reader("nobody"), set(wanted), set[str]()
        try:
            consumer.assign([TopicPartition(topic, number, 0) for number in (0, 1)])
            until_s = time.monotonic() + seconds
            while left - seen and time.monotonic() < until_s:
                seen |= set(taken(consumer, 0.5))
            return seen
        finally:
            consumer.close()

    def transact(self, topic: str, values: Sequence[str], group: str, place: int, *, commit: bool) -> None:
        producer, consumer = Producer({**self._plain, "transactional.id": f"{group}-writer"}), self._reader(group)
        try:
            producer.init_transactions(_TIMEOUT_S)
            producer.begin_transaction()
            for value in values:
                producer.produce(topic, value)
            producer.flush(_TIMEOUT_S)
            there: Any = consumer.consumer_group_metadata()
            producer.send_offsets_to_transaction([TopicPartition(topic, 0, place)], there, _TIMEOUT_S)
            if commit:
                producer.commit_transaction(_TIMEOUT_S)
            else:
                producer.abort_transaction(_TIMEOUT_S)
        finally:
            consumer.close()

    def place(self, group: str, topic: str) -> int:
        consumer = self._reader(group)
        try:
            return int(consumer.committed([TopicPartition(topic, 0)], timeout=_TIMEOUT_S)[0].offset)
        finally:
            consumer.close()

    def member(self, group: str, topics: Sequence[str], way: str, instance: str) -> Member:
        settings: dict[str, Any] = {"session.timeout.ms": 10_000, "heartbeat.interval.ms": 500}
        if way == COOPERATIVE:
            settings["partition.assignment.strategy"] = "cooperative-sticky"
        elif way == SERVER:
            if not self._newer_groups:
                raise Lacks("the library has only older groups")
            settings = {"group.protocol": "consumer"}
        if instance:
            settings["group.instance.id"] = instance
        consumer = self._reader(group, **settings)
        consumer.subscribe(list(topics))
        return Member(consumer)

    def writer(self, topic: str, transactional: str) -> Writer:
        named = {"transactional.id": transactional} if transactional else {}
        producer = Producer({**self._plain, "enable.idempotence": True, **named})
        if transactional:
            producer.init_transactions(_TIMEOUT_S)
        return Writer(producer, topic, bool(transactional))

    def describe(self) -> tuple[str, int]:
        admin = self._admin
        if not hasattr(admin, "describe_cluster"):
            told = admin.list_topics(timeout=_TIMEOUT_S)
            return str(told.cluster_id), len(told.brokers)
        told = admin.describe_cluster(request_timeout=_TIMEOUT_S).result(_TIMEOUT_S)
        return str(told.cluster_id), len(told.nodes)

    def create(self, topic: str) -> None:
        for future in self._admin.create_topics([NewTopic(topic, 1, 1)]).values():
            future.result(_TIMEOUT_S)

    def ends(self, topics: Sequence[str]) -> dict[str, int]:
        consumer, found = self._reader("nobody"), dict.fromkeys(topics, 0)
        try:
            for topic in topics:
                for number in (0, 1):
                    low, high = consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=_TIMEOUT_S)
                    found[topic] += high - low
        finally:
            consumer.close()
        return found

    def groups(self) -> set[str]:
        told = self._admin.list_consumer_groups(request_timeout=_TIMEOUT_S).result(_TIMEOUT_S)
        if told.errors:
            raise KafkaException(told.errors[0])
        return {one.group_id for one in told.valid}


class Member:
    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer

    def poll(self, seconds: float) -> list[str]:
        return taken(self._consumer, seconds)

    def parts(self) -> set[Part]:
        return {(one.topic, one.partition) for one in self._consumer.assignment()}

    def commit(self) -> None:
        self._consumer.commit(asynchronous=False)

    def close(self) -> None:
        self._consumer.close()


class Writer:
    def __init__(self, producer: Producer, topic: str, transactional: bool) -> None:
        self._producer, self._topic, self._transactional = producer, topic, transactional

    def write(self, values: Sequence[str]) -> None:
        if not self._transactional:
            return sent(self._producer, self._topic, values)
        self._producer.begin_transaction()
        try:
            sent(self._producer, self._topic, values)
            self._producer.commit_transaction(_TIMEOUT_S)
        except KafkaException:
            self._producer.abort_transaction(_TIMEOUT_S)
            raise

    def close(self) -> None: ...


def sent(producer: Producer, topic: str, values: Sequence[str]) -> None:
    failed = []

    def heard(error: KafkaError | None, _: Any) -> None:
        if error is not None:
            failed.append(error)

    for value in values:
        producer.produce(topic, value, key=value, on_delivery=heard)
    if producer.flush(_TIMEOUT_S) or failed:
        raise KafkaException(failed[0] if failed else KafkaError(KafkaError._MSG_TIMED_OUT))


def taken(consumer: Consumer, seconds: float) -> list[str]:
    found = []
    for message in consumer.consume(500, timeout=seconds):
        error = message.error()
        if error is not None:
            raise KafkaException(error)
        found.append((message.value() or b"").decode())
    return found


def in_words(error: Exception) -> str | None:
    told = error.args[0] if isinstance(error, KafkaException) else error
    if not isinstance(told, KafkaError):
        return None
    return None if told.code() in _OUT_OF_TIME else f"{told.name()}: {told.str()}"


if __name__ == "__main__":
    run(Librdkafka, in_words)
