"""The questions that only a partition's leader can answer, as kio requests, and their answers as plain values."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import NamedTuple

from kio.schema.delete_records.v2 import DeleteRecordsRequest, DeleteRecordsResponse
from kio.schema.delete_records.v2.request import DeleteRecordsPartition, DeleteRecordsTopic
from kio.schema.describe_producers.v0 import DescribeProducersRequest, DescribeProducersResponse
from kio.schema.describe_producers.v0.request import TopicRequest
from kio.schema.init_producer_id.v4 import InitProducerIdRequest, InitProducerIdResponse
from kio.schema.list_offsets.v7 import ListOffsetsRequest, ListOffsetsResponse
from kio.schema.list_offsets.v7.request import ListOffsetsPartition, ListOffsetsTopic
from kio.schema.offset_for_leader_epoch.v4 import OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse
from kio.schema.offset_for_leader_epoch.v4.request import OffsetForLeaderPartition, OffsetForLeaderTopic
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i8, i32, i32Timedelta, i64

from twinshore.fleet import NamedPartition
from twinshore.kafka.connection import Connection
from twinshore.kafka.errors import Code, kafka_error
from twinshore.wire.batch import BatchHeader, split_batches
from twinshore.wire.fetch import FETCH_KEY, FETCH_VERSION, FetchedPartition, FetchPartition, encode_fetch, parse_fetch

CONSUMER = -1
# Kafka's debugging replica: it is shown the log end, where a consumer is shown the high watermark.
DEBUGGER = -2


class OffsetKind(Enum):
    """Which end of a log. Never mix heights: HIGH_WATERMARK may be behind LOG_END, LAST_STABLE behind both."""

    EARLIEST = (-2, 0, CONSUMER)
    HIGH_WATERMARK = (-1, 0, CONSUMER)
    LAST_STABLE = (-1, 1, CONSUMER)
    LOG_END = (-1, 0, DEBUGGER)


class ProducerState(NamedTuple):
    """What the leader remembers of one producer. `current_txn_start` is -1 outside a transaction."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    current_txn_start: int


class Wanted(NamedTuple):
    """A partition as the asker's metadata knows it; the epoch lets a deposed leader refuse instead of answering."""

    named: NamedPartition
    topic_id: bytes
    leader_epoch: int


def _by_topic(wanted: Iterable[Wanted]) -> dict[str, list[Wanted]]:
    topics: dict[str, list[Wanted]] = {}
    for one in wanted:
        topics.setdefault(one.named.topic, []).append(one)
    return topics


def ask_offsets(
    connection: Connection, wanted: Sequence[Wanted], asked: tuple[int, int, int], *, timeout_s: float
) -> dict[NamedPartition, tuple[int, int]]:
    """Code and offset of each partition. `asked`: as the values of OffsetKind, or a time stamp in the first's place."""
    timestamp, isolation, replica = asked
    topics = tuple(
        ListOffsetsTopic(
            name=TopicName(topic),
            partitions=tuple(
                ListOffsetsPartition(
                    partition_index=i32(one.named.partition),
                    current_leader_epoch=i32(one.leader_epoch),
                    timestamp=i64(timestamp),
                )
                for one in ours
            ),
        )
        for topic, ours in _by_topic(wanted).items()
    )
    request = ListOffsetsRequest(replica_id=BrokerId(replica), isolation_level=i8(isolation), topics=topics)
    answer = connection.call(request, ListOffsetsResponse, timeout_s=timeout_s)
    return {
        NamedPartition(str(topic.name), int(one.partition_index)): (int(one.error_code), int(one.offset))
        for topic in answer.topics
        for one in topic.partitions
    }


def ask_producers(
    connection: Connection, wanted: Sequence[Wanted], *, timeout_s: float
) -> dict[NamedPartition, tuple[int, list[ProducerState]]]:
    """Code and producer states of each partition."""
    topics = tuple(
        TopicRequest(name=TopicName(topic), partition_indexes=tuple(i32(one.named.partition) for one in ours))
        for topic, ours in _by_topic(wanted).items()
    )
    request = DescribeProducersRequest(topics=topics)
    answer = connection.call(request, DescribeProducersResponse, timeout_s=timeout_s)
    found: dict[NamedPartition, tuple[int, list[ProducerState]]] = {}
    for topic in answer.topics:
        for one in topic.partitions:
            states = [
                ProducerState(
                    int(state.producer_id),
                    int(state.producer_epoch),
                    int(state.last_sequence),
                    int(state.last_timestamp),
                    int(state.coordinator_epoch),
                    int(state.current_txn_start_offset),
                )
                for state in one.active_producers
            ]
            found[NamedPartition(str(topic.name), int(one.partition_index))] = (int(one.error_code), states)
    return found


def ask_cut(
    connection: Connection, wanted: Sequence[Wanted], before: Mapping[NamedPartition, int], *, timeout_s: float
) -> dict[NamedPartition, tuple[int, int]]:
    """Code and new log start of each partition, whose records below `before` are deleted."""
    topics = tuple(
        DeleteRecordsTopic(
            name=TopicName(topic),
            partitions=tuple(
                DeleteRecordsPartition(partition_index=i32(one.named.partition), offset=i64(before[one.named]))
                for one in ours
            ),
        )
        for topic, ours in _by_topic(wanted).items()
    )
    wait = i32Timedelta.parse(datetime.timedelta(seconds=0.8 * timeout_s))
    request = DeleteRecordsRequest(topics=topics, timeout=wait)
    answer = connection.call(request, DeleteRecordsResponse, timeout_s=timeout_s)
    return {
        NamedPartition(str(topic.name), int(one.partition_index)): (int(one.error_code), int(one.low_watermark))
        for topic in answer.topics
        for one in topic.partitions
    }


def ask_epoch_end(
    connection: Connection, wanted: Sequence[Wanted], epochs: Mapping[NamedPartition, int], *, timeout_s: float
) -> dict[NamedPartition, tuple[int, tuple[int, int]]]:
    """Code and (the largest epoch not above the one asked for, where it ended); (-1, -1) when there is none."""
    topics = tuple(
        OffsetForLeaderTopic(
            topic=TopicName(topic),
            partitions=tuple(
                OffsetForLeaderPartition(
                    partition=i32(one.named.partition),
                    current_leader_epoch=i32(one.leader_epoch),
                    leader_epoch=i32(epochs[one.named]),
                )
                for one in ours
            ),
        )
        for topic, ours in _by_topic(wanted).items()
    )
    request = OffsetForLeaderEpochRequest(replica_id=BrokerId(CONSUMER), topics=topics)
    answer = connection.call(request, OffsetForLeaderEpochResponse, timeout_s=timeout_s)
    return {
        NamedPartition(str(topic.topic), int(one.partition)): (
            int(one.error_code),
            (int(one.leader_epoch), int(one.end_offset)),
        )
        for topic in answer.topics
        for one in topic.partitions
    }


def ask_batch(
    connection: Connection, wanted: Wanted, offset: int, *, timeout_s: float
) -> tuple[int, tuple[bytes, BatchHeader] | None]:
    """Code, and bytes and header of the batch that covers `offset`; None where a consumer may not read it yet."""
    body = encode_fetch(
        session_id=0,
        session_epoch=-1,
        max_wait_ms=0,
        min_bytes=0,
        # Brokers send the first batch whole whatever its size: so one byte means one batch.
        max_bytes=1,
        isolation=0,
        partitions=[FetchPartition(wanted.topic_id, wanted.named.partition, offset, wanted.leader_epoch, -1, 1)],
    )
    connection.spoken(FETCH_KEY)
    answer = connection.ask(FETCH_KEY, FETCH_VERSION, body, parse_fetch, timeout_s=timeout_s)
    if answer.error or not answer.partitions:
        return answer.error or Code.UNKNOWN_TOPIC_ID, None
    fetched = answer.partitions[0]
    if fetched.error:
        return fetched.error, None
    for view, header in split_batches(fetched.records):
        if header.base_offset <= offset <= header.last_offset:
            return Code.NONE, (bytes(view), header)
    return Code.NONE, None


def ask_records(
    connection: Connection, wanted: Wanted, offset: int, *, bytes_max: int, committed: bool, timeout_s: float
) -> tuple[int, FetchedPartition | None]:
    """Code and what the partition holds from the batch on that covers `offset`."""
    place = (wanted.topic_id, wanted.named.partition, offset, wanted.leader_epoch, -1, bytes_max)
    body = encode_fetch(
        session_id=0,
        session_epoch=-1,
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=bytes_max,
        isolation=int(committed),
        partitions=[FetchPartition(*place)],
    )
    connection.spoken(FETCH_KEY)
    answer = connection.ask(FETCH_KEY, FETCH_VERSION, body, parse_fetch, timeout_s=timeout_s)
    if answer.error or not answer.partitions:
        return answer.error or Code.UNKNOWN_TOPIC_ID, None
    return answer.partitions[0].error, answer.partitions[0]


def ask_producer_id(connection: Connection, place: str, *, timeout_s: float) -> tuple[int, int]:
    """A new producer id and its epoch, without a transactional id."""
    request = InitProducerIdRequest(
        transactional_id=None, transaction_timeout=i32Timedelta.parse(datetime.timedelta(minutes=1))
    )
    answer = connection.call(request, InitProducerIdResponse, timeout_s=timeout_s)
    if answer.error_code:
        right = "IdempotentWrite on the cluster, or Write on any topic"
        raise kafka_error(int(answer.error_code), f"{place}: a new producer id", right=right)
    return int(answer.producer_id), int(answer.producer_epoch)
