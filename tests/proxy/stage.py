"""The proxy's hands between a client and brokers of a test's own, in one event loop."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from testkit.log_lines import keep_log_lines
from tests.proxy.talks import EAST, asked_part, seen
from twinshore.kafka.protocol import produce
from twinshore.kafka.protocol.apis import METADATA, api_format
from twinshore.kafka.protocol.framing import frame_request
from twinshore.kafka.protocol.requests import Request, read_request, response_frame
from twinshore.proxy.auth import Authenticator
from twinshore.proxy.context import ProxyContext
from twinshore.proxy.core.message_codec import build_message, encode_message, get_request_type
from twinshore.proxy.core.model import BrokerAddressing, BrokerEndpoint, BrokerId, Parts, ProxiedCluster, RoutingTable
from twinshore.proxy.listeners import create_client_protocol

Answers = Callable[[Request], "Awaitable[Parts | None]"]


@dataclass
class Stage:
    """The proxy's hands between a client and a broker whose answers the test gives. `said` is the log,
    `lines` are the broker's connections."""

    answers: Answers
    house: ProxyContext
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
        tags = api_format(key, version).tags_in_request
        self.writer.write(b"".join(frame_request(key, version, number, "app", body, tags)))

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
    place: BrokerId | None = EAST,
    gate: Callable[[], Authenticator] | None = None,
    tls: ssl.SSLContext | None = None,
) -> None:
    """Plays before a broker that both clusters lead to, with this gate; `tls` is the broker's."""

    async def begin() -> None:
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
                        writer.write(b"".join(response_frame(request.key, request.version, request.number, body)))
            writer.close()

        loop = asyncio.get_running_loop()
        broker = await asyncio.start_server(talk, "127.0.0.1", 0, limit=1 << 26, ssl=tls)
        own = gate() if gate else None
        house = ProxyContext(BrokerAddressing("127.0.0.1", 1, ("east", "west"), 4), before(broker), lambda: None, own)
        server = await loop.create_server(lambda: create_client_protocol(place, house), "127.0.0.1", 0)
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

    with keep_log_lines() as said:
        asyncio.run(asyncio.wait_for(begin(), 60))


def before(broker: asyncio.Server) -> RoutingTable:
    plain = seen()
    where = BrokerEndpoint("127.0.0.1", broker.sockets[0].getsockname()[1])
    clusters = {
        name: ProxiedCluster(name, one.cluster_id, one.controller, {one.controller: where}, one.topics, one.offers)
        for name, one in plain.clusters.items()
    }
    return RoutingTable(clusters, plain.homes, plain.offers)


def records(topic: str, size: int = 10, acks: int = -1) -> Parts:
    batches = [produce.ProduceRequestPartition(topic, 0, b"x" * size)]
    return produce.write_produce_request(9, produce.ProduceRequest(None, acks, 1000, batches))


def appended(topic: str, offset: int) -> Parts:
    return [
        produce.write_produce_response(9, produce.ProduceResponse([produce.ProducedPartition(topic, 0, 0, offset)]))
    ]


def about_topics(*topics: str) -> Parts:
    named = tuple(build_message(asked_part(METADATA, 9, "topics"), name=topic) for topic in topics)
    return encode_message(build_message(get_request_type(METADATA, 9), topics=named))


async def nothing(_: Request) -> None:
    return None
