"""Before a door at which balancers knock: they say in a PROXY header who the client is, before anything else is read.
Whoever comes from elsewhere goes straight on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, cast

from twinshore.fleet import WireError
from twinshore.proxy.core.near import Networks
from twinshore.proxy.core.proxy_header import ProxyHeader

# Balancers send it with their first packet.
HEADER_S: Final = 5.0


class Lobby(asyncio.BufferedProtocol):
    """`enter` gives what the client is behind the header, by the address that it says, empty where it says none or
    there is no header. `hung_up` is told where somebody was who is not let in, and why."""

    def __init__(
        self,
        balancers: Networks,
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
        self._late = asyncio.get_running_loop().call_later(HEADER_S, self._end, f"not within {HEADER_S:g} s")

    def get_buffer(self, _: int) -> memoryview:
        # No byte is received that is not the header's: what follows is read by others.
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
