"""Operators' decisions on deletions of twins: keep a twin, or approve a deletion that waits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from twinshore.config.errors import ConfigError, RefusedError, TwinshoreError
from twinshore.config.frozen import WORD_CLIENT_ID
from twinshore.config.model import DeletedTopicPolicy, Link, Plan
from twinshore.config.schema import did_you_mean
from twinshore.config.settings import Settings
from twinshore.kafka.clock import wall_ms
from twinshore.replication.sync.cluster_comparison import observe_topics, read_twin_ranges
from twinshore.replication.sync.core.decisions import DeletionState
from twinshore.replication.sync.core.lifecycle import (
    ALL_TOPICS,
    DELETE_APPROVAL,
    KEEP_TWIN,
    Approval,
    ObservedTopic,
    Presence,
    TwinRange,
    describe_kept,
    describe_not_kept,
    describe_ranges,
    explain_unsafe,
    find_unreplicated,
    parse_lifecycle_states,
)
from twinshore.replication.sync.topic_deletion import deletion_guard
from twinshore.runtime.endpoints import LinkClients, pin_cluster_ids
from twinshore.state.core.values import AuditRow, LinkStateRow
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
        if self.target.presence is not Presence.THERE:
            return ["its twin is gone already: nothing is deleted"]
        lost = [
            f"{self.topic}-{partition} {first} to {last}: no receipt says that this link carried it"
            for partition, first, last in find_unreplicated(self.spans)
        ]
        return [describe_ranges(self.topic, self.spans), *lost]

    def word(self, at_ms: int) -> Approval:
        """An approval of exactly this preview."""
        ends = tuple((partition, last + 1) for partition, _, last in find_unreplicated(self.spans))
        return Approval(at_ms, self.source.topic_id, ends)


def explain_unseen_twin(link: Link, settings: Settings, store: Store, topic: str) -> str:
    """Returns why the twin is not visible on the target; TWIN_GONE: there is none; empty: visible."""
    twin = link.twin_of(topic)
    try:
        with LinkClients(link, settings, client_id=WORD_CLIENT_ID, patience_s=PATIENCE_S) as clients:
            pin_cluster_ids(link, store, clients.source, clients.target)
            here = observe_topics(clients.target, [twin])[twin].presence
    except TwinshoreError as error:
        return f"whether the twin of {topic} is there is not known: {error}"
    if here is Presence.HIDDEN:
        return f"whether the twin of {topic} is there is not known: {link.target} does not show it"
    return TWIN_GONE if here is Presence.GONE else ""


def preview_twin(link: Link, settings: Settings, store: Store, topic: str) -> TwinPreview:
    """Asks both clusters; KafkaError when one does not answer, or is another cluster."""
    against = deletion_guard(link, settings, store).objections([topic])[topic]
    twin = link.twin_of(topic)
    with LinkClients(link, settings, client_id=WORD_CLIENT_ID, patience_s=PATIENCE_S) as clients:
        pin_cluster_ids(link, store, clients.source, clients.target)
        there, here = observe_topics(clients.source, [topic])[topic], observe_topics(clients.target, [twin])[twin]
        held = (
            read_twin_ranges(clients.target, topic, twin, here, store.progress.positions(link.name))
            if here.partitions
            else []
        )
        return TwinPreview(topic, there, here, tuple(held), against)


@dataclass(frozen=True, slots=True)
class KeepTwin:
    """Forbid deleting the topic's twin; `every`: all twins of the links; `undo` ends that."""

    topic: str = ""
    links: Sequence[str] = ()
    every: bool = False
    undo: bool = False


@dataclass(frozen=True, slots=True)
class KeepTwinStep:
    """`topic`: ALL_TOPICS for all; `kept`: the subjects kept afterwards."""

    link: str
    topic: str
    undo: bool
    kept: frozenset[str]

    def sentence(self, *, done: bool) -> str:
        words = describe_kept(self.topic, self.kept)
        return f"{self.link}: {words}" if done else f"{self.link}: it would be so: {words}"


@dataclass(frozen=True, slots=True)
class AllowDeletion:
    """Approve a deletion of the policy that waits."""

    topic: str
    links: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class AllowDeletionStep:
    link: str
    topic: str

    def sentence(self, *, done: bool) -> str:
        word = "deletes" if done else "would delete"
        return f"{self.link}: the running mirror {word} the twin of {self.topic} within seconds"


def plan_keep(twin: KeepTwin, settings: Settings, store: Store) -> Plan[KeepTwinStep]:
    """Plans to keep twins. `undo` concerns a single link. A twin must exist to be kept, if the target answers."""
    topic = twin.topic or ALL_TOPICS
    if bool(twin.topic) is twin.every:
        raise ConfigError("replication.one-of-two", one="a topic", other="--all")
    links = [settings.only(twin.links)] if twin.undo else settings.chosen(twin.links)
    kept = {link.name: frozenset(row.subject for row in store.link_states.of(link.name, KEEP_TWIN)) for link in links}
    known = {link.name: {row.topic for row in store.twins.of(link.name)} for link in links}
    if twin.undo:
        known = {name: topics | kept[name] for name, topics in known.items()}
    ours = [name for name in known if twin.every or topic in known[name]]
    if not ours:
        known_topics = sorted(set().union(*known.values()))
        raise ConfigError("replication.topic-unknown", topic=topic, near=did_you_mean(topic, known_topics))
    if twin.undo:
        shown = [f"{name}: {describe_not_kept(topic, kept[name])}" for name in ours if topic not in kept[name]]
        steps = [
            KeepTwinStep(name, topic, undo=True, kept=kept[name] - {topic}) for name in ours if topic in kept[name]
        ]
        return Plan(tuple(steps), tuple(shown))
    seen = {
        name: "" if twin.every else explain_unseen_twin(settings.link(name), settings, store, topic) for name in ours
    }
    steps = [
        KeepTwinStep(name, topic, undo=False, kept=kept[name] | {topic}) for name in ours if seen[name] != TWIN_GONE
    ]
    shown = [f"{name}: {why}" for name, why in seen.items() if why]
    if steps:
        return Plan(tuple(steps), tuple(shown))
    gone = RefusedError("replication.twin-gone", topic=topic)
    return Plan(refusal=gone)


def act_keep(plan: Plan[KeepTwinStep], store: Store, *, by: str) -> Iterator[KeepTwinStep]:
    """Stores the decision; a running mirror obeys at once, since every deletion checks this first."""
    for step in plan.steps:
        now_ms = wall_ms()
        row = LinkStateRow(step.link, KEEP_TWIN, step.topic, "", "kept", now_ms)
        said = "a word that keeps was taken back" if step.undo else "kept: nothing deletes it, or them"
        audit_row = AuditRow(
            now_ms, step.link, "topic", step.topic or "all topics", "", said, f"by {by}", by, step.topic
        )
        (store.link_states.forget if step.undo else store.link_states.remember)([row], [audit_row])
        yield step


def plan_delete(deletion: AllowDeletion, settings: Settings, store: Store) -> Plan[AllowDeletionStep]:
    """Plans an approval; asks both clusters, and refuses when anything forbids the deletion."""
    link, topic = settings.only(deletion.links), deletion.topic
    memories = parse_lifecycle_states(store.link_states.of(link.name))
    waiting = sorted(
        name for name, state in memories.items() if state.state is DeletionState.NEEDS_APPROVAL and not state.source_id
    )
    if topic not in waiting:
        raise ConfigError("replication.no-deletion-waits", topic=topic, near=did_you_mean(topic, waiting))
    preview = preview_twin(link, settings, store, topic)
    shown = tuple(f"{link.name}: {line}" for line in preview.lines())
    not_by_policy = (
        "" if link.follow.deleted is DeletedTopicPolicy.DELETE else f"deleted = {link.follow.deleted.value!r} now"
    )
    why = preview.against or not_by_policy or explain_unsafe(topic, preview.spans)
    if why:
        return Plan(shown=shown, refusal=RefusedError("replication.twin-not-deleted", topic=topic, why=why))
    return Plan((AllowDeletionStep(link.name, topic),), shown)


def act_delete(plan: Plan[AllowDeletionStep], store: Store, *, by: str) -> Iterator[AllowDeletionStep]:
    """Stores the approval; the running mirror checks everything again before the deletion."""
    for step in plan.steps:
        now_ms = wall_ms()
        row = AuditRow(
            now_ms, step.link, "topic", step.topic, "", "its twin may be deleted", f"by {by}", by, step.topic
        )
        store.link_states.remember(
            [LinkStateRow(step.link, DELETE_APPROVAL, step.topic, Approval(now_ms).to_json(), "agreed", now_ms)], [row]
        )
        yield step
