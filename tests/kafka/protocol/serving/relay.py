"""A relay between real clients and a real broker that takes every message of ours apart and puts it together again.

What either side gets of ApiVersions, Produce and Fetch are the bytes that we wrote. Versions can be capped, so that a
client of today speaks as one of old; and addresses in Metadata are the relay's own, so that all goes through it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import queue
import socket
import struct
import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from kio.serial import entity_writer

from tests.kafka.peers import peer
from tests.kafka.protocol.serving.kio_schemas import by_kio
from twinshore.kafka.protocol import fetch, produce
from twinshore.kafka.protocol.apis import API_VERSIONS, FETCH, METADATA, PRODUCE, api_name, tags_in_response
from twinshore.kafka.protocol.framing import FrameReader, read_response_header
from twinshore.kafka.protocol.handshake import ApiVersionRange, encode_api_versions, parse_api_versions
from twinshore.kafka.protocol.primitives import Buffer
from twinshore.kafka.protocol.requests import Request, read_request, response_frame

BYTES_MAX = 100 << 20


class Asked(NamedTuple):
    """What an answer is to."""

    key: int
    version: int
    number: int


class Relay:
    """`changed` are messages that came out of our hands otherwise than they went in; `aborted` counts the aborted
    transactions that fetches told of."""

    def __init__(self, broker: tuple[str, int]) -> None:
        self.broker = broker
        self.caps: dict[int, int] = {}
        self.changed: list[str] = []
        self.aborted = 0
        self.seen: defaultdict[tuple[int, int], list[int]] = defaultdict(lambda: [0, 0])
        self._guard = threading.Lock()

    @contextlib.contextmanager
    def open(self) -> Iterator[str]:
        """Where it listens, until the block ends."""
        with peer(self._talk) as (host, port):
            self._own = host, port
            yield f"{host}:{port}"

    def _talk(self, client: socket.socket) -> None:
        asked: queue.SimpleQueue[Asked] = queue.SimpleQueue()
        with socket.create_connection(self.broker) as upstream:
            down = threading.Thread(target=self._answers, args=(upstream, client, asked))
            down.start()
            with contextlib.suppress(OSError):
                for frame in frames(client):
                    request = read_request(frame)
                    body, answered = self._request(request)
                    if answered:
                        asked.put(Asked(request.key, request.version, request.number))
                    header = bytes(frame[: request.position])
                    upstream.sendall(struct.pack(">i", len(header) + len(body)) + header + body)
            with contextlib.suppress(OSError):
                upstream.shutdown(socket.SHUT_RDWR)
            down.join()

    def _request(self, request: Request) -> tuple[bytes, bool]:
        """The body as we write it, and whether it will be answered."""
        key, version = request.key, request.version
        body, answered = bytes(request.view[request.position :]), True
        if key == PRODUCE:
            read = produce.read_produce_request(request.view, request.position, version)
            answered = read.acks != 0
            return self._same(key, version, 0, body, produce.write_produce_request(version, read)), answered
        if key == FETCH:
            wanted = fetch.read_fetch_request(request.view, request.position, version)
            return self._same(key, version, 0, body, [fetch.write_fetch_request(version, wanted)]), answered
        return body, answered

    def _answers(self, upstream: socket.socket, client: socket.socket, asked: queue.SimpleQueue[Asked]) -> None:
        with contextlib.suppress(OSError):
            for frame in frames(upstream):
                to = asked.get(timeout=20)
                number, position = read_response_header(frame, tags_in_response(to.key, to.version))
                if number != to.number:
                    self.changed.append(f"the answer to {number} where {to} was due")
                body = self._answer(to, frame, position)
                client.sendall(b"".join(response_frame(to.key, to.version, number, [body])))
        with contextlib.suppress(OSError):
            client.shutdown(socket.SHUT_RDWR)

    def _answer(self, to: Asked, view: memoryview, position: int) -> bytes:
        key, version, body = to.key, to.version, bytes(view[position:])
        if key == PRODUCE:
            appended = produce.read_produce_response(view, position, version)
            return self._same(key, version, 1, body, [produce.write_produce_response(version, appended)])
        if key == FETCH:
            fetched = fetch.read_fetch_response(view, position, version)
            if told := sum(len(part.aborted or ()) for part in fetched.fetched):
                # Each connection has a thread: one that adds nothing must not write back what it read before.
                self.aborted += told
            return self._same(key, version, 1, body, fetch.write_fetch_response(version, fetched))
        if key == API_VERSIONS:
            answer = parse_api_versions(view, position, version)
            self._same(key, version, 1, body, [encode_api_versions(version, answer)])
            offers = [
                ApiVersionRange(key, low, min(high, self.caps.get(key, high))) for key, low, high in answer.offers
            ]
            return encode_api_versions(version, answer._replace(offers=offers))
        if key == METADATA:
            return self._metadata(version, body)
        return body

    def _metadata(self, version: int, body: bytes) -> bytes:
        host, port = self._own
        told = by_kio("metadata", version, "response", body)
        brokers = tuple(dataclasses.replace(one, host=host, port=port) for one in told.brokers)
        buffer = io.BytesIO()
        entity_writer(type(told))(buffer, dataclasses.replace(told, brokers=brokers))
        return buffer.getvalue()

    def _same(self, key: int, version: int, side: int, before: bytes, parts: Sequence[Buffer]) -> bytes:
        after = b"".join(parts)
        with self._guard:
            self.seen[key, version][side] += 1
            if after != before:
                what = f"{api_name(key)} v{version} {'answer' if side else 'request'}"
                self.changed.append(f"{what}: {before[:300].hex()} became {after[:300].hex()}")
        return after


def frames(line: socket.socket) -> Iterator[memoryview]:
    """Each is good until the next is asked for."""
    framer = FrameReader()
    while got := line.recv_into(framer.room()):
        framer.took(got)
        while (frame := framer.next(BYTES_MAX)) is not None:
            yield frame
