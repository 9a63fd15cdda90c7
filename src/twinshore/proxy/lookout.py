"""What there is behind the proxy: clusters, their brokers and topics, and the homes that the store knows.

Each cluster is looked at by itself, so that one which is silent holds up no other. What cannot be seen stays as it was
known: neither a cluster nor a store that is away ends what clients do elsewhere.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial

from twinshore import __version__
from twinshore.fleet import Cluster, KafkaError, Link
from twinshore.fleet.once import Once, in_words
from twinshore.fleet.sentences import listed
from twinshore.homes.following import LEASE_S
from twinshore.homes.home_notes import TwinNotes
from twinshore.homes.leader_cluster import Decision, Lacks, Leader, NoLeader
from twinshore.homes.leader_cluster import in_words as led_in_words
from twinshore.kafka.clock import steady_s
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.connection import Connection
from twinshore.proxy.core.by_copies import Heard, led_by_copies, not_believed
from twinshore.proxy.core.layout import Layout
from twinshore.proxy.core.leads import Lead
from twinshore.proxy.core.offers import has_newer_groups, offered, shared, without_newer_groups
from twinshore.proxy.core.seen import (
    Broker,
    ClusterSeen,
    Ranges,
    Seen,
)
from twinshore.proxy.follows import Led
from twinshore.proxy.late_store import LateStore
from twinshore.proxy.whereabouts import Stored, pairs_of, same_named, stored_homes
from twinshore.wire.api_versions import Software, VersionsAnswer
from twinshore.wire.exchange import offered as asks_offered

LOOK_S = 1.0
# All topics of a large cluster are a long answer, and one that is not known yet is asked for by itself.
TOPICS_S = 5.0
# News may come many times a second; the clusters are not asked as often.
AGAIN_S = 0.2
PATIENCE_S = 4.0
CALL_S = 2.0
# The clusters' own words are read once a second, where no switch was announced.
HEARD_S = 3.0
# A mirror notes within that time that a copy which it has just made is a twin.
NOTED_S = 10.0
NAMED_MAX = 5


class Lookout:
    """`seen` is replaced, never changed; it stays the same object while nothing is new. `look` runs until `stop`.
    `follows`: whether the clusters' own words will be heard; `is_own`: whether each site has the topic for itself."""

    def __init__(
        self,
        clusters: Sequence[Cluster],
        layout: Layout,
        store: LateStore,
        log: Callable[[str], None],
        *,
        follows: bool = False,
        start_all: bool = False,
        is_own: Callable[[str], bool] = lambda _: False,
    ) -> None:
        self.seen = Seen({one.name: _unseen(one.name) for one in clusters})
        self.changed: Callable[[Seen], None] = lambda _: None
        self._clusters = [_Cluster(one, layout, log) for one in clusters]
        self._store, self._told, self._no_link, self._unheard = store, Once(log), Once(log), Once(log)
        self._start_all, self._is_own, self._began_s = start_all, is_own, steady_s()
        self._links: tuple[Link, ...] | None = None
        self._said: tuple[object, ...] = ()
        self._asked: tuple[object, ...] = ()
        self._found: Mapping[str, ClusterSeen] = self.seen.clusters
        self._stored = Stored()
        self._decided: Mapping[str, Decision] = {}
        self._torn_s: dict[str, float] = {}
        self._led = Led(unheard=frozenset(layout.clusters) if follows else frozenset())
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
        """One look at everything, taken up whole."""
        self._began_s = steady_s()
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
        try:
            stored = await asyncio.get_running_loop().run_in_executor(self._threads, self._read)
        except Exception as error:  # whoever ended here would lead clients to old homes for ever
            self._told.say(f"{in_words(error)}: topics are led to the homes that were known before")
            return
        self._told.well("the store answers again")
        if stored is not None:
            self._stored = stored
            self._take(self._found)

    def _read(self) -> Stored | None:
        """The homes, also of topics whose twins a link carries, wherever these come from; None where they are as they
        were."""
        links = tuple(self._store.links())
        store = self._store.get()
        names = [one.name for one in self._clusters]
        said: tuple[object, ...] = links, {}, {}
        if store is not None:
            versions = {pair: store.homes.version(pair) for pair in pairs_of(links, names)}
            said = links, versions, {one.name: store.twins.count(one.name) for one in same_named(links, names)}
        if said == self._said:
            return None
        found = stored_homes(links, store, names) if store is not None else Stored()
        self._said, self._links = said, links
        return found

    def _take(self, clusters: Mapping[str, ClusterSeen], led: Led | None = None) -> None:
        led = led or self._led
        news = led.leads, led.wrote, led.learns
        same_words = (*news, led.unsure) == (self._led.leads, self._led.wrote, self._led.learns, self._led.unsure)
        self._led, self._found = led, clusters
        homes, leads = self._heard(led.leads)
        heard = Heard(self._links, led.unheard, steady_s() - self._began_s, self._start_all)
        decided = self._decide(clusters, homes, heard)
        words = {topic: str(lead.cluster) for topic, lead in leads.items() if lead.cluster in clusters}
        doubted = not_believed(words, clusters.values(), homes, heard)
        same = decided is self.seen.by_copies and doubted == self.seen.not_believed and homes == self.seen.homes
        if same and clusters == self.seen.clusters and same_words and leads == self.seen.leads:
            return
        known = [one.offers for one in clusters.values() if one.offers]
        self.seen = Seen(
            clusters,
            homes,
            offered(known) if known else {},
            *(leads, led.wrote, led.learns),
            unsure=led.unsure,
            by_copies=decided,
            not_believed=doubted,
        )
        self._say(self.seen)
        self.changed(self.seen)

    def _decide(
        self, clusters: Mapping[str, ClusterSeen], homes: Mapping[str, str], heard: Heard
    ) -> Mapping[str, Decision]:
        """The same object while nothing is new. A topic that was led stays there while a mirror may still note that its
        second copy is a twin."""
        now_s, late = steady_s(), heard.waited_s >= LEASE_S
        there = tuple((one.was_seen, one.topics, one.twins) for one in clusters.values())
        asked = there, homes, heard.links, heard.unheard, late
        if asked == self._asked and not self._torn_s:
            return self._decided
        found = led_by_copies(clusters.values(), homes, heard)
        torn = [
            topic
            for topic, one in found.items()
            if isinstance(one, NoLeader) and one.lacks is Lacks.LINK and isinstance(self._decided.get(topic), Leader)
        ]
        self._torn_s = {topic: self._torn_s.get(topic, now_s) for topic in torn}
        found |= {topic: self._decided[topic] for topic in torn if now_s < self._torn_s[topic] + NOTED_S}
        self._asked = asked
        if found != self._decided:
            self._decided = found
        return self._decided

    def _heard(self, leads: Mapping[str, Lead]) -> tuple[Mapping[str, str], Mapping[str, Lead]]:
        """A switch says on the clusters first where its topics are. Whoever follows switches hears it there in a
        moment, with all that is to be known of their producers: until then they are where they were. `_moves`: since
        when. After that the store's higher term counts: the cluster with the higher word does not answer."""
        homes, terms = self._stored
        if all(until_s == -math.inf for until_s in self._led.until_s.values()):
            return homes, leads
        was, now_s = self.seen.routes, steady_s()
        higher = {
            topic
            for topic, term in terms.items()
            if topic in leads and term > leads[topic].term and homes[topic] != leads[topic].cluster
        }
        moved = [topic for topic, home in homes.items() if topic not in leads and was.get(topic, home) != home]
        self._moves = {topic: self._moves.get(topic, now_s) for topic in (*moved, *higher)}
        waits = {topic for topic, since_s in self._moves.items() if now_s < since_s + HEARD_S}
        if held := {topic: was[topic] for topic in waits if topic not in leads}:
            homes = {**homes, **held}
        if higher - waits:
            known = self._found.keys()
            overruled = {topic: homes[topic] for topic in higher - waits}
            leads = {**leads} | {t: Lead(home if home in known else None, terms[t]) for t, home in overruled.items()}
        return homes, leads

    def _say(self, seen: Seen) -> None:
        """What an operator must know of leaders: topics that no link explains, and leaders that were chosen without a
        cluster which could say otherwise."""
        torn = sorted(
            topic for topic, one in seen.leaderless.items() if one.lacks is Lacks.LINK and not self._is_own(topic)
        )
        if torn and self._links is not None:
            more = f", and so have {len(torn) - 1} more" if len(torn) > 1 else ""
            self._no_link.say(
                f"{led_in_words(torn[0], seen.leaderless[torn[0]])}{more}; delete the copy that is none, or name the"
                " topic in a link"
            )
        else:
            self._no_link.well("every topic of several clusters has a leader again")
        unheard = seen.led_unheard
        if unheard:
            topic, one = next(iter(sorted(unheard.items())))
            more = f"; {len(unheard)} topics in all: {listed(sorted(unheard), NAMED_MAX)}" if len(unheard) > 1 else ""
            self._unheard.say(f"{led_in_words(topic, one)}{more}")
        else:
            self._unheard.well("all clusters have answered that could say another home")


class _Cluster:
    """One cluster; its looks run one at a time."""

    def __init__(self, cluster: Cluster, layout: Layout, log: Callable[[str], None]) -> None:
        self.name = cluster.name
        self._layout, self._told, self._crowded = layout, Once(log), Once(log)
        self._kafka = KafkaCluster(cluster, client_id="twinshore-proxy", patience_s=PATIENCE_S, call_s=CALL_S)
        self._seen = _unseen(cluster.name)
        self._offers: dict[tuple[int, Broker], Ranges] = {}
        self._newer_groups = False
        self._twins, self._no_notes = TwinNotes(self._kafka), Once(log)
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
            if whole:
                found = {name: topic for name, topic in told.topics.items() if not topic.internal}
                ids = {name: topic.topic_id for name, topic in found.items()}
                counts = {name: len(topic.partitions) for name, topic in found.items()}
                noted = self._noted()
                twins = frozenset(name for name, topic_id in ids.items() if topic_id.hex() in noted)
                self._seen = replace(self._seen, topics=frozenset(ids), ids=ids, partitions=counts, twins=twins)
                self._looked_s = steady_s()
        offers: Ranges = shared(self._offers.values())
        if not self._newer_groups:
            offers = without_newer_groups(offers)
        return replace(
            self._seen,
            cluster_id=told.cluster_id,
            controller=told.controller,
            brokers=brokers,
            offers=offers,
            answers=True,
        )

    def _noted(self) -> frozenset[str]:
        """The ids of topics that are twins. None where the notes may not be read: then words and links alone say it."""
        try:
            noted = self._twins.read()
        except KafkaError as error:
            if error.retriable:
                raise
            self._no_notes.say(f"cluster {self.name}: {in_words(error)}; which of its topics are twins is not known")
            return frozenset()
        self._no_notes.well()
        return noted

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
