"""Runs the reset of a consumer group's offsets.

A reset has a row in the store. It makes proxies hold the group, removes the members, and commits the new offsets.

A broker accepts commits from outside only for an empty group, and none of removed members. So no old offset overwrites
a new one, even through a proxy that does not know of the reset.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Final, NamedTuple

from twinshore.config.errors import ConfigError, KafkaError, RefusedError, TwinshoreError
from twinshore.config.frozen import GROUPS_HOME
from twinshore.config.model import Link, TopicPartition, TwinNaming
from twinshore.config.schema import did_you_mean
from twinshore.config.sections import near, proxy
from twinshore.config.sentences import format_time, join_names
from twinshore.config.settings import Settings
from twinshore.kafka.clock import steady_s, wall_ms
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.consumer_groups import (
    CLASSIC_TYPE,
    CONSUMER_TYPE,
    COORDINATOR_UNAVAILABLE_CODES,
    DEAD_STATE,
    EMPTY_STATE,
    ConsumerGroups,
    GroupListing,
    GroupMembers,
    read_group_members,
    remove_members,
)
from twinshore.kafka.leader_queries import OffsetKind
from twinshore.kafka.protocol.error_codes import Code, kafka_error
from twinshore.kafka.protocol.offsets import CommittedOffset, TopicPartitionTuple
from twinshore.proxy.core.follower_fetch import FollowerFetchRules
from twinshore.proxy.core.leader_table import KnownHomes, choose_leader_clusters
from twinshore.proxy.core.model import HomeRoute, ProxiedCluster, RoutingTable, build_routes, merge_pair_homes
from twinshore.proxy.core.offset_reset import (
    MEMBERS_DOUBTED_MS,
    ResetPartition,
    ResetTarget,
    ResetTargetKind,
    find_stale_goals,
    find_unset_goals,
    group_goals_by_topic,
    refresh_goals,
)
from twinshore.proxy.operations.breakers import list_serving_proxies
from twinshore.replication.core.ownership import PAIR_SEPARATOR, pair_name
from twinshore.replication.links import load_all_links
from twinshore.routing.core.home_records import HomeConflict, HomeRecord, current_home
from twinshore.routing.core.leader_cluster import describe_decision as led_in_words
from twinshore.routing.homes_topic import HomesTopic, TwinsTopic
from twinshore.state.core.proxy_values import ResetGoal, ResetRow, ResetState
from twinshore.state.core.values import AuditRow
from twinshore.state.store import Store

COORDINATOR_TIMEOUT_S = 8.0
COORDINATOR_RETRY_INTERVAL_S = 0.1


@dataclass(frozen=True, slots=True)
class GroupPositions:
    """A group's positions. `partitions`: those with a committed offset, or asked for.

    `silent`: clusters that do not answer, whose offsets are unknown. `term`: how often groups have moved.
    """

    home: str
    members: GroupMembers
    partitions: tuple[ResetPartition, ...]
    silent: Mapping[str, KafkaError] = field(default_factory=dict)
    term: int = 0


def read_routing_table(
    clusters: Mapping[str, KafkaCluster], settings: Settings, store: Store
) -> tuple[RoutingTable, dict[str, KafkaError]]:
    """Returns a proxy's routing table, and the clusters that do not answer."""
    found, silent, lines = dict[str, ProxiedCluster](), dict[str, KafkaError](), list[Mapping[str, HomeRecord]]()
    for name, kafka in clusters.items():
        try:
            metadata = kafka.metadata()
            lines.append(HomesTopic(kafka).read())
            notes = TwinsTopic(kafka)
            noted, may_be = notes.read(), notes.may_be()
        except KafkaError as error:
            silent[name] = error
            found[name] = ProxiedCluster(name, "", -1, {}, frozenset(), {}, answers=False)
            continue
        ids = {
            topic: topic_metadata.topic_id
            for topic, topic_metadata in metadata.topics.items()
            if not topic_metadata.internal
        }
        twins = frozenset(topic for topic, topic_id in ids.items() if topic in may_be or topic_id.hex() in noted)
        found[name] = ProxiedCluster(
            name, metadata.cluster_id, metadata.controller, {}, frozenset(ids), {}, twins=twins
        )
    links = load_all_links(settings, store)
    homes, _ = read_stored_homes(links, store, found.keys())
    by_copies = choose_leader_clusters(found.values(), homes, KnownHomes(links))
    return RoutingTable(found, homes, leads=merge_home_records(lines, found, settings), by_copies=by_copies), silent


def merge_home_records(
    lines: Sequence[Mapping[str, HomeRecord]], clusters: Mapping[str, ProxiedCluster], settings: Settings
) -> dict[str, HomeRoute]:
    """Returns home routes from these home records; empty if proxies follow no switches."""
    if not settings.of(proxy.SECTION).follows_switches:
        return {}
    words = {topic: current_home([some.get(topic) for some in lines]) for some in lines for topic in some}
    said: dict[str, HomeRecord | HomeConflict] = {topic: one for topic, one in words.items() if one is not None}
    # A silent cluster is known from the others' records.
    names = {one.cluster_id: one.home for one in said.values() if isinstance(one, HomeRecord) and one.home in clusters}
    names |= {cluster.cluster_id: cluster.name for cluster in clusters.values() if cluster.answers}
    return build_routes(said, names, {}, 0)


class StoredHomes(NamedTuple):
    """The homes in the store, and their terms if known."""

    homes: Mapping[str, str] = {}
    terms: Mapping[str, int] = {}


def list_cluster_pairs(links: Iterable[Link], clusters: Collection[str]) -> list[str]:
    return sorted(
        {PAIR_SEPARATOR.join(sorted(pair)) for pair in combinations(clusters, 2)}
        | {pair_name(link) for link in select_same_named_links(links, clusters)}
    )


def select_same_named_links(links: Iterable[Link], clusters: Collection[str]) -> list[Link]:
    """Returns links from or to these clusters whose twins have the source's name."""
    return [
        link for link in links if link.naming is TwinNaming.SAME and not {link.source, link.target}.isdisjoint(clusters)
    ]


def read_stored_homes(links: Sequence[Link], store: Store, clusters: Collection[str]) -> StoredHomes:
    """Returns the stored homes, including topics whose twins a link replicates."""
    homes, terms = dict[str, str](), dict[str, int]()
    for link in select_same_named_links(links, clusters):
        homes |= {row.topic: link.source for row in store.twins.active(link.name)}
    rows = [row for pair in list_cluster_pairs(links, clusters) for row in store.homes.of(pair).values()]
    homes |= merge_pair_homes(rows)
    for row in rows:
        if row.home == homes[row.topic]:
            terms[row.topic] = max(row.term, terms.get(row.topic, 0))
    return StoredHomes(homes, terms)


def read_group_positions(
    group: str,
    wanted: Mapping[str, frozenset[int] | None],
    clusters: Mapping[str, KafkaCluster],
    settings: Settings,
    store: Store,
    since_ms: int | None = None,
) -> GroupPositions:
    """Read positions in these topics, or in all with a committed offset.

    `since_ms`: also find offsets of this time. ConfigError without such a group or topic, RefusedError if a reset is
    impossible now.
    """
    table, silent = read_routing_table(clusters, settings, store)
    home = table.group_home()
    if home not in clusters or home in silent:
        raise RefusedError("proxy.reset-home-silent", home=home)
    if table.groups_gathering:
        raise RefusedError("proxy.groups-moving")
    if lacking := [topic for topic in wanted if topic in table.leaderless]:
        raise RefusedError("proxy.topic-without-leader", cause=led_in_words(lacking[0], table.leaderless[lacking[0]]))
    if away := [topic for topic in wanted if table.route(topic) is None]:
        raise ConfigError("proxy.no-such-topic", topic=away[0], nearest=did_you_mean(away[0], sorted(table.routes)))
    groups = {name: _groups(clusters[name]) for name in clusters if name not in silent}
    places: dict[tuple[str, str, int], int] = {}
    for name, known in groups.items():
        if (there := known.get(group)) is not None:
            kept = _places(clusters[name], there)
            places |= {(name, *where): to for where, to in kept.items() if table.keeps(where[0]) == name}
    check_no_site_topics({*wanted, *(topic for _, topic, _ in places)}, table, settings)
    members = _members(clusters[home], group, groups[home], known=bool(places))
    for name in {cluster for cluster, _, _ in places} - {home}:
        _none_past(clusters[name], groups[name][group])
    spots = _spots(table, places, wanted, clusters, since_ms)
    lead = table.leads.get(GROUPS_HOME)
    return GroupPositions(home, members, tuple(spots), silent, lead.term if lead is not None else 0)


def check_no_site_topics(topics: Iterable[str], table: RoutingTable, settings: Settings) -> None:
    """Refuse topics that exist separately at each site, whose log is ambiguous. RefusedError."""
    rules = FollowerFetchRules(own_topics=settings.of(near.SECTION).own_topics)
    for topic in sorted(topics):
        several = sum(topic in cluster.topics for cluster in table.clusters.values()) > 1
        if several and rules.is_own(topic) and not table.has_home(topic):
            raise RefusedError("proxy.topic-at-each-site", topic=topic)


def _groups(cluster: KafkaCluster) -> dict[str, GroupListing]:
    """List groups. Asking for the coordinator of an unknown group would create the offsets topic."""
    with closing(ConsumerGroups(cluster)) as groups:
        found = groups.listed()
    if found.away:
        raise RefusedError("proxy.groups-unlisted", cluster=cluster.name, cause=next(iter(found.away.values())).message)
    return found.groups


def _places(cluster: KafkaCluster, group: GroupListing) -> dict[TopicPartitionTuple, int]:
    with closing(ConsumerGroups(cluster)) as groups:
        found, away = groups.places({group.coordinator: {group.group: None}}, {})
    if away or group.group not in found or found[group.group].error:
        raise RefusedError("proxy.offsets-unread", cause=f"group {group.group} on {cluster.name}")
    return {where: place.offset for where, place in found[group.group].places.items()}


def find_coordinator_node(cluster: KafkaCluster, groups: ConsumerGroups, group: str) -> int:
    """Returns the group's coordinator. A cluster without groups needs some seconds to have one."""
    until_s = steady_s() + COORDINATOR_TIMEOUT_S
    while True:
        located = groups.located([group])
        if group in located.errors:
            raise located.errors[group]
        if group in located.nodes:
            return located.nodes[group]
        if steady_s() > until_s:
            raise KafkaError(f"{cluster.name}: group {group} has no coordinator just now", retriable=True)
        time.sleep(COORDINATOR_RETRY_INTERVAL_S)


def _members(cluster: KafkaCluster, group: str, there: Mapping[str, GroupListing], *, known: bool) -> GroupMembers:
    if group not in there:
        if not known:
            nearest = did_you_mean(group, sorted(there))
            raise ConfigError("proxy.no-such-group", group=group, cluster=cluster.name, nearest=nearest)
        return GroupMembers(DEAD_STATE, {})
    if there[group].kind == CONSUMER_TYPE and there[group].live:
        raise RefusedError("proxy.reset-needs-empty-group", group=group)
    if not _is_ours(there[group]):
        raise RefusedError("proxy.not-a-consumer-group", group=group)
    return read_group_members(cluster, there[group].coordinator, group)


def _is_ours(group: GroupListing) -> bool:
    empty = group.state == EMPTY_STATE and group.kind == CONSUMER_TYPE  # takes the protocol of the next member
    return empty or (group.kind == CLASSIC_TYPE and group.protocol in ("", "consumer"))


def _none_past(cluster: KafkaCluster, group: GroupListing) -> None:
    if read_group_members(cluster, group.coordinator, group.group).members:
        raise RefusedError("proxy.members-without-proxy", group=group.group, cluster=cluster.name)


def _spots(
    table: RoutingTable,
    places: Mapping[tuple[str, str, int], int],
    wanted: Mapping[str, frozenset[int] | None],
    clusters: Mapping[str, KafkaCluster],
    since_ms: int | None,
) -> list[ResetPartition]:
    have = {(topic, number) for _, topic, number in places}
    by_route: dict[str, list[TopicPartition]] = {}
    for topic in wanted or sorted({topic for topic, _ in have}):
        route = table.route(topic)
        if route is None:
            continue  # the topic is deleted, and the committed offset has remained
        there = clusters[route].metadata([topic]).topics.get(topic)
        numbers = range(len(there.partitions)) if there is not None else range(0)
        chosen = wanted.get(topic) if wanted else frozenset(number for name, number in have if name == topic)
        if lacking := sorted((chosen or frozenset()) - set(numbers) if wanted else ()):
            raise ConfigError("proxy.no-such-partition", topic=topic, count=len(numbers), partition=lacking[0])
        some = numbers if chosen is None else sorted(chosen & set(numbers))
        by_route.setdefault(route, []).extend(TopicPartition(topic, number) for number in some)
    found: list[ResetPartition] = []
    for route, parts in by_route.items():
        found += _bounded(clusters[route], parts, table, places, since_ms)
    return sorted(found, key=lambda partition: (partition.topic, partition.partition))


def _bounded(
    cluster: KafkaCluster,
    parts: Sequence[TopicPartition],
    table: RoutingTable,
    places: Mapping[tuple[str, str, int], int],
    since_ms: int | None,
) -> list[ResetPartition]:
    begins = cluster.list_offsets(parts, OffsetKind.EARLIEST)
    ends = cluster.list_offsets(parts, OffsetKind.HIGH_WATERMARK)
    since, failed = cluster.first_since_each(parts, since_ms) if since_ms is not None else ({}, {})
    if failed:
        raise next(iter(failed.values()))
    spots = []
    for partition in parts:
        keeps = table.keeps(partition.topic)
        was = places.get((keeps, partition.topic, partition.partition))
        spots.append(
            ResetPartition(
                keeps,
                partition.topic,
                partition.partition,
                was,
                begins[partition],
                ends[partition],
                since.get(partition, -1),
            )
        )
    return spots


AUDIT_KIND: Final = "proxy offsets"
# How long members wait if the process that resets is gone, in addition to the gather time.
GROUP_HOLD_S: Final = 45.0
# Commits stop so long before the end of the hold, so that all have arrived by then.
COMMIT_ARRIVAL_S: Final = 15.0
# Heartbeats come every three seconds by default: if no member has come by then, none gathers.
FIRST_MEMBER_TIMEOUT_S: Final = 5.0
# Members that learn of their removal only now may come so much later.
LATE_MEMBER_GRACE_S: Final = 4.0
# A killed proxy counts as serving for ten seconds more.
PROXIES_TIMEOUT_S: Final = 13.0
SETTLE_TIMEOUT_S: Final = 10.0
# A client that has lost its membership and its connection commits, or rejoins, within seconds.
OUTSIDE_COMMITS_MS: Final = 10_000
_ROUNDS_MAX: Final = 5
_PAUSE_S: Final = 0.1
_NAMED_MAX: Final = 5
_UNHEARD: Final = -2
_AGAIN: Final = frozenset(
    {_UNHEARD, Code.UNKNOWN_MEMBER_ID, Code.REBALANCE_IN_PROGRESS, *COORDINATOR_UNAVAILABLE_CODES}
)


def is_reset_under_way(row: ResetRow) -> bool:
    return row.holds(wall_ms())


def is_reset_unfinished(row: ResetRow | None) -> bool:
    """Whether a reset stopped with some offsets set."""
    return row is not None and row.state is ResetState.SETTING and not is_reset_under_way(row)


def check_no_reset_under_way(store: Store) -> None:
    """Raise RefusedError during a reset, which would set offsets where no client reads any more."""
    if rows := [row for row in store.proxy_resets.all()[1] if is_reset_under_way(row)]:
        raise reset_running(rows[0])


def reset_running(row: ResetRow) -> RefusedError:
    since, until = format_time(row.since_ms), format_time(row.until_ms)
    return RefusedError("proxy.reset-running", group=row.group, by=row.set_by, since=since, until=until)


@dataclass(slots=True)
class OffsetReset:
    """The reset of one group.

    `known`: the `run` of the row when planned; continued if `resumes_unfinished`. `undoes`: earlier offsets are
    restored. `look`: reads the positions. `term`: how often groups had moved when planned. `target`: None if a reset is
    resumed.
    """

    group: str
    home: str
    goals: Sequence[ResetGoal]
    clusters: Mapping[str, KafkaCluster]
    store: Store
    by: str
    look: Callable[[], GroupPositions]
    term: int = 0
    known: str = ""
    resumes_unfinished: bool = False
    undoes: bool = False
    target: ResetTarget | None = None
    gather_s: float = 10.0
    run: str = field(default_factory=lambda: secrets.token_hex(16))
    sent: set[str] = field(default_factory=set)
    _began_s: float = 0.0
    _touched: bool = False
    _row: ResetRow | None = None

    def begin(self) -> None:
        """Ask proxies to hold the group. RefusedError if another reset has begun."""
        self._settle()
        self._began_s, now_ms = time.monotonic(), wall_ms()
        before = self._there()
        late = before is not None and now_ms < before.since_ms + MEMBERS_DOUBTED_MS
        away = before.members if before is not None and late else frozenset()
        until_ms = now_ms + int((GROUP_HOLD_S + self.gather_s) * 1000)
        # The row of a resumed reset keeps the first goals, for a later undo.
        goals = (
            _kept_now(before.goals, self.goals) if before is not None and self.resumes_unfinished else tuple(self.goals)
        )
        # HELD means that nothing was touched, but a resumed reset may be half set.
        state = ResetState.SETTING if self.resumes_unfinished else ResetState.HELD
        row = ResetRow(self.group, self.run, state, self.by, now_ms, until_ms, goals, away)
        self._put(row, self.known)
        self._row = row

    def _settle(self) -> None:
        """Wait a while for joining members, since they would have to join twice."""
        until_s = time.monotonic() + SETTLE_TIMEOUT_S
        kafka = self.clusters[self.home]
        with closing(ConsumerGroups(kafka)) as groups:
            while not read_group_members(kafka, find_coordinator_node(kafka, groups, self.group), self.group).settled:
                if time.monotonic() > until_s:
                    return
                time.sleep(_PAUSE_S)

    def _there(self) -> ResetRow | None:
        return next((row for row in self.store.proxy_resets.all()[1] if row.group == self.group), None)

    def _put(self, row: ResetRow, known: str, told: Sequence[AuditRow] = ()) -> None:
        """Replace the row of run `known`. RefusedError if there is another run."""
        while True:
            seen, rows = self.store.proxy_resets.all()
            there = next((reset_row for reset_row in rows if reset_row.group == self.group), None)
            if there is not None and there.run != known:
                raise reset_running(there)
            if self.store.proxy_resets.change(row, seen=seen, rows=told):
                return

    def wait_for_proxies(self) -> int:
        """Wait until all serving proxies hold the group; returns their number. RefusedError after a timeout."""
        began_s = time.monotonic()
        while True:
            live = list_serving_proxies(self.store)
            holds = {row.instance for row in self.store.proxy_resets.statuses(self.run)}
            late = [row.name for row in live if row.id not in holds]
            if not late:
                return len(live)
            if time.monotonic() > began_s + PROXIES_TIMEOUT_S:
                raise RefusedError("proxy.commits-not-held", proxies=join_names(late, _NAMED_MAX))
            time.sleep(_PAUSE_S)

    def is_about_to_set(self) -> None:
        """Make proxies park commits that no coordinator checks. RefusedError as before."""
        assert self._row is not None
        before, self.run = self.run, secrets.token_hex(16)
        self._row = replace(self._row, run=self.run, state=ResetState.SETTING)
        self._put(self._row, before)
        self.wait_for_proxies()

    def look_again(self, *, are_set: bool = False) -> GroupPositions:
        """Read the positions. RefusedError if groups have moved or a goal is stale."""
        there = self.look()
        if (there.home, there.term) != (self.home, self.term):
            raise RefusedError("proxy.groups-moved", home=there.home)
        if why := find_stale_goals(self.goals, there.partitions, are_set=are_set):
            raise RefusedError("proxy.offsets-impossible", causes=join_names(why, _NAMED_MAX, "; "))
        return there

    def set_places(self) -> None:
        self._reckon()
        self._write()

    def _reckon(self) -> None:
        """Remove members, and refresh the goals with what they have committed since planning: a shift starts there, and
        an undo returns there. RefusedError if a shift is impossible.
        """
        self._set_at_home({})
        there = self.look_again(are_set=self.shifts)
        if self.resumes_unfinished:
            return
        self.goals, why = refresh_goals(self.target, self.goals, there.partitions)
        if why:
            raise RefusedError("proxy.offsets-impossible", causes=join_names(why, _NAMED_MAX, "; "))
        assert self._row is not None
        self._row = replace(self._row, goals=tuple(self.goals))
        self._put(self._row, self.run)

    @property
    def shifts(self) -> bool:
        """Whether goals depend on the committed offset or the log's start."""
        return self.target is not None and self.target.way in (ResetTargetKind.SHIFT, ResetTargetKind.EARLIEST)

    def _write(self) -> None:
        here = self._places_of(self.home)
        elsewhere = {name: self._places_of(name) for name in {one.cluster for one in self.goals} - {self.home}}
        for _ in range(_ROUNDS_MAX):
            self._set_at_home(here)
            for name, places in elsewhere.items():
                self._set_elsewhere(name, places)
            # A member here may overwrite offsets kept elsewhere.
            if not elsewhere or not self._members():
                return
        raise KafkaError(f"group {self.group} was joined again and again past the proxies", retriable=True)

    def _places_of(self, cluster: str) -> dict[TopicPartitionTuple, CommittedOffset]:
        return {(one.topic, one.partition): CommittedOffset(one.to) for one in self.goals if one.cluster == cluster}

    def _members(self) -> dict[str, str | None]:
        with closing(ConsumerGroups(self.clusters[self.home])) as groups:
            return read_group_members(
                groups.cluster, find_coordinator_node(groups.cluster, groups, self.group), self.group
            ).members

    def _set_at_home(self, places: dict[TopicPartitionTuple, CommittedOffset]) -> None:
        """Remove members and commit until done. Without `places`, until the group is empty."""
        with closing(ConsumerGroups(self.clusters[self.home])) as groups:
            left = places
            while True:
                node = find_coordinator_node(groups.cluster, groups, self.group)
                there = read_group_members(groups.cluster, node, self.group).members
                if there:
                    self.sent |= there.keys()
                    remove_members(groups.cluster, node, self.group, there)
                left = self._commit(groups, node, left)
                if not left and (places or not there):
                    return
                time.sleep(_PAUSE_S)

    def _set_elsewhere(self, name: str, places: dict[TopicPartitionTuple, CommittedOffset]) -> None:
        with closing(ConsumerGroups(self.clusters[name])) as groups:
            while places:
                places = self._commit(groups, find_coordinator_node(groups.cluster, groups, self.group), places)

    def prove(self) -> None:
        """Check the offsets, and set changed ones once more. RefusedError if groups have moved.

        With members in the group, offsets at home are not checked: one that came past the proxies may have read on.
        """
        if not self._are_others():
            return
        self._write()
        if found := self._are_others():
            raise KafkaError(f"{join_names(found, _NAMED_MAX)}: somebody sets other places", retriable=True)

    def _are_others(self) -> list[str]:
        there = self.look_again(are_set=True)
        return find_unset_goals(self.goals, there.partitions, but=self.home if there.members.members else "")

    def _commit(
        self, groups: ConsumerGroups, node: int, places: dict[TopicPartitionTuple, CommittedOffset]
    ) -> dict[TopicPartitionTuple, CommittedOffset]:
        """Returns the offsets to retry: a member has joined, or the coordinator is moving."""
        if not self._may_write():
            raise KafkaError(f"the places of group {self.group} could not be set in time", retriable=True)
        self._touched |= bool(places)
        codes = groups.commit({node: {self.group: places}} if places else {}, self._may_write).get(self.group, {})
        left = {where: place for where, place in places.items() if codes.get(where, _UNHEARD) != Code.NONE}
        for where in left:
            code = codes.get(where, _UNHEARD)
            if code not in _AGAIN:
                raise kafka_error(code, f"{groups.name}: group {self.group} in {where[0]}-{where[1]}")
        return left

    def _may_write(self) -> bool:
        return time.monotonic() < self._began_s + GROUP_HOLD_S + self.gather_s - COMMIT_ARRIVAL_S

    def gather(self) -> tuple[int, int]:
        """Wait for members to commit and rejoin. Returns how many wait, and of how many."""
        there = self._members()
        came = self._wait_for(min(1, len(there)), min(FIRST_MEMBER_TIMEOUT_S, self.gather_s))
        return self._wait_for(len(there), self.gather_s) if came else came, len(there)

    def gather_late(self) -> int:
        """Wait a short time for removed members to rejoin; returns how many wait."""
        return self._wait_for(len(self.sent), min(LATE_MEMBER_GRACE_S, self.gather_s))

    def _wait_for(self, count: int, within_s: float) -> int:
        until_s = time.monotonic() + within_s
        while True:
            live = {row.id for row in list_serving_proxies(self.store)}
            waits = sum(
                row.waiting_members for row in self.store.proxy_resets.statuses(self.run) if row.instance in live
            )
            if waits >= count or time.monotonic() > until_s:
                return waits
            time.sleep(_PAUSE_S)

    def end(self) -> None:
        """Let members go on at the new offsets, and write the audit."""
        assert self._row is not None
        state = ResetState.ROLLED_BACK if self.undoes else ResetState.DONE
        until_ms = wall_ms() + OUTSIDE_COMMITS_MS
        row = replace(self._row, state=state, until_ms=until_ms, members=self._row.members | self.sent)
        self._put(row, self.run, self._told())

    def give_up(self) -> None:
        """Let members go on at the current offsets; without the store, when the row's `until_ms` is over."""
        if self._row is not None:
            state = self._row.state if self.is_half_done else ResetState.GIVEN_UP
            row = replace(self._row, state=state, until_ms=wall_ms(), members=self._row.members | self.sent)
            with suppress(TwinshoreError):
                self._put(row, self.run)

    @property
    def is_half_done(self) -> bool:
        """Whether some offsets may be set."""
        return self._touched or self.resumes_unfinished

    def _told(self) -> list[AuditRow]:
        found = []
        for topic, goals in group_goals_by_topic(self.goals).items():
            before = ", ".join(f"{one.partition}: {'no place' if one.was is None else one.was}" for one in goals)
            after = ", ".join(f"{one.partition}: {one.to}" for one in goals)
            subject = f"{self.group} in {topic}"
            found.append(
                AuditRow(
                    wall_ms(), "", AUDIT_KIND, subject, before, after, "done", self.by, topic=topic, group=self.group
                )
            )
        return found


def _kept_now(before: Sequence[ResetGoal], now: Sequence[ResetGoal]) -> tuple[ResetGoal, ...]:
    """Returns the goals of `before`, with the clusters of `now`."""
    keeps = {(one.topic, one.partition): one.cluster for one in now}
    return tuple(one._replace(cluster=keeps.get((one.topic, one.partition), one.cluster)) for one in before)
