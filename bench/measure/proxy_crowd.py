"""Many clients of a proxy at once: most of them idle, some at work.

`python -m bench.measure.proxy_crowd JOB`, where JOB is JSON, prints a line of JSON once all are there. It ends with a
second one after it was sent a line.

Each client has asked for versions and metadata and has written a record, so that whatever a proxy keeps for a client is
there. They are sockets without a library, since five thousand clients would cost more than what is measured.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import resource
import struct
import sys
import time
from typing import Any

from confluent_kafka.admin import AdminClient

from twinshore.wire.batch import HEADER_BYTES
from twinshore.wire.headers import frame
from twinshore.wire.produce import encode_produce
from twinshore.wire.records import Record, encode_batch

_PRODUCE, _METADATA, _API_VERSIONS = 0, 3, 18
_PRODUCE_VERSION, _METADATA_VERSION = 9, 9
_AT_ONCE = 100
_ANSWER_S = 60.0


class Client:
    """One connection, and the answers it got."""

    def __init__(self, host: str, port: int, write: bytes, look: bytes) -> None:
        self._where, self._write_request, self._look = (host, port), write, look
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter

    async def come(self) -> None:
        self._reader, self._writer = await asyncio.open_connection(*self._where, limit=4096)
        for request in (_versions(), self._look, self._write_request):
            await self._ask(request)

    async def write(self) -> None:
        await self._ask(self._write_request)

    async def _ask(self, request: bytes) -> None:
        self._writer.write(request)
        (size,) = struct.unpack(">i", await asyncio.wait_for(self._reader.readexactly(4), _ANSWER_S))
        await self._reader.readexactly(size)

    def leave(self) -> None:
        with contextlib.suppress(AttributeError):
            self._writer.transport.abort()


def _versions() -> bytes:
    return b"".join(frame(_API_VERSIONS, 0, 1, "crowd", [], flexible=False))


def _look_at(topic: str) -> bytes:
    name = topic.encode()
    body = bytes([2, len(name) + 1]) + name + b"\0" + b"\0\0\0\0"  # one topic; no tags, and nothing else is wanted
    return b"".join(frame(_METADATA, _METADATA_VERSION, 2, "crowd", [body]))


def _write_to(topic: str, partition: int) -> bytes:
    batch = encode_batch([Record(0, time.time_ns() // 1_000_000, None, b"x" * 100)])
    parts = (partition, batch[:HEADER_BYTES], batch[HEADER_BYTES:])
    body = encode_produce(_PRODUCE_VERSION, [(topic, bytes(16), [parts])], acks=1)
    return b"".join(frame(_PRODUCE, _PRODUCE_VERSION, 3, "crowd", body))


def _leaders(bootstrap: str, topic: str) -> list[tuple[str, int, int]]:
    """Host and port of each partition's leader, as clients hear it."""
    told = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2}).list_topics(topic, timeout=30)
    found = []
    for number, one in sorted(told.topics[topic].partitions.items()):
        broker = told.brokers[one.leader]
        found.append((str(broker.host), broker.port, number))
    return found


async def _crowd(job: dict[str, Any]) -> None:
    topic, leaders = job["topic"], _leaders(job["bootstrap"], job["topic"])
    clients = []
    for number in range(job["idle"] + job["busy"]):
        host, port, partition = leaders[number % len(leaders)]
        clients.append(Client(host, port, _write_to(topic, partition), _look_at(topic)))
    few = asyncio.Semaphore(_AT_ONCE)

    async def come(client: Client) -> None:
        async with few:
            await client.come()

    begun_s = time.monotonic()
    await asyncio.gather(*map(come, clients))
    print(json.dumps({"seconds": time.monotonic() - begun_s, "clients": len(clients)}), flush=True)
    written = 0
    ending = asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)

    async def work(client: Client, first_s: float) -> None:
        nonlocal written
        await asyncio.sleep(first_s)
        while not ending.done():
            await client.write()
            written += 1
            await asyncio.sleep(job["every_s"])

    busy = clients[job["idle"] :]
    begun_s = time.monotonic()
    await asyncio.gather(*(work(one, job["every_s"] * place / len(busy)) for place, one in enumerate(busy)))
    print(json.dumps({"seconds": time.monotonic() - begun_s, "records": written}), flush=True)
    for client in clients:
        client.leave()


def more_files() -> int:
    """Raises this process's limit of open files as far as it may; the limit now."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def main() -> None:
    more_files()
    asyncio.run(_crowd(json.loads(sys.argv[1])))


if __name__ == "__main__":
    main()
