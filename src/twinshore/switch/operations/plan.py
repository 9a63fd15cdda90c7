"""Plans a switch, and changes nothing: the topics, their link, obstacles, the possible loss, and writers that nothing
can hold.

A forced switch also takes over the switches of dead processes on its topics.
"""

from __future__ import annotations

import re
import secrets
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

from twinshore.config.errors import ConfigError, KafkaError, RefusedError, TwinshoreError
from twinshore.config.model import (
    TERM_MAX,
    WRITE_PAUSE_S,
    Link,
    OffsetMode,
    Plan,
    TwinNaming,
    is_heartbeats_topic,
    is_internal_topic,
)
from twinshore.config.schema import did_you_mean, pattern_error
from twinshore.config.sentences import count_phrase, join_names
from twinshore.config.settings import Settings
from twinshore.groups.core.goals import describe_rereads
from twinshore.groups.offset_move import inspect_groups, links_between
from twinshore.kafka.admin import may_alter_acls, read_acls
from twinshore.kafka.brokers import read_log_dirs
from twinshore.kafka.clock import wall_ms
from twinshore.kafka.cluster import KafkaCluster
from twinshore.replication.core.filters import admits
from twinshore.replication.core.incident_rules import DiskSpace, describe_disks, judge_disk_space
from twinshore.replication.core.lag import LAG_KIND, parse_lag
from twinshore.replication.core.ownership import find_reverse_link, pair_name
from twinshore.replication.links import effective_links
from twinshore.replication.task.lookups import may_write_markers
from twinshore.runtime.endpoints import LinkClients, verify_cluster_ids
from twinshore.runtime.lease_keeper import exclusive
from twinshore.state.core.values import TwinRow
from twinshore.state.store import Store
from twinshore.switch.announce import read_homes, refuse_claimed_topics
from twinshore.switch.core.acl_rules import (
    DeferredCleanup,
    denies_writing,
    describe_old_home_writers,
    has_promoted,
    plan_denial,
    select_rights,
)
from twinshore.switch.core.steps import (
    MAKES_TWINS,
    MOVES_HOMES,
    STEPS,
    SwitchKind,
    SwitchState,
    SwitchStep,
    TopicMove,
    parse_switch_state,
    switch_lease,
)
from twinshore.switch.core.takeover import (
    describe_refilling_topics,
    describe_takeover,
    describe_torn_transactions,
    estimate_unreplicated,
    find_topics_moved_since,
    homes_by_topic,
    is_reversed_by,
    mark_taken_over,
    refilling_topics,
    topics_freed,
    why_not_take_over,
)
from twinshore.switch.drain import (
    count_missing_offsets,
    describe_stopped_partitions,
    find_paused_topics,
    why_unreachable,
)
from twinshore.switch.handover import describe_inconsistent_groups
from twinshore.switch.protected_topics import describe_losses
from twinshore.switch.write_access import clean_up, defer_cleanup, read_acl_snapshot

# A topic's whole name; its dots may be escaped as in a pattern.
TOPIC_NAME_PATTERN = re.compile(r"(?:[a-zA-Z0-9_-]|\\?\.)+")


REQUEST_TIMEOUT_S = 5.0
GONE_HOME_TIMEOUT_S = 1.5  # for an old home that is down, as the operator says


@dataclass(frozen=True, slots=True)
class SwitchPlanRequest:
    """Move the topics whose whole names match one of `topics` to the home `to`.

    `links`: only topics of these links. `hold_s`: how long writers may wait before the switch rolls back. `group`: move
    only this group, and no topic. `wave`: move all topics, so many at once; 0: the matched ones. `of`: topics that this
    switch has moved. `producer`: this producer alone, which is always refused. `bare`: without data.
    """

    topics: Sequence[str]
    to: str
    links: Sequence[str] = ()
    force: bool = False
    drill: bool = False
    hold_s: float = WRITE_PAUSE_S
    group: str = ""
    wave: int = 0
    of: str = ""
    producer: str = ""
    bare: bool = False

    @property
    def kind(self) -> SwitchKind:
        if self.drill:
            return SwitchKind.DRILL
        return SwitchKind.FORCED if self.force else SwitchKind.PLANNED


def current_links(settings: Settings, store: Store) -> list[Link]:
    return [effective.link for effective in effective_links(settings.links, store).values()]


def open_cluster(name: str, settings: Settings, timeout_s: float = REQUEST_TIMEOUT_S) -> closing[KafkaCluster]:
    """Returns the cluster for a `with` block, which closes it."""
    return closing(KafkaCluster(settings.cluster(name), patience_s=timeout_s, call_s=timeout_s))


def open_link(link: Link, settings: Settings) -> LinkClients:
    return LinkClients(link, settings, patience_s=REQUEST_TIMEOUT_S, call_s=REQUEST_TIMEOUT_S)


def check_expressions(topics: Sequence[str]) -> None:
    """Raises ConfigError if one of the patterns is invalid."""
    for pattern in topics:
        if why := pattern_error(pattern):
            raise ConfigError("switch.bad-expression", cause=why)


def carrier_of(request: SwitchPlanRequest, settings: Settings, store: Store) -> tuple[Link, list[str]]:
    link, rows = find_link(request, current_links(settings, store), store)
    return link, sorted({row.topic for row in rows})


def links_leading_to(target: str, names: Sequence[str], links: Sequence[Link]) -> list[Link]:
    """Returns the links that lead to `target`; with `names`, only these."""
    return [link for link in links if link.target == target and (not names or link.name in names)]


@dataclass(frozen=True, slots=True)
class MatchedTopics:
    """`rows`: matched twins by link. `known`: all topics with twins there. `lacking`: patterns without a match, neither
    a twin nor a topic already at home there. `dotted`: topic names that, through their dots, match other topics.
    `settled`: topics that need no twin, as they are at home there or are twins.
    """

    rows: dict[str, list[TwinRow]]
    known: list[str]
    lacking: list[str]
    dotted: dict[str, list[str]]
    settled: frozenset[str] = frozenset()


def match_topics(request: SwitchPlanRequest, links: Sequence[Link], store: Store) -> MatchedTopics:
    """The whole name of a topic matches only that topic, even if the pattern matches others."""
    into = links_leading_to(request.to, request.links, links)
    rows: dict[str, list[TwinRow]] = {}
    for link in into:
        active = [row for row in store.twins.active(link.name) if not is_heartbeats_topic(row.topic)]
        # By force also what the link replicates no more: the replicated records are all there is.
        rows[link.name] = [row for row in active if request.force or admits(link, row.topic)]
    known = {row.topic for twins in rows.values() for row in twins}
    at_home = _at_home(request, into, links, store)
    matches = {pattern: _matching(pattern, known | at_home) for pattern in request.topics}
    wanted = {topic for topics in matches.values() for topic in topics}
    matched = {name: [row for row in twins if row.topic in wanted] for name, twins in rows.items()}
    dotted = {
        pattern: sorted(topics)
        for pattern, topics in matches.items()
        if topics and topics != [pattern.replace("\\", "")] and TOPIC_NAME_PATTERN.fullmatch(pattern)
    }
    return MatchedTopics(
        {name: twins for name, twins in matched.items() if twins},
        sorted(known),
        [pattern for pattern, topics in matches.items() if not topics],
        dotted,
        frozenset(at_home | _twins_on_sources(into, links, store)),
    )


def match_topics_without_twins(
    request: SwitchPlanRequest, link: Link, matched: MatchedTopics, topics: Iterable[str]
) -> list[str]:
    """Returns matched and admitted topics of the source that have no twin yet."""
    settled = {row.topic for row in matched.rows.get(link.name, ())} | set(matched.known) | matched.settled
    new = [topic for topic in topics if topic not in settled and not is_internal_topic(topic) and admits(link, topic)]
    patterns = [pattern for pattern in request.topics if pattern not in settled]
    return sorted({topic for pattern in patterns for topic in _matching(pattern, new)})


def find_link(request: SwitchPlanRequest, links: Sequence[Link], store: Store) -> tuple[Link, list[TwinRow]]:
    """Returns the one link that replicates the topics, and their twins. Raises ConfigError if any pattern has no match,
    maybe a typo.
    """
    into = links_leading_to(request.to, request.links, links)
    if not into:
        raise ConfigError("switch.no-link-to", to=request.to)
    found = match_topics(request, links, store)
    # Some topics that another switch has moved may be gone by now.
    if found.lacking and not (found.rows and request.of):
        raise no_link_error(found.lacking, into, request.to, found.known)
    if not found.rows:
        raise RefusedError("switch.at-home-already", topics=join_names(request.topics), cluster=request.to)
    if len(found.rows) > 1:
        links_named = join_names(sorted(found.rows))
        raise ConfigError("switch.several-links", topics=join_names(request.topics), links=links_named)
    ((name, rows),) = found.rows.items()
    return next(link for link in into if link.name == name), rows


def no_link_error(topics: Sequence[str], links: Sequence[Link], to: str, known: Sequence[str]) -> ConfigError:
    near = did_you_mean(topics[0], sorted(known))
    sources = join_names(sorted({link.source for link in links}))
    return ConfigError("switch.no-link-for", to=to, topics=join_names(topics), near=near, sources=sources)


def _matching(pattern: str, topics: Collection[str]) -> list[str]:
    return [pattern] if pattern in topics else [topic for topic in topics if re.fullmatch(pattern, topic)]


def _at_home(request: SwitchPlanRequest, into: Sequence[Link], links: Sequence[Link], store: Store) -> set[str]:
    """Returns topics already at home on the target, including those that never switched."""
    homes = {row.topic: row.home for link in into for row in store.homes.of(pair_name(link)).values()}
    reverse = [find_reverse_link(link, links) for link in into]
    back = {row.topic for link in reverse if link for row in store.twins.active(link.name)}
    return {topic for topic, home in homes.items() if home == request.to} | (back - homes.keys())


def _twins_on_sources(into: Sequence[Link], links: Sequence[Link], store: Store) -> set[str]:
    """Returns topics that are twins on the source of a link without `chain`, which does not replicate them."""
    sources = {link.source for link in into if not link.chain}
    others = [link for link in links if link.target in sources]
    return {link.twin_of(row.topic) for link in others for row in store.twins.active(link.name)}


def escape_topic(topic: str) -> str:
    return topic.replace(".", "\\.")


MIN_ISR = "min.insync.replicas"


def describe_unheld_writers(old: KafkaCluster, topics: Sequence[str]) -> tuple[str, ...]:
    """Brokers do not list their super users. Raises KafkaError if Twinshore may not read or change rules."""
    remarks = plan_denial(read_acl_snapshot(old, topics)).remarks
    return (*remarks, "if a log grows while writers are held, the switch rolls back") if remarks else ()


def describe_old_home_access(old: KafkaCluster, topics: Sequence[str], away: str) -> str:
    """Describes whether rules keep writers from the old home. `away`: why that cluster cannot be asked."""
    try:
        ruled = None if away else read_acls(old) is not None
    except KafkaError:
        ruled = None
    return describe_old_home_writers(old.name, topics, ruled=ruled)


def find_obstacle(old: KafkaCluster, new: KafkaCluster, topics: Sequence[str]) -> RefusedError | None:
    for cluster in (old, new):
        if read_acls(cluster) is not None and not may_alter_acls(cluster):
            return RefusedError("switch.no-acl-rights", cluster=cluster.name)
    return refuse_unready_partitions(new, topics)


def refuse_unready_partitions(new: KafkaCluster, topics: Sequence[str]) -> RefusedError | None:
    """Refuses partitions of the new home that would not accept writes with acks=all."""
    found = {
        name: topic for name, topic in new.metadata(sorted(topics), refresh=True).topics.items() if not topic.error
    }
    partitions = [(f"{name}-{tp.partition}", name, tp) for name, topic in found.items() for tp in topic.partitions]
    if leaderless := [partition for partition, _, tp in partitions if tp.leader < 0]:
        return RefusedError("switch.no-leader", cluster=new.name, partitions=join_names(leaderless))
    settings, _ = new.admin.readable_settings(sorted(found), (MIN_ISR,))
    least = {name: int(entries[MIN_ISR].value or 1) for name, entries in settings.items() if MIN_ISR in entries}
    short = [
        f"{partition} ({len(tp.isr)} of {least[name]})"
        for partition, name, tp in partitions
        if len(tp.isr) < least.get(name, 1)
    ]
    if not short:
        return None
    return RefusedError("switch.too-few-replicas", cluster=new.name, partitions=join_names(short), setting=MIN_ISR)


@dataclass(frozen=True, slots=True)
class DiskShortage:
    """`words`: describes brokers with little disk space, or is empty. `full`: the mirror no longer writes to twins
    there.
    """

    words: str = ""
    full: bool = False

    def refused(self) -> RefusedError | None:
        return RefusedError("switch.disk-full", cause=self.words) if self.full else None


def check_disk_space(cluster: KafkaCluster, topics: Sequence[str], settings: Settings) -> DiskShortage:
    """Returns no shortage if brokers do not tell, or if the settings disable the check."""
    warn, pause = settings.mirror.disk_warn_percent, settings.mirror.disk_pause_percent
    if not warn:
        return DiskShortage()
    try:
        found = cluster.metadata(sorted(topics), refresh=True).topics.values()
        nodes = {node for topic in found if not topic.error for tp in topic.partitions for node in tp.replicas}
        disks = [disk for node in sorted(nodes) for disk in read_log_dirs(cluster, node)]
    except KafkaError as error:
        if error.retriable:
            raise
        return DiskShortage()
    now = judge_disk_space(disks, {}, warn_percent=warn, pause_percent=pause)
    return DiskShortage(describe_disks(cluster.name, disks, now), DiskSpace.EXHAUSTED in now.values())


def find_conflicting_switches(
    link: Link, topics: Collection[str], store: Store, *, answers: bool = True
) -> tuple[SwitchState, ...]:
    """Returns the switches that have these topics, or are about to. Raises RefusedError if one may not be taken over.
    `answers`: whether the link's source does.
    """
    ids = {row.switch_id for row in store.topics_in_switch.of(pair_name(link)) if row.topic in topics}
    found, homes = [], homes_by_topic(store.homes.of(pair_name(link)))
    for row in store.switches.all():
        if row.id not in ids and row.ended_ms is not None:
            continue
        state = parse_switch_state(row.switch_state)
        if state is None:
            if row.id in ids:
                raise RefusedError("switch.record-unreadable", switch=row.id[:8])
            continue
        shared = set(state.names()) & set(topics)
        if state.awaits_store and shared <= set(find_topics_moved_since(state, homes)):
            continue  # nothing is left to do for these
        begun = state.kind in MAKES_TWINS | MOVES_HOMES and state.carrier == link.name
        # After a crash while it released its topics, it has claims on the clusters, and none in the store.
        begun |= is_reversed_by(state, link.source, link.target)
        if row.id not in ids and not (begun and shared):
            continue
        if why := why_not_take_over(state, link.source, link.target, answers=answers):
            raise RefusedError("switch.not-taken-over", switch=state.id[:8], why=why)
        found.append(state)
    return tuple(found)


def find_refilling_switches(link: Link, store: Store) -> tuple[SwitchState, ...]:
    """Returns fail-backs and rebuilds that have deleted twins on the link's target and not refilled them yet."""
    found = [parse_switch_state(row.switch_state) for row in store.switches.all(open_only=True)]
    fills = [state for state in found if state and (state.new, state.old) == (link.source, link.target)]
    return tuple(state for state in fills if refilling_topics(state))


def take_over(state: SwitchState, topics: Collection[str], new: KafkaCluster, store: Store, by: str) -> None:
    """Ends the switch and frees its topics; or only removes these topics, if that switch goes on with others.
    Idempotent. Raises RefusedError if its process is alive, or another one has resumed the switch.
    """
    with exclusive(switch_lease(state.id), store, by) as lease:
        row, held = store.switches.of(state.id), lease.row()
        now = SwitchState.from_json(row.switch_state) if row else state
        if now.history != state.history or held is None:
            raise RefusedError("switch.record-changed", switch=state.id[:8])
        names = topics_freed(now, topics)
        if not now.ended:
            defer_cleanup(store, now, names)
        # Denials on its old home were to end with that switch, and writers go there now.
        rights = now.rights if now.old == new.name else ""
        flipped = has_promoted(now)
        cleanup = DeferredCleanup(now.id, new.name, tuple(names), select_rights(rights, names) if flipped else rights)
        if flipped:
            clean_up(new, cleanup, by)  # before its state drops these topics: after a crash this runs again
        if not now.ended and not store.switches.save(mark_taken_over(now, topics, by, wall_ms()).row(wall_ms()), held):
            raise RefusedError("switch.lease-lost", switch=state.id[:8])
        if not flipped:
            clean_up(new, cleanup, by)
        store.topics_in_switch.end(now.id, names)


@dataclass(frozen=True, slots=True)
class SwitchPlan(Plan[SwitchStep]):
    """`record`: the initial state; None if refused. `back_topics`: topics to add to the reverse link first.
    `takes_over`: switches of dead processes to end first. `alive`: the home that the operator must name to force this:
    the old one if it still answers, or a third cluster that is the topic's home.
    """

    state: SwitchState | None = None
    back_topics: tuple[str, ...] = ()
    takes_over: tuple[SwitchState, ...] = ()
    alive: str = ""

    def decisions(self) -> tuple[str, ...]:
        if self.state is None:
            return Plan.decisions(self)
        moves = [f"topic {move.topic}, ids {move.old_id} and {move.new_id}" for move in self.state.topics]
        ended = [f"ends switch {other.id}" for other in self.takes_over]
        group = f" of group {self.state.group}" if self.state.group else ""
        whole = f"{self.state.kind} switch{group} from {self.state.old} to {self.state.new}"
        return (whole, *moves, *(f"replicates {topic} back" for topic in self.back_topics), *ended)


def plan(request: SwitchPlanRequest, settings: Settings, store: Store, *, by: str = "", kept: str = "") -> SwitchPlan:
    """Raises ConfigError if no topic matches; obstacles are `refusal`, in one sentence. `kept`: the cluster that keeps
    the state, if `store` holds only what that cluster says.
    """
    settings.cluster(request.to)
    check_expressions(request.topics)
    links, forced = current_links(settings, store), request.force
    link, rows = find_link(request, links, store)
    matched = {row.topic for row in rows}
    refilling = find_refilling_switches(link, store) if forced else ()
    left = [describe_refilling_topics(state, matched) for state in refilling if matched & set(refilling_topics(state))]
    topics = sorted(matched.difference(*map(refilling_topics, refilling)))
    if not topics:
        return SwitchPlan(refusal=RefusedError("switch.refilling", cause=left[0].removeprefix("left out: ")))
    back = find_reverse_link(link, links)
    unlinked = [topic for topic in topics if back is None or not admits(back, topic)]
    back_topics = () if kept or request.drill else tuple(unlinked)
    shown = [*_shown(request, link, [row for row in rows if row.topic in topics], store, kept=bool(kept)), *left]
    with open_link(link, settings) as clients:
        away = _away(request, link, settings, clients)
        refusal = _refused(request, link, topics, store, away) or _unfit(request, link, topics, store, clients, away)
        disk = DiskShortage() if refusal else check_disk_space(clients.target, topics, settings)
        # Without a home, take whatever disk space there is.
        refusal = refusal or (None if forced else disk.refused())
        try:
            others = find_conflicting_switches(link, topics, store, answers=not away) if forced else ()
        except RefusedError as error:
            refusal = refusal or error
        if refusal:
            return SwitchPlan(shown=tuple(shown), refusal=refusal)
        shown += [describe_takeover(state, topics) for state in others]
        if back_topics:
            does = "replicate" if back else "be added, and replicate"
            shown.append(f"{Link(link.target, link.source).name} would {does} {join_names(back_topics)} back")
        moves = tuple(topic_move_of(topic, rows, link, store) for topic in topics)
        if forced:
            remarks = [*_forced_remarks(link, topics, store, clients, away, disk)]
            remarks += _unknown(clients.target, link, topics, back) if kept else ()
            remarks.append(describe_old_home_access(clients.source, topics, away))
        else:
            lag = count_missing_offsets(clients.source, clients.target, moves)
            remarks = [_describe_lag(request, lag), *filter(None, (disk.words,))]
            remarks += describe_unheld_writers(clients.source, topics)
            remarks.append(_describe_rereads(link, settings, store))
    return SwitchPlan(
        STEPS[request.kind],
        tuple(shown),
        tuple(remarks),
        state=replace(new_switch_state(request.kind, link, moves, by), hold_s_max=request.hold_s, kept=kept),
        back_topics=back_topics,
        takes_over=others,
        alive=next(iter(_elsewhere(link, topics, store).values()), "" if away else link.source) if forced else "",
    )


def new_switch_state(kind: SwitchKind, link: Link, topics: tuple[TopicMove, ...], by: str) -> SwitchState:
    """Returns the initial state of a switch from the source of the link to its target."""
    return SwitchState(
        id=secrets.token_hex(16),
        kind=kind,
        old=link.source,
        new=link.target,
        link=link.name,
        back=Link(link.target, link.source).name,
        topics=topics,
        by=by,
        begun_ms=wall_ms(),
        hold_s_max=0.0,
        step=STEPS[kind][0],
    )


def _describe_rereads(link: Link, settings: Settings, store: Store) -> str:
    """An unavailable cluster does not stop the plan."""
    try:
        links = links_between(settings, store, link.source, link.target)
        groups = inspect_groups(links, settings, store, ".*", link.target, stable=False)
    except KafkaError as error:
        return f"the committed offsets of groups are not known: {error.message}"
    return describe_rereads(groups.values(), link.source, link.target)


def _away(request: SwitchPlanRequest, link: Link, settings: Settings, clients: LinkClients) -> str:
    """Returns why the old home does not answer; empty if it does."""
    if not request.force:
        return why_unreachable(clients.source)
    with open_cluster(link.source, settings, GONE_HOME_TIMEOUT_S) as source:
        return why_unreachable(source)


def refuse_adopting_link(link: Link, done: str) -> RefusedError:
    return RefusedError("switch.link-adopts", link=link.name, done=done)


def _refused(
    request: SwitchPlanRequest, link: Link, topics: Sequence[str], store: Store, away: str
) -> TwinshoreError | None:
    if link.naming is not TwinNaming.SAME:
        return RefusedError("switch.twins-renamed", link=link.name)
    if link.queue.fresh:
        return RefusedError("switch.queue-fresh", link=link.name)
    mapped = sorted({topic for topic, _ in store.offset_runs.reached(link.name)} & set(topics))
    if mapped:
        return RefusedError("switch.mapped-twins", topics=join_names(mapped))
    if link.mode is OffsetMode.MAPPED:
        return refuse_adopting_link(link, "switched")
    homes = read_homes(store, link, topics)
    if not request.force and (moved := _elsewhere(link, topics, store)):
        topic, home = next(iter(moved.items()))
        return RefusedError("switch.home-elsewhere", topic=topic, home=home, source=link.source, to=request.to)
    if worn := [topic for topic in topics if topic in homes and homes[topic].term >= TERM_MAX]:
        return RefusedError("switch.home-moved-too-often", topics=join_names(worn), count=TERM_MAX)
    if request.force:
        return None
    if away:
        return RefusedError("switch.source-silent", cluster=link.source, cause=away)
    if paused := find_paused_topics(link, topics, store):
        return RefusedError("switch.topics-paused", link=link.name, topics=join_names(paused))
    if stopped := describe_stopped_partitions(link, topics, store):
        return RefusedError("switch.link-stopped", link=link.name, partitions=join_names(stopped))
    return refuse_claimed_topics(store, pair_name(link), topics)


def _unfit(
    request: SwitchPlanRequest, link: Link, topics: Sequence[str], store: Store, clients: LinkClients, away: str
) -> TwinshoreError | None:
    if not away:
        verify_cluster_ids(link, store, clients.source, clients.target)
    try:
        if not may_write_markers(clients.target):
            return RefusedError("switch.no-fencing-rights", link=link.name, cluster=link.target)
        if request.force:
            return refuse_unready_partitions(clients.target, topics)
        return find_obstacle(clients.source, clients.target, topics)
    except KafkaError as error:
        return RefusedError("switch.cluster-unread", cause=error.message)


def topic_move_of(topic: str, rows: Sequence[TwinRow], link: Link, store: Store) -> TopicMove:
    ours = [row for row in rows if row.topic == topic]
    home = read_homes(store, link, [topic]).get(topic)
    return TopicMove(
        topic=topic,
        old_id=ours[0].source_topic_id,
        new_id=ours[0].target_topic_id,
        term=home.term if home else 0,
        partitions=len(ours),
    )


def _shown(
    request: SwitchPlanRequest, link: Link, rows: Sequence[TwinRow], store: Store, *, kept: bool
) -> Iterator[str]:
    """`kept`: without the store, so the unreplicated offsets are unknown."""
    topics = sorted({row.topic for row in rows})
    count = count_phrase(len(topics), "topic")
    yield f"{count} would be at home on {link.target}, and no more on {link.source}: {join_names(topics)}"
    if kept:
        yield f"the unreplicated offsets of {link.source} are not known: the store alone knows how far it was seen"
    elif request.force:
        positions = [position for position in store.progress.positions(link.name) if position.topic in topics]
        every = {row.topic for row in store.twins.of(link.name)} == set(topics)
        lag = parse_lag(store.link_states.of(link.name, LAG_KIND))
        missing = estimate_unreplicated(Counter(row.topic for row in rows), positions, lag, every=every)
        yield from missing.sentences(link.source, len(topics), wall_ms())


def _elsewhere(link: Link, topics: Sequence[str], store: Store) -> dict[str, str]:
    """Returns topics whose home is neither source nor target of the link, with their homes."""
    homes = read_homes(store, link, topics)
    return {topic: row.home for topic, row in homes.items() if row.home not in (link.source, link.target)}


def _describe_lag(request: SwitchPlanRequest, lag: int) -> str:
    wait, rolls = ("would wait", "would roll") if request.drill else ("wait", "rolls")
    behind = f"the twins are {count_phrase(lag, 'offset')} behind now"
    return f"{behind}; if writers {wait} for {request.hold_s:g} s, the switch {rolls} back"


def _forced_remarks(
    link: Link, topics: Sequence[str], store: Store, clients: LinkClients, away: str, disk: DiskShortage
) -> Iterator[str]:
    for topic, home in _elsewhere(link, topics, store).items():
        yield f"topic {topic} is at home on {home}: what was written there since is not replicated to {link.target}"
    if not away:
        yield f"{link.source} answers: a planned switch would lose nothing"
    yield describe_torn_transactions(link.target)
    if disk.words:
        yield disk.words
    if paused := find_paused_topics(link, topics, store):
        yield f"operators paused {link.name} for {join_names(paused)}: later records are not replicated"
    if left := [topic for topic in topics if not admits(link, topic)]:
        yield f"{link.name} replicates {join_names(left)} no more: later records are not replicated"
    # A stopped twin may hold records that its home never had.
    if stopped := describe_stopped_partitions(link, topics, store):
        counts = f"all that {link.target} holds there counts from then on, also foreign records"
        yield f"{link.name} had stopped with {join_names(stopped)}: {counts}; `twinshore status` says why it stopped"
    yield from describe_inconsistent_groups(clients.target, link, topics)
    yield from describe_losses(link.source, clients.target, topics)


def _unknown(new: KafkaCluster, link: Link, topics: Sequence[str], back: Link | None) -> Iterator[str]:
    yield (
        "not known without the store: what operators changed of links since the settings were written, which "
        "partitions had stopped and why, and what of settings and rights was held back from the twins. `twinshore "
        "switch resume` applies these once the store answers"
    )
    if back is None or any(not admits(back, topic) for topic in topics):
        yield f"no link of the settings replicates them from {link.target} to {link.source}: add one later"
    denied = sorted({acl.name for acl in read_acls(new) or () if denies_writing(acl, topics)})
    if denied:
        yield f"{new.name} denies Write on {join_names(denied)}: remove such rules by hand, or no client can write"
