"""What all clients of a process share of near reads: which topics are looked at, how level their twins are, and where
each site's clients read therefore. Pure: looks and the time come from outside.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias

from twinshore.proxy.core.layout import Place
from twinshore.proxy.core.near.level import Level, Trail
from twinshore.proxy.core.near.networks import Networks
from twinshore.proxy.core.near.rules import Part, Rules, Twin
from twinshore.proxy.core.seen import Seen

# A topic is looked at as long after somebody has read it.
WANTED_S: Final = 60.0
# What a first look may take; whoever asks meanwhile waits.
FIRST_LOOK_S: Final = 3.0
_NOWHERE: Final[Mapping[Part, Place]] = MappingProxyType({})


class Ends(NamedTuple):
    """Of a twin's partition."""

    leader: int
    start: int
    end: int


# Of one cluster, by topic and id.
Found: TypeAlias = Mapping[tuple[str, str], Mapping[int, Ends]]


class Look(NamedTuple):
    """At one topic, in one term of its home: ends of its twins, asked first, then where it ends at home, asked at
    `asked_s`. A twin's partition that is None did not answer; one that is missing is no twin now.
    `home_id`: the topic's at home, empty where home does not say it: then nothing of it is there either."""

    topic: str
    home: str
    term: int
    asked_s: float
    home_ends: Mapping[int, int]
    twins: Mapping[str, Mapping[int, Ends | None]]
    home_id: str = ""


def looked(
    topic: str,
    home: str,
    term: int,
    asked_s: float,
    at_home: Found,
    twins: Sequence[Twin],
    at_twins: Mapping[str, Found],
) -> Look:
    """A look, from what clusters have said. Links hear at different times that a topic was made anew at home, so they
    may know it by several ids: the one that is there now says which twins are its own."""
    home_id = next((twin.home_id for twin in twins if (topic, twin.home_id) in at_home), "")
    ends = {part: one.end for part, one in at_home.get((topic, home_id), {}).items()}
    levels: dict[str, dict[int, Ends | None]] = {}
    for twin in twins:
        if home_id in ("", twin.home_id):
            there = at_twins.get(twin.cluster, {}).get((topic, twin.topic_id), {})
            levels[twin.cluster] = {part: there.get(part) for part in twin.partitions}
    return Look(topic, home, term, asked_s, ends, levels, home_id)


@dataclass(slots=True)
class _Topic:
    home: str
    term: int
    home_id: str
    trails: dict[int, Trail] = field(default_factory=dict)
    levels: dict[str, dict[int, Level]] = field(default_factory=dict)


class Near:
    """`served`: partitions that may be read at clusters that are not their home, as (cluster, topic, partition). It
    and what `view` gives are the same objects while nothing is new. `bytes_read` by cluster, `led` and `sent_home`: how
    often clients were told to go."""

    def __init__(self, rules: Rules | None = None, networks: Networks | None = None) -> None:
        self.rules, self._networks = rules or Rules(), networks or Networks(())
        self.now_s = 0.0
        self.served: frozenset[tuple[str, str, int]] = frozenset()
        self.bytes_read: Counter[str] = Counter()
        self.led = self.sent_home = 0
        self._views: dict[str, Mapping[Part, Place]] = {}
        self._wanted: dict[str, tuple[float, float]] = {}  # since when, and when last
        self._topics: dict[str, _Topic] = {}
        self._as_seen: dict[str, tuple[Seen, Seen]] = {}

    def site_of(self, address: str) -> str:
        """Of a client; empty where no rule says it."""
        return self._networks.of(address) or ""

    def at(self, topic: str, site: str, seen: Seen) -> list[str]:
        """Clusters that have the topic, where clients of the site would rather read it than at its home."""
        home = seen.route(topic)
        if home is None or not site:
            return []
        names = self.rules.before_home(site, home)
        return [name for name in names if name in seen.clusters and topic in seen.clusters[name].topics]

    def as_seen(self, seen: Seen, site: str) -> Seen:
        """What clients of the site see: of topics that each site has for itself they see theirs. The same object while
        nothing is new."""
        if not self.rules.own_topics:
            return seen
        known = self._as_seen.get(site)
        if known is None or known[0] is not seen:
            known = self._as_seen[site] = seen, self._with_own(seen, site)
        return known[1]

    def _with_own(self, seen: Seen, site: str) -> Seen:
        own: dict[str, str] = {}
        for topic in {topic for one in seen.clusters.values() for topic in one.topics}:
            if self.rules.is_own(topic) and not seen.has_home(topic):
                holders = seen.holders(topic)
                near = self.rules.before_home(site, holders[0]) if site else ()
                own[topic] = next((one for one in near if one in holders), holders[0])
        return replace(seen, own=own) if own else seen

    def wants(self, topic: str) -> None:
        """Somebody reads it who would rather read it elsewhere than at home."""
        since_s, _ = self._wanted.get(topic, (self.now_s, 0.0))
        self._wanted[topic] = since_s, self.now_s

    def wanted(self) -> list[str]:
        """Topics to look at."""
        return list(self._wanted)

    def view(self, site: str) -> Mapping[Part, Place]:
        """Where clients of the site read partitions that they should not read at home."""
        return self._views.get(site, _NOWHERE)

    def serves(self, cluster: str, topic: str, partition: int) -> bool:
        """Whether the partition may be read there though it is at home elsewhere."""
        return (cluster, topic, partition) in self.served

    def is_undecided(self, topic: str) -> bool:
        """Whether it was not looked at yet, and will be in a moment."""
        since_s, _ = self._wanted.get(topic, (self.now_s, 0.0))
        return topic not in self._topics and self.now_s - since_s < FIRST_LOOK_S

    def level(self, cluster: str, topic: str, partition: int) -> Level | None:
        """How the partition's twin stood last; None where it has none there."""
        known = self._topics.get(topic)
        return known.levels.get(cluster, {}).get(partition) if known else None

    def take(self, looks: Iterable[Look]) -> None:
        """What looks have found; the next `tick` says what follows."""
        for look in looks:
            known = self._topics.get(look.topic)
            home_id = look.home_id or (known.home_id if known else "")
            if known is None or (known.home, known.term, known.home_id) != (look.home, look.term, home_id):
                known = self._topics[look.topic] = _Topic(look.home, look.term, look.home_id)
            self._take(known, look)

    def _take(self, known: _Topic, look: Look) -> None:
        for partition, end in look.home_ends.items():
            trail = known.trails.setdefault(partition, Trail())
            trail.add(look.asked_s, end, 2 * self.rules.behind_s_max)
        for cluster, found in look.twins.items():
            levels = known.levels.setdefault(cluster, {})
            for partition, one in found.items():
                level = levels.setdefault(partition, Level())
                if one is not None and partition in look.home_ends:
                    level.take(one.leader, one.start, one.end, known.trails[partition])
        for cluster, levels in known.levels.items():
            there = look.twins.get(cluster, {})
            for partition, level in levels.items():
                if partition not in there:
                    level.away()

    def tick(self, now_s: float, seen: Seen) -> None:
        """A few times a second, and whenever more is known of the clusters."""
        self.now_s = now_s
        self._wanted = {topic: when for topic, when in self._wanted.items() if now_s - when[1] < WANTED_S}
        self._topics = {topic: known for topic, known in self._topics.items() if topic in self._wanted}
        served: dict[tuple[str, str, int], int] = {}
        for topic, known in self._topics.items():
            if _is_settled(topic, known, seen):
                for cluster, levels in known.levels.items():
                    served |= {
                        (cluster, topic, partition): level.leader
                        for partition, level in levels.items()
                        if self._reads(level, known.home, cluster, seen)
                    }
        if served.keys() != self.served:
            self.served = frozenset(served)
        for site in {*self.rules.sites.values(), *self.rules.next_sites}:
            view = self._view(site, served)
            if view != self.view(site):
                self._views[site] = view

    def _reads(self, level: Level, home: str, cluster: str, seen: Seen) -> bool:
        """While home is away nobody can say how far it got, and whoever reads a twin goes on."""
        if cluster not in seen.clusters or not seen.clusters[cluster].answers or level.since_s < 0:
            level.near = False
            return False
        if home in seen.clusters and not seen.clusters[home].answers:
            return level.near
        return level.judge(self.now_s, self.rules.behind_s_max)

    def _view(self, site: str, served: Mapping[tuple[str, str, int], int]) -> dict[Part, Place]:
        view: dict[Part, Place] = {}
        for topic, known in self._topics.items():
            for cluster in self.rules.before_home(site, known.home):
                for partition in known.levels.get(cluster, {}):
                    leader = served.get((cluster, topic, partition))
                    if leader is not None:
                        view.setdefault((topic, partition), Place(cluster, leader))
        return view


def _is_settled(topic: str, known: _Topic, seen: Seen) -> bool:
    """Whether the topic is where it was when it was looked at, and no switch moves it."""
    lead = seen.leads.get(topic)
    if lead is not None and (lead.moves or lead.held or lead.term != known.term):
        return False
    return seen.route(topic) == known.home
