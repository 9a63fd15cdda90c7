"""What there is behind the proxy: clusters, their brokers and topics, and the homes that the store knows.

Each cluster is looked at by itself, so that one which is silent holds up no other. What cannot be seen stays as it was
known: neither a cluster nor a store that is away ends what clients do elsewhere.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import combinations

from twinshore import __version__
from twinshore.fleet import Cluster, KafkaError
from twinshore.fleet.once import Once, in_words
from twinshore.kafka.clock import steady_s
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.connection import Connection
from twinshore.links.homes import BETWEEN
from twinshore.proxy.core.layout import Layout
from twinshore.proxy.core.offers import offered, shared
from twinshore.proxy.core.seen import Broker, ClusterSeen, Ranges, Seen, homes_of
from twinshore.store import Store
from twinshore.wire.api_versions import Software
from twinshore.wire.talk import offered as asks_offered

LOOK_S = 1.0
# All topics of a large cluster are a long answer, and one that is not known yet is asked for by itself.
TOPICS_S = 5.0
# News may come many times a second; the clusters are not asked as often.
AGAIN_S = 0.2
PATIENCE_S = 4.0
CALL_S = 2.0


class Lookout:
    """`seen` is replaced, never changed; it stays the same object while nothing is new. `look` runs until `stop`."""

    def __init__(
        self, clusters: Sequence[Cluster], layout: Layout, store: Store | None, log: Callable[[str], None]
    ) -> None:
        self.seen = Seen({one.name: _unseen(one.name) for one in clusters})
        self.changed: Callable[[Seen], None] = lambda _: None
        self._clusters = [_Cluster(one, layout, log) for one in clusters]
        self._pairs = [BETWEEN.join(sorted(pair)) for pair in combinations(layout.clusters, 2)]
        self._store, self._told = store, Once(log)
        self._versions: dict[str, int] = {}
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
        """One look at everything."""
        await asyncio.gather(self._look_at_homes(), *(self._look_at(one) for one in self._clusters))

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

    async def _look_at(self, cluster: _Cluster) -> None:
        found = await asyncio.get_running_loop().run_in_executor(self._threads, cluster.look)
        self._take({**self.seen.clusters, cluster.name: found}, self.seen.homes)

    async def _look_at_homes(self) -> None:
        if self._store is None or not self._pairs:
            return
        try:
            homes = await asyncio.get_running_loop().run_in_executor(self._threads, self._read, self._store)
        except Exception as error:  # whoever ended here would lead clients to old homes for ever
            self._told.say(f"{in_words(error)}: topics are led to the homes that were known before")
            return
        self._told.well("the store answers again")
        if homes is not None:
            self._take(self.seen.clusters, homes)

    def _read(self, store: Store) -> Mapping[str, str] | None:
        """The homes; None where they are as they were."""
        versions = {pair: store.homes.version(pair) for pair in self._pairs}
        if versions == self._versions:
            return None
        homes = homes_of(row for pair in self._pairs for row in store.homes.of(pair).values())
        self._versions = versions
        return homes

    def _take(self, clusters: Mapping[str, ClusterSeen], homes: Mapping[str, str]) -> None:
        if clusters == self.seen.clusters and homes == self.seen.homes:
            return
        known = [one.offers for one in clusters.values() if one.offers]
        self.seen = Seen(clusters, homes, offered(known) if known else {})
        self.changed(self.seen)


class _Cluster:
    """One cluster; its looks run one at a time."""

    def __init__(self, cluster: Cluster, layout: Layout, log: Callable[[str], None]) -> None:
        self.name = cluster.name
        self._layout, self._told, self._crowded = layout, Once(log), Once(log)
        self._kafka = KafkaCluster(cluster, client_id="twinshore-proxy", patience_s=PATIENCE_S, call_s=CALL_S)
        self._seen = _unseen(cluster.name)
        self._offers: dict[tuple[int, Broker], Ranges] = {}
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
            self._learn_offers(brokers)
        topics = self._seen.topics
        if whole:
            topics = frozenset(name for name, topic in told.topics.items() if not topic.internal)
            self._looked_s = steady_s()
        offers = shared(self._offers.values())
        return ClusterSeen(self.name, told.cluster_id, told.controller, brokers, topics, offers)

    def _learn_offers(self, brokers: Mapping[int, Broker]) -> None:
        """Of each broker that was not there before. One that cannot be asked now is asked at the next look."""
        there = set(brokers.items())
        self._offers = {key: offers for key, offers in self._offers.items() if key in there}
        for node, broker in there - self._offers.keys():
            try:
                self._offers[node, broker] = self._kafka.at(node, "API versions", _ask_offers)
            except KafkaError:
                if not self._offers:
                    raise


def _ask_offers(connection: Connection, timeout_s: float) -> Ranges:
    answer = connection.hold(asks_offered(Software("twinshore-proxy", __version__)), timeout_s=timeout_s)
    return {offer.key: (offer.lowest, offer.highest) for offer in answer.offers}


def _unseen(name: str) -> ClusterSeen:
    return ClusterSeen(name, "", -1, {}, frozenset(), {}, answers=False)
