"""Balancers say in a PROXY header who the client is; nobody else is believed, and nobody is waited for without end."""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from testkit.errors import mentions
from tests.proxy.stage import Client, Stage, nothing, on_stage
from tests.proxy.test_gate import rig
from tests.proxy.test_proxy_header import SIGNATURE, binary
from twinshore.kafka.protocol.apis import API_VERSIONS
from twinshore.proxy import listeners
from twinshore.proxy.core.follower_fetch import NetworkTable
from twinshore.proxy.core.limits import ConnectionLimits

CLIENT = bytes([10, 1, 2, 3])


def balanced(play: Callable[[Stage], Awaitable[None]], networks: str = "127.0.0.1") -> None:
    async def begin(stage: Stage) -> None:
        stage.house.balancers = NetworkTable([(networks, networks)])
        await play(stage)

    on_stage(begin, nothing)


async def is_served(client: Client) -> None:
    client.ask(API_VERSIONS, 0, 5, [])
    assert (await client.hears())[0] == 5


def peers(stage: Stage) -> list[str]:
    return [one.peer for one in stage.house.guests]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("header", "peer"),
    [
        (binary(CLIENT), "10.1.2.3"),
        (b"PROXY TCP4 10.1.2.3 10.9.9.9 40000 19092\r\n", "10.1.2.3"),
        (binary(CLIENT, command=0), "127.0.0.1"),
    ],
)
def test_a_client_behind_a_balancer_is_known_by_its_own_address(header: bytes, peer: str) -> None:
    async def play(stage: Stage) -> None:
        at_once, slow = await stage.client(), await stage.client()
        at_once.writer.write(header)
        await is_served(at_once)
        for number in range(len(header)):
            slow.writer.write(header[number : number + 1])
            await asyncio.sleep(0.001)
        await is_served(slow)
        assert peers(stage) == [peer, peer]

    balanced(play)


def test_what_follows_a_header_in_one_packet_is_the_clients() -> None:
    async def play(stage: Stage) -> None:
        client = await stage.client()
        client.writer.write(binary(CLIENT) + struct.pack(">ihhih", 13, API_VERSIONS, 0, 9, 3) + b"app")
        assert (await client.hears())[0] == 9

    balanced(play)


@pytest.mark.parametrize(
    ("sent", "says"),
    [
        (struct.pack(">ihhih", 13, API_VERSIONS, 0, 9, 3) + b"app", "no PROXY header"),
        (b"GET / HTTP/1.1\r\n\r\n", "no PROXY header"),
        (SIGNATURE + b"\x21\x11\xff\xff" + bytes(64), "of 65535 bytes"),
    ],
)
def test_a_balancer_that_sends_no_header_is_hung_up_on(sent: bytes, says: str) -> None:
    async def play(stage: Stage) -> None:
        client = await stage.client()
        client.writer.write(sent)
        assert await client.is_hung_up_on()
        (told,) = stage.said
        assert mentions(told, "127.0.0.1", "[proxy] balancers")
        assert says in told

    balanced(play)


def test_nobody_is_waited_for_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listeners, "PROXY_HEADER_TIMEOUT_S", 0.2)

    async def play(stage: Stage) -> None:
        client, began_s = await stage.client(), time.monotonic()
        client.writer.write(binary(CLIENT)[:20])
        assert await client.is_hung_up_on()
        assert time.monotonic() - began_s < 5
        assert "not within 0.2 s" in stage.said[0]

    balanced(play)


def test_a_balancer_that_only_looks_whether_somebody_is_there_is_no_news() -> None:
    async def play(stage: Stage) -> None:
        for header in (b"", binary(CLIENT, command=0), binary(CLIENT)[:14]):
            client = await stage.client()
            client.writer.write(header)
            await client.leaves()
        await asyncio.sleep(0.1)
        assert (stage.said, peers(stage)) == ([], [])

    balanced(play)


@pytest.mark.parametrize("header", [binary(CLIENT), b"PROXY TCP4 10.1.2.3 10.9.9.9 40000 19092\r\n"])
@pytest.mark.parametrize("networks", ["10.0.0.0/8", None])
def test_a_header_from_elsewhere_is_not_believed(header: bytes, networks: str | None) -> None:
    async def play(stage: Stage) -> None:
        plain = await stage.client()
        await is_served(plain)
        client = await stage.client()
        client.writer.write(header)
        assert await client.is_hung_up_on()
        assert [mentions(one, "127.0.0.1", "not in [proxy] balancers") for one in stage.said] == [True]

    if networks:
        balanced(play, networks)
    else:
        on_stage(play, nothing)


def test_limits_of_one_address_count_clients_and_not_their_balancer() -> None:
    async def play(stage: Stage) -> None:
        stage.house.crowd = ConnectionLimits(most_of_one=1)
        clients = [await stage.client() for _ in range(3)]
        for client, last in zip(clients, (1, 2, 1), strict=True):
            client.writer.write(binary(bytes([10, 0, 0, last])))
            if client is not clients[2]:
                await is_served(client)
        assert await clients[2].is_hung_up_on()
        assert "a client at 10.0.0.1 was not let in" in stage.said[0]

    balanced(play)


@pytest.mark.parametrize("trusts", [True, False])
def test_a_handshake_of_tls_comes_behind_the_header(tmp_path: Path, trusts: bool) -> None:
    made = rig(tmp_path)

    async def play(stage: Stage) -> None:
        stage.house.balancers = NetworkTable([("127.0.0.1", "balancer")])
        client = await stage.client()
        client.writer.write(binary(CLIENT))
        if trusts:
            await client.writer.start_tls(made.client(), server_hostname="localhost")
            await is_served(client)
            assert peers(stage) == ["10.1.2.3"]
            return
        client.writer.write(b"\x00\x00\x00\x0d no handshake")
        assert await client.is_hung_up_on()
        assert stage.said[0].startswith("a client at 10.1.2.3 was disconnected: it speaks no TLS")

    on_stage(play, nothing, gate=made.gate)
