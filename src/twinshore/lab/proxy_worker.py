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

    def due_s(self, lane: ProxyDirection, size: int, now_s: float) -> float:
        """When `size` bytes read now arrive: after earlier bytes on a slow line, plus the delay."""
        if self.bytes_per_s:
            lane.free_at_s = max(lane.free_at_s, now_s) + size / self.bytes_per_s
            return lane.free_at_s + self.delay_s
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
    def __init__(self, source: socket.socket, target: socket.socket, lane: ProxyDirection) -> None:
        self.source, self.target, self.lane = source, target, lane
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
        self, client: socket.socket, upstream: socket.socket, lanes: tuple[ProxyDirection, ProxyDirection]
    ) -> None:
        self.client, self.upstream = client, upstream
        self.up = ProxyStream(client, upstream, lanes[0])
        self.down = ProxyStream(upstream, client, lanes[1])
        self.connected = False
        self.lost_bytes = False
        self.dead = False
        self.masks: dict[socket.socket, int] = {client: 0, upstream: 0}


class TcpProxy:
    """One thread, one selector."""

    def __init__(self, listen_port: int, target: tuple[str, int]) -> None:
        self.selector = selectors.DefaultSelector()
        self.network = NetworkConditions()
        self.lanes = (ProxyDirection(), ProxyDirection())
        self.buffers = ReceiveBuffers()
        self.pairs: set[ProxyConnection] = set()
        self.waiting: set[ProxyStream] = set()
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
        dues = [flow.queue[0][0] for flow in self.waiting if flow.queue and not flow.blocked]
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
        pair = ProxyConnection(client, upstream, self.lanes)
        self.pairs.add(pair)
        self.owner[pair.up] = self.owner[pair.down] = pair
        if self.network.mode == _HALF_OPEN:
            # Never connected to the target: only the client believes in the connection.
            pair.lost_bytes = True
        else:
            upstream.connect_ex(self.target)
        self._watch(pair)

    def _watch(self, pair: ProxyConnection) -> None:
        if pair.dead:
            return
        bytes_max = self.network.queue_bytes_max()
        for one, inward, outward in ((pair.client, pair.up, pair.down), (pair.upstream, pair.down, pair.up)):
            mask = 0
            if one is pair.upstream and not pair.connected:
                mask = 0 if pair.lost_bytes else selectors.EVENT_WRITE
            else:
                if (pair.connected or pair.lost_bytes) and inward.wants_read(bytes_max):
                    mask |= selectors.EVENT_READ
                if outward.blocked:
                    mask |= selectors.EVENT_WRITE
            before = pair.masks[one]
            if mask != before:
                pair.masks[one] = mask
                if not before:
                    self.selector.register(one, mask, pair)
                elif mask:
                    self.selector.modify(one, mask, pair)
                else:
                    self.selector.unregister(one)

    def _serve(self, pair: ProxyConnection, ready: object, mask: int) -> None:
        try:
            if ready is pair.upstream and not pair.connected and not pair.lost_bytes:
                if pair.upstream.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                    raise ConnectionError
                pair.connected = True
            else:
                inward, outward = (pair.up, pair.down) if ready is pair.client else (pair.down, pair.up)
                if mask & selectors.EVENT_WRITE:
                    outward.blocked = False
                    self._deliver(outward)
                if mask & selectors.EVENT_READ:
                    self._receive(pair, inward)
            self._watch(pair)
            self._retire(pair)
        except OSError:
            self.reset(pair)

    def _receive(self, pair: ProxyConnection, flow: ProxyStream) -> None:
        for _ in range(_ROUNDS_PER_WAKE):
            buffer = self.buffers.take()
            try:
                size = flow.source.recv_into(buffer)
            except BlockingIOError:
                self.buffers.give(buffer)
                return
            except BaseException:
                self.buffers.give(buffer)
                raise
            if not size:
                self.buffers.give(buffer)
                flow.ended = True
                self.waiting.add(flow)
                self._deliver(flow)
                return
            if self.network.mode == _HALF_OPEN or pair.lost_bytes:
                pair.lost_bytes = True
                self.buffers.give(buffer)
                continue
            self._enqueue(flow, buffer, size)
            self._deliver(flow)
            if size < _CHUNK_BYTES or not flow.wants_read(self.network.queue_bytes_max()):
                return

    def _enqueue(self, flow: ProxyStream, buffer: bytearray, size: int) -> None:
        lane = flow.alone if self.network.for_each else flow.lane
        due_s = self.network.due_s(lane, size, time.monotonic())
        if flow.queue and flow.queue[-1][0] > due_s:
            # A shorter delay must not let bytes overtake.
            due_s = flow.queue[-1][0]
        if size < _SMALL_BYTES:
            flow.queue.append((due_s, memoryview(bytes(buffer[:size])), None))
            self.buffers.give(buffer)
        else:
            flow.queue.append((due_s, memoryview(buffer)[:size], buffer))
        flow.queued_bytes += size
        self.waiting.add(flow)

    def _deliver(self, flow: ProxyStream) -> None:
        now_s = time.monotonic()
        if self.network.mode == _HALF_OPEN:
            self._swallow(flow)
            return
        while flow.queue and not flow.blocked:
            due_s, view, buffer = flow.queue[0]
            if due_s > now_s:
                return
            try:
                sent = flow.target.send(view)
            except BlockingIOError:
                sent = 0
            flow.lane.bytes += sent
            flow.queued_bytes -= sent
            if sent == len(view):
                flow.queue.popleft()
                self.buffers.give(buffer)
            else:
                flow.queue[0] = (due_s, view[sent:], buffer)
                flow.blocked = True
        if not flow.queue:
            self.waiting.discard(flow)
            if flow.ended and not flow.closed and not self.owner[flow].lost_bytes:
                flow.closed = True
                flow.target.shutdown(socket.SHUT_WR)

    def _swallow(self, flow: ProxyStream) -> None:
        if flow.queue or flow.ended:
            self.owner[flow].lost_bytes = True
        flow.queue.clear()
        flow.queued_bytes = 0
        self.waiting.discard(flow)

    def _deliver_due(self) -> None:
        now_s = time.monotonic()
        for flow in [flow for flow in self.waiting if flow.queue and not flow.blocked and flow.queue[0][0] <= now_s]:
            pair = self.owner[flow]
            try:
                self._deliver(flow)
                self._watch(pair)
                self._retire(pair)
            except OSError:
                self.reset(pair)

    def _retire(self, pair: ProxyConnection) -> None:
        if pair.up.closed and pair.down.closed:
            self._forget(pair)

    def reset(self, pair: ProxyConnection) -> None:
        for one in (pair.client, pair.upstream):
            one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self._forget(pair)

    def _forget(self, pair: ProxyConnection) -> None:
        if pair.dead:
            return
        pair.dead = True
        for one in (pair.client, pair.upstream):
            if pair.masks[one]:
                self.selector.unregister(one)
            one.close()
        for flow in (pair.up, pair.down):
            self.waiting.discard(flow)
            self.owner.pop(flow, None)
        self.pairs.discard(pair)

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
                "bytes_to_target": self.lanes[0].bytes,
                "bytes_to_source": self.lanes[1].bytes,
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
            for pair in list(self.pairs):
                self.reset(pair)
        else:
            self.listen()
        for pair in list(self.pairs):
            if before == _HALF_OPEN and self.network.mode == _FORWARD and pair.lost_bytes:
                # Dropped bytes are gone: going on would join bytes that were not adjacent.
                self.reset(pair)
            else:
                self._watch(pair)


def main(arguments: list[str]) -> None:
    """Arguments: port to listen on, host and port of the target."""
    TcpProxy(int(arguments[0]), (arguments[1], int(arguments[2]))).run()


if __name__ == "__main__":
    main(sys.argv[1:])
