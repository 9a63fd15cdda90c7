"""What one client has had: counted with what all had, and above its quota nothing more of it is read for a while."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from twinshore.kafka.clock import steady_s
from twinshore.proxy.house import House
from twinshore.store import Flow
from twinshore.wire.serving.requests import Request

# What nobody has is never counted there.
_NOBODYS: Final = Flow()


class Spending:
    """`go_on` is called once it may have more; `slowed`: whether it may not. `software`: what it said of itself before
    it logged in."""

    def __init__(self, house: House, go_on: Callable[[], None]) -> None:
        self._house, self._go_on = house, go_on
        self._client, self._flow = "", _NOBODYS
        self._there = False
        self.slowed, self.software = False, ""

    def asks(self, request: Request, size: int) -> None:
        """The client sent that."""
        if not self._there:
            self._there, self._client = True, request.client_id or ""
            self._flow = self._house.flows.comes(self._client)
            self._flow.software = self.software or self._flow.software
        self._house.counts.requests[request.key] += 1
        self._flow.requests += 1
        self.spend(request, size)

    def spend(self, request: Request, size: int) -> None:
        """It has sent or received that."""
        self._flow.bytes += size
        if not self._house.quotas.there:
            return
        wait_s = self._house.quotas.take(request.client_id or "", size, steady_s())
        if wait_s > 0 and not self.slowed:
            self.slowed = True
            self._house.counts.slowed += 1
            asyncio.get_running_loop().call_later(wait_s, self._hurry)

    def close(self) -> None:
        """The client is gone."""
        if self._there:
            self._house.flows.goes(self._client, self._flow)
            self._there = False

    def _hurry(self) -> None:
        self.slowed = False
        self._go_on()
