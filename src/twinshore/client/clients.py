"""A client of librdkafka for each cluster that a producer writes to. They are polled in the thread that moves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from twinshore.client.kept import Kept
from twinshore.kafka.clock import steady_s

OURS: Mapping[str, Any] = {
    "acks": "all",
    "enable.idempotence": True,
    "message.timeout.ms": 0,  # an answer that nobody can give is no reason to lose a record
    "partitioner": "murmur2_random",  # as Java's clients do it
}
HEARD_S = 1.0
LOOK_S = 1.0

Heard = Callable[[Kept, KafkaError | None, Message], None]


class Client:
    """`heard` is told of each answer. A client is silent once its cluster has answered nothing for `silent_s` though
    something is on its way. `is_dead`: it has met a fatal error, and sends nothing any more."""

    def __init__(self, settings: Mapping[str, Any], heard: Heard, silent_s: float) -> None:
        self._producer = Producer({**OURS, **settings})
        self._heard, self._silent_s = heard, silent_s
        self.is_dead = False
        self._answers = self._answers_then = 0
        self._sent: dict[str, int] = {}
        self._answered_of: dict[str, int] = {}  # by topic, as the other: each is changed by one thread at a time
        self._alive_s = steady_s()

    def __len__(self) -> int:
        """What is on its way."""
        return len(self._producer)

    def __bool__(self) -> bool:
        return True

    def send(self, kept: Kept) -> None:
        """BufferError where it has no room; KafkaException where it does not take the call."""
        before = self._sent.get(kept.topic, 0)
        self._sent[kept.topic] = before + 1  # its answer may be heard before this returns
        try:
            self._producer.produce(
                kept.topic,
                kept.value,
                kept.key,
                kept.partition,
                on_delivery=partial(self._answered, kept),
                timestamp=kept.timestamp,
                headers=list(kept.headers) or None,
            )
        except BaseException as error:
            self._sent[kept.topic] = before
            if isinstance(error, KafkaException):
                self.is_dead = self.is_dead or error.args[0].code() == KafkaError._FATAL
            raise

    def on_its_way(self, topic: str) -> int:
        """Of this topic, what has no answer yet."""
        return self._sent.get(topic, 0) - self._answered_of.get(topic, 0)

    def poll(self) -> None:
        self._producer.poll(0)
        if self._answers != self._answers_then or not len(self._producer):
            self._answers_then, self._alive_s = self._answers, steady_s()

    def is_silent(self) -> bool:
        return steady_s() >= self._alive_s + self._silent_s

    def flush(self, timeout_s: float) -> int:
        return self._producer.flush(timeout_s)

    def give_up(self) -> None:
        """What is on its way is given back, in the order in which it was called."""
        self._producer.purge(in_queue=False, in_flight=True, blocking=True)
        self._hear_all()
        self._producer.purge(in_queue=True, in_flight=True, blocking=True)
        self._hear_all()

    def warm_up(self, topics: list[str]) -> None:
        """The first record must not wait for connections."""
        for topic in topics:
            try:
                self._producer.list_topics(topic, timeout=LOOK_S)
            except Exception:
                break

    def _answered(self, kept: Kept, error: KafkaError | None, message: Message) -> None:
        self._answers += 1
        self.is_dead = self.is_dead or (error is not None and error.code() == KafkaError._FATAL)
        self._answered_of[kept.topic] = self._answered_of.get(kept.topic, 0) + 1
        self._heard(kept, error, message)

    def _hear_all(self) -> None:
        """There may be so many answers that one look does not bring them all."""
        before = self._answers - 1
        while len(self._producer) and self._answers != before:
            before = self._answers
            self._producer.flush(HEARD_S)
