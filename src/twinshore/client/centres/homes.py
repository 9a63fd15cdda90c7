"""The clusters' own word: each is asked where topics are at home, and told that this client follows.

A thread for each cluster, so that one that is silent keeps nobody from hearing the others. What a client must do by
what was heard is `homes.following`'s; it counts by a clock that runs on while the machine sleeps.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing, suppress

from twinshore.client.sites import Site
from twinshore.fleet import KafkaError
from twinshore.fleet.once import in_words
from twinshore.homes.follower_lines import goodbye_line
from twinshore.homes.following import LEASE_S, POLL_S, Following, Order, Park, Write
from twinshore.homes.home_lines import Clash, HomeLine
from twinshore.homes.home_notes import FollowerNotes, HomeNotes
from twinshore.kafka.clock import steady_s, wall_ms
from twinshore.kafka.cluster import KafkaCluster

PATIENCE_S = 1.0
AGAIN_S = PATIENCE_S / 4


class HomesCentre:
    """`topics`: names, or beginnings of names with a `*` behind; `begin`: where topics are written of which no line
    tells; `told`: what another one has heard before it. `news` is called from a thread of the centre when it has heard
    or lost something; `warn` is told, once, why a cluster is not believed."""

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
        self._following = Following(self._id, name, topics, begin, lease_s, told)
        self._news, self._warn = news, warn
        self._warned: set[str] = set()
        self._shown: set[str] = set()
        self._stopping, self._deaf = threading.Event(), threading.Event()
        self._threads = [
            threading.Thread(target=self._follow, args=(site,), name=f"{name} asks {site.name}", daemon=True)
            for site in sites.values()
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

    def deafen(self) -> None:
        """From now on it reaches no cluster."""
        self._deaf.set()

    def order(self, topic: str) -> Order:
        """What must be done with the topic now. Nothing goes to a cluster that has not shown that it is the one which
        the application expects there."""
        with self._guard:
            return self._checked(self._following.order(topic, steady_s()))

    def heard(self, topic: str) -> Order:
        """Where whoever reads finds the topic."""
        with self._guard:
            return self._checked(self._following.heard(topic))

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

    def until_s(self) -> float:
        """How long what it was ordered holds at most, on the steady clock."""
        with self._guard:
            return self._following.until_s()

    def held(self) -> frozenset[str]:
        """Topics that a switch holds, and of which was not said yet that nothing is on its way."""
        with self._guard:
            return self._following.held()

    def parked(self, topic: str) -> None:
        """Nothing is written to the topic, and nothing is on its way, since it was ordered to park."""
        with self._guard:
            self._following.parked(topic)

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
                self._once(f"{site.name}: {in_words(error)}")
                self._news()
                self._stopping.wait(POLL_S)

    def _follow_by(self, site: Site, kafka: KafkaCluster) -> None:
        """Until the end. Raises what may not pass by itself."""
        homes, followers = HomeNotes(kafka), FollowerNotes(kafka)
        pause_s = 0.0
        while not self._stopping.wait(pause_s):
            if self._deaf.is_set():
                return
            try:
                pause_s = self._ask(site, kafka, homes, followers)
            except KafkaError as error:
                if not error.retriable:
                    raise
                pause_s = AGAIN_S  # the lease runs on: that is what it is for
            self._news()
        if not self._deaf.is_set():
            with suppress(KafkaError):
                followers.say(goodbye_line(self._id), wall_ms())

    def _ask(self, site: Site, kafka: KafkaCluster, homes: HomeNotes, followers: FollowerNotes) -> float:
        cluster_id = kafka.cluster_id()
        if site.cluster_id and cluster_id != site.cluster_id:
            with self._guard:
                self._shown.discard(site.name)
            self._once(f"{site.name} is cluster {cluster_id}, and {site.cluster_id} was expected: it is not followed")
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
        with self._guard:
            self._following.read(found, asked_s)
            return self._following.poll_s()

    def _checked(self, found: Order) -> Order:
        if isinstance(found, Write) and found.cluster not in self._shown and self._sites[found.cluster].cluster_id:
            return Park("", f"{found.cluster} has not shown yet that it is the cluster that is expected there")
        return found

    def _once(self, sentence: str) -> None:
        if sentence not in self._warned:
            self._warned.add(sentence)
            self._warn(sentence)
