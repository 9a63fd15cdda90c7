"""Lists the incident log, with closed incidents; and resumes stopped partitions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

from twinshore.config.errors import ConfigError, KafkaError, RefusedError, WireError
from twinshore.config.incident_policy import IncidentKind
from twinshore.config.model import Link, Plan, TopicPartition
from twinshore.config.schema import did_you_mean
from twinshore.config.sentences import format_time, join_names
from twinshore.config.settings import Settings
from twinshore.kafka.clock import wall_ms
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.protocol.record_batch import MESSAGE_BYTES_DEFAULT, PREFIX_BYTES, check_crc
from twinshore.replication.stopped_partitions import read_stopped_partitions
from twinshore.replication.task.core.batches import SequenceMap
from twinshore.replication.task.core.messages import NO_EPOCH_OFFSET, EpochOffset
from twinshore.replication.task.core.position import StopAt, judge_position
from twinshore.replication.task.lookups import inspect_target
from twinshore.runtime.endpoints import LinkClients
from twinshore.state.core.values import AuditRow, Incident, IncidentRow, LinkIdentity, TwinRow
from twinshore.state.incident_log import IncidentFilter
from twinshore.state.store import Store

LOG_END_KINDS = frozenset({IncidentKind.TRUNCATION, IncidentKind.FOREIGN_WRITE, IncidentKind.POSITION_DISAGREEMENT})
BATCH_KINDS = frozenset({IncidentKind.CORRUPT_BATCH, IncidentKind.OLD_FORMAT})
SIZE_KINDS = frozenset({IncidentKind.OVERSIZE_BATCH})
PATIENCE_S = 5.0
StoppedRows = dict[TopicPartition, list[IncidentRow]]


def list_incidents(
    links: Sequence[str],
    settings: Settings,
    store: Store,
    *,
    kind: str = "",
    topic: str = "",
    open_only: bool = False,
    before: int = 0,
    last: int,
) -> tuple[IncidentRow, ...]:
    """Returns the `last` incidents of these links, or all, newest first; for the next page, set `before` to the last
    id.
    """
    kinds = [known.value for known in IncidentKind]
    if kind and kind not in kinds:
        raise ConfigError("replication.no-such-incident", kind=kind, known=join_names(kinds, len(kinds)))
    names, chosen = tuple(link.name for link in settings.chosen(links)), IncidentKind(kind) if kind else None
    return store.incidents.page(IncidentFilter(names, chosen, topic, open_only=open_only, before=before), limit=last)


def describe_incident(row: IncidentRow) -> str:
    """Describes a row; the last offset is inclusive."""
    incident = row.incident
    place = f"{incident.topic}-{incident.partition}" if incident.partition >= 0 else incident.topic
    what = f" {place}: {incident.kind}" if place else f" {incident.kind}"
    if incident.to_offset > incident.from_offset >= 0:
        what += f", offsets {incident.from_offset} to {incident.to_offset - 1}"
    ended = f"closed {format_time(row.closed_ms)}" if row.closed_ms is not None else "open"
    return f"{row.id} {format_time(row.opened_ms)} {incident.link}:{what}: {incident.sentence} ({ended})"


def incident_values(row: IncidentRow) -> dict[str, object]:
    """Returns a row for JSON; `to_offset` is exclusive. `joined_ranges`: of each joined row."""
    times = {"id": row.id, "opened_ms": row.opened_ms, "closed_ms": row.closed_ms}
    return {**times, **asdict(row.incident), "joined_ranges": row.joined_ranges}


@dataclass(frozen=True, slots=True)
class LinkAccess:
    source: KafkaCluster
    target: KafkaCluster
    identity: LinkIdentity


def explain_still_stopped(
    incident: Incident, row: TwinRow, twin: TopicPartition, sides: LinkAccess, stand: EpochOffset = NO_EPOCH_OFFSET
) -> str:
    """Why the partition would stop again; empty: the cause is gone or unknown. `stand`: replicated offset and leader
    epoch, as far as known.
    """
    tp = TopicPartition(incident.topic, incident.partition)
    try:
        if incident.kind in LOG_END_KINDS:
            return _log_end(tp, row, twin, sides, stand)
        if incident.kind in BATCH_KINDS:
            return _batch(tp, incident.from_offset, sides.source)
        if incident.kind in SIZE_KINDS:
            return _size(tp, incident.from_offset, twin, sides)
    except KafkaError:
        # Unknown now: the task asks again.
        return ""
    return ""


def _log_end(tp: TopicPartition, row: TwinRow, twin: TopicPartition, sides: LinkAccess, stand: EpochOffset) -> str:
    identity, place = sides.identity, ({tp: twin}, {tp: stand}, {tp: row.inherited_end})
    state = inspect_target(sides.source, sides.target, identity.producer_id, *place)[tp]
    stamp = SequenceMap.of((identity.producer_id, identity.producer_epoch), row)
    verdict = judge_position(state, stamp, row.inherited_end, carried=stand.end > 0)
    return verdict.sentence if isinstance(verdict, StopAt) else ""


def _batch(tp: TopicPartition, offset: int, source: KafkaCluster) -> str:
    try:
        found = source.read_batch(tp, offset)
        if found:
            check_crc(*found)
    except WireError as error:
        return str(error)
    return ""


def _size(tp: TopicPartition, offset: int, twin: TopicPartition, sides: LinkAccess) -> str:
    found = sides.source.read_batch(tp, offset)
    entry = sides.target.admin.topic_settings([twin.topic])[twin.topic].get("max.message.bytes")
    limit = int(entry.value) if entry and entry.value else MESSAGE_BYTES_DEFAULT
    size = PREFIX_BYTES + found[1].length if found else 0
    if size <= limit:
        return ""
    return f"the source's batch at offset {offset} has {size} bytes, max.message.bytes of {twin.topic} is {limit}"


@dataclass(frozen=True, slots=True)
class ResumeStep:
    """`rows`: the open incidents that stop the partition."""

    link: str
    partition: TopicPartition
    rows: tuple[IncidentRow, ...]

    def sentence(self, *, done: bool) -> str:
        return f"{self.link}: {self.partition} {'is' if done else 'would be'} resumed"


def plan(topic: str, partition: int | None, links: Sequence[str], settings: Settings, store: Store) -> Plan[ResumeStep]:
    """Plans to resume the topic's stopped partitions, or one, on these links, or all; refuses partitions whose cause is
    seen to persist.
    """
    steps: list[ResumeStep] = []
    refused: list[str] = []
    stopped: set[str] = set()
    for link in settings.chosen(links):
        found = read_stopped_partitions(store, link.name)
        stopped |= {tp.topic for tp in found}
        chosen = {tp: found[tp] for tp in sorted(found) if tp.topic == topic and partition in (None, tp.partition)}
        if chosen:
            reasons = _reasons(link, settings, store, chosen)
            refused += [f"{tp}: {why}" for tp, why in reasons.items() if why]
            steps += [ResumeStep(link.name, tp, tuple(chosen[tp])) for tp, why in reasons.items() if not why]
    if not steps and not refused:
        place = topic if partition is None else f"{topic}-{partition}"
        near = "" if topic in stopped else did_you_mean(topic, sorted(stopped))
        raise ConfigError("replication.not-stopped", place=place, near=near)
    refusal = RefusedError("replication.not-resumed", reasons="; ".join(refused)) if refused else None
    return Plan(tuple(steps), refusal=refusal)


def act(plan: Plan[ResumeStep], store: Store, *, by: str) -> Iterator[ResumeStep]:
    """Closes the incidents; the running mirror resumes the partitions within seconds."""
    for step in plan.steps:
        now_ms = wall_ms()
        for row in step.rows:
            if store.incidents.close(row.id, now_ms=now_ms):  # Else another process has closed the row.
                change = (f"{row.incident.kind} at offset {row.incident.from_offset}", "resumed", f"by {by}", by)
                place = (step.link, "resume", str(step.partition))
                store.audit.add([AuditRow(now_ms, *place, *change, step.partition.topic)])
        yield step


def _reasons(link: Link, settings: Settings, store: Store, stopped: StoppedRows) -> dict[TopicPartition, str]:
    """As `explain_still_stopped`."""
    identity = store.links.identity(link.name)
    if identity is None:
        return dict.fromkeys(stopped, "")  # A link that never wrote has nothing to check.
    twins = {TopicPartition(row.topic, row.partition): row for row in store.twins.of(link.name)}
    mapped = {TopicPartition(*where) for where in store.offset_runs.reached(link.name)}
    told = {
        TopicPartition(position.topic, position.partition): EpochOffset(position.source_epoch, position.to_offset)
        for position in store.progress.positions(link.name)
    }
    # A mapped twin has other offsets: its task checks.
    known = {tp: twins[tp] for tp in stopped if tp in twins and tp not in mapped}
    reasons = dict.fromkeys(stopped, "")
    with LinkClients(link, settings, patience_s=PATIENCE_S) as clients:
        sides = LinkAccess(clients.source, clients.target, identity)
        for tp, row in known.items():
            twin, at = TopicPartition(link.twin_of(tp.topic), tp.partition), told.get(tp, NO_EPOCH_OFFSET)
            whys = (explain_still_stopped(incident_row.incident, row, twin, sides, at) for incident_row in stopped[tp])
            reasons[tp] = next(filter(None, whys), "")
    return reasons
