"""What is on its way as a switch begins: counted until nothing more arrives, and not told where it counts no more."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from tests.proxy.stage import Stage, appended, on_stage, records
from tests.proxy.talks import seen
from tests.proxy.test_holding import FREE, HELD, acknowledges, error_in, lead
from tests.proxy.test_moved import MINE
from tests.proxy.test_moved import records as batch
from twinshore.config.model import Cluster
from twinshore.config.sections.proxy import ProxySettings
from twinshore.kafka.protocol import produce
from twinshore.kafka.protocol.apis import PRODUCE
from twinshore.kafka.protocol.requests import Request
from twinshore.proxy import broker_connections
from twinshore.proxy.auth import Authenticator
from twinshore.proxy.cluster_view import HomeWatcher
from twinshore.proxy.context import ProxyContext
from twinshore.proxy.core.model import BrokerAddressing, HomeRoute, Parts, ProducerTail
from twinshore.routing.core.home_records import HomeRecord, HomeState


def test_nothing_is_said_to_wait_before_the_loop_itself_holds() -> None:
    """A thread has read that the topic is held; the loop has not been told yet, and answers and requests come."""
    clusters = [Cluster("east", ("127.0.0.1:1",)), Cluster("west", ("127.0.0.1:2",))]
    follows = HomeWatcher("proxy", clusters)
    gate = Authenticator(ProxySettings(), clusters)
    house = ProxyContext(BrokerAddressing("127.0.0.1", 1, ("east", "west"), 4), seen(), lambda: None, gate)
    house.quiet = follows.quiet
    house.writes(["orders"])
    following = follows._tracker._following
    following.read(
        "east",
        {
            "orders": HomeRecord(
                topic="orders", home="east", cluster_id="east-id", term=1, step=2, state=HomeState.HELD, switch="5" * 32
            )
        },
        1.0,
    )
    house.written(["orders"])
    assert following.says().parked == frozenset(), "the next request goes out"
    house.table = replace(house.table, leads={"orders": HomeRoute("east", 1, held=True)})
    house.writes(["orders"])
    house.written(["orders"])
    assert following.says().parked == {"orders"}


def test_where_the_broker_is_lost_that_was_asked_behind_records_they_may_arrive_for_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(broker_connections, "ARRIVAL_GRACE_S", 0.2)
    monkeypatch.setattr("twinshore.proxy.broker_connections.ARRIVAL_GRACE_S", 0.2)

    async def play(stage: Stage) -> None:
        quiet: list[str] = []
        stage.house.quiet = quiet.append
        client = await stage.client()
        client.ask(PRODUCE, 9, 1, records("orders", acks=0))
        while not stage.heard:
            await asyncio.sleep(0.01)

        async def silent(_: Request) -> Parts | None:
            stage.lines[0].transport.abort()
            return None

        stage.answers = silent
        lead(stage, HELD)
        while not quiet:
            await asyncio.sleep(0.01)
        assert (quiet, len(stage.house.guests)) == (["orders"], 1)

    on_stage(play, acknowledges)


def test_an_errand_that_writes_may_arrive_for_a_while_once_its_broker_is_lost() -> None:
    """Of a topic that has moved, with one partition that is there already: the rest goes out as an errand."""

    async def play(stage: Stage) -> None:
        quiet: list[str] = []
        stage.house.quiet = quiet.append
        wrote = {("orders", 1): {MINE: ProducerTail(3, 9)}}
        stage.house.changed(replace(stage.house.table, leads={"orders": HomeRoute("east", 3)}, wrote=wrote))
        client = await stage.client()
        two = [
            produce.ProduceRequestPartition("orders", 0, batch(0)),
            produce.ProduceRequestPartition("orders", 1, batch(9)),
        ]
        client.ask(PRODUCE, 9, 1, produce.write_produce_request(9, produce.ProduceRequest(None, -1, 1000, two)))
        while not stage.heard:
            await asyncio.sleep(0.01)
        stage.house.changed(replace(stage.house.table, leads={"orders": HomeRoute("east", 3, held=True)}))
        stage.lines[0].transport.abort()
        await asyncio.wait_for(client.hears(), 5)
        assert (quiet, stage.house.in_flight_writes["orders"]) == ([], 1)

    async def silent(_: Request) -> Parts | None:
        await asyncio.sleep(30)
        return None

    on_stage(play, silent)


@pytest.mark.parametrize("is_deaf", [True, False])
def test_what_was_written_while_no_switch_waited_is_not_told(is_deaf: bool) -> None:
    """As after the process stood still: its clients send it again, where the topic is by now."""
    slow = asyncio.Event()

    async def answers(request: Request) -> Parts | None:
        await slow.wait()
        return await acknowledges(request)

    async def play(stage: Stage) -> None:
        client = await stage.client()
        client.ask(PRODUCE, 9, 11, records("orders"))
        while not stage.heard:
            await asyncio.sleep(0.01)
        stage.house.heard({"east": 0.0})
        if not is_deaf:  # it has heard again, before the answer came
            assert stage.house.heard({"east": float("inf")})
        slow.set()
        assert await client.is_hung_up_on()

    on_stage(play, answers)


def test_what_was_written_while_switches_waited_is_told() -> None:
    async def play(stage: Stage) -> None:
        client = await stage.client()
        client.ask(PRODUCE, 9, 11, records("orders"))
        assert not stage.house.heard({"east": float("inf")})
        assert await error_in(client) == (11, 0)
        lead(stage, FREE)

    async def answers(_: Request) -> Parts | None:
        return appended("orders", 3)

    on_stage(play, answers)
