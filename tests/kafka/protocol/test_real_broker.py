"""Real brokers and librdkafka as the judges of our bytes, in both directions."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, Consumer, Producer
from confluent_kafka import TopicPartition as ClientTopicPartition

from tests.conftest import ClusterFactory
from tests.kafka.protocol.strategies import slice_batch
from twinshore.config.model import Cluster, TopicPartition
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.protocol.fetch import (
    FETCH_KEY,
    FETCH_VERSION,
    FetchPartitionById,
    FetchResponseById,
    encode_fetch_by_id,
    parse_fetch_by_id,
)
from twinshore.kafka.protocol.primitives import Buffer
from twinshore.kafka.protocol.produce import PRODUCE_KEY, ProducedPartition, encode_produce, read_produce_response
from twinshore.kafka.protocol.record_batch import (
    HEADER_BYTES,
    LOG_APPEND_TIME_FLAG,
    BatchHeader,
    Codec,
    Record,
    check_crc,
    decode_batch,
    encode_batch,
    next_sequence,
    restamp,
    split_batches,
)
from twinshore.kafka.protocol.rewrite import merge_small
from twinshore.kafka.protocol.transactions import (
    MARKERS_KEY,
    MARKERS_VERSION,
    MarkedPartition,
    TransactionMarker,
    encode_markers,
    parse_markers,
)
from twinshore.lab.clients import client_settings
from twinshore.lab.cluster import LabCluster
from twinshore.lab.jars import KAFKA_3

NAMES = {Codec.NONE: "none", Codec.GZIP: "gzip", Codec.SNAPPY: "snappy", Codec.LZ4: "lz4", Codec.ZSTD: "zstd"}
START = 1_700_000_000_000
RECORDS = [
    Record(
        offset,
        START + 7 * offset,
        None if offset % 3 == 0 else b"key-%d" % offset,
        None if offset % 11 == 5 else b"value %d " % offset * 20,
        ((b"trace", b"%d" % offset), (b"empty", b""), (b"null", None)) if offset % 2 else (),
    )
    for offset in range(300)
]
Batch = tuple[memoryview, BatchHeader]


class Line:
    """One partition of one topic, spoken to in bytes."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self.topic = topic
        self.kafka = KafkaCluster(cluster)
        self.topic_id = self.kafka.metadata([topic]).topics[topic].topic_id
        self.connection = self.kafka.dial(self.kafka.leader_of(TopicPartition(topic, 0)))
        self.producer_id, self.producer_epoch = self.kafka.init_producer_id()
        # A broker may lead a new partition by its metadata a moment before it serves it.
        deadline = time.monotonic() + 20
        while (part := self.fetch(0).partitions[0]).error and time.monotonic() < deadline:
            time.sleep(0.05)
        assert part.error == 0

    def close(self) -> None:
        self.connection.close()
        self.kafka.close()

    def fetch(self, position: int, *, session: tuple[int, int] = (0, -1), **wanted: Any) -> FetchResponseById:
        parts = wanted.pop("partitions", [FetchPartitionById(self.topic_id, 0, position, -1, -1, 1 << 20)])
        body = encode_fetch_by_id(
            session_id=session[0],
            session_epoch=session[1],
            max_wait_ms=200,
            min_bytes=1,
            max_bytes=8 << 20,
            isolation=0,
            partitions=parts,
            **wanted,
        )
        # The answer lives in the connection's buffer until the next call; these tests keep theirs.
        return parse_fetch_by_id(memoryview(bytes(self.connection.call_raw(FETCH_KEY, FETCH_VERSION, body))), 0)

    def batches(self, end: int) -> list[Batch]:
        """The log from 0 to `end`."""
        found: list[Batch] = []
        position = 0
        while position < end:
            (part,) = self.fetch(position).partitions
            assert part.error == 0
            found += split_batches(part.records)
            position = found[-1][1].last_offset + 1
        return found

    def produce(self, head: bytes, body: Buffer, version: int = 9) -> ProducedPartition:
        parts = encode_produce(version, [(self.topic, self.topic_id, [(0, head, body)])])
        answer = self.connection.call_raw(PRODUCE_KEY, version, b"".join(parts))
        (produced,) = read_produce_response(answer, 0, version).appended
        return produced

    def append(self, body: Buffer, header: BatchHeader, version: int = 9) -> None:
        """Appends where the batch stood at its source, and the broker agrees that it stands there."""
        head = restamp(header, self.producer_id, self.producer_epoch, header.base_offset)
        produced = self.produce(head, body, version)
        assert (produced.error, produced.message) == (0, None)
        assert produced.base_offset == header.base_offset


@pytest.fixture
def line(east: LabCluster, unique_topic: str) -> Iterator[Line]:
    east.create_topic(unique_topic)
    line = Line(east.cluster, unique_topic)
    yield line
    line.close()


def write(cluster: Cluster, topic: str, records: Sequence[Record], codec: str, batch: int = 100) -> None:
    settings = {"compression.type": codec, "batch.num.messages": batch, "linger.ms": 50, "enable.idempotence": True}
    producer = Producer({**client_settings(cluster), **settings})
    for record in records:
        headers: list[tuple[str, str | bytes | None]] = [(key.decode(), value) for key, value in record.headers]
        producer.produce(topic, record.value, record.key, 0, timestamp=record.timestamp, headers=headers)
    assert producer.flush(30) == 0


def read(cluster: Cluster, topic: str, count: int) -> list[Record]:
    settings = {"group.id": "wire", "enable.auto.commit": False, "check.crcs": True}
    consumer = Consumer({**client_settings(cluster), **settings})
    consumer.assign([ClientTopicPartition(topic, 0, 0)])
    found: list[Record] = []
    try:
        while len(found) < count:
            messages = consumer.consume(count - len(found), timeout=20)
            assert messages, f"{len(found)} of {count} records came"
            found += [taken(message) for message in messages]
    finally:
        consumer.close()
    return found


def taken(message: Any) -> Record:
    assert message.error() is None
    kind, timestamp = message.timestamp()
    assert kind == TIMESTAMP_CREATE_TIME
    headers = tuple((key.encode(), value) for key, value in message.headers() or ())
    return Record(message.offset(), timestamp, message.key(), message.value(), headers)


def check_both_directions(cluster: Cluster, line: Line, codec: Codec) -> None:
    """What librdkafka wrote decodes equal; what we write after it is read equal by librdkafka."""
    write(cluster, line.topic, RECORDS[:150], NAMES[codec])
    batches = line.batches(150)
    for view, header in batches:
        check_crc(view, header)
    assert [record for view, header in batches for record in decode_batch(view, header)] == RECORDS[:150]
    assert {header.attributes for _, header in batches} == {codec}
    for first in range(150, 300, 50):
        view, header = split_batches(memoryview(encode_batch(RECORDS[first : first + 50], codec=codec)))[0]
        line.append(view[HEADER_BYTES:], header)
    assert read(cluster, line.topic, 300) == RECORDS


@pytest.mark.parametrize("codec", list(Codec))
def test_every_codec_in_both_directions(east: LabCluster, line: Line, codec: Codec) -> None:
    check_both_directions(east.cluster, line, codec)


def test_kafka_3_speaks_the_same(cluster_factory: ClusterFactory) -> None:
    older = cluster_factory("older", version=KAFKA_3, heap_mb=256)
    for codec in (Codec.SNAPPY, Codec.LZ4):
        older.create_topic(NAMES[codec])
        line = Line(older.cluster, NAMES[codec])
        try:
            check_both_directions(older.cluster, line, codec)
        finally:
            line.close()


@pytest.mark.parametrize("codec", list(Codec))
def test_merged_and_sliced_batches_are_read_at_their_offsets(east: LabCluster, line: Line, codec: Codec) -> None:
    singles = b"".join(encode_batch([record], codec=codec) for record in RECORDS[:200])
    body, header, _ = merge_small(split_batches(memoryview(singles)))
    line.append(body, header)
    view, whole = split_batches(memoryview(encode_batch(RECORDS[150:], codec=codec)))[0]
    line.append(*slice_batch(view, whole, 200, 260))
    line.append(*slice_batch(view, whole, 260, 300))
    assert read(east.cluster, line.topic, 300) == RECORDS
    assert [header.count for _, header in line.batches(300)] == [200, 60, 40]


def test_append_time_crosses_as_create_time(east: LabCluster, line: Line) -> None:
    stamped = f"{line.topic}-stamped"
    east.create_topic(stamped, settings={"message.timestamp.type": "LogAppendTime"})
    write(east.cluster, stamped, RECORDS[:60], "lz4", batch=20)
    source = Line(east.cluster, stamped)
    batches = source.batches(60)
    source.close()
    assert all(header.attributes & LOG_APPEND_TIME_FLAG for _, header in batches)
    for view, header in batches:
        line.append(*slice_batch(view, header, header.base_offset, header.last_offset + 1))
    crossed = [record for view, header in batches for record in decode_batch(view, header)]
    assert min(record.timestamp for record in crossed) > START + 10**9
    assert read(east.cluster, line.topic, 60) == crossed


@pytest.mark.parametrize("version", [9, 10, 11, 12, 13])
def test_every_produce_version(line: Line, version: int) -> None:
    view, header = split_batches(memoryview(encode_batch(RECORDS[:5])))[0]
    line.append(view[HEADER_BYTES:], header, version)
    refused = line.produce(restamp(header, line.producer_id, line.producer_epoch, 99), view[HEADER_BYTES:], version)
    assert (refused.error, refused.base_offset) == (45, -1)
    assert refused.topic == (line.topic_id if version == 13 else line.topic)


def test_the_broker_refuses_damage_that_a_restamp_carried(line: Line) -> None:
    data = bytearray(encode_batch(RECORDS[:50]))
    ((view, header),) = split_batches(memoryview(data))
    data[-20] ^= 1
    produced = line.produce(restamp(header, line.producer_id, line.producer_epoch, 0), view[HEADER_BYTES:])
    assert produced.error == 2


def test_sequences_go_on_across_two_to_the_31(line: Line) -> None:
    sequence = 2**31 - 3
    for base in (0, 5, 10):
        view, header = split_batches(memoryview(encode_batch(RECORDS[base : base + 5])))[0]
        head = restamp(header, line.producer_id, line.producer_epoch, sequence)
        produced = line.produce(head, view[HEADER_BYTES:])
        assert (produced.error, produced.base_offset) == (0, base)
        sequence = next_sequence(sequence, 5)
    assert sequence == 12
    ((_, last),) = line.batches(15)[-1:]
    assert last.base_sequence == 7


def test_a_fetch_session_sends_only_what_changed(east: LabCluster, line: Line) -> None:
    other = f"{line.topic}-other"
    east.create_topic(other)
    second = Line(east.cluster, other)
    second.close()
    other_id = second.topic_id
    parts = [FetchPartitionById(topic_id, 0, 0, -1, -1, 1 << 20) for topic_id in (line.topic_id, other_id)]
    opened = line.fetch(0, session=(0, 0), partitions=parts)
    assert opened.error == 0
    assert opened.session_id != 0
    assert {part.topic_id for part in opened.partitions} == {line.topic_id, other_id}
    write(east.cluster, line.topic, RECORDS[:3], "none")
    answer = line.fetch(0, session=(opened.session_id, 1), partitions=[])
    assert [(part.topic_id, part.high_watermark) for part in answer.partitions] == [(line.topic_id, 3)]
    moved = [parts[0]._replace(position=3)]
    answer = line.fetch(0, session=(opened.session_id, 2), partitions=moved, forgotten=[(other_id, 0)])
    assert (answer.error, answer.partitions) == (0, [])
    write(east.cluster, other, RECORDS[:1], "none")
    assert line.fetch(0, session=(opened.session_id, 3), partitions=[]).partitions == []


def test_a_fetch_beyond_the_end_is_answered_with_its_error(line: Line) -> None:
    (part,) = line.fetch(10).partitions
    assert (part.error, part.high_watermark, len(part.records)) == (1, -1, 0)


def test_markers_take_offsets_that_no_consumer_sees(east: LabCluster, line: Line) -> None:
    view, header = split_batches(memoryview(encode_batch(RECORDS[:5])))[0]
    line.append(view[HEADER_BYTES:], header)
    marker = TransactionMarker(line.producer_id, line.producer_epoch, False, 0, [(line.topic, [0])])
    answer = line.connection.call_raw(MARKERS_KEY, MARKERS_VERSION, encode_markers([(marker, 20)]))
    assert set(parse_markers(answer, 0)) == {MarkedPartition(line.producer_id, line.topic, 0, 0)}
    after = [record._replace(offset=record.offset + 20) for record in RECORDS[5:10]]
    view, header = split_batches(memoryview(encode_batch(after)))[0]
    head = restamp(header, line.producer_id, line.producer_epoch, 5)
    assert line.produce(head, view[HEADER_BYTES:]).base_offset == 25
    assert read(east.cluster, line.topic, 10) == RECORDS[:5] + after
