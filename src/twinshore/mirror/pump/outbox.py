"""Buffers on their way into a pump's socket, taken by the kernel piece by piece."""

from __future__ import annotations

import selectors
from typing import Protocol

from twinshore.kafka.connection import Connection
from twinshore.kafka.transport import WOULD_BLOCK
from twinshore.wire.framing import forget_sent
from twinshore.wire.primitives import Buffer

CLIENT_ID = "twinshore-pump"
BUFFER_BYTES_MIN = 256 << 10


class HasFileno(Protocol):
    """What a selector looks at."""

    def fileno(self) -> int: ...


class Outbox:
    """Buffers on their way into a socket."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.transport = connection.transport
        self._waiting: list[Buffer] = []

    def put(self, buffers: list[Buffer]) -> None:
        self._waiting = buffers

    def detach(self) -> None:
        """Copies what the kernel has not taken, so that the buffers it lies in are free."""
        self._waiting = [bytes(piece) for piece in self._waiting]

    def push(self) -> bool:
        """Gives the kernel what it takes; True once everything is taken."""
        waiting = self._waiting
        while waiting:
            taken = self.transport.sendv(waiting)
            if taken == WOULD_BLOCK:
                break
            forget_sent(waiting, taken)
        return not waiting


def unregister(selector: selectors.BaseSelector, line: HasFileno) -> None:
    """Has the selector look at it no more, also where it is closed already."""
    try:
        selector.unregister(line)
    except (KeyError, ValueError):
        # A closed socket has already left the selector's kernel side; find it by value.
        for key in list(selector.get_map().values()):
            if key.fileobj is line:
                selector.unregister(key.fileobj)
