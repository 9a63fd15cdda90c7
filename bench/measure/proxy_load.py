"""What passes a proxy while it is measured, by librdkafka's clients in a process of its own: `python -m
bench.measure.proxy_load JOB`, where JOB is JSON. The last line that it prints is what it found, as JSON."""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from testkit.figures import percentile

RECORD_BYTES = 1000
# So many records go to one partition before the next one gets any: batches are full whatever the linger.
_RUN = 400
_VALUES = 64
_PATIENCE_S = 120.0
_TAKEN = 5_000


def values(size: int) -> list[bytes]:
    """Values of which half is chance and half repeats: lz4 makes them smaller by less than half, as it does JSON."""
    chance = random.Random(7)
    return [(chance.randbytes(size // 2) + b"twinshore " * size)[:size] for _ in range(_VALUES)]


def bulk(job: dict[str, Any]) -> dict[str, float]:
    """Records as fast as they are taken, over all partitions; seconds from the first to the last acknowledgement."""
    producer = Producer(
        {
            "bootstrap.servers": job["bootstrap"],
            "compression.type": job["codec"],
            "acks": 1,
            "linger.ms": 20,
            "batch.size": job["batch_bytes"],
            "batch.num.messages": 100_000,
            "queue.buffering.max.messages": 100_000,
            "queue.buffering.max.kbytes": 131_072,
            "log_level": 2,
        }
    )
    told, partitions, records = values(RECORD_BYTES), job["partitions"], job["records"]
    _wait_for(producer, job["topic"])
    begun_s = time.monotonic()
    for number in range(records):
        while True:
            try:
                producer.produce(job["topic"], told[number % _VALUES], partition=number // _RUN % partitions)
                break
            except BufferError:
                producer.poll(0.01)
    left = producer.flush(_PATIENCE_S)
    if left:
        raise KafkaException(KafkaError(KafkaError._MSG_TIMED_OUT))
    return {"seconds": time.monotonic() - begun_s, "records": records}


def single(job: dict[str, Any]) -> dict[str, float]:
    """One record to a request and one request at a time; how long each took until it was acknowledged."""
    producer = Producer(
        {
            "bootstrap.servers": job["bootstrap"],
            "acks": job["acks"],
            "linger.ms": 0,
            "max.in.flight.requests.per.connection": 1,
            "log_level": 2,
        }
    )
    value = values(100)[0]
    failed: list[KafkaError] = []

    def heard(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failed.append(error)

    _wait_for(producer, job["topic"])
    took_s = []
    begun_s = time.monotonic()
    for number in range(job["records"]):
        sent_s = time.monotonic()
        producer.produce(job["topic"], value, partition=number % job["partitions"], on_delivery=heard)
        producer.flush(_PATIENCE_S)
        took_s.append(time.monotonic() - sent_s)
    if failed:
        raise KafkaException(failed[0])
    ordered = sorted(took_s)
    p50_ms, p99_ms = (percentile(ordered, part) * 1000 for part in (0.5, 0.99))
    return {
        "seconds": time.monotonic() - begun_s,
        "records": job["records"],
        "p50_ms": p50_ms,
        "p99_ms": p99_ms,
    }


def fetch(job: dict[str, Any]) -> dict[str, float]:
    """All records of a topic, from its beginning on."""
    consumer = Consumer(
        {
            "bootstrap.servers": job["bootstrap"],
            "group.id": "bench-proxy",
            "enable.auto.commit": False,
            "fetch.message.max.bytes": 4 << 20,
            "fetch.max.bytes": 16 << 20,
            "queued.min.messages": 200_000,
            "queued.max.messages.kbytes": 262_144,
            "log_level": 2,
        }
    )
    _wait_for(consumer, job["topic"])
    consumer.assign([TopicPartition(job["topic"], number, 0) for number in range(job["partitions"])])
    found, begun_s = 0, time.monotonic()
    while found < job["records"]:
        got = consumer.consume(_TAKEN, timeout=1)
        found += len(got)
        if time.monotonic() - begun_s > _PATIENCE_S:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
    seconds = time.monotonic() - begun_s
    consumer.close()
    return {"seconds": seconds, "records": found}


def _wait_for(client: Any, topic: str) -> None:
    """Until the topic has leaders; the client has its connections then."""
    until_s = time.monotonic() + _PATIENCE_S
    while True:
        told = client.list_topics(topic, timeout=_PATIENCE_S).topics[topic]
        if told.partitions and all(one.leader >= 0 for one in told.partitions.values()):
            return
        if time.monotonic() > until_s:
            raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE))
        time.sleep(0.05)


KINDS: dict[str, Callable[[dict[str, Any]], dict[str, float]]] = {"bulk": bulk, "single": single, "fetch": fetch}


def main() -> None:
    job = json.loads(sys.argv[1])
    print(json.dumps(KINDS[job["kind"]](job)), flush=True)


if __name__ == "__main__":
    main()
