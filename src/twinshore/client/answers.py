"""Answers to calls: those that wait until somebody polls, and those that a topic's home has refused."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple, cast

from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_NOT_AVAILABLE, KafkaError, Message

from twinshore.client.kept import Delivered, Kept


class Answers:
    """Until somebody polls: an application's own functions run in its own threads. One thread adds, any thread
    tells."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[Delivered, KafkaError | None, Message | None]] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, told: Delivered | None, error: KafkaError | None, message: Message | None) -> None:
        if told is not None:
            self._waiting.append((told, error, message))

    def tell(self) -> int:
        """How many were told. What one of these functions raises is raised here, and the rest wait."""
        called = 0
        while True:
            try:
                told, error, message = self._waiting.popleft()
            except IndexError:  # another thread may have taken the last one
                return called
            called += 1
            told(error, message)


class _Refused:
    """What a Message of librdkafka's says of a record that was not written. That class is not made here: earlier
    versions cannot, and later ones advise against it."""

    __slots__ = ("_error", "_kept")

    def __init__(self, kept: Kept, error: KafkaError) -> None:
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


def refused(kept: Kept, error: KafkaError) -> Message:
    """A call that was kept back and that no client took, as its `on_delivery` is given it."""
    return cast(Message, _Refused(kept, error))


class Refusal(NamedTuple):
    """`heard_s`: when it was; `amid`: behind a hold that ran out."""

    cluster: str
    kept: Kept
    error: KafkaError
    message: Message
    heard_s: float
    amid: bool


class ShutOut:
    """Calls that a topic's home has refused by rules, of one producer, in the thread that moves. A switch says that it
    holds a topic before its rules keep writers out: so such a refusal counts only once that cluster was read behind
    it."""

    def __init__(self) -> None:
        self.waiting: list[Refusal] = []

    def topics(self) -> set[str]:
        """Nothing may overtake what was refused of them."""
        return {one.kept.topic for one in self.waiting}

    def due(self, is_heard: Callable[[Refusal], bool]) -> list[Refusal]:
        """Takes out those that can be judged by now."""
        judged = [(one, is_heard(one)) for one in self.waiting]
        self.waiting = [one for one, is_due in judged if not is_due]
        return [one for one, is_due in judged if is_due]
