"""Before the door of a port that speaks TLS: the handshake. Behind it the client is a guest like any other."""

from __future__ import annotations

import asyncio
import ssl
from typing import Final, cast

from twinshore.fleet import ConfigError
from twinshore.fleet.once import in_words
from twinshore.proxy.certificates import name_asked, why_no_handshake
from twinshore.proxy.guest import Guest
from twinshore.proxy.house import House

HANDSHAKE_S: Final = 10.0
# How long a client may take to agree that it ends.
GOODBYE_S: Final = 5.0


class Porch(asyncio.BufferedProtocol):
    """Each connection has the certificate that is in force when it comes. What a client sends right behind its
    handshake is received for the guest that it becomes. A client is let in before its handshake, so that those who
    never end one are counted too. `address`: where it is, if a balancer says it."""

    def __init__(
        self,
        guest: Guest,
        context: ssl.SSLContext,
        house: House,
        address: str = "",
    ) -> None:
        self._guest, self._context, self._house, self._peer = guest, context, house, address
        self._gone = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        plain = cast(asyncio.Transport, transport)  # as every loop's is
        if not self._peer:
            peer = plain.get_extra_info("peername")
            self._peer = str(peer[0]) if peer else "unknown"
        if not self._house.lets_in(self._peer):
            plain.abort()
            return
        # What comes before the handshake has begun would be nobody's.
        plain.pause_reading()
        self._task = asyncio.get_running_loop().create_task(self._shake_hands(plain))

    async def _shake_hands(self, transport: asyncio.Transport) -> None:
        try:
            inside = await asyncio.get_running_loop().start_tls(
                transport,
                self,
                self._context,
                server_side=True,
                ssl_handshake_timeout=HANDSHAKE_S,
                ssl_shutdown_timeout=GOODBYE_S,
            )
        except Exception as error:  # whatever it is, it is this client's alone
            why = why_no_handshake(error) if isinstance(error, OSError) else in_words(error)
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
        """By the name by which it came, where brokers are told apart so."""
        if self._house.layout.node_hosts:
            try:
                self._guest.stands_before(self._house.place_named(name_asked(inside.get_extra_info("ssl_object"))))
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
