"""Many clients of one broker or proxy at once: most of them idle, some reading, some writing.

`python -m testkit.crowd JOB`, where JOB is JSON, prints a line of JSON once all are there. It ends with a
second one after it was sent a line.

Each client has asked for versions and metadata and has written a record, so that whatever is kept for a client is
there. They are sockets without a library, since five thousand clients would cost more than what is measured.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
import struct
import sys
import time
from asyncio import sslproto
from collections.abc import Sequence
from typing import Any, Final

from confluent_kafka.admin import AdminClient

from twinshore.kafka.protocol.apis import API_VERSIONS, FETCH, METADATA, PRODUCE
from twinshore.kafka.protocol.fetch import FetchRequest, FetchRequestPartition, read_fetch_response, write_fetch_request
from twinshore.kafka.protocol.framing import frame_request, read_response_header
from twinshore.kafka.protocol.produce import encode_produce
from twinshore.kafka.protocol.record_batch import HEADER_BYTES, Record, encode_batch
from twinshore.runtime.process import raise_open_files_limit

_PRODUCE_VERSION, _METADATA_VERSION, _FETCH_VERSION = 9, 9, 12
_AT_ONCE: Final = 100
_ANSWER_S: Final = 60.0
# Whoever reads begins with an answer as large as consumers have them, and then waits for little.
_FIRST_BYTES, _NEXT_BYTES, _WAIT_MS = 1 << 20, 4096, 5000


class Client:
    """One connection, and the answers it got."""

    def __init__(self, host: str, port: int, topic: str, partition: int, tls: ssl.SSLContext | None) -> None:
        self._where, self._topic, self._partition, self._tls = (host, port), topic, partition, tls
        self._write_request = _write_to(topic, partition)
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter

    async def come(self) -> None:
        self._reader, self._writer = await asyncio.open_connection(*self._where, limit=4096, ssl=self._tls)
        for request in (_versions(), _look_at(self._topic), self._write_request):
            await self._ask(request)

    async def write(self) -> None:
        await self._ask(self._write_request)

    async def read(self, position: int, bytes_max: int, bytes_min: int) -> int:
        """Where the log ends by now."""
        wanted = [FetchRequestPartition(self._topic, self._partition, position, bytes_max)]
        body = write_fetch_request(_FETCH_VERSION, FetchRequest(_WAIT_MS, bytes_min, bytes_max, 0, wanted))
        view = memoryview(await self._ask(b"".join(frame_request(FETCH, _FETCH_VERSION, 4, "crowd", [body]))))
        (found,) = read_fetch_response(view, read_response_header(view)[1], _FETCH_VERSION).fetched
        if found.error:
            raise RuntimeError(f"a reader of the crowd was told error {found.error}")
        return found.high_watermark

    async def _ask(self, request: bytes) -> bytes:
        self._writer.write(request)
        (size,) = struct.unpack(">i", await asyncio.wait_for(self._reader.readexactly(4), _ANSWER_S))
        return await self._reader.readexactly(size)

    def leave(self) -> None:
        with contextlib.suppress(AttributeError):
            self._writer.transport.abort()


def _versions() -> bytes:
    return b"".join(frame_request(API_VERSIONS, 0, 1, "crowd", [], flexible=False))


def _look_at(topic: str) -> bytes:
    name = topic.encode()
    body = bytes([2, len(name) + 1]) + name + b"\0" + b"\0\0\0\0"  # one topic; no tags, and nothing else is wanted
    return b"".join(frame_request(METADATA, _METADATA_VERSION, 2, "crowd", [body]))


def _write_to(topic: str, partition: int) -> bytes:
    batch = encode_batch([Record(0, time.time_ns() // 1_000_000, None, b"x" * 100)])
    parts = (partition, batch[:HEADER_BYTES], batch[HEADER_BYTES:])
    body = encode_produce(_PRODUCE_VERSION, [(topic, bytes(16), [parts])], acks=1)
    return b"".join(frame_request(PRODUCE, _PRODUCE_VERSION, 3, "crowd", body))


def _leaders(bootstrap: str, topic: str, ca_file: str) -> list[tuple[str, int, int]]:
    """Host and port of each partition's leader, as clients hear it."""
    tls = {"security.protocol": "SSL", "ssl.ca.location": ca_file} if ca_file else {}
    told = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2, **tls}).list_topics(topic, timeout=30)
    found = []
    for number, one in sorted(told.topics[topic].partitions.items()):
        broker = told.brokers[one.leader]
        found.append((str(broker.host), broker.port, number))
    return found


class _Crowd:
    def __init__(self, job: dict[str, Any]) -> None:
        ca_file = job.get("ca_file", "")
        leaders = _leaders(job["bootstrap"], job["topic"], ca_file)
        tls = ssl.create_default_context(cafile=ca_file) if ca_file else None
        self._few = asyncio.Semaphore(_AT_ONCE)
        self._every_s, self._written, self._errors = job["every_s"], 0, list[Exception]()
        numbers = range(job["idle"] + job.get("reading", 0) + job["busy"])
        places = (leaders[number % len(leaders)] for number in numbers)
        self._clients = [Client(host, port, job["topic"], partition, tls) for host, port, partition in places]
        reads_to = job["idle"] + job.get("reading", 0)
        self._readers, self._writers = self._clients[job["idle"] : reads_to], self._clients[reads_to:]

    async def play(self) -> None:
        begun_s = time.monotonic()
        await asyncio.gather(*map(self._come, self._clients))
        ends = await asyncio.gather(*map(self._begin_to_read, self._readers))
        _say(seconds=time.monotonic() - begun_s, clients=len(self._clients))
        ending = asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
        begun_s = time.monotonic()
        reading = [asyncio.create_task(self._read(one, end)) for one, end in zip(self._readers, ends, strict=True)]
        await asyncio.gather(*(self._work(one, place, ending) for place, one in enumerate(self._writers)))
        await asyncio.wait([ending])
        failed = [one for one in reading if one.done()]
        _say(seconds=time.monotonic() - begun_s, records=self._written, failed=len(failed))
        for client in self._clients:
            client.leave()

    async def _come(self, client: Client) -> None:
        async with self._few:
            await client.come()

    async def _begin_to_read(self, client: Client) -> int:
        async with self._few:
            return await client.read(0, _FIRST_BYTES, 1)

    async def _read(self, client: Client, position: int) -> None:
        while True:
            position = await client.read(position, _NEXT_BYTES, _FIRST_BYTES)

    async def _work(self, client: Client, place: int, ending: asyncio.Future[str]) -> None:
        await asyncio.sleep(self._every_s * place / len(self._writers))
        while not ending.done():
            await client.write()
            self._written += 1
            await asyncio.sleep(self._every_s)


def _say(**figures: float) -> None:
    print(json.dumps(figures), flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Until a line comes in."""
    raise_open_files_limit()
    sslproto.SSLProtocol.max_size = 16 << 10  # else the clients take more memory than there is
    (job,) = arguments or sys.argv[1:]

    async def play() -> None:
        await _Crowd(json.loads(job)).play()

    asyncio.run(play())


if __name__ == "__main__":
    main()
