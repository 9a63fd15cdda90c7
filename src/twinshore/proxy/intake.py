"""What one client sends, until each request is whole. Only the first bytes of a large one are believed: for the rest it
must have room in the budget that all clients share, and its API must allow so much."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from twinshore.fleet import WireError
from twinshore.proxy.core.limits import Budget
from twinshore.wire.apis import PRODUCE, api_name
from twinshore.wire.framing import Framer
from twinshore.wire.primitives import I16

# As much as brokers take by default (socket.request.max.bytes).
REQUEST_BYTES_MAX: Final = 100 << 20
# No other request carries records; each is read as a whole, while all clients wait.
OTHERS_BYTES_MAX: Final = 1 << 20
FIRST_BYTES: Final = 64 << 10
HALF_REQUEST_S: Final = 30.0
# A client that sends so slowly keeps room from others.
SLOW_S: Final = 120.0


class Intake(Framer):
    """`waits`: whether a request that has begun has no room yet; `go_on` is called once it has."""

    __slots__ = ("_budget", "_charged", "_go_on", "_paused_s", "_reserved", "_since_s", "waits")

    def __init__(self, budget: Budget, go_on: Callable[[], None]) -> None:
        super().__init__(FIRST_BYTES)
        self._budget, self._go_on = budget, go_on
        self._charged = self._reserved = 0
        self._since_s, self._paused_s, self.waits = 0.0, -math.inf, False

    def request(self, bytes_max: int) -> memoryview | None:
        """The next whole request, without its size. WireError where it is larger than its API allows."""
        found = self.next(bytes_max)
        if found is not None:
            self._reserved = 0
            if len(found) > OTHERS_BYTES_MAX:
                _must_be_allowed(found, len(found))
        elif self.waiting >= FIRST_BYTES and not self._reserved:
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
        """What was given out is on its way: of the budget it keeps what its buffer takes, unless others wait."""
        if self._charged and self._budget.is_short:
            self.rest()
        held = len(self.buffer)
        keeps = max(self._reserved, held if held > FIRST_BYTES else 0)
        if keeps < self._charged and not self.waits:
            charged, self._charged = self._charged, keeps
            self._budget.give(charged - keeps)

    def look(self, now_s: float, quiet_s: float, *, paused: bool, busy: bool) -> str:
        """Once a second: gives back memory; why its client is hung up on, empty where it is not. `quiet_s`: for so long
        it sent nothing; `paused`: nothing more of it is read; `busy`: something of it is not answered yet."""
        self.rest()
        if paused:
            self._paused_s = now_s
        if paused or not self._reserved:
            self._since_s = now_s
        quiet_s = min(quiet_s, now_s - self._paused_s)
        if not busy and self.waiting and quiet_s > HALF_REQUEST_S:
            return f"it sent half a request, and then nothing for {HALF_REQUEST_S:g} s"
        if now_s - self._since_s > SLOW_S:
            return f"it has not sent a request to its end within {SLOW_S:g} s"
        if not busy and quiet_s > 1 and len(self.buffer) > FIRST_BYTES:
            self.let_go()
        self.settle()
        return ""

    def close(self) -> None:
        """The client is gone."""
        self._budget.leave(self._granted)
        charged, self._charged = self._charged, 0
        self._budget.give(charged)


def _must_be_allowed(begun: memoryview, size: int) -> None:
    (key,) = I16.unpack_from(begun)
    if key != PRODUCE and size > OTHERS_BYTES_MAX:
        raise WireError(f"{api_name(key)} has {size} bytes: {OTHERS_BYTES_MAX} are taken at most")
