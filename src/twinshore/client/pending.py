"""Calls that wait for their topic's home, in memory or in a spool, and delivery reports.

Calls leave in call order: one that librdkafka purged comes back with its number, before all later calls.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from operator import index
from typing import Any, NamedTuple, TypeAlias, cast

from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_NOT_AVAILABLE, KafkaError, Message

from twinshore.client.core.spool_format import TOPIC_BYTES_MAX, Headers, SpoolRecord, normalize_headers
from twinshore.client.sites import WarningQueue
from twinshore.client.spool import GroupCommit, Spool
from twinshore.config.errors import RefusedError
from twinshore.config.sentences import count_phrase
from twinshore.kafka.clock import wall_ms

DeliveryCallback = Callable[[KafkaError | None, Message | None], None]
PURGE_ERRORS = (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT, KafkaError._FATAL)
# Errors of the record itself. With any other error it may be sent later or by another client.
_NOT_IN_TOPIC = KafkaError._UNKNOWN_PARTITION, KafkaError.TOPIC_EXCEPTION
RECORD_ERRORS = (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError._INVALID_ARG, *_NOT_IN_TOPIC)
# A switch fences writers from the old home with ACLs, so such a refusal is not final.
AUTHORIZATION_ERRORS = (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED)


class PendingSend(NamedTuple):
    """A call. `number`: sequence number in the producer. `is_spooled`: also in the spool."""

    number: int
    topic: str
    value: bytes | None
    key: bytes | None
    partition: int
    told: DeliveryCallback | None
    timestamp: int
    headers: Headers
    is_spooled: bool = False


def check_call(
    topic: str, value: Any, key: Any, partition: int, told: DeliveryCallback | None, timestamp: int, headers: Any
) -> PendingSend:
    """Returns the call, not numbered yet, as librdkafka and a spool accept it. TypeError or ValueError where either
    would refuse: later the call cannot be refused.
    """
    if not isinstance(topic, str):
        raise TypeError(f"a topic is named by a str, not {type(topic).__name__}")
    if "\0" in topic or len(topic.encode()) > TOPIC_BYTES_MAX:
        raise ValueError(f"a topic's name has no null character, and {TOPIC_BYTES_MAX:,} bytes at most")
    partition, timestamp = index(partition), index(timestamp)
    if not -(1 << 31) <= partition < 1 << 31:
        raise ValueError(f"{partition} is no partition")
    if not -(1 << 63) <= timestamp < 1 << 63:
        raise ValueError(f"{timestamp} is no timestamp")
    values = _encoded(value), _encoded(key)
    return PendingSend(-1, topic, *values, partition, told, timestamp, normalize_headers(headers))


def _encoded(one: Any) -> bytes | None:
    if one is None or isinstance(one, bytes):
        return one
    if isinstance(one, str):
        return one.encode()
    raise TypeError(f"a value or key is bytes, str or None, not {type(one).__name__}")


class MemoryQueue:
    """Kept calls, in memory. The router thread calls `settle`, `prepare` and `tend`; other methods need the producer's
    gate. `outlives`: calls survive the process.
    """

    outlives = False

    def __init__(self, calls_max: int) -> None:
        self._calls_max = calls_max
        self._calls: dict[str, deque[PendingSend]] = {}
        self._came_back: dict[str, list[PendingSend]] = {}
        self._count = 0

    def topics(self) -> set[str]:
        """Returns topics whose calls must be kept."""
        return {*self._calls, *self._came_back}

    def begin(self, topic: str) -> None:
        """Keep this topic's calls from now on."""
        self._calls.setdefault(topic, deque())

    def keep(self, kept: PendingSend) -> Callable[[], None] | None:
        """Keep a call. Returns a function to call outside the gate, which returns once the call is safe, or raises
        BufferError. None where the queue is full.
        """
        if self._count >= self._calls_max:
            return None
        self._calls[kept.topic].append(kept)
        self._count += 1
        return lambda: None

    def again(self, kept: PendingSend) -> None:
        """Take back an unacknowledged call."""
        self._came_back.setdefault(kept.topic, []).append(kept)

    def settle(self) -> None:
        """Make calls that came back as safe as kept ones."""

    def prepare(self, topic: str) -> None:
        """Read the topic's next calls from disk."""

    def head(self, topic: str) -> PendingSend | None:
        """Returns the next call to send; None where none is ready."""
        if back := self._came_back.pop(topic, []):
            merged = heapq.merge(sorted(back, key=send_number), self._calls.get(topic, ()), key=send_number)
            self._calls[topic] = deque(merged)
            self._count += len(back)
        calls = self._calls.get(topic)
        return calls[0] if calls else None

    def sent(self, topic: str) -> None:
        """Remove the head, which was sent."""
        self._calls[topic].popleft()
        self._count -= 1

    def answered(self, kept: PendingSend, error: KafkaError | None) -> None:
        """Note a broker's acknowledgement or refusal."""

    def is_empty(self, topic: str) -> bool:
        """Whether all calls were sent, so that direct calls may go."""
        return not self._calls.get(topic) and topic not in self._came_back

    def end(self, topic: str) -> None:
        """Keep this topic's calls no longer."""
        self._calls.pop(topic, None)

    def full(self) -> str:
        """Returns why no call is kept."""
        return f"{count_phrase(self._calls_max, 'call')} are kept back"

    def tend(self) -> None:
        """Write down what is done, and delete it."""

    def __len__(self) -> int:
        return self._count + sum(map(len, self._came_back.values()))

    def left(self) -> int | None:
        """Returns how many calls a closed producer leaves to the next one; None where nothing survives."""
        return None

    def close(self, *, goodbye: bool) -> None:
        """Release the disk. `goodbye`: write down what is there."""


def send_number(kept: PendingSend) -> int:
    return kept.number


class DeliveryReports:
    """Delivery reports until the application polls: its callbacks run in its own threads. One thread adds, any thread
    tells.
    """

    def __init__(self) -> None:
        self._waiting: deque[tuple[DeliveryCallback, KafkaError | None, Message | None]] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, told: DeliveryCallback | None, error: KafkaError | None, message: Message | None) -> None:
        if told is not None:
            self._waiting.append((told, error, message))

    def tell(self) -> int:
        """Call waiting callbacks. Returns how many. A callback's exception is raised here; later reports stay."""
        called = 0
        while True:
            try:
                told, error, message = self._waiting.popleft()
            except IndexError:  # another thread may have taken the last one
                return called
            called += 1
            told(error, message)


class _Refused:
    """A stand-in for librdkafka's Message of a refused record, which old versions cannot construct and new ones
    discourage.
    """

    __slots__ = ("_error", "_kept")

    def __init__(self, kept: PendingSend, error: KafkaError) -> None:
        self._kept, self._error = kept, error

    def __len__(self) -> int:
        return len(self._kept.value or b"")

    def __bool__(self) -> bool:
        return True

    def topic(self) -> str:
        return self._kept.topic

    def partition(self) -> int | None:
        return self._kept.partition if self._kept.partition >= 0 else None

    def offset(self) -> None:
        return None

    def key(self) -> bytes | None:
        return self._kept.key

    def value(self) -> bytes | None:
        return self._kept.value

    def headers(self) -> list[tuple[str, bytes | None]] | None:
        return list(self._kept.headers) or None

    def timestamp(self) -> tuple[int, int]:
        time_ms = self._kept.timestamp
        return (TIMESTAMP_CREATE_TIME, time_ms) if time_ms else (TIMESTAMP_NOT_AVAILABLE, -1)

    def error(self) -> KafkaError:
        return self._error

    def latency(self) -> None:
        return None

    def leader_epoch(self) -> None:
        return None


def refused_message(kept: PendingSend, error: KafkaError) -> Message:
    """Returns the message for `on_delivery` of a rejected kept call."""
    return cast(Message, _Refused(kept, error))


class RefusedSend(NamedTuple):
    """An authorization error. `heard_s`: when the refusal arrived. `is_after_hold`: the topic's hold had run out."""

    cluster: str
    kept: PendingSend
    error: KafkaError
    message: Message
    heard_s: float
    is_after_hold: bool


RESPOOL_BATCH_RECORDS = 1_000


class DiskQueue:
    """As `MemoryQueue`, in a spool, with at most `told_max` delivery callbacks in memory. `follows`: whether the
    producer sends what an earlier one left of a topic.
    """

    outlives = True

    def __init__(self, spool: Spool, told_max: int, follows: Callable[[str], bool], warnings: WarningQueue) -> None:
        self._spool, self._told_max, self._warnings = spool, told_max, warnings
        left = spool.topics()
        self._topics = {topic for topic in left if follows(topic)}
        self._strange = {topic: count for topic, count in left.items() if topic not in self._topics}
        for topic, count in self._strange.items():
            phrase = f"{count_phrase(count, 'record')} of topic {topic} stay"
            warnings(f"{spool.folder}: {phrase}: this producer does not follow the topic", topic=topic)
        self._told: dict[int, DeliveryCallback] = {}
        self._came_back: dict[str, list[PendingSend]] = {}  # not settled yet
        self._in_memory: dict[str, deque[PendingSend]] = {}  # in order: calls that the spool refused
        self._head: dict[str, PendingSend] = {}

    def topics(self) -> set[str]:
        return {*self._topics, *self._came_back, *self._in_memory}

    def begin(self, topic: str) -> None:
        self._topics.add(topic)

    def keep(self, kept: PendingSend) -> Callable[[], None] | None:
        if kept.told is not None and len(self._told) >= self._told_max:
            return None
        batch = self._spool.keep([_record(kept)])
        if batch is None:
            return None
        if kept.told is not None:
            self._told[kept.number] = kept.told
        return lambda: self._commit(kept, batch)

    def _commit(self, kept: PendingSend, batch: GroupCommit) -> None:
        try:
            self._spool.commit(batch)
        except BufferError:
            self._told.pop(kept.number, None)
            raise

    def again(self, kept: PendingSend) -> None:
        if not kept.is_spooled:
            self._came_back.setdefault(kept.topic, []).append(kept)
            return
        if kept.told is not None:
            self._told[kept.number] = kept.told
        self._head.pop(kept.topic, None)
        self._topics.add(kept.topic)
        self._spool.given_back(kept.topic, kept.number)

    def settle(self) -> None:
        """Write calls that came back to the spool, beyond its limit if need be: they were accepted. Calls that the
        spool refuses stay in memory.
        """
        for topic in {*self._came_back, *self._in_memory}:
            self._topics.add(topic)
            self._head.pop(topic, None)
            back = [*self._in_memory.pop(topic, ()), *self._came_back.get(topic, ())]
            self._in_memory[topic] = deque(sorted(back, key=send_number))
            self._came_back.pop(topic, None)
            self._in_memory[topic] = self._write(topic, self._in_memory[topic])
            if not self._in_memory[topic]:
                del self._in_memory[topic]

    def _write(self, topic: str, back: deque[PendingSend]) -> deque[PendingSend]:
        stays: deque[PendingSend] = deque()
        size = RESPOOL_BATCH_RECORDS
        while back:
            part = list(islice(back, size))
            try:
                self._write_part(part)
            except BufferError as error:
                self._warnings(f"unanswered calls for topic {topic} are kept in memory: {error}", topic=topic)
                return stays + back
            except (TypeError, ValueError) as error:
                if size > 1:
                    size = 1  # one of them is at fault: try each alone
                    continue
                self._warnings(f"an unanswered call for topic {topic} is kept in memory: {error}", topic=topic)
                stays += part
            for _ in part:
                back.popleft()
        return stays

    def _write_part(self, part: Sequence[PendingSend]) -> None:
        batch = self._spool.keep([_record(one) for one in part], beyond=True)
        assert batch is not None, "there is always room beyond the bound"
        self._spool.commit(batch)
        for one in part:
            if one.told is not None:
                self._told[one.number] = one.told

    def prepare(self, topic: str) -> None:
        with self._warning():
            self._spool.prepare(topic)

    def head(self, topic: str) -> PendingSend | None:
        if topic in self._came_back:
            return None  # not settled yet
        if (found := self._head.get(topic)) is None:
            back = self._in_memory[topic][0] if topic in self._in_memory else None
            record = None
            with self._warning():
                record = self._spool.head(topic)
            if record is None and back is not None and self._spool.unsent(topic):
                return None  # one on disk may come first
            if record is not None and (back is None or record.number < back.number):
                told = self._told.get(record.number)
                found = PendingSend(*record[:5], told, record.timestamp, record.headers, is_spooled=True)
            else:
                found = back
            if found is not None:
                self._head[topic] = found
        return found

    def sent(self, topic: str) -> None:
        kept = self._head.pop(topic)
        if not kept.is_spooled:
            self._in_memory[topic].popleft()
            if not self._in_memory[topic]:
                del self._in_memory[topic]
            return
        self._told.pop(kept.number, None)
        self._spool.handed_out(topic, kept.number)

    def answered(self, kept: PendingSend, error: KafkaError | None) -> None:
        if not kept.is_spooled:
            return
        if error is None or kept.told is not None:
            self._spool.done(kept.topic, kept.number)
            return
        self._spool.refused(kept.topic, kept.number)
        sentence = f"a record of topic {kept.topic} in {self._spool.folder} is refused, and stays there: {error.str()}"
        self._warnings(sentence, topic=kept.topic)

    def is_empty(self, topic: str) -> bool:
        return not (topic in self._came_back or topic in self._in_memory or self._spool.unsent(topic))

    def end(self, topic: str) -> None:
        self._topics.discard(topic)

    def full(self) -> str:
        if len(self._told) >= self._told_max:
            return f"{count_phrase(self._told_max, 'call')} with a delivery callback are kept back"
        return f"the spool {self._spool.folder} may hold {count_phrase(self._spool.bytes_max, 'byte')}"

    def tend(self) -> None:
        with self._warning():
            self._spool.tend()

    def __len__(self) -> int:
        return self._spool.unsent() - sum(self._strange.values()) + self._only_in_memory()

    def left(self) -> int:
        return sum(self._spool.topics().values()) - sum(self._strange.values())

    def _only_in_memory(self) -> int:
        return sum(map(len, self._came_back.values())) + sum(map(len, self._in_memory.values()))

    def close(self, *, goodbye: bool) -> None:
        try:
            if goodbye:
                self.settle()
        finally:
            with self._warning():
                self._spool.close(mark=goodbye)
        if goodbye and (lost := self._only_in_memory()):
            self._warnings(f"{count_phrase(lost, 'call')} are lost: the spool {self._spool.folder} does not take them")

    @contextmanager
    def _warning(self) -> Iterator[None]:
        """Turn disk errors into warnings, so that other topics do not wait."""
        try:
            yield
        except (OSError, RefusedError) as error:
            self._warnings(f"the spool {self._spool.folder}: {error}")


def _record(kept: PendingSend) -> SpoolRecord:
    now_ms = wall_ms()
    timestamp = kept.timestamp or now_ms
    return SpoolRecord(*kept[:5], timestamp, kept.headers, now_ms)


PendingQueue: TypeAlias = MemoryQueue | DiskQueue
