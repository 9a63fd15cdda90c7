"""Plans the rebuild of spoilt twins: what to rescue, delete and refill. Changes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from twinshore.config.errors import ConfigError, RefusedError, TwinshoreError
from twinshore.config.frozen import RESCUED_TOPIC
from twinshore.config.incident_policy import IncidentEffect
from twinshore.config.model import Link, OffsetMode, TwinNaming, is_heartbeats_topic
from twinshore.config.schema import did_you_mean
from twinshore.config.sentences import count_phrase, join_names
from twinshore.config.settings import Settings, parse_link_name
from twinshore.replication.core.ownership import pair_name
from twinshore.replication.links import effective_links
from twinshore.replication.sync.topic_deletion import deletion_guard
from twinshore.runtime.endpoints import LinkClients, verify_cluster_ids
from twinshore.state.core.values import TwinRow
from twinshore.state.store import Store
from twinshore.switch import rescue_steps
from twinshore.switch.announce import refuse_claimed_topics
from twinshore.switch.core.steps import STEPS, SwitchKind, SwitchState
from twinshore.switch.core.unreplicated import find_doubtful_ranges
from twinshore.switch.drain import describe_partial_refill, describe_topic_changes, read_log_ends, why_unreachable
from twinshore.switch.handover import read_group_offsets
from twinshore.switch.operations.plan import SwitchPlan, SwitchPlanStep, check_disk_space, refuse_adopting_link
from twinshore.switch.operations.returning import new_switch_state, rescue_folder, topic_move_of_twin
from twinshore.switch.rescue_steps import inspect_old_home, origin_of

NAMED_MAX = 5
REQUEST_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class RebuildRequest:
    """Delete and refill the twins of these topics on the link's target. `folder`: for rescued records; beside the
    settings if None. `anyway`: even if clients read or write there.
    """

    link: str
    topics: Sequence[str]
    folder: Path | None = None
    anyway: bool = False


def plan(request: RebuildRequest, settings: Settings, store: Store, *, by: str = "") -> SwitchPlan:
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
    folder = str(rescue_folder(settings, request.folder))
    state = replace(new_switch_state(SwitchKind.REBUILD, link, topics, by, folder), anyway=request.anyway)
    with LinkClients(link, settings, patience_s=REQUEST_TIMEOUT_S, call_s=REQUEST_TIMEOUT_S) as clients:
        for cluster in (clients.source, clients.target):
            if away := why_unreachable(cluster):
                silent = RefusedError("switch.cluster-silent", cluster=cluster.name, cause=away)
                return SwitchPlan(refusal=silent)
        verify_cluster_ids(link, store, clients.source, clients.target)
        if other := describe_topic_changes(clients.target, topics, new=False) or describe_topic_changes(
            clients.source, topics, new=True
        ):
            hint = "`twinshore mirror recreate` is for topics that are others by now"
            return SwitchPlan(refusal=RefusedError("switch.topic-changed", cause=other, remedy=hint))
        shown = tuple(_shown(state, clients, store))
        places, live = read_group_offsets(clients.target, state.names())
        room = check_disk_space(clients.target, state.names(), settings)
    refusal = _refused(state, () if request.anyway else live, link, settings, store) or room.refused()
    if refusal:
        return SwitchPlan(shown=shown, refusal=refusal)
    steps = tuple(SwitchPlanStep(step) for step in STEPS[SwitchKind.REBUILD])
    remarks = (
        *_remarks(state, sorted(places), live, store),
        *filter(None, (room.words, describe_partial_refill(link))),
    )
    return SwitchPlan(steps, shown, remarks, state=state)


def _rows(link: Link, topics: Sequence[str], store: Store) -> list[TwinRow]:
    rows = [row for row in store.twins.of(link.name) if not is_heartbeats_topic(row.topic)]
    known = {row.topic for row in rows}
    for topic in topics:
        if topic not in known:
            raise ConfigError(
                "switch.no-such-twin", link=link.name, topic=topic, near=did_you_mean(topic, sorted(known))
            )
    return rows


def _unfit(link: Link, topics: Sequence[str], store: Store) -> TwinshoreError | None:
    if link.naming is not TwinNaming.SAME:
        return RefusedError("switch.prefix-not-rebuilt", link=link.name)
    mapped = sorted({topic for topic, _ in store.offset_runs.reached(link.name)} & set(topics))
    if link.mode is OffsetMode.MAPPED and not mapped:
        return refuse_adopting_link(link, "rebuilt")
    if mapped:
        return RefusedError("switch.mapped-not-rebuilt", topics=join_names(mapped, NAMED_MAX))
    homes = store.homes.of(pair_name(link))
    away = sorted(topic for topic in set(topics) if topic in homes and homes[topic].home != link.source)
    return RefusedError("switch.not-at-home", topics=join_names(away, NAMED_MAX), cluster=link.source) if away else None


def _shown(state: SwitchState, clients: LinkClients, store: Store) -> Iterator[str]:
    twins, homes = (read_log_ends(cluster, state.topics).ends for cluster in (clients.target, clients.source))
    for move in state.topics:
        held, there = (count_phrase(sum(side[move.topic]), "offset") for side in (twins, homes))
        partitions = count_phrase(move.partitions, "partition")
        yield (
            f"deleted on {state.old} and filled again from {state.new}: topic {move.topic}, {partitions}, "
            f"{held} now, {there} then"
        )
    for offset_range in find_doubtful_ranges(
        inspect_old_home(clients.target, clients.source, store, state.back, state.topics, every=True)
    ):
        home = rescue_steps.home_to_compare(state.back, offset_range, clients.source, store, offset_range.first)
        count = rescue_steps.count_unreplicated_records(clients.target, origin_of(state, offset_range), home)
        if count.records:
            some = (
                f"{count_phrase(count.records, 'record')} that {state.new} lacks, {count.committed} of them committed"
            )
            yield f"to be rescued: {some}, of {offset_range}, to {RESCUED_TOPIC} on {state.new} and to {state.folder}"


def _refused(
    state: SwitchState, live: Sequence[str], link: Link, settings: Settings, store: Store
) -> TwinshoreError | None:
    if others := refuse_claimed_topics(store, pair_name(link), state.names()):
        return others
    if live:
        return RefusedError(
            "switch.group-reads-twin",
            groups=join_names(live, NAMED_MAX),
            cluster=state.old,
            remedy="stop these consumers; --anyway deletes it under them",
        )
    return deletion_guard(link, settings, store).refusal(state.names())


def _remarks(state: SwitchState, groups: Sequence[str], live: Sequence[str], store: Store) -> Iterator[str]:
    rows = [row.incident for row in store.incidents.rows(state.back, open_only=True)]
    for topic in state.names():
        incidents = [
            incident
            for incident in rows
            if incident.topic == topic and (incident.policy.stops or incident.policy.effect is IncidentEffect.TOPIC)
        ]
        if not incidents:
            yield f"nothing is known to be wrong with the twin of {topic}"
    if groups:
        yield f"groups are put back on {state.old} where they stand: {join_names(groups, NAMED_MAX)}"
    if live:
        yield f"group {join_names(live, NAMED_MAX)} has members there now, and loses what it reads"
