"""Plans a fail-back of a returned old home: what to rescue and delete. Changes nothing."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from twinshore.config.errors import ConfigError, RefusedError, TwinshoreError
from twinshore.config.frozen import RESCUED_TOPIC
from twinshore.config.model import Link, TwinNaming, is_heartbeats_topic
from twinshore.config.sentences import count_phrase, join_names
from twinshore.config.settings import Settings
from twinshore.kafka.clock import wall_ms
from twinshore.kafka.cluster import KafkaCluster
from twinshore.replication.core.ownership import pair_name
from twinshore.replication.links import effective_links
from twinshore.replication.sync.topic_deletion import deletion_guard
from twinshore.runtime.endpoints import LinkClients, verify_cluster_ids
from twinshore.state.core.values import TwinRow
from twinshore.state.store import Store
from twinshore.switch import rescue_steps
from twinshore.switch.announce import refuse_claimed_topics
from twinshore.switch.core.steps import STEPS, SwitchKind, SwitchState, TopicMove
from twinshore.switch.core.unreplicated import (
    OldHomePartition,
    UnreplicatedRange,
    explain_differing_partitions,
    find_differing_partitions,
    find_unreplicated_ranges,
    has_unchecked_records,
    ranges_to_json,
    topics_of_ranges,
)
from twinshore.switch.drain import describe_partial_refill, describe_topic_changes, why_unreachable
from twinshore.switch.failback import why_not_mapped
from twinshore.switch.handover import read_group_offsets
from twinshore.switch.operations.plan import (
    SwitchPlan,
    SwitchPlanStep,
    check_disk_space,
    check_expressions,
    describe_old_home_access,
)
from twinshore.switch.rescue_steps import inspect_old_home, origin_of

NAMED_MAX = 5
REQUEST_TIMEOUT_S = 5.0
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


def rescue_folder(settings: Settings, said: Path | None = None) -> Path:
    return said.absolute() if said else (settings.file or Path.cwd() / "twinshore.toml").parent / RESCUE_FOLDER


def plan(request: FailbackRequest, settings: Settings, store: Store, *, by: str = "") -> SwitchPlan:
    """Raises ConfigError if no topic matches; obstacles are `refusal`, in one sentence."""
    settings.cluster(request.old)
    check_expressions(request.topics)
    back, topics = _link_of(
        request, [effective.link for effective in effective_links(settings.links, store).values()], store
    )
    if mapped := sorted({topic for topic, _ in store.offset_runs.reached(back.name)} & {move.topic for move in topics}):
        return SwitchPlan(
            refusal=RefusedError("switch.mapped-already", topics=join_names(mapped, NAMED_MAX), cluster=request.old)
        )
    link = Link(back.target, back.source)
    with LinkClients(link, settings, patience_s=REQUEST_TIMEOUT_S, call_s=REQUEST_TIMEOUT_S) as clients:
        for cluster in (clients.source, clients.target):
            if away := why_unreachable(cluster):
                silent = RefusedError("switch.cluster-silent", cluster=cluster.name, cause=away)
                return SwitchPlan(refusal=silent)
        verify_cluster_ids(back, store, clients.target, clients.source)
        if other := describe_topic_changes(clients.source, topics, new=False):
            return SwitchPlan(
                refusal=RefusedError(
                    "switch.topic-changed", cause=other, remedy="save its records, and delete it there by hand"
                )
            )
        partitions = inspect_old_home(clients.source, clients.target, store, back.name, topics)
        found = find_unreplicated_ranges(partitions)
        kind = SwitchKind.MAPPED_FAILBACK if request.mapped else SwitchKind.FAILBACK
        state = new_switch_state(kind, back, topics, by, str(rescue_folder(settings, request.folder)))
        shown = tuple(_shown(state, found, clients.source, clients.target, store))
        refusal = _unmappable(found, state, clients.source, store) if request.mapped else None
        _, live = (
            read_group_offsets(clients.source, topics_of_ranges(found)) if found and not request.mapped else ({}, ())
        )
        room = check_disk_space(clients.source, state.names(), settings)
        guarded = describe_old_home_access(clients.source, state.names(), "")
    if others := find_differing_partitions(partitions, topics_of_ranges(found)):
        refusal = RefusedError("switch.other-records", cause=explain_differing_partitions(others, state.old, state.new))
    refusal = refusal or _refused(found, live, back, settings, store, deletes=not request.mapped) or room.refused()
    if refusal:
        return SwitchPlan(shown=shown, refusal=refusal)
    steps = tuple(SwitchPlanStep(step) for step in STEPS[kind])
    part = describe_partial_refill(back) if found and not request.mapped else ""
    remarks = (*_remarks(partitions, state), *filter(None, (room.words, part)), guarded)
    return SwitchPlan(steps, shown, remarks, state=state)


def _link_of(request: FailbackRequest, links: Sequence[Link], store: Store) -> tuple[Link, tuple[TopicMove, ...]]:
    wanted = [re.compile(pattern) for pattern in request.topics]
    found: dict[str, list[TwinRow]] = {}
    for link in links:
        if (
            link.target != request.old
            or link.naming is not TwinNaming.SAME
            or (request.links and link.name not in request.links)
        ):
            continue
        rows = [row for row in store.twins.of(link.name) if row.epoch and not is_heartbeats_topic(row.topic)]
        if ours := [row for row in rows if any(one.fullmatch(row.topic) for one in wanted)]:
            found[link.name] = ours
    if not found:
        raise ConfigError(
            "switch.not-moved-away", topics=join_names(list(request.topics), NAMED_MAX), cluster=request.old
        )
    if len(found) > 1:
        raise ConfigError(
            "switch.several-links",
            topics=join_names(list(request.topics), NAMED_MAX),
            links=join_names(sorted(found), NAMED_MAX),
        )
    ((name, rows),) = found.items()
    back = next(one for one in links if one.name == name)
    homes = store.homes.of(pair_name(back))
    away = sorted({row.topic for row in rows if row.topic not in homes or homes[row.topic].home != back.source})
    if away:
        raise RefusedError("switch.not-at-home", topics=join_names(away, NAMED_MAX), cluster=back.source)
    return back, tuple(
        topic_move_of_twin(rows, topic, homes[topic].term) for topic in sorted({row.topic for row in rows})
    )


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


def new_switch_state(
    kind: SwitchKind, carrier: Link, topics: tuple[TopicMove, ...], by: str, folder: str
) -> SwitchState:
    """`carrier` fills the twins. Its target is the old home, or has always held twins."""
    return SwitchState(
        id=secrets.token_hex(16),
        kind=kind,
        old=carrier.target,
        new=carrier.source,
        link=f"{carrier.target}->{carrier.source}",
        back=carrier.name,
        topics=topics,
        by=by,
        begun_ms=wall_ms(),
        hold_s_max=0.0,
        step=STEPS[kind][0],
        folder=folder,
    )


def _shown(
    state: SwitchState, found: Sequence[UnreplicatedRange], old: KafkaCluster, new: KafkaCluster, store: Store
) -> Iterator[str]:
    if not found:
        yield f"nothing diverged: {state.old} holds nothing that {state.new} lacks"
        yield "nothing is rescued, nothing is deleted"
        return
    for offset_range in found:
        home = rescue_steps.home_to_compare(state.back, offset_range, new, store, 0) if offset_range.beside else None
        count = rescue_steps.count_unreplicated_records(old, origin_of(state, offset_range), home)
        some = f"{count_phrase(count.records, 'record')}, {count.committed} of them committed"
        if offset_range.gone:
            offsets = f"{count_phrase(offset_range.gone, 'offset')} of {offset_range.topic}-{offset_range.partition}"
            yield f"lost: {offsets} were deleted on {state.old} before anybody saw them"
        if offset_range.end <= offset_range.first:
            continue
        if offset_range.beside:
            lacks = f"{state.new} lacks of {offset_range} of {state.old}"
            yield f"to be rescued: {some}: all that {lacks}; where both part is not known"
            continue
        yield f"to be rescued: {offset_range} of {state.old}, {some}"
    if any(offset_range.end > offset_range.first for offset_range in found):
        yield f"rescued to {RESCUED_TOPIC} on {state.new}, and exported to {state.folder}"
    for topic in topics_of_ranges(found):
        if state.kind is SwitchKind.MAPPED_FAILBACK:
            yield f"goes on behind that, mapped, and nothing is deleted: topic {topic} on {state.old}"
            continue
        yield f"to be deleted, and filled again from {state.new}: topic {topic} on {state.old}"


def _refused(
    found: Sequence[UnreplicatedRange],
    live: Sequence[str],
    back: Link,
    settings: Settings,
    store: Store,
    *,
    deletes: bool,
) -> TwinshoreError | None:
    if others := refuse_claimed_topics(store, pair_name(back), topics_of_ranges(found)):
        return others
    if live:
        return RefusedError(
            "switch.group-reads-twin",
            groups=join_names(live, NAMED_MAX),
            cluster=back.target,
            remedy=f"stop these consumers, or point them to {back.source}; a consumer that was "
            "killed is a member until its session times out",
        )
    return deletion_guard(back, settings, store).refusal(topics_of_ranges(found)) if deletes else None


def _unmappable(
    found: Sequence[UnreplicatedRange], state: SwitchState, old: KafkaCluster, store: Store
) -> TwinshoreError | None:
    why = why_not_mapped(replace(state, tails=ranges_to_json(found)), old, store) if found else ""
    return RefusedError("switch.not-mappable", cause=why) if why else None


def _remarks(partitions: Sequence[OldHomePartition], state: SwitchState) -> Iterator[str]:
    if waits := [
        f"{partition.topic}-{partition.partition}" for partition in partitions if has_unchecked_records(partition)
    ]:
        yield f"the mirror of {state.back} has not looked at {join_names(waits, NAMED_MAX)} yet; it must run"
