"""One connection to a broker, which is one client's alone: requests go out in order, answers come back in that order.

TLS and the login of a client belong where the connection is dialled: between that and the first request.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from twinshore.fleet import WireError
from twinshore.kafka.clock import steady_s
from twinshore.proxy.core.layout import Place
from twinshore.proxy.core.seen import Broker
from twinshore.proxy.sockets import tune
from twinshore.wire.apis import answer_bytes_max, api_name
from twinshore.wire.framing import Framer
from twinshore.wire.primitives import I32, Buffer

DIAL_S = 10.0


class Asked(NamedTuple):
    """A request that the broker has not answered yet. `done` gets the answer's frame, which is good until it returns;
    None where there will be none."""

    key: int
    number: int
    deadline_s: float
    done: Callable[[memoryview | None], None]


class Owner(Protocol):
    """Whose connection it is."""

    def choked(self, upstream: Upstream) -> None:
        """It takes no more for now."""

    def flows(self, upstream: Upstream) -> None:
        """It takes more."""

    def lost(self, upstream: Upstream) -> None:
        """It is gone; whatever was asked hears so next."""


class Upstream(asyncio.BufferedProtocol):
    """`framer` is whose last frame `done` was given; `ended_by` is why it is gone."""

    def __init__(self, place: Place, owner: Owner) -> None:
        self.place, self.framer, self.bytes_in = place, Framer(), 0
        self._owner = owner
        self._asked: deque[Asked] = deque()
        self._early: list[bytes] = []
        self._transport: asyncio.Transport | None = None
        self._dialling: asyncio.Task[None] | None = None
        self.ended_by = ""
        self._ended = self._slow = self._held = False

    @property
    def due_s(self) -> float | None:
        """When the next answer is late."""
        return self._asked[0].deadline_s if self._asked else None

    @property
    def takes(self) -> bool:
        """Whether what is written now goes out soon."""
        return self._transport is not None and not self._slow

    @property
    def asking(self) -> bool:
        """Whether an answer is due."""
        return bool(self._asked)

    def dial(self, broker: Broker) -> None:
        """Until the connection is there, what is asked waits."""
        self._dialling = asyncio.get_running_loop().create_task(self._dial(broker))

    async def _dial(self, broker: Broker) -> None:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(DIAL_S):
                await loop.create_connection(lambda: self, broker.host, broker.port)
        except (OSError, TimeoutError) as error:
            reason = getattr(error, "strerror", "") or str(error) or f"no answer within {DIAL_S:g} s"
            self._end(f"{broker.host}:{broker.port} cannot be reached: {reason}")

    def ask(self, asked: Asked | None, frame: Sequence[Buffer]) -> None:
        """Sends a whole frame; without `asked` it has no answer. The buffers are the caller's again afterwards."""
        if asked is not None:
            self._asked.append(asked)
        if self._transport is None:
            self._early.extend(bytes(part) for part in frame)
            self._owner.choked(self)
            return
        data = frame[0] if len(frame) == 1 else b"".join(frame)
        self._transport.write(data)

    @property
    def unsent(self) -> int:
        """How many bytes wait here."""
        return self._transport.get_write_buffer_size() if self._transport else 0

    def close(self) -> None:
        """At once; nobody hears of it."""
        self._ended = True
        if self._dialling is not None:
            self._dialling.cancel()
        if self._transport is not None:
            self._transport.abort()
        self._asked.clear()

    def pause(self, paused: bool) -> None:
        """Reads nothing more, so that the broker waits, or reads on."""
        self._held = paused
        if self._transport is None or self._transport.is_closing():
            return
        if paused:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        tune(transport)
        if self._ended:
            transport.abort()
            return
        if self._held:
            transport.pause_reading()
        for part in self._early:
            transport.write(part)
        self._early.clear()
        if self.takes:
            self._owner.flows(self)

    def get_buffer(self, _: int) -> memoryview:
        return self.framer.room()

    def buffer_updated(self, nbytes: int) -> None:
        self.framer.took(nbytes)
        self.bytes_in += nbytes
        try:
            self._answers()
        except WireError as error:
            self._end(f"it does not keep to the protocol: {error}")

    def _answers(self) -> None:
        while not self._ended:
            if not self._asked:
                if self.framer.waiting:
                    raise WireError(f"it sent {self.framer.waiting} bytes unasked")
                return
            asked = self._asked[0]
            frame = self.framer.next(answer_bytes_max(asked.key))
            if frame is None:
                return
            (number,) = I32.unpack_from(frame)
            if number != asked.number:
                raise WireError(f"{api_name(asked.key)} {asked.number} got the answer to {number}")
            self._asked.popleft()
            asked.done(frame)

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._slow = True
        self._owner.choked(self)

    def resume_writing(self) -> None:
        self._slow = False
        self._owner.flows(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end("the broker closed the connection" if exc is None else f"connection lost: {exc}")

    def late(self, now_s: float) -> bool:
        """Ends the connection where an answer is too late."""
        due_s = self.due_s
        if due_s is None or now_s < due_s:
            return False
        self._end(f"no answer to {api_name(self._asked[0].key)} in time")
        return True

    def _end(self, why: str) -> None:
        if self._ended:
            return
        waiting, self.ended_by = list(self._asked), why
        self.close()
        self._owner.lost(self)
        for asked in waiting:
            asked.done(None)
        self._owner.flows(self)


def deadline(wait_s: float) -> float:
    """So long from now."""
    return steady_s() + wait_s
