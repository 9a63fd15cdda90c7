"""Each broker has a door; one whose port somebody has is told of once, and opened once the port is free."""

from __future__ import annotations

import asyncio
import socket

from prometheus_client import CollectorRegistry, generate_latest

from testkit.errors import mentions
from testkit.log_lines import LogLines
from tests.proxy.talks import seen
from twinshore.lab.ports import free_port_range
from twinshore.proxy.context import ProxyContext
from twinshore.proxy.core.breakers import TrafficAlarms
from twinshore.proxy.core.model import BrokerAddressing
from twinshore.proxy.core.traffic import TrafficTotals
from twinshore.proxy.listeners import Listeners
from twinshore.proxy.reporting import ProxyCollector


def test_a_port_that_somebody_has_is_told_once_and_taken_when_it_is_free(log_lines: LogLines) -> None:
    async def play() -> None:
        layout = BrokerAddressing("127.0.0.1", free_port_range(9), ("east", "west"), 4)
        house = ProxyContext(layout, seen(), lambda: None)
        doors = Listeners("127.0.0.1", house)
        collector = ProxyCollector(house, doors, TrafficTotals(), TrafficAlarms(()))
        with socket.create_server(("127.0.0.1", layout.port_of("west", 2))):
            await doors.bind()
            for _ in range(3):
                await doors.open(house.table)
            assert len(log_lines) == 1
            assert mentions(log_lines[0], f"port {layout.port_of('west', 2)}", "broker 2", "west")
            assert collector.trouble() == log_lines[0]
        await doors.open(house.table)
        assert collector.trouble() == ""
        await doors.open_first()
        ports = [
            layout.port,
            *(layout.port_of(cluster, node) for cluster, node in (("east", 1), ("east", 3), ("west", 2))),
        ]
        for port in ports:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.close()
        house.table = seen(away=("east", "west"))
        assert collector.trouble() == "no cluster answers"
        assert collector.clusters()["west"] == {"answers": False, "brokers": 1, "topics": 2}
        house.counts.requests[0] += 3
        registry = CollectorRegistry()
        registry.register(collector)
        text = generate_latest(registry).decode()
        assert 'twinshore_proxy_requests_total{api="Produce"} 3.0' in text
        assert 'twinshore_proxy_cluster_up{cluster="east"} 0.0' in text
        doors.close()
        for guest in list(house.guests):
            guest.hang_up("the test ends")
        await asyncio.sleep(0.05)

    asyncio.run(play())
