"""The process that serves clients until it is asked to end: lookout, doors and guests, in one event loop."""

from __future__ import annotations

import asyncio
import gc
import math
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from twinshore.fleet import Cluster, ConfigError
from twinshore.fleet.once import Once, in_words
from twinshore.fleet.settings import Settings
from twinshore.fleet.settings.sections import near
from twinshore.fleet.settings.sections.proxy import ALL, SECTION, ProxySettings
from twinshore.kafka.clock import steady_s
from twinshore.proxy.control import Control, ResetHearing
from twinshore.proxy.core.alarms import Alarms
from twinshore.proxy.core.flows import Flows, Totals
from twinshore.proxy.core.layout import Layout, NewTopics
from twinshore.proxy.core.leads import check_marks
from twinshore.proxy.core.limits import Budget, Crowd, Quotas
from twinshore.proxy.core.near import Near, Networks, Rules
from twinshore.proxy.core.seen import Seen
from twinshore.proxy.doors import LOOK_S, Doors
from twinshore.proxy.follows import Follows, Led
from twinshore.proxy.gate import Gate
from twinshore.proxy.house import House
from twinshore.proxy.late_store import LateStore
from twinshore.proxy.levels import Levels
from twinshore.proxy.lookout import Lookout
from twinshore.proxy.metrics import ProxyCollector
from twinshore.proxy.several.part import Part, Word
from twinshore.proxy.telling import HOUR_MS, Grown, Telling, TopicOfTraffic
from twinshore.proxy.upstream import spare_tls_buffers
from twinshore.service.clock import wall_ms
from twinshore.service.server import MetricsServer
from twinshore.service.signals import of_a_good_end
from twinshore.store import InstanceRow

# Groups of which a mover of groups hears that they have members at work.
NAMED_MAX: Final = 5
# How long what clients have asked may take once the process is to end.
DRAIN_S: Final = 10.0


def serve(settings: Settings, store: LateStore, log: Callable[[str], None], part: Part | None = None) -> None:
    """Until Ctrl-C, SIGTERM or SIGHUP. ConfigError where the address is not to be had, or a certificate cannot be used.
    `part`: which of several processes this one is."""
    clusters = chosen(settings)
    spare_tls_buffers()
    # Python's own loop: uvloop saves nothing of a small request, and takes 2.6 times the CPU for what consumers read.
    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        runner.run(_Serving(settings, clusters, store, log, part).run())


def chosen(settings: Settings) -> list[Cluster]:
    """The clusters behind the proxy. ConfigError where there are none."""
    clusters = [settings.cluster(name) for name in settings.of(SECTION).clusters]
    if not clusters:
        raise ConfigError("[proxy] clusters: there is no cluster in the settings", hint="docs/proxy.md has an example")
    return clusters


def layout_of(asked: ProxySettings, clusters: Sequence[Cluster]) -> Layout:
    """By which numbers and ports clients know the brokers, by the settings."""
    names = tuple(one.name for one in clusters)
    new_topics = NewTopics(asked.new_topics, asked.new_topics_by_name)
    return Layout(
        asked.advertised_host,
        asked.port,
        names,
        asked.nodes_per_cluster,
        asked.cluster_id,
        new_topics,
        asked.node_hosts,
    )


def near_of(asked: near.NearSettings, clusters: Sequence[Cluster]) -> Near:
    """Where clients read what is mirrored, by the settings."""
    sites = {one.name: one.site for one in clusters}
    rules = Rules(sites, asked.next_sites, asked.behind_s_max, asked.own_topics)
    return Near(rules, Networks(asked.networks))


def _topic_of(asked: ProxySettings, clusters: list[Cluster], log: Callable[[str], None]) -> TopicOfTraffic | None:
    if not asked.traffic_topic:
        return None
    (cluster,) = [one for one in clusters if one.name == (asked.traffic_cluster or clusters[0].name)]
    return TopicOfTraffic(cluster, asked.traffic_topic, asked.traffic_keep_hours * HOUR_MS, log)


class _Serving:
    def __init__(
        self,
        settings: Settings,
        clusters: list[Cluster],
        store: LateStore,
        log: Callable[[str], None],
        part: Part | None,
    ) -> None:
        self._asked, self._log, self._deaf, self._part = settings.of(SECTION), log, Once(log), part
        self._store = store
        asked = self._asked
        layout = layout_of(asked, clusters)
        gate = Gate(asked, clusters, log)
        rules = near_of(settings.of(near.SECTION), clusters)
        self._lookout = Lookout(
            *(clusters, layout, store, log),
            follows=asked.follows_switches,
            start_all=asked.start == ALL,
            is_own=rules.rules.is_own,
        )
        self._house = House(layout, self._lookout.seen, log, self._lookout.news, gate)
        self._house.quotas = Quotas(asked.client_bytes_s)
        self._house.budget = Budget(asked.queued_bytes_max)
        self._house.crowd = Crowd(asked.clients_max, asked.clients_of_one_address_max)
        self._totals, self._alarms = Totals(), Alarms(asked.alarms)
        self._house.flows = Flows(kept=self._alarms.place_of)
        self._house.near = rules
        if asked.balancers:
            self._house.balancers = Networks((one, one) for one in asked.balancers)
        self._levels = Levels(clusters, self._house.near, lambda: self._house.seen, store, log)
        self._doors = Doors(asked.address, self._house, log, shared=part is not None)
        name = f"proxy {asked.advertised_host}:{asked.port}"
        if part is not None:
            name = f"{name}, {part.name}"
        self._follows = Follows(name, clusters, log, store) if asked.follows_switches else None
        serves = InstanceRow(uuid4().hex, name, socket.gethostname(), asked.port, wall_ms(), 0, wall_ms())
        house = self._house
        resets = ResetHearing(house.resets, lambda way: house.under_way[way] > 0, lambda: house.changed(house.seen))
        memory = Path(asked.memory_file) if asked.memory_file else None
        self._control = Control(store.get, house.fuses, serves, log, resets, memory)
        self._telling = Telling(
            store.get,
            house.flows,
            serves,
            log,
            every_s=asked.traffic_every_s,
            keep_hours=asked.traffic_keep_hours,
            heard=self._heard,
            topic=_topic_of(asked, clusters, log),
        )
        self._asked_to_end, self._news = asyncio.Event(), asyncio.Event()

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._unforeseen)
        for number in of_a_good_end():
            with suppress(RuntimeError):  # where no signals can be heard, as in a thread of a test
                loop.add_signal_handler(number, self._asked_to_end.set)
        await self._doors.bind()
        server = self._metrics_server()
        self._lookout.changed = self._changed
        if self._follows is not None:
            self._house.heard(dict.fromkeys(self._house.layout.clusters, -math.inf))
            self._house.quiet = self._follows.quiet
            self._follows.changed = self._led
            self._follows.start()
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
            await self._telling.end()
            await self._control.end()
            self._lookout.stop()
            self._lookout.close()
            self._levels.close()
            if self._follows is not None:
                await loop.run_in_executor(None, self._follows.stop)
            self._house.gate.close()
            if server is not None:
                server.close()
        self._log("ended")

    async def _ended(self) -> None:
        await self._asked_to_end.wait()

    async def _begin(self, server: MetricsServer | None) -> None:
        """Looks, opens, and goes on doing so. Clients come in once a cluster has been seen, as nothing before that says
        what they may ask, and home words were read: readers would be led to old homes, and commit there."""
        await asyncio.gather(self._lookout.first(), self._control.first())
        check_marks({name: one.cluster_id for name, one in self._lookout.seen.clusters.items() if one.was_seen})
        self._store.check_version()  # one that is merely away is waited for
        tasks = (self._lookout.look(), self._control.run(), self._levels.run(), self._telling.run())
        looking = [asyncio.create_task(one) for one in tasks]
        try:
            while not (self._house.seen.offers and (self._follows is None or self._follows.has_heard())):
                await self._wait_for_news(server)
            await self._doors.open(self._house.seen)
            # What is loaded by now stays: to look through it for garbage would hold up clients now and then.
            gc.collect()
            gc.freeze()
            await self._doors.open_first()
            first = f"{self._asked.address}:{self._asked.port}"
            self._log(f"serves clients of {', '.join(self._house.layout.clusters)} at {first}")
            self._tell(Word.SERVES)
            while True:
                await self._wait_for_news(server)
                await self._doors.open(self._house.seen)
        finally:
            for one in looking:
                one.cancel()

    async def _wait_for_news(self, server: MetricsServer | None) -> None:
        """Also once a second, for all that has limits in time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(LOOK_S):
                await self._news.wait()
        self._news.clear()
        self._house.look()
        if self._follows is not None and (why := self._follows.trouble()):
            self._deaf.say(why)
        else:
            self._deaf.well("all clusters are heard again: writers go on")
        self._tell(Word.BEAT)
        if server is not None:
            server.beat()

    def _tell(self, word: Word, text: str = "") -> None:
        if self._part is not None:
            self._part.tell(word, text)

    def _changed(self, seen: Seen) -> None:
        self._house.changed(seen)
        self._news.set()

    def _led(self, led: Led) -> None:
        """What the clusters say of homes; a switch hears at once of topics to which nothing is on its way."""
        assert self._follows is not None
        was_deaf = self._house.heard(led.until_s)
        self._lookout.led(led)
        self._follows.at_work(self._house.at_work.some(NAMED_MAX) if self._house.seen.groups_gather else ())
        if was_deaf:
            self._house.changed(self._house.seen)
        for topic in self._follows.held():
            if self._house.seen.must_wait(topic) and not self._house.under_way[topic]:
                self._follows.quiet(topic)

    async def _drain(self) -> None:
        """What was asked is answered, for so long; then all ends."""
        self._doors.close()
        self._house.drain()
        until_s = asyncio.get_running_loop().time() + DRAIN_S
        while self._house.guests and asyncio.get_running_loop().time() < until_s:
            await asyncio.sleep(0.05)
        if self._house.guests:
            self._log(f"{len(self._house.guests)} clients were not answered within {DRAIN_S:g} s")
        for guest in list(self._house.guests):
            guest.hang_up("the proxy ends")

    def _heard(self, grown: Grown, lasted_s: float) -> None:
        """A window of what went through has ended."""
        self._totals.take(grown)
        for one in self._alarms.look(grown, lasted_s, steady_s()):
            self._log(one.sentence)

    def _metrics_server(self) -> MetricsServer | None:
        """That of one of several processes is for its keeper, who asks all of them."""
        address, port = self._asked.metrics_address, self._asked.metrics_port
        if self._part is not None:
            address, port = "127.0.0.1", 0
        elif not port:
            return None
        collector = ProxyCollector(self._house, self._doors, self._totals, self._alarms)
        server = MetricsServer(
            address,
            port,
            collector,
            collector.clusters,
            section="proxy",
            of="clusters",
            trouble=lambda _: collector.trouble(),
        )
        self._tell(Word.HEALTH, str(server.port))
        return server

    def _unforeseen(self, _: asyncio.AbstractEventLoop, context: Mapping[str, Any]) -> None:
        """What nobody caught: the connection that it befell has ended, and the others go on."""
        error = context.get("exception")
        what = in_words(error) if isinstance(error, Exception) else ""
        self._log(f"{context.get('message', 'unforeseen')}: {what}")
