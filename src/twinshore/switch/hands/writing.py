"""Appends batches of our own to a topic, each under its sequence: what a broker has already it takes for written."""

from __future__ import annotations

import time
from collections.abc import Sequence

from twinshore.fleet import KafkaError, NamedPartition
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.connection import Connection
from twinshore.kafka.errors import Code, kafka_error
from twinshore.wire.batch import HEADER_BYTES
from twinshore.wire.produce import PRODUCE_KEY, encode_produce, parse_produce
from twinshore.wire.records import Record, encode_batch

TRIES_MAX = 10
PAUSE_S = 0.3
ASK_S = 30.0


def append(
    cluster: KafkaCluster, named: NamedPartition, who: tuple[int, int], sequence: int, records: Sequence[Record]
) -> int:
    """Returns the offset behind the batch once that is on all replicas in sync; 0 where the broker knows no more than
    that it has it. Asked again it is not written again. `who`: the producer's id and epoch."""
    batch = encode_batch(records, producer_id=who[0], producer_epoch=who[1], base_sequence=sequence)
    for number in range(TRIES_MAX):
        try:
            part = cluster.partition_of(named, refresh=number > 0)
            topic_id = cluster.metadata([named.topic], refresh=False).topics[named.topic].topic_id
            line = cluster.connection_to(part.leader)
            return _append_once(line, cluster.name, named, topic_id, batch) + len(records)
        except KafkaError as error:
            if error.code == Code.DUPLICATE_SEQUENCE_NUMBER:
                return 0
            if not error.retriable or number == TRIES_MAX - 1:
                raise
            time.sleep(PAUSE_S)
    raise AssertionError("the last try returns or raises")


def _append_once(line: Connection, name: str, named: NamedPartition, topic_id: bytes, batch: bytes) -> int:
    version = line.spoken(PRODUCE_KEY)
    topic = (named.topic, topic_id, [(named.partition, batch[:HEADER_BYTES], batch[HEADER_BYTES:])])
    body = b"".join(encode_produce(version, [topic]))
    (answer,) = line.ask(PRODUCE_KEY, version, body, lambda view: parse_produce(view, 0, version), timeout_s=ASK_S)
    if answer.error:
        raise kafka_error(answer.error, f"{name}: append to {named}", right=f"Write on topic {named.topic}")
    return answer.base_offset
