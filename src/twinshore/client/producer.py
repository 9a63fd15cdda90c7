"""A producer whose topics may move to another cluster while it writes.

It has one librdkafka producer for each cluster that it writes to, idempotent and with acks of all copies. While a
topic's route stands, a call goes straight there. When a switch holds the topic, calls are kept back, what is on its way
is waited for, and that is said; at the new home what was kept back goes first. What a home that died never acknowledged
is sent again, before anything newer of its topic.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import count
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from twinshore.client.centres.homes import HomesCentre
from twinshore.client.sites import sites_of
from twinshore.fleet import Cluster, ConfigError, NotYetError
from twinshore.homes.follower_lines import covers
from twinshore.homes.following import LEASE_S, Park, Write
from twinshore.kafka.clock import steady_s

Delivered = Callable[[KafkaError | None, Message | None], None]
MAX_BLOCK_S = 60.0
KEPT_MAX = 100_000
TURN_S = 0.01
SETTLE_S = 1.0  # writers to topics that stay wait no longer for what is on its way to one that moves
AGAIN_S = 1.0
PURGED = (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT)
# A switch keeps all writers from the old home by rules: what was on its way then is not refused for good.
SHUT_OUT = (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED)
OURS: Mapping[str, Any] = {
    "acks": "all",
    "enable.idempotence": True,
    "message.timeout.ms": 0,  # an answer that nobody can give is no reason to lose a record
    "partitioner": "murmur2_random",  # as Java's clients do it
}


class Kept(NamedTuple):
    """A call that waits for its topic's home. `number`: the how-manieth it was."""

    number: int
    topic: str
    value: bytes | str | None
    key: bytes | str | None
    partition: int
    told: Delivered | None
    timestamp: int
    headers: Any


class HotProducer:
    """`clusters`: each by its name, with the settings by which a client of confluent-kafka reaches it; `config` holds
    for all. The first is where topics are written of which no cluster says where they are at home. `topics`: what it
    writes to, names or beginnings of names with a `*` behind. `max_block_s`: how long a call waits for room. `warn` is
    told what an operator should know."""

    def __init__(
        self,
        config: Mapping[str, Any],
        *,
        clusters: Mapping[str, Mapping[str, Any] | Cluster],
        topics: Iterable[str] = ("*",),
        name: str = "",
        max_block_s: float = MAX_BLOCK_S,
        kept_max: int = KEPT_MAX,
        lease_s: float = LEASE_S,
        warn: Callable[[str], None] = lambda _: None,
    ) -> None:
        if "transactional.id" in config:
            raise NotYetError("a producer of transactions cannot follow its topics yet", hint="stop it for the switch")
        self._sites = sites_of(clusters, config)
        self._topics = tuple(topics)
        self._max_block_s, self._kept_max = max_block_s, kept_max
        self._name = name or str(config.get("client.id", "producer"))
        self._gate = threading.Lock()  # between a call and whoever parks its topic
        self._room = threading.Condition(self._gate)
        self._routes: dict[str, Producer] = {}
        self._until_s = 0.0
        self._numbers = count()
        self._kept: dict[str, deque[Kept]] = {}
        self._again: dict[str, list[Kept]] = {}
        self._kept_calls = self._sent = self._heard_of = 0
        self._at: dict[str, str] = {}
        self._producers: dict[str, Producer] = {}
        self._answers: deque[tuple[Delivered, KafkaError | None, Message | None]] = deque()
        self._not_before_s = 0.0
        self._warn, self._trouble = warn, ""
        self._stopping = threading.Event()
        self._wake = threading.Event()
        self._killed = False
        begin = next(iter(self._sites))
        self._producer(begin)  # a setting that is wrong is told to whoever gave it
        self._centre = HomesCentre(
            self._name, self._topics, self._sites, begin, lease_s=lease_s, news=self._wake.set, warn=warn
        )
        self._thread = threading.Thread(target=self._run, name=f"{self._name} moves", daemon=True)
        self._centre.start()
        self._thread.start()

    def __enter__(self) -> HotProducer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- what an application calls

    def produce(
        self,
        topic: str,
        value: bytes | str | None = None,
        key: bytes | str | None = None,
        partition: int = -1,
        on_delivery: Delivered | None = None,
        timestamp: int = 0,
        headers: Any = None,
        *,
        callback: Delivered | None = None,
    ) -> None:
        """As a Producer's. BufferError where there is no room for as long as `max_block_s`; ConfigError for a topic
        that is none of `topics`."""
        told = on_delivery or callback
        waits_until_s = 0.0
        while True:
            with self._gate:
                if self._stopping.is_set():
                    raise RuntimeError(f"{self._name} is closed")
                producer = self._routes.get(topic)
                if len(self._answers) > self._kept_max:
                    pass  # nobody polls
                elif producer is not None and steady_s() < self._until_s:
                    kept = Kept(next(self._numbers), topic, value, key, partition, told, timestamp, headers)
                    try:
                        self._send(producer, kept)
                        return
                    except BufferError:
                        pass
                elif self._kept_calls < self._kept_max:
                    self._keep(topic, value, key, partition, told, timestamp, headers)
                    return
                now_s = steady_s()
                waits_until_s = waits_until_s or now_s + self._max_block_s
                if now_s >= waits_until_s:
                    raise BufferError(self._why(topic))
                self._room.wait(TURN_S)

    def poll(self, timeout: float = 0.0) -> int:
        """Calls the `on_delivery` of what has been answered, for so long at most; how many."""
        called, until_s = self._answer(), steady_s() + timeout
        while not called and (left_s := until_s - steady_s()) > 0:
            self._stopping.wait(min(left_s, TURN_S))
            called = self._answer()
        return called

    def flush(self, timeout: float = -1) -> int:
        """Until each call has its answer, or so long at most; how many have none yet."""
        until_s = steady_s() + timeout if timeout >= 0 else float("inf")
        while True:
            self._answer()
            left = len(self)
            if not left or steady_s() >= until_s:
                return left
            self._stopping.wait(TURN_S / 2)

    def __len__(self) -> int:
        """Calls that have no answer yet, or whose `on_delivery` has not been called."""
        with self._gate:
            on_their_way = self._sent - self._heard_of  # a client's own length counts its troubles too
            return self._kept_calls + on_their_way + len(self._answers) + sum(map(len, self._again.values()))

    def where(self, topic: str) -> str:
        """The cluster that the topic is written to now, or why it waits."""
        order = self._centre.order(topic)
        return order.cluster if isinstance(order, Write) else order.why

    def close(self, timeout: float = 30.0) -> int:
        """Sends what is left, for so long at most, and says goodbye; how many calls were never answered."""
        left = self.flush(0 if self._stopping.is_set() else timeout)
        self._end(goodbye=True)
        return left

    def kill(self) -> None:
        """Ends it as a process dies: nobody hears of it, and what is on its way is on its own."""
        self._killed = True
        self._end(goodbye=False)

    # -- within the gate

    def _send(self, producer: Producer, kept: Kept) -> None:
        producer.produce(
            kept.topic,
            kept.value,
            kept.key,
            kept.partition,
            on_delivery=partial(self._delivered, kept),
            timestamp=kept.timestamp,
            headers=kept.headers,
        )
        self._sent += 1

    def _keep(self, topic: str, value: Any, key: Any, partition: int, *what: Any) -> None:
        for one in (value, key):
            if not isinstance(one, bytes | str | None):
                raise TypeError(f"a value or key is bytes, str or None, not {type(one).__name__}")
        if topic not in self._kept:
            if not any(covers(one, topic) for one in self._topics):
                raise ConfigError(
                    f"topic {topic} is none of those that {self._name} follows: {', '.join(self._topics)}"
                )
            self._kept[topic] = deque()
            self._wake.set()
        self._kept[topic].append(Kept(next(self._numbers), topic, value, key, int(partition), *what))
        self._kept_calls += 1

    def _why(self, topic: str) -> str:
        order = self._centre.order(topic)
        why = order.why if isinstance(order, Park) else f"{order.cluster} takes less than is written"
        if len(self._answers) > self._kept_max:
            why = "answers wait for somebody who calls poll or flush"
        return f"no room for as long as {self._max_block_s:g} s: {why}"

    # -- answers

    def _delivered(self, kept: Kept, error: KafkaError | None, message: Message) -> None:
        """In the thread that moves. What was thrown away for another home is sent there."""
        if error is not None and not self._stopping.is_set() and self._is_sent_again(kept.topic, error.code()):
            self._again.setdefault(kept.topic, []).append(kept)
        elif kept.told is not None:
            self._answers.append((kept.told, error, message))
        self._heard_of += 1

    def _is_sent_again(self, topic: str, code: int) -> bool:
        return code in PURGED or (code in SHUT_OUT and isinstance(self._centre.order(topic), Park))

    def _answer(self) -> int:
        called = 0
        while True:
            try:
                told, error, message = self._answers.popleft()
            except IndexError:  # another thread may have taken the last one
                return called
            called += 1
            told(error, message)

    # -- the thread that moves

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._turn()
            except Exception as error:  # whoever ended here would leave calls waiting for ever, and nobody told
                self._warned(f"{self._name}: {error}")
            self._wake.wait(TURN_S)
            self._wake.clear()

    def _turn(self) -> None:
        for producer in list(self._producers.values()):
            producer.poll(0)
        until_s = self._centre.until_s()
        with self._gate:
            topics = {*self._routes, *self._kept, *self._at}
        orders = {topic: self._centre.order(topic) for topic in topics}
        for topic, order in orders.items():
            if isinstance(order, Park):
                with self._gate:
                    self._routes.pop(topic, None)
        with self._gate:
            self._until_s = until_s
        self._settle(topics)
        for topic, order in orders.items():
            if isinstance(order, Write):
                self._go(topic, order.cluster)
        if self._centre.moving():
            self._warm_up()
        with self._room:
            self._room.notify_all()

    def _settle(self, topics: set[str]) -> None:
        """Of a topic that a switch holds, says so once nothing is on its way to it: which is so where nothing is on its
        way to its cluster at all. Calls to topics that stay there wait meanwhile, but not for long."""
        held = self._centre.held()
        for topic in held - topics:
            self._centre.parked(topic)  # it never wrote to it
        for cluster in {self._at[topic] for topic in held if topic in self._at}:
            self._quieten(cluster, {topic for topic in held if self._at.get(topic) == cluster})
        for topic in (held & topics) - self._at.keys():
            self._centre.parked(topic)

    def _quieten(self, cluster: str, held: set[str]) -> None:
        producer = self._producers[cluster]
        if len(producer) and steady_s() < self._not_before_s:
            return
        with self._gate:
            stays = {topic: one for topic, one in self._routes.items() if one is producer}
            for topic in stays:
                del self._routes[topic]
                self._kept.setdefault(topic, deque())
        left = producer.flush(SETTLE_S)
        if left:
            self._not_before_s = steady_s() + AGAIN_S
        else:
            for topic in held:
                self._centre.parked(topic)
        # Those that stay are sent to again by this very turn.

    def _go(self, topic: str, cluster: str) -> None:
        """What was kept back goes first; from then on calls go straight there."""
        before = self._at.get(topic)
        if before is not None and before != cluster:
            self._leave(before)
        producer = self._producer(cluster)
        self._at[topic] = cluster
        with self._gate:
            if self._routes.get(topic) is producer and topic not in self._again:
                return
            waiting = deque(sorted(self._again.pop(topic, []), key=lambda kept: kept.number))
            waiting.extend(self._kept.pop(topic, deque()))
            while waiting:
                kept = waiting.popleft()
                try:
                    self._send(producer, kept)
                except BufferError:
                    waiting.appendleft(kept)
                    break
                except KafkaException as error:  # too large, for one: its call has returned long ago
                    if kept.told is not None:
                        self._answers.append((kept.told, error.args[0], None))
            if waiting:
                self._kept[topic] = waiting
            else:
                self._routes[topic] = producer
            self._kept_calls = sum(map(len, self._kept.values()))

    def _leave(self, cluster: str) -> None:
        """Nothing goes there any more. What it has not acknowledged, of a home that died, is sent elsewhere."""
        producer = self._producers[cluster]
        if not len(producer):
            return
        with self._gate:
            for one in [one for one, route in self._routes.items() if route is producer]:
                del self._routes[one]
                self._kept.setdefault(one, deque())
            del self._producers[cluster]  # its numbers have a gap now
        # In this order, since what was sent was called before what still waits to be.
        producer.purge(in_queue=False, in_flight=True, blocking=True)
        producer.flush(SETTLE_S)
        producer.purge(in_queue=True, in_flight=True, blocking=True)
        producer.flush(SETTLE_S)

    def _producer(self, cluster: str) -> Producer:
        if cluster not in self._producers:
            made = Producer({**OURS, "client.id": self._name, **self._sites[cluster].settings()})
            with self._gate:
                self._producers[cluster] = made
        return self._producers[cluster]

    def _warned(self, sentence: str) -> None:
        if sentence != self._trouble:
            self._trouble = sentence
            self._warn(sentence)

    def _warm_up(self) -> None:
        """Where topics may soon be written: the first record must not wait for connections."""
        for cluster in self._sites.keys() - self._producers.keys():
            producer = self._producer(cluster)
            for topic in list(self._at)[:10]:
                try:
                    producer.list_topics(topic, timeout=AGAIN_S)
                except Exception:
                    break

    def _end(self, *, goodbye: bool) -> None:
        if self._stopping.is_set():
            return
        self._stopping.set()
        self._wake.set()
        self._thread.join(2 * SETTLE_S + AGAIN_S)
        for producer in self._producers.values():
            if self._killed or len(producer):
                producer.purge()
                producer.flush(AGAIN_S)
        self._centre.stop(goodbye=goodbye)
