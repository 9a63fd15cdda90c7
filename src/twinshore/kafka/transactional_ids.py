"""Twinshore's own transactional ids: blocking requests to their coordinators.

All brokers since 3.1 know the versions used. In newer ones a coordinator may raise the epoch with each transaction.
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeVar

from kio.schema.add_partitions_to_txn.v3 import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from kio.schema.add_partitions_to_txn.v3.request import AddPartitionsToTxnTopic
from kio.schema.end_txn.v3 import EndTxnRequest, EndTxnResponse
from kio.schema.init_producer_id.v4 import InitProducerIdRequest, InitProducerIdResponse
from kio.schema.list_transactions.v0 import ListTransactionsRequest, ListTransactionsResponse
from kio.schema.types import ProducerId, TopicName, TransactionalId
from kio.static.primitive import i8, i16, i32, i32Timedelta
from kio.static.protocol import RequestPayload, ResponsePayload

from twinshore.config.errors import KafkaError
from twinshore.config.grouping import grouped
from twinshore.config.model import TopicPartition
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.connection import Connection
from twinshore.kafka.protocol.error_codes import Code, kafka_error
from twinshore.kafka.protocol.transactions import (
    TRANSACTIONS_KEY,
    TransactionState,
    encode_describe_transactions,
    parse_describe_transactions,
)

TRANSACTION_COORDINATOR = i8(1)
CLOSED_STATES = frozenset({"Empty", "CompleteAbort", "CompleteCommit"})
OPEN_STATES = ("Ongoing", "PrepareAbort", "PrepareCommit", "PrepareEpochFence")
_MOVED = frozenset({Code.coordinator_not_available, Code.not_coordinator, Code.coordinator_load_in_progress})
_BUSY_S = 0.002
_MOVED_S = 0.05
_UNKNOWN_ID = 105
_UNDONE = 55  # the code of partitions without an error of their own
Value = TypeVar("Value")
ResponseType = TypeVar("ResponseType", bound=ResponsePayload)


class TransactionalProducer(NamedTuple):
    """The producer that acquired a transactional id last, and alone may write under it."""

    name: str
    producer_id: int
    epoch: int


class TransactionalIds:
    """One cluster's transactional ids; for one thread. `go` is called before each request, and raises where none may be
    sent.
    """

    def __init__(self, cluster: KafkaCluster, *, patience_s: float, go: Callable[[], None]) -> None:
        self._cluster, self._patience_s, self._go = cluster, patience_s, go
        self._coordinators: dict[str, int] = {}

    def acquire(self, name: str, timeout_s: float) -> TransactionalProducer:
        """Acquire the id, and fence its last holder. Returns after the holder's open transaction is aborted, with
        markers in the logs.
        """
        request = InitProducerIdRequest(
            transactional_id=TransactionalId(name),
            transaction_timeout=i32Timedelta.parse(datetime.timedelta(seconds=timeout_s)),
        )
        answer = self._settle(name, request, InitProducerIdResponse, lambda one: int(one.error_code))
        return TransactionalProducer(name, int(answer.producer_id), int(answer.producer_epoch))

    def begin(self, writer: TransactionalProducer, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Open a transaction, once the previous one is complete. Returns an empty dict, or the errors that prevented
        it. Its end appends one marker to each partition.
        """
        topics = grouped((partition.topic, i32(partition.partition)) for partition in partitions)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=TransactionalId(writer.name),
            v3_and_below_producer_id=ProducerId(writer.producer_id),
            v3_and_below_producer_epoch=i16(writer.epoch),
            v3_and_below_topics=tuple(
                AddPartitionsToTxnTopic(name=TopicName(topic), partitions=tuple(numbers))
                for topic, numbers in topics.items()
            ),
        )
        answer = self._settle(writer.name, request, AddPartitionsToTxnResponse, _worst)
        return {partition: code for partition, code in _codes(answer) if code not in (0, _UNDONE)}

    def abort(self, writer: TransactionalProducer) -> None:
        """Abort the transaction. Its markers are in the logs when `complete` returns."""
        request = EndTxnRequest(
            transactional_id=TransactionalId(writer.name),
            producer_id=ProducerId(writer.producer_id),
            producer_epoch=i16(writer.epoch),
            committed=False,
        )
        self._settle(writer.name, request, EndTxnResponse, lambda one: int(one.error_code))

    def complete(self, writer: TransactionalProducer) -> None:
        """Wait until all markers of the last transaction are confirmed: the coordinator repeats none."""
        until_s = time.monotonic() + self._patience_s
        while (now := self._look(writer.name)).state not in CLOSED_STATES:
            self._wait(until_s, _BUSY_S, kafka_error(Code.concurrent_transactions, self._place(writer.name)))
        if (now.producer_id, now.producer_epoch) != (writer.producer_id, writer.epoch):
            raise kafka_error(Code.producer_fenced, self._place(writer.name))

    def open_of(self, prefix: str) -> set[TopicPartition]:
        """Returns partitions in open transactions of ids with this prefix, where markers are due."""
        return {partition for partitions in self.open_by_id(prefix).values() for partition in partitions}

    def open_by_id(self, prefix: str) -> dict[str, frozenset[TopicPartition]]:
        """Like `open_of`, by id."""
        names: set[str] = set()
        for node in self._cluster.metadata([], refresh=True).brokers:
            self._go()
            connection = self._cluster.connection_to(node)
            answer = connection.call(ListTransactionsRequest(state_filters=OPEN_STATES), ListTransactionsResponse)
            if answer.error_code:
                raise kafka_error(int(answer.error_code), f"{self._cluster.name}: transactions of broker {node}")
            names.update(str(one.transactional_id) for one in answer.transaction_states)
        ours = sorted(name for name in names if name.startswith(prefix))
        return {name: frozenset(TopicPartition(*one) for one in self._look(name).partitions) for name in ours}

    def _look(self, name: str) -> TransactionState:
        def ask(connection: Connection) -> TransactionState:
            version = connection.handwritten_version(TRANSACTIONS_KEY)
            body = encode_describe_transactions([name])
            return connection.ask(TRANSACTIONS_KEY, version, body, lambda view: parse_describe_transactions(view, 0)[0])

        return self._persist(name, ask, lambda one: 0 if one.error == _UNKNOWN_ID else one.error)

    def _settle(
        self, name: str, request: RequestPayload, answer: type[ResponseType], code_of: Callable[[ResponseType], int]
    ) -> ResponseType:
        return self._persist(name, lambda connection: connection.call(request, answer), code_of)

    def _persist(self, name: str, ask: Callable[[Connection], Value], code_of: Callable[[Value], int]) -> Value:
        """Ask the coordinator until the response is no temporary error."""
        until_s = time.monotonic() + self._patience_s
        while True:
            node = self._coordinator(name)
            try:
                connection = self._cluster.connection_to(node)
                self._go()
                found = ask(connection)
            except KafkaError:
                self.forget(name)  # if unavailable, another broker may coordinate by now
                raise
            code = code_of(found)
            if not code:
                return found
            error = kafka_error(code, self._place(name), right=f"Describe and Write on transactional id {name}")
            if code == Code.concurrent_transactions:
                self._wait(until_s, _BUSY_S, error)
            elif code in _MOVED:
                self._coordinators.pop(name, None)
                self._wait(until_s, _MOVED_S, error)
            elif isinstance(found, AddPartitionsToTxnResponse) and code in _OF_PARTITIONS:
                return found
            else:
                raise error

    def _coordinator(self, name: str) -> int:
        known = self._coordinators.get(name)
        if known is None:
            known = self._coordinators[name] = self._find(name)
        return known

    def _find(self, name: str) -> int:
        until_s = time.monotonic() + self._patience_s
        while True:
            self._go()
            (one,) = self._cluster.find_coordinators(TRANSACTION_COORDINATOR, [name]).coordinators
            if not one.error_code:
                return int(one.node_id)
            error = kafka_error(int(one.error_code), self._place(name), right=f"Describe on transactional id {name}")
            if not error.retriable:
                raise error
            self._wait(until_s, _MOVED_S, error)

    def forget(self, name: str) -> None:
        """Look up the coordinator again next time."""
        self._coordinators.pop(name, None)

    def _wait(self, until_s: float, pause_s: float, error: KafkaError) -> None:
        if time.monotonic() > until_s:
            raise error
        time.sleep(pause_s)

    def _place(self, name: str) -> str:
        return f"{self._cluster.name}: transactional id {name}"


_OF_PARTITIONS = frozenset({Code.unknown_topic_or_partition, Code.topic_authorization_failed, _UNDONE})


def _codes(answer: AddPartitionsToTxnResponse) -> Iterable[tuple[TopicPartition, int]]:
    for topic in answer.results_by_topic_v3_and_below:
        for one in topic.results_by_partition:
            yield TopicPartition(str(topic.name), int(one.partition_index)), int(one.partition_error_code)


def _worst(answer: AddPartitionsToTxnResponse) -> int:
    codes = {code for _, code in _codes(answer)} - {0}
    return min(codes - {_UNDONE}, default=_UNDONE if codes else 0)
