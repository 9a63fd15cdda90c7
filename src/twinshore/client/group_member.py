"""A group member on one cluster: where it starts, what it commits, and how its librdkafka consumer is closed."""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Any, Self, TypeVar

from confluent_kafka import OFFSET_INVALID, OFFSET_STORED, Consumer, KafkaError, KafkaException, Message, TopicPartition

from twinshore.client.core.delivered import DeliveredOffsets, TopicPartitionTuple, consumer_mode
from twinshore.client.sites import WarningQueue, client_thread
from twinshore.kafka.clock import steady_s

log = logging.getLogger(__name__)
NO_OFFSET = KafkaError._NO_OFFSET


def commit_offsets(consumer: Consumer, offsets: Sequence[TopicPartition] | None, asynchronous: bool) -> None:
    """Commit. Nothing to commit is no error."""
    try:
        asked: dict[str, Any] = {"asynchronous": asynchronous} | ({} if offsets is None else {"offsets": list(offsets)})
        if offsets is None or offsets:
            consumer.commit(**asked)
    except KafkaException as error:
        if error.args[0].code() != NO_OFFSET:
            raise


def committed_offsets(
    consumer: Consumer, partitions: Sequence[TopicPartition], timeout_s: float
) -> dict[TopicPartitionTuple, int]:
    """Returns the group's committed offsets; below 0 for none."""
    found = consumer.committed(list(partitions), timeout_s) if partitions else []
    return {(one.topic, one.partition): one.offset for one in found}


def offset_after(message: Message) -> TopicPartition:
    """Returns the offset to commit after this record. KafkaException for an error event."""
    if message.error():
        raise KafkaException(message.error())
    return TopicPartition(message.topic() or "", message.partition() or 0, (message.offset() or 0) + 1)


def wants_committed_offset(dealt: TopicPartition) -> bool:
    """Whether the application set no offset for this partition. Beginning and end count as set."""
    return dealt.offset in (OFFSET_INVALID, OFFSET_STORED)


REQUEST_TIMEOUT_S = 10.0


class OffsetCommitter(DeliveredOffsets):
    """Applies delivered offsets to a librdkafka consumer. `name` is used in messages."""

    def __init__(self, name: str, warnings: WarningQueue) -> None:
        super().__init__()
        self._name, self._warnings = name, warnings

    def of(self, consumer: Consumer, topics: Collection[str]) -> list[TopicPartition]:
        """Returns the delivered offsets of partitions assigned now."""
        mine = [(one.topic, one.partition) for one in consumer.assignment() if one.topic in topics]
        return [TopicPartition(*key, self.next[key]) for key in mine if key in self.next]

    def begin(
        self, consumer: Consumer, partitions: list[TopicPartition], here: list[TopicPartition], is_incremental: bool
    ) -> None:
        """Assign partitions with start offsets. `here`: those of topics read on this cluster.

        A sought offset wins. Right after a move the delivered offset wins over a lower committed one. Later only the
        committed offset counts, as for any consumer.
        """
        sought = self.take_sought([(one.topic, one.partition) for one in here])
        ours = {(one.topic, one.partition): one for one in here if wants_committed_offset(one)}
        carried = self.take_carried_offsets({one.topic for one in here}, ours)
        for key in sought.keys() & ours.keys():
            ours[key].offset = sought[key]
            self.seek(key, sought[key])
        self._place(consumer, {key: one for key, one in ours.items() if key in carried.keys() - sought}, carried)
        if not is_incremental:
            self.warn_of_lost(self.drop_sought({one.topic for one in here}), "another member of the group reads it now")
            consumer.assign(partitions)
        elif partitions:
            consumer.incremental_assign(partitions)
        if still := [one for one in here if (one.topic, one.partition) in self.paused]:
            consumer.pause(still)

    def _place(
        self,
        consumer: Consumer,
        ours: Mapping[TopicPartitionTuple, TopicPartition],
        carried: Mapping[TopicPartitionTuple, int],
    ) -> None:
        try:
            committed = committed_offsets(consumer, [*ours.values()], REQUEST_TIMEOUT_S)
        except KafkaException as error:
            committed = {}
            log.warning(f"{self._name} cannot read the group's committed offsets: {error.args[0].str()}")
        for key, partition in ours.items():
            partition.offset = self.next[key] = max(committed.get(key, 0), carried[key])

    def commit_deferred(self, consumer: Consumer, topics: Collection[str]) -> None:
        """Commit what the application committed while these topics moved, where that is beyond the committed offset."""
        owed = self.take_deferred_commits(topics)
        try:
            committed = committed_offsets(consumer, [TopicPartition(*key) for key in owed], REQUEST_TIMEOUT_S)
            further = [
                TopicPartition(*key, offset) for key, offset in owed.items() if offset > committed.get(key, offset)
            ]
            commit_offsets(consumer, further, asynchronous=False)
            self.note_committed(owed.items())
        except KafkaException as error:
            log.warning(f"{self._name} cannot commit yet what was committed during the move: {error.args[0].str()}")
            for key, offset in owed.items():
                self.defer_commit(key, offset)

    def warn_of_lost(self, sought: Iterable[TopicPartitionTuple], why: str) -> None:
        for topic, number in sought:
            sentence = f"{self._name} does not read {topic}-{number} from the offset that was sought: {why}"
            self._warnings.now(sentence, topic=topic, partition=number)

    def committable(self, offsets: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Returns what may be committed, now or after the topics have arrived."""
        return [found for one in offsets if (found := self._known(one)) is not None]

    def _known(self, one: TopicPartition) -> TopicPartition | None:
        key = one.topic, one.partition
        offset = self.known(key, one.offset)
        if offset == one.offset:
            return one
        limit = "not at all" if offset is None else f"to {offset} alone"
        self._warnings.now(
            f"{self._name} commits {one.topic}-{one.partition} {limit}, not"
            f" to {one.offset}: that was read at a home that it has left, and other records have these offsets now",
            topic=one.topic,
            partition=one.partition,
        )
        return None if offset is None else TopicPartition(*key, offset)


LEAVE_TIMEOUT_S = 5.0
POLL_INTERVAL_S = 0.05


@dataclass(slots=True, eq=False)
class _Call:
    """An application's callback, from librdkafka's thread to the waiting one."""

    what: Callable[[], object]
    raised: BaseException | None = None
    has_begun: threading.Event = field(default_factory=threading.Event)
    is_done: threading.Event = field(default_factory=threading.Event)

    def make(self) -> None:
        self.has_begun.set()
        try:
            self.what()
        except BaseException as error:
            self.raised = error
        self.is_done.set()


class ConsumerCloser:
    """Commits and closes one librdkafka consumer in a thread: librdkafka waits without limit for an unreachable
    cluster, while the member has work on another.

    Only this object closes the consumer. Callers wait at most `LEAVE_TIMEOUT_S`;
    the thread ends when librdkafka has finished.
    """

    def __init__(self, consumer: Consumer, name: str, cluster: str) -> None:
        self.consumer = consumer
        self.is_closing = False
        self._name, self._cluster = name, cluster
        self._thread: threading.Thread | None = None
        self._jobs = SimpleQueue[tuple[Sequence[TopicPartition] | None, threading.Event]]()  # commits by a callback
        self._calls = SimpleQueue[_Call]()
        self._waits = False
        self._untold: list[TopicPartition] | None = None

    def commit(self, offsets: Sequence[TopicPartition] | None) -> None:
        """Commit. A failure is a warning: a dead home is left all the same."""
        if not self.is_closing or threading.current_thread() is self._thread:
            self._commit(offsets)
            return
        # In a callback during close: the closing thread, which waits in `tell`, must make the commit.
        done = threading.Event()
        self._jobs.put((offsets, done))
        done.wait(LEAVE_TIMEOUT_S)

    def _commit(self, offsets: Sequence[TopicPartition] | None) -> None:
        try:
            commit_offsets(self.consumer, offsets, asynchronous=False)
        except KafkaException as error:
            why = error.args[0].str()
            self._warn(f"does not take its committed offsets: {why}")

    def commit_soon(self, offsets: Sequence[TopicPartition]) -> None:
        self._do(lambda: self.commit(offsets))

    def close(self, offsets: Sequence[TopicPartition] = ()) -> list[TopicPartition]:
        """Commit and close the consumer. Raises exceptions of callbacks. If the cluster does not answer, returns the
        partitions to report as lost; no other callback reports them.
        """
        self._untold, self.is_closing = self.consumer.assignment(), True

        def run() -> None:
            self.commit(offsets)
            self.consumer.close()

        return [] if self._do(run) else self._take() or []

    def tell(self, what: Callable[[], object]) -> None:
        """Run a callback in the thread that polls or waits in `close`; none if that thread no longer waits."""
        if threading.current_thread() is not self._thread:
            what()
            return
        call = _Call(what)
        self._calls.put(call)
        while not call.is_done.is_set():
            try:
                offsets, done = self._jobs.get(timeout=POLL_INTERVAL_S)
            except Empty:
                if not self._waits and not call.has_begun.is_set():
                    return
            else:
                self._commit(offsets)
                done.set()
        if call.raised is not None:
            raise call.raised

    def claim(self, consumer: Consumer) -> bool:
        """Whether the caller should report revoked partitions: this thread or `close` does, whichever is first. False
        for another consumer.
        """
        return consumer is self.consumer and (not self.is_closing or self._take() is not None)

    @property
    def is_over(self) -> bool:
        """Whether all work is done."""
        return self._thread is None or not self._thread.is_alive()

    def _take(self) -> list[TopicPartition] | None:
        """Take the unreported partitions, in one of two threads."""
        untold, self._untold = self._untold, None
        return untold

    def _warn(self, what: str) -> None:
        log.warning(f"{self._name} leaves {self._cluster}, which {what}", extra={"cluster": self._cluster})

    def _do(self, what: Callable[[], None]) -> bool:
        """Run `what` after earlier jobs. Returns whether the job ended in time; its exception is raised then. Later
        ones are lost.
        """
        before, raised = self._thread, list[BaseException]()

        def run() -> None:
            if before is not None:
                before.join()
            try:
                what()
            except BaseException as error:
                raised.append(error)

        thread = self._thread = client_thread("leaves", f"{self._name} {self._cluster}", run)
        self._waits = True
        thread.start()
        left_s = LEAVE_TIMEOUT_S
        while thread.is_alive() and left_s > 0:
            began_s = steady_s()
            thread.join(min(POLL_INTERVAL_S, left_s))
            left_s -= steady_s() - began_s
            with suppress(Empty):  # the time of queued callbacks does not count
                while True:
                    self._calls.get_nowait().make()
        self._waits = False
        if thread.is_alive():
            self._warn("does not answer")
            return False
        if raised:
            raise raised[0]
        return True


class Member:
    """A consumer with its cluster's settings, closed by `closer` only."""

    def __init__(self, settings: Mapping[str, Any], name: str, cluster: str) -> None:
        self.consumer = Consumer({**settings, "enable.auto.offset.store": False})
        self.mode = consumer_mode(settings)
        self.closer = ConsumerCloser(self.consumer, name, cluster)
        self._stilled: set[TopicPartitionTuple] = set()  # paused when their topics were left

    def commit(self, offsets: Sequence[TopicPartition] | None, asynchronous: bool) -> None:
        if self.closer.is_closing:  # called by a callback
            self.closer.commit(offsets)
        else:
            commit_offsets(self.consumer, offsets, asynchronous)

    def store(self, offsets: list[TopicPartition]) -> None:
        """Store delivered offsets for the next commit without offsets, unless another member has the partition now."""
        if self.mode.stores:
            with suppress(KafkaException):
                self.consumer.store_offsets(offsets=offsets)

    def still(self, stays: Collection[str]) -> None:
        """Pause topics that do not stay: a rebalance may take a while."""
        gone = [one for one in self.consumer.assignment() if one.topic not in stays]
        self.consumer.pause(gone)
        self._stilled |= {(one.topic, one.partition) for one in gone}

    def resume_reassigned(self, dealt: Iterable[TopicPartition]) -> None:
        """Resume reassigned partitions, which librdkafka keeps paused."""
        stilled = [one for one in dealt if (one.topic, one.partition) in self._stilled]
        if stilled:
            self._stilled -= {(one.topic, one.partition) for one in stilled}
            self.consumer.resume(stilled)


ConsumerType = TypeVar("ConsumerType")
RebalanceCallback = Callable[[ConsumerType, list[TopicPartition]], Any]
PartitionsCallback = Callable[[list[TopicPartition]], Any]


@dataclass(frozen=True, slots=True)
class RebalanceCallbacks:
    """The application's callbacks. Partitions left in the list by `on_assign` are read, from the offsets given."""

    on_assign: PartitionsCallback | None = None
    on_revoke: PartitionsCallback | None = None
    on_lost: PartitionsCallback | None = None


class ConsumerCalls(ABC):
    """What both Failover consumers share. `assign` and its like are for use inside `on_assign`, `on_revoke` and
    `on_lost`.

    These callbacks get the Failover consumer, never a librdkafka one, so callbacks written for confluent-kafka keep
    working. Elsewhere only the group assigns partitions.
    """

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def poll(self, timeout: float | None = None) -> Message | None:
        """Returns the next record, or None after `timeout`."""
        found = self.consume(1, -1 if timeout is None else timeout)
        return found[0] if found else None

    @abstractmethod
    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        """Returns up to `num_messages` records; waits for the first up to `timeout`."""

    @abstractmethod
    def close(self) -> None:
        """Leaves the group."""

    _dealt: list[TopicPartition] | None = None  # while `on_assign` is called

    def assign(self, partitions: Sequence[TopicPartition]) -> None:
        """Inside `on_assign`: read these partitions, from the offsets given. Optional: offsets set in the list count
        anyway.
        """
        if self._dealt is None:
            raise RuntimeError("only within on_assign: elsewhere the group assigns partitions")
        self._dealt[:] = partitions

    incremental_assign = assign

    def unassign(self) -> None:  # noqa: B027
        """Does nothing: revoked partitions are given up when the callback returns."""

    def incremental_unassign(self, partitions: Sequence[TopicPartition]) -> None:  # noqa: B027
        """As `unassign`."""

    def _callbacks(self, on_assign: Any, on_revoke: Any, on_lost: Any) -> RebalanceCallbacks:
        """Wrap callbacks to get this consumer. Changes of the assignment are in the list passed to `on_assign`."""

        def wrap(callback: RebalanceCallback[Any] | None, *, assigns: bool = False) -> PartitionsCallback | None:
            def call(partitions: list[TopicPartition]) -> None:
                assert callback is not None
                self._dealt = partitions if assigns else None
                try:
                    callback(self, partitions)
                finally:
                    self._dealt = None

            return None if callback is None else call

        return RebalanceCallbacks(wrap(on_assign, assigns=True), wrap(on_revoke), wrap(on_lost))
