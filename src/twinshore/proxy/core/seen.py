"""What is known of the clusters and of where topics are at home, as of one moment; and what follows of it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final, NamedTuple

from twinshore.fleet.nouns import GROUPS_HOME
from twinshore.homes.leader_cluster import Decision, Lacks, Leader, NoLeader
from twinshore.links.filters import KAFKAS, is_of_no_application
from twinshore.links.homes import BETWEEN
from twinshore.proxy.core.by_copies import led_by_copies
from twinshore.proxy.core.leads import Lead, Wrote
from twinshore.store.values import HomeRow

Ranges = Mapping[int, tuple[int, int]]
# Offered only where all clusters have groups of the newer protocol.
CONSUMER_GROUP_DESCRIBE: Final = 69


class Broker(NamedTuple):
    """Where a broker of a cluster is."""

    host: str
    port: int
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class ClusterSeen:
    """One cluster as it was seen last. `offers`: the versions of each API that all its brokers take. `answers`: whether
    it answered when it was last asked. `ids`: the cluster's own ids of its topics; `partitions`: how many each has;
    `twins`: those that `twinshore.twins` there calls twins."""

    name: str
    cluster_id: str
    controller: int
    brokers: Mapping[int, Broker]
    topics: frozenset[str]
    offers: Ranges
    answers: bool = True
    ids: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    partitions: Mapping[str, int] = field(default_factory=dict, repr=False)
    twins: frozenset[str] = frozenset()

    @property
    def was_seen(self) -> bool:
        """Whether it has answered since this process began."""
        return bool(self.cluster_id)


@dataclass(frozen=True)
class Seen:
    """`clusters` in the order of the settings. `homes` are the store's, `leads` the clusters' own words, which count
    more. `offers`: the versions that clients may send. `wrote`: what producers wrote last to partitions that have moved
    in good order, or by force; `unsure`: partitions of the latter of which not all is known that had crossed. `lapsed`:
    clusters whose switches do not wait for this proxy: their writers wait. `own`: of topics that each site has for
    itself, the cluster where these clients have theirs. `by_copies`: what the table of `homes.leader_cluster` says of
    topics without a word, as far as this was asked already; `not_believed`: what it says of those whose word is not
    believed yet.

    `routes`: the leader cluster of each topic, of Kafka's own ones where groups are; `leaderless`: topics that have
    none now, and why."""

    clusters: Mapping[str, ClusterSeen]
    homes: Mapping[str, str] = field(default_factory=dict)
    offers: Ranges = field(default_factory=dict)
    leads: Mapping[str, Lead] = field(default_factory=dict)
    wrote: Mapping[tuple[str, int], Mapping[int, Wrote]] = field(default_factory=dict)
    learns: frozenset[str] = frozenset()
    lapsed: frozenset[str] = frozenset()
    own: Mapping[str, str] = field(default_factory=dict)
    unsure: Mapping[tuple[str, int], int] = field(default_factory=dict)
    by_copies: Mapping[str, Decision] | None = field(default=None, repr=False)
    not_believed: Mapping[str, Decision] = field(default_factory=dict)
    decided: Mapping[str, Decision] = field(init=False, repr=False)
    routes: Mapping[str, str] = field(init=False)
    leaderless: Mapping[str, NoLeader] = field(init=False)

    def __post_init__(self) -> None:
        decided = self.by_copies
        if decided is None:
            decided = led_by_copies(self.clusters.values(), self.homes)
        object.__setattr__(self, "decided", decided)
        found = dict(decided)
        found |= {topic: Leader(name) for topic, name in self.own.items() if not self.has_home(topic)}
        away = NoLeader(Lacks.ELSEWHERE)
        found |= {
            topic: Leader(lead.cluster) if lead.cluster in self.clusters and lead.cluster else away
            for topic, lead in self.leads.items()
        }
        found |= self.not_believed
        if self.clusters:
            found |= dict.fromkeys(KAFKAS, Leader(self.group_home()))
        routes = {topic: one.cluster for topic, one in found.items() if isinstance(one, Leader)}
        leaderless = {topic: one for topic, one in found.items() if isinstance(one, NoLeader)}
        object.__setattr__(self, "routes", routes)
        object.__setattr__(self, "leaderless", leaderless)

    @cached_property
    def _without(self) -> dict[frozenset[str], Seen]:
        return {}

    def without(self, lapsed: frozenset[str]) -> Seen:
        """The same, where the leases of these clusters have run out. Made once: it goes through all topics."""
        if lapsed not in self._without:
            self._without[lapsed] = replace(self, lapsed=lapsed)
        return self._without[lapsed]

    @cached_property
    def names_of_ids(self) -> Mapping[bytes, str]:
        """The topics that clients are told ids of, by these: the ids are those of the groups' home."""
        ids = self.clusters[self.group_home()].ids
        return {topic_id: topic for topic, topic_id in ids.items() if self.stays(topic)}

    @cached_property
    def elsewhere(self) -> tuple[str, ...]:
        """Applications' topics that the groups' home does not have, in their names' order."""
        return tuple(sorted(one for one in self.routes if not self.stays(one) and not is_of_no_application(one)))

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
    def led_unheard(self) -> Mapping[str, Leader]:
        """Topics whose leader was chosen without a cluster that could say otherwise."""
        found = {**self.decided, **self.not_believed}
        known = {topic for topic in self.leads if topic not in self.not_believed}
        return {t: one for t, one in found.items() if isinstance(one, Leader) and one.unheard and t not in known}

    @property
    def unseen(self) -> list[str]:
        """The clusters that have not answered since this process began: what they have is not known."""
        return [name for name, one in self.clusters.items() if not one.was_seen]

    def must_wait(self, topic: str) -> bool:
        """Whether nothing may be written to the topic now."""
        lead = self.leads.get(topic)
        lapsed = self.routes.get(topic) in self.lapsed
        return lapsed or topic in self.learns or (lead is not None and lead.held)

    def keeps_out(self, topic: str, cluster: str) -> bool:
        """Whether rules of a switch may keep writers of the topic out of this cluster, for a while."""
        lead = self.leads.get(topic)
        ran_out = lead is not None and lead.ran_out
        return ran_out or self.must_wait(topic) or self.is_elsewhere(topic, cluster)

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
    def groups_gather(self) -> bool:
        """Whether members are to commit what they have read, and to wait then: groups are about to move. Also while
        their home is not heard: they may have moved already."""
        lead = self.leads.get(GROUPS_HOME)
        moves = lead is not None and (lead.moves or lead.held or lead.cluster is None)
        return moves or self.group_home() in self.lapsed

    @property
    def groups_wait(self) -> bool:
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

    def may_be_apart(self, topic: str) -> bool:
        """Whether places in the topic may be on its own cluster too: where the groups' home has a twin of it, those
        from before the twin was made are not there."""
        return self.stays(topic) and self.routes.get(topic, self.group_home()) != self.group_home()

    def answering(self) -> list[str]:
        """The clusters that answered when they were last asked."""
        return [name for name, one in self.clusters.items() if one.answers]


def homes_of(rows: Iterable[HomeRow]) -> dict[str, str]:
    """The home of each topic, from its homes in all pairs of clusters: one that is a twin in no other pair."""
    said: dict[str, dict[str, str]] = {}
    for row in rows:
        said.setdefault(row.topic, {})[row.pair] = row.home
    found: dict[str, str] = {}
    for topic, by_pair in said.items():
        twins = {name for pair, home in by_pair.items() for name in pair.split(BETWEEN) if name != home}
        first = [home for home in by_pair.values() if home not in twins]
        found[topic] = first[0] if first else next(iter(by_pair.values()))
    return found


def torn_since(before: Seen, seen: Seen) -> frozenset[str]:
    """The topics that a switch by force has moved meanwhile."""
    return frozenset(
        topic
        for topic, lead in seen.leads.items()
        if lead.torn is not None and ((was := before.leads.get(topic)) is None or was.term < lead.term)
    )
