"""From where a member reads on, and what it commits: what it has handed out, told to consumers of librdkafka's.

A member of the group on one cluster: librdkafka's consumer, what it is set to, and how it is closed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from confluent_kafka import OFFSET_INVALID, OFFSET_STORED, Consumer, KafkaError, KafkaException, Message, TopicPartition

from twinshore.client.core.delivered import DeliveredOffsets, TopicPartitionTuple, consumer_mode
from twinshore.client.sites import WarningQueue, client_thread
from twinshore.kafka.clock import steady_s

NO_OFFSET = KafkaError._NO_OFFSET


def commit_offsets(consumer: Consumer, offsets: Sequence[TopicPartition] | None, asynchronous: bool) -> None:
    """Nothing to commit is no error."""
    try:
        asked: dict[str, Any] = {"asynchronous": asynchronous} | ({} if offsets is None else {"offsets": list(offsets)})
        if offsets is None or offsets:
            consumer.commit(**asked)
    except KafkaException as error:
        if error.args[0].code() != NO_OFFSET:
            raise


def commit_forward(consumer: Consumer, places: Mapping[tuple[str, int], int], ask_s: float) -> None:
    """Those behind which the group does not stand yet."""
    if places:
        there = consumer.committed([TopicPartition(*where) for where in places], ask_s)
        further = [(one, places[one.topic, one.partition]) for one in there]
        commit_offsets(
            consumer, [TopicPartition(one.topic, one.partition, at) for one, at in further if at > one.offset], False
        )


def offset_after(message: Message) -> TopicPartition:
    """The place that a group has once it is done with the record. KafkaException for one that is an error."""
    if message.error():
        raise KafkaException(message.error())
    return TopicPartition(message.topic() or "", message.partition() or 0, (message.offset() or 0) + 1)


def wants_committed_offset(dealt: TopicPartition) -> bool:
    """Where an application that was told of its partitions gave this one no offset; the beginning or the end is one."""
    return dealt.offset in (OFFSET_INVALID, OFFSET_STORED)


REQUEST_TIMEOUT_S = 10.0


class OffsetCommitter(DeliveredOffsets):
    """`name` is what sentences call the member."""

    def __init__(self, name: str, warned: WarningQueue) -> None:
        super().__init__()
        self._name, self._warned = name, warned

    def of(self, consumer: Consumer, topics: Collection[str]) -> list[TopicPartition]:
        """How far this member has handed out what it is to read now."""
        mine = [(one.topic, one.partition) for one in consumer.assignment() if one.topic in topics]
        return [TopicPartition(*where, self.next[where]) for where in mine if where in self.next]

    def begin(
        self, consumer: Consumer, partitions: list[TopicPartition], here: list[TopicPartition], by_bits: bool
    ) -> None:
        """Right behind a move, where the group's place lies before what this member has handed out, behind that: it is
        in the application's hands. At any later time the group's place alone counts, as for every consumer. What the
        application has sought counts before either. `here` are the partitions that are read there, `by_bits` says how
        they are dealt out."""
        sought = self.take_sought([(one.topic, one.partition) for one in here])
        ours = {(one.topic, one.partition): one for one in here if wants_committed_offset(one)}
        carried = self.take_carried_offsets({one.topic for one in here}, ours)
        for where in sought.keys() & ours.keys():
            ours[where].offset = sought[where]
            self.seek(where, sought[where])
        self._place(consumer, {where: one for where, one in ours.items() if where in carried.keys() - sought}, carried)
        if not by_bits:
            self._warn_of(self.drop_sought({one.topic for one in here}), "another member of the group reads it now")
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
        there: dict[TopicPartitionTuple, int] = {}
        try:
            if ours:
                there = {
                    (one.topic, one.partition): one.offset
                    for one in consumer.committed([*ours.values()], REQUEST_TIMEOUT_S)
                }
        except KafkaException as error:
            self._warned.at_once(f"{self._name} is not told the group's places: {error.args[0].str()}")
        for where, one in ours.items():
            one.offset = self.next[where] = max(there.get(where, 0), carried[where])

    def commit_deferred(self, consumer: Consumer, topics: Collection[str]) -> None:
        """Commits what was committed of these topics on their way here."""
        owed = self.take_deferred_commits(topics)
        try:
            commit_forward(consumer, owed, REQUEST_TIMEOUT_S)
            self.note_committed(owed.items())
        except KafkaException as error:
            self._warned.at_once(f"{self._name} cannot commit yet what it was told on the way: {error.args[0].str()}")
            for where, at in owed.items():
                self.defer_commit(where, at)

    def warn_of_lost(self, sought: Iterable[TopicPartitionTuple]) -> None:
        self._warn_of(sought, "at its new home nobody knows what is there, so the group's place counts")

    def _warn_of(self, sought: Iterable[TopicPartitionTuple], why: str) -> None:
        for topic, number in sought:
            self._warned.now(f"{self._name} does not read {topic}-{number} on from where it was told to: {why}")

    def committable(self, offsets: Iterable[TopicPartition]) -> list[TopicPartition]:
        """What of these may be committed, now or once their topics have arrived."""
        return [found for one in offsets if (found := self._known(one)) is not None]

    def _known(self, one: TopicPartition) -> TopicPartition | None:
        where = one.topic, one.partition
        at = self.known(where, one.offset)
        if at == one.offset:
            return one
        self._warned(
            f"{self._name} commits {one.topic}-{one.partition} {'not at all' if at is None else f'to {at} alone'}, not"
            f" to {one.offset}: that was read at a home that it has left, and other records have these offsets now"
        )
        self._warned.tell()
        return None if at is None else TopicPartition(*where, at)


LEAVE_TIMEOUT_S = 5.0
POLL_INTERVAL_S = 0.05


@dataclass(slots=True, eq=False)
class _Call:
    """Of the application's, from librdkafka's thread to the one that waits."""

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
    """What a member of a group does on a cluster that it leaves: in a separate thread, since librdkafka waits without
    limit for a cluster that does not answer, and who has left it for another one has work to do there.

    To one consumer, which is closed by this alone. `warn` may be called from the thread. That ends once librdkafka
    has done what it was told: nobody waits for it for longer than `LEAVE_TIMEOUT_S`, also if its cluster never
    answers."""

    def __init__(self, consumer: Consumer, name: str, cluster: str, warn: Callable[[str], None]) -> None:
        self.consumer = consumer
        self.is_closing = False
        self._leaves, self._whose, self._warn = f"{name} leaves {cluster}, which", f"{name} {cluster}", warn
        self._thread: threading.Thread | None = None
        self._jobs = SimpleQueue[tuple[Sequence[TopicPartition] | None, threading.Event]]()  # commits of a callback
        self._calls = SimpleQueue[_Call]()
        self._waits = False
        self._untold: list[TopicPartition] | None = None

    def commit(self, places: Sequence[TopicPartition] | None) -> None:
        """A home that died takes no place any more, and is left all the same."""
        if not self.is_closing or threading.current_thread() is self._thread:
            self._commit(places)
            return
        # Within a callback of the close: librdkafka takes it from the thread that closes, which waits in `tell`.
        done = threading.Event()
        self._jobs.put((places, done))
        done.wait(LEAVE_TIMEOUT_S)

    def _commit(self, places: Sequence[TopicPartition] | None) -> None:
        try:
            commit_offsets(self.consumer, places, asynchronous=False)
        except KafkaException as error:
            self._warn(f"{self._leaves} does not take its place: {error.args[0].str()}")

    def commit_soon(self, places: Sequence[TopicPartition]) -> None:
        self._do(lambda: self.commit(places))

    def close(self, places: Sequence[TopicPartition] = ()) -> list[TopicPartition]:
        """Commits these places and closes the consumer. Raises what a callback of the application raises. Where the
        cluster keeps silent: partitions of which it is to be told that they are lost, by no other callback."""
        self._untold, self.is_closing = self.consumer.assignment(), True

        def run() -> None:
            self.commit(places)
            self.consumer.close()

        is_done = self._do(run)
        return [] if is_done else self._take() or []

    def tell(self, what: Callable[[], object]) -> None:
        """Makes a call of the application's in the thread that polls, or waits for `close`. Where that waits no longer
        it is not made."""
        if threading.current_thread() is not self._thread:
            what()
            return
        call = _Call(what)
        self._calls.put(call)
        while not call.is_done.is_set():
            try:
                places, done = self._jobs.get(timeout=POLL_INTERVAL_S)
            except Empty:
                if not self._waits and not call.has_begun.is_set():
                    return
            else:
                self._commit(places)
                done.set()
        if call.raised is not None:
            raise call.raised

    def claim(self, consumer: Consumer) -> bool:
        """That partitions are taken away the application hears from whoever claims it first, this thread or `close`.
        False where it was the other one, or where it is another consumer that says so."""
        return consumer is self.consumer and (not self.is_closing or self._take() is not None)

    @property
    def is_over(self) -> bool:
        """Whether nothing is to be done there any more."""
        return self._thread is None or not self._thread.is_alive()

    def _take(self) -> list[TopicPartition] | None:
        """By one of two threads."""
        untold, self._untold = self._untold, None
        return untold

    def _make_calls(self) -> None:
        """What they take is the application's own time."""
        try:
            while True:
                self._calls.get_nowait().make()
        except Empty:
            pass

    def _do(self, what: Callable[[], None]) -> bool:
        """Whether it was done within the time: raises what it raised then. What takes longer goes on, and what is to be
        done next begins behind it; what it raises later nobody hears."""
        before, raised = self._thread, list[BaseException]()

        def run() -> None:
            if before is not None:
                before.join()
            try:
                what()
            except BaseException as error:
                raised.append(error)

        thread = self._thread = client_thread("leaves", self._whose, run)
        self._waits = True
        thread.start()
        left_s = LEAVE_TIMEOUT_S
        while thread.is_alive() and left_s > 0:
            began_s = steady_s()
            thread.join(min(POLL_INTERVAL_S, left_s))
            left_s -= steady_s() - began_s
            self._make_calls()
        self._waits = False
        if thread.is_alive():
            self._warn(f"{self._leaves} does not answer")
            return False
        if raised:
            raise raised[0]
        return True


class Member:
    """Made with the settings of its cluster, and closed by its `farewell` alone."""

    def __init__(self, settings: Mapping[str, Any], name: str, cluster: str, warn: Callable[[str], None]) -> None:
        self.consumer = Consumer({**settings, "enable.auto.offset.store": False})
        self.habits = consumer_mode(settings)
        self.closer = ConsumerCloser(self.consumer, name, cluster, warn)
        self._stilled: set[TopicPartitionTuple] = set()  # paused as their topics were left, while others stay

    def is_assigned_topic(self, topic: str) -> bool:
        """Whether any partition of it is assigned here."""
        return any(one.topic == topic for one in self.consumer.assignment())

    def commit(self, offsets: Sequence[TopicPartition] | None, asynchronous: bool) -> None:
        if self.closer.is_closing:  # so this is called by a callback
            self.closer.commit(offsets)
        else:
            commit_offsets(self.consumer, offsets, asynchronous)

    def store(self, places: list[TopicPartition]) -> None:
        """What was handed out: the next commit without offsets takes the group there, unless another member has the
        partition by now."""
        if self.habits.stores:
            with suppress(KafkaException):
                self.consumer.store_offsets(offsets=places)

    def still(self, stays: Collection[str]) -> None:
        """Of topics that do not stay no more is read, though it may be a while until partitions are dealt anew."""
        gone = [one for one in self.consumer.assignment() if one.topic not in stays]
        self.consumer.pause(gone)
        self._stilled |= {(one.topic, one.partition) for one in gone}

    def resume_reassigned(self, dealt: Iterable[TopicPartition]) -> None:
        """What is dealt again is read again: librdkafka keeps it paused."""
        stilled = [one for one in dealt if (one.topic, one.partition) in self._stilled]
        if stilled:
            self._stilled -= {(one.topic, one.partition) for one in stilled}
            self.consumer.resume(stilled)


ConsumerType = TypeVar("ConsumerType")
RebalanceCallback = Callable[[ConsumerType, list[TopicPartition]], Any]
PartitionsCallback = Callable[[list[TopicPartition]], Any]


class AssignmentCalls:
    """What an application's `on_assign`, `on_revoke` and `on_lost` are given: always the consumer that they were given
    to, never one of librdkafka's, of which there is one for each cluster. So that functions which were written for one
    of those go on as they are, it has their calls.

    Calls of a Consumer that are made within these functions alone. Elsewhere it is the group that deals out."""

    _dealt: list[TopicPartition] | None = None  # while `on_assign` is called

    def assign(self, partitions: Sequence[TopicPartition]) -> None:
        """Within `on_assign`: of what is dealt out these are read, from the offsets that they have. It may be left out:
        what has been given an offset is read from there."""
        if self._dealt is None:
            raise RuntimeError("only within on_assign: elsewhere it is the group that deals partitions out")
        self._dealt[:] = partitions

    incremental_assign = assign

    def unassign(self) -> None:
        """Nothing is to be done: what is taken away is given up once `on_revoke` or `on_lost` has returned."""

    def incremental_unassign(self, partitions: Sequence[TopicPartition]) -> None:
        """As `unassign`."""

    def _telling(self, told: RebalanceCallback[Any] | None, *, deals: bool = False) -> PartitionsCallback | None:
        """This function of the application's, called with this consumer. What it does with partitions that it is dealt
        is in the list that it was given."""
        if told is None:
            return None

        def tell(partitions: list[TopicPartition]) -> None:
            self._dealt = partitions if deals else None
            try:
                told(self, partitions)
            finally:
                self._dealt = None

        return tell
