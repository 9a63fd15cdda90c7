"""One cluster: leaders, log ends, producers. Requests go to the right broker, with retries in a time limit."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cached_property, partial
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar

from kio.schema.find_coordinator.v4 import FindCoordinatorRequest, FindCoordinatorResponse
from kio.static.primitive import i8
from kio.static.protocol import RequestPayload

from twinshore.config.errors import KafkaError
from twinshore.config.frozen import CLIENT_ID
from twinshore.config.model import Cluster, TopicPartition
from twinshore.kafka.connection import Connection, Payload
from twinshore.kafka.leader_queries import (
    Answers,
    AskLeader,
    LeaderPartition,
    LeaderQuerier,
    LeaderQuery,
    OffsetKind,
    Offsets,
    ProducerState,
    ValuesAndErrors,
    delete_records,
    describe_producers,
    fetch_records,
    init_producer_id,
    list_offsets,
    offset_for_leader_epoch,
    partition_error_code,
)
from twinshore.kafka.metadata import NO_LEADER, ClusterMetadata, MetadataCache, PartitionMetadata, read_metadata
from twinshore.kafka.pool import ConnectionPool, NodeConnections, RetryPolicy
from twinshore.kafka.protocol.error_codes import Code, kafka_error
from twinshore.kafka.protocol.fetch import FetchedPartitionById
from twinshore.kafka.protocol.record_batch import BatchHeader, split_batches

if TYPE_CHECKING:
    from twinshore.kafka.admin import Admin

API_TIMEOUT_S = 30.0
REQUEST_TIMEOUT_S = 10.0
_SHARES_MAX = 3

Value = TypeVar("Value")


class KafkaCluster:
    """A cluster. Thread-safe; calls to a broker take turns, so slow work needs an object of its own.

    Retriable failures are retried with fresh metadata and growing pauses; after `patience_s` KafkaError is raised.
    `cluster_id`: the expected cluster; empty for the first one seen. `pool`: shared connections.
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        client_id: str = CLIENT_ID,
        cluster_id: str = "",
        patience_s: float = API_TIMEOUT_S,
        call_s: float = REQUEST_TIMEOUT_S,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        rng: Random | None = None,
        pool: ConnectionPool | None = None,
    ) -> None:
        self.cluster = cluster
        self.name = cluster.name
        self._call_s = call_s
        chance = rng or Random()
        self._nodes = NodeConnections(cluster, client_id, clock, chance, call_s=call_s, pool=pool)
        ways = (clock, sleep, chance, self._nodes.silence.gave_up, ", ".join(cluster.bootstrap))
        self._retry = RetryPolicy(cluster.name, patience_s, *ways)
        self._memory = MetadataCache(cluster.name, cluster_id)
        self._leaders = LeaderQuerier(cluster.name, self._retry, self._look, self.connection_to, self._note_failure)

    def close(self) -> None:
        self._nodes.close()

    @cached_property
    def admin(self) -> Admin:
        from twinshore.kafka.admin import Admin  # the import is slow, and tasks do without

        return Admin(self)

    def errand(self) -> AbstractContextManager[None]:
        """Bound this thread's requests in the block by `patience_s` together."""
        return self._retry.errand()

    def left_s(self) -> float:
        """Returns this thread's time left; `inf` outside `errand`."""
        return self._retry.left_s()

    def cluster_id(self) -> str:
        return self._memory.cluster_id or self.metadata([], refresh=True).cluster_id

    def expect_cluster_id(self, cluster_id: str) -> None:
        """Require this cluster. KafkaError where another was seen before."""
        self._memory.same(cluster_id)

    def metadata(self, topics: Sequence[str] | None = None, *, refresh: bool = True) -> ClusterMetadata:
        """Returns metadata of these topics, or all. `refresh=False` allows cached data."""
        return self._retry.retry("metadata", lambda: self._look(topics, refresh))

    def partition_of(self, partition: TopicPartition, *, refresh: bool = False) -> PartitionMetadata:
        """KafkaError where the partition does not exist."""
        return self._find(partition, refresh=refresh, led=False)

    def leader_of(self, partition: TopicPartition) -> int:
        """Retriable KafkaError without a leader."""
        return self._find(partition, refresh=False, led=True).leader

    def connection_to(self, node_id: int) -> Connection:
        """Returns the shared connection, checked to be of the right cluster."""
        self._nodes.silence.check()
        connection = self._nodes.kept(self._address_of(node_id), timeout_s=self._time_s())
        if not connection.cluster_id:
            self._vouch(connection, {})
        else:
            self._same(connection, connection.cluster_id)
        return connection

    def dial(self, node_id: int) -> Connection:
        """Open a connection, checked to be of the right cluster. The caller closes it."""
        connection = self._nodes.dial(self._address_of(node_id), timeout_s=self._time_s())
        try:
            self._vouch(connection, {})
        except BaseException:
            connection.close()
            raise
        return connection

    def list_offsets(self, partitions: Iterable[TopicPartition], kind: OffsetKind) -> dict[TopicPartition, int]:
        """Returns one offset of each log. The first one without an answer raises KafkaError."""
        return self._leaders.ask(partitions, self._offset_query(_describe_kind(kind), kind.value))

    def offsets_of_each(self, partitions: Iterable[TopicPartition], kind: OffsetKind) -> ValuesAndErrors[int]:
        """Returns one offset of each readable log, and errors of others, which delay none. KafkaError where the cluster
        does not answer.
        """
        return self._leaders.each(partitions, self._offset_query(_describe_kind(kind), kind.value))

    def first_since(self, partition: TopicPartition, timestamp_ms: int) -> int:
        """Returns the offset below which no record has this or a later timestamp; -1 where no record has."""
        # Of several records with one timestamp the index may return a later one; the timestamp before avoids that.
        return self._leaders.ask([partition], self._time_query(timestamp_ms - 1))[partition]

    def first_since_each(self, partitions: Iterable[TopicPartition], timestamp_ms: int) -> ValuesAndErrors[int]:
        """Returns first offsets with this or a later timestamp, -1 for none, and errors of partitions."""
        return self._leaders.each(partitions, self._time_query(timestamp_ms))

    def _time_query(self, timestamp_ms: int) -> LeaderQuery[int]:
        asked = (max(0, timestamp_ms), *OffsetKind.HIGH_WATERMARK.value[1:])
        return self._offset_query("first offset since a time", asked)

    def _offset_query(self, what: str, asked: tuple[int, int, int]) -> LeaderQuery[int]:
        return LeaderQuery(what, "Describe", self._timed(list_offsets, asked=asked))

    def describe_producers(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, list[ProducerState]]:
        """Returns producers as leaders know them at the log end."""
        ask = self._timed(describe_producers)
        return self._leaders.ask(partitions, LeaderQuery("producers", "Read", ask))

    def delete_records(self, before: Mapping[TopicPartition, int], ids: Mapping[str, bytes]) -> Offsets:
        """Delete records below these offsets. Returns new log starts. `ids`: expected topic ids, checked over the same
        connection right before.
        """
        return self._leaders.ask(before, self._cut(before, ids))

    def delete_records_of_each(
        self, before: Mapping[TopicPartition, int], ids: Mapping[str, bytes]
    ) -> ValuesAndErrors[int]:
        """Like `delete_records`, with errors of partitions."""
        return self._leaders.each(before, self._cut(before, ids))

    def _cut(self, before: Mapping[TopicPartition, int], ids: Mapping[str, bytes]) -> LeaderQuery[int]:
        wrong = {partition.topic for partition in before} - ids.keys()
        if wrong:
            raise ValueError(f"no topic id is given for {', '.join(sorted(wrong))}")

        def ask(connection: Connection, wanted: Sequence[LeaderPartition]) -> Answers[int]:
            self._vouch(connection, {one.partition.topic: ids[one.partition.topic] for one in wanted})
            return delete_records(connection, wanted, timeout_s=self._time_s(), before=before)

        return LeaderQuery("deletion of records", "Delete", ask)

    def epoch_ends(self, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, tuple[int, int]]:
        """Returns (largest leader epoch not above the given one, its end offset); (-1, -1) where the leader does not
        know.
        """
        ask = self._timed(offset_for_leader_epoch, epochs=epochs)
        return self._leaders.ask(epochs, LeaderQuery("end of a leader epoch", "Describe", ask))

    def read_tail_batch(self, partition: TopicPartition, offset: int) -> BatchHeader | None:
        """Returns the header of the batch with `offset`; None above the high watermark."""
        found = self.read_batch(partition, offset)
        return found[1] if found else None

    def read_batch(self, partition: TopicPartition, offset: int) -> tuple[bytes, BatchHeader] | None:
        """Returns the batch with `offset`, CRC unchecked; None where gone or above the high watermark."""
        # Brokers send the first batch whole, whatever its size, so one byte means one batch.
        fetched = self.read_from(partition, offset, bytes_max=1, committed=False)
        for view, header in split_batches(fetched.records):
            if header.base_offset <= offset <= header.last_offset:
                return bytes(view), header
        return None

    def read_from(
        self, partition: TopicPartition, offset: int, *, bytes_max: int, committed: bool
    ) -> FetchedPartitionById:
        """Returns batches from the one with `offset` on, as a consumer may read; at least one."""
        read = partial(fetch_records, offset=offset, bytes_max=bytes_max, committed=committed)

        def ask(connection: Connection, wanted: Sequence[LeaderPartition]) -> Answers[FetchedPartitionById | None]:
            return {one.partition: read(connection, one, timeout_s=self._time_s()) for one in wanted}

        found = self._leaders.ask([partition], LeaderQuery(f"records from offset {offset}", "Read", ask))[partition]
        assert found is not None
        return found

    def init_producer_id(self) -> tuple[int, int]:
        """Returns a new producer id and its epoch."""
        return self.anybody("a new producer id", partial(init_producer_id, self.name))

    def find_coordinators(self, kind: i8, keys: Sequence[str]) -> FindCoordinatorResponse:
        """Asks any broker for the coordinators of these groups or transactional ids."""
        request = FindCoordinatorRequest(key_type=kind, coordinator_keys=tuple(keys))
        return self.call("coordinators", request, FindCoordinatorResponse)

    def call(self, what: str, request: RequestPayload, answer: type[Payload], *, node_id: int | None = None) -> Payload:
        """Send the request to any broker, or to this one. Error codes in the response are for the caller."""

        def ask(connection: Connection, timeout_s: float) -> Payload:
            return connection.call(request, answer, timeout_s=timeout_s)

        return self.anybody(what, ask) if node_id is None else self.at(node_id, what, ask)

    def anybody(self, what: str, ask: Callable[[Connection, float], Value]) -> Value:
        """Ask any broker. `ask` gets a connection and a timeout in seconds, perhaps repeatedly."""
        return self._retry.retry(what, lambda: self._anybody(ask))

    def at(self, node_id: int, what: str, ask: Callable[[Connection, float], Value]) -> Value:
        return self._retry.retry(what, lambda: ask(self.connection_to(node_id), self._time_s()))

    def change(
        self, what: str, ask: Callable[[Connection, float], Value], ids: Mapping[str, bytes] | None = None
    ) -> Value:
        """Change the cluster at its controller, over a connection checked right before. `ids`: expected topic ids; a
        topic with another id is not changed.
        """

        def attempt() -> Value:
            controller = self._look([], refresh=True).controller
            connection = self.connection_to(controller)
            self._vouch(connection, ids or {})
            try:
                return ask(connection, self._time_s())
            except KafkaError as error:
                if error.retriable:
                    self._note_failure(controller)
                raise

        return self._retry.retry(what, attempt)

    def _vouch(self, connection: Connection, ids: Mapping[str, bytes]) -> None:
        """Check that the connection leads to the right cluster, and the topics' ids."""
        metadata = self._recognised(list(ids), connection, self._time_s())
        for name, topic_id in ids.items():
            topic = metadata.topics.get(name)
            code = topic.error if topic else Code.unknown_topic_or_partition
            if topic is None or code:
                raise kafka_error(code, f"{self.name}: topic {name}", right=f"Describe on topic {name}")
            if topic.topic_id != topic_id:
                raise KafkaError(
                    f"{self.name}: topic {name} is another one than before: it was {topic_id.hex()}, "
                    f"it is {topic.topic_id.hex()}; nothing of it was changed",
                    hint="the topic was deleted and created again",
                )

    def _recognised(self, topics: Sequence[str] | None, connection: Connection, timeout_s: float) -> ClusterMetadata:
        """Returns the broker's metadata. KafkaError for another cluster."""
        metadata = read_metadata(connection, topics, timeout_s=timeout_s)
        connection.cluster_id = metadata.cluster_id
        self._same(connection, metadata.cluster_id)
        return metadata

    def _same(self, connection: Connection, cluster_id: str) -> None:
        """KafkaError for another cluster."""
        try:
            self._memory.same(cluster_id)
        except KafkaError:
            self._nodes.leads_elsewhere(connection)
            raise

    def _find(self, partition: TopicPartition, *, refresh: bool, led: bool) -> PartitionMetadata:
        stale = refresh

        def attempt() -> PartitionMetadata:
            nonlocal stale
            topic = self._look([partition.topic], stale).topics.get(partition.topic)
            stale = True
            code = partition_error_code(topic, partition.partition)
            if topic is not None and not code:
                found = topic.partitions[partition.partition]
                if not led or found.leader != NO_LEADER:
                    return found
                code = Code.leader_not_available
            raise kafka_error(code, f"{self.name}: {partition}", right=f"Describe on topic {partition.topic}")

        return self._retry.retry(f"partition {partition}", attempt)

    def _look(self, topics: Sequence[str] | None, refresh: bool) -> ClusterMetadata:
        """One attempt at metadata, cached if allowed, else from any broker."""
        known = None if refresh else self._memory.recall(topics)
        if known is not None:
            return known
        metadata = self._anybody(partial(self._recognised, topics))
        self._memory.learn(metadata, everything=topics is None)
        self._nodes.learn(metadata.brokers)
        return metadata

    def _anybody(self, ask: Callable[[Connection, float], Value]) -> Value:
        """Ask brokers in turn. One broker's final error ends the search."""
        with self._nodes.silence.asking():
            return self._first_answer(ask)

    def _first_answer(self, ask: Callable[[Connection, float], Value]) -> Value:
        last: KafkaError | None = None
        addresses = self._nodes.bootstrap_order()
        for number, address in enumerate(addresses):
            if last is not None and self._retry.left_s() <= 0:
                break
            # A broker without an answer must leave time for the next.
            until_s = time.monotonic() + self._time_s(min(_SHARES_MAX, len(addresses) - number))
            try:
                connection = self._nodes.kept(address, timeout_s=until_s - time.monotonic())
                return ask(connection, until_s - time.monotonic())
            except KafkaError as error:
                if not error.retriable:
                    raise
                self._nodes.note_failure(address)
                last = error
        assert last is not None
        raise last

    def _timed(self, ask: Callable[..., Answers[Value]], **more: Any) -> AskLeader[Value]:
        return lambda connection, wanted: ask(connection, wanted, timeout_s=self._time_s(), **more)

    def _time_s(self, shares: int = 1) -> float:
        """Returns one call's timeout, within this thread's time left."""
        left_s = self._retry.left_s()
        if left_s <= 0:
            raise KafkaError(f"{self.name}: no time is left", retriable=True)
        return min(self._call_s, left_s / shares)

    def _note_failure(self, node_id: int) -> None:
        address = self._nodes.address_of(node_id)
        if address is not None:
            self._nodes.note_failure(address)

    def _address_of(self, node_id: int) -> tuple[str, int]:
        address = self._nodes.address_of(node_id)
        if address is None:
            self.metadata([], refresh=True)
            address = self._nodes.address_of(node_id)
        if address is None:
            raise KafkaError(f"{self.name}: broker {node_id} is not in the cluster now", retriable=True)
        return address


def _describe_kind(kind: OffsetKind) -> str:
    return f"offset {kind.name.lower().replace('_', ' ')}"
