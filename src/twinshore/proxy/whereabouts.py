"""Where a group of the proxies' clients stands: its members at home, its places there and with topics elsewhere."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import combinations
from typing import NamedTuple

from twinshore.fleet import ConfigError, KafkaError, Link, NamedPartition, Naming, RefusedError
from twinshore.fleet.nouns import GROUPS_HOME
from twinshore.fleet.settings import Settings
from twinshore.fleet.settings.edge import did_you_mean
from twinshore.fleet.settings.sections import near, proxy
from twinshore.homes.home_lines import Clash, HomeLine, stands
from twinshore.homes.home_notes import HomeNotes, TwinNotes
from twinshore.homes.leader_cluster import in_words as led_in_words
from twinshore.kafka.clock import steady_s
from twinshore.kafka.cluster import KafkaCluster, OffsetKind
from twinshore.kafka.groups import CLASSIC, CONSUMER, DEAD, EMPTY, GroupListing, GroupMembers, Groups, members_of
from twinshore.links.homes import BETWEEN, pair_of
from twinshore.links.known import of_all_settings
from twinshore.proxy.core.by_copies import Heard, led_by_copies
from twinshore.proxy.core.leads import Lead, leads_of
from twinshore.proxy.core.near import Rules
from twinshore.proxy.core.reset_goals import Spot
from twinshore.proxy.core.seen import ClusterSeen, Seen, homes_of
from twinshore.store import Store
from twinshore.wire.group_places import Where

COORDINATOR_S = 8.0
PAUSE_S = 0.1


@dataclass(frozen=True, slots=True)
class Standing:
    """`spots`: partitions in which it has a place, and others that were asked for. `silent`: clusters that do not
    answer, so that what is kept there is not seen. `term`: how often groups have moved."""

    home: str
    members: GroupMembers
    spots: tuple[Spot, ...]
    silent: Mapping[str, KafkaError] = field(default_factory=dict)
    term: int = 0


def see_clusters(
    clusters: Mapping[str, KafkaCluster], settings: Settings, store: Store
) -> tuple[Seen, dict[str, KafkaError]]:
    """As a proxy sees them; and which do not answer."""
    found, silent, lines = dict[str, ClusterSeen](), dict[str, KafkaError](), list[Mapping[str, HomeLine]]()
    for name, kafka in clusters.items():
        try:
            told = kafka.metadata()
            lines.append(HomeNotes(kafka).read())
            noted = TwinNotes(kafka).read()
        except KafkaError as error:
            silent[name] = error
            found[name] = ClusterSeen(name, "", -1, {}, frozenset(), {}, answers=False)
            continue
        ids = {topic: one.topic_id for topic, one in told.topics.items() if not one.internal}
        twins = frozenset(topic for topic, topic_id in ids.items() if topic_id.hex() in noted)
        found[name] = ClusterSeen(name, told.cluster_id, told.controller, {}, frozenset(ids), {}, twins=twins)
    links = of_all_settings(settings, store)
    homes, _ = stored_homes(links, store, found.keys())
    by_copies = led_by_copies(found.values(), homes, Heard(links))
    return Seen(found, homes, leads=leads_by(lines, found, settings), by_copies=by_copies), silent


def leads_by(
    lines: Sequence[Mapping[str, HomeLine]], clusters: Mapping[str, ClusterSeen], settings: Settings
) -> dict[str, Lead]:
    """Where these lines of the clusters say that topics are at home; nowhere for proxies that follow no switch."""
    if not settings.of(proxy.SECTION).follows_switches:
        return {}
    words = {topic: stands([some.get(topic) for some in lines]) for some in lines for topic in some}
    said: dict[str, HomeLine | Clash] = {topic: one for topic, one in words.items() if one is not None}
    # One that is silent is known by what the others say of it.
    names = {one.cluster_id: one.home for one in said.values() if isinstance(one, HomeLine) and one.home in clusters}
    names |= {one.cluster_id: one.name for one in clusters.values() if one.answers}
    return leads_of(said, names, {}, 0)


class Stored(NamedTuple):
    """The homes that the store remembers, and their terms where it has them."""

    homes: Mapping[str, str] = {}
    terms: Mapping[str, int] = {}


def pairs_of(links: Iterable[Link], clusters: Collection[str]) -> list[str]:
    """The pairs that these clusters are in."""
    return sorted(
        {BETWEEN.join(sorted(pair)) for pair in combinations(clusters, 2)}
        | {pair_of(link) for link in same_named(links, clusters)}
    )


def same_named(links: Iterable[Link], clusters: Collection[str]) -> list[Link]:
    """Those that give twins their source's name, from or to these clusters."""
    return [one for one in links if one.naming is Naming.SAME and not {one.source, one.target}.isdisjoint(clusters)]


def stored_homes(links: Sequence[Link], store: Store, clusters: Collection[str]) -> Stored:
    """Also of topics whose twins a link carries, wherever these come from."""
    homes, terms = dict[str, str](), dict[str, int]()
    for link in same_named(links, clusters):
        homes |= {row.topic: link.source for row in store.twins.carried(link.name)}
    rows = [row for pair in pairs_of(links, clusters) for row in store.homes.of(pair).values()]
    homes |= homes_of(rows)
    for row in rows:
        if row.home == homes[row.topic]:
            terms[row.topic] = max(row.term, terms.get(row.topic, 0))
    return Stored(homes, terms)


def standing(
    group: str,
    wanted: Mapping[str, frozenset[int] | None],
    clusters: Mapping[str, KafkaCluster],
    settings: Settings,
    store: Store,
    since_ms: int | None = None,
) -> Standing:
    """Of these topics, or of all in which it has a place. `since_ms`: the time whose offsets are wanted. ConfigError
    where there is no such group or topic, RefusedError where it cannot be reset as it is."""
    seen, silent = see_clusters(clusters, settings, store)
    home = seen.group_home()
    if home not in clusters or home in silent:
        raise RefusedError(f"groups are at home on {home}, which does not answer")
    if seen.groups_gather:
        raise RefusedError("groups are about to move", hint="`twinshore proxy groups` shows where they are")
    if lacking := [topic for topic in wanted if topic in seen.leaderless]:
        raise RefusedError(led_in_words(lacking[0], seen.leaderless[lacking[0]]))
    if away := [topic for topic in wanted if seen.route(topic) is None]:
        raise ConfigError(f"there is no topic {away[0]}{did_you_mean(away[0], sorted(seen.routes))}")
    groups = {name: _groups(clusters[name]) for name in clusters if name not in silent}
    places: dict[tuple[str, str, int], int] = {}
    for name, known in groups.items():
        if (there := known.get(group)) is not None:
            kept = _places(clusters[name], there)
            places |= {(name, *where): to for where, to in kept.items() if seen.keeps(where[0]) == name}
    none_of_sites({*wanted, *(topic for _, topic, _ in places)}, seen, settings)
    members = _members(clusters[home], group, groups[home], known=bool(places))
    for name in {cluster for cluster, _, _ in places} - {home}:
        _none_past(clusters[name], groups[name][group])
    spots = _spots(seen, places, wanted, clusters, since_ms)
    lead = seen.leads.get(GROUPS_HOME)
    return Standing(home, members, tuple(spots), silent, lead.term if lead is not None else 0)


def none_of_sites(topics: Iterable[str], seen: Seen, settings: Settings) -> None:
    """Which site's log of that name is meant nobody can say, and proxies keep its places beside each."""
    rules = Rules(own_topics=settings.of(near.SECTION).own_topics)
    for topic in sorted(topics):
        several = sum(topic in one.topics for one in seen.clusters.values()) > 1
        if several and rules.is_own(topic) and not seen.has_home(topic):
            raise RefusedError(
                f"each site has topic {topic} for itself, by [near] own_topics",
                hint="set it with Kafka's own tools at the address of the cluster that is meant, while nobody reads it",
            )


def _groups(cluster: KafkaCluster) -> dict[str, GroupListing]:
    """To ask for the coordinator of a group that was never there would make the topic of places."""
    with closing(Groups(cluster)) as groups:
        found = groups.listed()
    if found.away:
        raise RefusedError(f"which groups {cluster.name} has is not known: {next(iter(found.away.values())).message}")
    return found.groups


def _places(cluster: KafkaCluster, group: GroupListing) -> dict[Where, int]:
    with closing(Groups(cluster)) as groups:
        found, away = groups.places({group.coordinator: {group.group: None}}, {})
    if away or group.group not in found or found[group.group].error:
        raise RefusedError(f"{cluster.name}: where group {group.group} stands is not known")
    return {where: place.offset for where, place in found[group.group].places.items()}


def node_of(cluster: KafkaCluster, groups: Groups, group: str) -> int:
    """The broker that coordinates the group. One that has never had a group takes some seconds to become one."""
    until_s = steady_s() + COORDINATOR_S
    while True:
        located = groups.located([group])
        if group in located.refused:
            raise located.refused[group]
        if group in located.nodes:
            return located.nodes[group]
        if steady_s() > until_s:
            raise KafkaError(f"{cluster.name}: group {group} has no coordinator just now", retriable=True)
        time.sleep(PAUSE_S)


def _members(cluster: KafkaCluster, group: str, there: Mapping[str, GroupListing], *, known: bool) -> GroupMembers:
    if group not in there:
        if not known:
            raise ConfigError(f"there is no group {group} on {cluster.name}{did_you_mean(group, sorted(there))}")
        return GroupMembers(DEAD, {})
    if there[group].kind == CONSUMER and there[group].live:
        raise RefusedError(
            f"group {group} is of the new protocol, and is set to other places only while it has no members",
            hint="stop its members, which have group.protocol=consumer, and start them again behind it",
        )
    if not _is_ours(there[group]):
        raise RefusedError(f"{group} is a group of another kind: proxies offer classic groups of consumers only")
    return members_of(cluster, there[group].coordinator, group)


def _is_ours(group: GroupListing) -> bool:
    empty = group.state == EMPTY and group.kind == CONSUMER  # of whichever kind joins it next
    return empty or (group.kind == CLASSIC and group.protocol in ("", "consumer"))


def _none_past(cluster: KafkaCluster, group: GroupListing) -> None:
    if members_of(cluster, group.coordinator, group.group).members:
        raise RefusedError(
            f"group {group.group} has members on {cluster.name}, who came past the proxies",
            hint="stop them first, or let them come through one",
        )


def _spots(
    seen: Seen,
    places: Mapping[tuple[str, str, int], int],
    wanted: Mapping[str, frozenset[int] | None],
    clusters: Mapping[str, KafkaCluster],
    since_ms: int | None,
) -> list[Spot]:
    have = {(topic, number) for _, topic, number in places}
    by_route: dict[str, list[NamedPartition]] = {}
    for topic in wanted or sorted({topic for topic, _ in have}):
        route = seen.route(topic)
        if route is None:
            continue  # the topic is gone, and the group's place in it has remained
        there = clusters[route].metadata([topic]).topics.get(topic)
        numbers = range(len(there.partitions)) if there is not None else range(0)
        chosen = wanted.get(topic) if wanted else frozenset(number for name, number in have if name == topic)
        if lacking := sorted((chosen or frozenset()) - set(numbers) if wanted else ()):
            raise ConfigError(f"topic {topic} has {len(numbers)} partitions, and none of number {lacking[0]}")
        some = numbers if chosen is None else sorted(chosen & set(numbers))
        by_route.setdefault(route, []).extend(NamedPartition(topic, number) for number in some)
    found: list[Spot] = []
    for route, parts in by_route.items():
        found += _bounded(clusters[route], parts, seen, places, since_ms)
    return sorted(found, key=lambda one: (one.topic, one.partition))


def _bounded(
    cluster: KafkaCluster,
    parts: Sequence[NamedPartition],
    seen: Seen,
    places: Mapping[tuple[str, str, int], int],
    since_ms: int | None,
) -> list[Spot]:
    begins = cluster.list_offsets(parts, OffsetKind.EARLIEST)
    ends = cluster.list_offsets(parts, OffsetKind.HIGH_WATERMARK)
    since, failed = cluster.first_since_each(parts, since_ms) if since_ms is not None else ({}, {})
    if failed:
        raise next(iter(failed.values()))
    spots = []
    for part in parts:
        keeps = seen.keeps(part.topic)
        was = places.get((keeps, part.topic, part.partition))
        spots.append(Spot(keeps, part.topic, part.partition, was, begins[part], ends[part], since.get(part, -1)))
    return spots
