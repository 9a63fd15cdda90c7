"""One client's connection: requests are answered in order.

Bytes are sent from the buffer that received them. While one side accepts no more, the other is not read.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, assert_never, cast

from twinshore.config.errors import WireError
from twinshore.config.repeat_filter import describe_error
from twinshore.kafka.clock import steady_s
from twinshore.kafka.protocol.apis import PRODUCE, api_format, api_name
from twinshore.kafka.protocol.framing import SIZE_BYTES, FrameReader, frame_request, read_response_header
from twinshore.kafka.protocol.primitives import I16, Buffer
from twinshore.kafka.protocol.requests import Request, read_request, response_frame
from twinshore.proxy.auth import LOGIN_TIMEOUT_S
from twinshore.proxy.broker_connection import (
    BrokerConnection,
    PendingBrokerRequest,
    deadline_after,
    is_closed_by_peer,
    retains_write_buffers,
    set_socket_options,
)
from twinshore.proxy.broker_connections import BrokerConnections, InFlightWrites
from twinshore.proxy.context import ConnectedClient, ProxyContext
from twinshore.proxy.core import model
from twinshore.proxy.core.breakers import CircuitBreakers
from twinshore.proxy.core.limits import RequestMemory
from twinshore.proxy.core.login import LOGIN_REQUEST_BYTES_MAX, ClientPrincipal
from twinshore.proxy.core.message_codec import describe_wire_error
from twinshore.proxy.core.protected_topics import ProtectedParts
from twinshore.proxy.core.traffic import record_latency
from twinshore.proxy.protected_writes import HeldResponse
from twinshore.state.core.proxy_values import BreakerKind, TrafficCounter

# As much as brokers take by default (socket.request.max.bytes).
REQUEST_BYTES_MAX: Final = 100 << 20
# No other request carries records; each is read as a whole, while all clients wait.
SMALL_REQUEST_BYTES_MAX: Final = 1 << 20
INITIAL_BUFFER_BYTES: Final = 64 << 10
PARTIAL_REQUEST_TIMEOUT_S: Final = 30.0
# A slow client keeps memory from others.
SLOW_REQUEST_TIMEOUT_S: Final = 120.0
# A placeholder, never reported.
_NOBODYS: Final = TrafficCounter()
IN_FLIGHT_REQUESTS_MAX: Final = 64
IDLE_TIMEOUT_S: Final = 11 * 60.0
UNREAD_RESPONSE_TIMEOUT_S: Final = 300.0
# A held request is refused after this, so that the client retries before it gives up.
PARKED_REQUEST_TIMEOUT_S: Final = 15.0
_SMALL_BYTES: Final = 16 << 10


class RequestFramer(FrameReader):
    """Buffers requests until each is whole.

    Beyond its first bytes, a large request needs memory from the shared budget, and an API that allows the size.
    `waits`: a request waits for memory; `go_on` is called once granted.
    """

    __slots__ = ("_budget", "_charged", "_go_on", "_paused_s", "_reserved", "_since_s", "waits")

    def __init__(self, budget: RequestMemory, go_on: Callable[[], None]) -> None:
        super().__init__(INITIAL_BUFFER_BYTES)
        self._budget, self._go_on = budget, go_on
        self._charged = self._reserved = 0
        self._since_s, self._paused_s, self.waits = 0.0, -math.inf, False

    def request(self, bytes_max: int) -> memoryview | None:
        """Returns the next whole request without size field. WireError if too large for the API."""
        found = self.next(bytes_max)
        if found is not None:
            self._reserved = 0
            if len(found) > SMALL_REQUEST_BYTES_MAX:
                _must_be_allowed(found, len(found))
        elif self.waiting >= INITIAL_BUFFER_BYTES and not self._reserved:
            _must_be_allowed(self.begun, self.wanted)
            self._reserve(self.wanted)
        return found

    def _reserve(self, size: int) -> None:
        self._reserved = size
        if size <= self._charged or self._budget.take(size - self._charged, self._granted):
            self._charged = max(size, self._charged)
            self.trust(size)
        else:
            self.waits = True

    def _granted(self) -> None:
        self.waits, self._charged = False, max(self._reserved, self._charged)
        self.trust(self._reserved)
        self._go_on()

    def settle(self) -> None:
        """Give memory back once requests are sent on; keep what the buffer takes, unless others wait."""
        if self._charged and self._budget.is_short:
            self.rest()
        held = len(self.buffer)
        keeps = max(self._reserved, held if held > INITIAL_BUFFER_BYTES else 0)
        if keeps < self._charged and not self.waits:
            charged, self._charged = self._charged, keeps
            self._budget.give(charged - keeps)

    def look(self, now_s: float, quiet_s: float, *, paused: bool, busy: bool) -> str:
        """Give back memory, once a second. Returns why to disconnect, else empty.

        `quiet_s`: time since the client sent something; `paused`: the client is not read; `busy`: a request is
        unanswered.
        """
        self.rest()
        if paused:
            self._paused_s = now_s
        if paused or not self._reserved:
            self._since_s = now_s
        quiet_s = min(quiet_s, now_s - self._paused_s)
        if not busy and self.waiting and quiet_s > PARTIAL_REQUEST_TIMEOUT_S:
            return f"it sent half a request, and then nothing for {PARTIAL_REQUEST_TIMEOUT_S:g} s"
        if now_s - self._since_s > SLOW_REQUEST_TIMEOUT_S:
            return f"it has not sent a request to its end within {SLOW_REQUEST_TIMEOUT_S:g} s"
        if not busy and quiet_s > 1 and len(self.buffer) > INITIAL_BUFFER_BYTES:
            self.let_go()
        self.settle()
        return ""

    def close(self) -> None:
        self._budget.leave(self._granted)
        charged, self._charged = self._charged, 0
        self._budget.give(charged)


def _must_be_allowed(begun: memoryview, size: int) -> None:
    (key,) = I16.unpack_from(begun)
    if key != PRODUCE and size > SMALL_REQUEST_BYTES_MAX:
        raise WireError(f"{api_name(key)} has {size} bytes: {SMALL_REQUEST_BYTES_MAX} are taken at most")


OnResponse = Callable[[memoryview | None], None]


def with_breaker_timing(
    done: OnResponse, breakers: CircuitBreakers, move: model.ForwardRequest, client: str | None
) -> OnResponse:
    """Wrap `done`: traffic counts and breakers get the response time."""

    def told(took_ms: float) -> None:
        record_latency(move.counters, took_ms)
        if breakers.times:
            breakers.waited(BreakerKind.PRODUCE, move.topics, client or "", took_ms)

    return _clocked(done, told) if move.topics else done


def with_flow_timing(done: OnResponse, counters: Sequence[TrafficCounter]) -> OnResponse:
    """Wrap `done`: traffic counts get the response time."""
    return _clocked(done, partial(record_latency, counters)) if counters else done


def _clocked(done: OnResponse, told: Callable[[float], None]) -> OnResponse:
    """Wrap `done`: `told` gets the milliseconds until the call."""
    began_s = steady_s()

    def heard(found: memoryview | None) -> None:
        told((steady_s() - began_s) * 1000)
        done(found)

    return heard


class RunningFanOut:
    """Sends a fan-out's requests together, and continues once all are answered or lost.

    `ask` calls back once, later. `done` gets the response, and whether a broker did not answer. `guest` is
    disconnected after an error.
    """

    def __init__(
        self,
        errand: model.FanOutSteps | model.WaitingSteps,
        ask: Callable[[model.BrokerRequest, Callable[[model.BrokerResponse], None]], None],
        done: Callable[[model.Parts, bool], None],
        client: ConnectedClient,
    ) -> None:
        self._errand, self._ask, self._done, self._client = errand, ask, done, client
        self._found: list[model.BrokerResponse] = []
        self._left = 0
        self._over = self._unheard = False

    def begin(self) -> None:
        self._step(None)

    def close(self) -> None:
        """Ignore further responses: the client is gone."""
        self._over = True
        self._errand.close()

    def _step(self, said: Sequence[model.BrokerResponse] | None) -> None:
        try:
            asks = next(self._errand) if said is None else self._errand.send(said)
        except StopIteration as end:
            self._done(end.value, self._unheard)
            return
        except Exception as error:  # else the client would wait for ever
            self._client.hang_up(f"an answer of a broker cannot be used: {describe_error(error)}")
            return
        if isinstance(asks, model.WaitStep):
            asks.start(self._go_on)
            return
        if isinstance(asks, model.PauseStep):
            asyncio.get_running_loop().call_later(asks.wait_s, self._go_on)
            return
        self._found, self._left = [None] * len(asks), len(asks)
        for index, ask in enumerate(asks):
            self._ask(ask, with_flow_timing(partial(self._heard, index), ask.counters))

    def _go_on(self) -> None:
        if not self._over:
            self._step(())

    def _heard(self, index: int, body: model.BrokerResponse) -> None:
        if self._over:
            return
        self._found[index] = body
        self._unheard |= body is None
        self._left -= 1
        if not self._left:
            self._step(self._found)


class ParkedRequest:
    """The one request of a client that waits for a switch or for its topic's home."""

    def __init__(self, client: ConnectedClient, context: ProxyContext) -> None:
        self._client, self._context = client, context
        self.whole: memoryview | None = None
        self._move = model.ParkRequest(None)
        self._since_s = 0.0

    def __bool__(self) -> bool:
        return self.whole is not None

    @property
    def request(self) -> Request:
        """The parked request; there must be one."""
        assert self.whole is not None
        return read_request(self.whole[SIZE_BYTES:])

    def keep(self, whole: memoryview, move: model.ParkRequest) -> None:
        """Park the request, or keep it parked with a new decision."""
        if self.whole is None:
            self.whole, self._since_s = memoryview(bytes(whole)), steady_s()
            self._context.holding.add(self._client)
            self._context.counts.held += 1
        self._move = move

    def is_parked_longer(self, than_s: float) -> bool:
        """Whether the client may have given up."""
        return self.whole is not None and steady_s() - self._since_s > than_s

    def refusal(self, *, is_last: bool) -> model.Parts | None:
        """Returns the response that causes a retry; None to disconnect. `is_last`: the client is not read any more."""
        return self._move.refusal if is_last or not self._move.goes_first else None

    def let_go(self) -> memoryview | None:
        """Unpark and return the request."""
        whole, self.whole = self.whole, None
        self._context.holding.discard(self._client)
        return whole


class ResponseSlot:
    """A response's turn."""

    __slots__ = ("parts", "request")

    def __init__(self, request: Request) -> None:
        self.request = request
        self.parts: model.Parts | None = None


class ClientQuota:
    """Counts one client's traffic, and pauses a client above the quota.

    `slowed`: paused; `go_on` is called to resume. `software`: the library named before login.
    """

    def __init__(self, context: ProxyContext, go_on: Callable[[], None]) -> None:
        self._context, self._go_on = context, go_on
        self._client, self._counter = "", _NOBODYS
        self._there = False
        self.slowed, self.software = False, ""

    def asks(self, request: Request, size: int) -> None:
        if not self._there:
            self._there, self._client = True, request.client_id or ""
            self._counter = self._context.traffic.comes(self._client)
            self._counter.software = self.software or self._counter.software
        self._context.counts.requests[request.key] += 1
        self._counter.requests += 1
        self.spend(request, size)

    def spend(self, request: Request, size: int) -> None:
        """Count bytes sent or received."""
        self._counter.bytes += size
        if not self._context.quotas.there:
            return
        wait_s = self._context.quotas.take(request.client_id or "", size, steady_s())
        if wait_s > 0 and not self.slowed:
            self.slowed = True
            self._context.counts.slowed += 1
            asyncio.get_running_loop().call_later(wait_s, self._hurry)

    def close(self) -> None:
        if self._there:
            self._context.traffic.goes(self._client, self._counter)
            self._there = False

    def _hurry(self) -> None:
        self.slowed = False
        self._go_on()


class ClientConnection(asyncio.BufferedProtocol):
    """A client's connection.

    `place`: the broker of the port. `address`: from a PROXY header. `is_in`: admitted and counted already.
    """

    def __init__(
        self, place: model.BrokerId | None, context: ProxyContext, address: str = "", *, is_in: bool = False
    ) -> None:
        self._context, self._told_address, self._is_in = context, address, is_in
        self._session = context.session(place)
        self._handshake = context.gate.entry()
        self._framer = RequestFramer(context.budget, self._go_on)
        # Responses due, in order. A list, since an empty deque takes ten times the memory.
        self._turns: list[ResponseSlot] = []
        self._spending = ClientQuota(context, self._go_on)
        self._brokers = BrokerConnections(context, self._pace, self._flows)
        self._errand: RunningFanOut | None = None
        self._held = ParkedRequest(self, context)
        self._writing = InFlightWrites(context, self._brokers.ask_after_writes)
        self._protected: set[HeldResponse] = set()
        self._transport: asyncio.Transport | None = None
        self._kept = True
        self._reading = self._paused = self._unread = self._draining = self._leaving = False
        self._heard_s = self._unread_since_s = context.now_s

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # as every loop's is
        self._address = self.peer
        if not self._is_in and not self._context.admit_client(self._address):
            self._transport.abort()
            self._transport = None
            return
        self._session.comes_from(self._address)
        self._kept = self._context.gate.tls or retains_write_buffers(asyncio.get_running_loop())
        self._brokers.principal = self._context.gate.who(transport)
        set_socket_options(transport)
        self._context.came(self)
        if self._handshake is None and (why := self._context.gate.refuses(self._brokers.principal)):
            self.hang_up(why)
            return
        self._read()  # data may have come right behind the TLS handshake

    def set_broker(self, place: model.BrokerId | None) -> None:
        """Set the broker named in the TLS handshake."""
        self._session.place = place

    def get_buffer(self, _: int) -> memoryview:
        return self._framer.room()

    def buffer_updated(self, nbytes: int) -> None:
        if self._leaving:
            return
        self._framer.took(nbytes)
        self._heard_s = self._context.now_s
        self._context.counts.bytes_in += nbytes
        self._read()

    def connection_lost(self, _: Exception | None) -> None:
        self._end()

    def pause_writing(self) -> None:
        self._unread, self._unread_since_s = True, self._context.now_s
        self._brokers.pause(True)

    def resume_writing(self) -> None:
        self._unread = False
        self._brokers.pause(False)
        self._go_on()

    def hang_up(self, why: str) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._context.hung_up(self.peer, why)
            self._transport.abort()
        self._end()

    @property
    def peer(self) -> str:
        """The client's address without port."""
        found = self._transport.get_extra_info("peername") if self._transport else None
        return self._told_address or (str(found[0]) if found else "unknown")

    def drain(self) -> None:
        self._draining = True
        self._refuse_held()
        self._pace()
        self._end_if_drained()

    def look(self, now_s: float) -> None:
        if self._brokers.look(now_s):
            return
        if self._held.is_parked_longer(PARKED_REQUEST_TIMEOUT_S):
            self._refuse_held()
            self._go_on()
        quiet_s = now_s - self._heard_s
        if self._unread and now_s - self._unread_since_s > UNREAD_RESPONSE_TIMEOUT_S:
            self.hang_up(f"it has read nothing for {UNREAD_RESPONSE_TIMEOUT_S:g} s")
        elif why := self._framer.look(now_s, quiet_s, paused=self._paused, busy=bool(self._turns)):
            self.hang_up(why)
        elif self._handshake is not None and self._handshake.late(now_s):
            self.hang_up(f"it has not logged in within {LOGIN_TIMEOUT_S:g} s")
        elif not self._turns and quiet_s > IDLE_TIMEOUT_S:
            self.hang_up(f"it has asked nothing for {IDLE_TIMEOUT_S:g} s")

    def _read(self) -> None:
        """Process received requests in order. A request may end the connection."""
        if self._reading:
            return
        self._reading = True
        try:
            while self._framer.waiting and not self._full:
                if (found := self._framer.request(self._bytes_max)) is None:
                    break
                self._take(found)
        except WireError as error:
            self.hang_up(describe_wire_error(error))
        finally:
            self._reading = False
        self._pace()

    @property
    def _bytes_max(self) -> int:
        return REQUEST_BYTES_MAX if self._handshake is None else LOGIN_REQUEST_BYTES_MAX

    @property
    def _full(self) -> bool:
        """Whether no request may start now."""
        return (
            self._transport is None
            or (self._handshake is not None and self._handshake.busy)
            or self._errand is not None
            or self._framer.waits
            or bool(self._held)
            or self._draining
            or self._unread
            or self._spending.slowed
            or self._brokers.is_congested
            or len(self._turns) >= IN_FLIGHT_REQUESTS_MAX
        )

    def _pace(self) -> None:
        transport = self._transport
        if transport is None or self._leaving or transport.is_closing():
            return
        full = self._full
        if not full:
            self._framer.settle()
        if full != self._paused:
            self._paused = full
            if full:
                transport.pause_reading()
            else:
                transport.resume_reading()

    def _flows(self) -> None:
        if not self._reading:
            self._go_on()

    def _go_on(self) -> None:
        """Continue, first with received requests."""
        self._read()
        self._end_if_drained()

    def _take(self, found: memoryview) -> None:
        if self._handshake is not None:
            self._handshake.take(found, self._context.table.offers, self)
            return
        request = read_request(found)
        self._spending.asks(request, len(found))
        self._carry_out(
            request, self._session.move(request, self._context.known()), self._framer.frame_with_size(found)
        )

    def judge_again(self) -> None:
        if not self._held or self._transport is None:
            return
        if is_closed_by_peer(self._transport):
            self.hang_up("it left while its request was held")
            return
        request = self._held.request
        move = self._session.move(request, self._context.known())
        if isinstance(move, model.ParkRequest):
            self._held.keep(request.view, move)
        elif (whole := self._held.let_go()) is not None:
            self._carry_out(request, move, whole)
            self._go_on()

    def prove(self, torn: frozenset[str]) -> None:
        """Have brokers confirm unacknowledged writes. Disconnect if writes to `torn` topics are unanswered."""
        self._writing.prove()
        if torn and self._writing.has_in_flight(torn):
            self.hang_up("its topic left by force a home that has not answered it")

    def _refuse_held(self) -> None:
        """Refuse the parked request, never to be sent: the client stops waiting."""
        if self._held:
            request, refusal = self._held.request, self._held.refusal(is_last=self._draining)
            self._held.let_go()
            if refusal is None:
                self.hang_up("its request was held for too long")
            else:
                self._answer(self._begin_turn(request), refusal)

    def _carry_out(self, request: Request, move: model.RequestDecision, whole: memoryview) -> None:
        match move:
            case model.ForwardRequest():
                self._pass_on(request, move, whole)
            case model.RespondNow(body):
                self._answer(self._begin_turn(request), body)
            case model.RespondLater(body, wait_s):
                slot = self._begin_turn(request)
                asyncio.get_running_loop().call_later(wait_s, self._answer, slot, body)
            case model.FanOut() | model.WaitingFanOut():
                self._context.counts.errands += 1
                self._writing.begins(move.topics)
                leases, held = self._context.subscription_lapses(move.topics), self._hold(move.protected)
                back = partial(self._come_back, self._begin_turn(request), move.topics, leases, held)
                ask = partial(self._brokers.ask, request.client_id or "", move.wait_s)
                self._errand = RunningFanOut(move.errand, ask, back, self)
                self._errand.begin()
            case model.ParkRequest():
                self._held.keep(whole, move)
            case model.DisconnectClient(why):
                self.hang_up(why)
            case model.DiscardRequest():
                pass
            case _:
                assert_never(move)

    def say(self, frame: model.Parts) -> None:
        self._write(frame, None)

    def let_in(self, principal: ClientPrincipal) -> None:
        self._spending.software = self._session.is_made_with(self._handshake.software if self._handshake else "")
        self._handshake, self._brokers.principal = None, principal
        self._go_on()

    def see_out(self, frame: model.Parts, why: str) -> None:
        if self._transport is not None:
            self._context.refused(self.peer, why)
            self._write(frame, None)
            self._transport.close()
        self._end()

    def _come_back(
        self,
        slot: ResponseSlot,
        topics: tuple[str, ...],
        leases: Mapping[str, int],
        held: HeldResponse | None,
        body: model.Parts,
        lost: bool,
    ) -> None:
        self._errand = None
        if held is not None:
            held.answered(b"".join(body), 0, partial(self._let_out, slot, held, topics, leases))
            return
        self._writing.ends(topics, lost=lost)
        if self._may_tell(leases):
            self._answer(slot, body)

    def _hold(self, protected: ProtectedParts | None) -> HeldResponse | None:
        """Begins to hold the response of a write to protected topics; None for any other request."""
        if protected is None:
            return None
        assert self._context.keeper is not None  # who found the request to be protected
        held = HeldResponse(self._context.keeper, protected)
        self._protected.add(held)
        return held

    def _let_out(
        self,
        slot: ResponseSlot,
        held: HeldResponse,
        topics: tuple[str, ...],
        leases: Mapping[str, int],
        body: model.Parts,
    ) -> None:
        """The response is decided. Until then the write counts as on its way, so that a switch waits for it."""
        self._protected.discard(held)
        self._writing.ends(topics)
        if self._transport is not None and self._may_tell(leases):
            self._answer(slot, body)

    def _may_tell(self, leases: Mapping[str, int]) -> bool:
        """Whether a write counts; else disconnect.

        While no switch waited for this proxy, as when the process was suspended, the topic may have moved. What the old
        home took then may be lost, so the client must send again.
        """
        if self._context.has_no_lapse_since(leases):
            return True
        self.hang_up("it wrote while no switch waited for this proxy")
        return False

    def _pass_on(self, request: Request, move: model.ForwardRequest, whole: memoryview) -> None:
        broker = self._brokers.to(move.place)
        if broker is None:
            self.hang_up(f"{move.place.cluster} has no broker {move.place.node} now")
            return
        asked = None
        if move.answered:
            self._writing.begins(move.topics)
            leases = self._context.subscription_lapses(move.topics, move.place.cluster)
            held = self._hold(move.protected)
            done = partial(self._passed_back, self._begin_turn(request), broker, move, leases, held)
            heard = with_breaker_timing(done, self._context.breakers, move, request.client_id)
            asked = PendingBrokerRequest(request.key, request.number, deadline_after(move.wait_s), heard)
        else:
            self._writing.begin_unacknowledged(broker.place, move.topics)
        sent: Sequence[Buffer] = [whole]
        if move.body is not None:
            tags = api_format(request.key, request.version).tags_in_request
            sent = frame_request(request.key, request.version, request.number, request.client_id or "", move.body, tags)
        broker.ask(asked, sent)
        if self._kept and broker.unsent:
            self._framer.let_go()

    def _passed_back(
        self,
        slot: ResponseSlot,
        broker: BrokerConnection,
        move: model.ForwardRequest,
        leases: Mapping[str, int],
        held: HeldResponse | None,
        found: memoryview | None,
    ) -> None:
        if found is None:
            self.hang_up(f"its broker {broker.place.node} of {broker.place.cluster} is gone: {broker.end_reason}")
            return
        request = slot.request
        if held is None:
            self._writing.ends(move.topics)
            if not self._may_tell(leases):
                return
        self._spending.spend(request, len(found))
        try:
            tags = api_format(request.key, request.version).tags_in_response
            parts = move.rewrite(found, read_response_header(found, tags)[1]) if move.rewrite else None
        except Exception as error:  # else the client would wait for ever
            self.hang_up(f"an answer of its broker cannot be used: {describe_error(error)}")
            return
        if held is not None:
            assert not isinstance(parts, model.RespondLater)  # as only Fetch is answered later
            body, at = (found, read_response_header(found, tags)[1]) if parts is None else (b"".join(parts), 0)
            held.answered(body, at, partial(self._let_out, slot, held, move.topics, leases))
        elif isinstance(parts, model.RespondLater):
            asyncio.get_running_loop().call_later(parts.wait_s, self._answer, slot, parts.body)
        elif parts is None:
            self._finish(slot, [broker.frame_reader.frame_with_size(found)], broker)
        else:
            self._finish(slot, response_frame(request.key, request.version, request.number, parts), broker)

    def _begin_turn(self, request: Request) -> ResponseSlot:
        self._turns.append(ResponseSlot(request))
        return self._turns[-1]

    def _answer(self, slot: ResponseSlot, body: model.Parts) -> None:
        request = slot.request
        self._finish(slot, response_frame(request.key, request.version, request.number, body), None)

    def _finish(self, slot: ResponseSlot, parts: Sequence[Buffer], owner: BrokerConnection | None) -> None:
        """Send a response in its turn. `owner`: the connection whose buffer may hold the bytes."""
        if not self._turns or self._turns[0] is not slot:
            slot.parts = [b"".join(parts)]
            return
        del self._turns[0]
        self._write(parts, owner)
        while self._turns and (ready := self._turns[0].parts) is not None:
            del self._turns[0]
            self._write(ready, None)
        if self._paused and not self._reading:
            self._go_on()
        elif self._draining:
            self._end_if_drained()

    def _write(self, parts: Sequence[Buffer], owner: BrokerConnection | None) -> None:
        transport = self._transport
        if transport is None:
            return
        size = sum(map(len, parts))
        self._context.counts.bytes_out += size
        if len(parts) > 1 and size <= _SMALL_BYTES:
            parts = [b"".join(parts)]
        for part in parts:
            transport.write(part)
        if owner is not None and self._kept and transport.get_write_buffer_size():
            owner.frame_reader.let_go()

    def _end_if_drained(self) -> None:
        """Send EOF once drained. The client closes: a close from here could discard the last response."""
        if self._draining and not self._turns and not self._leaving and self._transport is not None:
            self._leaving = True
            if self._transport.can_write_eof():
                self._transport.write_eof()
                self._transport.resume_reading()
            else:  # TLS has a close message, which the client answers
                self._transport.resume_reading()
                self._transport.close()

    def _end(self) -> None:
        if self._transport is None:
            return
        self._transport = None
        self._framer.close()
        self._context.crowd.goes(self._address)
        self._turns.clear()
        self._session.close()
        self._spending.close()
        self._held.let_go()
        for held in self._protected:
            held.give_up()
        self._protected.clear()
        self._writing.close()
        if self._handshake is not None:
            self._handshake.close()
        if self._errand is not None:
            self._errand.close()
            self._errand = None
        self._brokers.close()
        self._context.went(self)
