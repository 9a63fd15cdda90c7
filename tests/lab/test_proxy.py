"""The fault proxy against plain sockets: late, slow, cut, deaf, and well again."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from testkit.fault_proxy import FaultProxy


class Echo:
    """Sends back what it gets; counts what it got."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.received = 0
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(10)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self._threads.append(threading.Thread(target=self._serve, args=(connection,)))
                self._threads[-1].start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            while got := connection.recv(1 << 20):
                self.received += len(got)
                connection.sendall(got)


@pytest.fixture
def echo() -> Iterator[Echo]:
    server = Echo()
    yield server
    server.close()


@pytest.fixture
def proxy(echo: Echo) -> Iterator[FaultProxy]:
    with FaultProxy("127.0.0.1", echo.port) as running:
        yield running


def dial(proxy: FaultProxy) -> socket.socket:
    return socket.create_connection(("127.0.0.1", proxy.port), timeout=20)


def receive(connection: socket.socket, size: int) -> bytes:
    got = bytearray()
    while len(got) < size:
        piece = connection.recv(1 << 20)
        if not piece:
            raise ConnectionError(f"ended after {len(got)} of {size} bytes")
        got += piece
    return bytes(got)


def exchange(connection: socket.socket, content: bytes) -> bytes:
    sender = threading.Thread(target=connection.sendall, args=(content,))
    sender.start()
    try:
        return receive(connection, len(content))
    finally:
        sender.join(20)


def test_bytes_arrive_whole_and_are_counted(proxy: FaultProxy) -> None:
    content = bytes(range(256)) * 40_000
    with dial(proxy) as connection:
        assert exchange(connection, content) == content
        counters = proxy.counters()
    assert (counters.bytes_to_target, counters.bytes_to_source) == (len(content), len(content))
    assert (counters.connections, counters.accepted) == (1, 1)


def test_a_delay_costs_time_each_way_but_not_rate(proxy: FaultProxy) -> None:
    proxy.set_delay_ms(50)
    content = bytes(30_000_000)
    with dial(proxy) as connection:
        started_s = time.monotonic()
        assert exchange(connection, b"ping") == b"ping"
        round_trip_s = time.monotonic() - started_s
        started_s = time.monotonic()
        assert exchange(connection, content) == content
        bulk_s = time.monotonic() - started_s
    assert 0.1 <= round_trip_s < 0.5
    # Stop and wait, a chunk per round trip, would need over 11 s.
    assert bulk_s < 5


def both_exchange_s(proxy: FaultProxy, content: bytes) -> float:
    """How long two connections take that exchange this at the same time."""
    with dial(proxy) as one, dial(proxy) as other:
        started_s = time.monotonic()
        threads = [threading.Thread(target=exchange, args=(connection, content)) for connection in (one, other)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        return time.monotonic() - started_s


def test_bandwidth_bounds_the_rate_of_all_connections_together(proxy: FaultProxy) -> None:
    proxy.set_bandwidth(4_000_000)
    assert both_exchange_s(proxy, bytes(1_000_000)) >= 0.45


def test_bandwidth_for_each_connection_is_shared_by_none(proxy: FaultProxy) -> None:
    proxy.set_bandwidth(2_000_000, for_each=True)
    # Shared by both it would be a second and more.
    assert 0.45 <= both_exchange_s(proxy, bytes(1_000_000)) < 0.95


def test_a_cut_resets_and_refuses_until_healed(proxy: FaultProxy) -> None:
    with dial(proxy) as connection:
        assert exchange(connection, b"before") == b"before"
        proxy.cut()
        with pytest.raises(ConnectionResetError):
            connection.recv(1)
    with pytest.raises(ConnectionRefusedError):
        dial(proxy)
    proxy.heal()
    with dial(proxy) as connection:
        assert exchange(connection, b"after") == b"after"


def test_half_open_swallows_in_silence_and_heals_without_joining_strangers(proxy: FaultProxy, echo: Echo) -> None:
    with dial(proxy) as old, dial(proxy) as idle:
        assert exchange(old, b"before") == b"before"
        assert exchange(idle, b"before") == b"before"
        proxy.half_open()
        with dial(proxy) as new:
            for connection in (old, new):
                connection.settimeout(0.3)
                connection.sendall(b"lost")
                with pytest.raises(TimeoutError):
                    connection.recv(1)
            assert echo.received == len(b"before") * 2
            proxy.heal()
            for connection in (old, new):
                with pytest.raises(ConnectionResetError):
                    connection.recv(1)
        assert exchange(idle, b"after") == b"after"


def test_the_end_of_one_side_reaches_the_other_behind_its_bytes(proxy: FaultProxy) -> None:
    proxy.set_delay_ms(20)
    with dial(proxy) as connection:
        connection.sendall(b"last words")
        connection.shutdown(socket.SHUT_WR)
        assert receive(connection, 10) == b"last words"
        assert connection.recv(1) == b""
    deadline = time.monotonic() + 5
    while proxy.counters().connections:
        assert time.monotonic() < deadline
        time.sleep(0.01)
