"""One cluster: who leads what, where each log ends, who wrote to it. Asks the right broker, with bounded patience."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, partial
from random import Random
from typing import TYPE_CHECKING, TypeVar

from twinshore.fleet import Cluster, KafkaError, NamedPartition
from twinshore.kafka.backoff import delay_s
from twinshore.kafka.connection import Connection
from twinshore.kafka.errors import Code, describe, kafka_error
from twinshore.kafka.metadata import NO_LEADER, ClusterMetadata, PartitionMetadata, TopicMetadata, ask_metadata
from twinshore.kafka.nodes import Nodes
from twinshore.kafka.questions import (
    OffsetKind,
    ProducerState,
    Wanted,
    ask_batch,
    ask_epoch_end,
    ask_offsets,
    ask_producer_id,
    ask_producers,
)
from twinshore.wire.batch import BatchHeader

if TYPE_CHECKING:
    from twinshore.kafka.admin import Admin

__all__ = ["KafkaCluster", "OffsetKind", "ProducerState"]

PATIENCE_S = 30.0
CALL_S = 10.0
# A topic that was just created may be unknown to some broker for a moment; one that does not exist stays unknown.
UNKNOWN_TOPIC_S = 3.0
# Our knowledge of the topic is out of date, and fresh metadata mends it.
_STALE = frozenset({Code.UNKNOWN_TOPIC_ID, Code.INCONSISTENT_TOPIC_ID})

Value = TypeVar("Value")
Ask = Callable[[Connection, Sequence[Wanted]], dict[NamedPartition, tuple[int, Value]]]


class KafkaCluster:
    """Safe for several threads; calls to the same broker take turns, so give a slow errand an object of its own.

    Every question is asked again, after fresh metadata and a growing pause, while the failure is one that may pass;
    after `patience_s` it is a KafkaError. `clock`, `sleep` and `rng` are arguments so that tests need no patience.
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        client_id: str = "twinshore",
        patience_s: float = PATIENCE_S,
        call_s: float = CALL_S,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        rng: Random | None = None,
    ) -> None:
        self.cluster = cluster
        self.name = cluster.name
        self._patience_s = patience_s
        self._call_s = call_s
        self._clock = clock
        self._sleep = sleep
        self._rng = rng or Random()
        self._nodes = Nodes(cluster, client_id, clock, self._rng)
        self._guard = threading.Lock()
        self._seen = ClusterMetadata("", -1, {}, {})
        self._seen_all = False

    def close(self) -> None:
        self._nodes.close()

    @cached_property
    def admin(self) -> Admin:
        """Topics and settings, by confluent-kafka."""
        from twinshore.kafka.admin import Admin  # its import costs, and pumps do without

        return Admin(self.cluster)

    def cluster_id(self) -> str:
        """The cluster's own identity; the same for all its bootstrap addresses."""
        return self._seen.cluster_id or self.metadata([], refresh=True).cluster_id

    def metadata(self, topics: Sequence[str] | None = None, *, refresh: bool = True) -> ClusterMetadata:
        """Of these topics, or of all. With `refresh=False` what was seen before will do, if it covers the question."""
        if not refresh:
            known = self._recall(topics)
            if known is not None:
                return known
        seen = self._patiently("metadata", lambda: self._anybody(partial(ask_metadata, topics=topics)))
        self._learn(seen, everything=topics is None)
        return seen

    def partition_of(self, named: NamedPartition, *, refresh: bool = False) -> PartitionMetadata:
        """The partition's leader, epoch and replicas; KafkaError where it does not exist."""
        stale = refresh

        def attempt() -> PartitionMetadata:
            nonlocal stale
            topic = self.metadata([named.topic], refresh=stale).topics.get(named.topic)
            stale = True
            code = _absence(topic, named.partition)
            if topic is None or code:
                raise kafka_error(code, f"{self.name}: {named}")
            return topic.partitions[named.partition]

        return self._patiently(f"partition {named}", attempt)

    def leader_of(self, named: NamedPartition) -> int:
        """The node that leads the partition; KafkaError (retriable) while none does."""
        stale = False

        def attempt() -> int:
            nonlocal stale
            leader = self.partition_of(named, refresh=stale).leader
            stale = True
            if leader == NO_LEADER:
                raise kafka_error(Code.LEADER_NOT_AVAILABLE, f"{self.name}: {named}")
            return leader

        return self._patiently(f"the leader of {named}", attempt)

    def connection_to(self, node_id: int) -> Connection:
        """The shared connection to this broker."""
        return self._nodes.kept(self._address_of(node_id), timeout_s=self._call_s)

    def dial(self, node_id: int) -> Connection:
        """A new connection to this broker, the caller's own to drive and close."""
        return self._nodes.dial(self._address_of(node_id), timeout_s=self._call_s)

    def list_offsets(self, parts: Iterable[NamedPartition], which: OffsetKind) -> dict[NamedPartition, int]:
        """One end of each log. All or nothing: the first partition that cannot be read is a KafkaError."""
        what = f"offset {which.name.lower().replace('_', ' ')}"
        return self._ask_leaders(parts, what, partial(ask_offsets, kind=which, timeout_s=self._call_s))

    def describe_producers(self, parts: Iterable[NamedPartition]) -> dict[NamedPartition, list[ProducerState]]:
        """Who wrote to these partitions, as their leaders remember; it speaks of the log end."""
        return self._ask_leaders(parts, "producers", partial(ask_producers, timeout_s=self._call_s))

    def end_offset_for_epoch(self, named: NamedPartition, leader_epoch: int) -> tuple[int, int]:
        """(The largest epoch not above `leader_epoch` that wrote here, where it ended); (-1, -1) when none did."""
        ask = partial(ask_epoch_end, leader_epoch=leader_epoch, timeout_s=self._call_s)
        return self._ask_leaders([named], f"end of epoch {leader_epoch}", ask)[named]

    def read_tail_batch(self, named: NamedPartition, offset: int) -> BatchHeader | None:
        """The header of the batch that covers `offset`; None while it is above the high watermark."""

        def ask(
            connection: Connection, wanted: Sequence[Wanted]
        ) -> dict[NamedPartition, tuple[int, BatchHeader | None]]:
            return {one.named: ask_batch(connection, one, offset, timeout_s=self._call_s) for one in wanted}

        return self._ask_leaders([named], f"batch at offset {offset}", ask)[named]

    def init_producer_id(self) -> tuple[int, int]:
        """A new producer id and its epoch."""
        return self._patiently("a new producer id", lambda: self._anybody(partial(ask_producer_id, place=self.name)))

    def _anybody(self, ask: Callable[..., Value]) -> Value:
        """Asks brokers in turn until one answers; a final refusal of one is the refusal of all."""
        last: KafkaError | None = None
        for address in self._nodes.somebody():
            try:
                return ask(self._nodes.kept(address, timeout_s=self._call_s), timeout_s=self._call_s)
            except KafkaError as error:
                if not error.retriable:
                    raise
                self._nodes.note_failure(address)
                last = error
        assert last is not None
        raise last

    def _patiently(self, what: str, attempt: Callable[[], Value]) -> Value:
        started = self._clock()
        failures = 0
        while True:
            try:
                return attempt()
            except KafkaError as error:
                failures += 1
                self._pause(what, error, failures, started)

    def _pause(self, what: str, error: KafkaError, failures: int, started: float) -> None:
        """Waits before the next attempt; raises when another would not help or comes too late."""
        if not (error.retriable or error.code in _STALE):
            raise error
        wait_s = delay_s(failures, self._rng)
        late_s = self._clock() + wait_s - started
        if error.code == Code.UNKNOWN_TOPIC_OR_PARTITION and late_s >= UNKNOWN_TOPIC_S:
            raise error
        if late_s >= self._patience_s:
            raise self._gave_up(what, error) from error
        self._sleep(wait_s)

    def _gave_up(self, what: str, error: KafkaError) -> KafkaError:
        message = (
            f"{self.name}: no answer about {what} within {self._patience_s:g} s; the last failure: {error.message}"
        )
        return KafkaError(message, code=error.code, retriable=True, hint=error.hint)

    def _ask_leaders(self, parts: Iterable[NamedPartition], what: str, ask: Ask[Value]) -> dict[NamedPartition, Value]:
        found: dict[NamedPartition, Value] = {}
        pending = dict.fromkeys(parts)
        started = self._clock()
        failures = 0
        while pending:
            failed = self._ask_once(list(pending), what, ask, found, refresh=failures > 0)
            pending = dict.fromkeys(named for named in pending if named not in found)
            if not pending:
                break
            failures += 1
            self._pause(what, failed[next(iter(pending))], failures, started)
        return found

    def _ask_once(
        self,
        pending: list[NamedPartition],
        what: str,
        ask: Ask[Value],
        found: dict[NamedPartition, Value],
        *,
        refresh: bool,
    ) -> dict[NamedPartition, KafkaError]:
        """Adds what was answered to `found`; returns failures that may pass, raises the others."""
        failed: dict[NamedPartition, KafkaError] = {}
        for leader, wanted in self._route(pending, what, failed, refresh=refresh).items():
            try:
                answers = ask(self.connection_to(leader), wanted)
            except KafkaError as error:
                if not error.retriable:
                    raise
                failed.update(dict.fromkeys((one.named for one in wanted), error))
                continue
            for one in wanted:
                answer = answers.get(one.named)
                if answer is None or answer[0]:
                    code = answer[0] if answer else Code.UNKNOWN_TOPIC_OR_PARTITION
                    failed[one.named] = self._passing(code, what, one.named)
                else:
                    found[one.named] = answer[1]
        return failed

    def _route(
        self, pending: list[NamedPartition], what: str, failed: dict[NamedPartition, KafkaError], *, refresh: bool
    ) -> dict[int, list[Wanted]]:
        seen = self.metadata(sorted({named.topic for named in pending}), refresh=refresh)
        routes: dict[int, list[Wanted]] = {}
        for named in pending:
            topic = seen.topics.get(named.topic)
            code = _absence(topic, named.partition)
            if topic is None or code:
                failed[named] = self._passing(code, what, named)
                continue
            ours = topic.partitions[named.partition]
            if ours.leader == NO_LEADER:
                failed[named] = self._passing(Code.LEADER_NOT_AVAILABLE, what, named)
                continue
            routes.setdefault(ours.leader, []).append(Wanted(named, topic.topic_id, ours.leader_epoch))
        return routes

    def _passing(self, code: int, what: str, named: NamedPartition) -> KafkaError:
        """The failure as an error to keep for later; raises it at once when waiting cannot help."""
        error = kafka_error(code, f"{self.name}: {what} of {named}")
        if not (describe(code).retriable or code in _STALE):
            raise error
        return error

    def _address_of(self, node_id: int) -> tuple[str, int]:
        address = self._nodes.address_of(node_id)
        if address is None:
            self.metadata([], refresh=True)
            address = self._nodes.address_of(node_id)
        if address is None:
            raise KafkaError(f"{self.name}: broker {node_id} is not in the cluster now", retriable=True)
        return address

    def _recall(self, topics: Sequence[str] | None) -> ClusterMetadata | None:
        with self._guard:
            seen, seen_all = self._seen, self._seen_all
        if not seen.cluster_id or topics is None:
            return seen if seen.cluster_id and seen_all else None
        known = {name: seen.topics[name] for name in topics if name in seen.topics}
        if len(known) < len(set(topics)) or any(topic.error for topic in known.values()):
            return None
        return ClusterMetadata(seen.cluster_id, seen.controller, seen.brokers, known)

    def _learn(self, seen: ClusterMetadata, *, everything: bool) -> None:
        with self._guard:
            before = self._seen.cluster_id
            if before and seen.cluster_id != before:
                raise KafkaError(
                    f"{self.name}: its addresses lead to another cluster now: {seen.cluster_id}, it was {before}",
                    hint="check the bootstrap addresses: do they all belong to one cluster?",
                )
            topics = seen.topics if everything else {**self._seen.topics, **seen.topics}
            self._seen = ClusterMetadata(seen.cluster_id, seen.controller, seen.brokers, topics)
            self._seen_all = self._seen_all or everything
        self._nodes.learn(seen.brokers)


def _absence(topic: TopicMetadata | None, partition: int) -> int:
    """The code that says why the partition is not there; 0 when it is."""
    if topic is None:
        return Code.UNKNOWN_TOPIC_OR_PARTITION
    if topic.error:
        return topic.error
    return Code.NONE if 0 <= partition < len(topic.partitions) else Code.UNKNOWN_TOPIC_OR_PARTITION
