"""What a producer does as its topics move: in a thread of its own, a turn many times a second.

A turn closes the ways to topics that a switch holds, waits for what is on its way to them and says so, and at the home
of each topic sends what was kept back before a call goes straight there. What a home that died never acknowledged is
sent again, before anything newer of its topic.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

from confluent_kafka import KafkaError, KafkaException, Message

from twinshore.client.answers import Answers
from twinshore.client.clients import Client
from twinshore.client.kept import PURGED, SHUT_OUT, Kept, KeptCalls
from twinshore.client.reach import Reach
from twinshore.client.sites import Site
from twinshore.homes.following import Park, Write
from twinshore.kafka.clock import steady_s

TURN_S = 0.01
SEND_AT_ONCE = 2_000  # calls that were kept back; other topics' calls wait meanwhile
PUSHED_S = 5.0  # so long what is on its way may be answered before it is sent with other settings, or elsewhere
SETTLE_S = 1.0  # writers to topics that stay wait no longer for what is on its way to one that moves
AGAIN_S = 1.0
END_S = 10.0


class Moves:
    """`gate` is held by whoever makes a call: a call goes by `routes`, or is kept in `waiting`. `warned` is told what
    an operator should know. All else is the thread's own."""

    def __init__(
        self,
        name: str,
        topics: Iterable[str],
        reach: Reach,
        waiting: KeptCalls,
        *,
        lease_s: float,
        warned: Callable[[str], None],
        wake: threading.Event,
    ) -> None:
        self._name, self._topics, self._reach = name, tuple(topics), reach
        self._lease_s, self._warned = lease_s, warned
        self.waiting = waiting
        self.gate = threading.Lock()  # between a call and whoever parks its topic
        self.room = threading.Condition(self.gate)
        self.routes: dict[str, Client] = {}
        self.until_s = self._not_before_s = 0.0
        self.answers = Answers()
        self.stopping, self.wake = threading.Event(), wake
        self._sent = self._heard_of = 0
        self._at: dict[str, str] = {}
        self._clients: dict[str, Client] = {}
        self.client(reach.begin)  # a setting that is wrong is told to whoever gave it
        self._thread = threading.Thread(target=self._run, name=f"{name} moves", daemon=True)

    def start(self) -> None:
        self.centre = self._reach.ask(self._name, self._topics, self._lease_s)
        self._thread.start()

    def stop(self, *, goodbye: bool, killed: bool = False) -> None:
        self._reach.stop()
        self.stopping.set()
        self.wake.set()
        self._thread.join(END_S)
        for client in self._clients.values():
            if killed or len(client):
                client.give_up()
        self.centre.stop(goodbye=goodbye)
        self.waiting.close(goodbye=goodbye)

    # -- within the gate

    def send(self, client: Client, kept: Kept) -> None:
        client.send(kept)
        self._sent += 1

    def on_their_way(self) -> int:
        """Calls of which nothing was heard since they were sent: a client's own length counts its troubles too."""
        return self._sent - self._heard_of

    # -- answers

    def _delivered(self, kept: Kept, error: KafkaError | None, message: Message) -> None:
        """In the thread that moves. What was thrown away for another home is sent there."""
        if error is not None and self._is_sent_again(kept.topic, error.code()):
            self.waiting.again(kept)
        else:
            if kept.is_spooled:
                self.waiting.answered(kept, error)
            if kept.told is not None:
                self.answers.add(kept.told, error, message)
        self._heard_of += 1

    def _is_sent_again(self, topic: str, code: int) -> bool:
        if self.stopping.is_set() and not self.waiting.outlives:
            return False
        return code in PURGED or (code in SHUT_OUT and isinstance(self.centre.order(topic), Park))

    # -- the thread

    def _run(self) -> None:
        while not self.stopping.is_set():
            try:
                self.turn()
            except Exception as error:  # whoever ended here would leave calls waiting for ever, and nobody told
                self._warned(f"{self._name}: {error}")
            self.wake.wait(TURN_S)
            self.wake.clear()

    def turn(self) -> None:
        if self._reach.has_changed():
            self._take_up()
        for client in list(self._clients.values()):
            client.poll()
        self.waiting.settle()
        until_s = self.centre.until_s()
        with self.gate:
            topics = {*self.routes, *self.waiting.topics(), *self._at}
        orders = {topic: self.centre.order(topic) for topic in topics}
        for topic, order in orders.items():
            if isinstance(order, Park):
                with self.gate:
                    self.routes.pop(topic, None)
        with self.gate:
            self.until_s = until_s
        self._settle(topics)
        for topic, order in orders.items():
            if isinstance(order, Write):
                self._go(topic, order.cluster)
        if self.centre.moving():
            self._warm_up()
        self.waiting.tend()
        with self.room:
            self.room.notify_all()

    def _settle(self, topics: set[str]) -> None:
        """Of a topic that a switch holds, says so once nothing is on its way to it: which is so where nothing is on its
        way to its cluster at all. Calls to topics that stay there wait meanwhile, but not for long."""
        held = self.centre.held()
        for topic in held - topics:
            self.centre.parked(topic)  # it never wrote to it
        for cluster in {self._at[topic] for topic in held if topic in self._at}:
            self._quieten(cluster, {topic for topic in held if self._at.get(topic) == cluster})
        for topic in (held & topics) - self._at.keys():
            self.centre.parked(topic)

    def _quieten(self, cluster: str, held: set[str]) -> None:
        client = self._clients.get(cluster)  # none where it was given up for another topic
        if client is not None and len(client) and steady_s() < self._not_before_s:
            return
        if client is not None:
            self._close_routes(client)
        if client is not None and client.flush(SETTLE_S):
            self._not_before_s = steady_s() + AGAIN_S
        else:
            for topic in held:
                self.centre.parked(topic)
        # Those that stay are sent to again by this very turn.

    def _go(self, topic: str, cluster: str) -> None:
        """What was kept back goes first; from then on calls go straight there."""
        before = self._at.get(topic)
        if before is not None and before != cluster:
            self._leave(before)
        client = self.client(cluster)
        self._at[topic] = cluster
        if self.waiting.outlives and client.is_silent():
            return self._close_routes(client)  # what is called now is safer on the disk
        self.waiting.prepare(topic)
        with self.gate:
            if self.routes.get(topic) is client and self.waiting.is_empty(topic):
                return None
            self.routes.pop(topic, None)
            has_room = self._send_kept(client, topic)
            if self.waiting.is_empty(topic):
                self.waiting.end(topic)
                self.routes[topic] = client
            elif has_room:
                self.wake.set()  # the next turn goes on with it at once
        return None

    def _send_kept(self, client: Client, topic: str) -> bool:
        """A portion of it; whether the client would have taken more."""
        for _ in range(SEND_AT_ONCE):
            kept = self.waiting.head(topic)
            if kept is None:
                return True
            try:
                self.send(client, kept)
                self.waiting.sent(topic)
            except BufferError:
                return False
            except KafkaException as error:  # too large, for one: its call has returned long ago
                self.waiting.sent(topic)
                self.waiting.answered(kept, error.args[0])
                self.answers.add(kept.told, error.args[0], None)
        return True

    def _leave(self, cluster: str) -> None:
        """Nothing goes there any more. What it has not acknowledged, of a home that died, is sent elsewhere."""
        client = self._clients.get(cluster)
        if client is None or not len(client):
            return
        self._close_routes(client)
        with self.gate:
            del self._clients[cluster]  # its numbers have a gap now
        client.give_up()
        self.waiting.settle()

    def _close_routes(self, client: Client) -> None:
        """Calls to topics that went there are kept back from now on."""
        with self.gate:
            for topic in [one for one, route in self.routes.items() if route is client]:
                del self.routes[topic]
                self.waiting.begin(topic)

    def client(self, cluster: str) -> Client:
        if cluster not in self._clients:
            settings = {"client.id": self._name, **self._reach.sites[cluster].settings()}
            made = Client(settings, self._delivered, self._lease_s)
            with self.gate:
                self._clients[cluster] = made
        return self._clients[cluster]

    def _take_up(self) -> None:
        """What is on its way is waited for; calls are kept back until the clusters that count now were asked."""
        for cluster, client in list(self._clients.items()):
            self._close_routes(client)
            client.flush(PUSHED_S)
            self._leave(cluster)
        self.centre.stop()
        with self.gate:
            self._clients.clear()
            self.until_s = 0.0
        self._at.clear()
        self.centre = self._reach.ask(self._name, self._topics, self._lease_s)

    def _warm_up(self) -> None:
        """Where topics may soon be written."""
        for cluster in self._reach.sites.keys() - self._clients.keys():
            self.client(cluster).warm_up(list(self._at)[:10])


def must_make(name: str, lease_s: float, site: Site) -> None:
    """Raises where no client can be made of these settings."""
    Client({"client.id": name, **site.settings()}, lambda *_: None, lease_s)
