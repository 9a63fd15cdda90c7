"""Fills a topic far faster than any copier empties it: ready-made batches, sent again and again."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from confluent_kafka import Consumer, TopicPartition

from twinshore.fleet import Cluster, KafkaError
from twinshore.kafka.connection import Connection
from twinshore.kafka.opening import open_connection
from twinshore.lab import LabCluster
from twinshore.lab.clients import admin_of, clear, client_settings
from twinshore.lab.stages.workloads import PARTITIONS, Batch, Workload
from twinshore.lab.watermarks import TopicEnd
from twinshore.wire.batch import HEADER_BYTES
from twinshore.wire.primitives import Buffer
from twinshore.wire.produce import PRODUCE_KEY, encode_produce, parse_produce

_IN_FLIGHT = 32
WARM_PART = 5
_BY_NAME = 12
_PATIENCE_S = 120.0


def load(cluster: Cluster, topic: str, batches: Sequence[Batch], records: int) -> int:
    """Adds at least `records` records, evenly over the topic's partitions; returns how many were added."""
    leaders = _leaders(cluster, topic)
    partitions = sum(len(led) for led in leaders.values())
    per_round = sum(batch.records for batch in batches) * partitions
    rounds = -(-records // per_round)
    faults: list[BaseException] = []

    def fill(address: tuple[str, int], led: list[int]) -> None:
        try:
            _fill(cluster, address, topic, led, batches, rounds)
        except BaseException as fault:
            faults.append(fault)

    # A broker takes one connection's requests one after another: two connections keep two cores busy.
    halves = [(address, led[half::2]) for address, led in leaders.items() for half in (0, 1) if led[half::2]]
    threads = [threading.Thread(target=fill, args=each) for each in halves]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if faults:
        raise faults[0]
    return rounds * per_round


def warm_broker(side: LabCluster, workload: Workload) -> None:
    """Writes to a target until its JVM has compiled what appends: no copier shall meet a colder one than another."""
    topic = "bench-warm"
    side.create_topic(topic, partitions=PARTITIONS, copies=min(3, len(side.brokers)))
    TopicEnd(side.cluster, topic, PARTITIONS).wait_ready()
    load(side.cluster, topic, workload.batches, workload.short_backlog // WARM_PART)
    clear(side.cluster)


def warm_source(side: LabCluster, topic: str, records: int) -> None:
    """Reads so many records of what lies ready, so that the first copier is served no slower than others."""
    consumer = Consumer({**client_settings(side.cluster), "group.id": "bench-warm", "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
        begun_s, seen = time.monotonic(), 0
        while seen < records and time.monotonic() - begun_s < _PATIENCE_S:
            seen += len(consumer.consume(10_000, timeout=1))
    finally:
        consumer.close()


def _leaders(cluster: Cluster, topic: str) -> dict[tuple[str, int], list[int]]:
    """The addresses of the partitions' leaders, each with its partitions."""
    known = admin_of(cluster).list_topics(topic, timeout=10)
    led: dict[tuple[str, int], list[int]] = {}
    for partition in known.topics[topic].partitions.values():
        broker = known.brokers[partition.leader]
        led.setdefault((str(broker.host), broker.port), []).append(partition.id)
    return led


def _fill(
    cluster: Cluster,
    address: tuple[str, int],
    topic: str,
    partitions: Sequence[int],
    batches: Sequence[Batch],
    rounds: int,
) -> None:
    connection = open_connection(address, cluster.security, client_id="bench-loader", timeout_s=_PATIENCE_S)
    try:
        version = connection.api_version(PRODUCE_KEY, _BY_NAME, 9)
        requests = [_request(version, topic, partitions, batch) for batch in batches]
        waiting = 0
        for _ in range(rounds):
            for request in requests:
                connection.begin(PRODUCE_KEY, version, request, timeout_s=_PATIENCE_S)
                waiting += 1
                if waiting == _IN_FLIGHT:
                    _take_answer(connection, version)
                    waiting -= 1
        for _ in range(waiting):
            _take_answer(connection, version)
    finally:
        connection.close()


def _request(version: int, topic: str, partitions: Sequence[int], batch: Batch) -> list[Buffer]:
    head, body = batch.data[:HEADER_BYTES], batch.data[HEADER_BYTES:]
    parts = encode_produce(version, [(topic, bytes(16), [(partition, head, body) for partition in partitions])])
    return [b"".join(parts)]


def _take_answer(connection: Connection, version: int) -> None:
    answer = connection.finish(_PATIENCE_S)
    for produced in parse_produce(answer.view, answer.position, version):
        if produced.error:
            raise KafkaError(
                f"{connection.place}: loading answered {produced.message or produced.error}", code=produced.error
            )
