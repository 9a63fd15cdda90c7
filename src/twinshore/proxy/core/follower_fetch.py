"""Decides where a client reads a replicated topic: at the twin of its own site while fresh, else at home.

A twin has the offsets of its home, so a client may change between them at any record.

A twin whose log ends no earlier than home's did at some moment has all that home had then. The lag is the age of the
newest such moment, by the proxy's clock alone. While a cluster does not answer, the lag grows.

A client is redirected as brokers redirect consumers to a replica (KIP-392); the leader stays at home, so no client
writes elsewhere. The client stays at the twin for a few minutes, or until an error: NOT_LEADER_OR_FOLLOWER sends it
home. A twin never answers OFFSET_OUT_OF_RANGE.
"""

from __future__ import annotations

import ipaddress
import math
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Final, NamedTuple, TypeAlias

from twinshore.kafka.protocol import fetch
from twinshore.kafka.protocol.error_codes import Code
from twinshore.proxy.core.model import NO_BROKER, BrokerAddressing, BrokerId, RoutingTable

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
# About so many samples are kept, evenly: a fresh twin matches one of the newest.
HOME_END_SAMPLES_MAX: Final = 64
# How long a topic is checked after the last read.
TOPIC_WATCH_S: Final = 60.0
# The time for a first check, during which clients wait.
FIRST_CHECK_TIMEOUT_S: Final = 3.0
# Responses name a preferred replica since v11. librdkafka clients that use v11 (before 2.1) stay at that node after
# an error; those that use a later version leave.
PREFERRED_REPLICA_FETCH_VERSION: Final = 12
# A client that returns sooner had an error there, and reads at home until then. librdkafka pauses if redirected twice
# within a minute.
REDIRECT_INTERVAL_MIN_S: Final = 65.0
# Sessions are also checked without changes, since some partitions were redirected not long ago.
SESSION_CHECK_INTERVAL_S: Final = 30.0
TOPIC_NOTE_INTERVAL_S: Final = 10.0
# The delay of a response that has only positions beyond the twin's end.
AHEAD_RESPONSE_DELAY_S: Final = 0.1
EMPTY_RESPONSE_DELAY_S: Final = 0.5
_NOT_HERE: Final = int(Code.not_leader_or_follower)


class NetworkTable:
    """Finds the narrowest network of an address. `named`: networks as text, each with a name."""

    def __init__(self, named: Iterable[tuple[str, str]]) -> None:
        networks = {ipaddress.ip_network(text): name for text, name in named}
        self._networks = sorted(networks.items(), key=lambda one: one[0].prefixlen, reverse=True)

    def of(self, address: str) -> str | None:
        """Returns the network's name; None if none has the address."""
        found = parse_ip_address(address)
        if found is None:
            return None
        return next((name for network, name in self._networks if found in network), None)


def parse_ip_address(address: str) -> _Address | None:
    """Returns the address, IPv4-mapped IPv6 as IPv4; None if invalid."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return None
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is not None:
        return found.ipv4_mapped
    return found


@dataclass(slots=True)
class HomeEndHistory:
    """Log ends of a partition at home, oldest first."""

    moments: deque[tuple[float, int]] = field(default_factory=deque)

    def add(self, asked_s: float, end: int, kept_s: float) -> None:
        """Add a log end. If the log has become shorter, the history restarts."""
        moments = self.moments
        if moments and end < moments[-1][1]:
            moments.clear()
        if len(moments) > 1:
            (before_s, before), (last_s, last) = moments[-2], moments[-1]
            # Of moments with the same end the last counts, of moments close together any.
            if before == last == end or last_s - before_s < kept_s / HOME_END_SAMPLES_MAX:
                moments.pop()
        moments.append((asked_s, end))
        while moments[0][0] < asked_s - kept_s:
            moments.popleft()

    @property
    def end(self) -> int:
        """The newest log end; -1 if unknown."""
        return self.moments[-1][1] if self.moments else -1

    def caught_up_since_s(self, end: int) -> float:
        """Returns the newest moment whose records a twin with this end has; -inf if none."""
        return next((asked_s for asked_s, had in reversed(self.moments) if had <= end), -math.inf)


@dataclass(slots=True)
class MirrorLag:
    """The lag of a twin partition. `since_s`: the twin has all that home had then. `near`: clients read there."""

    leader: int = -1
    start: int = 0
    end: int = -1
    since_s: float = -math.inf
    near: bool = False

    def take(self, leader: int, start: int, end: int, home: HomeEndHistory) -> None:
        """Take the twin's log bounds, asked before home.

        A log longer than home's is no twin: other records were written there, or home lost some.
        """
        self.leader, self.start, self.end = leader, start, end
        self.since_s = home.caught_up_since_s(end) if end <= home.end else -math.inf

    def judge(self, now_s: float, behind_s_max: float) -> bool:
        """Whether clients read there: they come below half of the bound, and leave above."""
        bound_s = behind_s_max if self.near else behind_s_max / 2
        self.near = now_s - self.since_s <= bound_s
        return self.near


TopicPartitionKey = tuple[str, int]


@dataclass(frozen=True, slots=True)
class FollowerFetchRules:
    """Where clients of a site may read topics of another home, nearest first.

    `sites`: by cluster, in the order of the settings. `next_sites`: where to read if not at the own site. With one site
    all clients read at home. `own_topics`: topics that each site has for itself, as patterns with `*`.
    """

    sites: Mapping[str, str] = field(default_factory=dict)
    next_sites: Mapping[str, Sequence[str]] = field(default_factory=dict)
    behind_s_max: float = 5.0
    own_topics: Sequence[str] = ()

    def known(self, site: str) -> bool:
        return bool(site) and (site in self.sites.values() or site in self.next_sites)

    def clusters_before_home(self, site: str, home: str) -> Iterator[str]:
        """Yields clusters that clients of the site prefer to `home`."""
        for one in dict.fromkeys((site, *self.next_sites.get(site, ()))):
            if self.sites.get(home) == one:
                return
            yield from (name for name, at in self.sites.items() if at == one)

    def is_own(self, topic: str) -> bool:
        """Whether each site has the topic for itself, unless a twin."""
        return any(fnmatchcase(topic, pattern) for pattern in self.own_topics)


class LinkCopy(NamedTuple):
    """A topic that a link replicates exactly, with both topic ids. `partitions`: still replicated."""

    source: str
    target: str
    topic: str
    source_id: str
    target_id: str
    partitions: frozenset[int]


class ExactTwin(NamedTuple):
    """A twin with its home's offsets. The ids are from the store, and valid while the clusters have the same."""

    cluster: str
    home_id: str
    topic_id: str
    partitions: frozenset[int]


def find_exact_twins(copies: Iterable[LinkCopy], homes: Mapping[str, str]) -> dict[str, tuple[ExactTwin, ...]]:
    """Returns what links have copied from each topic's home, also by way of another twin.

    A copy of an earlier topic of that name does not count.
    """
    by_topic: dict[str, list[LinkCopy]] = {}
    for copy in copies:
        by_topic.setdefault(copy.topic, []).append(copy)
    found: dict[str, tuple[ExactTwin, ...]] = {}
    for topic, some in by_topic.items():
        home, twins = homes.get(topic, ""), dict[str, ExactTwin]()
        for copy in some:
            if copy.source == home:
                twins[copy.target] = ExactTwin(copy.target, copy.source_id, copy.target_id, copy.partitions)
        for _ in some:
            for copy in some:
                via = twins.get(copy.source)
                if via is None or via.topic_id != copy.source_id or copy.target in {home, *twins}:
                    continue
                parts = copy.partitions & via.partitions
                twins[copy.target] = ExactTwin(copy.target, via.home_id, copy.target_id, parts)
        if twins:
            found[topic] = tuple(twins.values())
    return found


_NOWHERE: Final[Mapping[TopicPartitionKey, BrokerId]] = {}


class TwinLogBounds(NamedTuple):
    leader: int
    start: int
    end: int


# Of one cluster, by topic and id.
BoundsByTopic: TypeAlias = Mapping[tuple[str, str], Mapping[int, TwinLogBounds]]


class TopicCheck(NamedTuple):
    """A check of a topic in one term: log ends of twins, asked first, then of home, asked at `asked_s`.

    A twin partition that is None did not answer; a missing one is no twin now. `home_id`: empty if home does not
    answer, and then `home_ends` is empty.
    """

    topic: str
    home: str
    term: int
    asked_s: float
    home_ends: Mapping[int, int]
    twins: Mapping[str, Mapping[int, TwinLogBounds | None]]
    home_id: str = ""


def build_topic_check(
    topic: str,
    home: str,
    term: int,
    asked_s: float,
    at_home: BoundsByTopic,
    twins: Sequence[ExactTwin],
    at_twins: Mapping[str, BoundsByTopic],
) -> TopicCheck:
    """Build a check from the clusters' responses.

    Links learn at different times that a topic was created again, so they may know several ids. The id at home now
    tells which twins are its own.
    """
    home_id = next((twin.home_id for twin in twins if (topic, twin.home_id) in at_home), "")
    ends = {part: one.end for part, one in at_home.get((topic, home_id), {}).items()}
    levels: dict[str, dict[int, TwinLogBounds | None]] = {}
    for twin in twins:
        if home_id in ("", twin.home_id):
            there = at_twins.get(twin.cluster, {}).get((topic, twin.topic_id), {})
            levels[twin.cluster] = {part: there.get(part) for part in twin.partitions}
    return TopicCheck(topic, home, term, asked_s, ends, levels, home_id)


@dataclass(slots=True)
class _Topic:
    home: str
    term: int
    home_id: str
    trails: dict[int, HomeEndHistory] = field(default_factory=dict)
    levels: dict[str, dict[int, MirrorLag]] = field(default_factory=dict)


class FollowerFetch:
    """Follower fetch for all clients of a process.

    `served`: partitions that may be read away from home, as (cluster, topic, partition). It and the result of `view`
    stay the same objects until changed. `bytes_read`: by cluster. `led`, `redirected_home`: counts of redirects.
    """

    def __init__(self, rules: FollowerFetchRules | None = None, networks: NetworkTable | None = None) -> None:
        self.rules, self.networks = rules or FollowerFetchRules(), networks or NetworkTable(())
        self.now_s = 0.0
        self.served: frozenset[tuple[str, str, int]] = frozenset()
        self.bytes_read: Counter[str] = Counter()
        self.led = self.redirected_home = 0
        self._views: dict[str, Mapping[TopicPartitionKey, BrokerId]] = {}
        self._wanted: dict[str, tuple[float, float]] = {}  # since when, and when last
        self._topics: dict[str, _Topic] = {}
        self._as_seen: dict[str, tuple[RoutingTable, RoutingTable]] = {}

    def site_of(self, address: str) -> str:
        """Returns the site of an address; empty if unknown."""
        return self.networks.of(address) or ""

    def obey(self, rules: FollowerFetchRules, networks: NetworkTable, table: RoutingTable) -> None:
        """Go by these from now on; connected clients too."""
        self.rules, self.networks = rules, networks
        self._as_seen.clear()
        self._views.clear()
        self.served = frozenset()  # another object, so that sessions are judged again
        self.tick(self.now_s, table)

    def at(self, topic: str, site: str, table: RoutingTable) -> list[str]:
        """Returns clusters with the topic that clients of the site prefer to home."""
        home = table.route(topic)
        if home is None or not site:
            return []
        names = self.rules.clusters_before_home(site, home)
        return [name for name in names if name in table.clusters and topic in table.clusters[name].topics]

    def get_site_view(self, table: RoutingTable, site: str) -> RoutingTable:
        """Returns the routing table with the site's own topics; the same object until changed."""
        if not self.rules.own_topics:
            return table
        known = self._as_seen.get(site)
        if known is None or known[0] is not table:
            known = self._as_seen[site] = table, self._with_own(table, site)
        return known[1]

    def _with_own(self, table: RoutingTable, site: str) -> RoutingTable:
        own: dict[str, str] = {}
        for topic in {topic for cluster in table.clusters.values() for topic in cluster.topics}:
            if self.rules.is_own(topic) and not table.has_home(topic):
                holders = table.holders(topic)
                near = self.rules.clusters_before_home(site, holders[0]) if site else ()
                own[topic] = next((one for one in near if one in holders), holders[0])
        return replace(table, own=own) if own else table

    def wants(self, topic: str) -> None:
        """Note that a client would read the topic away from home."""
        since_s, _ = self._wanted.get(topic, (self.now_s, 0.0))
        self._wanted[topic] = since_s, self.now_s

    def wanted(self) -> list[str]:
        return list(self._wanted)

    def view(self, site: str) -> Mapping[TopicPartitionKey, BrokerId]:
        """Returns where clients of the site read partitions instead of at home."""
        return self._views.get(site, _NOWHERE)

    def serves(self, cluster: str, topic: str, partition: int) -> bool:
        """Whether the partition may be read there, away from home."""
        return (cluster, topic, partition) in self.served

    def is_first_check_pending(self, topic: str) -> bool:
        """Whether the first check is due in a moment."""
        since_s, _ = self._wanted.get(topic, (self.now_s, 0.0))
        return topic not in self._topics and self.now_s - since_s < FIRST_CHECK_TIMEOUT_S

    def level(self, cluster: str, topic: str, partition: int) -> MirrorLag | None:
        """Returns the twin partition's lag; None without a twin."""
        known = self._topics.get(topic)
        return known.levels.get(cluster, {}).get(partition) if known else None

    def take(self, looks: Iterable[TopicCheck]) -> None:
        """Take checks; the next `tick` applies them."""
        for look in looks:
            known = self._topics.get(look.topic)
            home_id = look.home_id or (known.home_id if known else "")
            if known is None or (known.home, known.term, known.home_id) != (look.home, look.term, home_id):
                known = self._topics[look.topic] = _Topic(look.home, look.term, look.home_id)
            self._take(known, look)

    def _take(self, known: _Topic, look: TopicCheck) -> None:
        for partition, end in look.home_ends.items():
            trail = known.trails.setdefault(partition, HomeEndHistory())
            trail.add(look.asked_s, end, 2 * self.rules.behind_s_max)
        for cluster, found in look.twins.items():
            levels = known.levels.setdefault(cluster, {})
            for partition, one in found.items():
                level = levels.setdefault(partition, MirrorLag())
                if one is not None and partition in look.home_ends:
                    level.take(one.leader, one.start, one.end, known.trails[partition])
        for cluster, levels in known.levels.items():
            for partition, level in levels.items():
                if partition not in look.twins.get(cluster, {}):
                    level.since_s = -math.inf  # not replicated any more

    def tick(self, now_s: float, table: RoutingTable) -> None:
        """Update the views: a few times a second, and when the routing table changes."""
        self.now_s = now_s
        self._wanted = {topic: when for topic, when in self._wanted.items() if now_s - when[1] < TOPIC_WATCH_S}
        self._topics = {topic: known for topic, known in self._topics.items() if topic in self._wanted}
        served: dict[tuple[str, str, int], int] = {}
        for topic, known in self._topics.items():
            for cluster, levels in known.levels.items() if _is_settled(topic, known, table) else ():
                for partition, level in levels.items():
                    if self._reads(level, known.home, cluster, table):
                        served[cluster, topic, partition] = level.leader
        if served.keys() != self.served:
            self.served = frozenset(served)
        for site in {*self.rules.sites.values(), *self.rules.next_sites}:
            view = self._view(site, served)
            if view != self.view(site):
                self._views[site] = view

    def _reads(self, level: MirrorLag, home: str, cluster: str, table: RoutingTable) -> bool:
        """Whether clients read this twin. While home is away, readers stay."""
        if cluster not in table.clusters or not table.clusters[cluster].answers or level.since_s < 0:
            level.near = False
            return False
        if home in table.clusters and not table.clusters[home].answers:
            return level.near
        return level.judge(self.now_s, self.rules.behind_s_max)

    def _view(self, site: str, served: Mapping[tuple[str, str, int], int]) -> dict[TopicPartitionKey, BrokerId]:
        view: dict[TopicPartitionKey, BrokerId] = {}
        for topic, known in self._topics.items():
            for cluster in self.rules.clusters_before_home(site, known.home):
                for partition in known.levels.get(cluster, {}):
                    leader = served.get((cluster, topic, partition))
                    if leader is not None:
                        view.setdefault((topic, partition), BrokerId(cluster, leader))
        return view


def _is_settled(topic: str, known: _Topic, table: RoutingTable) -> bool:
    """Whether the topic's home is the checked one, and no switch moves it."""
    lead = table.leads.get(topic)
    if lead is not None and (lead.moves or lead.held or lead.term != known.term):
        return False
    return table.route(topic) == known.home


@dataclass(slots=True)
class SessionCheck:
    """When a session had nothing to read elsewhere, and when its topics were noted, by which networks."""

    view: object = None
    networks: object = None
    at_s: float = -math.inf
    noted_s: float = -math.inf
    reads: bool = False


class ClientFollowerFetch:
    """Follower fetch for one client.

    `site`: from the address, else from the rack. `reads_near`: the client has fetched from a twin here.
    """

    def __init__(self, follower_fetch: FollowerFetch, addressing: BrokerAddressing) -> None:
        self.follower_fetch, self._addressing = follower_fetch, addressing
        self.site = self._by_address = self._address = ""
        self._networks = follower_fetch.networks
        self.reads_near = self._can_be_led = self._is_moved = False
        self._led: dict[TopicPartitionKey, float] = {}
        self._ahead: dict[TopicPartitionKey, float] = {}

    def comes_from(self, address: str) -> None:
        self._address = address
        self.site = self._by_address = self.follower_fetch.site_of(address)

    def _look_at_site(self) -> None:
        """Take the site by the networks that are in force."""
        if self._networks is self.follower_fetch.networks:
            return
        self._networks, before = self.follower_fetch.networks, self._by_address
        self.comes_from(self._address)
        self._is_moved |= bool(before or self._by_address)

    def seen(self, table: RoutingTable) -> RoutingTable:
        """Returns the routing table as the client sees it.

        The rack does not count, since only fetches have it: other requests would go to another log of that name.
        """
        self._look_at_site()
        return self.follower_fetch.get_site_view(table, self._by_address)

    def copies(self, topic: str, table: RoutingTable) -> Sequence[str]:
        """Returns where, other than home, the client may read the topic."""
        return self.follower_fetch.at(topic, self.site, table) if self.site else ()

    def note(self, asked: fetch.FetchRequest, parts: Iterable[TopicPartitionKey], table: RoutingTable) -> bool:
        """Have topics checked. Returns whether the client may read any away from home.

        A client whose address has no site may name one as its rack.
        """
        self._can_be_led = True
        if not self.site and asked.rack and self.follower_fetch.rules.known(asked.rack):
            self.site = asked.rack
        if not self.site or asked.replica[0] != fetch.CONSUMER_REPLICA_ID:
            return False
        for topic in {topic for topic, _ in parts}:
            if self.follower_fetch.at(topic, self.site, table):
                self.follower_fetch.wants(topic)
        return True

    def is_read_here(self, one: fetch.FetchRequestPartition, cluster: str, table: RoutingTable) -> bool:
        topic = str(one.topic)
        if not table.is_elsewhere(topic, cluster):
            return True
        reads = self.serves(cluster, topic, one.partition, table)
        self.reads_near |= reads
        return reads

    def serves(self, cluster: str, topic: str, partition: int, table: RoutingTable) -> bool:
        """Whether the client may read the partition there, away from home."""
        if not self.follower_fetch.serves(cluster, topic, partition):
            return False
        return not self._is_moved or cluster in self.follower_fetch.at(topic, self.site, table)

    def waits(self, wanted: Iterable[fetch.FetchRequestPartition], cluster: str, table: RoutingTable) -> bool:
        """Whether a pending check decides if the client reads these here."""
        near, topics = self.follower_fetch, {str(one.topic) for one in wanted}
        return any(
            near.is_first_check_pending(topic) and cluster in near.at(topic, self.site, table) for topic in topics
        )

    def elsewhere(
        self, parts: Iterable[TopicPartitionKey], cluster: str, table: RoutingTable
    ) -> dict[TopicPartitionKey, BrokerId]:
        """Returns where to read partitions instead of at home, without those redirected recently."""
        view, now_s = self.follower_fetch.view(self.site), self.follower_fetch.now_s
        return {
            part: view[part]
            for part in parts
            if part in view
            and table.route(part[0]) == cluster
            and view[part].cluster != cluster
            and now_s - self._led.get(part, -REDIRECT_INTERVAL_MIN_S) >= REDIRECT_INTERVAL_MIN_S
        }

    def redirects_session(
        self,
        asked: fetch.FetchRequest,
        parts: Iterable[TopicPartitionKey],
        cluster: str,
        table: RoutingTable,
        check: SessionCheck,
    ) -> bool:
        """Whether to redirect a session, which names its topics once; checked after changes, and now and then."""
        now_s = self.follower_fetch.now_s
        is_new = check.networks is not self._networks
        if self._can_be_led and (is_new or now_s - check.noted_s >= TOPIC_NOTE_INTERVAL_S):
            check.networks = self._networks
            check.noted_s, check.reads = now_s, self.note(asked, parts, table)
        view = self.follower_fetch.view(self.site)
        if not check.reads or (check.view is view and now_s - check.at_s < SESSION_CHECK_INTERVAL_S):
            return False
        check.view, check.at_s = view, now_s
        return bool(self.elsewhere(parts, cluster, table))

    def leads(self, asked: fetch.FetchRequest, cluster: str, table: RoutingTable) -> fetch.FetchResponse | None:
        """Returns the redirecting response; None if all is read here.

        A position before the twin's log start is read at home.
        """
        positions = {(str(one.topic), one.partition): one.position for one in asked.wanted}
        places: dict[TopicPartitionKey, BrokerId] = {}
        for part, broker in self.elsewhere(positions, cluster, table).items():
            level = self.follower_fetch.level(broker.cluster, *part)
            if level is not None and level.start <= positions[part]:
                places[part] = broker
        if not places:
            return None
        self.follower_fetch.led += 1
        self._led |= dict.fromkeys(places, self.follower_fetch.now_s)
        parts = []
        for one in asked.wanted:
            there = places.get((str(one.topic), one.partition))
            number = NO_BROKER if there is None else self._addressing.number(*there)
            parts.append(_nothing(one)._replace(preferred_replica=number))
        return fetch.FetchResponse(0, 0, 0, parts)

    def heard(
        self, asked: fetch.FetchRequest, answer: fetch.FetchResponse, cluster: str, table: RoutingTable
    ) -> tuple[fetch.FetchResponse, float]:
        """Returns the response for the client, the same object if unchanged, and its delay in seconds.

        Any error of a twin sends the client home. A position beyond the twin's end waits as long as a twin may lag:
        home may have shown that record.
        """
        if not self.reads_near:
            return answer, 0.0
        ahead: dict[TopicPartitionKey, float] = {}
        told: list[fetch.FetchResponsePartition] = []
        for one in answer.fetched:
            part = str(one.topic), one.partition
            if table.is_elsewhere(part[0], cluster):
                self.follower_fetch.bytes_read[cluster] += len(one.records or b"")
                if one.error:
                    since_s = self._ahead_since_s(asked, one.error, part, cluster)
                    one = one._replace(error=_NOT_HERE, aborted=None) if since_s is None else _nothing(one)
                    ahead |= {} if since_s is None else {part: since_s}
                    self.follower_fetch.redirected_home += since_s is None
            told.append(one)
        self._ahead = ahead
        changed = any(one is not before for one, before in zip(told, answer.fetched, strict=True))
        wait_s = AHEAD_RESPONSE_DELAY_S if ahead and not any(one.records for one in told) else 0.0
        return (answer._replace(fetched=told) if changed else answer), wait_s

    def _ahead_since_s(
        self, asked: fetch.FetchRequest, error: int, part: TopicPartitionKey, cluster: str
    ) -> float | None:
        """Returns since when the client waits for the twin, if so. A session names a position only when changed."""
        level, now_s = self.follower_fetch.level(cluster, *part), self.follower_fetch.now_s
        if error != Code.offset_out_of_range or level is None or not self.follower_fetch.serves(cluster, *part):
            return None
        named = [one.position for one in asked.wanted if (str(one.topic), one.partition) == part]
        since_s = self._ahead.get(part)
        if named:
            since_s = (now_s if since_s is None else since_s) if named[0] > level.end else None
        return since_s if since_s is not None and now_s - since_s <= self.follower_fetch.rules.behind_s_max else None


def build_empty_fetch(wanted: Iterable[fetch.FetchRequestPartition]) -> fetch.FetchResponse:
    return fetch.FetchResponse(0, 0, 0, [_nothing(one) for one in wanted])


def _nothing(one: fetch.FetchRequestPartition | fetch.FetchResponsePartition) -> fetch.FetchResponsePartition:
    return fetch.FetchResponsePartition(one.topic, one.partition, 0, -1, -1)
