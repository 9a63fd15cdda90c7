"""A forwarder that reads nothing of what it passes on, run as a script: its own port, then the target's host and port.

It is the least that bytes through a process of Python can cost, on uvloop. A side that takes no more is waited for.
"""

from __future__ import annotations

import asyncio
import importlib
import socket
import sys
from typing import Any

_BUFFER_BYTES = 256 << 10


class Side(asyncio.BufferedProtocol):
    """One end of a connection; what it receives goes out at the other."""

    def __init__(self) -> None:
        self.buffer = bytearray(_BUFFER_BYTES)
        self.view = memoryview(self.buffer)
        self.transport: Any = None
        self.other: Side | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def get_buffer(self, _: int) -> memoryview:
        return self.view

    def buffer_updated(self, nbytes: int) -> None:
        assert self.other is not None
        self.other.transport.write(self.view[:nbytes])
        if self.other.transport.get_write_buffer_size():
            # What waits lies in this buffer: the next bytes get another.
            self.buffer = bytearray(_BUFFER_BYTES)
            self.view = memoryview(self.buffer)

    def pause_writing(self) -> None:
        if self.other is not None:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other is not None and not self.other.transport.is_closing():
            self.other.transport.resume_reading()

    def connection_lost(self, _: Exception | None) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.abort()


class Door(Side):
    """A client's end: it is read once the target is reached."""

    def __init__(self, target: tuple[str, int]) -> None:
        super().__init__()
        self.target = target
        self.dialling: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.transport.pause_reading()
        self.dialling = asyncio.get_running_loop().create_task(self._dial())

    async def _dial(self) -> None:
        there = Side()
        try:
            await asyncio.get_running_loop().create_connection(lambda: there, *self.target)
        except OSError:
            self.transport.abort()
            return
        self.other, there.other = there, self
        if self.transport.is_closing():
            there.transport.abort()
        else:
            self.transport.resume_reading()


async def serve(port: int, target: tuple[str, int]) -> None:
    """For ever."""
    server = await asyncio.get_running_loop().create_server(lambda: Door(target), "127.0.0.1", port, backlog=1024)
    await server.serve_forever()


def main() -> None:
    port, host, target = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    with asyncio.Runner(loop_factory=importlib.import_module("uvloop").new_event_loop) as runner:
        runner.run(serve(port, (host, target)))


if __name__ == "__main__":
    main()
