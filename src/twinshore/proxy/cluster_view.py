"""Watches the clusters behind the proxy: brokers, topics and homes.

Clusters tell of switches. The proxy holds writers for a switch, and reports once no write to an old home is on its way.

Clusters are polled separately, so that a silent one delays no other. What cannot be read stays as known.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import combinations
from typing import Final, NamedTuple

from twinshore import __version__
from twinshore.client.discovery.routing_topic import HomeTracker
from twinshore.client.sites import Site
from twinshore.config.errors import KafkaError, StoreError
from twinshore.config.frozen import PROXY_CLIENT_ID, PROXY_SOFTWARE_NAME
from twinshore.config.model import Cluster, Link, TopicPartition, TwinNaming
from twinshore.config.repeat_filter import RepeatFilter, describe_error
from twinshore.config.sections.proxy import SECTION
from twinshore.config.sentences import join_names
from twinshore.config.settings import Settings
from twinshore.kafka.clock import steady_s, wall_ms
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.connection import Connection
from twinshore.kafka.protocol.framing import negotiate_versions as asks_offered
from twinshore.kafka.protocol.handshake import ApiVersionsResponse, ClientSoftware
from twinshore.proxy.core import model
from twinshore.proxy.core.api_versions import (
    compute_offered_versions,
    intersect_versions,
    supports_consumer_protocol,
    without_consumer_protocol,
)
from twinshore.proxy.core.leader_table import KnownHomes, choose_leader_clusters, find_doubted_leaders
from twinshore.proxy.lazy_store import LazyStore, describe_unknown_tails, read_replicated_tails
from twinshore.replication.core.ownership import PAIR_SEPARATOR, pair_name
from twinshore.routing.core.home_records import HomeConflict, HomeRecord, current_home
from twinshore.routing.core.leader_cluster import Leader, LeaderDecision, NoLeader, NoLeaderReason, describe_decision
from twinshore.routing.core.subscribers import SUBSCRIPTION_LEASE_S
from twinshore.routing.homes_topic import TwinsTopic
from twinshore.state.store import Store

log = logging.getLogger(__name__)

# A client gives up a record after two minutes by default; producer tails are useless long after that.
PRODUCER_STATES_KEPT_S: Final = 900.0
PRODUCER_STATES_TIMEOUT_S: Final = 2.0
TOPICS_NAMED_MAX: Final = 5

ProducerTails = Mapping[tuple[str, int], Mapping[int, model.ProducerTail]]


@dataclass(frozen=True, slots=True)
class HomesUpdate:
    """What is known of homes.

    `learns`: topics whose producer tails are being read. `unsure`: partitions moved by force whose replicated offsets
    are not all known. `until_s`: by cluster, until when switches wait for this proxy. `unheard`: clusters whose home
    records are unread.
    """

    leads: Mapping[str, model.HomeRoute] = field(default_factory=dict)
    wrote: ProducerTails = field(default_factory=dict)
    learns: frozenset[str] = frozenset()
    unsure: Mapping[tuple[str, int], int] = field(default_factory=dict)
    until_s: Mapping[str, float] = field(default_factory=dict)
    unheard: frozenset[str] = frozenset()

    @property
    def routing(self) -> tuple[object, ...]:
        """What the routing table depends on."""
        return self.leads, self.wrote, self.learns, self.unsure


@dataclass(frozen=True, slots=True)
class _Learnt:
    """The producer tails of one topic in one term."""

    since_s: float
    wrote: ProducerTails = field(default_factory=dict)
    unsure: Mapping[tuple[str, int], int] = field(default_factory=dict)


class HomeWatcher:
    """Follows home records. `changed` is called in the event loop. `store` has the tails for forced switches."""

    def __init__(self, name: str, clusters: Sequence[Cluster], store: LazyStore | None = None) -> None:
        self.changed: Callable[[HomesUpdate], None] = lambda _: None
        self._clusters = {cluster.name: cluster for cluster in clusters}
        sites = {cluster.name: Site(cluster) for cluster in clusters}
        self._tracker = HomeTracker(name, ["*"], sites, clusters[0].name, news=self._heard)
        self._update = HomesUpdate()
        self._heard_then: object = None
        self._wrote: ProducerTails = {}
        self._unsure: Mapping[tuple[str, int], int] = {}
        self._has_learnt = False
        self._began_s = -math.inf
        self._known: dict[tuple[str, int], _Learnt] = {}  # by topic and term
        self._learning: dict[tuple[str, int], asyncio.Task[None]] = {}  # one task for all topics of a switch
        self._threads = ThreadPoolExecutor(2 * len(clusters), "learns")
        self._store, self._store_thread = store, ThreadPoolExecutor(1, "learns-store")
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self) -> None:
        """Start, in the event loop."""
        self._began_s = steady_s()
        self._loop = asyncio.get_running_loop()
        self._tracker.start()

    def stop(self) -> None:
        """Stop, once nothing is written: switches no longer wait for this proxy."""
        self._loop = None
        for task in self._learning.values():
            task.cancel()
        for threads in (self._threads, self._store_thread):
            threads.shutdown(wait=False, cancel_futures=True)
        self._tracker.stop()

    def quiet(self, topic: str) -> None:
        """Report that no write to a held topic is on its way."""
        if topic in self._tracker.held():
            self._tracker.parked(topic)

    def held(self) -> frozenset[str]:
        """Returns topics for which a switch waits for that report."""
        return self._tracker.held()

    def at_work(self, groups: Sequence[str]) -> None:
        """Report some groups with members that have not gathered."""
        self._tracker.busy(groups)

    def has_read_home_records(self) -> bool:
        """Whether home records of all clusters were read, or of some after a wait."""
        unheard = self._tracker.unheard()
        waited = unheard < self._clusters.keys() and steady_s() >= self._began_s + SUBSCRIPTION_LEASE_S
        return not unheard or waited

    def trouble(self) -> str:
        """Returns why writers wait without a switch, else empty."""
        now_s = steady_s()
        silent = sorted(name for name, until_s in self._update.until_s.items() if now_s >= until_s)
        if not silent or now_s < self._began_s + 2 * SUBSCRIPTION_LEASE_S:
            return ""
        names = join_names(silent, TOPICS_NAMED_MAX)
        return f"this proxy could not read {names}, or register there, for some seconds: writers to topics there wait"

    def _heard(self) -> None:
        """Take news in the tracker's thread."""
        if (loop := self._loop) is not None:
            with suppress(RuntimeError):  # it has ended
                loop.call_soon_threadsafe(self._hear)

    def _hear(self) -> None:
        if self._loop is None:
            return
        ids = {self._tracker.cluster_id(name): name for name in self._clusters}
        heard = ids, {**self._tracker.told(), **self._tracker.unread()}
        if heard == self._heard_then:
            # Many times a second during a switch, and there may be ten thousand topics that have ever moved.
            self._tell(self._update.leads)
            return
        self._heard_then = heard
        leads = model.build_routes(heard[1], ids, self._update.leads, wall_ms() - int(PRODUCER_STATES_KEPT_S * 1000))
        come: dict[tuple[str, str], dict[str, model.HomeRoute]] = {}
        torn: dict[str, dict[str, model.HomeRoute]] = {}
        for topic, lead in leads.items():
            knows = (topic, lead.term) in self._known or (topic, lead.term) in self._learning
            if knows or lead.cluster not in self._clusters:
                continue
            if lead.came in self._clusters:
                come.setdefault((lead.came, str(lead.cluster)), {})[topic] = lead
            elif lead.torn is not None:
                torn.setdefault(lead.torn, {})[topic] = lead
        for (old, new), topics in come.items():
            self._begin(self._learn(old, new, topics), topics)
        for link, topics in torn.items():
            self._begin(self._learn_torn(link, topics), topics)
        self._tell(leads)

    def _begin(self, learning: Coroutine[None, None, None], topics: Mapping[str, model.HomeRoute]) -> None:
        assert self._loop is not None
        task = self._loop.create_task(learning)
        self._learning |= {(topic, lead.term): task for topic, lead in topics.items()}

    def _tell(self, leads: Mapping[str, model.HomeRoute]) -> None:
        now_s = steady_s()
        gone = [
            key
            for key, learnt in self._known.items()
            if key[0] not in leads or leads[key[0]].term != key[1] or now_s > learnt.since_s + PRODUCER_STATES_KEPT_S
        ]
        for topic, term in gone:
            if topic in leads and leads[topic].term == term:
                self._known[topic, term] = _Learnt(math.inf)  # it is not asked again
            else:
                del self._known[topic, term]
        if gone or self._has_learnt:
            self._wrote = {named: some for one in self._known.values() for named, some in one.wrote.items()}
            self._unsure = {named: more for one in self._known.values() for named, more in one.unsure.items()}
            self._has_learnt = False
        learns = frozenset(topic for topic, term in self._learning if topic in leads and leads[topic].term == term)
        until_s = {name: self._tracker.until_s(name) for name in self._clusters}
        self._update = HomesUpdate(leads, self._wrote, learns, self._unsure, until_s, self._tracker.unheard())
        self.changed(self._update)

    async def _learn(self, old: str, new: str, topics: Mapping[str, model.HomeRoute]) -> None:
        """Read the tails at the old home, where no more batches arrive, and of earlier terms at the new one.

        Writers wait for this, so all is asked at once and with a short timeout.
        """
        found: dict[str, dict[tuple[str, int], Mapping[int, model.ProducerTail]]] = {topic: {} for topic in topics}
        try:
            assert self._loop is not None
            asked = [self._loop.run_in_executor(self._threads, self._ask, name, list(topics)) for name in (old, new)]
            states = await asyncio.gather(*asked)
            for topic, lead in topics.items():
                told = [one.get(topic, {}) for one in states]
                for number in {number for one in told for number in one}:
                    states_there = [state for one in told for state in one.get(number, ())]
                    found[topic][topic, number] = model.build_producer_tails(states_there, lead)
        except Exception as error:  # the topics' writers would wait for ever
            names = join_names(sorted(topics), TOPICS_NAMED_MAX)
            unknown = f"the producers of {names} at {old} and {new} are unknown: {describe_error(error)}"
            log.warning(f"{unknown}; a batch whose acknowledgement was lost may be written twice")
        finally:
            self._learnt(topics, {topic: _Learnt(steady_s(), wrote) for topic, wrote in found.items()})

    async def _learn_torn(self, link: str, topics: Mapping[str, model.HomeRoute]) -> None:
        """Read from the store what was replicated; only the mirror knows."""
        found = {topic: model.assume_unknown_tails(topic, lead) for topic, lead in topics.items()}
        try:
            found = await self._crossed(link, topics)
            if why := describe_unknown_tails(found):
                log.warning(why)
        except Exception as error:  # the topics' writers would wait for ever
            names = join_names(sorted(topics), TOPICS_NAMED_MAX)
            unknown = f"forced switch of {names}: the replicated offsets are unknown: {describe_error(error)}"
            log.warning(f"{unknown}; records that producers send again may be written twice")
        finally:
            learnt = {topic: _Learnt(steady_s(), one.wrote, one.unsure) for topic, one in found.items()}
            self._learnt(topics, learnt)

    async def _crossed(self, link: str, topics: Mapping[str, model.HomeRoute]) -> dict[str, model.ReplicatedTails]:
        """Read the store with a timeout."""
        if self._store is None or self._loop is None:
            raise StoreError("proxy.no-store")
        asked = self._loop.run_in_executor(
            self._store_thread, partial(read_replicated_tails, self._store, link, topics)
        )
        try:
            async with asyncio.timeout(PRODUCER_STATES_TIMEOUT_S):
                return await asked
        except TimeoutError as error:
            raise StoreError("proxy.store-timeout", seconds=PRODUCER_STATES_TIMEOUT_S) from error

    def _learnt(self, topics: Mapping[str, model.HomeRoute], learnt: Mapping[str, _Learnt]) -> None:
        for topic, lead in topics.items():
            self._known[topic, lead.term] = learnt[topic]
            self._learning.pop((topic, lead.term), None)
        self._has_learnt = True
        self._tell(self._update.leads)

    def _ask(self, name: str, topics: Sequence[str]) -> dict[str, dict[int, list[tuple[int, int, int]]]]:
        """Returns ids, epochs and last sequences by topic and partition."""
        cluster = self._clusters[name]
        with closing(KafkaCluster(cluster, client_id=PROXY_CLIENT_ID, patience_s=PRODUCER_STATES_TIMEOUT_S)) as kafka:
            known = kafka.metadata(topics).topics
            partitions = [TopicPartition(topic, tp.partition) for topic in topics for tp in known[topic].partitions]
            states = kafka.describe_producers(partitions)
        found: dict[str, dict[int, list[tuple[int, int, int]]]] = {}
        for partition, some in states.items():
            told = [(one.producer_id, one.epoch, one.last_sequence) for one in some]
            found.setdefault(partition.topic, {})[partition.partition] = told
        return found


def merge_home_records(
    lines: Sequence[Mapping[str, HomeRecord]], clusters: Mapping[str, model.ProxiedCluster], settings: Settings
) -> dict[str, model.HomeRoute]:
    """Returns home routes from these home records; empty if proxies follow no switches."""
    if not settings.of(SECTION).follows_switches:
        return {}
    current = {topic: current_home([some.get(topic) for some in lines]) for some in lines for topic in some}
    homes: dict[str, HomeRecord | HomeConflict] = {topic: one for topic, one in current.items() if one is not None}
    # A silent cluster is known from the others' records.
    names = {one.cluster_id: one.home for one in homes.values() if isinstance(one, HomeRecord) and one.home in clusters}
    names |= {cluster.cluster_id: cluster.name for cluster in clusters.values() if cluster.answers}
    return model.build_routes(homes, names, {}, 0)


class StoredHomes(NamedTuple):
    """The homes in the store, and their terms if known."""

    homes: Mapping[str, str] = {}
    terms: Mapping[str, int] = {}


def list_cluster_pairs(links: Iterable[Link], clusters: Collection[str]) -> list[str]:
    return sorted(
        {PAIR_SEPARATOR.join(sorted(pair)) for pair in combinations(clusters, 2)}
        | {pair_name(link) for link in select_same_named_links(links, clusters)}
    )


def select_same_named_links(links: Iterable[Link], clusters: Collection[str]) -> list[Link]:
    """Returns links from or to these clusters whose twins have the source's name."""
    return [
        link for link in links if link.naming is TwinNaming.SAME and not {link.source, link.target}.isdisjoint(clusters)
    ]


def read_stored_homes(links: Sequence[Link], store: Store, clusters: Collection[str]) -> StoredHomes:
    """Returns the stored homes, including topics whose twins a link replicates."""
    homes, terms = dict[str, str](), dict[str, int]()
    for link in select_same_named_links(links, clusters):
        homes |= {row.topic: link.source for row in store.twins.active(link.name)}
    rows = [row for pair in list_cluster_pairs(links, clusters) for row in store.homes.of(pair).values()]
    homes |= model.merge_pair_homes(rows)
    for row in rows:
        if row.home == homes[row.topic]:
            terms[row.topic] = max(row.term, terms.get(row.topic, 0))
    return StoredHomes(homes, terms)


POLL_INTERVAL_S = 1.0
# Listing all topics of a large cluster takes long; unknown topics are asked for separately.
TOPICS_REFRESH_INTERVAL_S = 5.0
# News may come many times a second; the clusters are not asked as often.
POLL_INTERVAL_MIN_S = 0.2
CLUSTER_TIMEOUT_S = 4.0
REQUEST_TIMEOUT_S = 2.0
# Home records are read once a second while no switch is announced.
HOME_RECORDS_INTERVAL_S = 3.0
# A mirror records within this time that a copy it has just made is a twin.
TWIN_RECORD_GRACE_S = 10.0
NAMED_MAX = 5


class ClusterWatcher:
    """Polls the clusters and the store; `look` runs until `stop`.

    `seen` is replaced, never changed, and stays the same object until something is new. `follows`: home records will be
    read. `is_own`: whether each site has the topic for itself.
    """

    def __init__(
        self,
        clusters: Sequence[Cluster],
        addressing: model.BrokerAddressing,
        store: LazyStore,
        *,
        follows: bool = False,
        start_all: bool = False,
        is_own: Callable[[str], bool] = lambda _: False,
    ) -> None:
        self.table = model.RoutingTable({cluster.name: _unseen(cluster.name) for cluster in clusters})
        self.changed: Callable[[model.RoutingTable], None] = lambda _: None
        self._clusters = [_Cluster(cluster, addressing) for cluster in clusters]
        self._store, self._told = store, RepeatFilter(log)
        self._no_link, self._repeat_filter = RepeatFilter(log), RepeatFilter(log)
        self._start_all, self._is_own, self._began_s = start_all, is_own, steady_s()
        self._links: tuple[Link, ...] | None = None
        self._said: tuple[object, ...] = ()
        self._asked: tuple[object, ...] = ()
        self._found: Mapping[str, model.ProxiedCluster] = self.table.clusters
        self._stored = StoredHomes()
        self._decided: Mapping[str, LeaderDecision] = {}
        self._torn_s: dict[str, float] = {}
        self._update = HomesUpdate(unheard=frozenset(addressing.clusters) if follows else frozenset())
        self._moves: dict[str, float] = {}
        self._threads = ThreadPoolExecutor(len(clusters) + 1, "lookout")
        self._news = {one.name: asyncio.Event() for one in self._clusters}
        self._home_news, self._stopped = asyncio.Event(), asyncio.Event()

    def news(self) -> None:
        """Look again soon."""
        for one in self._clusters:
            one.news()
        self._wake()

    def _wake(self) -> None:
        for event in (*self._news.values(), self._home_news):
            event.set()

    async def first(self) -> None:
        """Look once at all clusters and the store."""
        self._began_s = steady_s()
        looks = asyncio.gather(*(self._found_at(one) for one in self._clusters))
        await self._look_at_homes()
        self._take({cluster.name: cluster for cluster in await looks})

    async def look(self) -> None:
        """Run until `stop`."""
        looks = [self._again(self._news[one.name], partial(self._look_at, one)) for one in self._clusters]
        await asyncio.gather(self._again(self._home_news, self._look_at_homes), *looks)

    def stop(self) -> None:
        self._stopped.set()
        self._wake()

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        for one in self._clusters:
            one.close()

    async def _again(self, news: asyncio.Event, work: Callable[[], Awaitable[None]]) -> None:
        while not self._stopped.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(POLL_INTERVAL_S):
                    await news.wait()
            news.clear()
            if not self._stopped.is_set():
                await work()
                await asyncio.sleep(POLL_INTERVAL_MIN_S)

    async def _found_at(self, cluster: _Cluster) -> model.ProxiedCluster:
        return await asyncio.get_running_loop().run_in_executor(self._threads, cluster.look)

    async def _look_at(self, cluster: _Cluster) -> None:
        found = await self._found_at(cluster)
        if found.topics != self._found[cluster.name].topics:
            await self._look_at_homes()  # a new twin had a home before
        self._take({**self._found, cluster.name: found})

    def led(self, update: HomesUpdate) -> None:
        self._take(self._found, update)

    async def _look_at_homes(self) -> None:
        try:
            stored = await asyncio.get_running_loop().run_in_executor(self._threads, self._read)
        except Exception as error:  # else clients would go to old homes for ever
            self._told.say(f"{describe_error(error)}: topics are led to the homes that were known before")
            return
        self._told.well("the store answers again")
        if stored is not None:
            self._stored = stored
            self._take(self._found)

    def _read(self) -> StoredHomes | None:
        """Returns the stored homes; None if unchanged."""
        links = tuple(self._store.links())
        store = self._store.get()
        names = [one.name for one in self._clusters]
        said: tuple[object, ...] = links, {}, {}
        if store is not None:
            versions = {pair: store.homes.version(pair) for pair in list_cluster_pairs(links, names)}
            counts = {link.name: store.twins.count(link.name) for link in select_same_named_links(links, names)}
            said = links, versions, counts
        if said == self._said:
            return None
        found = read_stored_homes(links, store, names) if store is not None else StoredHomes()
        self._said, self._links = said, links
        return found

    def _take(self, clusters: Mapping[str, model.ProxiedCluster], update: HomesUpdate | None = None) -> None:
        update = update or self._update
        same_update = update.routing == self._update.routing
        self._update, self._found = update, clusters
        homes, leads = self._heard(update.leads)
        heard = KnownHomes(self._links, update.unheard, steady_s() - self._began_s, self._start_all)
        decided = self._decide(clusters, homes, heard)
        words = {topic: str(lead.cluster) for topic, lead in leads.items() if lead.cluster in clusters}
        doubted = find_doubted_leaders(words, clusters.values(), homes, heard)
        same = decided is self.table.by_copies and doubted == self.table.not_believed and homes == self.table.homes
        if same and clusters == self.table.clusters and same_update and leads == self.table.leads:
            return
        known = [cluster.offers for cluster in clusters.values() if cluster.offers]
        offers = compute_offered_versions(known) if known else {}
        told = leads, update.wrote, update.learns
        self.table = model.RoutingTable(
            clusters, homes, offers, *told, unsure=update.unsure, by_copies=decided, not_believed=doubted
        )
        self._say(self.table)
        self.changed(self.table)

    def _decide(
        self, clusters: Mapping[str, model.ProxiedCluster], homes: Mapping[str, str], heard: KnownHomes
    ) -> Mapping[str, LeaderDecision]:
        """Choose leaders; the same object until changed.

        A topic keeps its leader while a mirror may still note that the second copy is a twin.
        """
        now_s, late = steady_s(), heard.waited_s >= SUBSCRIPTION_LEASE_S
        there = tuple((cluster.has_answered, cluster.topics, cluster.twins) for cluster in clusters.values())
        asked = there, homes, heard.links, heard.unheard, late
        if asked == self._asked and not self._torn_s:
            return self._decided
        found = choose_leader_clusters(clusters.values(), homes, heard)
        unexplained = [topic for topic, leader in found.items() if _lacks_link(leader)]
        torn = [topic for topic in unexplained if isinstance(self._decided.get(topic), Leader)]
        self._torn_s = {topic: self._torn_s.get(topic, now_s) for topic in torn}
        found |= {topic: self._decided[topic] for topic in torn if now_s < self._torn_s[topic] + TWIN_RECORD_GRACE_S}
        self._asked = asked
        if found != self._decided:
            self._decided = found
        return self._decided

    def _heard(self, leads: Mapping[str, model.HomeRoute]) -> tuple[Mapping[str, str], Mapping[str, model.HomeRoute]]:
        """Combine stored homes and home records.

        A switch writes home records first. A proxy that follows switches reads them soon, with the producer tails;
        until then topics stay. `_moves`: since when. After that a higher term in the store counts: the cluster with
        that record does not answer.
        """
        homes, terms = self._stored
        if all(until_s == -math.inf for until_s in self._update.until_s.values()):
            return homes, leads
        was, now_s = self.table.routes, steady_s()
        later = {topic for topic, term in terms.items() if topic in leads and term > leads[topic].term}
        higher = {topic for topic in later if homes[topic] != leads[topic].cluster}
        moved = [topic for topic, home in homes.items() if topic not in leads and was.get(topic, home) != home]
        self._moves = {topic: self._moves.get(topic, now_s) for topic in (*moved, *higher)}
        waits = {topic for topic, since_s in self._moves.items() if now_s < since_s + HOME_RECORDS_INTERVAL_S}
        if held := {topic: was[topic] for topic in waits if topic not in leads}:
            homes = {**homes, **held}
        if overruled := {topic: homes[topic] if homes[topic] in self._found else None for topic in higher - waits}:
            leads = {**leads, **{topic: model.HomeRoute(home, terms[topic]) for topic, home in overruled.items()}}
        return homes, leads

    def _say(self, table: model.RoutingTable) -> None:
        """Log topics that no link explains, and leaders chosen without a cluster that could disagree."""
        leaderless = table.leaderless
        torn = sorted(topic for topic, one in leaderless.items() if _lacks_link(one) and not self._is_own(topic))
        if torn and self._links is not None:
            more = f", and so have {len(torn) - 1} more" if len(torn) > 1 else ""
            remedy = "delete the copy that is none, or name the topic in a link"
            self._no_link.say(f"{describe_decision(torn[0], leaderless[torn[0]])}{more}; {remedy}")
        else:
            self._no_link.well("every topic of several clusters has a leader again")
        if unheard := table.unconfirmed_leaders:
            names = sorted(unheard)
            more = f"; {len(names)} topics in all: {join_names(names, NAMED_MAX)}" if len(names) > 1 else ""
            self._repeat_filter.say(f"{describe_decision(names[0], unheard[names[0]])}{more}")
        else:
            self._repeat_filter.well("all clusters have answered that could say another home")


def _lacks_link(leader: LeaderDecision) -> bool:
    return isinstance(leader, NoLeader) and leader.lacks is NoLeaderReason.LINK


class _Cluster:
    """One cluster; looks run one at a time."""

    def __init__(self, cluster: Cluster, addressing: model.BrokerAddressing) -> None:
        self.name, self._addressing = cluster.name, addressing
        its_log = logging.LoggerAdapter(log, {"cluster": cluster.name})
        self._repeat_filter, self._crowded = RepeatFilter(its_log), RepeatFilter(its_log)
        self._kafka = KafkaCluster(
            cluster, client_id=PROXY_CLIENT_ID, patience_s=CLUSTER_TIMEOUT_S, call_s=REQUEST_TIMEOUT_S
        )
        self._cluster = _unseen(cluster.name)
        self._offers: dict[tuple[int, model.BrokerEndpoint], model.ApiVersionRanges] = {}
        self._newer_groups = False
        self._twins, self._no_notes = TwinsTopic(self._kafka), RepeatFilter(its_log)
        self._looked_s = -TOPICS_REFRESH_INTERVAL_S

    def news(self) -> None:
        """Have the next look cover all topics."""
        self._looked_s = -TOPICS_REFRESH_INTERVAL_S

    def close(self) -> None:
        self._kafka.close()

    def look(self) -> model.ProxiedCluster:
        """Returns the cluster now, or as last seen."""
        try:
            found = self._look()
        except Exception as error:  # one cluster's error must not affect the others
            self._repeat_filter.say(f"cluster {self.name}: {describe_error(error)}; its topics wait, the others go on")
            # A broker that comes back may be of another version.
            self._offers.clear()
            found = replace(self._cluster, answers=False)
            self.news()
        else:
            self._repeat_filter.well(f"cluster {self.name} answers again")
        self._cluster = found
        return found

    def _look(self) -> model.ProxiedCluster:
        with self._kafka.errand():
            whole = steady_s() - self._looked_s >= TOPICS_REFRESH_INTERVAL_S
            metadata = self._kafka.metadata(None if whole else [])
            nodes, crowded = self._addressing.apart(metadata.brokers)
            if crowded:
                why = "others have the same number modulo [proxy] nodes_per_cluster; what they lead cannot be reached"
                self._crowded.say(f"cluster {self.name}: brokers {crowded} have no port of their own, as {why}")
            brokers = {node: model.BrokerEndpoint(*metadata.brokers[node]) for node in nodes}
            self._learn_offers(brokers, whole=whole)
            if whole:
                found = {name: topic for name, topic in metadata.topics.items() if not topic.internal}
                ids = {name: topic.topic_id for name, topic in found.items()}
                counts = {name: len(topic.partitions) for name, topic in found.items()}
                noted = self._noted()
                may_be = self._twins.may_be()  # twins by lines of a newer version, as far as their names say it
                twins = frozenset(name for name, topic_id in ids.items() if name in may_be or topic_id.hex() in noted)
                self._cluster = replace(self._cluster, topics=frozenset(ids), ids=ids, partitions=counts, twins=twins)
                self._looked_s = steady_s()
        offers: model.ApiVersionRanges = intersect_versions(self._offers.values())
        if not self._newer_groups:
            offers = without_consumer_protocol(offers)
        cluster = replace(self._cluster, cluster_id=metadata.cluster_id, controller=metadata.controller)
        return replace(cluster, brokers=brokers, offers=offers, answers=True)

    def _noted(self) -> frozenset[str]:
        """Returns the ids of twins; none if the topic of twins may not be read."""
        try:
            noted = self._twins.read()
        except KafkaError as error:
            if error.retriable:
                raise
            self._no_notes.say(f"cluster {self.name}: {describe_error(error)}; its twins are not known")
            return frozenset()
        self._no_notes.well()
        return noted

    def _learn_offers(self, brokers: Mapping[int, model.BrokerEndpoint], *, whole: bool) -> None:
        """Ask new brokers for API versions; one that fails is asked at the next look.

        The newer group protocol may be enabled while brokers run: until then each `whole` look asks all. One answer
        holds for all brokers.
        """
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
                self._newer_groups = self._newer_groups or supports_consumer_protocol(answer)


def _ask_offers(connection: Connection, timeout_s: float) -> ApiVersionsResponse:
    return connection.hold(asks_offered(ClientSoftware(PROXY_SOFTWARE_NAME, __version__)), timeout_s=timeout_s)


def _unseen(name: str) -> model.ProxiedCluster:
    return model.ProxiedCluster(name, "", -1, {}, frozenset(), {}, answers=False)
