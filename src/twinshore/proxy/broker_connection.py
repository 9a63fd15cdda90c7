"""One client's connection to a broker: responses come in the order of requests.

TLS and login come first. A login is renewed in time, once all requests are answered.
"""

from __future__ import annotations

import asyncio
import select
import socket
import ssl
import sys
import threading
from asyncio import sslproto
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Final, NamedTuple, Protocol, TypeVar, cast

from twinshore.config.errors import KafkaError, TwinshoreError, WireError
from twinshore.config.frozen import PROXY_CLIENT_ID
from twinshore.config.model import Cluster, SaslMechanism, Security
from twinshore.kafka.clock import steady_s, wall_ms
from twinshore.kafka.connection import read_credentials
from twinshore.kafka.oauth import Token, fetch_token
from twinshore.kafka.protocol.apis import api_format, api_name, response_bytes_max
from twinshore.kafka.protocol.framing import Dialogue, FrameReader, RequestBody, read_response_header
from twinshore.kafka.protocol.framing import frame_request as framed
from twinshore.kafka.protocol.primitives import I32, Buffer
from twinshore.kafka.protocol.sasl import authenticate, negotiate_mechanism
from twinshore.kafka.transport import DEAD_PEER_TIMEOUT_S, explain_tls_error
from twinshore.proxy.core.model import BrokerEndpoint, BrokerId

# How long a token without an expiry serves.
OPAQUE_TOKEN_LIFETIME_S: Final = 10.0
# The time to connect, including TLS and login.
CONNECT_TIMEOUT_S: Final = 10.0
# Log in again before the broker ends the session.
REAUTHENTICATE_AT_FRACTION: Final = 0.8
# The size of a TLS record.
_TLS_BYTES: Final = 16 << 10
# A broker that lets logins end at once would be logged in to without end.
SESSION_LIFETIME_MIN_S = 0.1


class TokenCache:
    """OAuth tokens of a process, one for each cluster's user, not for each client.

    A token serves for half its life: a session opened with it then lasts as long again. A token file is read each time.
    Thread-safe; concurrent callers wait for the fetch.
    """

    def __init__(
        self,
        fetch: Callable[[Security, float], Token] = lambda security, left_s: fetch_token(security, timeout_s=left_s),
        now_s: Callable[[], float] = lambda: wall_ms() / 1000,
    ) -> None:
        self._fetch, self._now_s = fetch, now_s
        self._kept: dict[Security, tuple[str, float]] = {}  # tokens, and until when they serve
        self._turns: dict[Security, threading.Lock] = {}
        self._lock = threading.Lock()

    def of(self, security: Security, timeout_s: float) -> str:
        """Returns a token for this user. KafkaError if there is none."""
        if not security.token_url:
            return self._fetch(security, timeout_s).text
        with self._lock:
            turn = self._turns.setdefault(security, threading.Lock())
        with turn:
            now_s = self._now_s()
            if security not in self._kept or now_s >= self._kept[security][1]:
                token = self._fetch(security, timeout_s)
                lasts_s = (token.expires_s - now_s) / 2 if token.expires_s else OPAQUE_TOKEN_LIFETIME_S
                self._kept[security] = token.text, now_s + lasts_s
            return self._kept[security][0]


LoginResult = TypeVar("LoginResult")
SendQuestion = Callable[[RequestBody], Awaitable[memoryview]]


@dataclass(frozen=True, slots=True)
class BrokerAccess:
    """How to connect to a cluster's brokers. `given`: the client's password, in place of a stored one."""

    cluster: Cluster
    tokens: TokenCache
    context: ssl.SSLContext | None = None
    given: str = field(default="", repr=False)

    async def log_in(self, broker: BrokerEndpoint, ask: SendQuestion) -> float:
        """Log in. Returns the seconds until the next login, 0 for never. KafkaError if refused."""
        security = self.cluster.security
        mechanism = security.sasl
        if mechanism is None:
            return 0.0
        place = self._place(broker)
        await _hold(negotiate_mechanism(mechanism, place), ask)
        # In threads, since fetching tokens, reading files and SCRAM proofs take long.
        given = self.given
        if mechanism is SaslMechanism.OAUTHBEARER:
            given = await asyncio.to_thread(self.tokens.of, security, CONNECT_TIMEOUT_S)
        credentials = await asyncio.to_thread(read_credentials, security, mechanism, CONNECT_TIMEOUT_S, given)
        return REAUTHENTICATE_AT_FRACTION * await _hold(authenticate(credentials, place), ask)

    def why(self, error: Exception, broker: BrokerEndpoint) -> str:
        """Returns why the broker cannot be reached."""
        if isinstance(error, TwinshoreError):
            return str(error)
        if isinstance(error, ssl.SSLError):
            return str(explain_tls_error(error, self._place(broker)))
        late = isinstance(error, TimeoutError)
        silent = f"no answer within {CONNECT_TIMEOUT_S:g} s" if late else "it closed the connection"
        reason = getattr(error, "strerror", "") or str(error) or silent
        return f"{self._place(broker)} cannot be reached: {reason}"

    def _place(self, broker: BrokerEndpoint) -> str:
        return f"{self.cluster.name} {broker.host}:{broker.port}"


def _step(talk: Dialogue[LoginResult], answer: memoryview | None) -> tuple[RequestBody | None, LoginResult | None]:
    """Returns the next request, or else the result. A StopIteration cannot leave a thread."""
    try:
        return (next(talk) if answer is None else talk.send(answer)), None
    except StopIteration as end:
        return None, end.value


async def _hold(talk: Dialogue[LoginResult], ask: SendQuestion) -> LoginResult:
    request, result = await asyncio.to_thread(_step, talk, None)
    while request is not None:
        request, result = await asyncio.to_thread(_step, talk, await ask(request))
    return cast(LoginResult, result)


def shrink_tls_buffers() -> None:
    """Shrink asyncio's TLS receive buffers from 256 to 16 KiB, for the whole process.

    They take most of an idle client's memory, and only limit what one call receives.
    """
    sslproto.SSLProtocol.max_size = _TLS_BYTES


def set_socket_options(transport: asyncio.BaseTransport) -> None:
    """Set keepalive: a vanished idle peer is detected within `DEAD_PEER_TIMEOUT_S`.

    Unsent data has no time limit, so slow readers stay.
    """
    sock = transport.get_extra_info("socket")
    if sock is None:
        return
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    every_s = max(1, DEAD_PEER_TIMEOUT_S // 4)
    for name, value in (("TCP_KEEPIDLE", every_s), ("TCP_KEEPINTVL", every_s), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def is_closed_by_peer(transport: asyncio.BaseTransport) -> bool:
    """Whether the peer has closed, for a connection that is not read."""
    sock = transport.get_extra_info("socket")
    if sock is None or sock.fileno() < 0:
        return True
    if not hasattr(select, "POLLRDHUP"):
        return False
    asked = select.poll()
    asked.register(sock.fileno(), select.POLLRDHUP)
    return bool(asked.poll(0))


def retains_write_buffers(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether unsent data stays in the caller's buffer. asyncio copied before Python 3.12."""
    return sys.version_info >= (3, 12) or not isinstance(loop, asyncio.SelectorEventLoop)


class PendingBrokerRequest(NamedTuple):
    """An unanswered request. `done` gets the response frame, valid until `done` returns; None if none comes."""

    key: int
    number: int
    deadline_s: float
    done: Callable[[memoryview | None], None]


class ConnectionOwner(Protocol):
    def choked(self, broker: BrokerConnection) -> None:
        """The connection accepts no more for now."""

    def flows(self, broker: BrokerConnection) -> None:
        """The connection accepts more."""

    def lost(self, broker: BrokerConnection) -> None:
        """The connection has ended; pending requests get None next."""


class BrokerConnection(asyncio.BufferedProtocol):
    """A connection to a broker.

    `framer` holds the frame last passed to `done`. `end_reason`: why it ended; `was_refused`: for login or TLS.
    """

    def __init__(self, place: BrokerId, owner: ConnectionOwner, access: BrokerAccess) -> None:
        self.place, self.frame_reader, self.bytes_in = place, FrameReader(), 0
        self._owner, self._access = owner, access
        # Lists, since few requests are pending, and an empty deque takes ten times the memory.
        self._asked: list[PendingBrokerRequest] = []
        self._early: list[tuple[PendingBrokerRequest | None, bytes]] = []
        self._transport: asyncio.Transport | None = None
        self._dialling: asyncio.Task[None] | None = None
        self._session_ends: asyncio.TimerHandle | None = None
        self._numbers = count(1)
        self.end_reason, self.was_refused = "", False
        self._open = self._ended = self._slow = self._held = self._expired = self._logging_in = False

    @property
    def due_s(self) -> float | None:
        """The next response's deadline."""
        due = self._asked[0] if self._asked else next((asked for asked, _ in self._early if asked is not None), None)
        return due.deadline_s if due is not None else None

    @property
    def takes(self) -> bool:
        """Whether a request sent now goes out soon."""
        return self._open and not self._slow

    def dial(self, broker: BrokerEndpoint) -> None:
        """Start connecting; requests wait."""
        self._broker = broker
        self._dialling = asyncio.get_running_loop().create_task(self._open_session(again=False))

    async def _open_session(self, *, again: bool) -> None:
        """Connect, unless `again`, and log in."""
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                if not again:
                    await self._connect()
                await self._log_in()
        except (OSError, TimeoutError, TwinshoreError) as error:
            # A broker without TLS, or with other TLS settings, closes the connection during the handshake.
            self.was_refused = isinstance(error, ssl.SSLError | TwinshoreError | ConnectionResetError)
            why = self._access.why(error, self._broker)
            self._end(f"it could not log in again: {why}" if again else why)
        else:
            self._begin()

    async def _connect(self) -> None:
        broker, context = self._broker, self._access.context
        named = broker.host if context is not None else None
        loop = asyncio.get_running_loop()
        await loop.create_connection(lambda: self, broker.host, broker.port, ssl=context, server_hostname=named)

    async def _log_in(self) -> None:
        # Read even if paused for a slow client, which must not lose the connection. No other response is pending.
        self._logging_in = True
        self._pace()
        lasts_s = await self._access.log_in(self._broker, self._ask_first)
        self._logging_in = False
        self._pace()
        if lasts_s:
            lasts_s = max(lasts_s, SESSION_LIFETIME_MIN_S)
            self._session_ends = asyncio.get_running_loop().call_later(lasts_s, self._expire)

    def _expire(self) -> None:
        """Log in again. Brokers accept no requests during a login, so new ones wait."""
        self._open, self._expired = False, True
        self._owner.choked(self)
        self._log_in_if_idle()

    def _log_in_if_idle(self) -> None:
        if self._expired and not self._asked and not self._ended:
            self._expired = False
            self._dialling = asyncio.get_running_loop().create_task(self._open_session(again=True))

    async def _ask_first(self, question: RequestBody) -> memoryview:
        """Send a login request and return the response body."""
        transport, shape, number = self._transport, api_format(question.key, question.version), next(self._numbers)
        assert transport is not None
        heard: asyncio.Future[memoryview | None] = asyncio.get_running_loop().create_future()

        def done(found: memoryview | None) -> None:
            if not heard.done():
                heard.set_result(None if found is None else memoryview(bytes(found)))

        self._asked.append(PendingBrokerRequest(question.key, number, deadline_after(CONNECT_TIMEOUT_S), done))
        header = question.key, question.version, number, PROXY_CLIENT_ID
        transport.write(b"".join(framed(*header, [question.body], shape.tags_in_request)))
        found = await heard
        if found is None:
            raise KafkaError(self.end_reason, retriable=True)
        return found[read_response_header(found, shape.tags_in_response)[1] :]

    def _begin(self) -> None:
        """Send requests that waited, and accept more."""
        if self._ended or self._transport is None:
            return
        self._open = True
        while self._early:
            asked, data = self._early.pop(0)
            if asked is not None:
                self._asked.append(asked)
            self._transport.write(data)
        if self.takes:
            self._owner.flows(self)

    def ask(self, asked: PendingBrokerRequest | None, frame: Sequence[Buffer]) -> None:
        """Send a whole frame; without `asked` no response comes.

        The caller may reuse the buffers, unless bytes are `unsent` and the transport keeps them
        (`retains_write_buffers`).
        """
        if not self._open or self._transport is None:
            self._early.append((asked, b"".join(frame)))
            self._owner.choked(self)
            return
        if asked is not None:
            self._asked.append(asked)
        data = frame[0] if len(frame) == 1 else b"".join(frame)
        self._transport.write(data)

    @property
    def unsent(self) -> int:
        """Bytes waiting to be sent."""
        return self._transport.get_write_buffer_size() if self._transport else 0

    def close(self) -> None:
        """Close at once, without callbacks."""
        self._ended = True
        for pending in (self._dialling, self._session_ends):
            if pending is not None:
                pending.cancel()
        if self._transport is not None:
            self._transport.abort()
        self._asked.clear()
        self._early.clear()

    def pause(self, paused: bool) -> None:
        """Stop reading, so that the broker waits, or resume."""
        self._held = paused
        self._pace()

    def _pace(self) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        if self._held and not self._logging_in:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # as every loop's is
        set_socket_options(transport)
        if self._ended:
            self._transport.abort()
            return
        self._pace()

    def get_buffer(self, _: int) -> memoryview:
        return self.frame_reader.room()

    def buffer_updated(self, nbytes: int) -> None:
        self.frame_reader.took(nbytes)
        self.bytes_in += nbytes
        try:
            self._answers()
        except WireError as error:
            self._end(f"it does not keep to the protocol: {error}")

    def _answers(self) -> None:
        while not self._ended:
            if not self._asked:
                if self.frame_reader.waiting:
                    raise WireError(f"it sent {self.frame_reader.waiting} bytes unasked")
                return
            asked = self._asked[0]
            frame = self.frame_reader.next(response_bytes_max(asked.key))
            if frame is None:
                return
            (number,) = I32.unpack_from(frame)
            if number != asked.number:
                raise WireError(f"{api_name(asked.key)} {asked.number} got the answer to {number}")
            del self._asked[0]
            asked.done(frame)
            self._log_in_if_idle()

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._slow = True
        self._owner.choked(self)

    def resume_writing(self) -> None:
        self._slow = False
        if self.takes:
            self._owner.flows(self)

    def connection_lost(self, exc: Exception | None) -> None:
        if isinstance(exc, ssl.SSLError):
            self._end(self._access.why(exc, self._broker))
            return
        self._end("the broker closed the connection" if exc is None else f"connection lost: {exc}")

    def look(self, now_s: float) -> bool:
        """Give back memory; end the connection if a response is late, and return whether it ended."""
        self.frame_reader.rest()
        due_s = self.due_s
        if due_s is None or now_s < due_s:
            return False
        asked = self._asked[0] if self._asked else None
        self._end(f"no answer to {api_name(asked.key)} in time" if asked else "it was not reached in time")
        return True

    def _end(self, why: str) -> None:
        if self._ended:
            return
        waiting, self.end_reason = [*self._asked, *(asked for asked, _ in self._early if asked is not None)], why
        self.close()
        self._owner.lost(self)
        for asked in waiting:
            asked.done(None)
        self._owner.flows(self)


def deadline_after(wait_s: float) -> float:
    return steady_s() + wait_s
