"""What there is behind the proxy: clusters, their brokers and topics, and the homes that the store knows.

Each cluster is looked at by itself, so that one which is silent holds up no other. What cannot be seen stays as it was
known: neither a cluster nor a store that is away ends what clients do elsewhere.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import combinations

from twinshore import __version__
from twinshore.fleet import Cluster, KafkaError, Link, Naming
from twinshore.fleet.once import Once, in_words
from twinshore.kafka.clock import steady_s
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.connection import Connection
from twinshore.links.homes import BETWEEN
from twinshore.proxy.core.layout import Layout
from twinshore.proxy.core.offers import has_newer_groups, offered, shared, without_newer_groups
from twinshore.proxy.core.seen import (
    Broker,
    ClusterSeen,
    Ranges,
    Seen,
    apart,
    homes_of,
    one_way_homes,
)
from twinshore.proxy.follows import Led
from twinshore.proxy.late_store import LateStore
from twinshore.wire.api_versions import Software, VersionsAnswer
from twinshore.wire.talk import offered as asks_offered

LOOK_S = 1.0
# All topics of a large cluster are a long answer, and one that is not known yet is asked for by itself.
TOPICS_S = 5.0
# News may come many times a second; the clusters are not asked as often.
AGAIN_S = 0.2
PATIENCE_S = 4.0
CALL_S = 2.0
# The clusters' own words are read once a second, where no switch was announced.
HEARD_S = 3.0


class Lookout:
    """`seen` is replaced, never changed; it stays the same object while nothing is new. `look` runs until `stop`."""

    def __init__(
        self,
        clusters: Sequence[Cluster],
        layout: Layout,
        store: LateStore,
        log: Callable[[str], None],
    ) -> None:
        self.seen = Seen({one.name: _unseen(one.name) for one in clusters})
        self.changed: Callable[[Seen], None] = lambda _: None
        self._clusters = [_Cluster(one, layout, log) for one in clusters]
        self._pairs = [BETWEEN.join(sorted(pair)) for pair in combinations(layout.clusters, 2)]
        self._store, self._told = store, Once(log)
        self._links: tuple[Link, ...] = ()
        self._said: tuple[object, ...] = ()
        self._asked: tuple[object, ...] = ()
        self._found: Mapping[str, ClusterSeen] = self.seen.clusters
        self._knows = False  # whether it was ever heard what links and store say
        self._carried: Mapping[str, str] = {}
        self._stored: Mapping[str, str] = {}
        self._led = Led()
        self._moves: dict[str, float] = {}
        self._threads = ThreadPoolExecutor(len(clusters) + 1, "lookout")
        self._news = {one.name: asyncio.Event() for one in self._clusters}
        self._home_news, self._stopped = asyncio.Event(), asyncio.Event()

    def news(self) -> None:
        """Looks again soon: something is other than it is known."""
        for one in self._clusters:
            one.news()
        self._wake()

    def _wake(self) -> None:
        for event in (*self._news.values(), self._home_news):
            event.set()

    async def first(self) -> None:
        """One look at everything, taken up whole: else clients of a topic on two clusters would be led to whichever
        answers first, and stay there."""
        looks = asyncio.gather(*(self._found_at(one) for one in self._clusters))
        await self._look_at_homes()
        self._take({one.name: one for one in await looks})

    async def look(self) -> None:
        """Until `stop`."""
        looks = [self._again(self._news[one.name], partial(self._look_at, one)) for one in self._clusters]
        await asyncio.gather(self._again(self._home_news, self._look_at_homes), *looks)

    def stop(self) -> None:
        """Looks no more."""
        self._stopped.set()
        self._wake()

    def close(self) -> None:
        """Ends its connections."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        for one in self._clusters:
            one.close()

    async def _again(self, news: asyncio.Event, work: Callable[[], Awaitable[None]]) -> None:
        while not self._stopped.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await news.wait()
            news.clear()
            if not self._stopped.is_set():
                await work()
                await asyncio.sleep(AGAIN_S)

    async def _found_at(self, cluster: _Cluster) -> ClusterSeen:
        return await asyncio.get_running_loop().run_in_executor(self._threads, cluster.look)

    async def _look_at(self, cluster: _Cluster) -> None:
        found = await self._found_at(cluster)
        if found.topics != self._found[cluster.name].topics:
            await self._look_at_homes()  # a twin that has just been made has had a home before
        self._take({**self._found, cluster.name: found})

    def led(self, led: Led) -> None:
        """What the clusters themselves say of homes."""
        self._take(self._found, led)

    async def _look_at_homes(self) -> None:
        if not self._pairs:
            self._knows = True
            return
        try:
            homes = await asyncio.get_running_loop().run_in_executor(self._threads, self._read)
        except Exception as error:  # whoever ended here would lead clients to old homes for ever
            self._told.say(f"{in_words(error)}: topics are led to the homes that were known before")
            return
        self._told.well("the store answers again")
        first, self._knows = not self._knows, True
        if homes is not None or first:
            self._stored = self._stored if homes is None else homes
            self._take(self._found)

    def _read(self) -> Mapping[str, str] | None:
        """The homes, also of topics whose twins a link carries; None where they are as they were."""
        links = tuple(self._store.links())
        store = self._store.get()
        same = self._same(links)
        said: tuple[object, ...] = links, {}, {}
        if store is not None:
            versions = {pair: store.homes.version(pair) for pair in self._pairs}
            said = links, versions, {name: store.twins.count(name) for name in same}
        if said == self._said:
            return None
        homes: dict[str, str] = {}
        if store is not None:
            homes = {row.topic: same[name] for name in same for row in store.twins.carried(name)}
            homes |= homes_of(row for pair in self._pairs for row in store.homes.of(pair).values())
        self._said, self._links = said, links
        return homes

    def _same(self, links: Iterable[Link]) -> dict[str, str]:
        """Those that give twins their source's name, with their sources."""
        names = {one.name for one in self._clusters}
        return {
            link.name: link.source
            for link in links
            if link.naming is Naming.SAME and {link.source, link.target} <= names
        }

    def _take(self, clusters: Mapping[str, ClusterSeen], led: Led | None = None) -> None:
        led = led or self._led
        news = led.leads, led.wrote, led.learns
        same_words = (*news, led.unsure) == (self._led.leads, self._led.wrote, self._led.learns, self._led.unsure)
        self._led = led
        self._found = clusters
        if not self._knows:
            clusters = apart(clusters)
        homes = self._homes(clusters)
        if clusters == self.seen.clusters and homes == self.seen.homes and same_words:
            return
        known = [one.offers for one in clusters.values() if one.offers]
        offers, before = offered(known) if known else {}, self.seen.routes
        self.seen = Seen(clusters, homes, offers, *news, before=before, unsure=led.unsure)
        self.changed(self.seen)

    def _homes(self, clusters: Mapping[str, ClusterSeen]) -> Mapping[str, str]:
        """As the store has them; of other topics by the links that carry them."""
        asked = self._links, tuple(one.topics for one in clusters.values())
        if asked != self._asked:
            self._asked, self._carried = asked, one_way_homes(clusters.values(), self._links)
        return self._heard({**self._carried, **self._stored})

    def _heard(self, homes: Mapping[str, str]) -> Mapping[str, str]:
        """A switch says on the clusters first where its topics are. Whoever follows switches hears it there in a
        moment, with all that is to be known of their producers: until then they are where they were. `_moves`: since
        when."""
        if self._led.until_s == -math.inf:
            return homes
        was, leads, now_s = self.seen.routes, self._led.leads, steady_s()
        news = [topic for topic, home in homes.items() if topic not in leads and was.get(topic, home) != home]
        self._moves = {topic: self._moves.get(topic, now_s) for topic in news}
        waits = {topic: was[topic] for topic, since_s in self._moves.items() if now_s < since_s + HEARD_S}
        return {**homes, **waits}


class _Cluster:
    """One cluster; its looks run one at a time."""

    def __init__(self, cluster: Cluster, layout: Layout, log: Callable[[str], None]) -> None:
        self.name = cluster.name
        self._layout, self._told, self._crowded = layout, Once(log), Once(log)
        self._kafka = KafkaCluster(cluster, client_id="twinshore-proxy", patience_s=PATIENCE_S, call_s=CALL_S)
        self._seen = _unseen(cluster.name)
        self._offers: dict[tuple[int, Broker], Ranges] = {}
        self._newer_groups = False
        self._looked_s = -TOPICS_S

    def news(self) -> None:
        """The next look is at all topics."""
        self._looked_s = -TOPICS_S

    def close(self) -> None:
        self._kafka.close()

    def look(self) -> ClusterSeen:
        """The cluster as it is now, or as it was when it answered last."""
        try:
            found = self._look()
        except Exception as error:  # one cluster's trouble is not the others'
            self._told.say(f"cluster {self.name}: {in_words(error)}; its topics wait, the others go on")
            # A broker that comes back may be of another version.
            self._offers.clear()
            found = replace(self._seen, answers=False)
            self.news()
        else:
            self._told.well(f"cluster {self.name} answers again")
        self._seen = found
        return found

    def _look(self) -> ClusterSeen:
        with self._kafka.errand():
            whole = steady_s() - self._looked_s >= TOPICS_S
            told = self._kafka.metadata(None if whole else [])
            nodes, crowded = self._layout.apart(told.brokers)
            if crowded:
                self._crowded.say(
                    f"cluster {self.name}: brokers {crowded} have no port of their own, as others have the same"
                    f" number modulo [proxy] nodes_per_cluster; what they lead cannot be reached"
                )
            brokers = {node: Broker(*told.brokers[node]) for node in nodes}
            self._learn_offers(brokers, whole=whole)
        topics, ids = self._seen.topics, self._seen.ids
        if whole:
            ids = {name: topic.topic_id for name, topic in told.topics.items() if not topic.internal}
            topics = frozenset(ids)
            self._looked_s = steady_s()
        offers: Ranges = shared(self._offers.values())
        if not self._newer_groups:
            offers = without_newer_groups(offers)
        return ClusterSeen(self.name, told.cluster_id, told.controller, brokers, topics, offers, ids=ids)

    def _learn_offers(self, brokers: Mapping[int, Broker], *, whole: bool) -> None:
        """Of each broker that was not there before. One that cannot be asked now is asked at the next look. A cluster
        may get groups of the newer protocol while its brokers run, so all are asked again with each `whole` look
        before; what one of them says of that holds for all, also for one that has just begun."""
        there = set(brokers.items())
        self._offers = {key: offers for key, offers in self._offers.items() if key in there}
        known = set() if whole and not self._newer_groups else self._offers.keys()
        for node, broker in there - known:
            try:
                answer = self._kafka.at(node, "API versions", _ask_offers)
            except KafkaError:
                if not self._offers:
                    raise
            else:
                self._offers[node, broker] = {one.key: (one.lowest, one.highest) for one in answer.offers}
                self._newer_groups = self._newer_groups or has_newer_groups(answer)


def _ask_offers(connection: Connection, timeout_s: float) -> VersionsAnswer:
    return connection.hold(asks_offered(Software("twinshore-proxy", __version__)), timeout_s=timeout_s)


def _unseen(name: str) -> ClusterSeen:
    return ClusterSeen(name, "", -1, {}, frozenset(), {}, answers=False)
