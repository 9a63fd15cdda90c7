"""A process hears of breakers from the store and says what they did; a store that is away changes nothing."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from testkit.errors import mentions
from testkit.log_lines import LogLines, keep_log_lines
from twinshore.config.errors import StoreError
from twinshore.config.sections.proxy import SECTION
from twinshore.config.settings import parse_settings
from twinshore.kafka.clock import wall_ms
from twinshore.proxy import store_sync as controls
from twinshore.proxy.core.breakers import CircuitBreakers
from twinshore.proxy.store_sync import StoreSync
from twinshore.runtime.live_settings import LiveSettings
from twinshore.state import proxies as rows
from twinshore.state.core.proxy_values import (
    BreakerKind,
    BreakerLimits,
    BreakerPolicy,
    BreakerRow,
    BreakerState,
    ProxyInstanceRow,
)
from twinshore.state.core.values import AuditRow, LiveSettingRow
from twinshore.state.store import Store, open_store

OPEN = BreakerRow("orders", "*", BreakerKind.PRODUCE, BreakerState.OPEN, BreakerPolicy.DROP, "too much", "anna", 1_000)
SERVES = ProxyInstanceRow("p1", "proxy a:19092", "a", 19092, 500, 0, 1_000)
TOLD = AuditRow(1_000, "", "proxy breaker", "orders", "", "open", "done", "anna")


class Played:
    def __init__(self, store: Store | None, said: LogLines) -> None:
        self.box, self.said = CircuitBreakers(), said
        self.control = StoreSync(lambda: store, self.box, SERVES)

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not holds():
                await asyncio.sleep(0.01)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(f"sqlite:///{tmp_path}/store.db")


def play(store: Store | None, scene: Callable[[Played], Awaitable[None]]) -> None:
    async def begin() -> None:
        played = Played(store, said)
        await played.control.first()
        running = asyncio.create_task(played.control.run())
        await scene(played)
        running.cancel()
        await played.control.end()

    with keep_log_lines() as said:
        asyncio.run(begin())


def test_it_takes_up_what_changes_and_says_that_it_has(store: Store) -> None:
    async def scene(played: Played) -> None:
        assert [row.revision for row in store.proxies.instances()] == [0]
        assert store.breakers.change([OPEN], seen=0, told=[TOLD])
        await played.until(lambda: played.box.cut(BreakerKind.PRODUCE, "orders", "app") == OPEN)
        await played.until(lambda: [row.revision for row in store.proxies.instances()] == [1])
        assert store.breakers.change([replace(OPEN, state=BreakerState.CLOSED)], seen=1, told=[TOLD])
        await played.until(lambda: played.box.cut(BreakerKind.PRODUCE, "orders", "app") is None)

    play(store, scene)
    assert store.proxies.instances() == (), "it has ended"


def test_what_was_dropped_is_on_the_ledger_within_a_second_and_grows_there(store: Store) -> None:
    async def scene(played: Played) -> None:
        assert store.breakers.change([OPEN], seen=0, told=[TOLD])
        await played.until(lambda: played.box.revision == 1)
        for count in (1, 2):
            played.box.answered(OPEN, 1, 5, 70)
            played.box.dropped(OPEN, "orders", "app", count, 5, 70)
            await played.until(lambda count=count: sum(row.records for row in store.proxies.drops()) == 5 * count)  # type: ignore[misc]
        assert store.breakers.change([replace(OPEN, state=BreakerState.CLOSED)], seen=1, told=[TOLD])
        await played.until(lambda: not played.box.drops)
        assert store.breakers.change([OPEN], seen=2, told=[TOLD])
        await played.until(lambda: played.box.revision == 3)
        played.box.dropped(OPEN, "orders", "app", 1, 1, 9)

    play(store, scene)
    found = [(row.topic, row.client, row.partitions, row.records, row.bytes) for row in store.proxies.drops()]
    assert found == [("orders", "app", "1", 1, 9), ("orders", "app", "1,2", 10, 140)], "to the last one"
    assert [(row.requests, row.records, row.bytes) for row in store.proxies.counts()] == [(2, 10, 140)]


def test_a_store_that_is_away_is_said_once_and_breakers_stay(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    assert store.breakers.change([OPEN], seen=0, told=[TOLD])

    def away(_: object) -> int:
        raise StoreError("the store is away")

    async def scene(played: Played) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(rows.Breakers, "revision", away)
            await played.until(lambda: len(played.said) == 1)
            played.box.dropped(OPEN, "orders", "app", 0, 5, 70)
            await asyncio.sleep(3 * controls.SYNC_INTERVAL_S)
            assert played.box.cut(BreakerKind.PRODUCE, "orders", "app") == OPEN
            assert len(played.said) == 1
        await played.until(lambda: len(played.said) == 2)
        await played.until(lambda: [row.records for row in store.proxies.drops()] == [5])

    play(store, scene)


def test_a_store_that_hangs_holds_up_no_breaker_that_closes_at_its_time(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    hangs = threading.Event()

    def hang(_: object) -> int:
        hangs.wait(20)
        raise StoreError("the store hangs")

    async def scene(played: Played) -> None:
        row = replace(OPEN, until_ms=wall_ms() + 1_500)
        assert store.breakers.change([row], seen=0, told=[TOLD])
        await played.until(lambda: played.box.cut(BreakerKind.PRODUCE, "orders", "app") == row)
        with monkeypatch.context() as patch:
            patch.setattr(rows.Breakers, "revision", hang)
            await played.until(lambda: played.box.cut(BreakerKind.PRODUCE, "orders", "app") is None)
            assert played.said == [], "it has not come back yet"
            hangs.set()

    play(store, scene)


@pytest.mark.claim(
    "proxy", "breakers-remembered", "a proxy that starts while the store is away has the breakers of the last one"
)
@pytest.mark.parametrize("remembers", [True, False])
def test_a_process_that_starts_while_the_store_is_away(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log_lines: LogLines, remembers: bool
) -> None:
    limited = replace(OPEN, topic="bills", state=BreakerState.CLOSED, limits=BreakerLimits(bytes_s=5))
    assert store.breakers.change([OPEN, limited], seen=0, told=[TOLD])
    memory = tmp_path / "breakers" if remembers else None
    monkeypatch.setattr(controls, "FIRST_SYNC_TIMEOUT_S", 1.2)

    def away() -> Store:
        raise StoreError("the store is away")

    async def begin(stores: Callable[[], Store]) -> CircuitBreakers:
        box = CircuitBreakers()
        control = StoreSync(stores, box, SERVES, memory=memory)
        await control.first()
        await control.end()
        return box

    asyncio.run(begin(lambda: store))
    log_lines.clear()
    box = asyncio.run(begin(away))
    assert box.cut(BreakerKind.PRODUCE, "orders", "app") == (OPEN if remembers else None)
    assert (box.known, BreakerKind.PRODUCE in box.looks, box.revision) == (remembers, remembers, int(remembers))
    assert [mentions(one, memory if remembers else "memory_file") for one in log_lines[1:]] == [True]


def test_live_settings_are_read_with_the_breakers_and_remembered(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log_lines: LogLines
) -> None:
    """Without the memory a process goes by its file, and says so."""
    monkeypatch.setattr(controls, "FIRST_SYNC_TIMEOUT_S", 0.1)
    settings = parse_settings("[proxy]\nclients_max = 3\n", name="test", env={})
    keys = {"proxy.clients_max": "7", "proxy.users.anna": '"salt"', "proxy.new_topics": '"north"'}
    rows = [LiveSettingRow(key, value, "anna", 1_000) for key, value in keys.items()]
    assert store.settings.change(rows, [], seen=0, told=[TOLD])

    def away() -> Store:
        raise StoreError("the store is away")

    async def begin(stores: Callable[[], Store], memory: Path) -> tuple[int, object, int]:
        live = LiveSettings(settings)
        control = StoreSync(stores, CircuitBreakers(), SERVES, memory=memory, live=live)
        await control.first()
        told = store.proxies.instances()
        await control.end()
        return live.values.settings.of(SECTION).clients_max, live.values.users, len(told) and told[0].settings_revision

    kept = tmp_path / "memory"
    assert asyncio.run(begin(lambda: store, kept)) == (7, {"anna": "salt"}, 0), "one is set aside"
    assert kept.stat().st_mode & 0o777 == 0o600
    assert asyncio.run(begin(away, kept)) == (7, {"anna": "salt"}, 0)
    log_lines.clear()
    assert asyncio.run(begin(away, tmp_path / "none")) == (3, {}, 0)
    assert [mentions(one, "memory_file") for one in log_lines][-1:] == [True]
    assert store.settings.change([], ["proxy.new_topics"], seen=1, told=[TOLD])
    assert asyncio.run(begin(lambda: store, kept)) == (7, {"anna": "salt"}, 2)


@pytest.mark.parametrize("text", ["", "{}", "[1]", '[1, [{"topic": "x"}]]', "[1, [3]]", "[[1, []]]"])
def test_a_file_that_is_damaged_remembers_nothing(text: str) -> None:
    assert controls.parse_memory(text) is None


def test_without_a_store_there_are_no_breakers() -> None:
    async def scene(played: Played) -> None:
        await asyncio.sleep(0)
        assert played.box.cut(BreakerKind.PRODUCE, "orders", "app") is None

    play(None, scene)


def test_a_breaker_that_trips_is_said_and_told(store: Store) -> None:
    row = replace(OPEN, state=BreakerState.CLOSED, limits=BreakerLimits(records_s=10, above_s=1, quiet_s=1))
    assert store.breakers.change([row], seen=0, told=[TOLD])

    async def scene(played: Played) -> None:
        async with asyncio.timeout(20):
            while not played.box.tripped(row.key):
                played.box.wants(BreakerKind.PRODUCE, "orders", "app", 100, 100)
                await asyncio.sleep(0.05)
        await played.until(lambda: any(one.tripped for one in store.proxies.counts()))
        await played.until(lambda: not played.box.tripped(row.key))
        await played.until(lambda: not any(one.tripped for one in store.proxies.counts()))
        assert [mentions(one, "orders") and ("opened" in one, "closed" in one) for one in played.said] == [
            (True, False),
            (False, True),
        ]

    play(store, scene)
