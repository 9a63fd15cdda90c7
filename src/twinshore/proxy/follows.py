"""The proxy as a follower of homes: it hears of switches from the clusters themselves, holds writers for them, and says
so once nothing is on its way to an old home any more."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from twinshore.client.centres.homes import HomesCentre
from twinshore.client.sites import Site
from twinshore.fleet import Cluster, NamedPartition, StoreError
from twinshore.fleet.once import in_words
from twinshore.fleet.sentences import listed
from twinshore.homes.following import LEASE_S
from twinshore.kafka.clock import steady_s, wall_ms
from twinshore.kafka.cluster import KafkaCluster
from twinshore.proxy.core.leads import Crossed, Lead, Wrote, doubtful, leads_of, wrote_of
from twinshore.proxy.late_store import NO_STORE, LateStore, ask_crossed, doubts

# A client gives up a record after two minutes by default; what its producer wrote before is of no use long after that.
KEPT_S: Final = 900.0
PATIENCE_S: Final = 2.0
NAMED_MAX: Final = 5

WroteBy = Mapping[tuple[str, int], Mapping[int, Wrote]]


@dataclass(frozen=True, slots=True)
class Led:
    """What is known of homes by now. `learns`: topics of which is being asked who wrote what last. `unsure`: partitions
    of which not all is known that had crossed by force. `until_s`: how long a switch waits for this proxy before it
    moves topics of each cluster. `unheard`: clusters whose words were not read yet."""

    leads: Mapping[str, Lead] = field(default_factory=dict)
    wrote: WroteBy = field(default_factory=dict)
    learns: frozenset[str] = frozenset()
    unsure: Mapping[tuple[str, int], int] = field(default_factory=dict)
    until_s: Mapping[str, float] = field(default_factory=dict)
    unheard: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class _Learnt:
    """Of one topic in one term, since then: who wrote what last to each partition, and where not all is known."""

    since_s: float
    wrote: WroteBy = field(default_factory=dict)
    unsure: Mapping[tuple[str, int], int] = field(default_factory=dict)


class Follows:
    """`changed` is called in the event loop with what is known by now. `store`: who knows what had crossed of topics
    that come by force."""

    def __init__(
        self, name: str, clusters: Sequence[Cluster], log: Callable[[str], None], store: LateStore | None = None
    ) -> None:
        self.changed: Callable[[Led], None] = lambda _: None
        self._clusters = {one.name: one for one in clusters}
        self._log = log
        sites = {one.name: Site(one) for one in clusters}
        self._centre = HomesCentre(name, ["*"], sites, clusters[0].name, news=self._heard, warn=log)
        self._led = Led()
        self._heard_then: object = None
        self._wrote: WroteBy = {}
        self._unsure: Mapping[tuple[str, int], int] = {}
        self._has_learnt = False
        self._began_s = -math.inf
        self._known: dict[tuple[str, int], _Learnt] = {}  # by topic and term
        self._learning: dict[tuple[str, int], asyncio.Task[None]] = {}  # one task for all topics of a switch
        self._threads = ThreadPoolExecutor(2 * len(clusters), "learns")
        self._store, self._store_thread = store, ThreadPoolExecutor(1, "learns-store")
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self) -> None:
        """In the event loop."""
        self._began_s = steady_s()
        self._loop = asyncio.get_running_loop()
        self._centre.start()

    def stop(self) -> None:
        """No switch waits for this proxy any more: call it once nothing is written."""
        self._loop = None
        for task in self._learning.values():
            task.cancel()
        for threads in (self._threads, self._store_thread):
            threads.shutdown(wait=False, cancel_futures=True)
        self._centre.stop()

    def quiet(self, topic: str) -> None:
        """Nothing is on its way to the topic, and nothing more is sent there while it is held."""
        if topic in self._centre.held():
            self._centre.parked(topic)

    def held(self) -> frozenset[str]:
        """Topics of which a switch wants to hear that."""
        return self._centre.held()

    def at_work(self, groups: Sequence[str]) -> None:
        """Groups have members who were told to gather, and have not yet; these are some of them."""
        self._centre.busy(groups)

    def has_heard(self) -> bool:
        """Whether the words of all clusters were read; or those of some, and the others were waited for."""
        unheard = self._centre.unheard()
        waited = unheard < self._clusters.keys() and steady_s() >= self._began_s + LEASE_S
        return not unheard or waited

    def trouble(self) -> str:
        """Why writers wait though no switch holds them; empty where they do not."""
        now_s = steady_s()
        silent = sorted(name for name, until_s in self._led.until_s.items() if now_s >= until_s)
        if not silent or now_s < self._began_s + 2 * LEASE_S:
            return ""
        return (
            f"{listed(silent, NAMED_MAX)} was not read, or told that this proxy follows switches, for some seconds:"
            " writers to topics there wait"
        )

    def _heard(self) -> None:
        """In a thread of the centre's."""
        if (loop := self._loop) is not None:
            with suppress(RuntimeError):  # it has ended
                loop.call_soon_threadsafe(self._hear)

    def _hear(self) -> None:
        if self._loop is None:
            return
        ids = {self._centre.cluster_id(name): name for name in self._clusters}
        heard = ids, self._centre.told()
        if heard == self._heard_then:
            # Many times a second during a switch, and there may be ten thousand topics that have ever moved.
            self._tell(self._led.leads)
            return
        self._heard_then = heard
        leads = leads_of(heard[1], ids, self._led.leads, wall_ms() - int(KEPT_S * 1000))
        come: dict[tuple[str, str], dict[str, Lead]] = {}
        torn: dict[str, dict[str, Lead]] = {}
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

    def _begin(self, learning: Coroutine[None, None, None], topics: Mapping[str, Lead]) -> None:
        assert self._loop is not None
        task = self._loop.create_task(learning)
        self._learning |= {(topic, lead.term): task for topic, lead in topics.items()}

    def _tell(self, leads: Mapping[str, Lead]) -> None:
        now_s = steady_s()
        gone = [
            key
            for key, learnt in self._known.items()
            if key[0] not in leads or leads[key[0]].term != key[1] or now_s > learnt.since_s + KEPT_S
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
        until_s = {name: self._centre.until_s(name) for name in self._clusters}
        self._led = Led(leads, self._wrote, learns, self._unsure, until_s, self._centre.unheard())
        self.changed(self._led)

    async def _learn(self, old: str, new: str, topics: Mapping[str, Lead]) -> None:
        """Who wrote what last to these topics, where nothing more of producers arrives: at their old home, and at the
        new one in earlier terms. Writers wait for it, so all is asked at once, and not for long."""
        found: dict[str, WroteBy] = {topic: {} for topic in topics}
        try:
            assert self._loop is not None
            asked = [self._loop.run_in_executor(self._threads, self._ask, name, list(topics)) for name in (old, new)]
            states = await asyncio.gather(*asked)
            for topic, lead in topics.items():
                told = [one.get(topic, {}) for one in states]
                found[topic] = {
                    (topic, number): wrote_of([state for one in told for state in one.get(number, ())], lead)
                    for number in {number for one in told for number in one}
                }
        except Exception as error:  # the topics' writers would wait for ever
            names = listed(sorted(topics), NAMED_MAX)
            self._log(
                f"{old} or {new} does not say who wrote to {names} there: {in_words(error)}; a batch whose"
                f" acknowledgement was lost may be written twice"
            )
        finally:
            self._learnt(topics, {topic: _Learnt(steady_s(), wrote) for topic, wrote in found.items()})

    async def _learn_torn(self, link: str, topics: Mapping[str, Lead]) -> None:
        """What of these topics had crossed, as the mirror told the store: nobody else can be asked."""
        found = {topic: doubtful(topic, lead) for topic, lead in topics.items()}
        try:
            found = await self._crossed(link, topics)
            if why := doubts(found):
                self._log(why)
        except Exception as error:  # the topics' writers would wait for ever
            names = listed(sorted(topics), NAMED_MAX)
            self._log(
                f"{names} came by force, and what had crossed is not known: {in_words(error)}; what their producers had"
                f" sent before, and send again, may be written twice"
            )
        finally:
            learnt = {topic: _Learnt(steady_s(), one.wrote, one.unsure) for topic, one in found.items()}
            self._learnt(topics, learnt)

    async def _crossed(self, link: str, topics: Mapping[str, Lead]) -> dict[str, Crossed]:
        """A store that hangs is not waited for."""
        if self._store is None or self._loop is None:
            raise StoreError(NO_STORE)
        asked = self._loop.run_in_executor(self._store_thread, partial(ask_crossed, self._store, link, topics))
        try:
            async with asyncio.timeout(PATIENCE_S):
                return await asked
        except TimeoutError as error:
            raise StoreError(f"the store does not answer within {PATIENCE_S:g} s") from error

    def _learnt(self, topics: Mapping[str, Lead], learnt: Mapping[str, _Learnt]) -> None:
        for topic, lead in topics.items():
            self._known[topic, lead.term] = learnt[topic]
            self._learning.pop((topic, lead.term), None)
        self._has_learnt = True
        self._tell(self._led.leads)

    def _ask(self, name: str, topics: Sequence[str]) -> dict[str, dict[int, list[tuple[int, int, int]]]]:
        """Ids, epochs and last sequences, by topic and partition."""
        cluster = self._clusters[name]
        with closing(KafkaCluster(cluster, client_id="twinshore-proxy", patience_s=PATIENCE_S)) as kafka:
            known = kafka.metadata(topics).topics
            parts = [NamedPartition(topic, one.partition) for topic in topics for one in known[topic].partitions]
            states = kafka.describe_producers(parts)
        found: dict[str, dict[int, list[tuple[int, int, int]]]] = {}
        for named, some in states.items():
            told = [(one.producer_id, one.epoch, one.last_sequence) for one in some]
            found.setdefault(named.topic, {})[named.partition] = told
        return found
