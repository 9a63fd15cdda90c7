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
from twinshore.kafka.cluster import KafkaCluster
from twinshore.replication.core.ownership import pair_name
from twinshore.replication.links import effective_links
from twinshore.runtime.endpoints import verify_cluster_ids
from twinshore.state.core.values import TwinRow
from twinshore.state.store import Store
from twinshore.switch.core.steps import STEPS, SwitchKind, SwitchState
from twinshore.switch.core.unreplicated import find_doubtful_ranges
from twinshore.switch.drain import describe_partial_refill, describe_topic_changes, read_log_ends
from twinshore.switch.handover import read_group_offsets
from twinshore.switch.operations.plan import (
    SwitchPlan,
    check_disk_space,
    new_switch_state,
    open_link,
    refuse_adopting_link,
)
from twinshore.switch.operations.returning import (
    refuse_deletion,
    refuse_silent_cluster,
    rescue_folder,
    topic_move_of_twin,
)
from twinshore.switch.rescue_steps import count_unreplicated_records, inspect_old_home


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
        shown = tuple(_shown(state, old, new, store))
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


def _shown(state: SwitchState, old: KafkaCluster, new: KafkaCluster, store: Store) -> Iterator[str]:
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
