"""Asks, again and again, how level the twins are that clients read or may read: where logs end at both sides, and what
the store says of links. Only topics that somebody wants are asked for, and `near` decides what follows.

What is not answered is not told: then a twin counts as behind by itself, and its clients go home.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, TypeVar

from twinshore.fleet import Cluster, Link, Mode, NamedPartition, Naming
from twinshore.fleet.once import Once, in_words
from twinshore.kafka.clock import steady_s
from twinshore.kafka.cluster import KafkaCluster, OffsetKind
from twinshore.proxy.core.near import Ends, Found, Near, NearCopy, Twin, looked, twins_of
from twinshore.proxy.core.seen import Seen
from twinshore.proxy.late_store import LateStore

EVERY_S: Final = 0.5
# Of all the time looks take no more than a part like this, however many topics there are.
BUSY_PART: Final = 0.2
STORE_EVERY_S: Final = 2.0
# Where logs begin, and who leads them, changes seldom.
BEGINNINGS_EVERY_S: Final = 5.0
PATIENCE_S: Final = 1.0

T = TypeVar("T")
# Which are asked for by topic: links may know several.
Ids = Mapping[str, frozenset[str]]


class Levels:
    """`seen` says what is known of the clusters now."""

    def __init__(
        self,
        clusters: Sequence[Cluster],
        near: Near,
        seen: Callable[[], Seen],
        store: LateStore,
        log: Callable[[str], None],
    ) -> None:
        self._near, self._seen, self._store = near, seen, store
        self._sides = {one.name: _Side(one) for one in clusters}
        self._told, self._clusters_told = Once(log), {one.name: Once(log) for one in clusters}
        self._threads = ThreadPoolExecutor(len(clusters) + 1, "levels")
        self._copies: list[NearCopy] = []
        self._copies_of: frozenset[str] = frozenset()
        self._read_s = -STORE_EVERY_S

    async def run(self) -> None:
        """Until it is cancelled. Time goes on for twins also while a look waits for somebody."""
        await asyncio.gather(self._ticks(), self._looks())

    def close(self) -> None:
        """Ends its connections."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        for side in self._sides.values():
            side.close()

    async def _ticks(self) -> None:
        while True:
            self._near.tick(steady_s(), self._seen())
            await asyncio.sleep(EVERY_S)

    async def _looks(self) -> None:
        while True:
            began_s = steady_s()
            if topics := frozenset(self._near.wanted()):
                await self._look(topics)
                self._near.tick(steady_s(), self._seen())
            await asyncio.sleep(max(EVERY_S, (steady_s() - began_s) * (1 / BUSY_PART - 1)))

    async def _look(self, topics: frozenset[str]) -> None:
        """The twins first, so that one that has more than its home is not taken for a moment's difference."""
        await self._read_copies(topics)
        seen = self._seen()
        homes = {topic: home for topic in topics if (home := seen.route(topic)) is not None}
        twins = twins_of(self._copies, homes)
        found = await self._ask_each(_ids((twin.cluster, topic, twin.topic_id) for topic, twin in _each(twins)), seen)
        asked_s = steady_s()
        ends = await self._ask_each(_ids((homes[topic], topic, twin.home_id) for topic, twin in _each(twins)), seen)
        looks = []
        for topic in topics:
            home, some = homes.get(topic, ""), twins.get(topic, ())
            term = seen.leads[topic].term if topic in seen.leads else 0
            looks.append(looked(topic, home, term, asked_s, ends.get(home, {}), some, found))
        self._near.take(looks)

    async def _read_copies(self, topics: frozenset[str]) -> None:
        if topics <= self._copies_of and steady_s() - self._read_s < STORE_EVERY_S:
            return
        try:
            self._copies = await self._call(partial(self._read, topics))
        except Exception as error:  # whoever ended here would lead nobody near again, or home
            self._told.say(f"{in_words(error)}: which topics are twins stays as it was known")
            return
        self._told.well("the store answers again: twins are as it says")
        self._copies_of, self._read_s = topics, steady_s()

    def _read(self, topics: frozenset[str]) -> list[NearCopy]:
        store = self._store.get()
        if store is None:
            return []
        copies: dict[tuple[str, str, str, str, str], set[int]] = {}
        for link in _exact(self._store.links(), self._sides):
            rows = store.twins.flowing(link.name, topics)
            mapped = {topic for topic, _ in store.extents.reached(link.name)}
            for row in rows:
                if row.topic in mapped:
                    continue
                key = link.source, link.target, row.topic, row.source_topic_id, row.target_topic_id
                copies.setdefault(key, set()).add(row.partition)
        return [NearCopy(*key, frozenset(parts)) for key, parts in copies.items()]

    async def _ask_each(self, wanted: Mapping[str, Ids], seen: Seen) -> dict[str, Found]:
        """By cluster. One that does not answer anybody is not waited for."""
        names = [name for name in wanted if name in self._sides and seen.clusters[name].answers]
        found = await asyncio.gather(*(self._ask(name, wanted[name]) for name in names))
        return dict(zip(names, found, strict=True))

    async def _ask(self, cluster: str, topics: Ids) -> Found:
        try:
            found = await self._call(partial(self._sides[cluster].ask, topics))
        except Exception as error:  # one cluster's trouble is not the others'
            self._clusters_told[cluster].say(f"cluster {cluster}: {in_words(error)}; nobody is led to its twins")
            return {}
        self._clusters_told[cluster].well(f"cluster {cluster} says again how level its twins are")
        return found

    async def _call(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)


def _exact(links: Iterable[Link], clusters: Mapping[str, object]) -> list[Link]:
    """Those that give twins their source's names and offsets, between clusters behind the proxy."""
    return [
        link
        for link in links
        if link.naming is Naming.SAME
        and link.mode is Mode.EXACT
        and link.source in clusters
        and link.target in clusters
    ]


def _each(twins: Mapping[str, Iterable[Twin]]) -> Iterator[tuple[str, Twin]]:
    return ((topic, twin) for topic, some in twins.items() for twin in some)


def _ids(named: Iterable[tuple[str, str, str]]) -> dict[str, dict[str, frozenset[str]]]:
    """By cluster and topic, of cluster, topic and id."""
    found: dict[str, dict[str, frozenset[str]]] = {}
    for cluster, topic, topic_id in named:
        there = found.setdefault(cluster, {})
        there[topic] = there.get(topic, frozenset()) | {topic_id}
    return found


class _Side:
    """One cluster; its questions are asked one at a time."""

    def __init__(self, cluster: Cluster) -> None:
        self._kafka = KafkaCluster(cluster, client_id="twinshore-proxy", patience_s=PATIENCE_S, call_s=PATIENCE_S)
        self._starts: dict[NamedPartition, int] = {}
        self._topics: frozenset[str] = frozenset()
        self._looked_s = -BEGINNINGS_EVERY_S

    def close(self) -> None:
        self._kafka.close()

    def ask(self, ids: Ids) -> Found:
        """How each topic's partitions stand; a topic that has another id by now than these is left out."""
        if steady_s() - self._looked_s >= BEGINNINGS_EVERY_S:
            self._topics, self._starts, self._looked_s = frozenset(), {}, steady_s()
        with self._kafka.errand():
            anew = not ids.keys() <= self._topics
            known = self._kafka.metadata(sorted(ids), refresh=anew).topics
            same = [one for one in known.values() if one.topic_id.hex() in ids.get(one.name, ())]
            now = {one.name: one.topic_id.hex() for one in same}
            leaders = {NamedPartition(one.name, part.partition): part.leader for one in same for part in one.partitions}
            ends, failed = self._kafka.offsets_of_each(leaders, OffsetKind.HIGH_WATERMARK)
            if anew:
                starts, _ = self._kafka.offsets_of_each(leaders, OffsetKind.EARLIEST)
                self._starts |= starts
                self._topics |= ids.keys()
        self._topics -= {named.topic for named in failed}
        found: dict[tuple[str, str], dict[int, Ends]] = {}
        for named, end in ends.items():
            if named in self._starts:
                there = found.setdefault((named.topic, now[named.topic]), {})
                there[named.partition] = Ends(leaders[named], self._starts[named], end)
        return found
