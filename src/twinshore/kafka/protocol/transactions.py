"""Requests about transactions, and records for offsets that no consumer sees.

WriteTxnMarkers v1 sends control records to partition leaders; ListOffsets v7 tells where they would be and were
written. Fillers are batches of empty records below a twin's log start, deleted before any consumer reads them.
DescribeTransactions v0 is handwritten because coordinators date unstarted transactions at -1.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

from twinshore.kafka.protocol.apis import DESCRIBE_TRANSACTIONS, HANDWRITTEN_VERSIONS, LIST_OFFSETS, WRITE_TXN_MARKERS
from twinshore.kafka.protocol.primitives import (
    I16,
    I32,
    I64,
    NO_TAGS,
    Buffer,
    compact_string,
    parser,
    read_compact_string,
    read_count,
    read_partitions,
    skip_tags,
    uvarint,
    varint,
    write_partitions,
)
from twinshore.kafka.protocol.record_batch import (
    CONTROL_FLAG,
    HEADER_BYTES,
    BatchHeader,
    Codec,
    codec_of,
    compress,
    decompress,
    restamp,
    seal,
)

MARKERS_KEY = WRITE_TXN_MARKERS
MARKERS_VERSION = HANDWRITTEN_VERSIONS[WRITE_TXN_MARKERS][1]

_OPENING = struct.Struct(">qhb")
_RESULT = struct.Struct(">ih")


class TransactionMarker(NamedTuple):
    producer_id: int
    producer_epoch: int
    commit: bool
    coordinator_epoch: int
    topics: Sequence[tuple[str, Sequence[int]]]


class MarkedPartition(NamedTuple):
    producer_id: int
    topic: str
    partition: int
    error: int


def encode_markers(runs: Sequence[tuple[TransactionMarker, int]]) -> bytes:
    """Returns the body: each marker so many times. A marker takes one offset in each partition."""
    out = [uvarint(sum(times for _, times in runs) + 1)]
    for marker, times in runs:
        opening = _OPENING.pack(marker.producer_id, marker.producer_epoch, marker.commit)
        topics = [(compact_string(topic), list(map(I32.pack, partitions))) for topic, partitions in marker.topics]
        end = I32.pack(marker.coordinator_epoch) + NO_TAGS
        out.append((opening + write_partitions(topics) + end) * times)
    return b"".join(out) + NO_TAGS


@parser("a markers response")
def parse_markers(view: memoryview, position: int = 0) -> list[MarkedPartition]:
    """Returns results by marker and partition. A broker may group those of one producer id."""
    marked: list[MarkedPartition] = []
    markers, position = read_count(view, position)
    for _ in range(markers):
        (producer_id,) = I64.unpack_from(view, position)
        results, position = read_partitions(view, position + 8, _RESULT)
        marked += [MarkedPartition(producer_id, topic, partition, error) for topic, (partition, error) in results]
        position = skip_tags(view, position)
    skip_tags(view, position)
    return marked


LOG_ENDS_KEY = LIST_OFFSETS
LOG_ENDS_VERSION = HANDWRITTEN_VERSIONS[LIST_OFFSETS][1]

_DEBUGGER = -2
_LATEST = -1
_ENDS_OPENING = struct.Struct(">ib")
_WANTED = struct.Struct(">iiq")
_ANSWER = struct.Struct(">ihqqi")


class LogEnd(NamedTuple):
    """`end` and the leader's `epoch` are undefined with an `error`."""

    topic: str
    partition: int
    error: int
    end: int
    epoch: int = -1


def encode_list_offsets(topics: Sequence[tuple[str, Sequence[tuple[int, int]]]]) -> bytes:
    """Returns the body. Each partition has the only leader epoch that may answer, -1 for any. Asks as Kafka's debugging
    replica: consumers get the high watermark.
    """
    wanted = [
        (compact_string(topic), [_WANTED.pack(partition, epoch, _LATEST) + NO_TAGS for partition, epoch in partitions])
        for topic, partitions in topics
    ]
    return _ENDS_OPENING.pack(_DEBUGGER, 0) + write_partitions(wanted) + NO_TAGS


@parser("a log ends response")
def parse_list_offsets(view: memoryview, position: int = 0) -> list[LogEnd]:
    """`position`: after the response header."""
    found, position = read_partitions(view, position + 4, _ANSWER)
    skip_tags(view, position)
    return [LogEnd(topic, partition, error, end, epoch) for topic, (partition, error, _, end, epoch) in found]


# Brokers unpack a batch to check each record; a few MB of that is a few milliseconds.
FILLER_RECORDS_MAX = 200_000
# Each record has timestamp 0, so that no search by time ends at one; an empty key, because compacted topics refuse
# records without one; no value; no headers.


class FillerBatch(NamedTuple):
    """A filler batch without a producer."""

    header: BatchHeader
    body: bytes

    def encode_header(self, producer_id: int, producer_epoch: int, sequence: int) -> bytes:
        """Returns the header for this producer, with base offset 0."""
        return restamp(self.header, producer_id, producer_epoch, sequence)


def _record(delta: int) -> bytes:
    deltas = b"\0" + varint(delta)
    return varint(1 + len(deltas) + 3) + b"\0" + deltas + b"\0\1\0"


@cache
def _body(count: int) -> bytes:
    return compress(Codec.ZSTD, b"".join(map(_record, range(count))))


def make_filler(count: int) -> FillerBatch:
    """Returns a batch that takes `count` offsets, at most FILLER_RECORDS_MAX; a full one is cached."""
    if not 0 < count <= FILLER_RECORDS_MAX:
        raise ValueError(f"a filler of {count} records")
    body = _body(count) if count == FILLER_RECORDS_MAX else _body.__wrapped__(count)
    plain = BatchHeader(attributes=Codec.ZSTD, last_offset_delta=count - 1, count=count)
    return FillerBatch(seal(plain, body), body)


def is_filler(data: Buffer, header: BatchHeader) -> bool:
    """Whether a batch is filler, by its timestamps and first record."""
    if header.attributes & CONTROL_FLAG or not header.count or header.base_timestamp or header.max_timestamp:
        return False
    body = decompress(codec_of(header.attributes), memoryview(data)[HEADER_BYTES:])
    return body.startswith(_record(0))


TRANSACTIONS_KEY = DESCRIBE_TRANSACTIONS

_DATES_AND_PRODUCER = struct.Struct(">iqqh")


class TransactionState(NamedTuple):
    """`partitions`: those whose markers are due."""

    error: int
    name: str
    state: str
    producer_id: int
    producer_epoch: int
    partitions: list[tuple[str, int]]


def encode_describe_transactions(names: Sequence[str]) -> bytes:
    return b"".join([uvarint(len(names) + 1), *map(compact_string, names), NO_TAGS])


@parser("a transactions response")
def parse_describe_transactions(view: memoryview, position: int) -> list[TransactionState]:
    found: list[TransactionState] = []
    count, position = read_count(view, position + 4)
    for _ in range(count):
        (error,) = I16.unpack_from(view, position)
        name, position = read_compact_string(view, position + 2)
        state, position = read_compact_string(view, position)
        _, _, producer_id, epoch = _DATES_AND_PRODUCER.unpack_from(view, position)
        entries, position = read_partitions(view, position + _DATES_AND_PRODUCER.size, I32, tagged=False)
        position = skip_tags(view, position)
        partitions = [(topic, partition) for topic, (partition,) in entries]
        found.append(TransactionState(error, name or "", state or "", producer_id, epoch, partitions))
    skip_tags(view, position)
    return found
