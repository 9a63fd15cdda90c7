"""The clusters' own word: each is asked where topics are at home, and told that this client follows.

A thread for each cluster, so that one that is silent keeps nobody from hearing the others. What a client must do by
what was heard is `homes.following`'s; it counts by a clock that runs on while the machine sleeps.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from functools import partial

from twinshore.client.sites import Site
from twinshore.client.threads import client_thread
from twinshore.client.warned import Warned
from twinshore.fleet import ConfigError, KafkaError
from twinshore.fleet.once import in_words
from twinshore.homes.follower_lines import LEASE_MS_MAX, goodbye_line
from twinshore.homes.following import LEASE_S, POLL_S, Following, Order, Park, Write
from twinshore.homes.home_lines import Clash, HomeLine, far_in_words
from twinshore.homes.home_notes import FollowerNotes, HomeNotes
from twinshore.kafka.clock import steady_s, wall_ms
from twinshore.kafka.cluster import KafkaCluster

PATIENCE_S = 1.0
AGAIN_S = PATIENCE_S / 4
# A cluster that is silent for so long is told of: the lease is over by then, and calls wait.
SILENT_S = 5.0
LEASE_S_MAX = LEASE_MS_MAX / 1_000


def must_be_lease(lease_s: float) -> None:
    """ConfigError for one that no switch believes: what is written under it would never cross."""
    if isinstance(lease_s, bool) or not isinstance(lease_s, int | float) or not 0.001 <= lease_s <= LEASE_S_MAX:
        raise ConfigError(f"lease_s is {lease_s!r}, and a switch believes in 0.001 to {LEASE_S_MAX:g}")


class HomesCentre:
    """`topics`: names, or beginnings of names with a `*` behind; `begin`: where topics are written of which no line
    tells; `told`: what another one has heard before it. `news` is called from a thread of the centre when it has heard
    or lost something; `warn` is told, once, why a cluster is not believed. There is a thread for each cluster, from
    `start` on: `stop` ends them, and waits for them, but no longer than a cluster has patience."""

    def __init__(
        self,
        name: str,
        topics: Iterable[str],
        sites: Mapping[str, Site],
        begin: str,
        *,
        lease_s: float = LEASE_S,
        told: Mapping[str, HomeLine | Clash] | None = None,
        news: Callable[[], None] = lambda: None,
        warn: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._id, self._name, self._sites = uuid.uuid4().hex, name, sites
        self._guard = threading.Lock()
        self._following = Following(self._id, name, topics, sites, begin, lease_s, told)
        self._news, self._warned = news, Warned(warn)
        self._shown: set[str] = set()
        self._unheard = set(sites)
        self._notes: dict[str, HomeNotes] = {}
        self._troubles: dict[str, str] = {}
        self._stopping, self._deaf = threading.Event(), threading.Event()
        self._threads = [
            client_thread("homes", f"{name} {site.name}", partial(self._follow, site)) for site in sites.values()
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self, *, goodbye: bool = True) -> None:
        """`goodbye`: nobody waits for this client any more. Without, it ends as a process that dies."""
        if not goodbye:
            self._deaf.set()
        self._stopping.set()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(4 * PATIENCE_S)

    def order(self, topic: str) -> Order:
        """What must be done with the topic now. Nothing goes to a cluster that has not shown that it is the one which
        the application expects there."""
        with self._guard:
            return self._checked(self._following.order(topic, steady_s()))

    def heard(self, topic: str) -> Order:
        """Where whoever reads finds the topic."""
        with self._guard:
            return self._checked(self._following.heard(topic, steady_s()))

    def line(self, topic: str) -> HomeLine | None:
        """What stands of the topic on the clusters."""
        with self._guard:
            return self._following.line(topic)

    def told(self) -> Mapping[str, HomeLine | Clash]:
        """All that was heard of where topics are at home."""
        with self._guard:
            return self._following.told()

    def cluster_id(self, cluster: str) -> str:
        """The id by which the cluster was met; empty before."""
        with self._guard:
            return self._following.cluster_id(cluster)

    def until_s(self, cluster: str) -> float:
        """How long what is written there may go on at most, on the steady clock."""
        with self._guard:
            return self._following.until_s(cluster)

    def read_since(self, cluster: str, then_s: float) -> bool:
        """Whether that cluster was read by a question asked after then."""
        with self._guard:
            return self._following.read_since(cluster, then_s)

    def unheard(self) -> frozenset[str]:
        """The clusters whose lines were not read yet."""
        with self._guard:
            return frozenset(self._unheard)

    def held(self) -> frozenset[str]:
        """Topics that a switch holds, and of which was not said yet that nothing is on its way."""
        with self._guard:
            return self._following.held()

    def is_deaf(self) -> bool:
        """Whether no cluster at all is heard now."""
        return self._troubles.keys() >= self._sites.keys()

    def trouble(self) -> str:
        """Why clusters are not heard now; empty where all are."""
        return "; ".join(why for _, why in sorted(dict(self._troubles).items()))

    def parked(self, topic: str) -> None:
        """Nothing is written to the topic, and nothing is on its way, since it was ordered to park."""
        with self._guard:
            self._following.parked(topic)

    def busy(self, groups: Sequence[str]) -> None:
        """Of these groups there are members here who have not gathered, though groups are about to move."""
        with self._guard:
            self._following.busy(groups)

    def moving(self) -> bool:
        """Whether a switch is under way."""
        with self._guard:
            return self._following.poll_s() < POLL_S

    def _follow(self, site: Site) -> None:
        """Whatever fails is asked again, over new connections: what was remembered of the cluster, or read of its
        files, may be what is wrong."""
        while not (self._stopping.is_set() or self._deaf.is_set()):
            try:
                with closing(
                    KafkaCluster(site.cluster, client_id=f"follower-{self._name}", patience_s=PATIENCE_S)
                ) as kafka:
                    self._follow_by(site, kafka)
            except Exception as error:  # whoever ended here would leave the lease to run out for ever, and nobody told
                self._troubles[site.name] = f"{site.name}: {in_words(error)}"
                self._warned.now(self._troubles[site.name])
                self._news()
                self._stopping.wait(POLL_S)

    def _follow_by(self, site: Site, kafka: KafkaCluster) -> None:
        """Until the end. Raises what may not pass by itself."""
        homes, followers = HomeNotes(kafka, partial(self._known, site.name)), FollowerNotes(kafka)
        self._notes[site.name] = homes
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
                pause_s = AGAIN_S  # the lease runs on: that is what it is for
                self._troubles[site.name] = error.message
                if steady_s() >= since_s + SILENT_S:
                    self._warned.now(self._troubles[site.name])
            self._news()
        if not self._deaf.is_set():
            with suppress(KafkaError):
                followers.say(goodbye_line(self._id), wall_ms())

    def _ask(self, site: Site, kafka: KafkaCluster, homes: HomeNotes, followers: FollowerNotes) -> float:
        cluster_id = kafka.cluster_id()
        if site.cluster_id and cluster_id != site.cluster_id:
            with self._guard:
                self._shown.discard(site.name)
            expected = f"{site.cluster_id} was expected: it is not followed"
            self._warned.now(f"{site.name} is cluster {cluster_id}, and {expected}")
            return POLL_S
        if not homes.homes and not followers.exists():
            followers.make()
        with self._guard:
            self._shown.add(site.name)
            self._following.met(site.name, cluster_id)
            saying = self._following.says() if self._following.must_say(site.name, steady_s()) else None
        asked_s = steady_s()
        if saying:
            followers.say(saying.line(), wall_ms())
            with self._guard:
                self._following.said(site.name, saying, asked_s, steady_s())
            asked_s = steady_s()
        found = homes.read()
        if homes.log.far:
            self._warned.now(far_in_words(site.name, homes.log.far.values()))
        with self._guard:
            self._unheard.discard(site.name)
            self._following.read(site.name, found, asked_s, steady_s())
            silent, pause_s = self._following.goes_without(steady_s()), self._following.poll_s()
        if silent:
            self._warned.now(
                f"{', '.join(silent)} did not answer since the start: topics are written where the other clusters say;"
                " one that a forced switch moved meanwhile has two homes"
            )
        return pause_s

    def _known(self, site: str, topic: str) -> int:
        """The highest term of the topic that another cluster says, or that was heard before."""
        with self._guard:
            term = self._following.term(topic)
        others = [notes.log for name, notes in dict(self._notes).items() if name != site]
        said = [log.homes[topic].term for log in others if topic in log.homes]
        far = [log.far[topic].term for log in others if topic in log.far]
        return max([term, *said]) or max(far, default=0)

    def _checked(self, found: Order) -> Order:
        if isinstance(found, Write) and found.cluster not in self._shown and self._sites[found.cluster].cluster_id:
            return Park("", f"{found.cluster} has not shown yet that it is the cluster that is expected there")
        return found
