"""What the proxy knows of topics before and behind its first look, on brokers of which one answers late."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from testkit.errors import mentions
from testkit.fault_proxy import FaultProxy
from tests.proxy.served import ProxyProcess
from twinshore.config.settings import parse_settings
from twinshore.lab.cluster import LabCluster
from twinshore.proxy.cluster_view import ClusterWatcher
from twinshore.proxy.core.model import BrokerAddressing
from twinshore.proxy.lazy_store import LazyStore


@pytest.mark.claim("proxy", "marks", "no proxy serves clusters that would give two producers the same id")
def test_a_proxy_does_not_start_before_one_cluster_under_two_names(east: LabCluster, tmp_path: Path) -> None:
    proxy = ProxyProcess(tmp_path, [east.cluster, replace(east.cluster, name="again")])
    try:
        proxy.launch()
        assert proxy.process.wait(60) == 2
        assert mentions(proxy.said(), "east", "again", "producer id")
    finally:
        proxy.close()


def test_a_topic_that_both_have_is_led_to_neither_whichever_answers_first(
    east: LabCluster, west: LabCluster, tmp_path: Path
) -> None:
    topic = "lookout-both"
    east.create_topic(topic)
    west.create_topic(topic)

    async def looked(first: str) -> str | None:
        late, early = (west, east) if first == "east" else (east, west)
        host, port = late.cluster.bootstrap[0].rsplit(":", 1)
        with FaultProxy(host, int(port)) as slow:
            slow.set_delay_ms(400)
            some = {
                early.cluster.name: early.cluster,
                late.cluster.name: replace(late.cluster, bootstrap=(slow.address,)),
            }
            clusters = [some["east"], some["west"]]
            settings = parse_settings(f'[store]\nurl = "sqlite:///{tmp_path}/none.db"', name="it", env={})
            store = LazyStore(settings)
            lookout = ClusterWatcher(clusters, BrokerAddressing("127.0.0.1", 9, ("east", "west"), 4), store)
            try:
                await lookout.first()
                return lookout.table.route(topic)
            finally:
                lookout.stop()
                lookout.close()

    assert [asyncio.run(looked(first)) for first in ("east", "west")] == [None, None]
