"""Writes batches and markers exactly as told, to see what real brokers make of them."""

from __future__ import annotations

from twinshore.config.model import TopicPartition
from twinshore.kafka.clock import wall_ms
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.connection import Connection
from twinshore.kafka.leader_queries import OffsetKind
from twinshore.kafka.protocol.produce import PRODUCE_KEY, ProducedPartition, encode_produce, read_produce_response
from twinshore.kafka.protocol.record_batch import (
    HEADER_BYTES,
    BatchHeader,
    Record,
    encode_batch,
    encode_header,
    seal,
    split_batches,
)
from twinshore.kafka.protocol.transactions import (
    MARKERS_KEY,
    MARKERS_VERSION,
    TransactionMarker,
    encode_markers,
    parse_markers,
)


class RawWriter:
    """One producer id on partition 0 of one topic, over one connection to its leader."""

    def __init__(self, kafka: KafkaCluster, topic: str) -> None:
        self.kafka = kafka
        self.partition = TopicPartition(topic, 0)
        # A new leader answers 3 or 6 for a moment after metadata names it; this waits until it serves.
        kafka.list_offsets([self.partition], OffsetKind.LOG_END)
        # Only now: right after its creation metadata may not know the topic, and its id is all zero then.
        self.topic_id = kafka.metadata([topic]).topics[topic].topic_id
        self.producer_id, self.epoch = kafka.init_producer_id()

    @property
    def leader(self) -> Connection:
        return self.kafka.connection_to(self.kafka.leader_of(self.partition))

    def write(
        self,
        records: int,
        sequence: int,
        *,
        time_ms: int | None = None,
        key: bytes | None = b"k",
        epoch: int | None = None,
        acks: int = -1,
        value: bytes = b"value",
        **header_fields: int,
    ) -> ProducedPartition:
        """The broker's answer to one batch of so many records. `header_fields` go into the header as they are."""
        fields = {
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch if epoch is None else epoch,
            "base_sequence": sequence,
            **header_fields,
        }
        data = self.batch(records, time_ms=time_ms, key=key, value=value)
        ((_, header),) = split_batches(memoryview(data))
        return self.send([self.sealed(header._replace(**fields), data[HEADER_BYTES:])], acks=acks)

    @staticmethod
    def batch(records: int, *, time_ms: int | None = None, key: bytes | None = b"k", value: bytes = b"value") -> bytes:
        """So many equal records."""
        at_ms = wall_ms() if time_ms is None else time_ms
        return encode_batch([Record(number, at_ms, key, value) for number in range(records)])

    @staticmethod
    def sealed(header: BatchHeader, body: bytes) -> bytes:
        return encode_header(seal(header, body)) + body

    def send(self, batches: list[bytes], *, acks: int = -1, topic_id: bytes | None = None) -> ProducedPartition:
        """The answer to one produce request with these batches for partition 0."""
        leader = self.leader
        version = leader.handwritten_version(PRODUCE_KEY)
        topic = (self.partition.topic, topic_id or self.topic_id, [(0, b"", b"".join(batches))])
        body = b"".join(encode_produce(version, [topic], acks=acks))
        (answer,) = read_produce_response(leader.call_raw(PRODUCE_KEY, version, body), 0, version).appended
        return answer

    def mark(
        self,
        coordinator_epoch: int,
        *,
        epoch: int | None = None,
        commit: bool = False,
        times: int = 1,
        producer_id: int | None = None,
    ) -> int:
        """The code that `times` equal markers got."""
        own = self.epoch if epoch is None else epoch
        marker = TransactionMarker(
            self.producer_id if producer_id is None else producer_id,
            own,
            commit,
            coordinator_epoch,
            [(self.partition.topic, [0])],
        )
        view = self.leader.call_raw(MARKERS_KEY, MARKERS_VERSION, encode_markers([(marker, times)]))
        (code,) = {one.error for one in parse_markers(view, 0)}
        return code
