"""The fault proxy's process: forwards TCP, late, slowly, or not at all. A script that uses only the standard library.

Each line of JSON on standard input is a command, answered by a line on standard output; the process ends with its
input. Chunks wait in a queue until due. So a delay costs latency but not throughput, while the queue holds more than
rate times delay.
"""

from __future__ import annotations

import collections
import json
import os
import selectors
import socket
import struct
import sys
import time

_CHUNK_BYTES = 256 * 1024
_SMALL_BYTES = 32 * 1024
_QUEUE_BYTES_MAX = 64 * 1024 * 1024
_SPARE_BUFFERS_MAX = 64
_ROUNDS_PER_WAKE = 4
_RESET = struct.pack("ii", 1, 0)
_FORWARD, _CUT, _HALF_OPEN = "forward", "cut", "half-open"


class ProxyDirection:
    """One direction, of all connections or of one: bytes delivered, and when the simulated line is free again."""

    def __init__(self) -> None:
        self.bytes = 0
        self.free_at_s = 0.0


class NetworkConditions:
    def __init__(self) -> None:
        self.mode = _FORWARD
        self.delay_s = 0.0
        self.bytes_per_s = 0.0
        self.for_each = False

    def due_s(self, direction: ProxyDirection, size: int, now_s: float) -> float:
        """When `size` bytes read now arrive: after earlier bytes on a slow line, plus the delay."""
        if self.bytes_per_s:
            direction.free_at_s = max(direction.free_at_s, now_s) + size / self.bytes_per_s
            return direction.free_at_s + self.delay_s
        return now_s + self.delay_s

    def queue_bytes_max(self) -> int:
        """A slow line queues little; otherwise a rate limit would delay bytes by minutes."""
        if not self.bytes_per_s:
            return _QUEUE_BYTES_MAX
        return int(min(_QUEUE_BYTES_MAX, max(_CHUNK_BYTES, self.bytes_per_s * (self.delay_s + 0.2))))


class ReceiveBuffers:
    """Reused receive buffers: allocating one costs more than the copy into it."""

    def __init__(self) -> None:
        self._spare: list[bytearray] = []

    def take(self) -> bytearray:
        return self._spare.pop() if self._spare else bytearray(_CHUNK_BYTES)

    def give(self, buffer: bytearray | None) -> None:
        if buffer is not None and len(self._spare) < _SPARE_BUFFERS_MAX:
            self._spare.append(buffer)


class ProxyStream:
    def __init__(self, source: socket.socket, target: socket.socket, direction: ProxyDirection) -> None:
        self.source, self.target, self.direction = source, target, direction
        self.alone = ProxyDirection()
        self.queue: collections.deque[tuple[float, memoryview, bytearray | None]] = collections.deque()
        self.queued_bytes = 0
        self.ended = False
        self.closed = False
        self.blocked = False

    def wants_read(self, bytes_max: int) -> bool:
        return not self.ended and self.queued_bytes < bytes_max


class ProxyConnection:
    def __init__(
        self, client: socket.socket, upstream: socket.socket, directions: tuple[ProxyDirection, ProxyDirection]
    ) -> None:
        self.client, self.upstream = client, upstream
        self.up = ProxyStream(client, upstream, directions[0])
        self.down = ProxyStream(upstream, client, directions[1])
        self.connected = False
        self.lost_bytes = False
        self.dead = False
        self.masks: dict[socket.socket, int] = {client: 0, upstream: 0}


class TcpProxy:
    """One thread, one selector."""

    def __init__(self, listen_port: int, target: tuple[str, int]) -> None:
        self.selector = selectors.DefaultSelector()
        self.network = NetworkConditions()
        self.directions = (ProxyDirection(), ProxyDirection())
        self.buffers = ReceiveBuffers()
        self.pairs: set[ProxyConnection] = set()
        self.streams: set[ProxyStream] = set()
        self.owner: dict[ProxyStream, ProxyConnection] = {}
        self.port, self.target = listen_port, target
        self.listener: socket.socket | None = None
        self.commands = b""
        self.accepted = 0
        os.set_blocking(0, False)
        self.selector.register(0, selectors.EVENT_READ, None)
        self.listen()

    def run(self) -> None:
        """Runs until standard input ends."""
        while True:
            for key, mask in self.selector.select(self._patience_s()):
                if key.fileobj == 0:
                    if not self._command():
                        return
                elif key.data is None:
                    self._accept()
                elif not key.data.dead:
                    self._serve(key.data, key.fileobj, mask)
            self._deliver_due()

    def listen(self) -> None:
        """Opens the port; port 0 means any free one, kept from then on."""
        if self.listener is not None:
            return
        self.listener = socket.socket()
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.listener.bind(("127.0.0.1", self.port))
        self.listener.listen(512)
        self.listener.setblocking(False)
        self.port = self.listener.getsockname()[1]
        self.selector.register(self.listener, selectors.EVENT_READ, None)

    def refuse(self) -> None:
        """Closes the port, so clients are refused at once."""
        if self.listener is not None:
            self.selector.unregister(self.listener)
            self.listener.close()
            self.listener = None

    def _patience_s(self) -> float | None:
        dues = [stream.queue[0][0] for stream in self.streams if stream.queue and not stream.blocked]
        return max(0.0, min(dues) - time.monotonic()) if dues else None

    def _accept(self) -> None:
        assert self.listener is not None
        try:
            client, _ = self.listener.accept()
        except OSError:
            return
        self.accepted += 1
        upstream = socket.socket()
        for one in (client, upstream):
            one.setblocking(False)
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = ProxyConnection(client, upstream, self.directions)
        self.pairs.add(connection)
        self.owner[connection.up] = self.owner[connection.down] = connection
        if self.network.mode == _HALF_OPEN:
            # Never connected to the target: only the client believes in the connection.
            connection.lost_bytes = True
        else:
            upstream.connect_ex(self.target)
        self._watch(connection)

    def _watch(self, connection: ProxyConnection) -> None:
        if connection.dead:
            return
        bytes_max = self.network.queue_bytes_max()
        for one, inward, outward in (
            (connection.client, connection.up, connection.down),
            (connection.upstream, connection.down, connection.up),
        ):
            mask = 0
            if one is connection.upstream and not connection.connected:
                mask = 0 if connection.lost_bytes else selectors.EVENT_WRITE
            else:
                if (connection.connected or connection.lost_bytes) and inward.wants_read(bytes_max):
                    mask |= selectors.EVENT_READ
                if outward.blocked:
                    mask |= selectors.EVENT_WRITE
            before = connection.masks[one]
            if mask != before:
                connection.masks[one] = mask
                if not before:
                    self.selector.register(one, mask, connection)
                elif mask:
                    self.selector.modify(one, mask, connection)
                else:
                    self.selector.unregister(one)

    def _serve(self, connection: ProxyConnection, ready: object, mask: int) -> None:
        try:
            if ready is connection.upstream and not connection.connected and not connection.lost_bytes:
                if connection.upstream.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                    raise ConnectionError
                connection.connected = True
            else:
                inward, outward = (
                    (connection.up, connection.down) if ready is connection.client else (connection.down, connection.up)
                )
                if mask & selectors.EVENT_WRITE:
                    outward.blocked = False
                    self._deliver(outward)
                if mask & selectors.EVENT_READ:
                    self._receive(connection, inward)
            self._watch(connection)
            self._retire(connection)
        except OSError:
            self.reset(connection)

    def _receive(self, connection: ProxyConnection, stream: ProxyStream) -> None:
        for _ in range(_ROUNDS_PER_WAKE):
            buffer = self.buffers.take()
            try:
                size = stream.source.recv_into(buffer)
            except BlockingIOError:
                self.buffers.give(buffer)
                return
            except BaseException:
                self.buffers.give(buffer)
                raise
            if not size:
                self.buffers.give(buffer)
                stream.ended = True
                self.streams.add(stream)
                self._deliver(stream)
                return
            if self.network.mode == _HALF_OPEN or connection.lost_bytes:
                connection.lost_bytes = True
                self.buffers.give(buffer)
                continue
            self._enqueue(stream, buffer, size)
            self._deliver(stream)
            if size < _CHUNK_BYTES or not stream.wants_read(self.network.queue_bytes_max()):
                return

    def _enqueue(self, stream: ProxyStream, buffer: bytearray, size: int) -> None:
        direction = stream.alone if self.network.for_each else stream.direction
        due_s = self.network.due_s(direction, size, time.monotonic())
        if stream.queue and stream.queue[-1][0] > due_s:
            # A shorter delay must not let bytes overtake.
            due_s = stream.queue[-1][0]
        if size < _SMALL_BYTES:
            stream.queue.append((due_s, memoryview(bytes(buffer[:size])), None))
            self.buffers.give(buffer)
        else:
            stream.queue.append((due_s, memoryview(buffer)[:size], buffer))
        stream.queued_bytes += size
        self.streams.add(stream)

    def _deliver(self, stream: ProxyStream) -> None:
        now_s = time.monotonic()
        if self.network.mode == _HALF_OPEN:
            self._swallow(stream)
            return
        while stream.queue and not stream.blocked:
            due_s, view, buffer = stream.queue[0]
            if due_s > now_s:
                return
            try:
                sent = stream.target.send(view)
            except BlockingIOError:
                sent = 0
            stream.direction.bytes += sent
            stream.queued_bytes -= sent
            if sent == len(view):
                stream.queue.popleft()
                self.buffers.give(buffer)
            else:
                stream.queue[0] = (due_s, view[sent:], buffer)
                stream.blocked = True
        if not stream.queue:
            self.streams.discard(stream)
            if stream.ended and not stream.closed and not self.owner[stream].lost_bytes:
                stream.closed = True
                stream.target.shutdown(socket.SHUT_WR)

    def _swallow(self, stream: ProxyStream) -> None:
        if stream.queue or stream.ended:
            self.owner[stream].lost_bytes = True
        stream.queue.clear()
        stream.queued_bytes = 0
        self.streams.discard(stream)

    def _deliver_due(self) -> None:
        now_s = time.monotonic()
        for stream in [
            stream for stream in self.streams if stream.queue and not stream.blocked and stream.queue[0][0] <= now_s
        ]:
            connection = self.owner[stream]
            try:
                self._deliver(stream)
                self._watch(connection)
                self._retire(connection)
            except OSError:
                self.reset(connection)

    def _retire(self, connection: ProxyConnection) -> None:
        if connection.up.closed and connection.down.closed:
            self._forget(connection)

    def reset(self, connection: ProxyConnection) -> None:
        for one in (connection.client, connection.upstream):
            one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self._forget(connection)

    def _forget(self, connection: ProxyConnection) -> None:
        if connection.dead:
            return
        connection.dead = True
        for one in (connection.client, connection.upstream):
            if connection.masks[one]:
                self.selector.unregister(one)
            one.close()
        for stream in (connection.up, connection.down):
            self.streams.discard(stream)
            self.owner.pop(stream, None)
        self.pairs.discard(connection)

    def _command(self) -> bool:
        got = os.read(0, 65_536)
        if not got:
            return False
        self.commands += got
        while b"\n" in self.commands:
            line, self.commands = self.commands.split(b"\n", 1)
            order = json.loads(line)
            self._obey(order)
            answer = {
                "port": self.port,
                "bytes_to_target": self.directions[0].bytes,
                "bytes_to_source": self.directions[1].bytes,
                "connections": len(self.pairs),
                "accepted": self.accepted,
            }
            os.write(1, json.dumps(answer).encode() + b"\n")
        return True

    def _obey(self, order: dict[str, object]) -> None:
        self.network.delay_s = float(str(order["delay_s"]))
        self.network.bytes_per_s = float(str(order["bytes_per_s"]))
        self.network.for_each = bool(order["for_each"])
        before, self.network.mode = self.network.mode, str(order["mode"])
        if self.network.mode == _CUT:
            self.refuse()
            for connection in list(self.pairs):
                self.reset(connection)
        else:
            self.listen()
        for connection in list(self.pairs):
            if before == _HALF_OPEN and self.network.mode == _FORWARD and connection.lost_bytes:
                # Dropped bytes are gone: going on would join bytes that were not adjacent.
                self.reset(connection)
            else:
                self._watch(connection)


def main(arguments: list[str]) -> None:
    """Arguments: port to listen on, host and port of the target."""
    TcpProxy(int(arguments[0]), (arguments[1], int(arguments[2]))).run()


if __name__ == "__main__":
    main(sys.argv[1:])
