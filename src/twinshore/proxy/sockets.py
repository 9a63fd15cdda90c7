"""What sockets on both sides of the proxy are told: send small things at once, and notice a peer that vanished."""

from __future__ import annotations

import asyncio
import select
import socket
import sys
from asyncio import sslproto
from typing import Final

from twinshore.kafka.transport import SILENCE_S

# As much as one record of TLS holds.
_TLS_BYTES: Final = 16 << 10


def spare_tls_buffers() -> None:
    """Python's own loop receives into a buffer of each TLS connection, of a quarter of a megabyte: of thousands of
    clients that are idle it is most of what they take. It is what they receive at once, and no more."""
    sslproto.SSLProtocol.max_size = _TLS_BYTES


def tune(transport: asyncio.BaseTransport) -> None:
    """An idle peer that vanished without a word is noticed within `SILENCE_S`. One that reads slowly is left alone, so
    what waits to be sent has no such limit."""
    sock = transport.get_extra_info("socket")
    if sock is None:
        return
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    every_s = max(1, SILENCE_S // 4)
    for name, value in (("TCP_KEEPIDLE", every_s), ("TCP_KEEPINTVL", every_s), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def has_left(transport: asyncio.BaseTransport) -> bool:
    """Whether the peer has closed a connection that is not read just now."""
    sock = transport.get_extra_info("socket")
    if sock is None or sock.fileno() < 0:
        return True
    if not hasattr(select, "POLLRDHUP"):
        return False
    asked = select.poll()
    asked.register(sock.fileno(), select.POLLRDHUP)
    return bool(asked.poll(0))


def keeps_buffers(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether a transport keeps what it cannot send at once where it lies. Python's own copied it before 3.12, so that
    the buffer can be received into again at once."""
    return sys.version_info >= (3, 12) or not isinstance(loop, asyncio.SelectorEventLoop)
