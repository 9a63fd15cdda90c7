"""Calls that wait for their topic's home: in memory here, and on the disk in `kept_on_disk`.

They are given out in the order in which they were made. What a client of librdkafka threw away unsent or unanswered
comes back with the number it had, and so goes before whatever was called later.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from operator import index
from typing import Any, NamedTuple, Protocol

from confluent_kafka import KafkaError, Message

from twinshore.client.spool.frames import TOPIC_BYTES_MAX, Headers, given_headers
from twinshore.fleet.sentences import counted

Delivered = Callable[[KafkaError | None, Message | None], None]
PURGED = (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT, KafkaError._FATAL)
# What librdkafka has against one record. Whatever else it says, the record may be sent later or by another client.
OF_ONE_RECORD = (
    *(KafkaError.MSG_SIZE_TOO_LARGE, KafkaError._UNKNOWN_PARTITION, KafkaError.TOPIC_EXCEPTION),
    KafkaError._INVALID_ARG,
)
# A switch keeps all writers from the old home by rules: what was on its way then is not refused for good.
SHUT_OUT = (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED)


class Kept(NamedTuple):
    """A call. `number`: the how-manieth it was. `is_spooled`: it is on the disk too."""

    number: int
    topic: str
    value: bytes | None
    key: bytes | None
    partition: int
    told: Delivered | None
    timestamp: int
    headers: Headers
    is_spooled: bool = False


class Given(NamedTuple):
    """Of a call, what is the same wherever it goes."""

    value: bytes | None
    key: bytes | None
    partition: int
    timestamp: int
    headers: Headers


def given(topic: str, value: Any, key: Any, partition: int, timestamp: int, headers: Any) -> Given:
    """As a client of librdkafka takes it, and a spool. TypeError or ValueError where either would refuse it: a call
    that has returned cannot be refused any more."""
    if not isinstance(topic, str):
        raise TypeError(f"a topic is named by a str, not {type(topic).__name__}")
    if "\0" in topic or len(topic.encode()) > TOPIC_BYTES_MAX:
        raise ValueError(f"a topic's name has no null character, and {TOPIC_BYTES_MAX:,} bytes at most")
    partition, timestamp = index(partition), index(timestamp)
    if not -(1 << 31) <= partition < 1 << 31:
        raise ValueError(f"{partition} is no partition")
    if not -(1 << 63) <= timestamp < 1 << 63:
        raise ValueError(f"{timestamp} is no timestamp")
    return Given(_encoded(value), _encoded(key), partition, timestamp, given_headers(headers))


def _encoded(one: Any) -> bytes | None:
    if one is None or isinstance(one, bytes):
        return one
    if isinstance(one, str):
        return one.encode()
    raise TypeError(f"a value or key is bytes, str or None, not {type(one).__name__}")


class KeptCalls(Protocol):
    """`settle`, `prepare` and `tend` are called in the thread that moves, the rest within the producer's gate.
    `outlives`: what is kept is there after the process."""

    outlives: bool

    def topics(self) -> set[str]:
        """Of which calls wait, or are to wait from now on."""
        ...

    def begin(self, topic: str) -> None:
        """From now on its calls wait."""
        ...

    def keep(self, kept: Kept) -> Callable[[], None] | None:
        """What whoever called must call then, outside of the gate: it returns once the call is safe, and raises
        BufferError where it cannot be. None where there is no room."""
        ...

    def again(self, kept: Kept) -> None:
        """It was sent, and nobody has it."""
        ...

    def settle(self) -> None:
        """What came back is as safe as what was kept."""
        ...

    def prepare(self, topic: str) -> None: ...

    def head(self, topic: str) -> Kept | None:
        """The next one to send; None where none is there now."""
        ...

    def sent(self, topic: str) -> None:
        """The head was."""
        ...

    def answered(self, kept: Kept, error: KafkaError | None) -> None:
        """A broker has it, or will not have it."""
        ...

    def is_empty(self, topic: str) -> bool:
        """All of it was sent: calls may go straight."""
        ...

    def end(self, topic: str) -> None:
        """Its calls wait no more."""
        ...

    def full(self) -> str:
        """Why there is no room."""
        ...

    def tend(self) -> None: ...

    def __len__(self) -> int: ...

    def left(self) -> int | None:
        """How many calls a producer that is closed leaves to the next one; None where there is none to come."""
        ...

    def close(self, *, goodbye: bool) -> None: ...


class KeptInMemory:
    """No more than `calls_max`."""

    outlives = False

    def __init__(self, calls_max: int) -> None:
        self._calls_max = calls_max
        self._calls: dict[str, deque[Kept]] = {}
        self._came_back: dict[str, list[Kept]] = {}
        self._count = 0

    def topics(self) -> set[str]:
        return {*self._calls, *self._came_back}

    def begin(self, topic: str) -> None:
        self._calls.setdefault(topic, deque())

    def keep(self, kept: Kept) -> Callable[[], None] | None:
        if self._count >= self._calls_max:
            return None
        self._calls[kept.topic].append(kept)
        self._count += 1
        return _at_once

    def again(self, kept: Kept) -> None:
        self._came_back.setdefault(kept.topic, []).append(kept)

    def settle(self) -> None:
        pass

    def prepare(self, topic: str) -> None:
        pass

    def head(self, topic: str) -> Kept | None:
        if back := self._came_back.pop(topic, []):
            merged = heapq.merge(sorted(back, key=by_number), self._calls.get(topic, ()), key=by_number)
            self._calls[topic] = deque(merged)
            self._count += len(back)
        calls = self._calls.get(topic)
        return calls[0] if calls else None

    def sent(self, topic: str) -> None:
        self._calls[topic].popleft()
        self._count -= 1

    def answered(self, kept: Kept, error: KafkaError | None) -> None:
        pass

    def is_empty(self, topic: str) -> bool:
        return not self._calls.get(topic) and topic not in self._came_back

    def end(self, topic: str) -> None:
        self._calls.pop(topic, None)

    def full(self) -> str:
        return f"{counted(self._calls_max, 'call')} are kept back"

    def tend(self) -> None:
        pass

    def __len__(self) -> int:
        return self._count + sum(map(len, self._came_back.values()))

    def left(self) -> None:
        return None

    def close(self, *, goodbye: bool) -> None:
        pass


def _at_once() -> None:
    pass


def by_number(kept: Kept) -> int:
    return kept.number
