"""What a relay's CPU costs at the least: `python -m bench.measure.relay`.

A source sends a file's pages as a broker does (sendfile), a sink reads them, and between them one process either copies
(receives a megabyte, sends it) or splices: reads the 61 bytes of each batch's header, sends them, and has the
kernel pass the rest on through a pipe without copying. The task copies: splicing is cheaper for batches of half a
megabyte alone, and such batches are only there once smaller ones were joined, for which they must be read.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import multiprocessing
import os
import resource
import socket
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from twinshore.kafka.protocol.record_batch import HEADER_BYTES

BATCH_BYTES = (16 << 10, 64 << 10, 512 << 10)
COPIED = 0
_FILE_BYTES = 1 << 30
_PASSES = 4
_PIECE_BYTES = 1 << 20
_PIPE_SIZE = 1031  # F_SETPIPE_SZ
_MOVE, _MORE = 1, 4  # SPLICE_F_MOVE, SPLICE_F_MORE
_PATIENCE_S = 300.0


@dataclass(frozen=True, slots=True)
class Relayed:
    """`batch_bytes` is COPIED for the relay that copies; `cpu_s` is the relay's alone."""

    batch_bytes: int
    total_bytes: int
    cpu_s: float

    @property
    def ns_per_kb(self) -> float:
        """The relay's CPU for a kilobyte."""
        return self.cpu_s * 1e9 / (self.total_bytes / 1024)

    @property
    def name(self) -> str:
        return f"spliced_{self.batch_bytes >> 10}k" if self.batch_bytes else "copied"


def relayed(path: str, batch_bytes: int, passes: int = _PASSES) -> Relayed:
    """One relay between a source that sends the file so many times and a sink, each a process of its own."""
    context = multiprocessing.get_context("spawn")
    with contextlib.ExitStack() as ending:
        doors = [context.Pipe(duplex=False) for _ in range(3)]
        (ours_a, source_says), (ours_b, sink_says), (told, relay_says) = doors
        source = context.Process(target=_send, args=(path, passes, source_says))
        sink = context.Process(target=_swallow, args=(sink_says,))
        for process in (source, sink):
            process.start()
            ending.callback(process.join, 10)
            ending.callback(process.terminate)
        relay = context.Process(target=_relay, args=(ours_a.recv(), ours_b.recv(), batch_bytes, relay_says))
        relay.start()
        ending.callback(relay.join, 10)
        ending.callback(relay.terminate)
        if not told.poll(_PATIENCE_S):
            raise TimeoutError(f"no relay of {path} within {_PATIENCE_S:.0f} s")
        total, cpu_s = told.recv()
    return Relayed(batch_bytes, total, cpu_s)


def _accepted(says: Connection) -> socket.socket:
    listener = socket.create_server(("127.0.0.1", 0))
    says.send(listener.getsockname()[1])
    return listener.accept()[0]


def _send(path: str, passes: int, says: Connection) -> None:
    with _accepted(says) as line, Path(path).open("rb") as file:
        for _ in range(passes):
            line.sendfile(file, 0)


def _swallow(says: Connection) -> None:
    room = bytearray(_PIECE_BYTES)
    with _accepted(says) as line:
        while line.recv_into(room):
            pass


def _relay(source_port: int, sink_port: int, batch_bytes: int, says: Connection) -> None:
    with (
        socket.create_connection(("127.0.0.1", source_port)) as source,
        socket.create_connection(("127.0.0.1", sink_port)) as sink,
    ):
        began = resource.getrusage(resource.RUSAGE_SELF)
        total = sum(_splice(source, sink, batch_bytes) if batch_bytes else _copy(source, sink))
        ended = resource.getrusage(resource.RUSAGE_SELF)
    cpu_s = ended.ru_utime - began.ru_utime + ended.ru_stime - began.ru_stime
    says.send((total, cpu_s))


def _copy(source: socket.socket, sink: socket.socket) -> Iterator[int]:
    source.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, _PIECE_BYTES // 2)
    room = memoryview(bytearray(_PIECE_BYTES))
    while got := source.recv_into(room):
        sink.sendall(room[:got])
        yield got


def _splice(source: socket.socket, sink: socket.socket, batch_bytes: int) -> Iterator[int]:
    out, into = os.pipe()
    with contextlib.suppress(OSError):  # more than this user may have: the pipe stays as it is
        fcntl.fcntl(into, _PIPE_SIZE, _PIECE_BYTES)
    while head := source.recv(HEADER_BYTES, socket.MSG_WAITALL):
        sink.send(head, socket.MSG_MORE)
        yield len(head)
        left = batch_bytes - HEADER_BYTES
        while left and (got := os.splice(source.fileno(), into, left, flags=_MOVE)):
            left -= got
            yield got
            while got:
                got -= os.splice(out, sink.fileno(), got, flags=_MOVE | (_MORE if left else 0))


@contextlib.contextmanager
def _filled() -> Iterator[str]:
    with tempfile.NamedTemporaryFile(prefix="twinshore-bench-") as file:
        for _ in range(_FILE_BYTES >> 20):
            file.write(os.urandom(1 << 20))
        file.flush()
        yield file.name


def bare_relay() -> float:
    """Nanoseconds of CPU for a kilobyte that is received and sent by the megabyte, and nothing else done with it."""
    with _filled() as path:
        return relayed(path, COPIED).ns_per_kb


def main() -> int:
    """Progress to standard error, one line of JSON to standard output: nanoseconds of CPU for a kilobyte."""
    with _filled() as path:
        found = {}
        for batch_bytes in (COPIED, *BATCH_BYTES):
            one = relayed(path, batch_bytes)
            print(f"{one.name}: {one.ns_per_kb:,.0f} ns of CPU for a kilobyte", file=sys.stderr, flush=True)
            found[one.name] = round(one.ns_per_kb)
    print(json.dumps({"bench": "relay"} | found), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
