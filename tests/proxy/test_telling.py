"""Each window of what went through is told to the store once, and one that could not be told is part of the next."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from testkit.errors import mentions
from testkit.log_lines import LogLines
from twinshore.config.errors import StoreError
from twinshore.proxy import reporting as tellings
from twinshore.proxy.core.traffic import TrafficTable
from twinshore.proxy.reporting import HOUR_MS, FlowDeltas, TrafficReporter
from twinshore.state.core.proxy_values import ProxyInstanceRow, TrafficKind
from twinshore.state.store import Store, open_store

SERVES = ProxyInstanceRow("p1", "proxy a:19092", "a", 19092, 500, 0, 1_000)


class Clock:
    now_ms = 1_000_000


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(tellings, "wall_ms", lambda: made.now_ms)
    return made


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(f"sqlite:///{tmp_path}/store.db")


class Played:
    def __init__(self, store: Callable[[], Store | None], keep_hours: int = 24) -> None:
        self.flows, self.heard = TrafficTable(), list[tuple[FlowDeltas, float]]()
        self.telling = TrafficReporter(
            store,
            self.flows,
            SERVES,
            every_s=10,
            keep_hours=keep_hours,
            heard=lambda grown, lasted_s: self.heard.append((grown, lasted_s)),
        )

    def asks(self) -> None:
        self.flows.of("app", "orders", "east", TrafficKind.PRODUCE).requests += 1


def play(scene: Callable[[], Awaitable[None]]) -> None:
    async def begin() -> None:
        await scene()

    asyncio.run(begin())


def test_a_window_is_told_with_its_times(store: Store, clock: Clock) -> None:
    async def scene() -> None:
        ours = Played(lambda: store)
        ours.asks()
        clock.now_ms += 10_000
        await ours.telling.tell()
        clock.now_ms += 10_000
        await ours.telling.tell()  # nothing has come
        ours.asks()
        clock.now_ms += 5_000
        await ours.telling.end()
        rows = store.traffic.rows(0, clock.now_ms)
        assert [(row.proxy, row.since_ms, row.until_ms, row.flow.requests) for row in rows] == [
            ("proxy a:19092", 1_000_000, 1_010_000, 1),
            ("proxy a:19092", 1_020_000, 1_025_000, 1),
        ]
        assert [lasted_s for _, lasted_s in ours.heard] == [10, 10, 5]

    play(scene)


def test_a_store_that_is_away_loses_nothing(store: Store, clock: Clock, log_lines: LogLines) -> None:
    async def scene() -> None:
        away = [True]

        def find() -> Store:
            if away[0]:
                raise StoreError("the database is gone")
            return store

        ours = Played(find)
        for _ in range(2):
            ours.asks()
            clock.now_ms += 10_000
            await ours.telling.tell()
        assert [mentions(one, "the database is gone") for one in log_lines] == [True]
        away[0] = False
        ours.asks()
        clock.now_ms += 10_000
        await ours.telling.tell()
        (row,) = store.traffic.rows(0, clock.now_ms)
        assert (row.since_ms, row.until_ms, row.flow.requests) == (1_000_000, 1_030_000, 3)
        assert len(ours.heard) == 3, "who counts here hears each window by itself"
        assert len(log_lines) == 2

    play(scene)


def test_counts_that_the_store_refuses_end_no_telling(store: Store, clock: Clock, log_lines: LogLines) -> None:
    async def scene() -> None:
        ours = Played(lambda: store)
        for _ in range(3):
            ours.asks()
            ours.flows.of("odd", "orders", "east", TrafficKind.COMMIT).records -= 2**64
            clock.now_ms += 10_000
            await ours.telling.tell()
        rows = store.traffic.rows(0, clock.now_ms)
        assert [(row.key.client, row.flow.requests) for row in rows] == [("app", 1)] * 3
        assert len(log_lines) == 1

    play(scene)


def test_before_there_is_a_store_nothing_is_kept_for_it(store: Store, clock: Clock) -> None:
    async def scene() -> None:
        there: list[Store | None] = [None]
        ours = Played(lambda: there[0])
        ours.asks()
        clock.now_ms += 10_000
        await ours.telling.tell()
        there[0] = store
        ours.asks()
        clock.now_ms += 10_000
        await ours.telling.tell()
        (row,) = store.traffic.rows(0, clock.now_ms)
        assert (row.since_ms, row.flow.requests) == (1_010_000, 1)

    play(scene)


def test_old_windows_go_and_where_none_are_kept_none_are_told(store: Store, clock: Clock) -> None:
    async def scene() -> None:
        ours = Played(lambda: store, keep_hours=1)
        ours.asks()
        await ours.telling.tell()
        clock.now_ms += HOUR_MS + 10_000
        ours.asks()
        await ours.telling.tell()
        assert len(store.traffic.rows(0, clock.now_ms)) == 1
        silent = Played(lambda: store, keep_hours=0)
        silent.asks()
        await silent.telling.end()
        assert len(store.traffic.rows(0, clock.now_ms)) == 1
        assert len(silent.heard) == 1

    play(scene)
