"""Java's own clients, whose virtual machine is driven from here: `own` has its port and the clients' version."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any

from py4j.java_gateway import GatewayParameters, JavaGateway  # type: ignore[import-untyped]
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

from bench.clients.client import COOPERATIVE, EAGER, SERVER, Job, Lacks, Part
from bench.clients.trying import run

_CLIENTS = "org.apache.kafka.clients"
_STRINGS = "org.apache.kafka.common.serialization.String"
_TIMEOUT_MS = 30_000
_OUT_OF_TIME = ("TimeoutException", "InterruptException")
# From which version on the clients have it.
_CLOSE_WITHIN, _STATIC, _COOPERATIVE = (2, 2), (2, 3), (2, 4)
_METADATA_OF_GROUPS, _LIST_OFFSETS, _SERVER = (2, 5), (2, 5), (3, 7)


class Java:
    def __init__(self, job: Job, own: dict[str, Any]) -> None:
        gateway = JavaGateway(gateway_parameters=GatewayParameters(port=own["port"]))
        self._jvm: Any = gateway.jvm
        self._job = job
        self._version = tuple(int(part) for part in own["version"].split(".")[:2])

    def _properties(self, **settings: str) -> Any:
        made = self._jvm.java.util.Properties()
        for name, value in settings.items():
            made.setProperty(name.replace("_", "."), value)
        made.setProperty("bootstrap.servers", self._job.bootstrap)
        return made

    def _listed(self, items: Iterable[Any]) -> Any:
        made = self._jvm.java.util.ArrayList()
        for item in items:
            made.add(item)
        return made

    def _parts(self, topics: Iterable[str]) -> Any:
        part = self._jvm.org.apache.kafka.common.TopicPartition
        return self._listed(part(topic, number) for topic in topics for number in (0, 1))

    def _admin(self) -> Any:
        return self._jvm.org.apache.kafka.clients.admin.AdminClient.create(self._properties())

    def _producer(self, **settings: str) -> Any:
        own = {"key_serializer": f"{_STRINGS}Serializer", "value_serializer": f"{_STRINGS}Serializer"}
        own |= {"delivery_timeout_ms": str(_TIMEOUT_MS), "request_timeout_ms": "15000", "linger_ms": "5"}
        return self._jvm.org.apache.kafka.clients.producer.KafkaProducer(self._properties(**own, **settings))

    def _consumer(self, **settings: str) -> Any:
        own = {"key_deserializer": f"{_STRINGS}Deserializer", "value_deserializer": f"{_STRINGS}Deserializer"}
        own |= {"enable_auto_commit": "false", "auto_offset_reset": "earliest", "isolation_level": "read_committed"}
        return self._jvm.org.apache.kafka.clients.consumer.KafkaConsumer(self._properties(**own, **settings))

    def look(self) -> tuple[set[str], int]:
        admin = self._admin()
        try:
            return set(admin.listTopics().names().get()), int(admin.describeCluster().nodes().get().size())
        finally:
            admin.close()

    def produce(self, topic: str, values: Sequence[str], acks: str, *, idempotent: bool) -> None:
        producer = self._producer(acks=acks, enable_idempotence=str(idempotent).lower())
        try:
            self.send(producer, topic, values)
        finally:
            producer.close()

    def send(self, producer: Any, topic: str, values: Sequence[str]) -> None:
        record = self._jvm.org.apache.kafka.clients.producer.ProducerRecord
        futures = [producer.send(record(topic, value, value)) for value in values]
        producer.flush()
        for future in futures:
            future.get()

    def read(self, topic: str, wanted: Iterable[str], seconds: float) -> set[str]:
        consumer, left, seen = self._consumer(), set(wanted), set[str]()
        try:
            parts = self._parts([topic])
            consumer.assign(parts)
            consumer.seekToBeginning(parts)
            until_s = time.monotonic() + seconds
            while left - seen and time.monotonic() < until_s:
                seen |= set(self.taken(consumer, 0.5))
            return seen
        finally:
            consumer.close()

    def taken(self, consumer: Any, seconds: float) -> list[str]:
        records = consumer.poll(self._jvm.java.time.Duration.ofMillis(int(seconds * 1000))).iterator()
        found = []
        while records.hasNext():
            found.append(records.next().value())
        return found

    def _places(self, topic: str, place: int) -> Any:
        made = self._jvm.java.util.HashMap()
        part = self._jvm.org.apache.kafka.common.TopicPartition(topic, 0)
        made.put(part, self._jvm.org.apache.kafka.clients.consumer.OffsetAndMetadata(place))
        return made

    def transact(self, topic: str, values: Sequence[str], group: str, place: int, *, commit: bool) -> None:
        producer = self._producer(transactional_id=f"{group}-writer", max_block_ms=str(_TIMEOUT_MS))
        consumer = self._consumer(group_id=group)
        try:
            producer.initTransactions()
            producer.beginTransaction()
            self.send(producer, topic, values)
            named = group if self._version < _METADATA_OF_GROUPS else consumer.groupMetadata()
            producer.sendOffsetsToTransaction(self._places(topic, place), named)
            if commit:
                producer.commitTransaction()
            else:
                producer.abortTransaction()
        finally:
            consumer.close()
            self.end(producer)

    def end(self, producer: Any) -> None:
        if self._version < _CLOSE_WITHIN:
            producer.close(1, self._jvm.java.util.concurrent.TimeUnit.SECONDS)
        else:
            producer.close(self._jvm.java.time.Duration.ofSeconds(1))

    def place(self, group: str, topic: str) -> int:
        consumer = self._consumer(group_id=group)
        try:
            part = self._jvm.org.apache.kafka.common.TopicPartition(topic, 0)
            asked = part if self._version < (2, 4) else self._jvm.java.util.Collections.singleton(part)
            found = consumer.committed(asked)
            found = found if self._version < (2, 4) or found is None else found.get(part)
            return -1 if found is None else int(found.offset())
        finally:
            consumer.close()

    def member(self, group: str, topics: Sequence[str], way: str, instance: str) -> Member:
        settings = {"group_id": group, "session_timeout_ms": "10000", "heartbeat_interval_ms": "500"}
        if way == EAGER:
            settings["partition_assignment_strategy"] = f"{_CLIENTS}.consumer.RoundRobinAssignor"
        elif way == COOPERATIVE:
            self._needs(_COOPERATIVE)
            settings["partition_assignment_strategy"] = f"{_CLIENTS}.consumer.CooperativeStickyAssignor"
        elif way == SERVER:
            self._needs(_SERVER)
            settings = {"group_id": group, "group_protocol": "consumer"}
        if instance:
            self._needs(_STATIC)
            settings["group_instance_id"] = instance
        consumer = self._consumer(**settings)
        consumer.subscribe(self._listed(topics))
        return Member(self, consumer)

    def writer(self, topic: str, transactional: str) -> Writer:
        named = {"transactional_id": transactional} if transactional else {"enable_idempotence": "true"}
        producer = self._producer(acks="all", max_block_ms=str(2 * _TIMEOUT_MS), **named)
        if transactional:
            producer.initTransactions()
        return Writer(self, producer, topic, bool(transactional))

    def _needs(self, version: tuple[int, int]) -> None:
        if self._version < version:
            raise Lacks(f"from {version[0]}.{version[1]} on")

    def describe(self) -> tuple[str, int]:
        admin = self._admin()
        try:
            told = admin.describeCluster()
            return str(told.clusterId().get()), int(told.nodes().get().size())
        finally:
            admin.close()

    def create(self, topic: str) -> None:
        admin = self._admin()
        try:
            made = self._jvm.org.apache.kafka.clients.admin.NewTopic(topic, 1, 1)
            admin.createTopics(self._listed([made])).all().get()
        finally:
            admin.close()

    def ends(self, topics: Sequence[str]) -> dict[str, int]:
        found = dict.fromkeys(topics, 0)
        if self._version < _LIST_OFFSETS:
            consumer = self._consumer()
            try:
                for part, end in dict(consumer.endOffsets(self._parts(topics))).items():
                    found[part.topic()] += int(end)
            finally:
                consumer.close()
            return found
        admin, asked = self._admin(), self._jvm.java.util.HashMap()
        try:
            for part in self._parts(topics):
                asked.put(part, self._jvm.org.apache.kafka.clients.admin.OffsetSpec.latest())
            for part, told in dict(admin.listOffsets(asked).all().get()).items():
                found[part.topic()] += int(told.offset())
        finally:
            admin.close()
        return found

    def groups(self) -> set[str]:
        admin = self._admin()
        try:
            found, each = set(), admin.listConsumerGroups().all().get().iterator()
            while each.hasNext():
                found.add(str(each.next().groupId()))
            return found
        finally:
            admin.close()


class Member:
    def __init__(self, java: Java, consumer: Any) -> None:
        self._java, self._consumer = java, consumer

    def poll(self, seconds: float) -> list[str]:
        return self._java.taken(self._consumer, seconds)

    def parts(self) -> set[Part]:
        return {(one.topic(), int(one.partition())) for one in self._consumer.assignment()}

    def commit(self) -> None:
        self._consumer.commitSync()

    def close(self) -> None:
        self._consumer.close()


class Writer:
    def __init__(self, java: Java, producer: Any, topic: str, transactional: bool) -> None:
        self._java, self._producer, self._topic, self._transactional = java, producer, topic, transactional

    def write(self, values: Sequence[str]) -> None:
        if not self._transactional:
            return self._java.send(self._producer, self._topic, values)
        self._producer.beginTransaction()
        try:
            self._java.send(self._producer, self._topic, values)
            self._producer.commitTransaction()
        except Py4JJavaError:
            self._producer.abortTransaction()
            raise

    def close(self) -> None:
        self._java.end(self._producer)


def in_words(error: Exception) -> str | None:
    if not isinstance(error, Py4JJavaError):
        return None
    thrown = error.java_exception
    while thrown.getCause() is not None:
        thrown = thrown.getCause()
    name = thrown.getClass().getSimpleName()
    return None if name in _OUT_OF_TIME else f"{name}: {thrown.getMessage()}"


if __name__ == "__main__":
    run(Java, in_words)
