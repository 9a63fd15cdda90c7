"""One client's connections to brokers, opened on first use."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from twinshore.kafka.protocol.apis import API_VERSIONS, api_format
from twinshore.kafka.protocol.framing import frame_request, read_response_header
from twinshore.proxy.broker_connection import BrokerConnection, PendingBrokerRequest, deadline_after
from twinshore.proxy.context import ProxyContext
from twinshore.proxy.core.login import ClientPrincipal
from twinshore.proxy.core.model import ANY_BROKER, RESPONSE_TIMEOUT_S, BrokerId, BrokerRequest, BrokerResponse

# A broker may still write what it had received of a connection that has ended.
ARRIVAL_GRACE_S: Final = 2.0


class InFlightWrites:
    """One client's writes on their way, so that a switch learns when nothing more arrives at an old home.

    `ask` sends a broker a request behind all others, and calls back once answered.
    """

    def __init__(self, context: ProxyContext, ask: Callable[[BrokerId, Callable[[], None]], None]) -> None:
        self._context, self._ask = context, ask
        self._open: dict[tuple[str, ...], int] = {}
        self._unanswered: dict[BrokerId, set[str]] = {}
        self._asked: set[BrokerId] = set()

    def begins(self, topics: tuple[str, ...]) -> None:
        self._open[topics] = self._open.get(topics, 0) + 1
        self._context.writes(topics)

    def has_in_flight(self, topics: frozenset[str]) -> bool:
        """Whether a write to one of these topics is unanswered."""
        return any(not topics.isdisjoint(some) for some in self._open)

    def ends(self, topics: tuple[str, ...], *, lost: bool = False) -> None:
        """Remove a write; if the broker is `lost`, after a delay, since the broker may still write."""
        left = self._open.get(topics, 0) - 1
        if left > 0:
            self._open[topics] = left
        else:
            self._open.pop(topics, None)
        if lost:
            asyncio.get_running_loop().call_later(ARRIVAL_GRACE_S, self._context.written, topics)
        else:
            self._context.written(topics)

    def begin_unacknowledged(self, place: BrokerId, topics: Iterable[str]) -> None:
        """Count a write without a response."""
        sent = self._unanswered.setdefault(place, set())
        new = set(topics) - sent
        sent |= new
        self._context.writes(new)

    def prove(self) -> None:
        """Send a request behind unacknowledged writes to paused topics."""
        for place, topics in self._unanswered.items():
            if place not in self._asked and any(map(self._context.table.writes_paused, topics)):
                self._asked.add(place)
                self._ask(place, partial(self._proven, place))

    def _proven(self, place: BrokerId) -> None:
        """Remove the writes: brokers answer in order, so all have arrived."""
        self._asked.discard(place)
        self._context.written(self._unanswered.pop(place, set()))

    def close(self) -> None:
        """Remove all writes after a delay, since they may still arrive."""
        late = [topic for topics, count in self._open.items() for topic in topics * count]
        late += [topic for topics in self._unanswered.values() for topic in topics]
        self._open.clear()
        self._unanswered.clear()
        if late:
            asyncio.get_running_loop().call_later(ARRIVAL_GRACE_S, self._context.written, late)


class BrokerConnections:
    """One client's connections.

    `pace` is called when one accepts no more, `go_on` when it accepts more. `who`: the client's principal.
    """

    def __init__(self, context: ProxyContext, pace: Callable[[], None], go_on: Callable[[], None]) -> None:
        self._context, self._pace, self._go_on = context, pace, go_on
        self._lines: dict[BrokerId, BrokerConnection] = {}
        self._choked: dict[BrokerId, None] = {}
        self._paused = False
        self.principal = ClientPrincipal()

    @property
    def is_congested(self) -> bool:
        """Whether a connection accepts no more for now."""
        return bool(self._choked)

    def pause(self, paused: bool) -> None:
        self._paused = paused
        for broker in self._lines.values():
            broker.pause(paused)

    def look(self, now_s: float) -> bool:
        """Check response deadlines. Returns whether a connection ended."""
        return any(broker.look(now_s) for broker in list(self._lines.values()))

    def close(self) -> None:
        for broker in self._lines.values():
            broker.close()
        self._lines.clear()

    def to(self, place: BrokerId) -> BrokerConnection | None:
        """Returns the connection to this broker, opened if needed; None if there is no such broker."""
        if place.node == ANY_BROKER:
            place = self._anybody(place.cluster)
        broker_connection = self._lines.get(place)
        if broker_connection is not None:
            return broker_connection
        broker = self._context.table.clusters[place.cluster].brokers.get(place.node)
        if broker is None:
            return None
        made = self._lines[place] = BrokerConnection(
            place, self, self._context.gate.access(place.cluster, self.principal)
        )
        made.dial(broker)
        if self._paused:
            made.pause(True)
        return made

    def _anybody(self, cluster: str) -> BrokerId:
        """Returns a broker of the cluster, preferably a connected one."""
        for place in self._lines:
            if place.cluster == cluster:
                return place
        nodes = list(self._context.table.clusters[cluster].brokers)
        return BrokerId(cluster, random.choice(nodes) if nodes else ANY_BROKER)

    def ask(self, client_id: str, wait_s: float, ask: BrokerRequest, heard: Callable[[BrokerResponse], None]) -> None:
        broker = self.to(ask.place)
        if broker is None:
            # Not at once: the fan-out has more requests to send before it gets a response.
            asyncio.get_running_loop().call_soon(heard, None)
            return
        shape = api_format(ask.key, ask.version)
        number = self._context.number()

        def done(found: memoryview | None) -> None:
            if found is None:
                heard(None)
                return
            # The broker's next response comes into the same buffer.
            heard(memoryview(bytes(found[read_response_header(found, shape.tags_in_response)[1] :])))

        asked = PendingBrokerRequest(ask.key, number, deadline_after(wait_s), done)
        broker.ask(asked, frame_request(ask.key, ask.version, number, client_id, ask.body, shape.tags_in_request))

    def ask_after_writes(self, place: BrokerId, heard: Callable[[], None]) -> None:
        """Call `heard` once a request behind all others is answered; if the broker is lost, after a delay."""
        broker = self._lines.get(place)
        if broker is None:
            asyncio.get_running_loop().call_later(ARRIVAL_GRACE_S, heard)
            return

        def done(found: memoryview | None) -> None:
            if found is not None:
                heard()
            else:
                asyncio.get_running_loop().call_later(ARRIVAL_GRACE_S, heard)

        number = self._context.number()
        asked = PendingBrokerRequest(API_VERSIONS, number, deadline_after(RESPONSE_TIMEOUT_S), done)
        broker.ask(asked, frame_request(API_VERSIONS, 0, number, "", [], False))

    def choked(self, broker: BrokerConnection) -> None:
        self._choked[broker.place] = None
        self._pace()

    def flows(self, broker: BrokerConnection) -> None:
        self._choked.pop(broker.place, None)
        self._go_on()

    def lost(self, broker: BrokerConnection) -> None:
        self._context.lost(broker.end_reason if broker.was_refused else "")
        if self._lines.get(broker.place) is broker:
            del self._lines[broker.place]
