"""How much a client may have, and how many may come."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from testkit.errors import mentions
from tests.proxy.stage import Client, Stage, appended, on_stage, records
from tests.proxy.test_gate import Rig, rig
from twinshore.kafka.clock import steady_s
from twinshore.kafka.protocol import fetch, produce
from twinshore.kafka.protocol.apis import FETCH, PRODUCE
from twinshore.kafka.protocol.requests import Request
from twinshore.proxy.core.limits import LOG_INTERVAL_S, THROTTLE_MAX_S, ByteQuotas, ConnectionLimits
from twinshore.proxy.core.model import Parts
from twinshore.state.core.proxy_values import BreakerKind, BreakerLimits, BreakerPolicy, BreakerRow, BreakerState


def test_a_client_has_a_second_s_worth_at_once_and_then_its_rate() -> None:
    quotas = ByteQuotas(1_000)
    assert quotas.take("app", 1_000, 0.0) == 0
    assert quotas.take("app", 500, 0.0) == 0.5
    assert quotas.take("other", 1_000, 0.0) == 0
    assert quotas.take("app", 0, 0.5) == 0
    had, now_s = 0, 10.0
    while now_s < 20:
        had += 300
        now_s += 0.01 + quotas.take("app", 300, now_s)
    assert 10_000 <= had <= 11_600


def test_no_wait_is_longer_than_a_client_s_patience_and_without_a_quota_there_is_none() -> None:
    assert ByteQuotas(1_000).take("app", 1 << 30, 0.0) == THROTTLE_MAX_S
    assert ByteQuotas(0).take("app", 1 << 30, 0.0) == 0


def test_so_many_are_let_in_of_one_address_and_in_all() -> None:
    crowd = ConnectionLimits(3, 2)
    assert [bool(crowd.comes(one)) for one in ("a", "a", "a", "b", "c")] == [False, False, True, False, True]
    crowd.goes("a")
    assert "3 clients are connected" not in crowd.comes("c")
    assert crowd.comes("b") == "[proxy] clients_max: 3 clients are connected"
    assert not any(ConnectionLimits().comes("a") for _ in range(1_000))


def test_that_one_was_not_let_in_is_said_once_a_minute_of_each_address() -> None:
    crowd = ConnectionLimits(1, 1)
    told = [
        crowd.should_log(one, at_s)
        for one, at_s in (("a", 0), ("b", 0), ("a", LOG_INTERVAL_S - 1), ("a", LOG_INTERVAL_S))
    ]
    assert told == [True, True, False, True]


async def answers(_: Request) -> Parts:
    return appended("orders", 1)


def test_a_client_above_its_quota_is_read_later_and_others_are_not() -> None:
    async def play(stage: Stage) -> None:
        stage.house.quotas = ByteQuotas(100_000)
        fast, slow = await stage.client(), await stage.client()
        began_s = steady_s()
        for number in range(6):
            slow.ask(PRODUCE, 9, number, records("orders", 50_000))
        for number in range(6):
            assert (await slow.hears())[0] == number
        assert 1.4 < steady_s() - began_s < 4
        stage.house.quotas = ByteQuotas(0)
        fast.ask(PRODUCE, 9, 9, records("orders"))
        assert (await fast.hears())[0] == 9
        assert stage.house.counts.slowed > 0

    on_stage(play, answers)


def test_one_too_many_is_not_let_in_until_another_has_gone() -> None:
    async def play(stage: Stage) -> None:
        stage.house.crowd = ConnectionLimits(0, 1)
        first, second, third = await stage.client(), await stage.client(), await stage.client()
        for one in (second, third):
            assert await one.is_hung_up_on()
        assert [mentions(one, "127.0.0.1", "clients_of_one_address_max", 1) for one in stage.said] == [True]
        first.ask(PRODUCE, 9, 5, records("orders"))
        assert (await first.hears())[0] == 5
        await first.leaves()
        while stage.house.guests:
            await asyncio.sleep(0.01)
        fourth = await stage.client()
        fourth.ask(PRODUCE, 9, 6, records("orders"))
        assert (await fourth.hears())[0] == 6
        assert stage.house.counts.turned_away == 2

    on_stage(play, answers)


def test_who_never_ends_a_handshake_of_tls_is_counted_until_it_is_gone(tmp_path: Path) -> None:
    own = rig(tmp_path)

    async def play(stage: Stage) -> None:
        stage.house.crowd = ConnectionLimits(2, 0)
        idle = [await stage.client() for _ in range(2)]  # no byte comes
        await asyncio.sleep(0.05)
        with pytest.raises(OSError):
            await stage.client(own.client())
        assert stage.house.counts.turned_away == 1
        assert "[proxy] clients_max: 2 clients are connected" in stage.said[0]
        for one in idle:
            await one.leaves()
        for turn in range(3):
            client = await gets_in(stage, own)
            client.ask(PRODUCE, 9, turn, records("orders"))
            assert (await client.hears())[0] == turn
            await client.leaves()
        idle[0] = await stage.client()
        idle[0].writer.write(b"GET / HTTP/1.1\r\n\r\n")
        assert await idle[0].is_hung_up_on()
        until_s = steady_s() + 10
        while stage.house.crowd.count:
            assert steady_s() < until_s
            await asyncio.sleep(0.01)

    on_stage(play, answers, gate=own.gate)


async def gets_in(stage: Stage, own: Rig) -> Client:
    """Once it is known that others are gone."""
    for _ in range(200):
        try:
            return await stage.client(own.client())
        except OSError:
            await asyncio.sleep(0.01)
    raise AssertionError("nobody is let in any more")


def test_brokers_that_answer_late_trip_a_breaker() -> None:
    row = BreakerRow(
        "orders", "*", BreakerKind.PRODUCE, BreakerState.CLOSED, BreakerPolicy.REFUSE, "it is slow", "anna", 0, 0,
        BreakerLimits(latency_ms=40, above_s=1, quiet_s=60),
    )  # fmt: skip

    async def late(_: Request) -> Parts:
        await asyncio.sleep(0.06)
        return appended("orders", 1)

    async def play(stage: Stage) -> None:
        box = stage.house.breakers
        box.tick(0, 0)
        box.take([row], 1)
        client = await stage.client()
        for second in (1, 2):
            client.ask(PRODUCE, 9, second, records("orders"))
            await client.hears()
            box.tick(second, second * 1000)
        assert box.tripped(row.key)
        client.ask(PRODUCE, 9, 9, records("orders"))
        _, body = await client.hears()
        assert [one.error for one in produce.read_produce_response(body, 1, 9).appended] == [19]
        assert len(stage.heard) == 2

    on_stage(play, late)


def test_a_consumer_that_is_cut_is_answered_once_it_would_have_waited() -> None:
    cuts = BreakerRow("orders", "*", BreakerKind.FETCH, BreakerState.OPEN, BreakerPolicy.REFUSE, "too much", "anna", 0)

    async def play(stage: Stage) -> None:
        stage.house.breakers.take([cuts], 1)
        client, hasty = await stage.client(), await stage.client()
        wanted = fetch.FetchRequest(300, 1, 1 << 20, 0, [fetch.FetchRequestPartition("orders", 0, 0, 1 << 20)])
        began_s = steady_s()
        for one in (client, hasty):
            one.ask(FETCH, 12, 7, [fetch.write_fetch_request(12, wanted)])
        await hasty.leaves()
        number, body = await client.hears()
        assert steady_s() - began_s >= 0.29
        found = fetch.read_fetch_response(body, 1, 12)
        assert (number, found.error, found.fetched, stage.heard) == (7, 0, [], [])
        client.ask(PRODUCE, 9, 8, records("orders"))
        assert (await client.hears())[0] == 8
        assert stage.said == []

    on_stage(play, answers)
