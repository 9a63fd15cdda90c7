"""A client of librdkafka for each cluster that a producer writes to, and its ways to topics.

Answers are heard in whichever thread comes by, and best in one that calls: each of them needs the interpreter, for
which another thread waits while calls are made.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from twinshore.client.answers import Answers
from twinshore.client.kept import Delivered, Kept
from twinshore.kafka.clock import steady_s

OURS: Mapping[str, Any] = {
    "acks": "all",
    "enable.idempotence": True,
    "partitioner": "murmur2_random",  # as Java's clients do it
}
# Each answer is heard of: else nobody knows what a dead home did not take. What was given up might still arrive.
HELD_TO: Mapping[str, Any] = {
    "delivery.report.only.error": False,
    **dict.fromkeys(("message.timeout.ms", "delivery.timeout.ms"), 0),
    **dict.fromkeys(("retries", "message.send.max.retries"), (1 << 31) - 1),
}
HEARD_S = 1.0
LOOK_S = 1.0
LEFT_ALONE_S = 0.02  # so soon behind another thread the one that moves does not hear of answers as well

Heard = Callable[[Kept, KafkaError | None, Message], None]


class Client:
    """`answers` get those of calls that were acknowledged; `heard` is told in the thread that moves of those that were
    not, or were on the disk. A client is silent once its cluster has answered nothing for `silent_s` though something
    is on its way. `is_dead`: it has met a fatal error, and sends nothing any more."""

    def __init__(self, settings: Mapping[str, Any], answers: Answers, heard: Heard, silent_s: float) -> None:
        self._producer = Producer({**OURS, **settings, **HELD_TO})
        self._heard, self._silent_s = heard, silent_s
        self.answers = answers
        self.is_dead = False
        self.ways: dict[str, Way] = {}
        self.came: deque[tuple[Way, Kept, KafkaError | None, Message]] = deque()  # which the thread that moves looks at
        self._hearing = threading.Lock()
        self._raised: Exception | None = None
        self._answers_then = 0
        self._heard_s = self._alive_s = steady_s()

    def __len__(self) -> int:
        """What is on its way, and troubles that nobody has heard of."""
        return len(self._producer)

    def __bool__(self) -> bool:
        return True

    def way(self, topic: str) -> Way:
        return self.ways.get(topic) or self.ways.setdefault(topic, Way(self, topic, self._producer.produce))

    def on_its_way(self, topic: str) -> int:
        """Of this topic, what has no answer yet."""
        way = self.ways.get(topic)
        return way.sent - way.answered if way is not None else 0

    def on_their_way(self) -> int:
        return sum(way.sent - way.answered for way in self.ways.values())

    def hear(self) -> None:
        """In any thread, unless another one does so now. What a function of the application's own settings raises is
        raised in the thread that moves: it is no answer to whoever calls."""
        if not self._hearing.acquire(blocking=False):
            return
        try:
            self._heard_s = steady_s()
            self._producer.poll(0)
        except Exception as error:
            self._raised = error
        finally:
            self._hearing.release()

    # -- the thread that moves

    def poll(self) -> None:
        if steady_s() >= self._heard_s + LEFT_ALONE_S:
            self.hear()
        self.settle()
        answered = sum(way.answered for way in self.ways.values())
        if answered != self._answers_then or not len(self._producer):
            self._answers_then, self._alive_s = answered, steady_s()
        raised, self._raised = self._raised, None
        if raised is not None:
            raise raised

    def is_silent(self) -> bool:
        return steady_s() >= self._alive_s + self._silent_s

    def flush(self, timeout_s: float) -> int:
        with self._hearing:
            left = self._producer.flush(timeout_s)
        self.settle()
        return left

    def give_up(self) -> None:
        """What is on its way is given back, in the order in which it was called."""
        for is_in_queue in (False, True):
            self._producer.purge(in_queue=is_in_queue, in_flight=True, blocking=True)
            self._hear_all()

    def ends(self) -> int:
        """Nothing goes by it any more: its threads end once nobody names it. How many calls it never heard of."""
        never_heard = self.on_their_way()
        for way in self.ways.values():
            way.free.clear()
        self.ways.clear()
        return never_heard

    def warm_up(self, topics: list[str]) -> None:
        """The first record must not wait for connections."""
        for topic in topics:
            try:
                self._producer.list_topics(topic, timeout=LOOK_S)
            except Exception:
                break

    def settle(self) -> None:
        """Of what came, wherever it was heard."""
        with self._hearing:
            while self.came:
                way, kept, error, message = self.came.popleft()
                self.is_dead = self.is_dead or (error is not None and error.code() == KafkaError._FATAL)
                try:
                    self._heard(kept, error, message)
                finally:
                    way.answered += 1

    def _hear_all(self) -> None:
        """There may be so many answers that one look does not bring them all."""
        before = self.on_their_way() + 1
        while len(self._producer) and self.on_their_way() != before:
            before = self.on_their_way()
            self.flush(HEARD_S)
        self.settle()


class Way:
    """To a topic on a cluster. A call goes by `produce`, librdkafka's own, with one of `free` to hear of its answer; or
    it goes by `send`. `sent`: how many did; `answered`: of them."""

    __slots__ = ("answered", "client", "free", "produce", "sent", "topic")

    def __init__(self, client: Client, topic: str, produce: Callable[..., None]) -> None:
        self.client, self.topic, self.produce = client, topic, produce
        self.free: list[Straight] = []
        self.sent = self.answered = 0

    def send(self, kept: Kept) -> None:
        """BufferError where there is no room; KafkaException where the client does not take the call."""
        told = partial(self._answered, kept)
        self.sent += 1  # its answer may be heard before this returns
        try:
            headers = list(kept.headers) or None
            self.produce(kept.topic, kept.value, kept.key, kept.partition, told, None, kept.timestamp, headers)
        except BaseException as error:
            self.sent -= 1
            if isinstance(error, KafkaException) and error.args[0].code() == KafkaError._FATAL:
                self.client.is_dead = True
            raise

    def _answered(self, kept: Kept, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.client.answers.add(kept.told, None, message)
        if error is not None or kept.is_spooled:
            self.client.came.append((self, kept, error, message))
        else:
            self.answered += 1


class Straight:
    """A call that went straight, until its answer is heard; then it serves another one, since objects that are made and
    forgotten by the hundred thousand cost more than the calls themselves. The call named no partition and no
    time, which librdkafka gives back of no record that has failed, and had no headers."""

    __slots__ = ("number", "told", "way")

    def __init__(self, way: Way) -> None:
        self.way = way
        self.number = -1
        self.told: Delivered | None = None

    def __call__(self, error: KafkaError | None, message: Message) -> None:
        way = self.way
        if error is not None:
            value, key = message.value(), message.key()
            assert not isinstance(value, str) and not isinstance(key, str)
            kept = Kept(self.number, way.topic, value, key, -1, self.told, 0, ())
            way.client.came.append((way, kept, error, message))
        else:
            if self.told is not None:
                way.client.answers.add(self.told, None, message)
            way.answered += 1
        self.told = None
        way.free.append(self)
