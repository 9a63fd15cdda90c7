"""What a produce connection leaves behind when it is closed in the middle: nothing that could still land."""

from __future__ import annotations

import socket

import pytest

from twinshore.config.model import Security
from twinshore.kafka.transport import WOULD_BLOCK, dial


def test_a_closed_connection_delivers_nothing_more() -> None:
    """A broker that hung reads again, long after: it must not find the requests of a task that has let go."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16_384)
        transport = dial(("127.0.0.1", server.getsockname()[1]), Security())
        transport.drop_unsent_at_close()
        broker, _ = server.accept()
        with broker:
            sent = 0
            while (taken := transport.sendv([bytes(1 << 16)])) != WOULD_BLOCK:
                sent += taken
            transport.close()
            got = 0
            with pytest.raises(ConnectionResetError):
                while part := broker.recv(1 << 16):
                    got += len(part)
                raise AssertionError(f"all {got} bytes of {sent} were delivered after the close")
            assert got < sent
