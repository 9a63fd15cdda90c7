"""What is copied: three shapes of topic, as ready-made batches, sent again and again. So a topic is filled far faster
than any copier empties it.
"""

from __future__ import annotations

import json
import random
import string
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from confluent_kafka import Consumer, TopicPartition

from testkit.clients import delete_all_topics
from testkit.watermarks import TopicEndReader
from twinshore.config.errors import KafkaError
from twinshore.config.model import Cluster
from twinshore.kafka.clock import wall_ms
from twinshore.kafka.connection import Connection, open_connection
from twinshore.kafka.protocol.primitives import Buffer
from twinshore.kafka.protocol.produce import PRODUCE_KEY, encode_produce, read_produce_response
from twinshore.kafka.protocol.record_batch import HEADER_BYTES, Codec, Record, encode_batch
from twinshore.lab.clients import client_settings, create_admin_client
from twinshore.lab.cluster import LabCluster

PARTITIONS = 4
PLAIN_BATCH_BYTES = 16 << 10
LZ4_BATCH_BYTES = 64 << 10
_BATCH_KINDS = 4
_SEED = 20


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch as brokers store it, and how many records it holds."""

    data: bytes
    records: int


@dataclass(frozen=True, slots=True)
class Workload:
    """`backlog` is how many records lie ready when a copier starts; `short_backlog` in a short run."""

    name: str
    says: str
    backlog: int
    short_backlog: int
    batches: tuple[Batch, ...]

    @property
    def topic(self) -> str:
        return f"bench-{self.name}"

    @property
    def bytes_per_record(self) -> float:
        return sum(len(batch.data) for batch in self.batches) / sum(batch.records for batch in self.batches)


def plain() -> Workload:
    """1 KB records that do not compress, in 16 KB batches."""

    def batch(chance: random.Random) -> Batch:
        return _batch([(None, chance.randbytes(1_000)) for _ in range(PLAIN_BATCH_BYTES // 1_040)], Codec.NONE)

    return Workload("plain", "1 KB records, uncompressed, 16 KB batches", 6_000_000, 4_000_000, _some(batch))


def lz4() -> Workload:
    """JSON records in batches that reach 64 KB when compressed: `batch.size` as the Java producer counts it."""

    def batch(chance: random.Random) -> Batch:
        pairs = [_order(chance) for _ in range(250)]
        filled = _batch(pairs, Codec.LZ4)
        fitting = len(pairs) * LZ4_BATCH_BYTES // len(filled.data)
        pairs += [_order(chance) for _ in range(fitting - len(pairs))]
        return _batch(pairs, Codec.LZ4)

    says = "JSON records of about 250 bytes, lz4, 64 KB batches"
    return Workload("lz4", says, 48_000_000, 36_000_000, _some(batch))


def single() -> Workload:
    """100-byte records, each a separate batch, as producers that do not linger leave them."""

    def batch(chance: random.Random) -> Batch:
        return _batch([(None, chance.randbytes(100))], Codec.NONE)

    return Workload("single", "100-byte records, one to a batch", 8_000_000, 5_000_000, _some(batch))


def _some(batch: Callable[[random.Random], Batch]) -> tuple[Batch, ...]:
    chance = random.Random(_SEED)
    return tuple(batch(chance) for _ in range(_BATCH_KINDS))


WORKLOADS = {"plain": plain, "lz4": lz4, "single": single}


def _batch(pairs: Sequence[tuple[bytes | None, bytes]], codec: Codec) -> Batch:
    now_ms = wall_ms()
    records = [Record(place, now_ms + place // 50, key, value) for place, (key, value) in enumerate(pairs)]
    return Batch(encode_batch(records, codec=codec), len(records))


_CITIES = ("Lisboa", "Porto", "Trieste", "Rijeka", "Gdańsk", "Tallinn", "Malmö", "Aarhus", "Bergen", "Cork")
_STATES = ("placed", "paid", "packed", "shipped", "delivered", "returned")


def _order(chance: random.Random) -> tuple[bytes, bytes]:
    customer = chance.randrange(1_000_000)
    order = {
        "order_id": "".join(chance.choices(string.hexdigits[:16], k=24)),
        "customer_id": customer,
        "state": chance.choice(_STATES),
        "city": chance.choice(_CITIES),
        "placed_at": f"2026-03-{chance.randrange(1, 29):02}T{chance.randrange(24):02}:{chance.randrange(60):02}:07Z",
        "total_cents": chance.randrange(500, 250_000),
        "currency": "EUR",
        "items": [
            {"sku": f"SKU-{chance.randrange(100_000):05}", "count": chance.randrange(1, 5)}
            for _ in range(chance.randrange(1, 4))
        ],
    }
    return f"c{customer}".encode(), json.dumps(order, ensure_ascii=False).encode()


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
    TopicEndReader(side.cluster, topic, PARTITIONS).wait_ready()
    load(side.cluster, topic, workload.batches, workload.short_backlog // WARM_PART)
    delete_all_topics(side.cluster)


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
    known = create_admin_client(cluster).list_topics(topic, timeout=10)
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
    for produced in read_produce_response(answer.view, answer.position, version).appended:
        if produced.error:
            raise KafkaError(
                f"{connection.place}: loading answered {produced.message or produced.error}", code=produced.error
            )
