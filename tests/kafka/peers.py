"""Peers on loopback that speak what a test tells them: honest, slow, silent or lying."""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from typing import Protocol

Talk = Callable[[socket.socket], None]


@contextlib.contextmanager
def peer(talk: Talk, context: ssl.SSLContext | None = None) -> Iterator[tuple[str, int]]:
    """Listens until the block ends; `talk` gets each connection in a thread of its own."""
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(0.1)
    over = threading.Event()
    threads: list[threading.Thread] = []
    opened: list[socket.socket] = []

    def serve(connection: socket.socket) -> None:
        with contextlib.suppress(OSError):
            if context is not None:
                connection = context.wrap_socket(connection, server_side=True)
                opened.append(connection)
            talk(connection)
        connection.close()

    def listen() -> None:
        while not over.is_set():
            with contextlib.suppress(TimeoutError):
                connection, _ = listener.accept()
                connection.settimeout(20)
                opened.append(connection)
                thread = threading.Thread(target=serve, args=(connection,))
                thread.start()
                threads.append(thread)

    accepting = threading.Thread(target=listen)
    accepting.start()
    try:
        yield listener.getsockname()
    finally:
        over.set()
        accepting.join()
        listener.close()
        for connection in opened:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()
        for thread in threads:
            thread.join(20)


class Line(Protocol):
    """Whatever a selector can wait for."""

    def fileno(self) -> int: ...


def woken(line: Line, within_s: float) -> bool:
    """Whether something came that wakes who waits for `line`."""
    return bool(select.select([line], [], [], within_s)[0])


def silent(connection: socket.socket) -> None:
    """Takes everything, says nothing, until the other side leaves."""
    while connection.recv(1 << 16):
        pass


def read_request(connection: socket.socket) -> tuple[int, int, int]:
    """API key, version and correlation id of the next request."""
    key, version, correlation_id, _ = read_message(connection)
    return key, version, correlation_id


def read_message(connection: socket.socket) -> tuple[int, int, int, bytes]:
    """The same, and all that follows, from the client's id on."""
    size = struct.unpack(">i", _exactly(connection, 4))[0]
    message = _exactly(connection, size)
    key, version, correlation_id = struct.unpack_from(">hhi", message)
    return key, version, correlation_id, message[8:]


def answer(connection: socket.socket, correlation_id: int, body: bytes) -> None:
    connection.sendall(struct.pack(">ii", len(body) + 4, correlation_id) + body)


def greet(connection: socket.socket, *apis: tuple[int, int, int]) -> None:
    """Answers ApiVersions v3 with these (key, lowest, highest)."""
    _, _, correlation_id = read_request(connection)
    entries = b"".join(struct.pack(">hhhB", *api, 0) for api in apis)
    answer(connection, correlation_id, struct.pack(">hB", 0, len(apis) + 1) + entries + struct.pack(">iB", 0, 0))


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        got = connection.recv(size - len(data))
        if not got:
            raise OSError("the client left")
        data += got
    return data
