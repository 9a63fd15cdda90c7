"""The two peers of the pump's rig: processes that answer as brokers do, and what lies ready on them.

They speak one version of each request and keep no records: a source gives the same bytes again and again, at the
offsets that it is asked for, a target counts.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from twinshore.kafka.protocol.primitives import read_count, read_uvarint, uvarint
from twinshore.kafka.protocol.record_batch import Codec, Record, encode_batch

TOPIC, TOPIC_ID = "rig", bytes(range(16))
FETCH, PRODUCE, LOG_ENDS, MARKERS, VERSIONS = 1, 0, 2, 27, 18
APIS = ((PRODUCE, 9, 9), (FETCH, 13, 13), (LOG_ENDS, 7, 7), (MARKERS, 1, 1), (VERSIONS, 0, 3))
END = 1 << 50


class Workload(NamedTuple):
    """What lies ready: batches of so many records, and how much of each partition a fetch brings."""

    each: int
    value_bytes: int
    codec: Codec
    partitions: int
    part_bytes: int
    records: int


WORKLOADS = {
    "plain": Workload(16, 1000, Codec.NONE, 8, 1 << 20, 600_000),  # joined
    "lz4": Workload(512, 200, Codec.LZ4, 8, 1 << 20, 6_000_000),  # as they are
    "small": Workload(4, 100, Codec.LZ4, 8, 64 << 10, 300_000),  # merged
    "wide": Workload(4, 1000, Codec.NONE, 200, 1, 300_000),  # a batch of each of many partitions
}


def _exactly(line: socket.socket, size: int) -> bytearray:
    data = bytearray(size)
    view, filled = memoryview(data), 0
    while filled < size:
        got = line.recv_into(view[filled:])
        if not got:
            raise EOFError
        filled += got
    return data


def _requests(line: socket.socket) -> Iterator[tuple[int, int, memoryview, int]]:
    """Key, correlation and body of each request: the frame, and where the body begins."""
    while True:
        view = memoryview(_exactly(line, struct.unpack(">i", _exactly(line, 4))[0]))
        key, version, correlation, client = struct.unpack_from(">hhih", view)
        yield key, correlation, view, 10 + max(0, client) + (0 if key == VERSIONS and version < 3 else 1)


def _say(line: socket.socket, correlation: int, parts: Iterable[bytes | memoryview], *, tags: bool = True) -> None:
    body = b"".join(parts)
    line.sendall(struct.pack(">ii", len(body) + 4 + tags, correlation) + b"\0" * tags + body)


def _greet(line: socket.socket, correlation: int) -> None:
    entries = b"".join(struct.pack(">hhhB", *api, 0) for api in APIS)
    _say(line, correlation, [struct.pack(">hB", 0, len(APIS) + 1), entries, struct.pack(">iB", 0, 0)], tags=False)


@dataclass(slots=True)
class Stretch:
    """Bytes of a log, and how many offsets they take; the base offsets in them are written where it is read."""

    data: bytearray
    bases: list[tuple[int, int]]
    offsets: int

    def at(self, offset: int) -> memoryview:
        for place, base in self.bases:
            struct.pack_into(">q", self.data, place, offset + base)
        return memoryview(self.data)


def stretch_of(workload: str) -> Stretch:
    each, size, codec, _, part_bytes, _ = WORKLOADS[workload]
    words = os.urandom(size // 2) * 2
    batch = encode_batch([Record(n, time.time_ns() // 1_000_000, None, words) for n in range(each)], codec=codec)
    count = max(1, part_bytes // len(batch))
    return Stretch(bytearray(batch * count), [(n * len(batch), n * each) for n in range(count)], count * each)


def _read_fetch(view: memoryview, at: int, asked: dict[int, int]) -> None:
    """Which partitions are wanted from where, and which no more."""
    topics, at = read_count(view, at + 25)
    for _ in range(topics):
        count, at = read_count(view, at + 16)
        for _ in range(count):
            number, _, offset = struct.unpack_from(">iiq", view, at)
            asked[number], at = offset, at + 33
        at += 1
    topics, at = read_count(view, at)
    for _ in range(topics):
        count, at = read_count(view, at + 16)
        for _ in range(count):
            asked.pop(struct.unpack_from(">i", view, at)[0], None)
            at += 4
        at += 1


def _serve_source(line: socket.socket, workload: str) -> None:
    stretch, asked = stretch_of(workload), dict[int, int]()
    for key, correlation, view, at in _requests(line):
        if key == VERSIONS:
            _greet(line, correlation)
            continue
        _read_fetch(view, at, asked)
        out = [struct.pack(">ihi", 0, 0, 7), uvarint(2), TOPIC_ID, uvarint(len(asked) + 1)]
        for number, offset in asked.items():
            records = bytes(stretch.at(offset))
            out += [struct.pack(">ihqqq", number, 0, END, END, 0), b"\1", struct.pack(">i", -1)]
            out += [uvarint(len(records) + 1), records, b"\0"]
        _say(line, correlation, [*out, b"\0\0"])


def _serve_target(line: socket.socket, workload: str) -> None:
    ends = dict.fromkeys(range(WORKLOADS[workload].partitions), 0)
    for key, correlation, view, at in _requests(line):
        if key == VERSIONS:
            _greet(line, correlation)
            continue
        at += 5 if key == LOG_ENDS else 7
        topics, at = read_count(view, at)
        out: list[bytes] = []
        for _ in range(topics):
            size, at = read_uvarint(view, at)
            name, at = bytes(view[at : at + size - 1]), at + size - 1
            count, at = read_count(view, at)
            out += [uvarint(size), name, uvarint(count + 1)]
            for _ in range(count):
                (number,) = struct.unpack_from(">i", view, at)
                if key == LOG_ENDS:
                    out.append(struct.pack(">ihqqi", number, 0, -1, ends[number], 0) + b"\0")
                    at += 17
                    continue
                size, at = read_uvarint(view, at + 4)
                (delta,) = struct.unpack_from(">i", view, at + 23)
                out.append(struct.pack(">ihqqq", number, 0, ends[number], -1, 0) + b"\1\0\0")
                ends[number] += delta + 1
                at += size
            out.append(b"\0")
            at += 1
        opening, closing = (struct.pack(">i", 0), b"\0") if key == LOG_ENDS else (b"", struct.pack(">i", 0) + b"\0")
        _say(line, correlation, [opening, uvarint(topics + 1), *out, closing])


def _peer(serve: Callable[[socket.socket, str], None], door: socket.socket, workload: str) -> None:
    def talk(line: socket.socket) -> None:
        with contextlib.suppress(OSError, EOFError):
            serve(line, workload)

    parent = os.getppid()
    door.settimeout(1.0)
    while os.getppid() == parent:  # Whoever ends the pump's process may not end this one.
        with contextlib.suppress(TimeoutError):
            line, _ = door.accept()
            line.settimeout(None)
            line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=talk, args=(line,), daemon=True).start()


@contextlib.contextmanager
def peers(workload: str) -> Iterator[dict[str, tuple[str, int]]]:
    """Where the two of them listen."""
    doors = {side: socket.create_server(("127.0.0.1", 0)) for side in ("source", "target")}
    context = multiprocessing.get_context("fork")
    work = [
        context.Process(target=_peer, args=(serve, doors[side], workload), daemon=True)
        for side, serve in (("source", _serve_source), ("target", _serve_target))
    ]
    for one in work:
        one.start()
    try:
        yield {side: door.getsockname() for side, door in doors.items()}
    finally:
        for one in work:
            one.kill()
            one.join()
