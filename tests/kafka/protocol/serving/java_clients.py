"""Java's own Kafka clients, driven from here: a virtual machine that has those of a Kafka version on its class path."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

from py4j.java_gateway import GatewayParameters, JavaGateway  # type: ignore[import-untyped]

from twinshore.lab.jars import fetch_kafka_classpath, find_ivy_jar, find_java

_SERIALIZER = "org.apache.kafka.common.serialization.StringSerializer"
_DESERIALIZER = "org.apache.kafka.common.serialization.StringDeserializer"


class JavaClients:
    """A producer and a consumer for each call: what they speak is agreed anew."""

    def __init__(self, gateway: JavaGateway) -> None:
        self._jvm: Any = gateway.jvm

    def produce(self, bootstrap: str, topic: str, values: list[str], settings: dict[str, str]) -> None:
        clients = self._jvm.org.apache.kafka.clients.producer
        own = {"bootstrap.servers": bootstrap, "key.serializer": _SERIALIZER, "value.serializer": _SERIALIZER}
        producer = clients.KafkaProducer(self._properties(own | settings))
        for value in values:
            producer.send(clients.ProducerRecord(topic, value))
        producer.flush()
        producer.close()

    def consume(
        self, bootstrap: str, topic: str, count: int, polls: int, settings: Mapping[str, str] = MappingProxyType({})
    ) -> list[str]:
        """The values of partition 0 from its beginning on; fewer where they do not come within so many polls."""
        own = {"bootstrap.servers": bootstrap, "key.deserializer": _DESERIALIZER, "value.deserializer": _DESERIALIZER}
        own["isolation.level"] = "read_committed"
        own |= settings
        consumer = self._jvm.org.apache.kafka.clients.consumer.KafkaConsumer(self._properties(own))
        partitions = self._jvm.java.util.ArrayList()
        partitions.add(self._jvm.org.apache.kafka.common.TopicPartition(topic, 0))
        consumer.assign(partitions)
        consumer.seekToBeginning(partitions)
        found = self._polled(consumer, count, polls)
        consumer.close()
        return found

    def consume_as(self, group: str, bootstrap: str, topics: list[str], count: int, polls: int) -> list[str]:
        """The values that the group has not read yet of all partitions; it commits them."""
        own = {"bootstrap.servers": bootstrap, "key.deserializer": _DESERIALIZER, "value.deserializer": _DESERIALIZER}
        own |= {"group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": "false"}
        consumer = self._jvm.org.apache.kafka.clients.consumer.KafkaConsumer(self._properties(own))
        named = self._jvm.java.util.ArrayList()
        for topic in topics:
            named.add(topic)
        consumer.subscribe(named)
        found = self._polled(consumer, count, polls)
        consumer.commitSync()
        consumer.close()
        return found

    def member(self, bootstrap: str, group: str, topics: list[str], settings: Mapping[str, str]) -> JavaMember:
        """One that stays; it begins at the beginning, and commits when it is asked to."""
        own = {"bootstrap.servers": bootstrap, "key.deserializer": _DESERIALIZER, "value.deserializer": _DESERIALIZER}
        own |= {"group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": "false", **settings}
        consumer = self._jvm.org.apache.kafka.clients.consumer.KafkaConsumer(self._properties(own))
        named = self._jvm.java.util.ArrayList()
        for topic in topics:
            named.add(topic)
        consumer.subscribe(named)
        return JavaMember(consumer, self._jvm.java.time.Duration.ofMillis(200))

    def begins(self, producer: Mapping[str, str], consumer: Mapping[str, str]) -> None:
        """Makes both and ends them, with nobody to speak to; Java's error where it refuses the settings."""
        nobody, now = {"bootstrap.servers": "127.0.0.1:1"}, self._jvm.java.time.Duration.ZERO
        clients = self._jvm.org.apache.kafka.clients
        own = nobody | {"key.serializer": _SERIALIZER, "value.serializer": _SERIALIZER}
        clients.producer.KafkaProducer(self._properties(own | dict(producer))).close(now)
        own = nobody | {"key.deserializer": _DESERIALIZER, "value.deserializer": _DESERIALIZER, "group.id": "one"}
        clients.consumer.KafkaConsumer(self._properties(own | dict(consumer))).close(now)

    def _polled(self, consumer: Any, count: int, polls: int) -> list[str]:
        second = self._jvm.java.time.Duration.ofSeconds(1)
        found: list[str] = []
        for _ in range(polls):
            if len(found) >= count:
                break
            records = consumer.poll(second).iterator()
            while records.hasNext():
                found.append(records.next().value())
        return found

    def _properties(self, settings: dict[str, str]) -> Any:
        properties = self._jvm.java.util.Properties()
        for name, value in settings.items():
            properties.setProperty(name, value)
        return properties


class JavaMember:
    """A consumer in a group; its errors are Py4JJavaError."""

    def __init__(self, consumer: Any, wait: Any) -> None:
        self._consumer, self._wait = consumer, wait
        self.read: list[tuple[str, int, int, str]] = []

    def poll(self) -> int:
        """How many records came; they stand in `read` by topic, partition and offset."""
        records, before = self._consumer.poll(self._wait).iterator(), len(self.read)
        while records.hasNext():
            one = records.next()
            self.read.append((one.topic(), int(one.partition()), int(one.offset()), one.value()))
        return len(self.read) - before

    def parts(self) -> set[tuple[str, int]]:
        return {(one.topic(), int(one.partition())) for one in self._consumer.assignment()}

    def commit(self) -> None:
        self._consumer.commitSync()

    def close(self) -> None:
        self._consumer.close()


@contextmanager
def java_clients(version: str, *flags: str) -> Iterator[JavaClients]:
    """Those of this Kafka version, until the block ends. `flags`: of their virtual machine."""
    (bridge,) = find_ivy_jar().parent.glob("py4j-*.jar")
    path = os.pathsep.join([str(bridge), fetch_kafka_classpath(version)])
    command = [find_java(), "-XX:TieredStopAtLevel=1", "-Xmx128m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"]
    command += [*flags, "-cp", path, "py4j.GatewayServer", "--die-on-broken-pipe", "0"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port))
        try:
            yield JavaClients(gateway)
        finally:
            gateway.shutdown()
            process.kill()
