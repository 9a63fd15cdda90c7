"""Requests that only a partition's leader can answer."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Generic, NamedTuple, TypeAlias, TypeVar

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

from twinshore.config.errors import KafkaError
from twinshore.config.grouping import grouped
from twinshore.config.model import TopicPartition
from twinshore.kafka.connection import Connection
from twinshore.kafka.metadata import NO_LEADER, ClusterMetadata, TopicMetadata
from twinshore.kafka.pool import RetryPolicy, is_retriable
from twinshore.kafka.protocol.error_codes import Code, kafka_error
from twinshore.kafka.protocol.fetch import (
    FETCH_KEY,
    FETCH_VERSION,
    FetchedPartitionById,
    FetchPartitionById,
    encode_fetch_by_id,
    parse_fetch_by_id,
)
from twinshore.kafka.protocol.produce import PRODUCE_KEY, encode_produce, read_produce_response
from twinshore.kafka.protocol.record_batch import HEADER_BYTES

CONSUMER_REPLICA_ID = -1
# Kafka's debugging replica: it is shown the log end, where a consumer is shown the high watermark.
DEBUG_REPLICA_ID = -2


class OffsetKind(Enum):
    """Which offset of a log. HIGH_WATERMARK may be below LOG_END, LAST_STABLE below both: never mix them."""

    EARLIEST = (-2, 0, CONSUMER_REPLICA_ID)
    HIGH_WATERMARK = (-1, 0, CONSUMER_REPLICA_ID)
    LAST_STABLE = (-1, 1, CONSUMER_REPLICA_ID)
    LOG_END = (-1, 0, DEBUG_REPLICA_ID)


class ProducerState(NamedTuple):
    """The leader's state of one producer. `current_txn_start`: -1 outside a transaction."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    current_txn_start: int


class LeaderPartition(NamedTuple):
    """A partition as known from metadata. With the epoch a deposed leader refuses to answer."""

    partition: TopicPartition
    topic_id: bytes
    leader_epoch: int


Value = TypeVar("Value")
Offsets = dict[TopicPartition, int]
# Kafka's code and the value, by partition; and a request that brings them, of leaders' partitions.
Answers: TypeAlias = dict[TopicPartition, tuple[int, Value]]
AskLeader: TypeAlias = Callable[[Connection, Sequence[LeaderPartition]], Answers[Value]]
ValuesAndErrors: TypeAlias = tuple[dict[TopicPartition, Value], dict[TopicPartition, KafkaError]]


def _by_topic(
    wanted: Iterable[LeaderPartition], build: Callable[[LeaderPartition], Value]
) -> Iterator[tuple[TopicName, tuple[Value, ...]]]:
    """Yields topics, each with what `build` makes of its partitions."""
    topics = grouped((one.partition.topic, build(one)) for one in wanted)
    yield from ((TopicName(topic), tuple(built)) for topic, built in topics.items())


def list_offsets(
    connection: Connection, wanted: Sequence[LeaderPartition], asked: tuple[int, int, int], *, timeout_s: float
) -> Answers[int]:
    """Returns code and offset by partition. `asked`: a value of OffsetKind, or with a timestamp in the first field."""
    timestamp, isolation, replica = asked

    def build(one: LeaderPartition) -> ListOffsetsPartition:
        number, epoch = i32(one.partition.partition), i32(one.leader_epoch)
        return ListOffsetsPartition(partition_index=number, current_leader_epoch=epoch, timestamp=i64(timestamp))

    topics = tuple(ListOffsetsTopic(name=topic, partitions=built) for topic, built in _by_topic(wanted, build))
    request = ListOffsetsRequest(replica_id=BrokerId(replica), isolation_level=i8(isolation), topics=topics)
    answer = connection.call(request, ListOffsetsResponse, timeout_s=timeout_s)
    return {
        TopicPartition(str(topic.name), int(one.partition_index)): (int(one.error_code), int(one.offset))
        for topic in answer.topics
        for one in topic.partitions
    }


def describe_producers(
    connection: Connection, wanted: Sequence[LeaderPartition], *, timeout_s: float
) -> Answers[list[ProducerState]]:
    by_topic = _by_topic(wanted, lambda one: i32(one.partition.partition))
    topics = tuple(TopicRequest(name=topic, partition_indexes=numbers) for topic, numbers in by_topic)
    request = DescribeProducersRequest(topics=topics)
    answer = connection.call(request, DescribeProducersResponse, timeout_s=timeout_s)
    found: Answers[list[ProducerState]] = {}
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
            found[TopicPartition(str(topic.name), int(one.partition_index))] = (int(one.error_code), states)
    return found


def delete_records(
    connection: Connection, wanted: Sequence[LeaderPartition], before: Mapping[TopicPartition, int], *, timeout_s: float
) -> Answers[int]:
    """Delete records below `before`. Returns code and new log start by partition."""

    def build(one: LeaderPartition) -> DeleteRecordsPartition:
        return DeleteRecordsPartition(partition_index=i32(one.partition.partition), offset=i64(before[one.partition]))

    topics = tuple(DeleteRecordsTopic(name=topic, partitions=built) for topic, built in _by_topic(wanted, build))
    wait = i32Timedelta.parse(datetime.timedelta(seconds=0.8 * timeout_s))
    request = DeleteRecordsRequest(topics=topics, timeout=wait)
    answer = connection.call(request, DeleteRecordsResponse, timeout_s=timeout_s)
    return {
        TopicPartition(str(topic.name), int(one.partition_index)): (int(one.error_code), int(one.low_watermark))
        for topic in answer.topics
        for one in topic.partitions
    }


def offset_for_leader_epoch(
    connection: Connection, wanted: Sequence[LeaderPartition], epochs: Mapping[TopicPartition, int], *, timeout_s: float
) -> Answers[tuple[int, int]]:
    """Returns code and (largest epoch not above the given one, its end offset) by partition; (-1, -1) for none."""

    def build(one: LeaderPartition) -> OffsetForLeaderPartition:
        number, current, asked = map(i32, (one.partition.partition, one.leader_epoch, epochs[one.partition]))
        return OffsetForLeaderPartition(partition=number, current_leader_epoch=current, leader_epoch=asked)

    topics = tuple(OffsetForLeaderTopic(topic=topic, partitions=built) for topic, built in _by_topic(wanted, build))
    request = OffsetForLeaderEpochRequest(replica_id=BrokerId(CONSUMER_REPLICA_ID), topics=topics)
    answer = connection.call(request, OffsetForLeaderEpochResponse, timeout_s=timeout_s)
    return {
        TopicPartition(str(topic.topic), int(one.partition)): (
            int(one.error_code),
            (int(one.leader_epoch), int(one.end_offset)),
        )
        for topic in answer.topics
        for one in topic.partitions
    }


def fetch_records(
    connection: Connection, wanted: LeaderPartition, offset: int, *, bytes_max: int, committed: bool, timeout_s: float
) -> tuple[int, FetchedPartitionById | None]:
    """Returns code, and data from the batch with `offset` on."""
    place = FetchPartitionById(wanted.topic_id, wanted.partition.partition, offset, wanted.leader_epoch, -1, bytes_max)
    body = encode_fetch_by_id(max_bytes=bytes_max, isolation=int(committed), partitions=[place])
    connection.handwritten_version(FETCH_KEY)
    answer = connection.ask(FETCH_KEY, FETCH_VERSION, body, parse_fetch_by_id, timeout_s=timeout_s)
    if answer.error or not answer.partitions:
        return answer.error or Code.unknown_topic_id, None
    return answer.partitions[0].error, answer.partitions[0]


def produce_batch(
    connection: Connection,
    cluster: str,
    partition: TopicPartition,
    topic_id: bytes,
    batch: bytes,
    *,
    timeout_s: float,
    timeout_ms: int = 30_000,
) -> int:
    """Appends the batch once, and returns its base offset. `timeout_ms`: how long the leader waits for replicas."""
    version = connection.handwritten_version(PRODUCE_KEY)
    parts = [(partition.partition, batch[:HEADER_BYTES], batch[HEADER_BYTES:])]
    body = b"".join(encode_produce(version, [(partition.topic, topic_id, parts)], timeout_ms=timeout_ms))
    read = partial(read_produce_response, position=0, version=version)
    (answer,) = connection.ask(PRODUCE_KEY, version, body, read, timeout_s=timeout_s).appended
    if answer.error:
        raise kafka_error(answer.error, f"{cluster}: append to {partition}", right=f"Write on topic {partition.topic}")
    return answer.base_offset


def init_producer_id(place: str, connection: Connection, timeout_s: float) -> tuple[int, int]:
    """Returns a new producer id and its epoch, without a transactional id."""
    limit = i32Timedelta.parse(datetime.timedelta(minutes=1))
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout=limit)
    answer = connection.call(request, InitProducerIdResponse, timeout_s=timeout_s)
    if answer.error_code:
        right = "IdempotentWrite on the cluster, or Write on any topic"
        raise kafka_error(int(answer.error_code), f"{place}: a new producer id", right=right)
    return int(answer.producer_id), int(answer.producer_epoch)


ATTEMPTS_MAX = 2


@dataclass(frozen=True, slots=True)
class LeaderQuery(Generic[Value]):
    """`what`: the request's name in errors. `right`: the right needed on the topic. `ask` returns code and value by
    partition.
    """

    what: str
    right: str
    ask: AskLeader[Value]


@dataclass(frozen=True, slots=True)
class LeaderQuerier:
    """Sends a request to the leaders of many partitions, again where one moved or does not answer.

    `metadata` looks up topics, fresh if its second argument is true. `meet` returns a connection; `part` is called when
    that failed.
    """

    place: str
    retry: RetryPolicy
    metadata: Callable[[list[str], bool], ClusterMetadata]
    meet: Callable[[int], Connection]
    part: Callable[[int], None]

    def ask(self, partitions: Iterable[TopicPartition], query: LeaderQuery[Value]) -> dict[TopicPartition, Value]:
        """Returns all values. The first final error of a partition raises KafkaError."""
        found: dict[TopicPartition, Value] = {}
        pending = list(dict.fromkeys(partitions))
        started = self.retry.clock()
        failures = 0
        with self.retry.errand():
            while pending:
                try:
                    failed = self._ask_once(pending, query, found, refresh=failures > 0)
                except KafkaError as error:
                    failed = dict.fromkeys(pending, error)
                for refusal in failed.values():
                    if not is_retriable(refusal):
                        raise refusal
                pending = [partition for partition in pending if partition not in found]
                if pending:
                    failures += 1
                    self.retry.pause(query.what, failed[pending[0]], failures, started)
        return found

    def each(self, partitions: Iterable[TopicPartition], query: LeaderQuery[Value]) -> ValuesAndErrors[Value]:
        """Returns available values, and errors. A failed partition is asked once more with fresh metadata. KafkaError
        without any metadata.
        """
        wanted = list(dict.fromkeys(partitions))
        return self.retry.retry(query.what, lambda: self._each(wanted, query))

    def _each(self, pending: list[TopicPartition], query: LeaderQuery[Value]) -> ValuesAndErrors[Value]:
        found: dict[TopicPartition, Value] = {}
        failed: dict[TopicPartition, KafkaError] = {}
        for times in range(ATTEMPTS_MAX):
            if pending:
                failed |= self._ask_once(pending, query, found, refresh=times > 0)
            pending = [one for one in pending if one not in found and is_retriable(failed[one])]
        return found, {partition: error for partition, error in failed.items() if partition not in found}

    def _ask_once(
        self,
        pending: list[TopicPartition],
        query: LeaderQuery[Value],
        found: dict[TopicPartition, Value],
        *,
        refresh: bool,
    ) -> dict[TopicPartition, KafkaError]:
        """Add values to `found`. Returns the errors."""
        routes, failed = self._route(pending, query, refresh=refresh)
        for leader, wanted in routes.items():
            try:
                answers = query.ask(self.meet(leader), wanted)
            except KafkaError as error:
                if is_retriable(error):
                    self.part(leader)
                failed.update(dict.fromkeys((one.partition for one in wanted), error))
                continue
            for one in wanted:
                answer = answers.get(one.partition)
                if answer is None or answer[0]:
                    code = answer[0] if answer else Code.unknown_topic_or_partition
                    failed[one.partition] = self._failure(code, query, one.partition)
                else:
                    found[one.partition] = answer[1]
        return failed

    def _route(
        self, pending: list[TopicPartition], query: LeaderQuery[Value], *, refresh: bool
    ) -> tuple[dict[int, list[LeaderPartition]], dict[TopicPartition, KafkaError]]:
        cluster_metadata = self.metadata(sorted({partition.topic for partition in pending}), refresh)
        routes: dict[int, list[LeaderPartition]] = {}
        failed: dict[TopicPartition, KafkaError] = {}
        for partition in pending:
            topic = cluster_metadata.topics.get(partition.topic)
            code = partition_error_code(topic, partition.partition)
            if topic is None or code:
                failed[partition] = self._failure(code, query, partition)
                continue
            ours = topic.partitions[partition.partition]
            if ours.leader == NO_LEADER:
                failed[partition] = self._failure(Code.leader_not_available, query, partition)
                continue
            routes.setdefault(ours.leader, []).append(LeaderPartition(partition, topic.topic_id, ours.leader_epoch))
        return routes, failed

    def _failure(self, code: int, query: LeaderQuery[Value], partition: TopicPartition) -> KafkaError:
        right = f"{query.right} on topic {partition.topic}"
        return kafka_error(code, f"{self.place}: {query.what} of {partition}", right=right)


def partition_error_code(topic: TopicMetadata | None, partition: int) -> int:
    """Returns why the partition does not exist; 0 where it does."""
    if topic is None:
        return Code.unknown_topic_or_partition
    if topic.error:
        return topic.error
    return Code.none if 0 <= partition < len(topic.partitions) else Code.unknown_topic_or_partition
