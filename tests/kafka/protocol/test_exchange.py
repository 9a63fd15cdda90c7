"""Frames and exchanges: what comes in pieces, claims too much, comes out of order or unasked; driven in three ways."""

from __future__ import annotations

import asyncio
import math
import socket
import struct
import tracemalloc
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kafka.peers import peer, read_message
from twinshore.config.errors import WireError
from twinshore.kafka.protocol.apis import (
    API_VERSIONS,
    FETCH,
    FETCH_RESPONSE_BYTES_MAX,
    METADATA,
    PRODUCE,
    RESPONSE_BYTES_MAX,
)
from twinshore.kafka.protocol.framing import (
    BUFFER_BYTES,
    TRUSTED_BYTES,
    FrameReader,
    FrameSizeError,
    InFlightRequests,
    Response,
    ResponseOrderError,
    drop_sent,
)

BOUND = 1 << 20


def framed(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


def answered(number: int, body: bytes = b"", tags: bytes = b"\0") -> bytes:
    return framed(struct.pack(">i", number) + tags + body)


def fed(framer: FrameReader, data: bytes) -> list[bytes]:
    """What goes out when this comes in, as much at a time as there is room for."""
    out: list[bytes] = []
    while data:
        room = framer.room()
        assert len(room) > 0
        got = min(len(room), len(data))
        room[:got] = data[:got]
        framer.took(got)
        data = data[got:]
        while (frame := framer.next(BOUND)) is not None:
            out.append(bytes(frame))
    return out


@given(
    st.lists(st.binary(min_size=4, max_size=3 * BUFFER_BYTES), max_size=12),
    st.lists(st.integers(1, 2 * BUFFER_BYTES), min_size=1, max_size=60),
    st.integers(0, 2 * BUFFER_BYTES),
)
def test_frames_come_out_as_they_went_in_whatever_the_pieces(
    payloads: list[bytes], pieces: list[int], buffer_bytes: int
) -> None:
    stream = b"".join(map(framed, payloads))
    framer = FrameReader()
    framer.lend(bytearray(buffer_bytes))
    out: list[bytes] = []
    at = 0
    for turn in range(len(stream)):
        piece = pieces[turn % len(pieces)]
        out += fed(framer, stream[at : at + piece])
        at += piece
        assert framer.waiting == min(at, len(stream)) - sum(len(one) + 4 for one in out)
        if at >= len(stream):
            break
    assert out == payloads
    assert (framer.waiting, framer.lacks) == (0, 0)


def test_what_a_frame_lacks_is_known_once_its_size_is() -> None:
    framer = FrameReader()
    assert fed(framer, struct.pack(">i", 100)[:3]) == []
    assert (framer.waiting, framer.lacks) == (3, 0)
    assert fed(framer, struct.pack(">i", 100)[3:] + bytes(30)) == []
    assert framer.lacks == 70
    assert fed(framer, bytes(70)) == [bytes(100)]


@pytest.mark.parametrize("size", [-1, 0, 3, BOUND + 1, 0x7FFFFFFF, 0x16030100])
def test_a_size_that_is_not_taken_is_refused_before_there_is_room_for_it(size: int) -> None:
    framer = FrameReader()
    with pytest.raises(FrameSizeError, match=rf"^a frame claims {size} bytes ") as caught:
        fed(framer, struct.pack(">i", size))
    assert (caught.value.size, caught.value.bytes_max) == (size, BOUND)
    assert len(framer.buffer) == BUFFER_BYTES
    assert fed(FrameReader(), framed(bytes(BOUND))) == [bytes(BOUND)]


def test_whoever_claims_much_and_sends_little_costs_little() -> None:
    framer = FrameReader()
    tracemalloc.start()
    try:
        framer.room()[:4] = struct.pack(">i", 1 << 30)
        framer.took(4)
        assert framer.next(1 << 30) is None
        framer.took(len(framer.room()) - 1)
        assert len(framer.room()) == 1
        assert tracemalloc.get_traced_memory()[1] < 2 * TRUSTED_BYTES
    finally:
        tracemalloc.stop()
    assert framer.lacks > 1 << 29


def test_a_frame_of_many_megabytes_grows_with_its_bytes() -> None:
    data = bytes(range(256)) * (9 << 12)
    framer = FrameReader()
    sizes = set()
    stream = memoryview(framed(data))
    while stream:
        room = framer.room()
        got = min(len(room), len(stream), 300_000)
        room[:got] = stream[:got]
        framer.took(got)
        stream = stream[got:]
        view = framer.next(1 << 30)
        sizes.add(len(framer.buffer))
    assert view is not None
    assert bytes(view) == data
    assert sorted(sizes) == [BUFFER_BYTES, TRUSTED_BYTES, 2 * TRUSTED_BYTES, len(data) + 4]


def test_a_lent_buffer_keeps_its_frame_while_another_is_received_into() -> None:
    framer = FrameReader()
    first, second = bytearray(64), bytearray(64)
    framer.lend(first)
    framer.room()[:9] = framed(b"first")
    framer.took(9)
    view = framer.next(BOUND)
    framer.lend(second)
    framer.room()[:10] = framed(b"second")
    framer.took(10)
    other = framer.next(BOUND)
    assert view is not None and other is not None
    assert (bytes(view), bytes(other)) == (b"first", b"second")
    assert framer.buffer is second
    framer.room()[:1] = b"\0"
    framer.took(1)
    with pytest.raises(WireError, match="the peer sent 1 bytes unasked"):
        framer.lend(first)


def test_a_frame_can_be_passed_on_with_its_size_and_kept_while_more_comes() -> None:
    framer = FrameReader()
    sent = b"\0\0\0\x05first" + b"\0\0\0\x06second"
    room = framer.room()
    room[: len(sent) - 3] = sent[:-3]
    framer.took(len(sent) - 3)
    first = framer.next(100)
    assert first is not None
    assert bytes(framer.frame_with_size(first)) == sent[:9]
    framer.let_go()
    framer.room()[:3] = sent[-3:]
    framer.took(3)
    second = framer.next(100)
    assert second is not None
    assert (bytes(first), bytes(framer.frame_with_size(second))) == (b"first", sent[9:])


def test_a_buffer_in_which_nothing_waits_is_given_back_whole_and_its_frames_stay() -> None:
    framer, sent = FrameReader(), b"\0\0\0\x05first" + b"\0\0\0\x06second"
    framer.room()[: len(sent) - 3] = sent[:-3]
    framer.took(len(sent) - 3)
    first = framer.next(100)
    framer.rest()
    assert len(framer.buffer) == BUFFER_BYTES  # half a frame waits there
    framer.room()[:3] = sent[-3:]
    framer.took(3)
    second = framer.next(100)
    framer.rest()
    assert len(framer.buffer) == 0
    framer.room()[:9] = b"\0\0\0\x05third"
    framer.took(9)
    third = framer.next(100)
    assert first is not None and second is not None and third is not None
    assert (bytes(first), bytes(second), bytes(third)) == (b"first", b"second", b"third")


def test_a_buffer_that_grew_is_given_back() -> None:
    framer = FrameReader()
    framer.lend(bytearray(1 << 20))
    framer.let_go()
    assert len(framer.buffer) == BUFFER_BYTES


@given(st.lists(st.binary(max_size=5), max_size=8), st.data())
def test_what_was_sent_is_taken_from_the_front(buffers: list[bytes], data: st.DataObject) -> None:
    whole = b"".join(buffers)
    sent = data.draw(st.integers(0, len(whole)))
    left: list[bytes | memoryview] = list(buffers)
    drop_sent(left, sent)
    assert b"".join(left) == whole[sent:]


def said(exchange: InFlightRequests, data: bytes) -> list[Response]:
    """The answers among these bytes."""
    exchange.frame_reader.lend(bytearray(len(data)))
    exchange.frame_reader.room()[:] = data
    exchange.frame_reader.took(len(data))
    found: list[Response] = []
    while (answer := exchange.answer()) is not None:
        found.append(answer)
    return found


def test_answers_belong_to_what_was_asked_in_order() -> None:
    exchange = InFlightRequests("me")
    first = b"".join(exchange.ask(PRODUCE, 9, [b"body"], 5.0))
    assert first == framed(struct.pack(">hhih", PRODUCE, 9, 1, 2) + b"me\0body")
    exchange.ask(API_VERSIONS, 3, [], 7.0)
    exchange.ask(FETCH, 11, [], 8.0)
    assert (exchange.oldest.deadline_s, len(exchange._asked)) == (5.0, 3)
    found = said(exchange, answered(1, b"one") + answered(2, b"two", b"") + answered(3, b"three", b""))
    assert [bytes(one.view[one.position :]) for one in found] == [b"one", b"two", b"three"]
    assert [one.asked.api.key for one in found] == [PRODUCE, API_VERSIONS, FETCH]
    assert not exchange._asked


def test_a_sign_of_life_puts_one_deadline_off() -> None:
    exchange = InFlightRequests("me")
    exchange.ask(PRODUCE, 9, [], 5.0)
    exchange.ask(PRODUCE, 9, [], 6.0)
    exchange.extend_deadline(9.0)
    assert exchange.oldest.deadline_s == 9.0
    said(exchange, answered(1))
    assert exchange.oldest.deadline_s == 6.0


@pytest.mark.parametrize(
    ("data", "kind", "complaint"),
    [
        (answered(2), ResponseOrderError, "Metadata 1 got the answer to 2"),
        (answered(-1), ResponseOrderError, "Metadata 1 got the answer to -1"),
        (struct.pack(">i", RESPONSE_BYTES_MAX + 1), FrameSizeError, "the answer to Metadata claims 104857601 bytes"),
        (struct.pack(">i", 3), FrameSizeError, "the answer to Metadata claims 3 bytes"),
        (framed(struct.pack(">i", 1)), WireError, "the answer to Metadata: its header cannot be read"),
        (answered(1) + b"\0", ResponseOrderError, "the peer sent 1 bytes unasked"),
    ],
)
def test_what_is_no_answer_to_the_oldest_request_is_an_error(
    data: bytes, kind: type[WireError], complaint: str
) -> None:
    exchange = InFlightRequests("me")
    exchange.ask(METADATA, 9, [], 0.0)
    with pytest.raises(kind, match=complaint):
        said(exchange, data)


def test_an_answer_may_be_as_large_as_its_api_s_are() -> None:
    exchange = InFlightRequests("me")
    exchange.ask(FETCH, 13, [], 0.0)
    assert said(exchange, struct.pack(">i", FETCH_RESPONSE_BYTES_MAX)) == []
    assert exchange.frame_reader.lacks == FETCH_RESPONSE_BYTES_MAX


def test_numbers_start_again_after_two_to_the_31() -> None:
    exchange = InFlightRequests("me")
    exchange._number = 0x7FFFFFFE
    numbers = [exchange.ask(PRODUCE, 9, [], 0.0) and exchange._asked[-1].number for _ in range(3)]
    assert numbers == [0x7FFFFFFF, 0, 1]


class Asking(asyncio.BufferedProtocol):
    """An exchange in an event loop: the loop receives into the exchange's room."""

    def __init__(self, exchange: InFlightRequests, requests: list[list[bytes | memoryview]]) -> None:
        self.exchange, self.requests = exchange, requests
        self.bodies: list[bytes] = []
        self.done = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        for request in self.requests:
            cast(asyncio.WriteTransport, transport).writelines(request)

    def get_buffer(self, _: int) -> memoryview:
        return self.exchange.frame_reader.room()

    def buffer_updated(self, got: int) -> None:
        self.exchange.frame_reader.took(got)
        while (answer := self.exchange.answer()) is not None:
            self.bodies.append(bytes(answer.view[answer.position :]))
        if not self.exchange._asked:
            self.done.set_result(None)


def test_an_event_loop_drives_an_exchange_as_well() -> None:
    sizes = [10, 100_000, 0, 3_000_000, 5]

    def serve(connection: socket.socket) -> None:
        for size in sizes:
            _, _, number, _ = read_message(connection)
            connection.sendall(answered(number, bytes(size)))

    async def ask(host: str, port: int) -> list[bytes]:
        exchange = InFlightRequests("loop")
        requests = [exchange.ask(METADATA, 12, [b"which"], math.inf) for _ in sizes]
        transport, protocol = await asyncio.get_running_loop().create_connection(
            lambda: Asking(exchange, requests), host, port
        )
        await asyncio.wait_for(protocol.done, 20)
        transport.close()
        return protocol.bodies

    with peer(serve) as (host, port):
        assert asyncio.run(ask(host, port)) == [bytes(size) for size in sizes]
