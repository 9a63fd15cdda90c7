"""The process that serves clients until it is asked to end: lookout, doors and guests, in one event loop."""

from __future__ import annotations

import asyncio
import importlib
import signal
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

from twinshore.fleet import Cluster, ConfigError, NotYetError
from twinshore.fleet.once import in_words
from twinshore.fleet.settings import Settings
from twinshore.fleet.settings.sections.proxy import SECTION, ProxySettings
from twinshore.proxy.core.layout import Layout
from twinshore.proxy.core.seen import Seen
from twinshore.proxy.doors import LOOK_S, Doors
from twinshore.proxy.house import House
from twinshore.proxy.lookout import Lookout
from twinshore.proxy.metrics import ProxyCollector
from twinshore.service.server import MetricsServer
from twinshore.store import Store

# How long what clients have asked may take once the process is to end.
DRAIN_S: Final = 10.0


def serve(settings: Settings, store: Store | None, log: Callable[[str], None]) -> None:
    """Until Ctrl-C or SIGTERM. ConfigError where the address is not to be had."""
    asked = settings.of(SECTION)
    clusters = chosen(settings)
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(_Serving(asked, clusters, store, log).run())


def chosen(settings: Settings) -> list[Cluster]:
    """The clusters behind the proxy. ConfigError where there are none; NotYetError where one wants what is not spoken
    yet."""
    clusters = [settings.cluster(name) for name in settings.of(SECTION).clusters]
    if not clusters:
        raise ConfigError("[proxy] clusters: there is no cluster in the settings", hint="docs/proxy.md has an example")
    for one in clusters:
        if one.security.protocol != "PLAINTEXT":
            raise NotYetError(
                f"cluster {one.name} speaks {one.security.protocol}, and the proxy speaks PLAINTEXT only",
                hint="name others in [proxy] clusters",
            )
    return clusters


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    """Of uvloop where it is installed."""
    try:
        factory: Callable[[], asyncio.AbstractEventLoop] = importlib.import_module("uvloop").new_event_loop
    except ImportError:
        return asyncio.new_event_loop
    return factory


class _Serving:
    def __init__(
        self, asked: ProxySettings, clusters: list[Cluster], store: Store | None, log: Callable[[str], None]
    ) -> None:
        self._asked, self._log = asked, log
        names = tuple(one.name for one in clusters)
        layout = Layout(asked.advertised_host, asked.port, names, asked.nodes_per_cluster, asked.cluster_id)
        self._lookout = Lookout(clusters, layout, store, log)
        self._house = House(layout, self._lookout.seen, log, self._lookout.news)
        self._doors = Doors(asked.address, self._house, log)
        self._asked_to_end, self._news = asyncio.Event(), asyncio.Event()

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._unforeseen)
        for number in (signal.SIGINT, signal.SIGTERM):
            with suppress(RuntimeError):  # where no signals can be heard, as in a thread of a test
                loop.add_signal_handler(number, self._asked_to_end.set)
        await self._doors.bind()
        server = self._metrics_server()
        self._lookout.changed = self._changed
        tasks: list[asyncio.Task[None]] = []
        try:
            tasks.append(loop.create_task(self._begin(server)))
            ending = loop.create_task(self._ended())
            await asyncio.wait([*tasks, ending], return_when=asyncio.FIRST_COMPLETED)
            if tasks[0].done() and not ending.done():
                tasks[0].result()
            ending.cancel()
            await self._drain()
        finally:
            for task in tasks:
                task.cancel()
            self._lookout.stop()
            self._lookout.close()
            if server is not None:
                server.close()
        self._log("ended")

    async def _ended(self) -> None:
        await self._asked_to_end.wait()

    async def _begin(self, server: MetricsServer | None) -> None:
        """Looks, opens, and goes on doing so. Clients come in once a cluster has been seen: before that nobody could
        tell them what they may ask."""
        await self._lookout.first()
        looking = asyncio.create_task(self._lookout.look())
        try:
            while not self._house.seen.offers:
                await self._wait_for_news(server)
            await self._doors.open(self._house.seen)
            await self._doors.open_first()
            first = f"{self._asked.address}:{self._asked.port}"
            self._log(f"serves clients of {', '.join(self._house.layout.clusters)} at {first}")
            while True:
                await self._wait_for_news(server)
                await self._doors.open(self._house.seen)
        finally:
            looking.cancel()

    async def _wait_for_news(self, server: MetricsServer | None) -> None:
        """Also once a second, for all that has limits in time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(LOOK_S):
                await self._news.wait()
        self._news.clear()
        self._house.look()
        if server is not None:
            server.beat()

    def _changed(self, seen: Seen) -> None:
        self._house.seen = seen
        self._news.set()

    async def _drain(self) -> None:
        """What was asked is answered, for so long; then all ends."""
        self._doors.close()
        for guest in list(self._house.guests):
            guest.drain()
        until_s = asyncio.get_running_loop().time() + DRAIN_S
        while self._house.guests and asyncio.get_running_loop().time() < until_s:
            await asyncio.sleep(0.05)
        if self._house.guests:
            self._log(f"{len(self._house.guests)} clients were not answered within {DRAIN_S:g} s")
        for guest in list(self._house.guests):
            guest.hang_up("the proxy ends")

    def _metrics_server(self) -> MetricsServer | None:
        asked = self._asked
        if not asked.metrics_port:
            return None
        collector = ProxyCollector(self._house, self._doors)
        return MetricsServer(
            asked.metrics_address,
            asked.metrics_port,
            collector,
            collector.clusters,
            section="proxy",
            of="clusters",
            trouble=collector.trouble,
        )

    def _unforeseen(self, _: asyncio.AbstractEventLoop, context: Mapping[str, Any]) -> None:
        """What nobody caught: the connection that it befell has ended, and the others go on."""
        error = context.get("exception")
        what = in_words(error) if isinstance(error, Exception) else ""
        self._log(f"{context.get('message', 'unforeseen')}: {what}")
