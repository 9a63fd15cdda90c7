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


def plan(asked: RebuildRequest, settings: Settings, store: Store, *, by: str = "") -> SwitchPlan:
    """Raises ConfigError if the link has no such topic; obstacles are `refused`, in one sentence."""
    link = effective_links(settings.links, store)[settings.link(parse_link_name(asked.link)).name].link
    rows = _rows(link, asked.topics, store)
    if refused := _unfit(link, asked.topics, store):
        return SwitchPlan(refused=refused)
    homes = store.homes.of(pair_name(link))
    topics = tuple(
        topic_move_of_twin(rows, topic, homes[topic].term if topic in homes else 0)
        for topic in sorted(set(asked.topics))
    )
    folder = str(rescue_folder(settings, asked.folder))
    record = replace(new_switch_state(SwitchKind.REBUILD, link, topics, by, folder), anyway=asked.anyway)
    with LinkClients(link, settings, patience_s=REQUEST_TIMEOUT_S, call_s=REQUEST_TIMEOUT_S) as ends:
        for cluster in (ends.source, ends.target):
            if away := why_unreachable(cluster):
                silent = RefusedError("switch.cluster-silent", cluster=cluster.name, cause=away)
                return SwitchPlan(refused=silent)
        verify_cluster_ids(link, store, ends.source, ends.target)
        if other := describe_topic_changes(ends.target, topics, new=False) or describe_topic_changes(
            ends.source, topics, new=True
        ):
            hint = "`twinshore mirror begin-again` is for topics that are others by now"
            return SwitchPlan(refused=RefusedError("switch.topic-changed", cause=other, remedy=hint))
        shown = tuple(_shown(record, ends, store))
        places, live = read_group_offsets(ends.target, record.names())
        room = check_disk_space(ends.target, record.names(), settings)
    refused = _refused(record, () if asked.anyway else live, link, settings, store) or room.refused()
    if refused:
        return SwitchPlan(shown=shown, refused=refused)
    steps = tuple(SwitchPlanStep(deed) for deed in STEPS[SwitchKind.REBUILD])
    remarks = (
        *_remarks(record, sorted(places), live, store),
        *filter(None, (room.words, describe_partial_refill(link))),
    )
    return SwitchPlan(steps, shown, remarks, record=record)


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


def _shown(record: SwitchState, ends: LinkClients, store: Store) -> Iterator[str]:
    twins, homes = (read_log_ends(cluster, record.topics).ends for cluster in (ends.target, ends.source))
    for one in record.topics:
        held, there = (count_phrase(sum(side[one.topic]), "offset") for side in (twins, homes))
        partitions = count_phrase(one.partitions, "partition")
        yield (
            f"deleted on {record.old} and filled again from {record.new}: topic {one.topic}, {partitions}, "
            f"{held} now, {there} then"
        )
    for tail in find_doubtful_ranges(
        inspect_old_home(ends.target, ends.source, store, record.back, record.topics, every=True)
    ):
        home = rescue_steps.home_to_compare(record.back, tail, ends.source, store, tail.first)
        count = rescue_steps.count_unreplicated_records(ends.target, origin_of(record, tail), home)
        if count.records:
            some = (
                f"{count_phrase(count.records, 'record')} that {record.new} lacks, {count.committed} of them committed"
            )
            yield f"to be rescued: {some}, of {tail}, to {RESCUED_TOPIC} on {record.new} and to {record.folder}"


def _refused(
    record: SwitchState, live: Sequence[str], link: Link, settings: Settings, store: Store
) -> TwinshoreError | None:
    if others := refuse_claimed_topics(store, pair_name(link), record.names()):
        return others
    if live:
        return RefusedError(
            "switch.group-reads-twin",
            groups=join_names(live, NAMED_MAX),
            cluster=record.old,
            remedy="stop these consumers; --anyway deletes it under them",
        )
    return deletion_guard(link, settings, store).refusal(record.names())


def _remarks(record: SwitchState, groups: Sequence[str], live: Sequence[str], store: Store) -> Iterator[str]:
    rows = [row.incident for row in store.incidents.rows(record.back, open_only=True)]
    for topic in record.names():
        told = [
            one
            for one in rows
            if one.topic == topic and (one.policy.stops or one.policy.effect is IncidentEffect.TOPIC)
        ]
        if not told:
            yield f"nothing is known to be wrong with the twin of {topic}"
    if groups:
        yield f"groups are put back on {record.old} where they stand: {join_names(groups, NAMED_MAX)}"
    if live:
        yield f"group {join_names(live, NAMED_MAX)} has members there now, and loses what it reads"
