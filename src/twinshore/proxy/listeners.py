"""Listening ports: the first, and one for each broker unless brokers have host names."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Final, cast

from twinshore.config.errors import ConfigError, WireError
from twinshore.config.repeat_filter import describe_error
from twinshore.proxy.auth import describe_handshake_failure, get_sni_hostname
from twinshore.proxy.client_connection import ClientConnection
from twinshore.proxy.context import ProxyContext
from twinshore.proxy.core.follower_fetch import NetworkTable
from twinshore.proxy.core.model import BrokerId, RoutingTable
from twinshore.proxy.core.proxy_header import ProxyHeader
from twinshore.runtime.http import bind_error

log = logging.getLogger(__name__)

# Load balancers send the header with their first packet.
PROXY_HEADER_TIMEOUT_S: Final = 5.0
TLS_HANDSHAKE_TIMEOUT_S: Final = 10.0
# How long a client may take to answer the TLS shutdown.
TLS_SHUTDOWN_TIMEOUT_S: Final = 5.0
BACKLOG: Final = 1024
LISTENERS_INTERVAL_S: Final = 1.0


class ProxyProtocolHandler(asyncio.BufferedProtocol):
    """Reads a load balancer's PROXY header before anything else; other clients pass at once.

    `enter` gets the client's address, empty if unknown, and returns the next protocol. `hung_up` gets peer and reason
    of a refusal.
    """

    def __init__(
        self,
        balancers: NetworkTable,
        enter: Callable[[str], asyncio.BufferedProtocol],
        hung_up: Callable[[str, str], None],
    ) -> None:
        self._balancers, self._enter, self._hung_up = balancers, enter, hung_up
        self._header = ProxyHeader()
        self._room = memoryview(bytearray())
        self._transport: asyncio.Transport | None = None
        self._late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # as every loop's is
        if self._balancers.of(self._peer) is None:
            self._go_in("")
            return
        self._late = asyncio.get_running_loop().call_later(
            PROXY_HEADER_TIMEOUT_S, self._end, f"not within {PROXY_HEADER_TIMEOUT_S:g} s"
        )

    def get_buffer(self, _: int) -> memoryview:
        # Receives no byte behind the header: the next protocol reads those.
        self._room = memoryview(bytearray(self._header.lacks))
        return self._room

    def buffer_updated(self, nbytes: int) -> None:
        if self._transport is None:
            return
        try:
            self._header.take(self._room[:nbytes])
            if self._header.lacks:
                return
        except WireError as error:
            self._end(str(error))
            return
        self._stop_waiting()
        self._go_in(self._header.address)

    def _go_in(self, address: str) -> None:
        assert self._transport is not None
        inside, transport = self._enter(address), self._transport
        self._transport = None
        transport.set_protocol(inside)
        inside.connection_made(transport)

    @property
    def _peer(self) -> str:
        found = self._transport.get_extra_info("peername") if self._transport else None
        return str(found[0]) if found else "unknown"

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, _: Exception | None) -> None:
        self._transport = None
        self._stop_waiting()

    def _end(self, why: str) -> None:
        self._stop_waiting()
        if self._transport is not None:
            self._hung_up(self._peer, f"it is in [proxy] balancers, and must send a PROXY header first: {why}")
            self._transport.abort()
            self._transport = None

    def _stop_waiting(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None


class TlsHandshake(asyncio.BufferedProtocol):
    """Does the TLS handshake, then `guest` takes over.

    Each connection uses the certificate in force at its start. Data right behind the handshake goes to the buffer of
    `guest`. The client counts before the handshake, so that unfinished ones count too. `address`: from a PROXY header,
    if any.
    """

    def __init__(
        self, guest: ClientConnection, context: ssl.SSLContext, proxy_context: ProxyContext, address: str = ""
    ) -> None:
        self._guest, self._context, self._house, self._peer = guest, context, proxy_context, address
        self._gone = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        plain = cast(asyncio.Transport, transport)  # as every loop's is
        if not self._peer:
            peer = plain.get_extra_info("peername")
            self._peer = str(peer[0]) if peer else "unknown"
        if not self._house.admit_client(self._peer):
            plain.abort()
            return
        # No protocol would get data that comes before the handshake starts.
        plain.pause_reading()
        self._task = asyncio.get_running_loop().create_task(self._shake_hands(plain))

    async def _shake_hands(self, transport: asyncio.Transport) -> None:
        try:
            inside = await asyncio.get_running_loop().start_tls(
                transport,
                self,
                self._context,
                server_side=True,
                ssl_handshake_timeout=TLS_HANDSHAKE_TIMEOUT_S,
                ssl_shutdown_timeout=TLS_SHUTDOWN_TIMEOUT_S,
            )
        except Exception as error:  # any error affects this client alone
            why = describe_handshake_failure(error) if isinstance(error, OSError) else describe_error(error)
            if why:
                self._house.hung_up(self._peer, why)
            transport.abort()
            inside = None
        if inside is None or self._gone or not self._finds_its_place(inside):
            self._house.crowd.goes(self._peer)
            return
        inside.set_protocol(self._guest)
        self._guest.connection_made(inside)

    def _finds_its_place(self, inside: asyncio.Transport) -> bool:
        """Set the broker from the TLS host name. False, and disconnected, if there is no such broker."""
        if self._house.addressing.node_hosts:
            try:
                self._guest.set_broker(
                    self._house.resolve_broker_name(get_sni_hostname(inside.get_extra_info("ssl_object")))
                )
            except ConfigError as error:
                self._house.hung_up(self._peer, str(error))
                inside.abort()
                return False
        return True

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self._guest.get_buffer(sizehint))

    def buffer_updated(self, nbytes: int) -> None:
        self._guest.buffer_updated(nbytes)

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, _: Exception | None) -> None:
        self._gone = True


class Listeners:
    """The listening ports of a process.

    An open port stays open: the broker may come back, and clients there are told to refresh. `shared`: other processes
    use the same ports. `shut`: why ports could not be opened.
    """

    def __init__(self, address: str, context: ProxyContext, *, shared: bool = False) -> None:
        self._address, self._context, self._shared = address, context, shared or None
        self._open: dict[int, asyncio.Server] = {}
        self.shut: dict[int, str] = {}

    async def bind(self) -> None:
        """Bind the first port without accepting clients. ConfigError if not available."""
        await self._first(self._add(self._context.addressing.port, None, serving=False))

    async def open_first(self) -> None:
        """Accept clients at the first port. ConfigError if another process was faster."""
        await self._first(self._open[self._context.addressing.port].start_serving())

    async def _first(self, doing: Coroutine[None, None, None]) -> None:
        try:
            await doing
        except OSError as error:
            raise bind_error("proxy", self._address, self._context.addressing.port, error) from error

    async def open(self, table: RoutingTable) -> None:
        """Open the brokers' missing ports. A failure is logged once."""
        for cluster in table.clusters.values():
            for node in cluster.brokers:
                port = self._context.addressing.port_of(cluster.name, node)
                if port in self._open:  # the first port, if brokers have host names
                    continue
                try:
                    await self._add(port, BrokerId(cluster.name, node))
                    self.shut.pop(port, None)
                except OSError as error:
                    whose, why = f"port {port} of broker {node} of {cluster.name}", error.strerror or error
                    said = f"{whose} cannot be served: {why}"
                    if port not in self.shut:
                        log.error(said, extra={"cluster": cluster.name})
                    self.shut[port] = said

    def close(self) -> None:
        for server in self._open.values():
            server.close()

    async def _add(self, port: int, place: BrokerId | None, *, serving: bool = True) -> None:
        loop = asyncio.get_running_loop()
        comes = partial(create_client_protocol, place, self._context)
        self._open[port] = await loop.create_server(
            comes, self._address, port, backlog=BACKLOG, start_serving=serving, reuse_port=self._shared
        )


def create_client_protocol(place: BrokerId | None, context: ProxyContext) -> asyncio.BufferedProtocol:
    """Create a client's protocol. `place`: the broker of the port; None for the first port."""
    if context.balancers is None:
        return _enter(place, context, "")
    return ProxyProtocolHandler(context.balancers, partial(_enter, place, context), context.hung_up)


def _enter(place: BrokerId | None, proxy_context: ProxyContext, address: str) -> asyncio.BufferedProtocol:
    context = proxy_context.gate.tls_context
    if context is None:
        return ClientConnection(place, proxy_context, address)
    return TlsHandshake(ClientConnection(place, proxy_context, address, is_in=True), context, proxy_context, address)
