"""What an idle client costs a process: little, and nothing of what it once received."""

from __future__ import annotations

import asyncio
import tracemalloc
from typing import Any

from tests.proxy.stage import Stage, appended, nothing, on_stage, records
from tests.proxy.talks import EAST
from twinshore.kafka.protocol.apis import PRODUCE
from twinshore.kafka.protocol.framing import frame_request
from twinshore.kafka.protocol.requests import Request
from twinshore.proxy.broker_connection import BrokerConnection
from twinshore.proxy.client_connection import ClientConnection

BYTES_MAX = 7_200


def test_a_client_and_its_connection_to_a_broker_take_a_few_kilobytes() -> None:
    """Of five thousand each kilobyte is five megabytes. What the loop has for a socket is not in it."""

    async def play(stage: Stage) -> None:
        def client() -> tuple[Any, Any]:
            guest = ClientConnection(EAST, stage.house)
            return guest, BrokerConnection(
                EAST, guest._brokers, stage.house.gate.access(EAST.cluster, guest._brokers.principal)
            )

        kept = [client()]
        tracemalloc.start()
        kept += [client() for _ in range(200)]
        taken, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert taken / 200 < BYTES_MAX

    on_stage(play, nothing)


def test_a_client_that_says_nothing_holds_no_buffer() -> None:
    async def answers(request: Request) -> Any:
        return appended("orders", 7) if request.key == PRODUCE else None

    async def play(stage: Stage) -> None:
        client = await stage.client()
        client.ask(PRODUCE, 9, 1, records("orders", 200_000))
        assert (await client.hears())[0] == 1
        (guest,) = stage.house.guests
        assert isinstance(guest, ClientConnection)
        (line,) = guest._brokers._lines.values()
        assert len(guest._framer.buffer) > 200_000 and len(line.frame_reader.buffer) > 0
        stage.house.look()
        assert len(guest._framer.buffer) == len(line.frame_reader.buffer) == 0
        client.ask(PRODUCE, 9, 2, records("orders"))
        assert (await client.hears())[0] == 2

    on_stage(play, answers)


def test_half_a_request_is_kept_as_buffers_are_given_back() -> None:
    async def answers(request: Request) -> Any:
        return appended("orders", 7) if request.key == PRODUCE else None

    async def play(stage: Stage) -> None:
        client = await stage.client()
        request = b"".join(frame_request(PRODUCE, 9, 1, "app", records("orders", 5_000), True))
        client.writer.write(request[:3_000])
        while stage.house.counts.bytes_in < 3_000:
            await asyncio.sleep(0.01)
        stage.house.look()
        client.writer.write(request[3_000:])
        assert (await client.hears())[0] == 1

    on_stage(play, answers)
