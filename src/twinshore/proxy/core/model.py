"""Values of the proxy: broker addresses, home routes, producer ids, decisions, and the routing table.

Each cluster has a block of broker numbers, by its position in the settings. So a broker's number, and its port or host
name, is the same after a restart, at every proxy, and whichever brokers are away.

Home records are on the clusters, so they are known at once and without the store. A home record says whether a topic
left its old home in good order. Then the old home knows what each producer wrote last; after a forced switch only the
mirror's progress in the store does.

A producer id carries two values in bits that brokers do not use. From bit 48: the *mark* of the cluster that gave the
id, so that ids of clusters differ. Bits 40 to 47: the *stamp* of the topic's term, which clients do not see.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Final, NamedTuple, TypeAlias, TypeVar

from crc32c import crc32c

from twinshore.config.errors import ConfigError
from twinshore.config.frozen import GROUPS_HOME, PROXY_CLUSTER_ID
from twinshore.config.model import FIRST_TERM
from twinshore.kafka.protocol.primitives import Buffer
from twinshore.proxy.core.leader_table import choose_leader_clusters
from twinshore.proxy.core.protected_topics import ProtectedParts
from twinshore.replication.core.filters import KAFKA_INTERNAL_TOPICS, is_internal_topic
from twinshore.replication.core.ownership import PAIR_SEPARATOR
from twinshore.routing.core.home_records import FORCED_SWITCH, PLANNED_SWITCH, HomeConflict, HomeRecord, HomeState
from twinshore.routing.core.leader_cluster import Leader, LeaderDecision, NoLeader, NoLeaderReason
from twinshore.state.core.proxy_values import TrafficCounter
from twinshore.state.core.values import HomeRow, ReplicatedPrefix, SourceBatch

NO_BROKER: Final = -1
ANY_BROKER: Final = -2
# In a host name, replaced by the broker's number.
NODE_ID_PLACEHOLDER: Final = "*"
_DIGITS_MAX: Final = 9


@dataclass(slots=True)
class NewTopicRules:
    """Where topics are created. `by_name`: patterns with `*`, the first match of the whole name counts; else `usual`,
    if any. Both may change while clients are connected.
    """

    usual: str = ""
    by_name: tuple[tuple[str, str], ...] = ()

    def cluster_of(self, topic: str) -> str:
        return next((cluster for pattern, cluster in self.by_name if fnmatchcase(topic, pattern)), self.usual)


class BrokerId(NamedTuple):
    """A broker by cluster and node id; `ANY_BROKER` for any that answers."""

    cluster: str
    node: int


@dataclass(frozen=True, slots=True)
class BrokerAddressing:
    """The addresses of brokers for clients.

    `port` belongs to no broker, the ports above to one each. `cluster_id`, `host`: what clients see. `node_hosts`: a
    broker's host name, with `*` for the number; then `port` is the only one.
    """

    host: str
    port: int
    clusters: tuple[str, ...]
    nodes_per_cluster: int
    cluster_id: str = PROXY_CLUSTER_ID
    new_topics: NewTopicRules = field(default_factory=NewTopicRules)
    node_hosts: str = ""

    def number(self, cluster: str, node: int) -> int:
        """Returns the broker's number for clients; negative ids stay."""
        if node < 0:
            return node
        return self.clusters.index(cluster) * self.nodes_per_cluster + node % self.nodes_per_cluster

    def port_of(self, cluster: str, node: int) -> int:
        return self.port if self.node_hosts else self.port + 1 + self.number(cluster, node)

    def host_of(self, cluster: str, node: int) -> str:
        if not self.node_hosts:
            return self.host
        return self.node_hosts.replace(NODE_ID_PLACEHOLDER, str(self.number(cluster, node)))

    @property
    def last_port(self) -> int:
        return self.port if self.node_hosts else self.port + self.nodes_per_cluster * len(self.clusters)

    def parse_broker_name(self, name: str) -> int | None:
        """Returns the number in a broker's host name; None if there is none."""
        before, _, behind = self.node_hosts.casefold().partition(NODE_ID_PLACEHOLDER)
        name = name.casefold().removesuffix(".")
        digits = name[len(before) : len(name) - len(behind)]
        if not self.node_hosts or name != before + digits + behind or not (digits.isascii() and digits.isdecimal()):
            return None
        return int(digits) if len(digits) <= _DIGITS_MAX and str(int(digits)) == digits else None

    def place_of(self, number: int, nodes: Mapping[str, Iterable[int]]) -> BrokerId | None:
        """Returns the broker with this number; None if no cluster has such numbers.

        `nodes`: the known brokers of each cluster. Unknown ones keep their numbers.
        """
        index, rest = divmod(number, self.nodes_per_cluster)
        if index >= len(self.clusters):
            return None
        cluster = self.clusters[index]
        same = (node for node in sorted(nodes.get(cluster, ())) if node % self.nodes_per_cluster == rest)
        return BrokerId(cluster, next(same, rest))

    def apart(self, nodes: Iterable[int]) -> tuple[list[int], list[int]]:
        """Split a cluster's brokers into those with their own number, and those whose number a lower one has."""
        taken: dict[int, int] = {}
        for node in sorted(nodes):
            taken.setdefault(node % self.nodes_per_cluster, node)
        ours = sorted(taken.values())
        return ours, sorted(set(nodes) - set(ours))


_MARK_SHIFT: Final = 48
_MARKS: Final = (1 << 14) - 1
_STAMP_SHIFT: Final = 40
TERM_STAMPS: Final = 1 << 8
# For partitions with forgotten producers: how much they wrote is unknown.
UNKNOWN_RECORDS: Final = 1 << 62


def get_cluster_mark(cluster_id: str) -> int:
    return crc32c(cluster_id.encode()) % _MARKS + 1


def check_cluster_marks(ids: Mapping[str, str]) -> None:
    """Check that marks differ. ConfigError if two clusters have the same. `ids`: cluster ids by name."""
    names: dict[int, str] = {}
    for name, cluster_id in ids.items():
        if (first := names.setdefault(get_cluster_mark(cluster_id), name)) != name:
            raise ConfigError("proxy.producer-ids-clash", first=first, second=name)


def extract_cluster_mark(producer_id: int) -> int:
    """Returns the mark; below 1 if no proxy marked the id."""
    return producer_id >> _MARK_SHIFT


def add_cluster_mark(producer_id: int, mark: int) -> int:
    return producer_id | mark << _MARK_SHIFT


def remove_cluster_mark(producer_id: int) -> int:
    return producer_id & ((1 << _MARK_SHIFT) - 1)


def get_term_stamp(term: int) -> int:
    """Returns the stamp that tells a topic's producers in this term apart.

    A broker that had the topic before remembers their earlier sequences, and would refuse new ones.
    """
    return max(0, term - 1) % TERM_STAMPS


def add_term_stamp(producer_id: int, stamp: int) -> int:
    """Returns the id for writing. An id without a mark, or with a stamp, stays."""
    if extract_cluster_mark(producer_id) <= 0 or producer_id >> _STAMP_SHIFT & TERM_STAMPS - 1:
        return producer_id
    return producer_id | stamp << _STAMP_SHIFT


def remove_term_stamp(producer_id: int) -> int:
    """Returns the id as the client knows it."""
    return producer_id & ~(TERM_STAMPS - 1 << _STAMP_SHIFT)


def extract_term_stamp(producer_id: int) -> int | None:
    """Returns the stamp; None if no proxy marked the id."""
    return producer_id >> _STAMP_SHIFT & TERM_STAMPS - 1 if extract_cluster_mark(producer_id) > 0 else None


class HomeRoute(NamedTuple):
    """Where a topic is at home, from its home record.

    `cluster`: None if not behind the proxy. `held`: writers wait; `moves`: a switch is under way; `ran_out`: the hold
    ended by time. `came`: the old home, after a recent planned switch; `torn`: the link, after a recent forced one.
    `sound`: the first of the latest terms in a row that moved in good order, as far as known. `points`: by partition,
    the offset at which the topic came, where the replicated records end.
    """

    cluster: str | None
    term: int
    held: bool = False
    came: str = ""
    moves: bool = False
    sound: int = 0
    torn: str | None = None
    points: tuple[int, ...] = ()
    ran_out: bool = False


class ProducerTail(NamedTuple):
    """What a producer wrote last to a partition at the old home; if that is gone, what was replicated.

    In that case later records may be `lost`, and the offsets of the last `batches` are known.
    """

    epoch: int
    last: int
    lost: bool = False
    batches: tuple[SourceBatch, ...] = ()


def build_routes(
    told: Mapping[str, HomeRecord | HomeConflict],
    names: Mapping[str, str],
    before: Mapping[str, HomeRoute],
    since_ms: int,
) -> dict[str, HomeRoute]:
    """Build home routes by topic.

    `names`: cluster names by cluster id. `before`: the earlier routes. Of topics that came before `since_ms`, producers
    retry nothing. Topics that were never switched follow their copies, not a route.
    """
    return {
        topic: _lead(one, names, before.get(topic), since_ms)
        for topic, one in told.items()
        if isinstance(one, HomeConflict) or not one.is_first
    }


def _lead(
    told: HomeRecord | HomeConflict, names: Mapping[str, str], before: HomeRoute | None, since_ms: int
) -> HomeRoute:
    if isinstance(told, HomeRecord) and told.newer:
        # Unknown, and not none: nobody writes until it can be read, or is taken away.
        return (before or HomeRoute(None, FIRST_TERM))._replace(held=True)
    if isinstance(told, HomeConflict):
        # Which record counts is unknown, so no client writes. The final one will be news.
        return (before or HomeRoute(None, told.one.term - 1, sound=told.one.term - 1))._replace(held=True)
    came, sound, torn = "", told.term, None
    # Clocks differ: a move first seen now counts as recent.
    is_news = told.since_ms >= since_ms or (before is not None and before.term < told.term)
    if before is not None and before.term == told.term:
        came, sound, torn = before.came, before.sound, before.torn
    elif told.how == FORCED_SWITCH and is_news:
        torn = told.link
    elif told.how == PLANNED_SWITCH and is_news:
        came, sound = told.source, told.term - 1
        if before is not None and before.term == told.term - 1:
            sound = min(sound, before.sound)
    held, moves = told.state is HomeState.HELD, told.state is not HomeState.SETTLED
    return HomeRoute(names.get(told.cluster_id), told.term, held, came, moves, sound, torn, told.points, told.ran_out)


def build_producer_tails(states: Iterable[tuple[int, int, int]], lead: HomeRoute) -> dict[int, ProducerTail]:
    """Returns tails by the producer ids that clients know, from (id, epoch, last sequence) of earlier terms. The latest
    counts.
    """
    found: dict[int, tuple[int, ProducerTail]] = {}
    now = get_term_stamp(lead.term)
    for producer_id, epoch, last in states:
        stamp = extract_term_stamp(producer_id)
        age = (now - stamp) % TERM_STAMPS if stamp is not None else 0
        if not 0 < age <= lead.term - lead.sound or last < 0:
            continue
        known = remove_term_stamp(producer_id)
        if known not in found or age < found[known][0]:
            found[known] = age, ProducerTail(epoch, last)
    return {known: wrote for known, (_, wrote) in found.items()}


class ReplicatedTails(NamedTuple):
    """Tails after a forced switch, by partition and producer id.

    `unsure`: by partition, at most how many more offsets may be replicated than are known.
    """

    wrote: Mapping[tuple[str, int], Mapping[int, ProducerTail]]
    unsure: Mapping[tuple[str, int], int]


def build_replicated_tails(
    topic: str, lead: HomeRoute, known: Mapping[tuple[str, int], ReplicatedPrefix]
) -> ReplicatedTails:
    """Build tails from the store. Only ids of the previous term count: nothing earlier is retried."""
    wrote: dict[tuple[str, int], Mapping[int, ProducerTail]] = {}
    unsure: dict[tuple[str, int], int] = {}
    stamp = get_term_stamp(lead.term - 1)
    for number, point in enumerate(lead.points):
        prefix = known.get((topic, number), ReplicatedPrefix(lead.term, 0, True))
        lacking = max(0, point - prefix.to_offset) if prefix.all_known else UNKNOWN_RECORDS
        kept = [(producer, _below(producer.batches, point)) for producer in prefix.producers]
        # A new home that lost its log end has less than reported: what is left of a producer is unknown.
        lost_all = any(producer.batches and not batches for producer, batches in kept)
        if lacking or lost_all:
            unsure[topic, number] = UNKNOWN_RECORDS if lost_all else lacking
        tails: dict[int, ProducerTail] = {}
        for producer, batches in kept:
            if batches and extract_term_stamp(producer.producer_id) == stamp:
                tail = ProducerTail(producer.epoch, batches[-1].last_sequence, True, batches)
                tails[remove_term_stamp(producer.producer_id)] = tail
        if tails:
            wrote[topic, number] = tails
    return ReplicatedTails(wrote, unsure)


def _below(batches: Iterable[SourceBatch], point: int) -> tuple[SourceBatch, ...]:
    return tuple(batch for batch in batches if batch.last_offset < point)


def assume_unknown_tails(topic: str, lead: HomeRoute) -> ReplicatedTails:
    """Returns tails for a topic without data: any retried batch may be replicated."""
    return ReplicatedTails({}, {(topic, number): point for number, point in enumerate(lead.points) if point})


# A broker's response time, beyond what the request itself allows.
RESPONSE_TIMEOUT_S = 30.0
# For requests of a fan-out: a cluster that hangs must not delay the others.
FAN_OUT_TIMEOUT_S = 5.0

Parts: TypeAlias = Sequence[Buffer]


class BrokerRequest(NamedTuple):
    """A request on the client's own connection to a broker. `counters` get the response time."""

    place: BrokerId
    key: int
    version: int
    body: Parts
    counters: tuple[TrafficCounter, ...] = ()


# The body of a response; None without a response.
BrokerResponse: TypeAlias = memoryview | None
ResultT = TypeVar("ResultT")


class WaitStep(NamedTuple):
    """Go on once `start` has called back."""

    start: Callable[[Callable[[], None]], None]


class PauseStep(NamedTuple):
    """Go on later."""

    wait_s: float


# Yields requests, gets their responses in the same order, and returns a result.
SubRequests: TypeAlias = Generator[Sequence[BrokerRequest], Sequence[BrokerResponse], ResultT]
# Returns the body for the client.
FanOutSteps: TypeAlias = SubRequests[Parts]
# With waits between the requests, which give no responses.
WaitingSteps: TypeAlias = Generator[Sequence[BrokerRequest] | WaitStep | PauseStep, Sequence[BrokerResponse], Parts]


class RespondLater(NamedTuple):
    """Answer here, after `wait_s` seconds."""

    body: Parts
    wait_s: float


# Returns the new body, delayed if needed; None to leave the response as it is.
RewriteResponse: TypeAlias = Callable[[memoryview, int], Parts | RespondLater | None]


class ForwardRequest(NamedTuple):
    """Forward the request, or another `body`, and return the response, changed by `rewrite`.

    `topics`: those written to. `counters` get the response time. `protected`: what the response waits for.
    """

    place: BrokerId
    wait_s: float = RESPONSE_TIMEOUT_S
    rewrite: RewriteResponse | None = None
    answered: bool = True
    body: Parts | None = None
    topics: tuple[str, ...] = ()
    counters: tuple[TrafficCounter, ...] = ()
    protected: ProtectedParts | None = None


class RespondNow(NamedTuple):
    """Answer here."""

    body: Parts


class FanOut(NamedTuple):
    """Ask several brokers; no other request of this client starts until done. `topics`: those written to. `protected`:
    what the response waits for.
    """

    errand: FanOutSteps
    wait_s: float = FAN_OUT_TIMEOUT_S
    topics: tuple[str, ...] = ()
    protected: ProtectedParts | None = None


class WaitingFanOut(NamedTuple):
    """As `FanOut`, with waits between the requests."""

    errand: WaitingSteps
    wait_s: float
    topics: tuple[str, ...] = ()
    protected: ProtectedParts | None = None


class ParkRequest(NamedTuple):
    """Keep the request until the routing table changes, then judge again. Other requests of this client wait.

    `refusal` causes a retry; None if no response does. `goes_first`: later requests must not overtake, so the refusal
    is sent only if the client is not read any more; else the connection ends.
    """

    refusal: Parts | None
    goes_first: bool = False


class DiscardRequest(NamedTuple):
    """Drop the request; the client expects no response."""


class DisconnectClient(NamedTuple):
    """End the connection: no response fits."""

    why: str


RequestDecision: TypeAlias = (
    ForwardRequest
    | RespondNow
    | RespondLater
    | FanOut
    | WaitingFanOut
    | ParkRequest
    | DiscardRequest
    | DisconnectClient
)

ApiVersionRanges = Mapping[int, tuple[int, int]]
# Offered only if all clusters support the newer group protocol.
CONSUMER_GROUP_DESCRIBE: Final = 69


class BrokerEndpoint(NamedTuple):
    host: str
    port: int
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class ProxiedCluster:
    """A cluster as last seen.

    `offers`: API versions of all its brokers. `answers`: whether the last look succeeded. `ids`, `partitions`: by
    topic. `twins`: topics that are twins by `twinshore.twins` there.
    """

    name: str
    cluster_id: str
    controller: int
    brokers: Mapping[int, BrokerEndpoint]
    topics: frozenset[str]
    offers: ApiVersionRanges
    answers: bool = True
    ids: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    partitions: Mapping[str, int] = field(default_factory=dict, repr=False)
    twins: frozenset[str] = frozenset()

    @property
    def has_answered(self) -> bool:
        """Whether the cluster has answered since this process began."""
        return bool(self.cluster_id)


@dataclass(frozen=True)
class RoutingTable:
    """The clusters and where topics are at home, at one moment.

    `clusters`: in the order of the settings. `homes`: from the store; `leads`: from home records, which count more.
    `offers`: API versions for clients. `wrote`: producer tails of moved partitions; `unsure`: partitions moved by force
    whose replicated offsets are not all known. `learns`: topics whose tails are being read. `lapsed`: clusters whose
    switches do not wait for this proxy, so writers wait. `own`: for topics that each site has for itself, the cluster
    for these clients. `by_copies`: decisions for topics without a home record, if made already; `not_believed`: for
    those whose record is in doubt.

    `routes`: each topic's leader cluster; `leaderless`: topics without one, and why.
    """

    clusters: Mapping[str, ProxiedCluster]
    homes: Mapping[str, str] = field(default_factory=dict)
    offers: ApiVersionRanges = field(default_factory=dict)
    leads: Mapping[str, HomeRoute] = field(default_factory=dict)
    wrote: Mapping[tuple[str, int], Mapping[int, ProducerTail]] = field(default_factory=dict)
    learns: frozenset[str] = frozenset()
    lapsed: frozenset[str] = frozenset()
    own: Mapping[str, str] = field(default_factory=dict)
    unsure: Mapping[tuple[str, int], int] = field(default_factory=dict)
    by_copies: Mapping[str, LeaderDecision] | None = field(default=None, repr=False)
    not_believed: Mapping[str, LeaderDecision] = field(default_factory=dict)
    decided: Mapping[str, LeaderDecision] = field(init=False, repr=False)
    routes: Mapping[str, str] = field(init=False)
    leaderless: Mapping[str, NoLeader] = field(init=False)

    def __post_init__(self) -> None:
        decided = self.by_copies
        if decided is None:
            decided = choose_leader_clusters(self.clusters.values(), self.homes)
        object.__setattr__(self, "decided", decided)
        found = dict(decided)
        found |= {topic: Leader(name) for topic, name in self.own.items() if not self.has_home(topic)}
        away = NoLeader(NoLeaderReason.ELSEWHERE)
        for topic, lead in self.leads.items():
            found[topic] = Leader(lead.cluster) if lead.cluster and lead.cluster in self.clusters else away
        found |= self.not_believed
        if self.clusters:
            found |= dict.fromkeys(KAFKA_INTERNAL_TOPICS, Leader(self.group_home()))
        routes = {topic: one.cluster for topic, one in found.items() if isinstance(one, Leader)}
        leaderless = {topic: one for topic, one in found.items() if isinstance(one, NoLeader)}
        object.__setattr__(self, "routes", routes)
        object.__setattr__(self, "leaderless", leaderless)

    @cached_property
    def _without(self) -> dict[frozenset[str], RoutingTable]:
        return {}

    def without(self, lapsed: frozenset[str]) -> RoutingTable:
        """Returns this table with these leases lapsed. Cached, since building takes a pass over all topics."""
        if lapsed not in self._without:
            self._without[lapsed] = replace(self, lapsed=lapsed)
        return self._without[lapsed]

    @cached_property
    def topics_by_id(self) -> Mapping[bytes, str]:
        """Topics by the ids that clients get, those of the groups' home."""
        ids = self.clusters[self.group_home()].ids
        return {topic_id: topic for topic, topic_id in ids.items() if self.stays(topic)}

    @cached_property
    def elsewhere(self) -> tuple[str, ...]:
        """Application topics that the groups' home lacks, sorted."""
        return tuple(sorted(one for one in self.routes if not self.stays(one) and not is_internal_topic(one)))

    @property
    def serves_newer_groups(self) -> bool:
        """Whether all clusters support the newer group protocol: groups may move to each."""
        return CONSUMER_GROUP_DESCRIBE in self.offers

    @property
    def lack_newer_groups(self) -> list[str]:
        """Clusters not known to support the newer group protocol."""
        return [name for name, cluster in self.clusters.items() if CONSUMER_GROUP_DESCRIBE not in cluster.offers]

    def has_home(self, topic: str) -> bool:
        """Whether the topic has a home by record or store, or since its other copies are twins."""
        if topic in self.leads or topic in self.homes:
            return True
        return isinstance(self.decided.get(topic), Leader) and len(self.holders(topic)) > 1

    def holders(self, topic: str) -> list[str]:
        return [name for name, cluster in self.clusters.items() if topic in cluster.topics]

    @property
    def unconfirmed_leaders(self) -> Mapping[str, Leader]:
        """Topics whose leader was chosen without a cluster that could disagree."""
        found = {**self.decided, **self.not_believed}
        known = {topic for topic in self.leads if topic not in self.not_believed}
        return {t: one for t, one in found.items() if isinstance(one, Leader) and one.unheard and t not in known}

    @property
    def unseen(self) -> list[str]:
        """Clusters that have not answered since this process began."""
        return [name for name, cluster in self.clusters.items() if not cluster.has_answered]

    def writes_paused(self, topic: str) -> bool:
        lead = self.leads.get(topic)
        lapsed = self.routes.get(topic) in self.lapsed
        return lapsed or topic in self.learns or (lead is not None and lead.held)

    def may_reject_writers(self, topic: str, cluster: str) -> bool:
        """Whether a switch may block the topic's writers on this cluster by ACLs."""
        lead = self.leads.get(topic)
        ran_out = lead is not None and lead.ran_out
        return ran_out or self.writes_paused(topic) or self.is_elsewhere(topic, cluster)

    def route(self, topic: str) -> str | None:
        """Returns the topic's leader cluster; None without a leader, or if no cluster is known to have the topic."""
        return self.routes.get(topic)

    def written_at(self, topic: str) -> str | None:
        """The same; of groups' committed offsets, where groups are."""
        return self.group_home() if topic == GROUPS_HOME else self.routes.get(topic)

    def is_elsewhere(self, topic: str, cluster: str) -> bool:
        """Whether the topic is known to be at another cluster. Unknown topics are the broker's to refuse."""
        return topic in self.leaderless or self.routes.get(topic, cluster) != cluster

    def group_home(self) -> str:
        """The cluster where groups are: that which the clusters say, else the first one. Also while it is away, since a
        group in two places would read everything twice."""
        lead = self.leads.get(GROUPS_HOME)
        return lead.cluster if lead and lead.cluster else next(iter(self.clusters))

    @property
    def groups_gathering(self) -> bool:
        """Whether members are to commit what they have read, and to wait then: groups are about to move. Also while
        their home is not heard: they may have moved already."""
        lead = self.leads.get(GROUPS_HOME)
        moves = lead is not None and (lead.moves or lead.held or lead.cluster is None)
        return moves or self.group_home() in self.lapsed

    @property
    def offset_commits_paused(self) -> bool:
        """Whether no offset may be committed now."""
        lead = self.leads.get(GROUPS_HOME)
        return self.group_home() in self.lapsed or (lead is not None and (lead.held or lead.cluster is None))

    def keeps(self, topic: str) -> str:
        """Returns the cluster that keeps committed offsets of the topic."""
        return self.group_home() if self.stays(topic) else self.routes[topic]

    def stays(self, topic: str) -> bool:
        """Whether the groups' home keeps the topic's committed offsets: it has the topic, or no other cluster is known
        to.
        """
        home = self.group_home()
        if topic in self.own:
            return self.routes.get(topic, home) == home
        return topic in self.clusters[home].topics or self.routes.get(topic, home) == home

    def may_have_offsets_elsewhere(self, topic: str) -> bool:
        """Whether the topic's own cluster may have committed offsets, from before the groups' home had a twin."""
        return self.stays(topic) and self.routes.get(topic, self.group_home()) != self.group_home()

    def answering(self) -> list[str]:
        """Returns the clusters that answered the last look."""
        return [name for name, cluster in self.clusters.items() if cluster.answers]


def merge_pair_homes(rows: Iterable[HomeRow]) -> dict[str, str]:
    """Returns each topic's home over all pairs of clusters: the one that is a twin in no pair."""
    said: dict[str, dict[str, str]] = {}
    for row in rows:
        said.setdefault(row.topic, {})[row.pair] = row.home
    found: dict[str, str] = {}
    for topic, by_pair in said.items():
        twins = {name for pair, home in by_pair.items() for name in pair.split(PAIR_SEPARATOR) if name != home}
        first = [home for home in by_pair.values() if home not in twins]
        found[topic] = first[0] if first else next(iter(by_pair.values()))
    return found


def find_forced_topics(before: RoutingTable, table: RoutingTable) -> frozenset[str]:
    """Returns topics moved by force between the two tables."""
    return frozenset(
        topic
        for topic, lead in table.leads.items()
        if lead.torn is not None and ((was := before.leads.get(topic)) is None or was.term < lead.term)
    )
