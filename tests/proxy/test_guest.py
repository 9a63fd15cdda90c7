"""One client's connection between a client and brokers of this test's own: order, pace, limits in time, and ends."""

from __future__ import annotations

import asyncio
import struct
import sys

import pytest

from tests.proxy.stage import Stage, about_topics, appended, nothing, on_stage, records
from tests.proxy.talks import by_kio
from twinshore.kafka.clock import steady_s
from twinshore.kafka.protocol import fetch, produce
from twinshore.kafka.protocol.apis import API_VERSIONS, FETCH, METADATA, PRODUCE
from twinshore.kafka.protocol.handshake import ClientSoftware, encode_api_versions_request
from twinshore.kafka.protocol.requests import Request, response_frame
from twinshore.proxy import client_connection as guests
from twinshore.proxy.broker_connection import BrokerAccess
from twinshore.proxy.client_connection import PARTIAL_REQUEST_TIMEOUT_S, ClientConnection
from twinshore.proxy.core.api_versions import HEARTBEAT, LIST_GROUPS
from twinshore.proxy.core.login import ClientPrincipal
from twinshore.proxy.core.message_codec import (
    build_message,
    decode_request,
    encode_message,
    get_element_type,
    get_request_type,
    get_response_type,
)
from twinshore.proxy.core.model import FAN_OUT_TIMEOUT_S, Parts
from twinshore.state.core.proxy_values import TrafficKind


def test_answers_come_in_the_order_of_requests_whoever_gives_them() -> None:
    slow = asyncio.Event()

    async def answers(request: Request) -> Parts:
        if request.key == PRODUCE:
            await slow.wait()
            return appended("orders", 7)
        return encode_message(build_message(get_response_type(METADATA, 9)))

    async def play(stage: Stage) -> None:
        client = await stage.client()
        client.ask(PRODUCE, 9, 11, records("orders"))
        client.ask(API_VERSIONS, 3, 12, [encode_api_versions_request(3, ClientSoftware("test", "1"))])
        client.ask(METADATA, 9, 13, about_topics("bills"))
        client.ask(PRODUCE, 9, 14, records("bills"))
        client.ask(PRODUCE, 9, 15, records("orders"))
        while len(stage.heard) < 2:
            await asyncio.sleep(0.01)
        slow.set()
        assert [(await client.hears())[0] for _ in range(5)] == [11, 12, 13, 14, 15]

    on_stage(play, answers)


def test_records_without_acks_pass_and_leave_nothing_behind() -> None:
    async def answers(request: Request) -> Parts | None:
        acks = produce.read_produce_request(request.view, request.position, request.version).acks
        return appended("orders", 3) if acks else None

    async def play(stage: Stage) -> None:
        client = await stage.client()
        for number in range(300):
            client.ask(PRODUCE, 9, number, records("orders", acks=0))
        client.ask(PRODUCE, 9, 999, records("orders"))
        assert (await client.hears())[0] == 999
        assert len(stage.heard) == 301

    on_stage(play, answers)


KEEPS = [True] if sys.version_info >= (3, 12) else [False, True]


@pytest.fixture(params=KEEPS, ids=lambda keeps: "kept" if keeps else "copied")
def keeping(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both kinds of transports: those that copy what they cannot send at once, and those that keep it."""
    monkeypatch.setattr(guests, "retains_write_buffers", lambda _: request.param)


@pytest.mark.usefixtures("keeping")
def test_a_request_and_an_answer_of_ten_megabytes_pass_as_they_are() -> None:
    size = 10 << 20
    body = produce.write_produce_request(
        9, produce.ProduceRequest(None, -1, 1000, [produce.ProduceRequestPartition("orders", 0, b"z" * size)])
    )
    answer = fetch.write_fetch_response(
        12, fetch.FetchResponse(0, 0, 0, [fetch.FetchResponsePartition("orders", 0, 0, 1, 1, records=b"y" * size)])
    )

    async def answers(request: Request) -> Parts:
        return appended("orders", 1) if request.key == PRODUCE else answer

    async def play(stage: Stage) -> None:
        client = await stage.client()
        for number in range(3):
            client.ask(PRODUCE, 9, number, body)
            assert (await client.hears())[0] == number
            assert bytes(stage.heard[-1].view[stage.heard[-1].position :]) == b"".join(body)
        wanted = fetch.FetchRequest(0, 1, 1 << 30, 0, [fetch.FetchRequestPartition("orders", 0, 0, 1 << 30)])
        client.ask(FETCH, 12, 77, [fetch.write_fetch_request(12, wanted)])
        number, found = await client.hears()
        assert (number, bytes(found[1:])) == (77, b"".join(answer))

    on_stage(play, answers)


@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HTTP/1.1\r\nHost: kafka\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64),
        struct.pack(">i", 3) + b"abc",
        struct.pack(">i", 10) + b"\xff" * 10,
        struct.pack(">ihhih", 20, PRODUCE, 9, 1, 500) + bytes(20),
        struct.pack(">i", -5),
    ],
    ids=["http", "tls", "tiny", "no api", "truncated", "negative"],
)
@pytest.mark.claim(
    "proxy",
    "hostile",
    "hostile bytes, an answer to something else and a client that reads nothing cost nobody else anything",
)
def test_garbage_ends_its_own_connection_and_no_other(sent: bytes) -> None:
    async def answers(_: Request) -> Parts:
        return appended("orders", 1)

    async def play(stage: Stage) -> None:
        other, client = await stage.client(), await stage.client()
        client.writer.write(sent)
        assert await client.is_hung_up_on()
        assert len(stage.said) == 1
        assert stage.said[0].startswith("a client at 127.0.0.1 was disconnected: it ")
        other.ask(PRODUCE, 9, 5, records("orders"))
        assert (await other.hears())[0] == 5

    on_stage(play, answers)


@pytest.mark.claim(
    "proxy",
    "hostile",
    "hostile bytes, an answer to something else and a client that reads nothing cost nobody else anything",
)
def test_a_frame_that_claims_much_makes_no_room_before_it_comes() -> None:
    async def play(stage: Stage) -> None:
        client = await stage.client()
        client.writer.write(struct.pack(">ihh", 99 << 20, PRODUCE, 9) + bytes(1000))
        while not stage.house.counts.bytes_in:
            await asyncio.sleep(0.01)
        (guest,) = stage.house.guests
        assert isinstance(guest, ClientConnection)
        assert len(guest._framer.buffer) <= 64 << 10

    on_stage(play, nothing)


def test_half_a_request_and_a_client_that_asks_nothing_end_in_time() -> None:
    async def play(stage: Stage) -> None:
        half, idle, busy = await stage.client(), await stage.client(), await stage.client()
        half.writer.write(b"\0\0\0\x20\0")
        busy.ask(PRODUCE, 9, 5, records("orders"))
        while len(stage.heard) < 1 or len(stage.house.guests) < 3:
            await asyncio.sleep(0.01)
        now_s = stage.house.now_s
        for guest in list(stage.house.guests):
            guest.look(now_s + PARTIAL_REQUEST_TIMEOUT_S - 1)
        assert len(stage.house.guests) == 3
        for guest in list(stage.house.guests):
            guest.look(now_s + PARTIAL_REQUEST_TIMEOUT_S + 5)
        assert await half.is_hung_up_on()
        assert len(stage.house.guests) == 1, "a request that no broker answered has ended as well"
        assert await busy.is_hung_up_on()
        for guest in list(stage.house.guests):
            guest.look(now_s + guests.IDLE_TIMEOUT_S + 1)
        assert await idle.is_hung_up_on()
        assert [line.rpartition("disconnected: ")[2] for line in stage.said][-1].startswith("it has asked nothing")

    on_stage(play, nothing)


@pytest.mark.claim(
    "proxy",
    "hostile",
    "hostile bytes, an answer to something else and a client that reads nothing cost nobody else anything",
)
@pytest.mark.usefixtures("keeping")
def test_a_client_that_reads_nothing_holds_back_its_broker_and_nobody_else() -> None:
    answer = fetch.write_fetch_response(
        12, fetch.FetchResponse(0, 0, 0, [fetch.FetchResponsePartition("orders", 0, 0, 1, 1, records=b"y" * (8 << 20))])
    )

    async def answers(request: Request) -> Parts:
        return answer if request.key == FETCH else appended("orders", 1)

    async def play(stage: Stage) -> None:
        slow, other = await stage.client(), await stage.client()
        wanted = fetch.FetchRequest(0, 1, 1 << 30, 0, [fetch.FetchRequestPartition("orders", 0, 0, 1 << 30)])
        slow.writer.transport.pause_reading()  # type: ignore[attr-defined]
        for number in range(30):
            slow.ask(FETCH, 12, number, [fetch.write_fetch_request(12, wanted)])
        for number in range(20):
            other.ask(PRODUCE, 9, number, records("orders"))
            assert (await other.hears())[0] == number
        await asyncio.sleep(0.3)
        assert stage.house.counts.bytes_out < 4 * (8 << 20), "the others wait at the broker"
        slow.writer.transport.resume_reading()  # type: ignore[attr-defined]
        assert [(await slow.hears())[0] for _ in range(30)] == list(range(30))

    on_stage(play, answers)


@pytest.mark.claim(
    "proxy",
    "hostile",
    "hostile bytes, an answer to something else and a client that reads nothing cost nobody else anything",
)
def test_an_answer_to_something_else_ends_both_connections() -> None:
    async def play(stage: Stage) -> None:
        async def wrong(request: Request) -> None:
            stage.lines[-1].write(b"".join(response_frame(PRODUCE, 9, request.number + 1, appended("orders", 1))))

        stage.answers = wrong
        client = await stage.client()
        client.ask(PRODUCE, 9, 5, records("orders"))
        assert await client.is_hung_up_on()
        assert "Produce 5 got the answer to 6" in stage.said[0]

    on_stage(play, nothing)


def test_an_answer_that_cannot_be_read_ends_the_client_s_connection() -> None:
    async def answers(_: Request) -> Parts:
        return [b"\xff\xff"]

    async def play(stage: Stage) -> None:
        client = await stage.client()
        client.ask(PRODUCE, 9, 5, records("orders"))
        assert await client.is_hung_up_on()
        assert "a produce response" in stage.said[0]

    on_stage(play, answers)


def test_a_broker_that_goes_takes_its_clients_along_and_an_errand_hears_that_it_did() -> None:
    async def play(stage: Stage) -> None:
        async def gone(_: Request) -> None:
            stage.lines[-1].transport.abort()

        stage.answers = gone
        client, errand = await stage.client(), await stage.client()
        client.ask(PRODUCE, 9, 5, records("orders"))
        assert await client.is_hung_up_on()
        errand.ask(METADATA, 9, 6, about_topics("orders"))
        number, body = await errand.hears()
        assert number == 6
        assert [int(one.error_code) for one in by_kio(METADATA, 9, body[1:]).topics] == [5]
        stage.broker.close()
        errand.ask(METADATA, 9, 7, about_topics("bills"))
        number, body = await errand.hears()
        assert [int(one.error_code) for one in by_kio(METADATA, 9, body[1:]).topics] == [5]

    on_stage(play, nothing)


def test_a_broker_that_says_nothing_costs_an_errand_its_part_alone() -> None:
    async def answers(request: Request) -> Parts | None:
        if request.key != METADATA:
            return appended("orders", 1)
        named = [str(one.name) for one in decode_request(request).topics]
        if named != ["orders"]:
            return None
        topic = build_message(get_element_type(get_response_type(METADATA, 9), "topics"), name="orders")
        return encode_message(build_message(get_response_type(METADATA, 9), topics=(topic,)))

    async def play(stage: Stage) -> None:
        client = await stage.client()
        client.ask(METADATA, 9, 6, about_topics("orders", "bills"))
        while len(stage.heard) < 2:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
        (guest,) = stage.house.guests
        guest.look(steady_s() + FAN_OUT_TIMEOUT_S)
        number, body = await client.hears()
        told = {str(one.name): int(one.error_code) for one in by_kio(METADATA, 9, body[1:]).topics}
        assert (number, told) == (6, {"orders": 0, "bills": 5})
        client.ask(PRODUCE, 9, 7, records("orders"))
        assert (await client.hears())[0] == 7

    on_stage(play, answers)


def test_at_the_end_what_was_asked_is_answered_and_nothing_more_is_read() -> None:
    go = asyncio.Event()

    async def answers(_: Request) -> Parts:
        await go.wait()
        return appended("orders", 1)

    async def play(stage: Stage) -> None:
        client, idle = await stage.client(), await stage.client()
        client.ask(PRODUCE, 9, 5, records("orders"))
        while not stage.heard:
            await asyncio.sleep(0.01)
        stage.house.drain()
        assert await idle.is_hung_up_on()
        late = await stage.client()
        assert await late.is_hung_up_on(), "it was let in before, and came up behind it"
        client.ask(PRODUCE, 9, 6, records("orders"))
        go.set()
        assert (await client.hears())[0] == 5
        assert await client.is_hung_up_on()
        assert len(stage.heard) == 1
        for one in (client, idle, late):
            await one.leaves()
        while stage.house.guests:
            await asyncio.sleep(0.01)
        assert stage.said == []

    on_stage(play, answers)


def test_a_client_of_the_first_port_is_led_to_a_broker_s_own() -> None:
    async def play(stage: Stage) -> None:
        client = await stage.client()
        client.ask(PRODUCE, 9, 5, records("orders"))
        number, body = await client.hears()
        found = produce.read_produce_response(body, 1, 9)
        assert (number, [one.error for one in found.appended]) == (5, [6])
        client.ask(HEARTBEAT, 4, 6, encode_message(build_message(get_request_type(HEARTBEAT, 4), group_id="g")))
        assert int(by_kio(HEARTBEAT, 4, (await client.hears())[1][1:]).error_code) == 16
        client.ask(LIST_GROUPS, 3, 7, encode_message(build_message(get_request_type(LIST_GROUPS, 3))))
        assert by_kio(LIST_GROUPS, 3, (await client.hears())[1][1:]).groups == ()
        assert stage.heard == []

    on_stage(play, nothing, place=None)


def test_brokers_are_dialled_as_who_the_client_has_shown_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    """By its certificate, before it has said a word."""
    asked: list[ClientPrincipal] = []
    shown = ClientPrincipal("CN=orders")

    async def play(stage: Stage) -> None:
        access = stage.house.gate.access
        monkeypatch.setattr(stage.house.gate, "who", lambda _: shown)

        def led(cluster: str, who: ClientPrincipal) -> BrokerAccess:
            asked.append(who)
            return access(cluster, who)

        monkeypatch.setattr(stage.house.gate, "access", led)
        client = await stage.client()
        client.ask(PRODUCE, 9, 11, records("orders"))
        await client.hears()

    async def answers(_: Request) -> Parts:
        return appended("orders", 7)

    on_stage(play, answers)
    assert asked == [shown]


def test_how_long_a_broker_took_is_counted_also_where_it_is_asked_for_a_part() -> None:
    async def answers(_: Request) -> Parts:
        return appended("orders", 7)

    async def play(stage: Stage) -> None:
        client = await stage.client()
        batches = [produce.ProduceRequestPartition(topic, 0, b"x") for topic in ("orders", "bills")]
        client.ask(PRODUCE, 9, 5, produce.write_produce_request(9, produce.ProduceRequest(None, -1, 1000, batches)))
        _, body = await client.hears()
        assert [(one.topic, one.error) for one in produce.read_produce_response(body, 1, 9).appended] == [
            ("orders", 0),
            ("bills", 6),
        ]
        (flow,) = [flow for key, flow in stage.house.traffic.window() if key.kind is TrafficKind.PRODUCE]
        assert (flow.requests, flow.answered) == (1, 1)

    on_stage(play, answers)
