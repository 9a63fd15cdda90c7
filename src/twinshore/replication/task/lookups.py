"""The slow calls of a task, in threads: connecting, finding leaders, inspecting twins, empty transactions.

`BlockingCalls` returns results from `take`; a socket wakes the task's loop. A hanging peer delays only its own call.
`EmptyTransactions` writes markers if the link's user may not write them directly. `task_core` decides what to ask;
threads, connections and clock are here.

The user's rights are tested with requests that change nothing: markers for an impossible partition, and deletion below
a log's start.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from queue import SimpleQueue
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar, cast

from twinshore.config.errors import KafkaError, WireError
from twinshore.config.frozen import NOWHERE_TOPIC, SCOUT_CLIENT_ID, TRANSACTIONAL_ID_PREFIX, UNITS_CLIENT_ID
from twinshore.config.grouping import grouped, in_slices
from twinshore.config.model import Cluster, TopicPartition
from twinshore.config.sentences import append_hint
from twinshore.kafka.clock import wall_ms
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.connection import Connection
from twinshore.kafka.leader_queries import OffsetKind, ProducerState
from twinshore.kafka.log_reader import find_last_record, find_missing_runs, read_contents, read_visible_runs
from twinshore.kafka.metadata import ClusterMetadata
from twinshore.kafka.protocol.error_codes import Code
from twinshore.kafka.protocol.record_batch import CONTROL_FLAG, BatchHeader
from twinshore.kafka.protocol.transactions import (
    MARKERS_KEY,
    MARKERS_VERSION,
    TransactionMarker,
    encode_markers,
    parse_markers,
)
from twinshore.kafka.transactional_ids import TransactionalIds, TransactionalProducer
from twinshore.replication.task.core.error_actions import AUTHORIZATION_CODES
from twinshore.replication.task.core.markers import MarkerOutcome, is_marker_producer_id, marker_producer_id
from twinshore.replication.task.core.messages import (
    NO_EPOCH_OFFSET,
    UNKNOWN_EPOCH,
    EpochEnd,
    EpochOffset,
    PartitionConfig,
    TaskConfig,
    WrittenPosition,
    compare_histories,
)
from twinshore.replication.task.core.partition import PartitionLeaders, PartitionReplicator, written_positions
from twinshore.replication.task.core.position import (
    LastBatch,
    TargetState,
    differ_at,
    first_difference,
    last_difference,
)
from twinshore.replication.task.core.resync import (
    AbortTransaction,
    AcquireTransactionalId,
    AskEndOffsets,
    BeginTransaction,
    EmptyTransactionCore,
    MarkerRunProgress,
    PendingMarkers,
    RetryAcquire,
    TransactionQuestion,
)
from twinshore.replication.task.core.shared_read import with_young_offset
from twinshore.replication.task.mapped_lookup import inspect_mapped_target

# Codes of a broker that cuts no log until an administrator changes a right, or the topic's settings.
DELETE_RECORDS_DENIED_CODES = AUTHORIZATION_CODES | {Code.policy_violation}
NONEXISTENT_PARTITION = (NOWHERE_TOPIC, [2**31 - 1])


def may_write_markers(target: KafkaCluster) -> bool:
    """Whether the link's user may write markers. Brokers check the right before the partition, and any broker can
    answer.
    """

    def ask(connection: Connection, timeout_s: float) -> bool:
        connection.handwritten_version(MARKERS_KEY)
        body = encode_markers([(TransactionMarker(marker_producer_id(0), 0, False, 0, [NONEXISTENT_PARTITION]), 1)])
        answered = connection.ask(MARKERS_KEY, MARKERS_VERSION, body, parse_markers, timeout_s=timeout_s)
        return all(marked.error != Code.cluster_authorization_failed for marked in answered)

    return target.anybody("the right to write markers", ask)


def find_uncuttable(
    target: KafkaCluster, starts: Mapping[TopicPartition, int], ids: Mapping[str, bytes]
) -> dict[TopicPartition, KafkaError]:
    """Returns the logs that cannot be cut, and why. Tries a cut at each present start. `ids`: topic ids by name."""
    failed: dict[TopicPartition, KafkaError] = {}
    for topic in sorted({partition.topic for partition in starts}):
        # One by one: a topic that was created again would hide the results of the others.
        partitions = {partition: at for partition, at in starts.items() if partition.topic == topic}
        try:
            failed |= target.delete_records_of_each(partitions, {topic: ids[topic]})[1]
        except KafkaError as error:
            failed |= dict.fromkeys(partitions, error)
    return failed


# Offsets of a twin to read for unreported records that are gone from its source.
UNREPORTED_OFFSETS_MAX = 200_000


def inspect_target(
    source: KafkaCluster,
    target: KafkaCluster,
    producer_id: int,
    twins: Mapping[TopicPartition, TopicPartition],
    stands: Mapping[TopicPartition, EpochOffset] = MappingProxyType({}),
    inherited: Mapping[TopicPartition, int] = MappingProxyType({}),
) -> dict[TopicPartition, TargetState]:
    """Inspects partitions and twins. Raises KafkaError if any cannot be read. `stands`: the replicated history, if
    known. `inherited`: below, a twin's log is the topic's own, from when it was at home there.
    """
    partitions, there = list(twins), list(twins.values())
    start = target.list_offsets(there, OffsetKind.EARLIEST)
    high = target.list_offsets(there, OffsetKind.HIGH_WATERMARK)
    end = target.list_offsets(there, OffsetKind.LOG_END)
    producers = target.describe_producers(there)
    again = target.list_offsets(there, OffsetKind.LOG_END)
    source_start = source.list_offsets(partitions, OffsetKind.EARLIEST)
    source_high = source.list_offsets(partitions, OffsetKind.HIGH_WATERMARK)
    source_end = source.list_offsets(partitions, OffsetKind.LOG_END)
    states, here = {}, {}
    for partition, twin in twins.items():
        pair = _Pair(source, target, partition, twin)
        # A write between two readings only makes them disagree.
        still = end[twin] == again[twin]
        tail = _tail(target, twin, start[twin], high[twin], end[twin]) if still else None
        last = end[twin] - 1
        shared = tail is not None and source_start[partition] <= last < source_end[partition]
        shown = shared and last < source_high[partition]
        low = max(start[twin], source_start[partition])
        other: bool | None = None if shared else False
        source_batch = source.read_batch(partition, last) if shown else None
        here[partition] = EpochOffset(source_batch[1].leader_epoch if source_batch else UNKNOWN_EPOCH, end[twin])
        own = inherited.get(partition, 0)  # Aborted records there were replicated as markers; both are invisible.
        hidden = source_batch is not None and last < own and source_batch[1].attributes & CONTROL_FLAG
        if shown and tail and (tail[1].attributes & CONTROL_FLAG or hidden):
            last, other = pair.compare_below_markers(low, last, own)
        elif shown:
            # Compare both last batches whole: a rewrite of lost records may have changed only some.
            at = last_difference(source_batch, tail, last)
            last, other = (at, True) if at >= 0 else (last, False)
        ours = [seen for seen in producers[twin] if seen.producer_id == producer_id]
        states[partition] = TargetState(
            start[twin],
            high[twin],
            again[twin],
            _described(tail, unit=_by_unit(target, twin, start[twin], tail, producer_id, producers[twin])),
            (ours[0].last_sequence, ours[0].last_timestamp) if ours else None,
            source_start[partition],
            source_end[partition],
            _fence(producers[twin], producer_id),
            other,
            pair.find_first_difference(low, last) if other else -1,
            producer_epoch=ours[0].epoch if ours else -1,
            open_from=_open_from(producers[twin]) if own else -1,
        )
    for partition in [known for known in stands if known in states]:
        told_to = max(inherited.get(partition, 0), stands[partition].end)
        states[partition] = _with_untold(target, twins[partition], states[partition], told_to)
    return _with_histories(source, states, here, stands)


def _with_histories(
    source: KafkaCluster,
    found: Mapping[TopicPartition, TargetState],
    here: Mapping[TopicPartition, EpochOffset],
    stands: Mapping[TopicPartition, EpochOffset],
) -> dict[TopicPartition, TargetState]:
    ends: dict[TopicPartition, dict[int, EpochEnd]] = {partition: {} for partition in found}
    for known in (here, stands):
        wanted = {n: at.epoch for n, at in known.items() if n in found and at.epoch >= 0 and at.epoch not in ends[n]}
        for partition, answer in (source.epoch_ends(wanted) if wanted else {}).items():
            ends[partition][wanted[partition]] = EpochEnd(*answer)
    result = {}
    for partition, state in found.items():
        stand = stands.get(partition, NO_EPOCH_OFFSET)
        epoch, parted = compare_histories(stand, here[partition], ends[partition])
        result[partition] = replace(state, source_epoch=epoch, parted=parted, wrote_epoch=here[partition].epoch)
    return result


def _tail(
    target: KafkaCluster, partition: TopicPartition, start: int, high: int, end: int
) -> tuple[bytes, BatchHeader] | None:
    if end <= start or high != end:
        return None
    batch = target.read_batch(partition, end - 1)
    if batch is None:
        raise KafkaError(f"{partition}: the twin's last batch could not be read", retriable=True)
    return batch


def _fence(producers: Iterable[ProducerState], producer_id: int) -> int:
    marks = marker_producer_id(producer_id)
    return max((producer.coordinator_epoch for producer in producers if producer.producer_id == marks), default=-1)


def _open_from(producers: Iterable[ProducerState]) -> int:
    return min((producer.current_txn_start for producer in producers if producer.current_txn_start >= 0), default=-1)


def _with_untold(target: KafkaCluster, twin: TopicPartition, state: TargetState, told_to: int) -> TargetState:
    """Adds where the twin has no record of offsets that were never reported and are gone from the source. Offsets too
    far back, or damaged, count as without a record.
    """
    end = min(state.high_watermark, state.log_end, state.source_start)
    begin = min(max(told_to, state.log_start, end - UNREPORTED_OFFSETS_MAX), end)
    if told_to >= end:
        return state
    missing = [(begin, end)] if begin < end else []
    with contextlib.suppress(WireError):
        missing = find_missing_runs(read_visible_runs(target, twin, begin), missing, begin, end) if missing else []
    return replace(state, unseen=(*([(told_to, begin)] if told_to < begin else []), *missing))


class _Pair(NamedTuple):
    """A partition and its twin."""

    source: KafkaCluster
    target: KafkaCluster
    partition: TopicPartition
    twin: TopicPartition

    def differs_at(self, offset: int) -> bool:
        batches = self.source.read_batch(self.partition, offset), self.target.read_batch(self.twin, offset)
        return differ_at(*batches, offset)

    def compare_below_markers(self, low: int, last: int, own: int) -> tuple[int, bool]:
        """Compares histories if the twin ends in markers, which prove nothing. Returns the compared offset, and whether
        both differ there. `own`: below, aborted transactions are skipped, as the log is the topic's own.
        """
        try:
            if any(read_contents(self.source, self.partition, last, last + 1, committed=True)):
                return last, True
            at = find_last_record(self.target, self.twin, low, last, committed=own > 0)
            if at >= 0:
                return at, self.differs_at(at)
        except WireError:
            pass  # A fetch finds damage.
        return last, False

    def find_first_difference(self, low: int, last: int) -> int:
        def unlike_at(offset: int) -> bool:
            try:
                return self.differs_at(offset)
            except WireError:
                return False

        return first_difference(unlike_at, low, last)


def _by_unit(
    target: KafkaCluster,
    twin: TopicPartition,
    start: int,
    batch: tuple[bytes, BatchHeader] | None,
    producer_id: int,
    producers: Iterable[ProducerState],
) -> bool:
    """Whether the last batch may be a marker of an empty transaction. Coordinators may forget its producer id, but such
    a producer never writes records.
    """
    if batch is None:
        return False
    tail = batch[1]
    if not tail.attributes & CONTROL_FLAG or is_marker_producer_id(tail.producer_id):
        return False
    if any(producer.producer_id == tail.producer_id and producer.last_sequence >= 0 for producer in producers):
        return False
    before = target.read_tail_batch(twin, tail.base_offset - 1) if tail.base_offset > start else None
    return before is None or bool(before.attributes & CONTROL_FLAG) or before.producer_id == producer_id


def _described(batch: tuple[bytes, BatchHeader] | None, *, unit: bool) -> LastBatch | None:
    if batch is None:
        return None
    header = batch[1]
    control = bool(header.attributes & CONTROL_FLAG)
    return LastBatch(header.base_offset, header.last_offset, header.producer_id, header.base_sequence, unit, control)


TRANSACTIONAL_IDS = 2
TRANSACTION_PARTITIONS_MAX = 200
TRANSACTION_PARTITIONS_MIN = 32  # fewer are not worth a second transaction
TRANSACTION_TIMEOUT_S = 20.0  # the coordinator aborts a transaction that is open for longer
TRANSACTION_PATIENCE_S = 10.0
TRANSACTION_CALL_S = 10.0
RETRY_INTERVAL_S = 0.2
ACQUIRE_TIMEOUT_S = 0.5

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class MarkersFinished:
    """Finished runs: no transaction is open on their partitions any more."""

    marks: list[PendingMarkers]
    answers: list[MarkerOutcome]


class WriteLeaseLost(Exception):
    """This task may write nothing more."""


def transactional_id_prefix(link: str, producer_id: int) -> str:
    """What the transactional ids of a link begin with. Its producer id is nobody else's on that target."""
    return f"{TRANSACTIONAL_ID_PREFIX}{link}.{producer_id}."


class EmptyTransactions:
    """Writes markers by empty transactions, in threads. `holds`: whether the partitions may still be written."""

    def __init__(
        self,
        target: Cluster,
        prefix: str,
        task: int,
        *,
        holds: Callable[[], bool],
        report: Callable[[MarkersFinished], None],
        cluster_id: str = "",
    ) -> None:
        """`prefix`: the link's. A task's next attempt has the same ids, and so ends what this one leaves open."""
        self._prefix, self._holds, self._report = prefix, holds, report
        self._waiting: deque[MarkerRunProgress] = deque()
        self._news = threading.Condition()
        self._closed = False
        self._told = ""
        self._trouble: KafkaError | None = None
        names = [f"{prefix}{task}.{number}" for number in range(TRANSACTIONAL_IDS)]
        self._slots = [TransactionalIdWorker(_client(target, cluster_id), name, self.go) for name in names]
        self._watch = _client(target, cluster_id)
        self._threads = [threading.Thread(target=self._work, args=(slot,), daemon=True) for slot in self._slots]
        for thread in self._threads:
            thread.start()

    def take(self, marks: Iterable[PendingMarkers]) -> None:
        """Writes these; each is reported once no transaction is open on its partition."""
        runs = [MarkerRunProgress(mark, mark.gap.base, mark.gap.end - mark.gap.base) for mark in marks]
        if runs:
            with self._news:
                self._waiting.extend(runs)
                self._news.notify(min(len(runs), TRANSACTIONAL_IDS))

    def settled(self) -> set[TopicPartition]:
        """Call before any inspection: ends what a dead attempt left open. Returns the partitions with a due marker of
        the link's other tasks, not to be inspected yet. Raises KafkaError for trouble since the last call, whose
        outcome only an inspection shows.
        """
        trouble, self._trouble = self._trouble, None
        if trouble is not None:
            raise trouble
        for slot in self._slots:
            try:
                slot.hold()
            except KafkaError as error:
                if error.code not in AUTHORIZATION_CODES:
                    raise
                # Markers will be refused, with a sentence; all else may be replicated.
        return TransactionalIds(self._watch, patience_s=TRANSACTION_PATIENCE_S, go=self.go).open_of(self._prefix)

    def go(self) -> None:
        """Call before each request; raises WriteLeaseLost. The next holder fences earlier requests."""
        if self._closed or not self._holds():
            raise WriteLeaseLost

    def close(self) -> None:
        with self._news:
            self._closed = True
            self._news.notify_all()
        self._watch.close()
        for slot in self._slots:
            slot.close()

    def _work(self, slot: TransactionalIdWorker) -> None:
        runs: list[MarkerRunProgress] = []
        while not self._closed:
            runs += self._next(TRANSACTION_PARTITIONS_MAX - len(runs), wait=not runs)
            if not runs:
                continue
            try:
                over = slot.round(runs)
            except WriteLeaseLost:
                # The lease may be extended late. If not, the next holder of the partitions ends the open transactions.
                time.sleep(RETRY_INTERVAL_S)
                continue
            except Exception as error:
                # In any case the next round ends what this one left open.
                self._tell(f"closed units: {type(error).__name__}: {error}")
                time.sleep(RETRY_INTERVAL_S)
                continue
            self._told = ""
            gone = {id(run) for run, _ in over}
            runs = [run for run in runs if id(run) not in gone]
            if over:
                self._report(MarkersFinished([run.marks for run, _ in over], [answer for _, answer in over]))

    def _tell(self, sentence: str) -> None:
        if sentence != self._told:
            self._told = sentence
            self._trouble = KafkaError(sentence, retriable=True)

    def _next(self, most: int, *, wait: bool) -> list[MarkerRunProgress]:
        with self._news:
            if wait and not self._waiting and not self._closed:
                self._news.wait(1.0)
            share = max(TRANSACTION_PARTITIONS_MIN, -(-len(self._waiting) // TRANSACTIONAL_IDS))
            return [self._waiting.popleft() for _ in range(min(most, share, len(self._waiting)))]


class TransactionalIdWorker:
    def __init__(self, target: KafkaCluster, name: str, go: Callable[[], None]) -> None:
        self._cluster, self._name, self._go = target, name, go
        self._talk = TransactionalIds(self._cluster, patience_s=TRANSACTION_PATIENCE_S, go=go)
        self._turn = threading.Lock()
        self._core = EmptyTransactionCore()
        self._writer = TransactionalProducer(name, -1, -1)

    def hold(self) -> None:
        """Acquires the id, unless held. Raises a retriable KafkaError while a round waits for the coordinator."""
        if self._core.held:
            return
        if not self._turn.acquire(timeout=ACQUIRE_TIMEOUT_S):
            raise KafkaError(f"{self._cluster.name}: {self._name} is being taken, which takes long", retriable=True)
        try:
            self._carried(self._core.hold())
        finally:
            self._turn.release()

    def round(self, runs: list[MarkerRunProgress]) -> list[tuple[MarkerRunProgress, MarkerOutcome]]:
        with self._turn:
            return self._carried(self._core.round(runs))

    def _carried(self, talk: Generator[TransactionQuestion, Any, R]) -> R:
        answer, failed = None, None
        while True:
            try:
                question = talk.throw(failed) if failed else talk.send(answer)
            except StopIteration as over:
                return cast("R", over.value)
            try:
                answer, failed = self._asked(question), None
            except KafkaError as error:
                failed = error

    def _asked(self, question: TransactionQuestion) -> Any:
        match question:
            case AcquireTransactionalId():
                self._writer = self._talk.acquire(self._name, TRANSACTION_TIMEOUT_S)
            case RetryAcquire():
                self._talk.forget(self._name)
                self._go()
                time.sleep(RETRY_INTERVAL_S)
            case BeginTransaction(partitions):
                return self._talk.begin(self._writer, partitions)
            case AbortTransaction():
                self._talk.abort(self._writer)
                self._talk.complete(self._writer)
            case AskEndOffsets(partitions):
                return self._cluster.list_offsets(partitions, OffsetKind.LOG_END)
        return None

    def close(self) -> None:
        self._cluster.close()


def _client(target: Cluster, cluster_id: str) -> KafkaCluster:
    return KafkaCluster(
        target,
        client_id=UNITS_CLIENT_ID,
        cluster_id=cluster_id,
        patience_s=TRANSACTION_PATIENCE_S,
        call_s=TRANSACTION_CALL_S,
    )


THREADS_MAX = 6
PATIENCE_S = 3.0
CALL_TIMEOUT_S = 3.0
INSPECTION_PARTITIONS_MAX = 250


@dataclass(frozen=True, slots=True)
class ConnectionOpened:
    side: str
    key: object
    connection: Connection | None
    error: str = ""


@dataclass(frozen=True, slots=True)
class LeadersFound:
    """`silent`: the side that did not answer, with its `error`; "" if both did."""

    routes: dict[TopicPartition, PartitionLeaders]
    error: str = ""
    silent: str = ""


InspectionResult = TargetState | KafkaError | None


@dataclass(frozen=True, slots=True)
class TwinsInspected:
    """Results of inspections. None: an empty transaction of the link must end first."""

    seen: dict[TopicPartition, InspectionResult]


CallResult = ConnectionOpened | LeadersFound | TwinsInspected | MarkersFinished


class BlockingCalls:
    """Blocking calls of one task. `close` closes their connections."""

    def __init__(self, config: TaskConfig, holds: Callable[[], bool]) -> None:
        """`holds`: whether the partitions may still be written."""
        self._clusters = {"source": (config.source, config.source_id), "target": (config.target, config.target_id)}
        self._producer_id = config.producer_id
        # Up to which age a drop-oldest queue takes records; 0: any.
        self._max_age_ms = int(config.queue.max_age_s * 1000) if config.queue.fresh else 0
        self._twins: dict[TopicPartition, TopicPartition] = {}
        self._ids: dict[str, bytes] = {}
        self._own = threading.local()
        self._opened: list[KafkaCluster] = []
        self._guard = threading.Lock()
        self._reports: SimpleQueue[CallResult] = SimpleQueue()
        self._pool = ThreadPoolExecutor(THREADS_MAX, thread_name_prefix="scout")
        # Inspections may wait long for a broker; connects and leader lookups must not wait for them.
        self._looks = ThreadPoolExecutor(THREADS_MAX, thread_name_prefix="scout's look")
        self.wake_socket, self._bell = socket.socketpair()
        self.wake_socket.setblocking(False)
        self._bell.setblocking(False)
        # Writes markers if they may not be written directly.
        self.units: EmptyTransactions | None = None
        if config.units:
            self.units = EmptyTransactions(
                config.target, config.units, config.task, holds=holds, report=self._tell, cluster_id=config.target_id
            )

    def take(self) -> list[CallResult]:
        """Returns everything reported since the last call."""
        with contextlib.suppress(BlockingIOError):
            while self.wake_socket.recv(4096):
                pass
        results = []
        while not self._reports.empty():
            results.append(self._reports.get())
        return results

    def learn(self, configs: Iterable[PartitionConfig]) -> None:
        """Learns twin names; other calls use the source's."""
        for config in configs:
            self._ids[config.twin_named.topic] = bytes.fromhex(config.target_topic_id)
            if config.twin:
                self._twins[config.named] = config.twin_named

    def _twin(self, partition: TopicPartition) -> TopicPartition:
        return self._twins.get(partition, partition)

    # Each call returns a result in any case, as the task waits for it.

    def dial(self, side: str, node: int, key: object) -> None:
        """Opens a connection for the task to drive."""

        def errand() -> CallResult:
            try:
                return ConnectionOpened(side, key, self._cluster(side).dial(node))
            except Exception as error:
                return ConnectionOpened(side, key, None, str(error))

        self._send(errand)

    def ask_routes(self, replicators: Iterable[PartitionReplicator]) -> None:
        """Looks up leaders on both sides, and whether topics are still the same."""
        wanted = {replicator.named: (replicator.source_key[0], replicator.target_id) for replicator in replicators}

        def errand() -> CallResult:
            metadata = {}
            sides = {"source": list(wanted), "target": [self._twin(partition) for partition in wanted]}
            for side, partitions in sides.items():
                topics = {partition.topic for partition in partitions}
                try:
                    metadata[side] = self._cluster(side).metadata(sorted(topics), refresh=True)
                except Exception as error:
                    return LeadersFound({}, str(error) or type(error).__name__, side)
            return LeadersFound(self._routes(wanted, metadata["source"], metadata["target"]))

        self._send(errand)

    def look(
        self, partitions: Iterable[TopicPartition], replicators: Mapping[TopicPartition, PartitionReplicator]
    ) -> None:
        """Inspects twins and sources, by leader and in groups."""
        nodes = ((replicators[one].leaders.target if one in replicators else -1, one) for one in partitions)
        for group in grouped(nodes).values():
            for some in in_slices(group, INSPECTION_PARTITIONS_MAX):
                self._look_at_led(some, replicators)

    def _look_at_led(
        self, partitions: list[TopicPartition], replicators: Mapping[TopicPartition, PartitionReplicator]
    ) -> None:
        mapped = written_positions(replicators, partitions)
        exact = [partition for partition in partitions if partition not in mapped]
        known = {partition: replicators[partition] for partition in partitions if partition in replicators}
        stands = {partition: replicator.progress_log.stand for partition, replicator in known.items()}
        inherited = {partition: replicator.config.inherited for partition, replicator in known.items()}
        if exact:
            self._send(lambda: TwinsInspected(self._look(exact, stands, inherited)), self._looks)
        for partition, reach in mapped.items():
            drops = replicators[partition].config.may_lack(reach)
            look = partial(self._look_mapped, partition, reach, stands.get(partition, NO_EPOCH_OFFSET), drops=drops)
            self._send(lambda n=partition, look=look: TwinsInspected({n: look()}), self._looks)  # type: ignore[misc]

    def cut(self, before: dict[TopicPartition, int], replicators: Mapping[TopicPartition, PartitionReplicator]) -> None:
        """Deletes the twins' records below these offsets. After a failure the driver does so within a minute."""
        ids = {self._twin(partition).topic: replicators[partition].target_id for partition in before}

        def errand() -> CallResult:
            with contextlib.suppress(KafkaError):
                self._cluster("target").delete_records(
                    {self._twin(partition): at for partition, at in before.items()}, ids
                )
            return TwinsInspected({})

        self._send(errand)

    def close(self) -> None:
        if self.units:
            self.units.close()
        for pool in (self._pool, self._looks):
            pool.shutdown(wait=False, cancel_futures=True)
        with self._guard:
            for cluster in self._opened:
                cluster.close()
        for report in self.take():
            if isinstance(report, ConnectionOpened) and report.connection:
                report.connection.close()
        self.wake_socket.close()
        self._bell.close()

    def _send(self, errand: Callable[[], CallResult], pool: ThreadPoolExecutor | None = None) -> None:
        def run() -> None:
            self._tell(errand())

        (pool or self._pool).submit(run)

    def _tell(self, report: CallResult) -> None:
        self._reports.put(report)
        with contextlib.suppress(BlockingIOError, OSError):
            self._bell.send(b"!")

    def _cluster(self, side: str) -> KafkaCluster:
        """A client of this thread, so that a slow broker blocks no other call."""
        mine: dict[str, KafkaCluster] | None = getattr(self._own, "clusters", None)
        if mine is None:
            mine = self._own.clusters = {}
        if side not in mine:
            cluster, cluster_id = self._clusters[side]
            mine[side] = KafkaCluster(
                cluster, client_id=SCOUT_CLIENT_ID, cluster_id=cluster_id, patience_s=PATIENCE_S, call_s=CALL_TIMEOUT_S
            )
            with self._guard:
                self._opened.append(mine[side])
        return mine[side]

    def _routes(
        self, wanted: dict[TopicPartition, tuple[bytes, bytes]], source: ClusterMetadata, target: ClusterMetadata
    ) -> dict[TopicPartition, PartitionLeaders]:
        routes = {}
        for partition, (source_id, target_id) in wanted.items():
            topic, twin_topic = source.topics.get(partition.topic), target.topics.get(self._twin(partition).topic)
            number = partition.partition
            if topic is None or number >= len(topic.partitions):
                routes[partition] = PartitionLeaders(absent="source")
            elif twin_topic is None or number >= len(twin_topic.partitions):
                routes[partition] = PartitionLeaders(absent="target")
            elif topic.topic_id != source_id or twin_topic.topic_id != target_id:
                recreated = "source" if topic.topic_id != source_id else "target"
                routes[partition] = PartitionLeaders(recreated=recreated)
            else:
                leads, twin = topic.partitions[number], twin_topic.partitions[number]
                leaders = leads.leader, leads.leader_epoch, twin.leader
                routes[partition] = PartitionLeaders(*leaders, target_epoch=twin.leader_epoch)
        return routes

    def _mute(self, twins: Mapping[TopicPartition, TopicPartition]) -> dict[TopicPartition, KafkaError]:
        _, here = self._cluster("source").offsets_of_each(twins, OffsetKind.EARLIEST)
        _, there = self._cluster("target").offsets_of_each(twins.values(), OffsetKind.EARLIEST)
        return here | {partition: there[twin] for partition, twin in twins.items() if twin in there}

    def _uncut(self, states: Mapping[TopicPartition, TargetState]) -> dict[TopicPartition, InspectionResult]:
        due = {partition: state for partition, state in states.items() if state.log_end < state.source_start}
        starts = {self._twin(partition): state.log_start for partition, state in due.items()}
        failed = find_uncuttable(self._cluster("target"), starts, self._ids) if due else {}
        results: dict[TopicPartition, InspectionResult] = {}
        for partition, state in due.items():
            if error := failed.get(self._twin(partition)):
                denied = error.code in DELETE_RECORDS_DENIED_CODES
                results[partition] = replace(state, uncut=append_hint(error.message, error.hint)) if denied else error
        return results

    def _aged(self, states: dict[TopicPartition, TargetState]) -> dict[TopicPartition, TargetState]:
        if not self._max_age_ms or not states:
            return states
        source = self._cluster("source")
        # Offsets above the high watermark are not checked by time: the source does not show them.
        high, _ = source.offsets_of_each(states, OffsetKind.HIGH_WATERMARK)
        young, _ = source.first_since_each(states, wall_ms() - self._max_age_ms)
        for partition in young.keys() & high.keys():
            at = young[partition] if young[partition] >= 0 else high[partition]
            # Dropped records have a history, too: the epoch of the last one shows later whether that still holds.
            due = at > max(states[partition].log_end, states[partition].source_start)
            below = source.read_batch(partition, at - 1) if due else None
            states[partition] = with_young_offset(states[partition], at, below[1] if below else None)
        return states

    def _look_mapped(
        self, partition: TopicPartition, reach: WrittenPosition, stand: EpochOffset, *, drops: bool
    ) -> InspectionResult:
        clusters, twin = (self._cluster("source"), self._cluster("target")), self._twin(partition)
        try:
            state = inspect_mapped_target(*clusters, self._producer_id, partition, twin, reach, stand, drops=drops)
            return self._aged({partition: state})[partition]
        except Exception as error:
            return _told(error)

    def _look(
        self,
        partitions: list[TopicPartition],
        stands: dict[TopicPartition, EpochOffset],
        inherited: dict[TopicPartition, int],
    ) -> dict[TopicPartition, InspectionResult]:
        """Inspects a group. Errors halve the group, so that one bad partition does not hide the others."""
        try:
            twins = {partition: self._twin(partition) for partition in partitions}
            due = self.units.settled() if self.units else set()
            early = [partition for partition in partitions if twins[partition] in due]
            if early:
                rest = [partition for partition in partitions if twins[partition] not in due]
                return dict.fromkeys(early, None) | (self._look(rest, stands, inherited) if rest else {})
            mute = self._mute(twins)
            led = {partition: twin for partition, twin in twins.items() if partition not in mute}
            clusters = self._cluster("source"), self._cluster("target")
            states = inspect_target(*clusters, self._producer_id, led, stands, inherited) if led else {}
            return {**states, **self._uncut(states), **{partition: _told(error) for partition, error in mute.items()}}
        except Exception as error:
            away = isinstance(error, KafkaError) and error.retriable
            if away or len(partitions) == 1:
                return dict.fromkeys(partitions, _told(error))
            half = len(partitions) // 2
            first, second = partitions[:half], partitions[half:]
            return self._look(first, stands, inherited) | self._look(second, stands, inherited)


def _told(error: Exception) -> KafkaError:
    return error if isinstance(error, KafkaError) else KafkaError(f"{error} ({type(error).__name__})", retriable=True)
