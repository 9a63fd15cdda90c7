"""What all guests of a process share: what is known of the clusters, what is counted, and who is there."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from twinshore.config.errors import ConfigError
from twinshore.config.repeat_filter import RepeatFilter
from twinshore.config.sections.proxy import ProxySettings
from twinshore.kafka.clock import steady_s
from twinshore.proxy.auth import Authenticator
from twinshore.proxy.core.breakers import CircuitBreakers
from twinshore.proxy.core.follower_fetch import FollowerFetch, NetworkTable
from twinshore.proxy.core.group_requests import ActiveMembers
from twinshore.proxy.core.limits import ByteQuotas, ConnectionLimits, RequestMemory
from twinshore.proxy.core.model import BrokerAddressing, BrokerId, RoutingTable, find_forced_topics
from twinshore.proxy.core.offset_reset import OffsetResets
from twinshore.proxy.core.session import ClientSession
from twinshore.proxy.core.traffic import TrafficTable


@dataclass(slots=True)
class ProxyCounts:
    """Since the process began. `requests` by the key of the API."""

    requests: Counter[int] = field(default_factory=Counter)
    errands: int = 0
    clients: int = 0
    hung_up: int = 0
    refused: int = 0
    brokers_lost: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    held: int = 0
    slowed: int = 0
    turned_away: int = 0


class ConnectedClient(Protocol):
    """A client that is there."""

    def look(self, now_s: float) -> None:
        """Once a second."""

    def drain(self) -> None:
        """Ends once it is answered."""

    def hang_up(self, why: str) -> None:
        """Ends at once."""

    def judge_again(self) -> None:
        """Of the request that was held: more is known now."""

    def prove(self, torn: frozenset[str]) -> None:
        """Has brokers say that they have taken what nobody acknowledges, of topics that wait. `torn`: what a switch by
        force has just taken from its home."""


class ProxyContext:
    """`now_s` is the time as of the last look, for what need not know it to the millisecond. `until_s`: how long a
    switch that moves topics of each cluster waits for this proxy; none where it follows no switches. `lapses`: how
    often that had run out. `under_way` counts requests that write to a topic and have no answer yet; `quiet`
    is called once there is none. `holding`: guests whose request waits. `fuses`: what is cut, by hand or by itself.
    `quotas`, `crowd`: how much a client may have, how many may come. `budget`: how many bytes large requests may take.
    `at_work`: members of groups that have not gathered. `resets`: groups that are being set to other places. `flows`:
    what goes through, of whom and where. `near`: where clients of each site read what is mirrored. `balancers`: who
    says in a PROXY header whose connection it passes on."""

    def __init__(
        self,
        layout: BrokerAddressing,
        seen: RoutingTable,
        log: Callable[[str], None],
        news: Callable[[], None],
        gate: Authenticator | None = None,
    ) -> None:
        self.layout, self.seen, self.news, self.gate = layout, seen, news, gate or Authenticator()
        self.counts, self.guests = ProxyCounts(), set[ConnectedClient]()
        self._draining = False
        self.now_s = steady_s()
        self.until_s: Mapping[str, float] = {}
        self._all_until_s = math.inf
        self.in_flight_writes = Counter[str]()
        self.holding: set[ConnectedClient] = set()
        self.quiet: Callable[[str], None] = lambda _: None
        self.fuses, self.quotas, self.crowd = CircuitBreakers(), ByteQuotas(0), ConnectionLimits()
        self.at_work, self.resets, self.flows, self.near = (
            ActiveMembers(),
            OffsetResets(steady_s),
            TrafficTable(),
            FollowerFetch(),
        )
        self.balancers: NetworkTable | None = None
        self.budget = RequestMemory(ProxySettings().queued_bytes_max)
        self.lapses = Counter[str]()
        self._log = RepeatFilter(log)
        self._number = 0

    def session(self, place: BrokerId | None) -> ClientSession:
        """For one client, who came in by this broker's door."""
        shared = self.fuses, self.known, self.at_work, self.flows, self.resets, self.near
        return ClientSession(place, self.layout, self.news, *shared)

    def resolve_broker_name(self, name: str) -> BrokerId | None:
        """The broker that a client means who came by this name; None where it means none in particular. ConfigError
        where there can be no such broker."""
        number = self.layout.parse_broker_name(name)
        if number is None:
            return None
        nodes = {one.name: one.brokers for one in self.seen.clusters.values()}
        place = self.layout.place_of(number, nodes)
        if place is None:
            raise ConfigError(f"it came by the name {name!r:.260}, and no cluster here has brokers of such numbers")
        return place

    def number(self) -> int:
        """For a question of the proxy's own to a broker."""
        self._number = (self._number + 1) & 0x7FFFFFFF
        return self._number

    def came(self, guest: ConnectedClient) -> None:
        """A client has connected."""
        self.counts.clients += 1
        self.guests.add(guest)
        if self._draining:  # it was let in at the very moment
            guest.drain()

    def drain(self) -> None:
        """The process ends: what was asked is answered, and nothing more is read of anybody."""
        self._draining = True
        for guest in list(self.guests):
            guest.drain()

    def went(self, guest: ConnectedClient) -> None:
        """It has gone."""
        self.guests.discard(guest)

    def admit_client(self, peer: str) -> bool:
        """Whether one more of this address is let in: then it is counted, until the crowd is told that it goes."""
        why = self.crowd.comes(peer)
        if why:
            self.counts.turned_away += 1
            if self.crowd.should_log(peer, steady_s()):
                self._log.say(f"a client at {peer} was not let in: {why}")
        return not why

    def hung_up(self, peer: str, why: str) -> None:
        """A client's connection was ended here."""
        self.counts.hung_up += 1
        self._log.say(f"a client at {peer} was disconnected: {why}")

    def refused(self, peer: str, why: str) -> None:
        """The same, of one whose login was refused."""
        self.counts.refused += 1
        self.hung_up(peer, why)

    def lost(self, shut_out: str = "") -> None:
        """A connection to a broker is gone; `shut_out`: why the broker does not let it in, which somebody must mend."""
        self.counts.brokers_lost += 1
        if shut_out:
            self._log.say(f"a client is not let in by its broker: {shut_out}")
        self.news()

    def known(self) -> RoutingTable:
        """What a request is judged by."""
        return self.seen.without(self._lapsed()) if steady_s() >= self._all_until_s else self.seen

    def _lapsed(self) -> frozenset[str]:
        now_s = steady_s()
        return frozenset(name for name, until_s in self.until_s.items() if now_s >= until_s)

    def heard(self, until_s: Mapping[str, float]) -> bool:
        """Switches wait for it until then, for each cluster; whether some wait again."""
        lapsed = self._lapsed()
        self.until_s, self._all_until_s = until_s, min(until_s.values(), default=math.inf)
        back = lapsed - self._lapsed()
        self.lapses.update(back)
        return bool(back)

    def leases(self, topics: Iterable[str], at: str = "") -> Mapping[str, int]:
        """Of clusters to which a request writes: how often their leases had run out. `at`: where one goes of which no
        cluster is known to have its topic."""
        return {name: self.lapses[name] for name in (self.seen.written_at(topic) or at for topic in topics)}

    def leases_unbroken_since(self, leases: Mapping[str, int]) -> bool:
        """Whether a switch has waited for this proxy ever since, for each of these clusters."""
        lapsed = self._lapsed() if steady_s() >= self._all_until_s else ()
        return all(name not in lapsed and self.lapses[name] == count for name, count in leases.items())

    def writes(self, topics: Iterable[str]) -> None:
        """A request to write there goes out."""
        under_way = self.in_flight_writes
        for topic in topics:  # a Counter's own ways to add and to delete cost several times as much
            under_way[topic] = under_way.get(topic, 0) + 1

    def written(self, topics: Iterable[str]) -> None:
        """It is answered, or nothing of it can arrive any more."""
        for topic in topics:
            left = self.in_flight_writes.get(topic, 0) - 1
            if left > 0:
                self.in_flight_writes[topic] = left
            else:
                self.in_flight_writes.pop(topic, None)
                if self.seen.writes_paused(topic):  # a word of the clusters that is not in force here yet holds nobody
                    self.quiet(topic)

    def changed(self, seen: RoutingTable) -> None:
        """More is known: what was held is judged anew."""
        torn = find_forced_topics(self.seen, seen)
        self.seen = seen
        self.near.tick(steady_s(), seen)
        for guest in list(self.guests):
            guest.prove(torn)
        for guest in list(self.holding):
            guest.judge_again()

    def look(self) -> None:
        """Once a second, at all that is there."""
        self.now_s = steady_s()
        self.gate.look()
        self.at_work.look(self.now_s)
        for why in self.at_work.told():
            self._log.say(f"a client is refused: {why}")
        for guest in list(self.guests):
            guest.look(self.now_s)
