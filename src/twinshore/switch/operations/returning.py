"""Plans a fail-back of a returned old home, and the rebuild of spoilt twins: what to rescue, delete and refill. Changes
nothing.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from twinshore.config.errors import ConfigError, RefusedError, TwinshoreError
from twinshore.config.frozen import RESCUED_TOPIC
from twinshore.config.incident_policy import IncidentEffect
from twinshore.config.model import Link, OffsetMode, TwinNaming, is_heartbeats_topic
from twinshore.config.schema import did_you_mean
from twinshore.config.sentences import count_phrase, join_names
from twinshore.config.settings import Settings, parse_link_name
from twinshore.kafka.cluster import KafkaCluster
from twinshore.replication.core.ownership import pair_name
from twinshore.replication.links import effective_links
from twinshore.replication.sync.deletion_guard import deletion_guard
from twinshore.runtime.endpoints import LinkClients, verify_cluster_ids
from twinshore.state.core.values import TwinRow
from twinshore.state.store import Store
from twinshore.switch.announce import refuse_claimed_topics
from twinshore.switch.core.steps import STEPS, SwitchKind, SwitchState, TopicMove
from twinshore.switch.core.unreplicated import (
    UnreplicatedRange,
    describe_differing,
    describe_unchecked,
    find_doubtful_ranges,
    find_unreplicated_ranges,
    ranges_to_json,
    topics_of_ranges,
)
from twinshore.switch.drain import describe_partial_refill, describe_topic_changes, read_log_ends, why_unreachable
from twinshore.switch.failback import why_not_mapped
from twinshore.switch.handover import read_group_offsets
from twinshore.switch.operations.plan import (
    SwitchPlan,
    check_disk_space,
    check_expressions,
    current_links,
    describe_old_home_access,
    links_leading_to,
    new_switch_state,
    open_link,
    refuse_adopting_link,
)
from twinshore.switch.rescue_steps import count_unreplicated_records, inspect_old_home

RESCUE_FOLDER = "rescued"


@dataclass(frozen=True, slots=True)
class FailbackRequest:
    """Topics whose whole names match one of `topics` become twins on `old`, their former home. `folder`: for rescued
    records; beside the settings if None. `mapped`: nothing is deleted, the twins continue mapped.
    """

    topics: Sequence[str]
    old: str
    links: Sequence[str] = ()
    folder: Path | None = None
    mapped: bool = False


def rescue_folder(settings: Settings, folder: Path | None = None) -> Path:
    return folder.absolute() if folder else (settings.file or Path.cwd() / "twinshore.toml").parent / RESCUE_FOLDER


def plan_failback(request: FailbackRequest, settings: Settings, store: Store, *, by: str = "") -> SwitchPlan:
    """Raises ConfigError if no topic matches; obstacles are `refusal`, in one sentence."""
    settings.cluster(request.old)
    check_expressions(request.topics)
    back, topics = _link_of(request, current_links(settings, store), store)
    if mapped := sorted({topic for topic, _ in store.offset_runs.reached(back.name)} & {move.topic for move in topics}):
        refusal = RefusedError("switch.mapped-already", topics=join_names(mapped), cluster=request.old)
        return SwitchPlan(refusal=refusal)
    link = Link(back.target, back.source)
    kind = SwitchKind.MAPPED_FAILBACK if request.mapped else SwitchKind.FAILBACK
    with open_link(link, settings) as clients:
        old, new = clients.source, clients.target
        if silent := refuse_silent_cluster(clients):
            return SwitchPlan(refusal=silent)
        verify_cluster_ids(back, store, new, old)
        if other := describe_topic_changes(old, topics, new=False):
            remedy = "save its records, and delete it there by hand"
            return SwitchPlan(refusal=RefusedError("switch.topic-changed", cause=other, remedy=remedy))
        partitions = inspect_old_home(old, new, store, back.name, topics)
        found = find_unreplicated_ranges(partitions)
        diverged = topics_of_ranges(found)
        state = replace(new_switch_state(kind, link, topics, by), folder=str(rescue_folder(settings, request.folder)))
        shown = tuple(_shown_failback(state, found, old, new, store))
        why = (
            why_not_mapped(replace(state, tails=ranges_to_json(found)), old, store) if found and request.mapped else ""
        )
        live = read_group_offsets(old, diverged)[1] if found and not request.mapped else ()
        disk = check_disk_space(old, state.names(), settings)
        guarded = describe_old_home_access(old, state.names(), "")
    if differing := describe_differing(partitions, diverged, state.old, state.new):
        refused: TwinshoreError | None = RefusedError("switch.other-records", cause=differing)
    elif why:
        refused = RefusedError("switch.not-mappable", cause=why)
    else:
        remedy = (
            f"stop these consumers, or point them to {back.source}; a consumer that was killed is a member until its "
            "session times out"
        )
        refused = refuse_deletion(back, diverged, live, remedy, settings, store, deletes=not request.mapped)
    if refused := refused or disk.refused():
        return SwitchPlan(shown=shown, refusal=refused)
    unchecked = describe_unchecked(partitions, state.back)
    refill = describe_partial_refill(back) if found and not request.mapped else ""
    remarks = (f"{unchecked}; it must run" if unchecked else "", disk.words, refill, guarded)
    return SwitchPlan(STEPS[kind], shown, tuple(filter(None, remarks)), state=state)


def refuse_silent_cluster(clients: LinkClients) -> RefusedError | None:
    for cluster in (clients.source, clients.target):
        if away := why_unreachable(cluster):
            return RefusedError("switch.cluster-silent", cluster=cluster.name, cause=away)
    return None


def refuse_deletion(
    link: Link,
    topics: Collection[str],
    live: Sequence[str],
    remedy: str,
    settings: Settings,
    store: Store,
    *,
    deletes: bool = True,
) -> TwinshoreError | None:
    """Returns why these twins of the link may not be deleted. `live`: groups with members that read them."""
    if refused := refuse_claimed_topics(store, pair_name(link), topics):
        return refused
    if live:
        groups = join_names(live)
        return RefusedError("switch.group-reads-twin", groups=groups, cluster=link.target, remedy=remedy)
    return deletion_guard(link, settings, store).refusal(topics) if deletes else None


def _link_of(request: FailbackRequest, links: Sequence[Link], store: Store) -> tuple[Link, tuple[TopicMove, ...]]:
    wanted = [re.compile(pattern) for pattern in request.topics]
    found: list[tuple[Link, list[TwinRow]]] = []
    for link in links_leading_to(request.old, request.links, links):
        rows = [row for row in store.twins.of(link.name) if row.epoch and not is_heartbeats_topic(row.topic)]
        rows = [row for row in rows if any(pattern.fullmatch(row.topic) for pattern in wanted)]
        if rows and link.naming is TwinNaming.SAME:
            found.append((link, rows))
    topics = join_names(request.topics)
    if not found:
        raise ConfigError("switch.not-moved-away", topics=topics, cluster=request.old)
    if len(found) > 1:
        raise ConfigError("switch.several-links", topics=topics, links=join_names(sorted(one.name for one, _ in found)))
    ((back, rows),) = found
    homes, names = store.homes.of(pair_name(back)), sorted({row.topic for row in rows})
    if away := [topic for topic in names if topic not in homes or homes[topic].home != back.source]:
        raise RefusedError("switch.not-at-home", topics=join_names(away), cluster=back.source)
    return back, tuple(topic_move_of_twin(rows, topic, homes[topic].term) for topic in names)


def topic_move_of_twin(rows: Sequence[TwinRow], topic: str, term: int) -> TopicMove:
    """Returns the topic's move from its twin's rows; the points are where the old log stops being the home's."""
    ours = sorted((row for row in rows if row.topic == topic), key=lambda row: row.partition)
    points = tuple(row.inherited_end for row in ours)
    return TopicMove(
        topic=topic,
        old_id=ours[0].target_topic_id,
        new_id=ours[0].source_topic_id,
        term=term,
        partitions=len(ours),
        points=points,
    )


def _shown_failback(
    state: SwitchState, found: Sequence[UnreplicatedRange], old: KafkaCluster, new: KafkaCluster, store: Store
) -> Iterator[str]:
    if not found:
        yield f"nothing diverged: {state.old} holds nothing that {state.new} lacks"
        yield "nothing is rescued, nothing is deleted"
        return
    for offset_range in found:
        count = count_unreplicated_records(state, offset_range, old, new, store)
        some = f"{count_phrase(count.records, 'record')}, {count.committed} of them committed"
        if offset_range.gone:
            offsets = f"{count_phrase(offset_range.gone, 'offset')} of {offset_range.name}"
            yield f"lost: {offsets} were deleted on {state.old} unread"
        if offset_range.end <= offset_range.first:
            continue
        if offset_range.beside:
            lacks = f"{state.new} lacks of {offset_range} of {state.old}"
            yield f"to be rescued: {some}: all that {lacks}; where both diverge is not known"
        else:
            yield f"to be rescued: {offset_range} of {state.old}, {some}"
    if any(offset_range.end > offset_range.first for offset_range in found):
        yield f"rescued to {RESCUED_TOPIC} on {state.new}, and exported to {state.folder}"
    for topic in topics_of_ranges(found):
        if state.kind is SwitchKind.MAPPED_FAILBACK:
            yield f"continues after that, mapped, and nothing is deleted: topic {topic} on {state.old}"
        else:
            yield f"to be deleted, and refilled from {state.new}: topic {topic} on {state.old}"


@dataclass(frozen=True, slots=True)
class RebuildRequest:
    """Delete and refill the twins of these topics on the link's target. `folder`: for rescued records; beside the
    settings if None. `anyway`: even if clients read or write there.
    """

    link: str
    topics: Sequence[str]
    folder: Path | None = None
    anyway: bool = False


def plan_rebuild(request: RebuildRequest, settings: Settings, store: Store, *, by: str = "") -> SwitchPlan:
    """Raises ConfigError if the link has no such topic; obstacles are `refusal`, in one sentence."""
    link = effective_links(settings.links, store)[settings.link(parse_link_name(request.link)).name].link
    rows = _rows(link, request.topics, store)
    if refusal := _unfit(link, request.topics, store):
        return SwitchPlan(refusal=refusal)
    homes = store.homes.of(pair_name(link))
    topics = tuple(
        topic_move_of_twin(rows, topic, homes[topic].term if topic in homes else 0)
        for topic in sorted(set(request.topics))
    )
    state = new_switch_state(SwitchKind.REBUILD, Link(link.target, link.source), topics, by)
    state = replace(state, folder=str(rescue_folder(settings, request.folder)), anyway=request.anyway)
    with open_link(link, settings) as clients:
        old, new = clients.target, clients.source
        if silent := refuse_silent_cluster(clients):
            return SwitchPlan(refusal=silent)
        verify_cluster_ids(link, store, new, old)
        changes = describe_topic_changes(old, topics, new=False) or describe_topic_changes(new, topics, new=True)
        if changes:
            remedy = "`twinshore mirror recreate` is for topics that are others by now"
            return SwitchPlan(refusal=RefusedError("switch.topic-changed", cause=changes, remedy=remedy))
        shown = tuple(_shown_rebuild(state, old, new, store))
        offsets, live = read_group_offsets(old, state.names())
        disk = check_disk_space(old, state.names(), settings)
    remedy, members = "stop these consumers; --anyway deletes it under them", () if request.anyway else live
    refusal = refuse_deletion(link, state.names(), members, remedy, settings, store) or disk.refused()
    if refusal:
        return SwitchPlan(shown=shown, refusal=refusal)
    warnings = filter(None, (disk.words, describe_partial_refill(link)))
    remarks = (*_remarks(state, sorted(offsets), live, store), *warnings)
    return SwitchPlan(STEPS[SwitchKind.REBUILD], shown, remarks, state=state)


def _rows(link: Link, topics: Sequence[str], store: Store) -> list[TwinRow]:
    rows = [row for row in store.twins.of(link.name) if not is_heartbeats_topic(row.topic)]
    known = {row.topic for row in rows}
    for topic in topics:
        if topic not in known:
            near = did_you_mean(topic, sorted(known))
            raise ConfigError("switch.no-such-twin", link=link.name, topic=topic, near=near)
    return rows


def _unfit(link: Link, topics: Sequence[str], store: Store) -> TwinshoreError | None:
    if link.naming is not TwinNaming.SAME:
        return RefusedError("switch.prefix-not-rebuilt", link=link.name)
    mapped = sorted({topic for topic, _ in store.offset_runs.reached(link.name)} & set(topics))
    if link.mode is OffsetMode.MAPPED and not mapped:
        return refuse_adopting_link(link, "rebuilt")
    if mapped:
        return RefusedError("switch.mapped-not-rebuilt", topics=join_names(mapped))
    homes = store.homes.of(pair_name(link))
    away = sorted(topic for topic in set(topics) if topic in homes and homes[topic].home != link.source)
    return RefusedError("switch.not-at-home", topics=join_names(away), cluster=link.source) if away else None


def _shown_rebuild(state: SwitchState, old: KafkaCluster, new: KafkaCluster, store: Store) -> Iterator[str]:
    twins, homes = (read_log_ends(cluster, state.topics).ends for cluster in (old, new))
    for move in state.topics:
        held, there = (count_phrase(sum(ends[move.topic]), "offset") for ends in (twins, homes))
        what = f"{move.topic}, {count_phrase(move.partitions, 'partition')}, {held} now, {there} then"
        yield f"deleted on {state.old} and refilled from {state.new}: topic {what}"
    for offset_range in find_doubtful_ranges(inspect_old_home(old, new, store, state.back, state.topics, every=True)):
        count = count_unreplicated_records(state, offset_range, old, new, store)
        if count.records:
            lacks = (
                f"{count_phrase(count.records, 'record')} that {state.new} lacks, {count.committed} of them committed"
            )
            yield f"to be rescued: {lacks}, of {offset_range}, to {RESCUED_TOPIC} on {state.new} and to {state.folder}"


def _remarks(state: SwitchState, groups: Sequence[str], live: Sequence[str], store: Store) -> Iterator[str]:
    rows = [row.incident for row in store.incidents.rows(state.back, open_only=True)]
    wrong = {row.topic for row in rows if row.policy.stops or row.policy.effect is IncidentEffect.TOPIC}
    for topic in state.names():
        if topic not in wrong:
            yield f"nothing is known to be wrong with the twin of {topic}"
    if groups:
        yield f"the committed offsets on {state.old} are restored: {join_names(groups)}"
    if live:
        yield f"group {join_names(live)} has members there now, and loses what it reads"
