"""Reads topics' homes from each cluster, and subscribes the client there.

A thread for each cluster: an unreachable one delays no other. `routing.core.subscribers` decides what a client must do;
its clock counts on while the machine sleeps.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing, suppress
from functools import partial
from typing import Any, Concatenate, ParamSpec, TypeVar

from twinshore.client.core.pushes import PushedSettings
from twinshore.client.discovery.config_service import Pushes, RememberedHomes
from twinshore.client.sites import Site, WarningQueue, client_thread, sites_of
from twinshore.config.errors import ConfigError, KafkaError
from twinshore.config.frozen import FOLLOWER_CLIENT_ID_PREFIX
from twinshore.config.model import Cluster
from twinshore.config.repeat_filter import describe_error
from twinshore.kafka.clock import steady_s, wall_ms
from twinshore.kafka.cluster import KafkaCluster
from twinshore.routing.core.home_records import (
    HomeConflict,
    HomeRecord,
    describe_implausible,
    newer_hint,
    newer_in_words,
)
from twinshore.routing.core.subscribers import (
    LEASE_MS_MAX,
    POLL_INTERVAL_S,
    SUBSCRIPTION_LEASE_S,
    HomeSubscription,
    Pause,
    WriteOrder,
    WriteTo,
    unsubscribe_record,
)
from twinshore.routing.homes_topic import HomesTopic, SubscribersTopic

log = logging.getLogger(__name__)
REQUEST_TIMEOUT_S = 1.0
RETRY_DELAY_S = REQUEST_TIMEOUT_S / 4
# Warn of a cluster unavailable for so long: the lease has expired by then, and calls wait.
WARN_UNAVAILABLE_AFTER_S = 5.0
LEASE_S_MAX = LEASE_MS_MAX / 1_000
Parameters = ParamSpec("Parameters")
Value = TypeVar("Value")


def check_lease(lease_s: float) -> None:
    """ConfigError for a lease that a switch does not accept."""
    if isinstance(lease_s, bool) or not isinstance(lease_s, int | float) or not 0.001 <= lease_s <= LEASE_S_MAX:
        raise ConfigError("client.lease-out-of-range", lease_s=lease_s, max=LEASE_S_MAX)


def _guarded(
    method: Callable[Concatenate[HomeSubscription, Parameters], Value],
) -> Callable[Concatenate[HomeTracker, Parameters], Value]:
    """Returns a method that calls this one of the tracker's subscription, under its guard."""

    def call(tracker: HomeTracker, /, *given: Parameters.args, **named: Parameters.kwargs) -> Value:
        with tracker._guard:
            return method(tracker._following, *given, **named)

    return call


class HomeTracker:
    """Tracks the homes of a client's topics on all clusters.

    `topics`: names, or prefixes with a trailing `*`. `begin`: the cluster for topics without a home record. `told`,
    `unread`: records of an earlier tracker. `news` is called from a tracker thread after a change. Threads run
    from `start` to `stop`, which waits a few seconds for them.
    """

    def __init__(
        self,
        name: str,
        topics: Iterable[str],
        sites: Mapping[str, Site],
        begin: str,
        *,
        lease_s: float = SUBSCRIPTION_LEASE_S,
        told: Mapping[str, HomeRecord | HomeConflict] | None = None,
        unread: Mapping[str, HomeRecord] | None = None,
        news: Callable[[], None] = lambda: None,
    ) -> None:
        self._id, self._name, self._sites = uuid.uuid4().hex, name, sites
        self._guard = threading.Lock()
        self._following = HomeSubscription(self._id, name, topics, sites, begin, lease_s, told, unread)
        self._news, self._warnings = news, WarningQueue(log)
        self._shown: set[str] = set()
        self._unheard = set(sites)
        self._homes_topics: dict[str, HomesTopic] = {}
        self._troubles: dict[str, str] = {}
        self._stopping, self._deaf = threading.Event(), threading.Event()
        runs = {site.name: partial(self._follow, site) for site in sites.values()}
        self._threads = [client_thread("homes", f"{name} {site}", run) for site, run in runs.items()]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self, *, goodbye: bool = True) -> None:
        """Stop the threads. `goodbye`: unsubscribe, so that no switch waits for this client; otherwise the lease must
        expire, as after a crash.
        """
        if not goodbye:
            self._deaf.set()
        self._stopping.set()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(4 * REQUEST_TIMEOUT_S)

    def order(self, topic: str) -> WriteOrder:
        """Returns what to do with the topic now. Calls pause until a cluster has shown its expected `cluster_id`."""
        with self._guard:
            return self._checked(self._following.order(topic, steady_s()))

    def heard(self, topic: str) -> WriteOrder:
        """Returns where to read the topic."""
        with self._guard:
            return self._checked(self._following.heard(topic, steady_s()))

    line = _guarded(HomeSubscription.line)
    told = _guarded(HomeSubscription.told)
    unread = _guarded(HomeSubscription.unread)
    cluster_id = _guarded(HomeSubscription.cluster_id)
    until_s = _guarded(HomeSubscription.until_s)
    read_since = _guarded(HomeSubscription.read_since)
    held = _guarded(HomeSubscription.held)
    parked = _guarded(HomeSubscription.parked)
    busy = _guarded(HomeSubscription.busy)

    def unheard(self) -> frozenset[str]:
        """Returns the clusters whose home records were not read yet."""
        with self._guard:
            return frozenset(self._unheard)

    def is_every_cluster_unavailable(self) -> bool:
        return self._troubles.keys() >= self._sites.keys()

    def trouble(self) -> str:
        """Returns why clusters are unavailable; empty for none."""
        return "; ".join(why for _, why in sorted(dict(self._troubles).items()))

    def moving(self) -> bool:
        """Whether a switch is in progress."""
        with self._guard:
            return self._following.poll_s() < POLL_INTERVAL_S

    def _follow(self, site: Site) -> None:
        """Follow a cluster until stopped. Errors are retried over new connections: cached metadata or credential files
        may be at fault.
        """
        while not (self._stopping.is_set() or self._deaf.is_set()):
            client_id = f"{FOLLOWER_CLIENT_ID_PREFIX}{self._name}"
            try:
                with closing(KafkaCluster(site.cluster, client_id=client_id, patience_s=REQUEST_TIMEOUT_S)) as kafka:
                    self._follow_by(site, kafka)
            except Exception as error:  # if the thread ended, the lease would never be renewed
                self._troubles[site.name] = f"{site.name}: {describe_error(error)}"
                self._warnings.now(self._troubles[site.name], cluster=site.name)
                self._news()
                self._stopping.wait(POLL_INTERVAL_S)

    def _follow_by(self, site: Site, kafka: KafkaCluster) -> None:
        """Poll until stopped. Raises final errors."""
        homes, followers = HomesTopic(kafka, partial(self._known, site.name)), SubscribersTopic(kafka)
        self._homes_topics[site.name] = homes
        pause_s, since_s = 0.0, steady_s()
        while not self._stopping.wait(pause_s):
            if self._deaf.is_set():
                return
            try:
                pause_s = self._ask(site, kafka, homes, followers)
                since_s = steady_s()
                self._troubles.pop(site.name, None)
            except KafkaError as error:
                if not error.retriable:
                    raise
                pause_s = RETRY_DELAY_S  # the lease still covers this time
                self._troubles[site.name] = error.message
                if steady_s() >= since_s + WARN_UNAVAILABLE_AFTER_S:
                    self._warnings.now(self._troubles[site.name], cluster=site.name)
            self._news()
        if not self._deaf.is_set():
            with suppress(KafkaError):
                followers.say(unsubscribe_record(self._id), wall_ms())

    def _ask(self, site: Site, kafka: KafkaCluster, homes: HomesTopic, followers: SubscribersTopic) -> float:
        cluster_id = kafka.cluster_id()
        if site.cluster_id and cluster_id != site.cluster_id:
            with self._guard:
                self._shown.discard(site.name)
            sentence = f"{site.name} is cluster {cluster_id}, not {site.cluster_id}: it is not followed"
            self._warnings.now(sentence, cluster=site.name)
            return POLL_INTERVAL_S
        if not homes.homes and not followers.exists():
            followers.make()
        with self._guard:
            self._shown.add(site.name)
            self._following.met(site.name, cluster_id)
            saying = self._following.says() if self._following.must_announce(site.name, steady_s()) else None
        asked_s = steady_s()
        if saying:
            followers.say(saying.line(), wall_ms())
            with self._guard:
                self._following.said(site.name, saying, asked_s, steady_s())
            asked_s = steady_s()
        found = homes.read()
        if homes.log.far:
            self._warnings.now(describe_implausible(site.name, homes.log.far.values()), cluster=site.name)
        for record in found.values():
            if record.newer:
                newer = newer_in_words(record.topic, record.newer, site.name)
                self._warnings.now(f"{newer}: it is parked ({newer_hint()})", cluster=site.name, topic=record.topic)
        with self._guard:
            self._unheard.discard(site.name)
            self._following.read(site.name, found, asked_s, steady_s())
            silent, pause_s = self._following.skipped_clusters(steady_s()), self._following.poll_s()
        if silent:
            where = (
                "topics are written where the other clusters say; one that a forced switch moved since has two homes"
            )
            self._warnings.now(f"{', '.join(silent)} did not answer since the start: {where}")
        return pause_s

    def _known(self, site: str, topic: str) -> int:
        """Returns the topic's highest term known elsewhere."""
        with self._guard:
            term = self._following.term(topic)
        others = [homes_topic.log for name, homes_topic in dict(self._homes_topics).items() if name != site]
        said = [log.homes[topic].term for log in others if topic in log.homes]
        far = [log.far[topic].term for log in others if topic in log.far]
        return max([term, *said]) or max(far, default=0)

    def _checked(self, found: WriteOrder) -> WriteOrder:
        if isinstance(found, WriteTo) and found.cluster not in self._shown and self._sites[found.cluster].cluster_id:
            return Pause("", f"{found.cluster} has not shown yet that it is the expected cluster")
        return found


Clusters = Mapping[str, Mapping[str, Any] | Cluster] | Pushes
SitesCheck = Callable[[Mapping[str, Site]], None]


class Discovery:
    """The clusters that a client may use: fixed by the application, or pushed.

    `begin`: the site for topics without a home record. `check` raises where no client can be made of the sites: the
    constructor raises that, a later push is refused. `news` is called from another thread after a push, until `stop`.
    `memory`: the file that remembers homes; by default beside the last good push.
    """

    def __init__(
        self,
        clusters: Clusters,
        config: Mapping[str, Any],
        topics: Iterable[str],
        *,
        check: SitesCheck,
        news: Callable[[], None],
    ) -> None:
        self._news = news
        self._pushed = deque[PushedSettings](maxlen=1)  # only the last one
        self.is_due = False  # until the current clusters are asked
        self._tracker: HomeTracker | None = None
        self.memory = clusters.memory if isinstance(clusters, Pushes) else None
        self._remembered: RememberedHomes | None = None
        self._pushes = clusters if isinstance(clusters, Pushes) else None
        if isinstance(clusters, Pushes):
            first = clusters.begin(config, topics, self._push, lambda pushed: check(pushed.sites))
            self.sites, self.begin = first.sites, first.begin
        else:
            self.sites = sites_of(clusters, config)
            check(self.sites)
            self.begin = next(iter(self.sites))

    def hear(self) -> None:
        """Apply the last push. After a change `is_due` stays true until `ask` succeeds."""
        if self._pushed:
            found = self._pushed.popleft()
            if (found.sites, found.begin) != (self.sites, self.begin):
                self.sites, self.begin, self.is_due = found.sites, found.begin, True

    def ask(self, name: str, topics: Iterable[str], lease_s: float) -> HomeTracker:
        """Start a tracker for these topics. Known records stay known, so a cluster that has not learnt of a switch
        takes no topic back.
        """
        if self._remembered is None:
            self._remembered = RememberedHomes(self.memory)
        told = without_holds(self._tracker.told()) if self._tracker is not None else self._remembered.lines()
        unread = self._tracker.unread() if self._tracker is not None else None
        made = HomeTracker(
            name, topics, self.sites, self.begin, lease_s=lease_s, told=told, unread=unread, news=self._heard
        )
        made.start()
        self._tracker, self.is_due = made, False
        return made

    def _heard(self) -> None:
        """Remember homes; called in a tracker thread."""
        if self._tracker is not None and self._remembered is not None:
            self._remembered.keep(without_holds(self._tracker.told()))
        self._news()

    def stop(self) -> None:
        if self._pushes is not None:
            self._pushes.stop()

    def _push(self, pushed: PushedSettings) -> None:
        self._pushed.append(pushed)
        self._news()


def without_holds(told: Mapping[str, HomeRecord | HomeConflict]) -> dict[str, HomeRecord | HomeConflict]:
    """Returns records without holds. A hold counts from when a client reads it, so the next tracker reads it again."""
    return {topic: one for topic, one in told.items() if not (isinstance(one, HomeRecord) and one.hold_ms)}
