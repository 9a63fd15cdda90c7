"""A client whose records a switch holds: they go out once it is over, or are refused; what is under way is known."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from tests.proxy.stage import Client, Stage, appended, on_stage, records
from twinshore.kafka.protocol import produce
from twinshore.kafka.protocol.apis import API_VERSIONS, PRODUCE
from twinshore.kafka.protocol.requests import Request
from twinshore.proxy import broker_connections
from twinshore.proxy import client_connection as guests
from twinshore.proxy.core.model import HomeRoute, Parts

NOT_HERE = 6
HELD, FREE, ELSEWHERE = HomeRoute("east", 1, held=True), HomeRoute("east", 1), HomeRoute("west", 2)
TORN = ELSEWHERE._replace(torn="east->west")


def lead(stage: Stage, one: HomeRoute) -> None:
    stage.house.changed(replace(stage.house.table, leads={"orders": one}))


async def error_in(client: Client) -> tuple[int, int]:
    """The number of the next answer, and its error."""
    number, body = await client.hears()
    (one,) = produce.read_produce_response(body, 1, 9).appended  # behind the tags of its header
    return number, one.error


async def acknowledges(request: Request) -> Parts | None:
    if request.key == API_VERSIONS:
        return [b"\0" * 6]
    acks = produce.read_produce_request(request.view, request.position, request.version).acks
    return appended("orders", 3) if acks else None


async def until(stage: Stage, holding: int) -> None:
    for _ in range(1000):
        if len(stage.house.holding) == holding:
            return
        await asyncio.sleep(0.01)
    raise AssertionError("nothing is held")


@pytest.mark.parametrize(("after", "error"), [(FREE, 0), (ELSEWHERE, NOT_HERE)])
def test_what_was_held_goes_on_or_is_sent_elsewhere_by_its_client(after: HomeRoute, error: int) -> None:
    async def play(stage: Stage) -> None:
        lead(stage, HELD)
        client = await stage.client()
        client.ask(PRODUCE, 9, 11, records("orders"))
        client.ask(PRODUCE, 9, 12, records("orders"))
        await until(stage, 1)
        lead(stage, HELD._replace(moves=True))
        assert (len(stage.house.holding), stage.heard) == (1, [])
        lead(stage, after)
        assert [await error_in(client) for _ in range(2)] == [(11, error), (12, error)]
        assert len(stage.heard) == (0 if error else 2)
        assert (stage.house.holding, stage.house.in_flight_writes.total()) == (set(), 0)

    on_stage(play, acknowledges)


def test_what_is_held_for_too_long_is_refused_and_not_sent_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guests, "PARKED_REQUEST_TIMEOUT_S", -1)

    async def play(stage: Stage) -> None:
        lead(stage, HELD)
        client = await stage.client()
        client.ask(PRODUCE, 9, 11, records("orders"))
        await until(stage, 1)
        client.ask(PRODUCE, 9, 12, records("orders"))
        await asyncio.sleep(0.05)
        stage.house.look()
        assert await client.is_hung_up_on(), "what was sent behind it would overtake it else"
        lead(stage, FREE)
        await asyncio.sleep(0.05)
        assert stage.heard == []

    on_stage(play, acknowledges)


def test_what_a_client_left_behind_that_is_gone_is_not_sent() -> None:
    async def play(stage: Stage) -> None:
        lead(stage, HELD)
        client = await stage.client()
        client.ask(PRODUCE, 9, 11, records("orders"))
        await until(stage, 1)
        await client.leaves()
        await asyncio.sleep(0.05)
        lead(stage, FREE)
        await until(stage, 0)
        await asyncio.sleep(0.05)
        assert (stage.heard, len(stage.house.guests)) == ([], 0)

    on_stage(play, acknowledges)


def test_a_proxy_that_ends_refuses_what_it_holds() -> None:
    async def play(stage: Stage) -> None:
        lead(stage, HELD)
        client = await stage.client()
        client.ask(PRODUCE, 9, 11, records("orders"))
        await until(stage, 1)
        for guest in list(stage.house.guests):
            guest.drain()
        assert await error_in(client) == (11, NOT_HERE)
        assert await client.is_hung_up_on()

    on_stage(play, acknowledges)


def test_nothing_is_quiet_before_the_broker_has_answered() -> None:
    slow = asyncio.Event()

    async def answers(request: Request) -> Parts | None:
        await slow.wait()
        return await acknowledges(request)

    async def play(stage: Stage) -> None:
        quiet: list[str] = []
        stage.house.quiet = quiet.append
        client = await stage.client()
        for number in (11, 12):
            client.ask(PRODUCE, 9, number, records("orders"))
        while not stage.heard or stage.house.in_flight_writes["orders"] < 2:
            await asyncio.sleep(0.01)
        lead(stage, HELD)
        assert quiet == []
        slow.set()
        assert [(await client.hears())[0] for _ in range(2)] == [11, 12]
        assert quiet == ["orders"]

    on_stage(play, answers)


def test_of_what_nobody_acknowledges_the_broker_is_asked_behind_it() -> None:
    async def play(stage: Stage) -> None:
        quiet: list[str] = []
        stage.house.quiet = quiet.append
        client = await stage.client()
        for number in range(50):
            client.ask(PRODUCE, 9, number, records("orders", acks=0))
        while len(stage.heard) < 50:
            await asyncio.sleep(0.01)
        assert (stage.house.in_flight_writes["orders"], quiet) == (1, [])
        lead(stage, HELD)
        while not quiet:
            await asyncio.sleep(0.01)
        assert [one.key for one in stage.heard[50:]] == [API_VERSIONS]
        assert not stage.house.in_flight_writes

    on_stage(play, acknowledges)


def test_what_a_client_had_under_way_when_it_left_may_still_arrive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_connections, "ARRIVAL_GRACE_S", 0.3)

    async def never(_: Request) -> Parts | None:
        await asyncio.sleep(30)
        return None

    async def play(stage: Stage) -> None:
        quiet: list[str] = []
        stage.house.quiet = quiet.append
        client = await stage.client()
        client.ask(PRODUCE, 9, 11, records("orders"))
        while not stage.house.in_flight_writes:
            await asyncio.sleep(0.01)
        lead(stage, HELD)
        await client.leaves()
        while stage.house.guests:
            await asyncio.sleep(0.01)
        assert (stage.house.in_flight_writes["orders"], quiet) == (1, [])
        await asyncio.sleep(0.4)
        assert quiet == ["orders"]

    on_stage(play, never)


def test_a_proxy_that_hears_nothing_of_switches_holds_all_writers() -> None:
    async def play(stage: Stage) -> None:
        stage.house.heard({"east": 0.0})
        client = await stage.client()
        client.ask(PRODUCE, 9, 11, records("orders"))
        await until(stage, 1)
        assert stage.house.heard({"east": float("inf")}), "it was deaf"
        stage.house.changed(stage.house.table)
        assert await error_in(client) == (11, 0)

    on_stage(play, acknowledges)


@pytest.mark.claim(
    "proxy", "lease", "a proxy that no longer hears a topic's home holds the topic's writers, whoever else answers"
)
def test_a_cluster_that_is_not_heard_holds_its_own_writers_alone() -> None:
    async def play(stage: Stage) -> None:
        client = await stage.client()
        stage.house.heard({"east": float("inf"), "west": 0.0})
        client.ask(PRODUCE, 9, 11, records("orders"))
        assert await error_in(client) == (11, 0), "orders is at home on east"
        stage.house.heard({"east": 0.0, "west": float("inf")})
        client.ask(PRODUCE, 9, 12, records("orders"))
        await until(stage, 1)

    on_stage(play, acknowledges)


@pytest.mark.parametrize(("after", "ends"), [(TORN, True), (ELSEWHERE, False)])
def test_what_a_home_that_was_given_up_has_not_answered_is_not_waited_for(after: HomeRoute, ends: bool) -> None:
    """Its answer would be about records that the topic's home does not have, and what is sent meanwhile would overtake
    what is under way."""
    answers = asyncio.Event()

    async def slowly(request: Request) -> Parts | None:
        if request.key == PRODUCE:
            await answers.wait()
        return await acknowledges(request)

    async def play(stage: Stage) -> None:
        lead(stage, FREE)
        client = await stage.client()
        client.ask(PRODUCE, 9, 11, records("orders"))
        while not stage.heard:
            await asyncio.sleep(0.01)
        lead(stage, after)
        if ends:
            assert await client.is_hung_up_on()
        answers.set()
        if not ends:
            assert await error_in(client) == (11, 0), "a planned switch waits until all is answered"

    on_stage(play, slowly)
