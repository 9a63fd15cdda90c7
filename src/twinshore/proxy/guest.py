"""One client's connection: its requests are read in order, and answered in that order, whoever is asked for them.

Bytes that go through are sent from where they were received. While one side does not take more, the other is not read,
so a connection holds a frame or two, and what the kernel holds.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from twinshore.fleet import WireError
from twinshore.fleet.once import in_words
from twinshore.proxy.core.layout import ANY, Place
from twinshore.proxy.core.moves import Ask, Drop, HangUp, Move, Parts, Pass, Rewrite, Run, Said, Say
from twinshore.proxy.core.session import Session
from twinshore.proxy.errands import Going
from twinshore.proxy.house import House
from twinshore.proxy.sockets import keeps_buffers, tune
from twinshore.proxy.turns import Turn, Turns
from twinshore.proxy.upstream import Asked, Upstream, deadline
from twinshore.wire.apis import shape_of
from twinshore.wire.framing import Framer
from twinshore.wire.headers import frame, read_response_header
from twinshore.wire.primitives import Buffer
from twinshore.wire.serving.requests import Request, answer_frame, read_request

# As much as brokers take by default (socket.request.max.bytes).
REQUEST_BYTES_MAX: Final = 100 << 20
UNANSWERED_MAX: Final = 64
HALF_REQUEST_S: Final = 30.0
IDLE_S: Final = 11 * 60.0
UNREAD_S: Final = 300.0
# A buffer that grew for a large frame is kept while its connection is busy.
KEPT_BYTES: Final = 64 << 10
_SMALL_BYTES: Final = 16 << 10


class Guest(asyncio.BufferedProtocol):
    """`place`: the broker that its port stands for."""

    def __init__(self, place: Place | None, house: House) -> None:
        self._house = house
        self._session = Session(place, house.layout, house.news)
        self._framer = Framer()
        self._turns = Turns()
        self._upstreams: dict[Place, Upstream] = {}
        self._choked: set[Place] = set()
        self._errand: Going | None = None
        self._transport: asyncio.Transport | None = None
        self._kept = True
        self._reading = self._paused = self._unread = self._draining = self._leaving = False
        self._heard_s = self._unread_since_s = house.now_s

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._kept = keeps_buffers(asyncio.get_running_loop())
        tune(transport)
        self._house.came(self)

    def get_buffer(self, _: int) -> memoryview:
        return self._framer.room()

    def buffer_updated(self, nbytes: int) -> None:
        if self._leaving:
            return
        self._framer.took(nbytes)
        self._heard_s = self._house.now_s
        self._house.counts.bytes_in += nbytes
        self._read()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, _: Exception | None) -> None:
        self._end()

    def pause_writing(self) -> None:
        self._unread, self._unread_since_s = True, self._house.now_s
        for upstream in self._upstreams.values():
            upstream.pause(True)

    def resume_writing(self) -> None:
        self._unread = False
        for upstream in self._upstreams.values():
            upstream.pause(False)
        self._go_on()

    def hang_up(self, why: str) -> None:
        """Ends the connection at once; `why` is for the log."""
        if self._transport is not None and not self._transport.is_closing():
            self._house.hung_up(self.peer, why)
            self._transport.abort()
        self._end()

    @property
    def peer(self) -> str:
        """Where the client is, without its port."""
        found = self._transport.get_extra_info("peername") if self._transport else None
        return str(found[0]) if found else "unknown"

    @property
    def held(self) -> bytearray:
        """Where what it sends is received."""
        return self._framer.buffer

    def drain(self) -> None:
        """Reads nothing more, and ends once what was read is answered."""
        self._draining = True
        self._pace()
        self._end_if_drained()

    def look(self, now_s: float) -> None:
        """Once a second: ends what takes too long, and gives back memory."""
        for upstream in list(self._upstreams.values()):
            if upstream.late(now_s):
                return
        quiet_s = now_s - self._heard_s
        if self._unread and now_s - self._unread_since_s > UNREAD_S:
            self.hang_up(f"it has read nothing for {UNREAD_S:g} s")
        elif self._framer.waiting and not self._turns and quiet_s > HALF_REQUEST_S:
            self.hang_up(f"it sent half a request, and then nothing for {HALF_REQUEST_S:g} s")
        elif not self._turns and quiet_s > IDLE_S:
            self.hang_up(f"it has asked nothing for {IDLE_S:g} s")
        elif quiet_s > 1 and not self._turns and len(self._framer.buffer) > KEPT_BYTES:
            self._framer.let_go()
            for upstream in self._upstreams.values():
                upstream.framer.let_go()

    def _read(self) -> None:
        """Takes what was received, one request after another. What one of them leads to may end the connection."""
        if self._reading:
            return
        self._reading = True
        try:
            while not self._full and (found := self._framer.next(REQUEST_BYTES_MAX)) is not None:
                self._take(found)
        except WireError as error:
            self.hang_up(f"it does not keep to the protocol: {error}")
        finally:
            self._reading = False
        self._pace()

    @property
    def _full(self) -> bool:
        """Whether nothing more may be begun now."""
        return (
            self._transport is None
            or self._errand is not None
            or self._draining
            or self._unread
            or bool(self._choked)
            or len(self._turns) >= UNANSWERED_MAX
        )

    def _pace(self) -> None:
        """Reads on, or nothing more, as what is under way demands."""
        transport = self._transport
        if transport is None or self._leaving or transport.is_closing():
            return
        if (full := self._full) != self._paused:
            self._paused = full
            if full:
                transport.pause_reading()
            else:
                transport.resume_reading()

    def _go_on(self) -> None:
        """Something may be begun again: first what was received already."""
        self._read()
        self._end_if_drained()

    def _take(self, found: memoryview) -> None:
        request = read_request(found)
        self._house.counts.requests[request.key] += 1
        self._carry_out(request, self._session.move(request, self._house.seen), found)

    def _carry_out(self, request: Request, move: Move, found: memoryview) -> None:
        match move:
            case Pass():
                self._pass_on(request, move, found)
            case Say(body):
                self._answer(self._turns.begin(request), body)
            case Run(errand, wait_s):
                self._house.counts.errands += 1
                turn = self._turns.begin(request)
                self._errand = Going(errand, partial(self._ask, wait_s), partial(self._come_back, turn), self.hang_up)
                self._errand.begin()
            case HangUp(why):
                self.hang_up(why)
            case Drop():
                pass

    def _come_back(self, turn: Turn, body: Parts) -> None:
        self._errand = None
        self._answer(turn, body)

    def _pass_on(self, request: Request, move: Pass, found: memoryview) -> None:
        upstream = self._upstream(move.place)
        if upstream is None:
            self.hang_up(f"{move.place.cluster} has no broker {move.place.node} now")
            return
        asked = None
        if move.answered:
            done = partial(self._passed_back, self._turns.begin(request), upstream, move.rewrite)
            asked = Asked(request.key, request.number, deadline(move.wait_s), done)
        sent: Sequence[Buffer] = [self._framer.with_size(found)]
        if move.body is not None:
            tags = shape_of(request.key, request.version).tags_in_request
            sent = frame(request.key, request.version, request.number, request.client_id or "", move.body, tags)
        upstream.ask(asked, sent)
        if self._kept and upstream.unsent:
            self._framer.let_go()

    def _passed_back(self, turn: Turn, upstream: Upstream, rewrite: Rewrite | None, found: memoryview | None) -> None:
        if found is None:
            self.hang_up(f"its broker {upstream.place.node} of {upstream.place.cluster} is gone: {upstream.ended_by}")
            return
        request = turn.request
        try:
            tags = shape_of(request.key, request.version).tags_in_answer
            parts = rewrite(found, read_response_header(found, tags)[1]) if rewrite else None
        except Exception as error:  # the client would wait for its answer for ever
            self.hang_up(f"an answer of its broker cannot be used: {in_words(error)}")
            return
        if parts is None:
            self._finish(turn, [upstream.framer.with_size(found)], upstream)
        else:
            self._finish(turn, answer_frame(request.key, request.version, request.number, parts), upstream)

    def _answer(self, turn: Turn, body: Parts) -> None:
        request = turn.request
        self._finish(turn, answer_frame(request.key, request.version, request.number, body), None)

    def _finish(self, turn: Turn, parts: Sequence[Buffer], owner: Upstream | None) -> None:
        """The answer goes out in its turn. `owner`: whose buffer it may lie in."""
        if not self._turns.take(turn, parts):
            return
        self._write(parts, owner)
        for ready in self._turns.ready():
            self._write(ready, None)
        if self._paused and not self._reading:
            self._go_on()
        elif self._draining:
            self._end_if_drained()

    def _write(self, parts: Sequence[Buffer], owner: Upstream | None) -> None:
        transport = self._transport
        if transport is None:
            return
        size = sum(map(len, parts))
        self._house.counts.bytes_out += size
        if len(parts) > 1 and size <= _SMALL_BYTES:
            parts = [b"".join(parts)]
        for part in parts:
            transport.write(part)
        if owner is not None and self._kept and transport.get_write_buffer_size():
            owner.framer.let_go()

    def _ask(self, wait_s: float, ask: Ask, heard: Callable[[Said], None]) -> None:
        """Asks in the client's name, over its own connection to that broker."""
        upstream = self._upstream(ask.place)
        if upstream is None:
            # Not at once: the errand has more to ask before it hears anything.
            asyncio.get_running_loop().call_soon(heard, None)
            return
        shape = shape_of(ask.key, ask.version)
        number = self._house.number()

        def done(found: memoryview | None) -> None:
            if found is None:
                heard(None)
                return
            # The next answer of that broker comes into the same buffer.
            heard(memoryview(bytes(found[read_response_header(found, shape.tags_in_answer)[1] :])))

        asked = Asked(ask.key, number, deadline(wait_s), done)
        upstream.ask(asked, frame(ask.key, ask.version, number, self._client_id, ask.body, shape.tags_in_request))

    @property
    def _client_id(self) -> str:
        return self._turns.latest.request.client_id or ""

    def _upstream(self, place: Place) -> Upstream | None:
        """The client's own connection there, dialled where it has none; None where there is no such broker now."""
        if place.node == ANY:
            place = self._anybody(place.cluster)
        known = self._upstreams.get(place)
        if known is not None:
            return known
        broker = self._house.seen.clusters[place.cluster].brokers.get(place.node)
        if broker is None:
            return None
        made = self._upstreams[place] = Upstream(place, self)
        made.dial(broker)
        if self._unread:
            made.pause(True)
        return made

    def _anybody(self, cluster: str) -> Place:
        """A broker of the cluster, one to which there is a connection already where there is one."""
        for place in self._upstreams:
            if place.cluster == cluster:
                return place
        nodes = list(self._house.seen.clusters[cluster].brokers)
        return Place(cluster, random.choice(nodes) if nodes else ANY)

    def choked(self, upstream: Upstream) -> None:
        self._choked.add(upstream.place)
        self._pace()

    def flows(self, upstream: Upstream) -> None:
        self._choked.discard(upstream.place)
        if not self._reading:
            self._go_on()

    def lost(self, upstream: Upstream) -> None:
        self._house.lost()
        if self._upstreams.get(upstream.place) is upstream:
            del self._upstreams[upstream.place]

    def _end_if_drained(self) -> None:
        """Says that nothing more comes. The client closes: a socket that is closed with bytes unread takes back what
        was sent on it last."""
        if self._draining and not self._turns and not self._leaving and self._transport is not None:
            self._leaving = True
            self._transport.write_eof()
            self._transport.resume_reading()

    def _end(self) -> None:
        """Forgets the client, and ends its connections to brokers."""
        if self._transport is None:
            return
        self._transport = None
        self._turns.clear()
        if self._errand is not None:
            self._errand.close()
            self._errand = None
        for upstream in self._upstreams.values():
            upstream.close()
        self._upstreams.clear()
        self._house.went(self)
