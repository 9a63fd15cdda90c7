"""At which clusters the clients of a site may read a topic of another home, the nearest first. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import NamedTuple

Part = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Rules:
    """`sites`: of each cluster, in the order of the settings. `next_sites`: where clients of a site read if not at
    their own. Without a second site nobody reads elsewhere than at home. `own_topics`: which topics each site has for
    itself, as patterns with `*`."""

    sites: Mapping[str, str] = field(default_factory=dict)
    next_sites: Mapping[str, Sequence[str]] = field(default_factory=dict)
    behind_s_max: float = 5.0
    own_topics: Sequence[str] = ()

    def known(self, site: str) -> bool:
        """Whether clients of the site read anywhere by these rules."""
        return bool(site) and (site in self.sites.values() or site in self.next_sites)

    def before_home(self, site: str, home: str) -> Iterator[str]:
        """Clusters where clients of the site would rather read than at `home`."""
        for one in dict.fromkeys((site, *self.next_sites.get(site, ()))):
            if self.sites.get(home) == one:
                return
            yield from (name for name, at in self.sites.items() if at == one)

    def is_own(self, topic: str) -> bool:
        """Whether each site has the topic for itself, where it is no twin."""
        return any(fnmatchcase(topic, pattern) for pattern in self.own_topics)


class Copy(NamedTuple):
    """A topic that a link has brought to a cluster, partition by partition as it was at the source: ids are of the
    topic at both. `partitions`: those that it carries on."""

    source: str
    target: str
    topic: str
    source_id: str
    target_id: str
    partitions: frozenset[int]


class Twin(NamedTuple):
    """A topic's twin on a cluster, whose offsets are its home's. Both ids were the store's word, and are to be theirs
    still."""

    cluster: str
    home_id: str
    topic_id: str
    partitions: frozenset[int]


def twins_of(copies: Iterable[Copy], homes: Mapping[str, str]) -> dict[str, tuple[Twin, ...]]:
    """By topic: what links have brought from its home, also by way of another twin. A copy of something else than what
    stands at its source now is none."""
    by_topic: dict[str, list[Copy]] = {}
    for copy in copies:
        by_topic.setdefault(copy.topic, []).append(copy)
    found: dict[str, tuple[Twin, ...]] = {}
    for topic, some in by_topic.items():
        home, twins = homes.get(topic, ""), dict[str, Twin]()
        for copy in some:
            if copy.source == home:
                twins[copy.target] = Twin(copy.target, copy.source_id, copy.target_id, copy.partitions)
        for _ in some:
            for copy in some:
                via = twins.get(copy.source)
                if via is None or via.topic_id != copy.source_id or copy.target in {home, *twins}:
                    continue
                parts = copy.partitions & via.partitions
                twins[copy.target] = Twin(copy.target, via.home_id, copy.target_id, parts)
        if twins:
            found[topic] = tuple(twins.values())
    return found
