"""By which numbers, and at which ports or names, clients know the brokers behind the proxy. Pure.

Each cluster has a block of numbers, by its place in the settings. So a number, and the port that follows from it, is
the same after a restart, at every proxy, and whichever brokers are away. So is its name where all clients come to one
port, and TLS says by which name they do.

Where the clusters' own words lead a topic's clients, and which writers a switch holds. Pure.

A word stands on the clusters themselves, so it is known at once and without the store. It says whether a topic left
its old home in good order. Of such a topic the old home knows what each producer wrote last. Of one that came by force
the mirror's receipts do, as far as it has told the store.

A producer's id has two more things in it, in bits that brokers do not use. From bit 48 on: the *mark* of the cluster
that gave the id, so that no other producer of any cluster has the same. From bit 40 on, eight bits: the *stamp* of the
term in which a topic is written. Clients know their ids without it.

What becomes of a request, as values: the hands that carry it out need not know of which API it is. Pure.

What is known of the clusters and of where topics are at home, as of one moment; and what follows of it. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Final, NamedTuple, TypeAlias

from crc32c import crc32c

from twinshore.config.errors import ConfigError
from twinshore.config.frozen import GROUPS_HOME, PROXY_CLUSTER_ID
from twinshore.config.model import FIRST_TERM
from twinshore.kafka.protocol.primitives import Buffer
from twinshore.proxy.core.leader_table import choose_leader_clusters
from twinshore.replication.core.filters import KAFKA_INTERNAL_TOPICS, is_internal_topic
from twinshore.replication.core.ownership import PAIR_SEPARATOR
from twinshore.routing.core.home_records import FORCED_SWITCH, PLANNED_SWITCH, HomeConflict, HomeRecord, HomeState
from twinshore.routing.core.leader_cluster import Leader, LeaderDecision, NoLeader, NoLeaderReason
from twinshore.state.core.proxy_values import TrafficCounter
from twinshore.state.core.values import HomeRow, ReplicatedPrefix, SourceBatch

NO_BROKER: Final = -1
ANY_BROKER: Final = -2
# What stands for a broker's number in the pattern of its name.
NODE_ID_PLACEHOLDER: Final = "*"
_DIGITS_MAX: Final = 9


@dataclass(frozen=True, slots=True)
class NewTopicRules:
    """`by_name`: patterns with `*`, and a cluster for each; the first that fits the whole name counts, else `usual`,
    which is empty where none is named."""

    usual: str = ""
    by_name: tuple[tuple[str, str], ...] = ()

    def cluster_of(self, topic: str) -> str:
        """Where it is made."""
        return next((cluster for pattern, cluster in self.by_name if fnmatchcase(topic, pattern)), self.usual)


class BrokerId(NamedTuple):
    """A broker of a cluster, by its own number there; `ANY_BROKER` for whichever answers."""

    cluster: str
    node: int


@dataclass(frozen=True, slots=True)
class BrokerAddressing:
    """`port` leads to no broker in particular; those behind it lead to one each. `cluster_id` is what clients take the
    whole for, `host` where they reach it, `new_topics` on which cluster a topic is made. `node_hosts`: the name of each
    broker, with `*` for its number; then `port` is the only one."""

    host: str
    port: int
    clusters: tuple[str, ...]
    nodes_per_cluster: int
    cluster_id: str = PROXY_CLUSTER_ID
    new_topics: NewTopicRules = field(default_factory=NewTopicRules)
    node_hosts: str = ""

    def number(self, cluster: str, node: int) -> int:
        """As which clients know the broker; what names none stays as it is."""
        if node < 0:
            return node
        return self.clusters.index(cluster) * self.nodes_per_cluster + node % self.nodes_per_cluster

    def port_of(self, cluster: str, node: int) -> int:
        """Where clients reach the broker."""
        return self.port if self.node_hosts else self.port + 1 + self.number(cluster, node)

    def host_of(self, cluster: str, node: int) -> str:
        """By which name they do."""
        return (
            self.node_hosts.replace(NODE_ID_PLACEHOLDER, str(self.number(cluster, node)))
            if self.node_hosts
            else self.host
        )

    @property
    def last_port(self) -> int:
        """The highest that a broker can have."""
        return self.port if self.node_hosts else self.port + self.nodes_per_cluster * len(self.clusters)

    def parse_broker_name(self, name: str) -> int | None:
        """The number of the broker that a client means who comes by this name; None where it means none."""
        before, _, behind = self.node_hosts.casefold().partition(NODE_ID_PLACEHOLDER)
        name = name.casefold().removesuffix(".")
        digits = name[len(before) : len(name) - len(behind)]
        if not self.node_hosts or name != before + digits + behind or not (digits.isascii() and digits.isdecimal()):
            return None
        return int(digits) if len(digits) <= _DIGITS_MAX and str(int(digits)) == digits else None

    def place_of(self, number: int, nodes: Mapping[str, Iterable[int]]) -> BrokerId | None:
        """The broker of this number, of the `nodes` of each cluster that are known; one that is away or not known yet
        keeps its place. None where no cluster has such numbers."""
        index, rest = divmod(number, self.nodes_per_cluster)
        if index >= len(self.clusters):
            return None
        cluster = self.clusters[index]
        same = (node for node in sorted(nodes.get(cluster, ())) if node % self.nodes_per_cluster == rest)
        return BrokerId(cluster, next(same, rest))

    def apart(self, nodes: Iterable[int]) -> tuple[list[int], list[int]]:
        """Those brokers of one cluster that have a number of their own, and those whose number a lower one has."""
        taken: dict[int, int] = {}
        for node in sorted(nodes):
            taken.setdefault(node % self.nodes_per_cluster, node)
        ours = sorted(taken.values())
        return ours, sorted(set(nodes) - set(ours))


_MARK_SHIFT: Final = 48
_MARKS: Final = (1 << 14) - 1
_STAMP_SHIFT: Final = 40
TERM_STAMPS: Final = 1 << 8
# Producers are forgotten there: nobody knows how much they wrote.
UNKNOWN_RECORDS: Final = 1 << 62


def get_cluster_mark(cluster_id: str) -> int:
    """What the ids begin with that this cluster gave to producers: above those that brokers give by themselves."""
    return crc32c(cluster_id.encode()) % _MARKS + 1


def check_cluster_marks(ids: Mapping[str, str]) -> None:
    """Of clusters by their names. ConfigError where two of them would give producers the same ids."""
    names: dict[int, str] = {}
    for name, cluster_id in ids.items():
        if (first := names.setdefault(get_cluster_mark(cluster_id), name)) != name:
            raise ConfigError(
                f"clusters {first} and {name} mark the ids of producers alike: two producers could have the same one",
                hint="leave one of them out of [proxy] clusters",
            )


def extract_cluster_mark(producer_id: int) -> int:
    """Below 1 where no proxy marked it."""
    return producer_id >> _MARK_SHIFT


def add_cluster_mark(producer_id: int, mark: int) -> int:
    return producer_id | mark << _MARK_SHIFT


def remove_cluster_mark(producer_id: int) -> int:
    """As the cluster gave it."""
    return producer_id & ((1 << _MARK_SHIFT) - 1)


def get_term_stamp(term: int) -> int:
    """With what the producers of a topic are told apart in this term. A broker that had the topic before remembers how
    far they had come then, and would refuse them now."""
    return max(0, term - 1) % TERM_STAMPS


def add_term_stamp(producer_id: int, stamp: int) -> int:
    """The id under which a producer of the proxy's clients writes; another one's stays as it is."""
    if extract_cluster_mark(producer_id) <= 0 or producer_id >> _STAMP_SHIFT & TERM_STAMPS - 1:
        return producer_id
    return producer_id | stamp << _STAMP_SHIFT


def remove_term_stamp(producer_id: int) -> int:
    """As its client knows it."""
    return producer_id & ~(TERM_STAMPS - 1 << _STAMP_SHIFT)


def extract_term_stamp(producer_id: int) -> int | None:
    """Of an id that a client of a proxy writes under; None for another one's."""
    return producer_id >> _STAMP_SHIFT & TERM_STAMPS - 1 if extract_cluster_mark(producer_id) > 0 else None


class HomeRoute(NamedTuple):
    """`cluster`: as the proxy calls it, None where it is none of its own. `held`: writers wait, for a switch, which
    is under way where it `moves`; `ran_out`: its hold ended by time alone. `came`: where the topic was at home before,
    if it left in good order and not long ago; `torn`: if it came by force, not long ago, by what this link had carried.
    `sound`: the first of the terms in a row since which it has moved in good order, as far as is known. `points`: at
    which offset each partition came: there ends what the link had carried."""

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
    """What a producer wrote last to a partition, where the topic was at home before; or, where that is gone, what of it
    had crossed. Then something may be `lost` behind it, and of the last `batches` it is known where they are."""

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
    """By topic. `names` are the proxy's, by cluster id; `before` is what was said last. Of what came before `since_ms`
    no producer sends anything again that the old home would know. A topic that no switch has had is led by its copies.
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
        # Nobody knows which one stands, so nobody writes. Whichever will is news.
        return (before or HomeRoute(None, told.one.term - 1, sound=told.one.term - 1))._replace(held=True)
    came, sound, torn = "", told.term, None
    # Clocks differ: what was heard to move moved just now.
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
    """By producers' ids as their clients know them: of ids, epochs and last sequences as brokers tell them of earlier
    terms. What each did in the latest of them counts."""
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
    """Of a topic that came by force, by partition: what its producers had written that crossed, by their ids as clients
    know them. `unsure`: where more had crossed than is known of, and how much more, at most."""

    wrote: Mapping[tuple[str, int], Mapping[int, ProducerTail]]
    unsure: Mapping[tuple[str, int], int]


def build_replicated_tails(
    topic: str, lead: HomeRoute, known: Mapping[tuple[str, int], ReplicatedPrefix]
) -> ReplicatedTails:
    """By what the store has of it. What had crossed is known by the ids of the term before alone: of earlier terms
    nobody sends anything again."""
    wrote: dict[tuple[str, int], Mapping[int, ProducerTail]] = {}
    unsure: dict[tuple[str, int], int] = {}
    for number, point in enumerate(lead.points):
        crossing = known.get((topic, number), ReplicatedPrefix(lead.term, 0, True))
        lacking = max(0, point - crossing.to_offset) if crossing.all_known else UNKNOWN_RECORDS
        # A new home that lost its own end has less than was told of it: what of a producer is left is not known then.
        lost_all = any(one.batches and not _below(one.batches, point) for one in crossing.producers)
        if lacking or lost_all:
            unsure[topic, number] = UNKNOWN_RECORDS if lost_all else lacking
        if found := dict(_crossed(crossing, lead.term, point)):
            wrote[topic, number] = found
    return ReplicatedTails(wrote, unsure)


def _crossed(crossing: ReplicatedPrefix, term: int, point: int) -> Iterator[tuple[int, ProducerTail]]:
    for one in crossing.producers:
        there = _below(one.batches, point)
        if there and extract_term_stamp(one.producer_id) == get_term_stamp(term - 1):
            yield remove_term_stamp(one.producer_id), ProducerTail(one.epoch, there[-1].last_sequence, True, there)


def _below(batches: Iterable[SourceBatch], point: int) -> tuple[SourceBatch, ...]:
    """Those that lie below the point as a whole."""
    return tuple(one for one in batches if one.last_offset < point)


def assume_unknown_tails(topic: str, lead: HomeRoute) -> ReplicatedTails:
    """Of a topic of which nothing is known: whatever is sent again may have crossed."""
    return ReplicatedTails({}, {(topic, number): point for number, point in enumerate(lead.points) if point})


# How long a broker may take, beyond what the request itself allows it.
RESPONSE_TIMEOUT_S = 30.0
# An errand's questions: a cluster that hangs must not hold up what is asked of others beside it.
FAN_OUT_TIMEOUT_S = 5.0

Parts: TypeAlias = Sequence[Buffer]


class BrokerRequest(NamedTuple):
    """A question to a broker, asked for the client by the client's own connection there. `flows`: what is to hear how
    long the answer took."""

    place: BrokerId
    key: int
    version: int
    body: Parts
    flows: tuple[TrafficCounter, ...] = ()


# The body of an answer; None where none is to be had.
BrokerResponse: TypeAlias = memoryview | None
# Asks several questions at once, is sent what came of each in the same order, and returns the body for the client.
FanOutSteps: TypeAlias = Generator[Sequence[BrokerRequest], Sequence[BrokerResponse], Parts]


class RespondLater(NamedTuple):
    """Answered here, but not before so long."""

    body: Parts
    wait_s: float


# What an answer's body becomes, and when where not at once; None where it may stay as it came.
RewriteResponse: TypeAlias = Callable[[memoryview, int], Parts | RespondLater | None]


class ForwardRequest(NamedTuple):
    """Passed on to this broker as it came, or with another `body`; its answer too, unless `rewrite` says otherwise.
    `topics`: to which it writes; `flows`: what is to hear how long the answer took."""

    place: BrokerId
    wait_s: float = RESPONSE_TIMEOUT_S
    rewrite: RewriteResponse | None = None
    answered: bool = True
    body: Parts | None = None
    topics: tuple[str, ...] = ()
    flows: tuple[TrafficCounter, ...] = ()


class RespondNow(NamedTuple):
    """Answered here, with this body."""

    body: Parts


class FanOut(NamedTuple):
    """Several brokers are to be asked. Nothing else of this client is begun meanwhile. `topics`: to which it writes."""

    errand: FanOutSteps
    wait_s: float = FAN_OUT_TIMEOUT_S
    topics: tuple[str, ...] = ()


class ParkRequest(NamedTuple):
    """Kept until more is known, and judged anew then. Nothing else of this client is begun meanwhile. `refusal` tells
    it to ask again; None where nothing does. `goes_first`: what it has sent behind must not overtake this, so it is
    refused only if nothing more is read, and else the connection ends."""

    refusal: Parts | None
    goes_first: bool = False


class DiscardRequest(NamedTuple):
    """Nothing is passed on, and nothing said: the client waits for no answer."""


class DisconnectClient(NamedTuple):
    """The connection ends: there is no answer that would say so."""

    why: str


RequestDecision: TypeAlias = (
    ForwardRequest | RespondNow | RespondLater | FanOut | ParkRequest | DiscardRequest | DisconnectClient
)

ApiVersionRanges = Mapping[int, tuple[int, int]]
# Offered only where all clusters have groups of the newer protocol.
CONSUMER_GROUP_DESCRIBE: Final = 69


class BrokerEndpoint(NamedTuple):
    """Where a broker of a cluster is."""

    host: str
    port: int
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class ProxiedCluster:
    """One cluster as it was seen last. `offers`: the versions of each API that all its brokers take. `answers`: whether
    it answered when it was last asked. `ids`: the cluster's own ids of its topics; `partitions`: how many each has;
    `twins`: those that `twinshore.twins` there calls twins."""

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
        """Whether it has answered since this process began."""
        return bool(self.cluster_id)


@dataclass(frozen=True)
class RoutingTable:
    """`clusters` in the order of the settings. `homes` are the store's, `leads` the clusters' own words, which count
    more. `offers`: the versions that clients may send. `wrote`: what producers wrote last to partitions that have moved
    in good order, or by force; `unsure`: partitions of the latter of which not all is known that had crossed. `lapsed`:
    clusters whose switches do not wait for this proxy: their writers wait. `own`: of topics that each site has for
    itself, the cluster where these clients have theirs. `by_copies`: what `routing.core.leader_cluster` says
    of topics without a word, as far as this was asked already; `not_believed`: what it says of those whose word is not
    believed yet.

    `routes`: the leader cluster of each topic, of Kafka's own ones where groups are; `leaderless`: topics that have
    none now, and why."""

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
        found |= {
            topic: Leader(lead.cluster) if lead.cluster in self.clusters and lead.cluster else away
            for topic, lead in self.leads.items()
        }
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
        """The same, where the leases of these clusters have run out. Made once: it goes through all topics."""
        if lapsed not in self._without:
            self._without[lapsed] = replace(self, lapsed=lapsed)
        return self._without[lapsed]

    @cached_property
    def topics_by_id(self) -> Mapping[bytes, str]:
        """The topics that clients are told ids of, by these: the ids are those of the groups' home."""
        ids = self.clusters[self.group_home()].ids
        return {topic_id: topic for topic, topic_id in ids.items() if self.stays(topic)}

    @cached_property
    def elsewhere(self) -> tuple[str, ...]:
        """Applications' topics that the groups' home does not have, in their names' order."""
        return tuple(sorted(one for one in self.routes if not self.stays(one) and not is_internal_topic(one)))

    @property
    def serves_newer_groups(self) -> bool:
        """Whether all clusters have groups of the newer protocol: groups may move to each of them."""
        return CONSUMER_GROUP_DESCRIBE in self.offers

    @property
    def lack_newer_groups(self) -> list[str]:
        """The clusters that do not have them, as far as is known."""
        return [name for name, one in self.clusters.items() if CONSUMER_GROUP_DESCRIBE not in one.offers]

    def has_home(self, topic: str) -> bool:
        """Whether the topic is at home somewhere, by the clusters' word or the store's, or as its other copies are
        twins."""
        if topic in self.leads or topic in self.homes:
            return True
        return isinstance(self.decided.get(topic), Leader) and len(self.holders(topic)) > 1

    def holders(self, topic: str) -> list[str]:
        """The clusters that were seen to have the topic."""
        return [name for name, one in self.clusters.items() if topic in one.topics]

    @property
    def unconfirmed_leaders(self) -> Mapping[str, Leader]:
        """Topics whose leader was chosen without a cluster that could say otherwise."""
        found = {**self.decided, **self.not_believed}
        known = {topic for topic in self.leads if topic not in self.not_believed}
        return {t: one for t, one in found.items() if isinstance(one, Leader) and one.unheard and t not in known}

    @property
    def unseen(self) -> list[str]:
        """The clusters that have not answered since this process began: what they have is not known."""
        return [name for name, one in self.clusters.items() if not one.has_answered]

    def writes_paused(self, topic: str) -> bool:
        """Whether nothing may be written to the topic now."""
        lead = self.leads.get(topic)
        lapsed = self.routes.get(topic) in self.lapsed
        return lapsed or topic in self.learns or (lead is not None and lead.held)

    def may_reject_writers(self, topic: str, cluster: str) -> bool:
        """Whether rules of a switch may keep writers of the topic out of this cluster, for a while."""
        lead = self.leads.get(topic)
        ran_out = lead is not None and lead.ran_out
        return ran_out or self.writes_paused(topic) or self.is_elsewhere(topic, cluster)

    def route(self, topic: str) -> str | None:
        """The cluster that the topic's clients are led to; None where it has no leader, or no cluster is known to have
        it."""
        return self.routes.get(topic)

    def written_at(self, topic: str) -> str | None:
        """The same; of groups' committed offsets, where groups are."""
        return self.group_home() if topic == GROUPS_HOME else self.routes.get(topic)

    def is_elsewhere(self, topic: str, cluster: str) -> bool:
        """Whether the topic is known to be at another cluster. One that is not known yet is its broker's to refuse."""
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
        """Whether no place may be committed now."""
        lead = self.leads.get(GROUPS_HOME)
        return self.group_home() in self.lapsed or (lead is not None and (lead.held or lead.cluster is None))

    def keeps(self, topic: str) -> str:
        """The cluster where places in the topic are kept."""
        return self.group_home() if self.stays(topic) else self.routes[topic]

    def stays(self, topic: str) -> bool:
        """Whether places in the topic are kept at the groups' home: it has the topic, or nobody is known to."""
        home = self.group_home()
        if topic in self.own:
            return self.routes.get(topic, home) == home
        return topic in self.clusters[home].topics or self.routes.get(topic, home) == home

    def may_have_offsets_elsewhere(self, topic: str) -> bool:
        """Whether places in the topic may be on its own cluster too: where the groups' home has a twin of it, those
        from before the twin was made are not there."""
        return self.stays(topic) and self.routes.get(topic, self.group_home()) != self.group_home()

    def answering(self) -> list[str]:
        """The clusters that answered when they were last asked."""
        return [name for name, one in self.clusters.items() if one.answers]


def merge_pair_homes(rows: Iterable[HomeRow]) -> dict[str, str]:
    """The home of each topic, from its homes in all pairs of clusters: one that is a twin in no other pair."""
    said: dict[str, dict[str, str]] = {}
    for row in rows:
        said.setdefault(row.topic, {})[row.pair] = row.home
    found: dict[str, str] = {}
    for topic, by_pair in said.items():
        twins = {name for pair, home in by_pair.items() for name in pair.split(PAIR_SEPARATOR) if name != home}
        first = [home for home in by_pair.values() if home not in twins]
        found[topic] = first[0] if first else next(iter(by_pair.values()))
    return found


def find_forced_topics(before: RoutingTable, seen: RoutingTable) -> frozenset[str]:
    """The topics that a switch by force has moved meanwhile."""
    return frozenset(
        topic
        for topic, lead in seen.leads.items()
        if lead.torn is not None and ((was := before.leads.get(topic)) is None or was.term < lead.term)
    )
