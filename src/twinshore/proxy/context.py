"""State that all client connections of a process share."""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from twinshore.config.errors import ConfigError
from twinshore.config.repeat_filter import RepeatFilter
from twinshore.config.sections.proxy import ProxySettings
from twinshore.kafka.clock import steady_s
from twinshore.protection.keeper import GateKeeper
from twinshore.proxy.auth import Authenticator
from twinshore.proxy.core.breakers import CircuitBreakers
from twinshore.proxy.core.follower_fetch import FollowerFetch, NetworkTable
from twinshore.proxy.core.group_requests import ActiveMembers
from twinshore.proxy.core.limits import ByteQuotas, ConnectionLimits, RequestMemory
from twinshore.proxy.core.model import BrokerAddressing, BrokerId, RoutingTable, find_forced_topics
from twinshore.proxy.core.offset_reset import OffsetResets
from twinshore.proxy.core.session import ClientSession
from twinshore.proxy.core.traffic import TrafficTable

log = logging.getLogger(__name__)


@dataclass(slots=True)
class ProxyCounts:
    """Counts since the process began. `requests`: by API key."""

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
    def look(self, now_s: float) -> None:
        """Check time limits, once a second."""

    def drain(self) -> None:
        """Disconnect once all is answered."""

    def hang_up(self, why: str) -> None:
        """Disconnect at once; `why` is for the log."""

    def judge_again(self) -> None:
        """Judge the parked request again."""

    def prove(self, torn: frozenset[str]) -> None:
        """Have brokers confirm unacknowledged writes to paused topics. `torn`: topics just moved by force."""


class ProxyContext:
    """State that all client connections of a process share.

    `now_s`: time of the last `look`. `until_s`: by cluster, until when switches wait for this proxy; empty if switches
    are not followed. `lapses`: by cluster, how often that time ran out. `in_flight_writes`: unanswered writes by topic;
    `quiet` is called when a paused topic has none left. `holding`: clients with a parked request. `breakers`: circuit
    breakers. `crowd`: connection limits. `budget`: memory of large requests. `at_work`: members that have not gathered.
    `balancers`: networks that send a PROXY header. `keeper`: holds the responses of protected topics.
    """

    def __init__(
        self,
        addressing: BrokerAddressing,
        table: RoutingTable,
        news: Callable[[], None],
        gate: Authenticator | None = None,
    ) -> None:
        self.addressing, self.table, self.news, self.gate = addressing, table, news, gate or Authenticator()
        self.counts, self.guests = ProxyCounts(), set[ConnectedClient]()
        self._draining = False
        self.now_s = steady_s()
        self.until_s: Mapping[str, float] = {}
        self._all_until_s = math.inf
        self.in_flight_writes = Counter[str]()
        self.holding: set[ConnectedClient] = set()
        self.quiet: Callable[[str], None] = lambda _: None
        self.breakers, self.quotas, self.crowd = CircuitBreakers(), ByteQuotas(0), ConnectionLimits()
        self.at_work, self.resets = ActiveMembers(), OffsetResets(steady_s)
        self.traffic, self.follower_fetch = TrafficTable(), FollowerFetch()
        self.balancers: NetworkTable | None = None
        self.keeper: GateKeeper | None = None
        self.budget = RequestMemory(ProxySettings().queued_bytes_max)
        self.lapses = Counter[str]()
        self._log = RepeatFilter(log)
        self._number = 0

    def session(self, place: BrokerId | None) -> ClientSession:
        """Create a session for a client at this broker's port."""
        shared = self.breakers, self.known, self.at_work, self.traffic, self.resets, self.follower_fetch, self.keeper
        return ClientSession(place, self.addressing, self.news, *shared)

    def resolve_broker_name(self, name: str) -> BrokerId | None:
        """Returns the broker of this host name; None for no particular one. ConfigError if there is no such broker."""
        number = self.addressing.parse_broker_name(name)
        if number is None:
            return None
        nodes = {cluster.name: cluster.brokers for cluster in self.table.clusters.values()}
        place = self.addressing.place_of(number, nodes)
        if place is None:
            raise ConfigError("proxy.no-such-broker", name=name)
        return place

    def number(self) -> int:
        """Returns a correlation id for the proxy's own requests."""
        self._number = (self._number + 1) & 0x7FFFFFFF
        return self._number

    def came(self, client: ConnectedClient) -> None:
        self.counts.clients += 1
        self.guests.add(client)
        if self._draining:  # the client was admitted at that moment
            client.drain()

    def drain(self) -> None:
        """Answer what was read from clients, and read nothing more."""
        self._draining = True
        for client in list(self.guests):
            client.drain()

    def went(self, client: ConnectedClient) -> None:
        self.guests.discard(client)

    def admit_client(self, peer: str) -> bool:
        """Whether one more client may connect; if so it counts until `crowd.goes`."""
        why = self.crowd.comes(peer)
        if why:
            self.counts.turned_away += 1
            if self.crowd.should_log(peer, steady_s()):
                self._log.say(f"a client at {peer} was not let in: {why}")
        return not why

    def hung_up(self, peer: str, why: str) -> None:
        """Count and log a disconnected client."""
        self.counts.hung_up += 1
        self._log.say(f"a client at {peer} was disconnected: {why}")

    def refused(self, peer: str, why: str) -> None:
        self.counts.refused += 1
        self.hung_up(peer, why)

    def lost(self, shut_out: str = "") -> None:
        """Count a lost broker connection. `shut_out`: why the broker refused the client, for the operator."""
        self.counts.brokers_lost += 1
        if shut_out:
            self._log.say(f"a client is not let in by its broker: {shut_out}")
        self.news()

    def known(self) -> RoutingTable:
        """Returns the table for judging requests, with lapsed clusters marked."""
        return self.table.without(self._lapsed()) if steady_s() >= self._all_until_s else self.table

    def _lapsed(self) -> frozenset[str]:
        now_s = steady_s()
        return frozenset(name for name, until_s in self.until_s.items() if now_s >= until_s)

    def heard(self, until_s: Mapping[str, float]) -> bool:
        """Set until when switches wait, by cluster. Returns whether some wait again after a lapse."""
        lapsed = self._lapsed()
        self.until_s, self._all_until_s = until_s, min(until_s.values(), default=math.inf)
        back = lapsed - self._lapsed()
        self.lapses.update(back)
        return bool(back)

    def subscription_lapses(self, topics: Iterable[str], at: str = "") -> Mapping[str, int]:
        """Returns the lapses of the clusters written to. `at`: the cluster for unknown topics."""
        return {name: self.lapses[name] for name in (self.table.written_at(topic) or at for topic in topics)}

    def has_no_lapse_since(self, leases: Mapping[str, int]) -> bool:
        """Whether switches of these clusters have waited ever since."""
        lapsed = self._lapsed() if steady_s() >= self._all_until_s else ()
        return all(name not in lapsed and self.lapses[name] == count for name, count in leases.items())

    def writes(self, topics: Iterable[str]) -> None:
        under_way = self.in_flight_writes
        for topic in topics:  # a Counter's own methods cost several times as much
            under_way[topic] = under_way.get(topic, 0) + 1

    def written(self, topics: Iterable[str]) -> None:
        """Remove writes that are answered or can no longer arrive."""
        for topic in topics:
            left = self.in_flight_writes.get(topic, 0) - 1
            if left > 0:
                self.in_flight_writes[topic] = left
            else:
                self.in_flight_writes.pop(topic, None)
                if self.table.writes_paused(topic):  # a hold that is not in force here yet stops no writes
                    self.quiet(topic)

    def changed(self, table: RoutingTable) -> None:
        """Replace the routing table, and judge parked requests."""
        torn = find_forced_topics(self.table, table)
        self.table = table
        self.follower_fetch.tick(steady_s(), table)
        for client in list(self.guests):
            client.prove(torn)
        for client in list(self.holding):
            client.judge_again()

    def look(self) -> None:
        """Check all clients, once a second."""
        self.now_s = steady_s()
        self.gate.look()
        self.at_work.look(self.now_s)
        for why in self.at_work.told():
            self._log.say(f"a client is refused: {why}")
        for client in list(self.guests):
            client.look(self.now_s)
