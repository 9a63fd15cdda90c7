"""Operators' decisions on twins: keep one, approve a deletion that waits, begin again with a new one, or forget one."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

from twinshore.config.errors import ConfigError, RefusedError, TwinshoreError
from twinshore.config.frozen import WORD_CLIENT_ID
from twinshore.config.incident_policy import KNOWN_TOPIC_KINDS
from twinshore.config.model import DeletedTopicPolicy, Link, Plan
from twinshore.config.schema import did_you_mean
from twinshore.config.sentences import Tell
from twinshore.config.settings import Settings, parse_link_name
from twinshore.kafka.clock import wall_ms
from twinshore.replication.recovery import hold_mirror_lease, refuse_while_mirror_runs
from twinshore.replication.sync.cluster_comparison import observe_topics, read_twin_ranges
from twinshore.replication.sync.core.decisions import FORGOTTEN_OUTCOME, DeletionState
from twinshore.replication.sync.core.lifecycle import (
    DELETE_APPROVAL,
    KEEP_TWIN,
    RECREATE_APPROVAL,
    RECREATED_KIND,
    Approval,
    ObservedTopic,
    TwinRange,
    describe_kept,
    describe_not_kept,
    describe_ranges,
    explain_unsafe,
    find_unreplicated,
    parse_lifecycle_states,
    rows_to_forget,
)
from twinshore.replication.sync.deletion_guard import deletion_guard
from twinshore.runtime.endpoints import LinkClients, pin_cluster_ids
from twinshore.state.core.values import AuditRow, LinkStateRow
from twinshore.state.log import AuditFilter
from twinshore.state.store import Store

PATIENCE_S = 5.0
TWIN_GONE = "its twin is gone already"


@dataclass(frozen=True, slots=True)
class TwinPreview:
    """`against`: why the mirror would not delete the twin even with approval, if anything."""

    topic: str
    source: ObservedTopic
    target: ObservedTopic
    spans: tuple[TwinRange, ...]
    against: str

    def lines(self) -> list[str]:
        """What would be deleted, and what of it the link did not replicate."""
        if not self.target.is_there:
            return ["its twin is gone already: nothing is deleted"]
        lost = [
            f"{self.topic}-{partition} {first} to {last}: no progress says that this link replicated it"
            for partition, first, last in find_unreplicated(self.spans)
        ]
        return [describe_ranges(self.topic, self.spans), *lost]

    def approval(self, at_ms: int) -> Approval:
        """An approval of exactly this preview."""
        ends = tuple((partition, last + 1) for partition, _, last in find_unreplicated(self.spans))
        return Approval(at_ms, self.source.topic_id, ends)


def explain_unseen_twin(link: Link, settings: Settings, store: Store, topic: str) -> str:
    """Returns why the twin is not visible on the target; TWIN_GONE: there is none; empty: visible."""
    twin = link.twin_of(topic)
    try:
        with LinkClients(link, settings, client_id=WORD_CLIENT_ID, patience_s=PATIENCE_S) as clients:
            pin_cluster_ids(link, store, clients.source, clients.target)
            observed = observe_topics(clients.target, [twin])[twin]
    except TwinshoreError as error:
        return f"whether the twin of {topic} exists is unknown: {error}"
    if observed.is_hidden:
        return f"whether the twin of {topic} exists is unknown: {link.target} does not show it"
    return TWIN_GONE if observed.is_gone else ""


def preview_twin(link: Link, settings: Settings, store: Store, topic: str) -> TwinPreview:
    """Asks both clusters; KafkaError when one does not answer, or is another cluster."""
    against = deletion_guard(link, settings, store).objections([topic])[topic]
    twin = link.twin_of(topic)
    with LinkClients(link, settings, client_id=WORD_CLIENT_ID, patience_s=PATIENCE_S) as clients:
        pin_cluster_ids(link, store, clients.source, clients.target)
        source, target = observe_topics(clients.source, [topic])[topic], observe_topics(clients.target, [twin])[twin]
        spans = read_twin_ranges(clients.target, topic, twin, target, store.progress.positions(link.name))
        return TwinPreview(topic, source, target, tuple(spans), against)


@dataclass(frozen=True, slots=True)
class KeepTwinStep:
    """`topic`: ALL_TOPICS for all; `kept`: the subjects kept afterwards."""

    link: str
    topic: str
    undo: bool
    kept: frozenset[str]

    def sentence(self, *, done: bool) -> str:
        kept = describe_kept(self.topic, self.kept)
        return f"{self.link}: {kept}" if done else f"{self.link}: then {kept}"


@dataclass(frozen=True, slots=True)
class AllowDeletionStep:
    link: str
    topic: str

    def sentence(self, *, done: bool) -> str:
        deletes = "deletes" if done else "would delete"
        return f"{self.link}: the running mirror {deletes} the twin of {self.topic} within seconds"


def plan_keep(
    topic: str, links: Sequence[str], settings: Settings, store: Store, *, every: bool = False, undo: bool = False
) -> Plan[KeepTwinStep]:
    """Plans to forbid deleting the topic's twin; `every`: all twins of the links. `undo` ends that for a single link. A
    twin must exist to be kept, if the target answers.
    """
    if bool(topic) is every:
        raise ConfigError("replication.one-of-two", one="a topic", other="--all")
    chosen = [settings.only(links)] if undo else settings.chosen(links)
    kept = {link.name: frozenset(row.subject for row in store.link_states.of(link.name, KEEP_TWIN)) for link in chosen}
    known = {link.name: {row.topic for row in store.twins.of(link.name)} for link in chosen}
    if undo:
        known = {name: topics | kept[name] for name, topics in known.items()}
    names = [name for name in known if every or topic in known[name]]
    if not names:
        known_topics = sorted(set().union(*known.values()))
        raise ConfigError("replication.topic-unknown", topic=topic, near=did_you_mean(topic, known_topics))
    if undo:
        shown = [f"{name}: {describe_not_kept(topic, kept[name])}" for name in names if topic not in kept[name]]
        steps = [KeepTwinStep(name, topic, True, kept[name] - {topic}) for name in names if topic in kept[name]]
        return Plan(tuple(steps), tuple(shown))
    unseen = {name: "" if every else explain_unseen_twin(settings.link(name), settings, store, topic) for name in names}
    steps = [KeepTwinStep(name, topic, False, kept[name] | {topic}) for name in names if unseen[name] != TWIN_GONE]
    if not steps:
        return Plan(refusal=RefusedError("replication.twin-gone", topic=topic))
    return Plan(tuple(steps), tuple(f"{name}: {why}" for name, why in unseen.items() if why))


def act_keep(plan: Plan[KeepTwinStep], store: Store, *, by: str) -> Iterator[KeepTwinStep]:
    """Stores the decision; a running mirror obeys at once, since every deletion checks this first."""
    for step in plan.steps:
        now_ms = wall_ms()
        row = LinkStateRow(step.link, KEEP_TWIN, step.topic, "", "kept", now_ms)
        after = "an order to keep was taken back" if step.undo else "kept: nothing deletes it, or them"
        subject = step.topic or "all topics"
        told = AuditRow(now_ms, step.link, "topic", subject, "", after, f"by {by}", by, step.topic)
        (store.link_states.forget if step.undo else store.link_states.remember)([row], [told])
        yield step


def plan_delete(topic: str, link: Link, settings: Settings, store: Store) -> Plan[AllowDeletionStep]:
    """Plans to approve a deletion of the policy that waits; asks both clusters, and refuses when anything forbids the
    deletion.
    """
    states, waits = parse_lifecycle_states(store.link_states.of(link.name)), DeletionState.NEEDS_APPROVAL
    waiting = sorted(name for name, state in states.items() if state.state is waits and not state.source_id)
    if topic not in waiting:
        raise ConfigError("replication.no-deletion-waits", topic=topic, near=did_you_mean(topic, waiting))
    preview = preview_twin(link, settings, store, topic)
    shown = tuple(f"{link.name}: {line}" for line in preview.lines())
    policy = link.follow.deleted
    not_by_policy = "" if policy is DeletedTopicPolicy.DELETE else f"deleted = {policy.value!r} now"
    why = preview.against or not_by_policy or explain_unsafe(topic, preview.spans)
    if why:
        return Plan(shown=shown, refusal=RefusedError("replication.twin-not-deleted", topic=topic, why=why))
    return Plan((AllowDeletionStep(link.name, topic),), shown)


def act_delete(plan: Plan[AllowDeletionStep], store: Store, *, by: str) -> Iterator[AllowDeletionStep]:
    """Stores the approval; the running mirror checks everything again before the deletion."""
    for step in plan.steps:
        now_ms = wall_ms()
        after = "its twin may be deleted"
        row = AuditRow(now_ms, step.link, "topic", step.topic, "", after, f"by {by}", by, step.topic)
        approval = Approval(now_ms).to_json()
        state = LinkStateRow(step.link, DELETE_APPROVAL, step.topic, approval, "agreed", now_ms)
        store.link_states.remember([state], [row])
        yield step


def read_audit(wanted: AuditFilter, settings: Settings, store: Store, *, last: int) -> tuple[AuditRow, ...]:
    """Returns rows, newest first, of all links if none is named; for the next page, set `before` to the last id."""
    links = tuple(link.name for link in settings.chosen(wanted.links))
    return store.audit.page(replace(wanted, links=links), limit=last)


def describe_change(row: AuditRow) -> str:
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(row.at_ms / 1000))
    change = f"{row.before or '-'} -> {row.after or '-'}"
    return f"{when} {row.link}: {row.kind} {row.subject}: {change} ({row.outcome})"


@dataclass(frozen=True, slots=True)
class RecreateStep:
    """An approval of exactly what was `seen`."""

    link: str
    topic: str
    preview: TwinPreview

    def sentence(self, *, done: bool) -> str:
        starts = "starts" if done else "would start"
        return f"{self.link}: {self.topic} {starts} again; the running mirror does it within seconds"


def plan_recreate(
    topic: str, link: Link, settings: Settings, store: Store, *, even_unreplicated: bool = False
) -> Plan[RecreateStep]:
    """Plans an approval, only for a topic stopped as recreated. Asks both clusters what would be deleted.
    `even_unreplicated` approves deleting records that the link did not replicate.
    """
    _refuse_unstopped(store, link, topic)
    preview = preview_twin(link, settings, store, topic)
    shown = tuple(f"{link.name}: {line}" for line in preview.lines())
    refused = _refusal(link, topic, preview, even_unreplicated=even_unreplicated)
    steps = () if refused else (RecreateStep(link.name, topic, preview),)
    return Plan(steps, shown, refusal=refused)


def act_recreate(plan: Plan[RecreateStep], store: Store, *, by: str) -> Iterator[RecreateStep]:
    """Stores the approval; the running mirror begins again if the twin is still as approved."""
    for step in plan.steps:
        now_ms = wall_ms()
        row = AuditRow(now_ms, step.link, "topic", step.topic, "", "starts again", f"agreed by {by}", by, step.topic)
        approval = step.preview.approval(now_ms).to_json()
        state = LinkStateRow(step.link, RECREATE_APPROVAL, step.topic, approval, "agreed", now_ms)
        store.link_states.remember([state], [row])
        yield step


def _refusal(link: Link, topic: str, preview: TwinPreview, *, even_unreplicated: bool) -> RefusedError | None:
    if not preview.source.is_there:
        return RefusedError("replication.no-source-topic", cluster=link.source, topic=topic)
    if preview.target.is_there and preview.against:
        return RefusedError("replication.twin-not-deleted", topic=topic, why=preview.against)
    if find_unreplicated(preview.spans) and not even_unreplicated:
        return RefusedError("replication.twin-last-copy", topic=topic)
    return None


def _refuse_unstopped(store: Store, link: Link, topic: str) -> None:
    """Refuses topics not stopped as recreated, and mapped ones."""
    rows = [row for row in store.incidents.rows(link.name, open_only=True) if row.incident.kind == RECREATED_KIND]
    stopped = {row.incident.topic for row in rows}
    if topic not in stopped:
        raise ConfigError("replication.topic-not-recreated", topic=topic, near=did_you_mean(topic, sorted(stopped)))
    if any(name == topic for name, _ in store.offset_runs.reached(link.name)):
        raise RefusedError("replication.mapped-twin-kept", topic=topic, link=link.name)


@dataclass(frozen=True, slots=True)
class ForgetTopicStep:
    """`partitions`: 0: the topic is in the incident log alone."""

    link: str
    topic: str
    partitions: int

    def sentence(self, *, done: bool) -> str:
        forgotten = "forgotten" if done else "would be forgotten"
        return f"{self.link}: {self.partitions} partitions of {self.topic} {forgotten}"


def plan_forget(topic: str, links: Sequence[str], settings: Settings, store: Store) -> Plan[ForgetTopicStep]:
    """Plans the change; without `links`, for the only link that knows the topic. ConfigError when no link knows it, or
    several do.
    """
    known = {name: _topics(store, name) for name in _links(links, settings, store)}
    knowing = [name for name in known if topic in known[name]]
    if not knowing:
        known_topics = sorted(set().union(*known.values()))
        raise ConfigError("replication.topic-unknown", topic=topic, near=did_you_mean(topic, known_topics))
    if len(knowing) > 1 and not links:
        raise ConfigError("replication.topic-on-several-links", topic=topic, links=", ".join(knowing))
    return Plan(tuple(ForgetTopicStep(name, topic, known[name][topic]) for name in knowing))


def act_forget(
    plan: Plan[ForgetTopicStep], settings: Settings, store: Store, *, by: str, tell: Tell
) -> Iterator[ForgetTopicStep]:
    """Executes the steps. RefusedError, before any change, while a mirror runs one of the links; none can begin until
    this ends. `tell` gets what is waited for.
    """
    seen = {step.link: refuse_while_mirror_runs(store, step.link, settings.mirror.lease_s, tell) for step in plan.steps}
    with ExitStack() as held:
        for link, lease in seen.items():
            held.enter_context(hold_mirror_lease(store, link, lease, by))
        for step in plan.steps:
            _forget(store, step.link, step.topic, by)
    yield from plan.steps


def _forget(store: Store, link: str, topic: str, by: str) -> None:
    now_ms = wall_ms()
    told = AuditRow(now_ms, link, "topic", topic, "", FORGOTTEN_OUTCOME, f"by {by}", by, topic)
    store.forget_topic(link, topic, rows_to_forget(link, topic), [told])
    # Incidents of the old twin do not stop the new one.
    for row in store.incidents.rows(link, open_only=True):
        incident = row.incident
        stops = incident.policy.stops if incident.partition >= 0 else incident.kind in KNOWN_TOPIC_KINDS
        if incident.topic == topic and stops:
            store.incidents.close(row.id, now_ms=now_ms)


def _links(names: Sequence[str], settings: Settings, store: Store) -> list[str]:
    """Returns the chosen links, also ones that only the store knows."""
    parsed = [parse_link_name(name) for name in names]
    gone = [name for name in parsed if all(link.name != name for link in settings.links) and store.twins.count(name)]
    chosen = [name for name in parsed if name not in gone]
    return gone + [link.name for link in (settings.chosen(chosen) if chosen or not names else [])]


def _topics(store: Store, link: str) -> dict[str, int]:
    """Returns the number of known partitions of each topic; 0: only an incident of the whole topic."""
    incidents = [row.incident for row in store.incidents.rows(link, open_only=True)]
    known = {incident.topic: 0 for incident in incidents if incident.partition < 0 and incident.topic}
    for row in store.twins.of(link):
        known[row.topic] = known.get(row.topic, 0) + 1
    return known
