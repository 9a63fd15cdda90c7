"""Resets a group's offsets while its members run.

A reset has a row in the store. It makes proxies hold the group, removes the members, and commits the new offsets.

A broker accepts commits from outside only for an empty group, and none of removed members. So no old offset overwrites
a new one, even through a proxy that does not know of the reset.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from typing import Final

from twinshore.config.errors import ConfigError, KafkaError, RefusedError, TwinshoreError
from twinshore.config.frozen import GROUPS_HOME
from twinshore.config.model import Plan, TopicPartition
from twinshore.config.schema import did_you_mean
from twinshore.config.sections import near
from twinshore.config.sections.proxy import SECTION
from twinshore.config.sentences import count_phrase, format_time, join_names
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
from twinshore.proxy.cluster_view import merge_home_records, read_stored_homes
from twinshore.proxy.core import offset_reset
from twinshore.proxy.core.follower_fetch import FollowerFetchRules
from twinshore.proxy.core.leader_table import KnownHomes, choose_leader_clusters
from twinshore.proxy.core.model import ProxiedCluster, RoutingTable
from twinshore.proxy.core.offset_reset import ResetPartition, ResetTarget, ResetTargetKind
from twinshore.proxy.operations.breakers import list_serving_proxies
from twinshore.replication.links import load_all_links
from twinshore.routing.core.home_records import HomeRecord
from twinshore.routing.core.leader_cluster import describe_decision
from twinshore.routing.homes_topic import HomesTopic, TwinsTopic
from twinshore.state.core.proxy_values import ResetGoal, ResetRow, ResetState
from twinshore.state.core.values import AuditRow
from twinshore.state.store import Store
from twinshore.state.tables import GROUP_LENGTH

CLUSTER_TIMEOUT_S: Final = 5.0
COORDINATOR_TIMEOUT_S: Final = 8.0
GATHER_TIMEOUT_S: Final = 10.0
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
NAMED_MAX: Final = 5
PARTITIONS_SHOWN_MAX: Final = 1000
UNFINISHED_HINT: Final = "finish it with --resume, or restore the earlier offsets with --undo"
_ROUNDS_MAX: Final = 5
_PAUSE_S: Final = 0.1
_UNHEARD: Final = -2
_AGAIN: Final = frozenset(
    {_UNHEARD, Code.unknown_member_id, Code.rebalance_in_progress, *COORDINATOR_UNAVAILABLE_CODES}
)

TopicSelection = Mapping[str, frozenset[int] | None]


class UnfinishedResetAction(StrEnum):
    RESUME = "resume"
    UNDO = "undo"


@dataclass(frozen=True, slots=True)
class ResetOffsets:
    """A requested reset.

    `topics`: with partitions, None for all; empty: all with a committed offset. `target`: None to only look, or with an
    `unfinished_action`. `gather_s`: how long to wait for members, so that they return together.
    """

    group: str
    topics: TopicSelection
    target: ResetTarget | None = None
    unfinished_action: UnfinishedResetAction | None = None
    gather_s: float = GATHER_TIMEOUT_S

    @property
    def changes(self) -> bool:
        return self.target is not None or self.unfinished_action is not None


def parse_reset_request(
    group: str,
    topics: Sequence[str],
    *,
    earliest: bool = False,
    latest: bool = False,
    offset: int | None = None,
    time: str = "",
    shift: int | None = None,
    resume: bool = False,
    undo: bool = False,
    gather_s: float = GATHER_TIMEOUT_S,
) -> ResetOffsets:
    """Parse the options. ConfigError if they contradict."""
    target = offset_reset.parse_target(
        earliest=earliest, latest=latest, offset=offset, time=time, shift=shift, unfinished=resume + undo
    )
    if (resume or undo) and topics:
        raise ConfigError("proxy.reset-with-topics")
    if not group or len(group) > GROUP_LENGTH:
        raise ConfigError("proxy.group-name-invalid", max=GROUP_LENGTH)
    action = UnfinishedResetAction.RESUME if resume else UnfinishedResetAction.UNDO if undo else None
    return ResetOffsets(group, offset_reset.parse_topics(topics), target, action, gather_s)


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
    found, silent, records = dict[str, ProxiedCluster](), dict[str, KafkaError](), list[Mapping[str, HomeRecord]]()
    for name, kafka in clusters.items():
        try:
            metadata = kafka.metadata()
            records.append(HomesTopic(kafka).read())
            twins_topic = TwinsTopic(kafka)
            twin_ids, may_be_twins = twins_topic.read(), twins_topic.may_be()
        except KafkaError as error:
            silent[name] = error
            found[name] = ProxiedCluster(name, "", -1, {}, frozenset(), {}, answers=False)
            continue
        ids = {name: topic.topic_id.hex() for name, topic in metadata.topics.items() if not topic.internal}
        twins = frozenset(topic for topic, topic_id in ids.items() if topic in may_be_twins or topic_id in twin_ids)
        identity = name, metadata.cluster_id, metadata.controller
        found[name] = ProxiedCluster(*identity, {}, frozenset(ids), {}, twins=twins)
    links = load_all_links(settings, store)
    homes, _ = read_stored_homes(links, store, found.keys())
    by_copies = choose_leader_clusters(found.values(), homes, KnownHomes(links))
    return RoutingTable(found, homes, leads=merge_home_records(records, found, settings), by_copies=by_copies), silent


def read_group_positions(
    group: str,
    wanted: TopicSelection,
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
    if leaderless := [topic for topic in wanted if topic in table.leaderless]:
        cause = describe_decision(leaderless[0], table.leaderless[leaderless[0]])
        raise RefusedError("proxy.topic-without-leader", cause=cause)
    if unknown := [topic for topic in wanted if table.route(topic) is None]:
        nearest = did_you_mean(unknown[0], sorted(table.routes))
        raise ConfigError("proxy.no-such-topic", topic=unknown[0], nearest=nearest)
    listed = {name: list_groups(clusters[name]) for name in clusters if name not in silent}
    offsets = {
        (name, *where): offset
        for name, groups in listed.items()
        if group in groups
        for where, offset in _read_offsets(clusters[name], groups[group]).items()
        if table.keeps(where[0]) == name
    }
    check_no_site_topics({*wanted, *(topic for _, topic, _ in offsets)}, table, settings)
    members = _members(clusters[home], group, listed[home], known=bool(offsets))
    for name in {cluster for cluster, _, _ in offsets} - {home}:
        if read_group_members(clusters[name], listed[name][group].coordinator, group).members:
            raise RefusedError("proxy.members-without-proxy", group=group, cluster=name)
    partitions = _read_partitions(table, offsets, wanted, clusters, since_ms)
    lead = table.leads.get(GROUPS_HOME)
    return GroupPositions(home, members, tuple(partitions), silent, lead.term if lead is not None else 0)


def check_no_site_topics(topics: Iterable[str], table: RoutingTable, settings: Settings) -> None:
    """Refuse topics that exist separately at each site, whose log is ambiguous. RefusedError."""
    rules = FollowerFetchRules(own_topics=settings.of(near.SECTION).own_topics)
    for topic in sorted(topics):
        several = sum(topic in cluster.topics for cluster in table.clusters.values()) > 1
        if several and rules.is_own(topic) and not table.has_home(topic):
            raise RefusedError("proxy.topic-at-each-site", topic=topic)


def list_groups(cluster: KafkaCluster) -> dict[str, GroupListing]:
    """List groups, of all brokers. Asking for the coordinator of an unknown group would create the offsets topic."""
    with closing(ConsumerGroups(cluster)) as groups:
        found = groups.listed()
    for error in found.away.values():
        raise RefusedError("proxy.groups-unlisted", cluster=cluster.name, cause=error.message)
    return found.groups


def _read_offsets(cluster: KafkaCluster, group: GroupListing) -> dict[TopicPartitionTuple, int]:
    with closing(ConsumerGroups(cluster)) as groups:
        found, away = groups.places({group.coordinator: {group.group: None}}, {})
    if away or group.group not in found or found[group.group].error:
        raise RefusedError("proxy.offsets-unread", cause=f"group {group.group} on {cluster.name}")
    return {where: place.offset for where, place in found[group.group].places.items()}


def _members(cluster: KafkaCluster, group: str, there: Mapping[str, GroupListing], *, known: bool) -> GroupMembers:
    if group not in there:
        if not known:
            nearest = did_you_mean(group, sorted(there))
            raise ConfigError("proxy.no-such-group", group=group, cluster=cluster.name, nearest=nearest)
        return GroupMembers(DEAD_STATE, {})
    listing = there[group]
    if listing.kind == CONSUMER_TYPE and listing.live:
        raise RefusedError("proxy.reset-needs-empty-group", group=group)
    empty = listing.kind == CONSUMER_TYPE and listing.state == EMPTY_STATE  # takes the protocol of the next member
    if not empty and (listing.kind != CLASSIC_TYPE or listing.protocol not in ("", "consumer")):
        raise RefusedError("proxy.not-a-consumer-group", group=group)
    return read_group_members(cluster, listing.coordinator, group)


def _read_partitions(
    table: RoutingTable,
    offsets: Mapping[tuple[str, str, int], int],
    wanted: TopicSelection,
    clusters: Mapping[str, KafkaCluster],
    since_ms: int | None,
) -> list[ResetPartition]:
    by_route: dict[str, list[TopicPartition]] = {}
    for topic in wanted or sorted({topic for _, topic, _ in offsets}):
        route = table.route(topic)
        if route is None:
            continue  # the topic is deleted, and the committed offset has remained
        there = clusters[route].metadata([topic]).topics.get(topic)
        numbers = range(len(there.partitions)) if there is not None else range(0)
        chosen = wanted.get(topic) if wanted else frozenset(number for _, name, number in offsets if name == topic)
        if wanted and (unknown := sorted((chosen or frozenset()) - set(numbers))):
            raise ConfigError("proxy.no-such-partition", topic=topic, count=len(numbers), partition=unknown[0])
        some = numbers if chosen is None else sorted(chosen & set(numbers))
        by_route.setdefault(route, []).extend(TopicPartition(topic, number) for number in some)
    found: list[ResetPartition] = []
    for route, partitions in by_route.items():
        begins = clusters[route].list_offsets(partitions, OffsetKind.EARLIEST)
        ends = clusters[route].list_offsets(partitions, OffsetKind.HIGH_WATERMARK)
        since, failed = clusters[route].first_since_each(partitions, since_ms) if since_ms is not None else ({}, {})
        for error in failed.values():
            raise error
        for tp in partitions:
            where = table.keeps(tp.topic), tp.topic, tp.partition
            found.append(ResetPartition(*where, offsets.get(where), begins[tp], ends[tp], since.get(tp, -1)))
    return sorted(found, key=lambda partition: (partition.topic, partition.partition))


class OffsetResetStage(StrEnum):
    """The stages, in order."""

    HOLD = "hold"
    GATHER = "gather"
    SET = "set"
    REJOIN = "go"


_WORDS: Final = {
    OffsetResetStage.HOLD: ("have group {group} held by {count}", "group {group} is held by {count}"),
    OffsetResetStage.GATHER: ("have members commit and wait", "{count} of {members} have committed, and wait"),
    OffsetResetStage.SET: (
        "remove {members} from the group, and set {places}",
        "{members} removed from the group, and {places} set{came}",
    ),
    OffsetResetStage.REJOIN: ("let members rejoin", "members rejoin; {count} of {members} had come by then"),
}


@dataclass(frozen=True, slots=True)
class OffsetResetStep:
    """A stage. `counts`: the numbers of the sentence."""

    stage: OffsetResetStage
    group: str
    counts: Mapping[str, str]

    def sentence(self, *, done: bool) -> str:
        return _WORDS[self.stage][done].format(group=self.group, **self.counts)


@dataclass(frozen=True, slots=True)
class OffsetResetPlan(Plan[OffsetResetStep]):
    """A planned reset. `known`: the earlier reset's run. `term`: how often groups had moved."""

    home: str = ""
    term: int = 0
    goals: tuple[ResetGoal, ...] = ()
    known: str = ""

    def done(self, stage: OffsetResetStage, **counts: str) -> OffsetResetStep:
        step = next(step for step in self.steps if step.stage is stage)
        return replace(step, counts={**step.counts, **counts})


def find_reset(store: Store, group: str) -> ResetRow | None:
    return next((row for row in store.proxy_resets.all()[1] if row.group == group), None)


def is_reset_unfinished(row: ResetRow | None) -> bool:
    """Whether a reset stopped with some offsets set."""
    return row is not None and row.state is ResetState.SETTING and not row.holds(wall_ms())


def check_no_reset_under_way(store: Store) -> None:
    """Raise RefusedError during a reset, which would set offsets where no client reads any more."""
    for row in store.proxy_resets.all()[1]:
        if row.holds(wall_ms()):
            raise reset_running(row)


def reset_running(row: ResetRow) -> RefusedError:
    since, until = format_time(row.since_ms), format_time(row.until_ms)
    return RefusedError("proxy.reset-running", group=row.group, by=row.set_by, since=since, until=until)


def plan(request: ResetOffsets, settings: Settings, store: Store) -> OffsetResetPlan:
    """Plan a reset. ConfigError if there is no such group, topic or partition."""
    before = find_reset(store, request.group)
    if before is not None and before.holds(wall_ms()) and request.changes:
        raise reset_running(before)
    if request.unfinished_action is not None and not is_reset_unfinished(before):
        raise ConfigError("proxy.no-unfinished-reset", group=request.group)
    with ExitStack() as stack:
        clusters = _clusters(settings, stack)
        by_time = request.target is not None and request.target.way is ResetTargetKind.TIME
        since_ms = request.target.number if request.target is not None and by_time else None
        topics = request.topics if request.unfinished_action is None or before is None else _topics(before.goals)
        there = read_group_positions(request.group, topics, clusters, settings, store, since_ms)
    return _plan(request, there, before, len(list_serving_proxies(store)))


def _topics(goals: Sequence[ResetGoal]) -> dict[str, frozenset[int]]:
    by_topic = offset_reset.group_goals_by_topic(goals)
    return {topic: frozenset(goal.partition for goal in goals) for topic, goals in by_topic.items()}


def _plan(request: ResetOffsets, there: GroupPositions, before: ResetRow | None, proxies: int) -> OffsetResetPlan:
    silent = there.silent.items()
    remarks = [f"{name} does not answer ({error.message}): offsets there are unknown" for name, error in silent]
    count = len(there.members.members)
    shown = [f"group {request.group} is at home on {there.home}, and has {count_phrase(count, 'member')}"]
    if before is not None and before.holds(wall_ms()):
        shown.append(reset_running(before).message)
    refusal: TwinshoreError | None = None
    if before is not None and is_reset_unfinished(before):
        since = format_time(before.since_ms)
        refusal = RefusedError(
            "proxy.reset-unfinished", hint=UNFINISHED_HINT, group=request.group, by=before.set_by, since=since
        )
        shown.append(refusal.message)
    goals, why = _goals(request, there, before)
    if request.unfinished_action is not None:
        remarks, why, refusal = [*remarks, *why], [], None
    to = {(goal.topic, goal.partition): goal.to for goal in goals}
    shown += [
        offset_reset.describe_partition(partition, to.get((partition.topic, partition.partition)))
        for partition in there.partitions[:PARTITIONS_SHOWN_MAX]
    ]
    if len(there.partitions) > PARTITIONS_SHOWN_MAX:
        shown.append(f"and {len(there.partitions) - PARTITIONS_SHOWN_MAX} more partitions")
    members = count_phrase(count, "member")
    if refusal is None and why:
        refusal = RefusedError("proxy.offsets-impossible", causes=join_names(why, NAMED_MAX, "; "))
    if refusal is None and count and not proxies:
        refusal = RefusedError("proxy.no-proxy-serves", group=request.group, members=members)
    if not request.changes or refusal is not None or not goals:
        return OffsetResetPlan((), tuple(shown), tuple(remarks), refusal if request.changes else None)
    undone = before.goals if before is not None and request.unfinished_action is UnfinishedResetAction.UNDO else ()
    if new := [f"{goal.topic}-{goal.partition}" for goal in undone if goal.was is None]:
        remarks.append(f"offsets stay where there was none before: {join_names(new, NAMED_MAX)}")
    counts = {"count": _proxies(proxies), "members": members, "came": ""}
    counts["places"] = count_phrase(len(goals), "committed offset")
    steps = tuple(OffsetResetStep(stage, request.group, counts) for stage in OffsetResetStage)
    known = before.run if before is not None else ""
    return OffsetResetPlan(steps, tuple(shown), tuple(remarks), None, there.home, there.term, goals, known)


def _goals(
    request: ResetOffsets, there: GroupPositions, before: ResetRow | None
) -> tuple[tuple[ResetGoal, ...], list[str]]:
    if request.unfinished_action is None or before is None:
        return offset_reset.compute_goals(request.target, there.partitions) if request.target is not None else ((), [])
    undoes = request.unfinished_action is UnfinishedResetAction.UNDO
    goals = offset_reset.reverse_goals(before.goals) if undoes else before.goals
    return offset_reset.resume_goals(goals, there.partitions)


def act(
    request: ResetOffsets, plan: OffsetResetPlan, settings: Settings, store: Store, by: str
) -> Iterator[OffsetResetStep]:
    """Yields each finished step. On an error before offsets are set, members go on at the old ones."""
    if not plan.steps:
        return
    with ExitStack() as stack:
        clusters = _clusters(settings, stack)
        look = partial(read_group_positions, request.group, _topics(plan.goals), clusters, settings, store)
        reset = OffsetReset(request, plan, clusters, store, by, look)
        try:
            reset.begin()
            held = reset.wait_for_proxies()
            reset.look_again(are_set=reset.shifts)
            yield plan.done(OffsetResetStage.HOLD, count=_proxies(held))
            came, of = reset.gather()
            yield plan.done(OffsetResetStage.GATHER, count=str(came), members=count_phrase(of, "member"))
            reset.is_about_to_set()
            reset.set_offsets()
            sent = count_phrase(len(reset.sent), "member")
            yield plan.done(OffsetResetStage.SET, members=sent, came=_came(request, reset.goals))
            came = reset.gather_late()
            reset.prove()
            reset.end()
        except BaseException as error:
            reset.give_up()
            if isinstance(error, TwinshoreError) and reset.is_half_done:
                error.hint = UNFINISHED_HINT
            if isinstance(error, KeyboardInterrupt):
                left = f"some offsets may be set; {UNFINISHED_HINT}" if reset.is_half_done else "no offset has changed"
                raise KeyboardInterrupt(f"group {request.group}: {left}") from error
            raise
        yield plan.done(OffsetResetStage.REJOIN, count=str(came), members=sent)


def _came(request: ResetOffsets, goals: Sequence[ResetGoal]) -> str:
    """Describe a shift's goals: members may have committed since the plan was shown."""
    if request.target is None or request.target.way is not ResetTargetKind.SHIFT:
        return ""
    return ": " + join_names([f"{goal.topic}-{goal.partition}: {goal.was} -> {goal.to}" for goal in goals], NAMED_MAX)


def _proxies(count: int) -> str:
    return f"{count} prox{'y' if count == 1 else 'ies'}"


def _clusters(settings: Settings, stack: ExitStack) -> dict[str, KafkaCluster]:
    found: dict[str, KafkaCluster] = {}
    for name in settings.of(SECTION).clusters:
        cluster = KafkaCluster(settings.cluster(name), patience_s=CLUSTER_TIMEOUT_S, call_s=CLUSTER_TIMEOUT_S)
        found[name] = stack.enter_context(closing(cluster))
    return found


class OffsetReset:
    """The reset of one group, as `request` and `plan` say. `look`: reads the positions.

    `run`: this reset's row, if it still has this run. `sent`: members removed so far.
    """

    def __init__(
        self,
        request: ResetOffsets,
        plan: OffsetResetPlan,
        clusters: Mapping[str, KafkaCluster],
        store: Store,
        by: str,
        look: Callable[[], GroupPositions],
    ) -> None:
        self._request, self._plan, self._clusters, self._store, self._by = request, plan, clusters, store, by
        self._group, self._look, self.goals = request.group, look, plan.goals
        self._resumes = request.unfinished_action is not None
        self._run = secrets.token_hex(16)
        self.sent: set[str] = set()
        self._began_s = 0.0
        self._touched = False
        self._row: ResetRow | None = None

    def begin(self) -> None:
        """Ask proxies to hold the group. RefusedError if another reset has begun."""
        self._settle()
        self._began_s, now_ms = time.monotonic(), wall_ms()
        before = find_reset(self._store, self._group)
        late = before is not None and now_ms < before.since_ms + offset_reset.MEMBERS_DOUBTED_MS
        away = before.members if before is not None and late else frozenset()
        until_ms = now_ms + int((GROUP_HOLD_S + self._request.gather_s) * 1000)
        # The row of a resumed reset keeps the first goals, for a later undo.
        goals = _kept_now(before.goals, self.goals) if before is not None and self._resumes else self.goals
        # HELD means that nothing was touched, but a resumed reset may be half set.
        state = ResetState.SETTING if self._resumes else ResetState.HELD
        row = ResetRow(self._group, self._run, state, self._by, now_ms, until_ms, goals, away)
        self._put(row, self._plan.known)
        self._row = row

    def _settle(self) -> None:
        """Wait a while for joining members, since they would have to join twice."""
        until_s = time.monotonic() + SETTLE_TIMEOUT_S
        while not self._members().settled and time.monotonic() <= until_s:
            time.sleep(_PAUSE_S)

    def _put(self, row: ResetRow, known: str, told: Sequence[AuditRow] = ()) -> None:
        """Replace the row of run `known`. RefusedError if there is another run."""
        while True:
            seen, rows = self._store.proxy_resets.all()
            for there in rows:
                if there.group == self._group and there.run != known:
                    raise reset_running(there)
            if self._store.proxy_resets.change(row, seen=seen, rows=told):
                return

    def wait_for_proxies(self) -> int:
        """Wait until all serving proxies hold the group; returns their number. RefusedError after a timeout."""
        began_s = time.monotonic()
        while True:
            live = list_serving_proxies(self._store)
            holds = {row.instance for row in self._store.proxy_resets.statuses(self._run)}
            late = [row.name for row in live if row.id not in holds]
            if not late:
                return len(live)
            if time.monotonic() > began_s + PROXIES_TIMEOUT_S:
                raise RefusedError("proxy.commits-not-held", proxies=join_names(late, NAMED_MAX))
            time.sleep(_PAUSE_S)

    def is_about_to_set(self) -> None:
        """Make proxies park commits that no coordinator checks. RefusedError as before."""
        assert self._row is not None
        before, self._run = self._run, secrets.token_hex(16)
        self._row = replace(self._row, run=self._run, state=ResetState.SETTING)
        self._put(self._row, before)
        self.wait_for_proxies()

    def look_again(self, *, are_set: bool = False) -> GroupPositions:
        """Read the positions. RefusedError if groups have moved or a goal is stale."""
        there = self._look()
        if (there.home, there.term) != (self._plan.home, self._plan.term):
            raise RefusedError("proxy.groups-moved", home=there.home)
        _refuse_if(offset_reset.find_stale_goals(self.goals, there.partitions, are_set=are_set))
        return there

    def set_offsets(self) -> None:
        """Remove members, and refresh the goals with what they have committed since planning: a shift starts there, and
        an undo returns there. Then commit. RefusedError if a shift is impossible.
        """
        self._set(self._plan.home, {})
        there = self.look_again(are_set=self.shifts)
        if not self._resumes:
            assert self._row is not None
            self.goals, why = offset_reset.refresh_goals(self._request.target, self.goals, there.partitions)
            _refuse_if(why)
            self._row = replace(self._row, goals=self.goals)
            self._put(self._row, self._run)
        self._write()

    @property
    def shifts(self) -> bool:
        """Whether goals depend on the committed offset or the log's start."""
        return self._request.target is not None and self._request.target.is_relative

    def _write(self) -> None:
        offsets: dict[str, dict[TopicPartitionTuple, CommittedOffset]] = {self._plan.home: {}}
        for goal in self.goals:
            offsets.setdefault(goal.cluster, {})[goal.topic, goal.partition] = CommittedOffset(goal.to)
        for _ in range(_ROUNDS_MAX):
            for name, places in offsets.items():
                self._set(name, places)
            # A member here may overwrite offsets kept elsewhere.
            if len(offsets) == 1 or not self._members().members:
                return
        raise KafkaError(f"group {self._group} was joined again and again past the proxies", retriable=True)

    def _members(self) -> GroupMembers:
        with closing(ConsumerGroups(self._clusters[self._plan.home])) as groups:
            return read_group_members(groups.cluster, find_coordinator_node(groups, self._group), self._group)

    def _set(self, name: str, places: dict[TopicPartitionTuple, CommittedOffset]) -> None:
        """Commit until done; at the home, also remove members. Without `places`, until the group is empty."""
        with closing(ConsumerGroups(self._clusters[name])) as groups:
            left = places
            while True:
                node, members = find_coordinator_node(groups, self._group), dict[str, str | None]()
                if name == self._plan.home:
                    members = read_group_members(groups.cluster, node, self._group).members
                if members:
                    self.sent |= members.keys()
                    remove_members(groups.cluster, node, self._group, members)
                left = self._commit(groups, node, left)
                if not left and (places or not members):
                    return
                time.sleep(_PAUSE_S)

    def prove(self) -> None:
        """Check the offsets, and set changed ones once more. RefusedError if groups have moved.

        With members in the group, offsets at home are not checked: one that came past the proxies may have read on.
        """
        if not self._find_unset():
            return
        self._write()
        if found := self._find_unset():
            raise KafkaError(f"{join_names(found, NAMED_MAX)}: another client sets other offsets", retriable=True)

    def _find_unset(self) -> list[str]:
        there = self.look_again(are_set=True)
        but = self._plan.home if there.members.members else ""
        return offset_reset.find_unset_goals(self.goals, there.partitions, but=but)

    def _commit(
        self, groups: ConsumerGroups, node: int, places: dict[TopicPartitionTuple, CommittedOffset]
    ) -> dict[TopicPartitionTuple, CommittedOffset]:
        """Returns the offsets to retry: a member has joined, or the coordinator is moving."""
        if not self._may_write():
            raise KafkaError(f"the offsets of group {self._group} could not be set in time", retriable=True)
        self._touched |= bool(places)
        codes = groups.commit({node: {self._group: places}} if places else {}, self._may_write).get(self._group, {})
        left = {where: place for where, place in places.items() if codes.get(where, _UNHEARD) != Code.none}
        for where in left:
            code = codes.get(where, _UNHEARD)
            if code not in _AGAIN:
                raise kafka_error(code, f"{groups.name}: group {self._group} in {where[0]}-{where[1]}")
        return left

    def _may_write(self) -> bool:
        return time.monotonic() < self._began_s + GROUP_HOLD_S + self._request.gather_s - COMMIT_ARRIVAL_S

    def gather(self) -> tuple[int, int]:
        """Wait for members to commit and rejoin. Returns how many wait, and of how many."""
        count = len(self._members().members)
        came = self._wait_for(min(1, count), FIRST_MEMBER_TIMEOUT_S)
        return self._wait_for(count, self._request.gather_s) if came else came, count

    def gather_late(self) -> int:
        """Wait a short time for removed members to rejoin; returns how many wait."""
        return self._wait_for(len(self.sent), LATE_MEMBER_GRACE_S)

    def _wait_for(self, count: int, within_s: float) -> int:
        until_s = time.monotonic() + min(within_s, self._request.gather_s)
        while True:
            live = {row.id for row in list_serving_proxies(self._store)}
            statuses = self._store.proxy_resets.statuses(self._run)
            waits = sum(row.waiting_members for row in statuses if row.instance in live)
            if waits >= count or time.monotonic() > until_s:
                return waits
            time.sleep(_PAUSE_S)

    def end(self) -> None:
        """Let members go on at the new offsets, and write the audit."""
        assert self._row is not None
        undoes = self._request.unfinished_action is UnfinishedResetAction.UNDO
        state = ResetState.ROLLED_BACK if undoes else ResetState.DONE
        until_ms = wall_ms() + OUTSIDE_COMMITS_MS
        row = replace(self._row, state=state, until_ms=until_ms, members=self._row.members | self.sent)
        self._put(row, self._run, self._audit_rows())

    def give_up(self) -> None:
        """Let members go on at the current offsets; without the store, when the row's `until_ms` is over."""
        if self._row is not None:
            state = self._row.state if self.is_half_done else ResetState.GIVEN_UP
            row = replace(self._row, state=state, until_ms=wall_ms(), members=self._row.members | self.sent)
            with suppress(TwinshoreError):
                self._put(row, self._run)

    @property
    def is_half_done(self) -> bool:
        """Whether some offsets may be set."""
        return self._touched or self._resumes

    def _audit_rows(self) -> list[AuditRow]:
        rows = []
        for topic, goals in offset_reset.group_goals_by_topic(self.goals).items():
            before = ", ".join(f"{goal.partition}: {'none' if goal.was is None else goal.was}" for goal in goals)
            after = ", ".join(f"{goal.partition}: {goal.to}" for goal in goals)
            what = (wall_ms(), "", AUDIT_KIND, f"{self._group} in {topic}", before, after, "done", self._by)
            rows.append(AuditRow(*what, topic=topic, group=self._group))
        return rows


def _refuse_if(causes: Sequence[str]) -> None:
    if causes:
        raise RefusedError("proxy.offsets-impossible", causes=join_names(causes, NAMED_MAX, "; "))


def _kept_now(before: Sequence[ResetGoal], now: Sequence[ResetGoal]) -> tuple[ResetGoal, ...]:
    """Returns the goals of `before`, with the clusters of `now`."""
    keeps = {(goal.topic, goal.partition): goal.cluster for goal in now}
    return tuple(goal._replace(cluster=keeps.get((goal.topic, goal.partition), goal.cluster)) for goal in before)


def find_coordinator_node(groups: ConsumerGroups, group: str) -> int:
    """Returns the group's coordinator. A cluster without groups needs some seconds to have one."""
    until_s = steady_s() + COORDINATOR_TIMEOUT_S
    while True:
        located = groups.located([group])
        if group in located.errors:
            raise located.errors[group]
        if group in located.nodes:
            return located.nodes[group]
        if steady_s() > until_s:
            raise KafkaError(f"{groups.name}: group {group} has no coordinator just now", retriable=True)
        time.sleep(_PAUSE_S)
