"""What clients send costs memory as its bytes come, within one budget; and no request holds up the others for long."""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import Callable

import pytest

from tests.proxy.stage import Stage, appended, on_stage, records
from tests.proxy.talks import request, seen, session
from twinshore.config.errors import WireError
from twinshore.kafka.protocol import produce
from twinshore.kafka.protocol.apis import LIST_OFFSETS, METADATA, OFFSET_COMMIT, PRODUCE
from twinshore.kafka.protocol.primitives import uvarint
from twinshore.kafka.protocol.requests import ARRAY_ELEMENTS_MAX, Request
from twinshore.proxy.client_connection import (
    INITIAL_BUFFER_BYTES,
    PARTIAL_REQUEST_TIMEOUT_S,
    SLOW_REQUEST_TIMEOUT_S,
    SMALL_REQUEST_BYTES_MAX,
    RequestFramer,
)
from twinshore.proxy.core.limits import RequestMemory
from twinshore.proxy.core.model import FanOut, Parts

pytestmark = pytest.mark.claim(
    "proxy", "request-bounds", "no request of a client holds up the others, or takes the memory of all"
)
MIB = 1 << 20


def feed(ours: RequestFramer, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        room = ours.room()
        got = min(len(room), len(rest))
        room[:got] = rest[:got]
        ours.took(got)
        rest = rest[got:]
        ours.request(100 * MIB)


def begin(ours: RequestFramer, size: int, key: int = PRODUCE) -> None:
    feed(ours, struct.pack(">ih", size, key) + bytes(INITIAL_BUFFER_BYTES))


def test_four_bytes_make_no_room_for_megabytes() -> None:
    budget = RequestMemory(128 * MIB)
    many = [RequestFramer(budget, lambda: None) for _ in range(50)]
    for ours in many:
        feed(ours, struct.pack(">i", 4 * MIB))
    assert sum(len(ours.buffer) for ours in many) <= 50 * INITIAL_BUFFER_BYTES
    assert budget.left == 128 * MIB, "whoever has sent next to nothing takes nothing of it"


def test_all_clients_share_one_budget_and_who_waits_is_granted_in_turn() -> None:
    budget, granted = RequestMemory(6 * MIB), list[str]()

    def hears(name: str) -> Callable[[], None]:
        return lambda: granted.append(name)

    first, second, third = (RequestFramer(budget, hears(name)) for name in ("first", "second", "third"))
    begin(first, 4 * MIB)
    begin(second, 3 * MIB)
    begin(third, MIB)
    assert [first.waits, second.waits, third.waits] == [False, True, True], "nobody is passed over"
    feed(first, bytes(4 * MIB - INITIAL_BUFFER_BYTES - 2))
    assert not granted, "it is not on its way yet"
    first.settle()
    assert (granted, budget.left) == (["second", "third"], 2 * MIB)
    assert second.look(0.0, PARTIAL_REQUEST_TIMEOUT_S + 1, paused=True, busy=False) == ""
    assert second.look(PARTIAL_REQUEST_TIMEOUT_S, PARTIAL_REQUEST_TIMEOUT_S, paused=False, busy=False) == "", (
        "it was not read meanwhile"
    )
    assert second.look(SLOW_REQUEST_TIMEOUT_S + 1, 0.0, paused=False, busy=False)
    for ours in (first, second, third):
        ours.close()
    assert budget.left == 6 * MIB


def test_who_leaves_while_it_waits_takes_nothing() -> None:
    budget = RequestMemory(2 * MIB)
    first, second = RequestFramer(budget, lambda: None), RequestFramer(budget, lambda: None)
    begin(first, 2 * MIB)
    begin(second, 2 * MIB)
    second.close()
    first.close()
    assert budget.left == 2 * MIB


@pytest.mark.parametrize("key", [METADATA, OFFSET_COMMIT])
def test_no_request_but_produce_may_have_more_than_a_megabyte(key: int) -> None:
    begin(RequestFramer(RequestMemory(128 * MIB), lambda: None), SMALL_REQUEST_BYTES_MAX, key)
    with pytest.raises(WireError, match="has 1048577 bytes: 1048576 are taken at most"):
        begin(RequestFramer(RequestMemory(128 * MIB), lambda: None), SMALL_REQUEST_BYTES_MAX + 1, key)
    begin(RequestFramer(RequestMemory(128 * MIB), lambda: None), 90 * MIB, PRODUCE)


def of_metadata(count: int) -> Request:
    return request(METADATA, 9, [uvarint(count + 1) + b"\x02a\0" * count + b"\0\0\0\0"])


def of_list_offsets(count: int) -> Request:
    parts = struct.pack(">iq", 0, -1) * count
    return request(LIST_OFFSETS, 2, [struct.pack(">ibih6si", -1, 0, 1, 6, b"orders", count) + parts])


def of_produce(count: int) -> Request:
    batches = [produce.ProduceRequestPartition("orders", 0, b"")] * count
    return request(PRODUCE, 9, produce.write_produce_request(9, produce.ProduceRequest(None, 1, 1000, batches)))


@pytest.mark.parametrize("made", [of_metadata, of_list_offsets, of_produce])
def test_a_request_of_many_elements_is_refused_before_they_are_read(made: Callable[[int], Request]) -> None:
    def judge(one: Request) -> float:
        began_s = time.process_time()
        move = session().move(one, seen())
        if isinstance(move, FanOut):
            next(move.errand)
        return time.process_time() - began_s

    assert judge(made(ARRAY_ELEMENTS_MAX - 1)) < 2, "a lease is five seconds"
    with pytest.raises(WireError, match="more "):
        judge(made(ARRAY_ELEMENTS_MAX + 1))


def test_large_requests_of_two_clients_go_through_a_budget_for_one() -> None:
    async def answers(_: Request) -> Parts:
        return appended("orders", 1)

    async def play(stage: Stage) -> None:
        stage.house.budget = RequestMemory(3 * MIB)
        clients = [await stage.client() for _ in range(3)]
        for client in clients:
            client.ask(PRODUCE, 9, 5, records("orders", 2 * MIB))
        for client in clients:
            assert (await asyncio.wait_for(client.hears(), 20))[0] == 5

    on_stage(play, answers)
