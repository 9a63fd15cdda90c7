"""Plans a switch, and changes nothing: the topics, their link, obstacles, the possible loss, and writers that nothing
can hold.

A forced switch also takes over the switches of dead processes on its topics.
"""

from __future__ import annotations

import re
import secrets
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass

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
    STEP_SPECS,
    STEPS,
    SwitchKind,
    SwitchState,
    SwitchStep,
    TopicMove,
    parse_switch_state,
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
from twinshore.switch.write_access import clean_up, defer_cleanup, read_acl_snapshot

NAMED_MAX = 5
# A topic's whole name; its dots may be escaped as in a pattern.
TOPIC_NAME_PATTERN = re.compile(r"(?:[a-zA-Z0-9_-]|\\?\.)+")


@dataclass(frozen=True, slots=True)
class SwitchPlanRequest:
    """Move the topics whose whole names match one of `topics` to the home `to`.

    `links`: only topics of these links. `hold_s`: how long writers may wait before the switch rolls back. `group`: move
    only this group, and no topic. `wave`: move all topics, so many at once; 0: the matched ones. `of`: topics that this
    switch has moved. `producer`: this producer alone, which is always refused. `bare`: without data.
    """

    topics: Sequence[str]
    to: str
    kind: SwitchKind = SwitchKind.PLANNED
    links: Sequence[str] = ()
    hold_s: float = WRITE_PAUSE_S
    group: str = ""
    wave: int = 0
    of: str = ""
    producer: str = ""
    bare: bool = False


def build_switch_request(
    topics: Sequence[str],
    to: str,
    links: Sequence[str] = (),
    *,
    force: bool = False,
    drill: bool = False,
    hold_s: float = WRITE_PAUSE_S,
    group: str = "",
    wave: int = 0,
    of: str = "",
    producer: str = "",
    bare: bool = False,
) -> SwitchPlanRequest:
    kind = SwitchKind.DRILL if drill else SwitchKind.FORCED if force else SwitchKind.PLANNED
    return SwitchPlanRequest(topics, to, kind, links, hold_s, group, wave, of, producer, bare)


def check_expressions(topics: Sequence[str]) -> None:
    """Raises ConfigError if one of the patterns is invalid."""
    for pattern in topics:
        if why := pattern_error(pattern):
            raise ConfigError("switch.bad-expression", cause=why)


def carrier_of(request: SwitchPlanRequest, settings: Settings, store: Store) -> tuple[Link, list[str]]:
    link, rows = find_link(
        request, [effective.link for effective in effective_links(settings.links, store).values()], store
    )
    return link, sorted({row.topic for row in rows})


def links_leading_to(request: SwitchPlanRequest, links: Sequence[Link]) -> list[Link]:
    return [link for link in links if link.target == request.to and (not request.links or link.name in request.links)]


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
    into = links_leading_to(request, links)
    rows: dict[str, list[TwinRow]] = {}
    for link in into:
        carried = [row for row in store.twins.active(link.name) if not is_heartbeats_topic(row.topic)]
        # By force also what the link replicates no more: the replicated records are all there is.
        rows[link.name] = [row for row in carried if request.kind is SwitchKind.FORCED or admits(link, row.topic)]
    known = {row.topic for some in rows.values() for row in some}
    at_home = _at_home(request, into, links, store)
    fits, settled = known | at_home, at_home | _twins_on_sources(into, links, store)
    words = {one: _fitting(one, fits) for one in request.topics}
    wanted = {topic for some in words.values() for topic in some}
    found = {name: [row for row in some if row.topic in wanted] for name, some in rows.items()}
    lacking = [one for one, some in words.items() if not some]
    dotted = {
        one: sorted(some)
        for one, some in words.items()
        if some and some != [one.replace("\\", "")] and TOPIC_NAME_PATTERN.fullmatch(one)
    }
    rows_found = {name: some for name, some in found.items() if some}
    return MatchedTopics(rows_found, sorted(known), lacking, dotted, frozenset(settled))


def match_topics_without_twins(
    request: SwitchPlanRequest, link: Link, words: MatchedTopics, topics: Iterable[str]
) -> list[str]:
    """Returns matched and admitted topics of the source that have no twin yet."""
    carried = {row.topic for row in words.rows.get(link.name, ())} | set(words.known) | words.settled
    new = [one for one in topics if one not in carried and not is_internal_topic(one) and admits(link, one)]
    return sorted({topic for word in request.topics for topic in _fitting(word, new) if word not in carried})


def find_link(request: SwitchPlanRequest, links: Sequence[Link], store: Store) -> tuple[Link, list[TwinRow]]:
    """Returns the one link that replicates the topics, and their twins. Raises ConfigError if any pattern has no match,
    maybe a typo.
    """
    into = links_leading_to(request, links)
    if not into:
        raise ConfigError("switch.no-link-to", to=request.to)
    found = match_topics(request, links, store)
    # Some topics that another switch has moved may be gone by now.
    if found.lacking and not (found.rows and request.of):
        raise no_link_error(found.lacking, into, request.to, found.known)
    if not found.rows:
        raise RefusedError(
            "switch.at-home-already", topics=join_names(list(request.topics), NAMED_MAX), cluster=request.to
        )
    if len(found.rows) > 1:
        raise ConfigError(
            "switch.several-links",
            topics=join_names(list(request.topics), NAMED_MAX),
            links=join_names(sorted(found.rows), NAMED_MAX),
        )
    ((name, rows),) = found.rows.items()
    return next(link for link in into if link.name == name), rows


def no_link_error(topics: Sequence[str], links: Sequence[Link], to: str, known: Sequence[str]) -> ConfigError:
    near = did_you_mean(topics[0], sorted(known))
    sources = join_names(sorted({link.source for link in links}), NAMED_MAX)
    return ConfigError(
        "switch.no-link-for", to=to, topics=join_names(list(topics), NAMED_MAX), near=near, sources=sources
    )


def _fitting(word: str, topics: Collection[str]) -> list[str]:
    return [word] if word in topics else [one for one in topics if re.fullmatch(word, one)]


def _at_home(request: SwitchPlanRequest, into: Sequence[Link], links: Sequence[Link], store: Store) -> set[str]:
    """Returns topics already at home on the target, including those that never switched."""
    homes = {row.topic: row.home for link in into for row in store.homes.of(pair_name(link)).values()}
    back = {
        row.topic for link in into if (way := find_reverse_link(link, links)) for row in store.twins.active(way.name)
    }
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
    watched = ("where an end moves while writers are held, the switch turns back",) if remarks else ()
    return (*remarks, *watched)


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
    seen = {name: topic for name, topic in new.metadata(sorted(topics), refresh=True).topics.items() if not topic.error}
    unled = [
        f"{name}-{partition.partition}"
        for name, topic in seen.items()
        for partition in topic.partitions
        if partition.leader < 0
    ]
    if unled:
        return RefusedError("switch.no-leader", cluster=new.name, partitions=join_names(unled, NAMED_MAX))
    settings, _ = new.admin.readable_settings(sorted(seen), (MIN_ISR,))
    least = {name: int(one[MIN_ISR].value or 1) for name, one in settings.items() if MIN_ISR in one}
    short = [
        f"{name}-{partition.partition} ({len(partition.isr)} of {least[name]})"
        for name, topic in seen.items()
        for partition in topic.partitions
        if len(partition.isr) < least.get(name, 1)
    ]
    if short:
        return RefusedError(
            "switch.too-few-replicas", cluster=new.name, partitions=join_names(short, NAMED_MAX), setting=MIN_ISR
        )
    return None


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
        seen = cluster.metadata(sorted(topics), refresh=True).topics.values()
        nodes = sorted(
            {node for topic in seen if not topic.error for partition in topic.partitions for node in partition.replicas}
        )
        disks = [disk for node in nodes for disk in read_log_dirs(cluster, node)]
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
        ours = set(state.names()) & set(topics)
        if state.awaits_store and ours <= set(find_topics_moved_since(state, homes)):
            continue  # nothing is left to do for these
        begun = state.kind in MAKES_TWINS | MOVES_HOMES and state.carrier == link.name
        # After a crash while it released its topics, it has claims on the clusters, and none in the store.
        begun |= is_reversed_by(state, link.source, link.target)
        if row.id not in ids and not (begun and set(state.names()) & set(topics)):
            continue
        if why := why_not_take_over(state, link.source, link.target, answers=answers):
            raise RefusedError("switch.not-taken-over", switch=state.id[:8], why=why)
        found.append(state)
    return tuple(found)


def find_refilling_switches(link: Link, store: Store) -> tuple[SwitchState, ...]:
    """Returns fail-backs and rebuilds that have deleted twins on the link's target and not refilled them yet."""
    found = [parse_switch_state(row.switch_state) for row in store.switches.all(open_only=True)]
    return tuple(
        state
        for state in found
        if state and (state.new, state.old) == (link.source, link.target) and refilling_topics(state)
    )


def take_over(state: SwitchState, topics: Collection[str], new: KafkaCluster, store: Store, by: str) -> None:
    """Ends the switch and frees its topics; or only removes these topics, if that switch goes on with others.
    Idempotent. Raises RefusedError if its process is alive, or another one has resumed the switch.
    """
    with exclusive(f"switch {state.id}", store, by) as lease:
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


REQUEST_TIMEOUT_S = 5.0
GONE_HOME_TIMEOUT_S = 1.5  # for an old home that is down, as the operator says


@dataclass(frozen=True, slots=True)
class SwitchPlanStep:
    step: SwitchStep

    def sentence(self, *, done: bool) -> str:
        return f"{self.step}: {STEP_SPECS[self.step].does}" + (" (done)" if done else "")


@dataclass(frozen=True, slots=True)
class SwitchPlan(Plan[SwitchPlanStep]):
    """`record`: the initial state; None if refused. `back_topics`: topics to add to the reverse link first.
    `takes_over`: switches of dead processes to end first. `alive`: the home that the operator must name to force this:
    the old one if it still answers, or a third cluster that is the topic's home.
    """

    state: SwitchState | None = None
    back_topics: tuple[str, ...] = ()
    takes_over: tuple[SwitchState, ...] = ()
    alive: str = ""


def plan(request: SwitchPlanRequest, settings: Settings, store: Store, *, by: str = "", kept: str = "") -> SwitchPlan:
    """Raises ConfigError if no topic matches; obstacles are `refusal`, in one sentence. `kept`: the cluster that keeps
    the state, if `store` holds only what that cluster says.
    """
    settings.cluster(request.to)
    check_expressions(request.topics)
    links = [effective.link for effective in effective_links(settings.links, store).values()]
    link, rows = find_link(request, links, store)
    asked_for = {row.topic for row in rows}
    anew = find_refilling_switches(link, store) if request.kind is SwitchKind.FORCED else ()
    left = [
        describe_refilling_topics(state, asked_for) for state in anew if asked_for.intersection(refilling_topics(state))
    ]
    topics = sorted(asked_for.difference(*map(refilling_topics, anew)))
    if not topics:
        return SwitchPlan(refusal=RefusedError("switch.refilling", cause=left[0].removeprefix("left out: ")))
    back = find_reverse_link(link, links)
    ours = [row for row in rows if row.topic in topics]
    shown = [*_shown(request, link, ours, store, kept=bool(kept)), *left]
    with LinkClients(link, settings, patience_s=REQUEST_TIMEOUT_S, call_s=REQUEST_TIMEOUT_S) as clients:
        away = _away(request, link, settings, clients)
        refusal = _refused(request, link, topics, store, away) or _unfit(request, link, topics, store, clients, away)
        room = DiskShortage() if refusal else check_disk_space(clients.target, topics, settings)
        # Without a home, take whatever disk space there is.
        refusal = refusal or (None if request.kind is SwitchKind.FORCED else room.refused())
        try:
            others = (
                find_conflicting_switches(link, topics, store, answers=not away)
                if request.kind is SwitchKind.FORCED
                else ()
            )
        except RefusedError as error:
            refusal = refusal or error
        if refusal:
            return SwitchPlan(shown=tuple(shown), refusal=refusal)
        shown += [describe_takeover(state, topics) for state in others]
        moved = tuple(topic_move_of(topic, rows, link, store) for topic in topics)
        lag = 0 if request.kind is SwitchKind.FORCED else count_missing_offsets(clients.source, clients.target, moved)
        torn = (
            tuple(describe_inconsistent_groups(clients.target, link, topics))
            if request.kind is SwitchKind.FORCED
            else ()
        )
        unknown = tuple(_unknown(clients.target, link, topics, back)) if kept else ()
        open_to = () if request.kind is SwitchKind.FORCED else describe_unheld_writers(clients.source, topics)
        strange = tuple(_strange(link, topics, store)) if request.kind is SwitchKind.FORCED else ()
        later = (describe_old_home_access(clients.source, topics, away),) if request.kind is SwitchKind.FORCED else ()
        about = _remarks(request, link, lag, away, _elsewhere(link, topics, store))
        again = () if kept or request.kind is SwitchKind.FORCED else (_read_again(link, settings, store),)
        remarks = (*about, *filter(None, (room.words,)), *strange, *torn, *unknown, *open_to, *later, *again)
    switch_state = _record(request, link, moved, by, kept)
    untaken = () if kept else tuple(topic for topic in topics if back is None or not admits(back, topic))
    steps = tuple(SwitchPlanStep(step) for step in STEPS[request.kind])
    alive = link.source if request.kind is SwitchKind.FORCED and not away else ""
    alive = next(iter(_elsewhere(link, topics, store).values()), alive) if request.kind is SwitchKind.FORCED else alive
    return SwitchPlan(
        steps, tuple(shown), remarks, state=switch_state, back_topics=untaken, takes_over=others, alive=alive
    )


def _record(request: SwitchPlanRequest, link: Link, moved: tuple[TopicMove, ...], by: str, kept: str) -> SwitchState:
    return SwitchState(
        id=secrets.token_hex(16),
        kind=request.kind,
        old=link.source,
        new=link.target,
        link=link.name,
        back=f"{link.target}->{link.source}",
        topics=moved,
        by=by,
        begun_ms=wall_ms(),
        hold_s_max=request.hold_s,
        step=STEPS[request.kind][0],
        kept=kept,
    )


def _read_again(link: Link, settings: Settings, store: Store) -> str:
    """An unavailable cluster does not stop the plan."""
    try:
        links = links_between(settings, store, link.source, link.target)
        groups = inspect_groups(links, settings, store, ".*", link.target, stable=False)
    except KafkaError as error:
        return f"where groups stand is not known: {error.message}"
    return describe_rereads(groups.values(), link.source, link.target)


def _away(request: SwitchPlanRequest, link: Link, settings: Settings, clients: LinkClients) -> str:
    """Returns why the old home does not answer; empty if it does."""
    if request.kind is not SwitchKind.FORCED:
        return why_unreachable(clients.source)
    with closing(
        KafkaCluster(settings.cluster(link.source), patience_s=GONE_HOME_TIMEOUT_S, call_s=GONE_HOME_TIMEOUT_S)
    ) as brief:
        return why_unreachable(brief)


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
        return RefusedError("switch.mapped-twins", topics=join_names(mapped, NAMED_MAX))
    if link.mode is OffsetMode.MAPPED:
        return refuse_adopting_link(link, "switched")
    homes = read_homes(store, link, topics)
    if request.kind is not SwitchKind.FORCED and (moved := _elsewhere(link, topics, store)):
        topic, home = next(iter(moved.items()))
        return RefusedError("switch.home-elsewhere", topic=topic, home=home, source=link.source, to=request.to)
    if worn := [topic for topic in topics if topic in homes and homes[topic].term >= TERM_MAX]:
        return RefusedError("switch.home-moved-too-often", topics=join_names(worn, NAMED_MAX), count=TERM_MAX)
    if request.kind is SwitchKind.FORCED:
        return None
    if away:
        return RefusedError("switch.source-silent", cluster=link.source, cause=away)
    if paused := find_paused_topics(link, topics, store):
        return RefusedError("switch.topics-paused", link=link.name, topics=join_names(paused, NAMED_MAX))
    if stopped := describe_stopped_partitions(link, topics, store):
        return RefusedError("switch.link-stopped", link=link.name, partitions=join_names(stopped, NAMED_MAX))
    return refuse_claimed_topics(store, pair_name(link), topics)


def _unfit(
    request: SwitchPlanRequest, link: Link, topics: Sequence[str], store: Store, clients: LinkClients, away: str
) -> TwinshoreError | None:
    if not away:
        verify_cluster_ids(link, store, clients.source, clients.target)
    try:
        if not may_write_markers(clients.target):
            return RefusedError("switch.no-fencing-rights", link=link.name, cluster=link.target)
        if request.kind is SwitchKind.FORCED:
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
    yield f"{count} would be at home on {link.target}, and no more on {link.source}: {join_names(topics, NAMED_MAX)}"
    if kept:
        yield f"how much of {link.source} had not crossed is not known: the store alone knows how far it was seen"
    elif request.kind is SwitchKind.FORCED:
        positions = [position for position in store.progress.positions(link.name) if position.topic in topics]
        every = {row.topic for row in store.twins.of(link.name)} == set(topics)
        lag = parse_lag(store.link_states.of(link.name, LAG_KIND))
        missing = estimate_unreplicated(Counter(row.topic for row in rows), positions, lag, every=every)
        yield from missing.sentences(link.source, len(topics), wall_ms())


def _elsewhere(link: Link, topics: Sequence[str], store: Store) -> dict[str, str]:
    """Returns topics whose home is neither source nor target of the link, with their homes."""
    homes = read_homes(store, link, topics)
    return {topic: row.home for topic, row in homes.items() if row.home not in (link.source, link.target)}


def _remarks(
    request: SwitchPlanRequest, link: Link, lag: int, away: str, elsewhere: Mapping[str, str]
) -> Iterator[str]:
    if request.kind is SwitchKind.FORCED:
        for topic, home in elsewhere.items():
            yield f"topic {topic} is at home on {home}: what was written there since does not come to {link.target}"
    if request.kind is SwitchKind.FORCED and not away:
        yield f"{link.source} answers: a planned switch would lose nothing"
    if request.kind is SwitchKind.FORCED:
        yield describe_torn_transactions(link.target)
    else:
        behind_now = f"the twins are {count_phrase(lag, 'offset')} behind now"
        wait, turns = ("would wait", "would turn") if request.kind is SwitchKind.DRILL else ("wait", "turns")
        yield f"{behind_now}; where writers {wait} for {request.hold_s:g} s, the switch {turns} back"


def _strange(link: Link, topics: Sequence[str], store: Store) -> Iterator[str]:
    """A stopped twin may hold records that its home never had."""
    if paused := find_paused_topics(link, topics, store):
        yield (
            f"{link.name} was paused for {join_names(paused, NAMED_MAX)} by operators: what came since has not crossed"
        )
    if left := [topic for topic in topics if not admits(link, topic)]:
        yield f"{link.name} carries {join_names(left, NAMED_MAX)} no more: what came since has not crossed"
    if stopped := describe_stopped_partitions(link, topics, store):
        yield (
            f"{link.name} had stopped with {join_names(stopped, NAMED_MAX)}: whatever {link.target} holds there counts "
            "from then on, also what was not carried; `twinshore status` says why it stopped"
        )


def _unknown(new: KafkaCluster, link: Link, topics: Sequence[str], back: Link | None) -> Iterator[str]:
    yield (
        "not known without the store: what operators said of links since the settings were written, which partitions "
        "had stopped and why, and what of settings and rights was held back from the twins. `twinshore switch resume` "
        "gives these once the store answers"
    )
    if back is None or any(not admits(back, topic) for topic in topics):
        yield (
            f"no link of the settings carries them from {link.target} back to {link.source}: add one once the store "
            "answers"
        )
    denied = sorted({acl.name for acl in read_acls(new) or () if denies_writing(acl, topics)})
    if denied:
        yield (
            f"{new.name} denies Write on {join_names(denied, NAMED_MAX)}: take such rules away by hand, or nobody "
            "writes"
        )
