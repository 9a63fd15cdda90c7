"""Peers on loopback that speak what a test tells them: honest, slow, silent or lying."""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from twinshore.kafka.protocol import requests as serving
from twinshore.kafka.protocol.handshake import ApiVersionRange, ApiVersionsResponse, encode_api_versions
from twinshore.kafka.protocol.primitives import Buffer
from twinshore.kafka.protocol.requests import Request

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
    """The same, and the request's body."""
    request = next_request(connection)
    return request.key, request.version, request.number, bytes(request.view[request.position :])


def next_request(connection: socket.socket) -> Request:
    size = struct.unpack(">i", _exactly(connection, 4))[0]
    return serving.read_request(memoryview(_exactly(connection, size)))


def say(connection: socket.socket, request: Request, parts: Sequence[Buffer]) -> None:
    """Answers with this body."""
    connection.sendall(b"".join(serving.response_frame(request.key, request.version, request.number, parts)))


def answer(connection: socket.socket, correlation_id: int, body: bytes) -> None:
    """Answers with these bytes behind the number, whatever they are: also what no broker says."""
    connection.sendall(struct.pack(">ii", len(body) + 4, correlation_id) + body)


def greet(connection: socket.socket, *apis: tuple[int, int, int]) -> None:
    """Answers ApiVersions with these (key, lowest, highest)."""
    request = next_request(connection)
    offers = [ApiVersionRange(*api) for api in apis]
    say(connection, request, [encode_api_versions(request.version, ApiVersionsResponse(0, offers))])


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        got = connection.recv(size - len(data))
        if not got:
            raise OSError("the client left")
        data += got
    return data
