"""Answers to calls, until somebody polls: an application's own functions run in its own threads."""

from __future__ import annotations

from collections import deque

from confluent_kafka import KafkaError, Message

from twinshore.client.kept import Delivered


class Answers:
    """One thread adds, any thread tells."""

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
