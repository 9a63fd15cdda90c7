"""Where clients come in: the first port, and one for each broker that clients are to see, unless names tell them
apart."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Final

from twinshore.proxy.core.layout import Place
from twinshore.proxy.core.seen import Seen
from twinshore.proxy.guest import Guest
from twinshore.proxy.house import House
from twinshore.proxy.lobby import Lobby
from twinshore.proxy.porch import Porch
from twinshore.service.server import not_served

BACKLOG: Final = 1024
LOOK_S: Final = 1.0


class Doors:
    """A door that was opened stays open: its broker may come back, and a client that knows it is told to look again.
    `shared`: other processes serve at the same ports."""

    def __init__(self, address: str, house: House, log: Callable[[str], None], *, shared: bool = False) -> None:
        self._address, self._house, self._log, self._shared = address, house, log, shared or None
        self._open: dict[int, asyncio.Server] = {}
        self.shut: dict[int, str] = {}

    async def bind(self) -> None:
        """Takes the first port; nobody comes in yet. ConfigError where it is not to be had."""
        await self._first(self._add(self._house.layout.port, None, serving=False))

    async def open_first(self) -> None:
        """Lets clients in. ConfigError where somebody else has been quicker."""
        await self._first(self._open[self._house.layout.port].start_serving())

    async def _first(self, doing: Coroutine[None, None, None]) -> None:
        try:
            await doing
        except OSError as error:
            raise not_served("proxy", self._address, self._house.layout.port, error) from error

    async def open(self, seen: Seen) -> None:
        """Opens what is not open of the brokers' doors."""
        for cluster in seen.clusters.values():
            for node in cluster.brokers:
                port = self._house.layout.port_of(cluster.name, node)
                if port in self._open:  # for all of them the first, where each has a name instead
                    continue
                try:
                    await self._add(port, Place(cluster.name, node))
                    self.shut.pop(port, None)
                except OSError as error:
                    whose = f"port {port} of broker {node} of {cluster.name}"
                    if port not in self.shut:
                        self._log(f"{whose} cannot be served: {error.strerror or error}")
                    self.shut[port] = f"{whose} cannot be served: {error.strerror or error}"

    def close(self) -> None:
        """Lets nobody in any more."""
        for server in self._open.values():
            server.close()

    async def _add(self, port: int, place: Place | None, *, serving: bool = True) -> None:
        loop = asyncio.get_running_loop()
        comes = partial(come_in, place, self._house)
        self._open[port] = await loop.create_server(
            comes, self._address, port, backlog=BACKLOG, start_serving=serving, reuse_port=self._shared
        )


def come_in(place: Place | None, house: House) -> asyncio.BufferedProtocol:
    """What becomes of a connection at the door of this broker."""
    if house.balancers is None:
        return _enter(place, house, "")
    return Lobby(house.balancers, partial(_enter, place, house), house.hung_up)


def _enter(place: Place | None, house: House, address: str) -> asyncio.BufferedProtocol:
    context = house.gate.tls_context
    if context is None:
        return Guest(place, house, address)
    return Porch(Guest(place, house, address, is_in=True), context, house, address)
