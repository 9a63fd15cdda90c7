"""The proxy's hands between a client and brokers of a test's own, in one event loop."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from tests.proxy.talks import EAST, asked_part, seen
from twinshore.kafka.protocol import produce
from twinshore.kafka.protocol.apis import METADATA, shape_of
from twinshore.kafka.protocol.framing import frame
from twinshore.kafka.protocol.server import Request, answer_frame, read_request
from twinshore.proxy.auth import Gate
from twinshore.proxy.context import House
from twinshore.proxy.core.messages import filled, request_kind, written
from twinshore.proxy.core.model import Broker, ClusterSeen, Layout, Parts, Place, Seen
from twinshore.proxy.listeners import come_in

Answers = Callable[[Request], "Awaitable[Parts | None]"]


@dataclass
class Stage:
    """The proxy's hands between a client and a broker whose answers the test gives. `said` is the log,
    `lines` are the broker's connections."""

    answers: Answers
    house: House
    port: int
    broker: asyncio.Server
    said: list[str] = field(default_factory=list)
    heard: list[Request] = field(default_factory=list)
    talks: list[asyncio.StreamWriter] = field(default_factory=list)
    lines: list[asyncio.StreamWriter] = field(default_factory=list)

    async def client(self, context: ssl.SSLContext | None = None) -> Client:
        made = Client(*await asyncio.open_connection("127.0.0.1", self.port, ssl=context))
        self.talks.append(made.writer)
        return made


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def ask(self, key: int, version: int, number: int, body: Parts) -> None:
        tags = shape_of(key, version).tags_in_request
        self.writer.write(b"".join(frame(key, version, number, "app", body, tags)))

    async def hears(self) -> tuple[int, memoryview]:
        """The next answer: its number, and all behind that."""
        found = await one_frame(self.reader)
        return struct.unpack_from(">i", found)[0], found[4:]

    async def is_hung_up_on(self) -> bool:
        with contextlib.suppress(ConnectionError):
            return await asyncio.wait_for(self.reader.read(), 10) == b""
        return True

    async def leaves(self) -> None:
        self.writer.close()
        with contextlib.suppress(ConnectionError):
            await self.writer.wait_closed()


async def one_frame(reader: asyncio.StreamReader) -> memoryview:
    (size,) = struct.unpack(">i", await asyncio.wait_for(reader.readexactly(4), 10))
    return memoryview(await asyncio.wait_for(reader.readexactly(size), 10))


def on_stage(
    play: Callable[[Stage], Awaitable[None]],
    answers: Answers,
    place: Place | None = EAST,
    gate: Callable[[Callable[[str], None]], Gate] | None = None,
    tls: ssl.SSLContext | None = None,
) -> None:
    """Plays before a broker that both clusters lead to, with the gate that is made with the log; `tls` is the
    broker's."""

    async def begin() -> None:
        said: list[str] = []
        stage: Stage

        async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            stage.talks.append(writer)
            stage.lines.append(writer)
            with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
                while True:
                    request = read_request(await one_frame(reader))
                    stage.heard.append(request)
                    body = await stage.answers(request)
                    if body is not None:
                        writer.write(b"".join(answer_frame(request.key, request.version, request.number, body)))
            writer.close()

        loop = asyncio.get_running_loop()
        broker = await asyncio.start_server(talk, "127.0.0.1", 0, limit=1 << 26, ssl=tls)
        own = gate(said.append) if gate else None
        house = House(Layout("127.0.0.1", 1, ("east", "west"), 4), before(broker), said.append, lambda: None, own)
        server = await loop.create_server(lambda: come_in(place, house), "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        stage = Stage(answers, house, port, broker, said)
        try:
            await play(stage)
        finally:
            server.close()
            broker.close()
            for one in list(house.guests):
                one.hang_up("the test ends")
            for writer in stage.talks:
                writer.transport.abort()
            await asyncio.sleep(0.01)

    asyncio.run(asyncio.wait_for(begin(), 60))


def before(broker: asyncio.Server) -> Seen:
    plain = seen()
    where = Broker("127.0.0.1", broker.sockets[0].getsockname()[1])
    clusters = {
        name: ClusterSeen(name, one.cluster_id, one.controller, {one.controller: where}, one.topics, one.offers)
        for name, one in plain.clusters.items()
    }
    return Seen(clusters, plain.homes, plain.offers)


def records(topic: str, size: int = 10, acks: int = -1) -> Parts:
    batches = [produce.Batches(topic, 0, b"x" * size)]
    return produce.write_request(9, produce.ProduceRequest(None, acks, 1000, batches))


def appended(topic: str, offset: int) -> Parts:
    return [produce.write_answer(9, produce.ProduceAnswer([produce.Appended(topic, 0, 0, offset)]))]


def about_topics(*topics: str) -> Parts:
    named = tuple(filled(asked_part(METADATA, 9, "topics"), name=topic) for topic in topics)
    return written(filled(request_kind(METADATA, 9), topics=named))


async def nothing(_: Request) -> None:
    return None
