"""A producer whose topics may move to another cluster while it writes.

It has one librdkafka producer for each cluster that it writes to, idempotent and with acks of all copies. While a
topic's route stands, a call goes straight there. When a switch holds the topic, calls are kept back, what is on its way
is waited for, and that is said; at the new home what was kept back goes first. What a home that died never acknowledged
is sent again, before anything newer of its topic. With a spool, what is kept back is on the disk.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from itertools import count
from pathlib import Path
from typing import Any, Literal

from confluent_kafka import KafkaError, KafkaException, Message

from twinshore.client.answers import Answers
from twinshore.client.clients import Client
from twinshore.client.kept import PURGED, SHUT_OUT, Delivered, Kept, KeptCalls, KeptInMemory
from twinshore.client.kept_on_disk import KeptOnDisk
from twinshore.client.reach import Clusters, Reach
from twinshore.client.sites import Site
from twinshore.client.spool import SPOOL_BYTES_MAX, Spool
from twinshore.fleet import ConfigError, NotYetError
from twinshore.homes.follower_lines import covers
from twinshore.homes.following import LEASE_S, Park, Write
from twinshore.kafka.clock import steady_s

MAX_BLOCK_S = 60.0
KEPT_MAX = 100_000
TURN_S = 0.01
SEND_AT_ONCE = 2_000  # calls that were kept back; other topics' calls wait meanwhile
PUSHED_S = 5.0  # so long what is on its way may be answered before it is sent with other settings, or elsewhere
SETTLE_S = 1.0  # writers to topics that stay wait no longer for what is on its way to one that moves
AGAIN_S = 1.0
END_S = 10.0


class HotProducer:
    """`clusters`: each by its name, with the settings by which a client of confluent-kafka reaches it, or the pushes of
    a configuration centre; `config` holds for all. The first is where topics are written of which no cluster says where
    they are at home. `topics`: what it
    writes to, names or beginnings of names with a `*` behind. `max_block_s`: how long a call waits for room. `spool`: a
    folder of its own, where what is kept back is on the disk, `spool_bytes_max` of it at most; what an earlier producer
    left there is sent first. `when_full`: whether a call that would be kept back waits for room, or is told at once
    that there is none. `warn` is told what an operator should know."""

    def __init__(
        self,
        config: Mapping[str, Any],
        *,
        clusters: Clusters,
        topics: Iterable[str] = ("*",),
        name: str = "",
        max_block_s: float = MAX_BLOCK_S,
        kept_max: int = KEPT_MAX,
        lease_s: float = LEASE_S,
        spool: str | Path | Spool | None = None,
        spool_bytes_max: int = SPOOL_BYTES_MAX,
        when_full: Literal["wait", "tell"] = "wait",
        warn: Callable[[str], None] = lambda _: None,
    ) -> None:
        if "transactional.id" in config:
            raise NotYetError("a producer of transactions cannot follow its topics yet", hint="stop it for the switch")
        if when_full not in ("wait", "tell"):
            raise ConfigError(f"when_full is wait or tell, not {when_full}")
        self._tells_at_once = when_full == "tell"
        self._topics = tuple(topics)
        self._max_block_s, self._kept_max = max_block_s, kept_max
        self._name = name or str(config.get("client.id", "producer"))
        self._gate = threading.Lock()  # between a call and whoever parks its topic
        self._room = threading.Condition(self._gate)
        self._routes: dict[str, Client] = {}
        self._sent = self._heard_of = 0
        self._at: dict[str, str] = {}
        self._clients: dict[str, Client] = {}
        self._lease_s = lease_s
        self._answers = Answers()
        self._until_s = self._not_before_s = 0.0
        self._warn, self._trouble = warn, ""
        self._stopping, self._wake = threading.Event(), threading.Event()
        self._killed = False
        self._reach = Reach(clusters, config, self._topics, warn=warn, check=self._must_make, news=self._wake.set)
        self._client(self._reach.begin)  # a setting that is wrong is told to whoever gave it
        self._waiting: KeptCalls = KeptInMemory(kept_max)
        first_number = 0
        if spool is not None:
            opened = spool if isinstance(spool, Spool) else Spool(Path(spool), bytes_max=spool_bytes_max, warn=warn)
            self._waiting = KeptOnDisk(opened, kept_max, self._follows, self._warned)
            first_number = opened.next_number
        self._numbers = count(first_number)
        self._centre = self._reach.ask(self._name, self._topics, lease_s)
        self._thread = threading.Thread(target=self._run, name=f"{self._name} moves", daemon=True)
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
        """As a Producer's. BufferError where there is no room for as long as `max_block_s`, or the spool cannot be
        written; ConfigError for a topic that is none of `topics`."""
        told = on_delivery or callback
        waits_until_s = 0.0
        while True:
            safe, tells = None, False
            with self._gate:
                if self._stopping.is_set():
                    raise RuntimeError(f"{self._name} is closed")
                client = self._routes.get(topic)
                if len(self._answers) > self._kept_max:
                    pass  # nobody polls
                elif client is not None and steady_s() < self._until_s:
                    kept = Kept(next(self._numbers), topic, value, key, partition, told, timestamp, headers)
                    try:
                        self._send(client, kept)
                        return None
                    except BufferError:
                        pass
                else:
                    safe = self._keep(topic, value, key, partition, told, timestamp, headers)
                    tells = self._tells_at_once
                if safe is None:
                    waits_until_s = waits_until_s or steady_s() + self._max_block_s
                    if tells or steady_s() >= waits_until_s:
                        raise BufferError(self._why(topic, at_once=tells))
                    self._room.wait(TURN_S)
            if safe is not None:
                return safe()  # outside of the gate: several calls share a write to the disk

    def poll(self, timeout: float = 0.0) -> int:
        """Calls the `on_delivery` of what has been answered, for so long at most; how many."""
        called, until_s = self._answers.tell(), steady_s() + timeout
        while not called and (left_s := until_s - steady_s()) > 0:
            self._stopping.wait(min(left_s, TURN_S))
            called = self._answers.tell()
        return called

    def flush(self, timeout: float = -1) -> int:
        """Until each call has its answer, or so long at most; how many have none yet."""
        until_s = steady_s() + timeout if timeout >= 0 else float("inf")
        while True:
            self._answers.tell()
            left = len(self)
            if not left or steady_s() >= until_s:
                return left
            self._stopping.wait(TURN_S / 2)

    def __len__(self) -> int:
        """Calls that have no answer yet, or whose `on_delivery` has not been called."""
        with self._gate:
            on_their_way = self._sent - self._heard_of  # a client's own length counts its troubles too
            return len(self._waiting) + on_their_way + len(self._answers)

    def where(self, topic: str) -> str:
        """The cluster that the topic is written to now, or why it waits."""
        order = self._centre.order(topic)
        return order.cluster if isinstance(order, Write) else order.why

    def close(self, timeout: float = 30.0) -> int:
        """Sends what is left, for so long at most, and says goodbye; how many calls were never answered. With a spool:
        how many are left there for the next producer."""
        unanswered = self.flush(0 if self._stopping.is_set() else timeout)
        self._end(goodbye=True)
        left = self._waiting.left()
        return unanswered if left is None else left

    def kill(self) -> None:
        """Ends it as a process dies: nobody hears of it, and what is on its way is on its own."""
        self._killed = True
        self._end(goodbye=False)

    # -- within the gate

    def _send(self, client: Client, kept: Kept) -> None:
        client.send(kept)
        self._sent += 1

    def _keep(self, topic: str, value: Any, key: Any, partition: int, *what: Any) -> Callable[[], None] | None:
        kept = Kept(next(self._numbers), topic, value, key, int(partition), *what).checked()
        if topic not in self._waiting.topics():
            if not self._follows(topic):
                raise ConfigError(
                    f"topic {topic} is none of those that {self._name} follows: {', '.join(self._topics)}"
                )
            self._waiting.begin(topic)
            self._wake.set()
        self._routes.pop(topic, None)  # no later call may overtake this one
        return self._waiting.keep(kept)

    def _follows(self, topic: str) -> bool:
        return any(covers(one, topic) for one in self._topics)

    def _why(self, topic: str, *, at_once: bool) -> str:
        order = self._centre.order(topic)
        why = order.why if isinstance(order, Park) else f"{order.cluster} takes less than is written"
        if len(self._answers) > self._kept_max:
            why = "answers wait for somebody who calls poll or flush"
        elif self._routes.get(topic) is None:
            why = f"{why}; {self._waiting.full()}"
        return f"no room: {why}" if at_once else f"no room for as long as {self._max_block_s:g} s: {why}"

    # -- answers

    def _delivered(self, kept: Kept, error: KafkaError | None, message: Message) -> None:
        """In the thread that moves. What was thrown away for another home is sent there."""
        if error is not None and self._is_sent_again(kept.topic, error.code()):
            self._waiting.again(kept)
        else:
            if kept.is_spooled:
                self._waiting.answered(kept, error)
            if kept.told is not None:
                self._answers.add(kept.told, error, message)
        self._heard_of += 1

    def _is_sent_again(self, topic: str, code: int) -> bool:
        if self._stopping.is_set() and not self._waiting.outlives:
            return False
        return code in PURGED or (code in SHUT_OUT and isinstance(self._centre.order(topic), Park))

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
        if self._reach.has_changed():
            self._take_up()
        for client in list(self._clients.values()):
            client.poll()
        self._waiting.settle()
        until_s = self._centre.until_s()
        with self._gate:
            topics = {*self._routes, *self._waiting.topics(), *self._at}
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
        self._waiting.tend()
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
        client = self._clients[cluster]
        if len(client) and steady_s() < self._not_before_s:
            return
        self._close_routes(client)
        if client.flush(SETTLE_S):
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
        client = self._client(cluster)
        self._at[topic] = cluster
        if self._waiting.outlives and client.is_silent():
            return self._close_routes(client)  # what is called now is safer on the disk
        self._waiting.prepare(topic)
        with self._gate:
            if self._routes.get(topic) is client and self._waiting.is_empty(topic):
                return None
            self._routes.pop(topic, None)
            has_room = self._send_kept(client, topic)
            if self._waiting.is_empty(topic):
                self._waiting.end(topic)
                self._routes[topic] = client
            elif has_room:
                self._wake.set()  # the next turn goes on with it at once
        return None

    def _send_kept(self, client: Client, topic: str) -> bool:
        """A portion of it; whether the client would have taken more."""
        for _ in range(SEND_AT_ONCE):
            kept = self._waiting.head(topic)
            if kept is None:
                return True
            try:
                self._send(client, kept)
                self._waiting.sent(topic)
            except BufferError:
                return False
            except KafkaException as error:  # too large, for one: its call has returned long ago
                self._waiting.sent(topic)
                self._waiting.answered(kept, error.args[0])
                self._answers.add(kept.told, error.args[0], None)
        return True

    def _leave(self, cluster: str) -> None:
        """Nothing goes there any more. What it has not acknowledged, of a home that died, is sent elsewhere."""
        client = self._clients[cluster]
        if not len(client):
            return
        self._close_routes(client)
        with self._gate:
            del self._clients[cluster]  # its numbers have a gap now
        client.give_up()
        self._waiting.settle()

    def _close_routes(self, client: Client) -> None:
        """Calls to topics that went there are kept back from now on."""
        with self._gate:
            for topic in [one for one, route in self._routes.items() if route is client]:
                del self._routes[topic]
                self._waiting.begin(topic)

    def _client(self, cluster: str) -> Client:
        if cluster not in self._clients:
            settings = {"client.id": self._name, **self._reach.sites[cluster].settings()}
            made = Client(settings, self._delivered, self._lease_s)
            with self._gate:
                self._clients[cluster] = made
        return self._clients[cluster]

    def _must_make(self, site: Site) -> None:
        Client({"client.id": self._name, **site.settings()}, self._delivered, self._lease_s)  # or it is told why not

    def _take_up(self) -> None:
        """What is on its way is waited for; calls are kept back until the clusters that count now were asked."""
        for cluster, client in list(self._clients.items()):
            self._close_routes(client)
            client.flush(PUSHED_S)
            self._leave(cluster)
        self._centre.stop()
        with self._gate:
            self._clients.clear()
            self._until_s = 0.0
        self._at.clear()
        self._centre = self._reach.ask(self._name, self._topics, self._lease_s)

    def _warned(self, sentence: str) -> None:
        if sentence != self._trouble:
            self._trouble = sentence
            self._warn(sentence)

    def _warm_up(self) -> None:
        """Where topics may soon be written."""
        for cluster in self._reach.sites.keys() - self._clients.keys():
            self._client(cluster).warm_up(list(self._at)[:10])

    def _end(self, *, goodbye: bool) -> None:
        if self._stopping.is_set():
            return
        self._reach.stop()
        self._stopping.set()
        self._wake.set()
        self._thread.join(END_S)
        for client in self._clients.values():
            if self._killed or len(client):
                client.give_up()
        self._centre.stop(goodbye=goodbye)
        self._waiting.close(goodbye=goodbye)
