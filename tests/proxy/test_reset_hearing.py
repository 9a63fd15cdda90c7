"""A process hears of resets from the store, says that it holds a group, and lets its members go again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.proxy.stage import Stage, on_stage
from tests.proxy.talks import by_kio
from twinshore.kafka.clock import wall_ms
from twinshore.kafka.protocol.apis import API_VERSIONS
from twinshore.kafka.protocol.requests import Request
from twinshore.proxy.core.api_versions import JOIN_GROUP
from twinshore.proxy.core.breakers import CircuitBreakers
from twinshore.proxy.core.message_codec import build_message, encode_message, get_request_type, get_response_type
from twinshore.proxy.core.model import Parts
from twinshore.proxy.core.offset_reset import OffsetResets, commits_key
from twinshore.proxy.store_sync import ResetSync, StoreSync
from twinshore.state.core.proxy_values import ProxyInstanceRow, ResetRow, ResetState
from twinshore.state.store import Store, open_store

SERVES = ProxyInstanceRow("p1", "proxy a:19092", "a", 19092, 500, 0, 1_000)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(f"sqlite:///{tmp_path}/store.db")


def held(for_ms: int = 60_000) -> ResetRow:
    return ResetRow("g", "1" * 32, ResetState.HELD, "anna", wall_ms(), wall_ms() + for_ms)


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not holds():
            await asyncio.sleep(0.01)


def test_it_says_that_it_holds_a_group_and_lets_it_go_at_its_time(store: Store) -> None:
    book, busy = OffsetResets(), {commits_key("g")}

    async def scene() -> None:
        control = StoreSync(lambda: store, CircuitBreakers(), SERVES, ResetSync(book, lambda way: way in busy))
        await control.first()
        running = asyncio.create_task(control.run())
        row = held(2_500)
        assert store.proxy_resets.change(row, seen=0)
        await until(lambda: book.holds("g"))
        await asyncio.sleep(1)
        assert store.proxy_resets.statuses(row.run) == (), "something of before is on its way"
        busy.clear()
        await until(lambda: [one.instance for one in store.proxy_resets.statuses(row.run)] == ["p1"])
        await until(lambda: not book.holds("g"))
        assert wall_ms() >= row.until_ms
        running.cancel()
        await control.end()

    asyncio.run(scene())


def test_a_client_that_joins_is_answered_once_its_group_is_held_no_more() -> None:
    async def answers(request: Request) -> Parts | None:
        if request.key == API_VERSIONS:
            return [b"\0" * 6]
        return encode_message(build_message(get_response_type(JOIN_GROUP, 5), member_id="new"))

    async def play(stage: Stage) -> None:
        house = stage.house
        hearing = ResetSync(
            house.resets, lambda way: house.in_flight_writes[way] > 0, lambda: house.changed(house.table)
        )
        hearing.tick(wall_ms())
        hearing.take((1, (held(),)))
        client = await stage.client()
        client.ask(JOIN_GROUP, 5, 11, encode_message(build_message(get_request_type(JOIN_GROUP, 5), group_id="g")))
        await until(lambda: len(house.holding) == 1)
        assert [word.waiting_members for word in hearing.words("p1", wall_ms())] == [1]
        hearing.take((2, (replace(held(), state=ResetState.DONE),)))
        number, body = await client.hears()
        assert (number, by_kio(JOIN_GROUP, 5, body).member_id, house.resets.waiting) == (11, "new", {})

    on_stage(play, answers)
