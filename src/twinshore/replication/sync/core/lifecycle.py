"""What happens to a twin whose topic was deleted, or deleted and created again, on either side.

A topic cannot be renamed, and a log cannot begin again. So for a topic that was created again, the old twin must be
deleted and a new one begun. The old twin may be the last copy of its records. So that needs an operator's consent, a
time and an offset range announced in the incident log, and no objection then. The delay begins again if the topic was
seen in between.

A policy deletes a twin only if nothing objects at that moment. An operator's approval can replace the policy. It covers
what the operator was shown: the source's topic, and how far the twin was written.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from twinshore.config.incident_policy import (
    POLICY_KEEP_TWIN,
    POLICY_TOPIC,
    IncidentEffect,
    IncidentKind,
    IncidentPolicy,
    IncidentSide,
)
from twinshore.config.model import DeletedTopicPolicy, Link, RecreatedTopicPolicy, SyncRules
from twinshore.config.sentences import format_time, join_names
from twinshore.replication.core.filters import admits
from twinshore.replication.sync.core.decisions import (
    ARCHIVED_OUTCOME,
    ArchiveTwin,
    AskTwinRanges,
    DeleteTwin,
    DeletionState,
    DropTopicState,
    LifecycleAction,
    RememberState,
    ReplanTopic,
    ReportIncident,
    RevokeApproval,
    WithdrawTopic,
)
from twinshore.replication.sync.core.decisions import SETTING_KIND as SETTINGS
from twinshore.state.core.values import LinkStateRow

APPROVAL_TTL_MS = 86_400_000
SHOWN_MAX = 20
_FREE = "may be deleted again, as the settings say"
ALL_TOPICS = ""  # the subject of a word that holds for all topics of a link


@dataclass(frozen=True, slots=True)
class TwinRange:
    """A twin's partition: log start and end, how far this link wrote, and the source's end then."""

    partition: int
    start: int
    end: int
    carried_to: int
    source_end: int


@dataclass(frozen=True, slots=True)
class Approval:
    """An operator's approval. `source_id`: the source topic meant, empty for a deleted one. `ends`: up to where
    partitions may hold offsets that the link did not write.
    """

    at_ms: int
    source_id: str = ""
    ends: tuple[tuple[int, int], ...] = ()

    def holds(self, source_id: str, now_ms: int) -> bool:
        return self.source_id == source_id and now_ms - self.at_ms < APPROVAL_TTL_MS

    def to_json(self) -> str:
        return json.dumps({"source_id": self.source_id, "ends": [list(pair) for pair in self.ends]})


def approval_from_json(text: str, at_ms: int) -> Approval | None:
    """None if unreadable, as from another version."""
    try:
        raw = json.loads(text)
        return Approval(at_ms, str(raw["source_id"]), tuple((int(number), int(end)) for number, end in raw["ends"]))
    except (ValueError, KeyError, TypeError):
        return None


def find_objection(link: Link, topic: str, *, never: str, kept: Collection[str], troubles: Collection[str] = ()) -> str:
    """Returns why neither policy nor approval may delete the twin now, or "". `never`: [safety]'s objection. `kept`:
    topics that operators keep. `troubles`: orders that are invalid or clash.
    """
    if never:
        return never
    if ALL_TOPICS in kept or topic in kept:
        return "an operator said `twinshore mirror keep`"
    if troubles:
        return "what operators said of the link is not understood, or clashes with another link"
    if link.control.paused:
        return "the link is paused"
    if link.control.pauses(topic):
        return "the topic is paused"
    if not admits(link, topic):
        return "the link's filters do not admit the topic"
    return ""


def describe_kept(topic: str, kept: Collection[str]) -> str:
    """Describes the twin of `topic`, or ALL_TOPICS, after an operator's order."""
    if topic == ALL_TOPICS:
        if ALL_TOPICS in kept:
            return "all its twins are kept"
        ours = join_names(sorted(kept), SHOWN_MAX)
        return f"kept still, each by a word of its own: {ours}" if kept else f"its twins {_FREE}"
    if topic in kept:
        return f"the twin of {topic} is kept"
    if ALL_TOPICS in kept:
        return f"the twin of {topic} is kept still, as all of the link: `twinshore mirror keep --all --undo` ends that"
    return f"the twin of {topic} {_FREE}"


def describe_not_kept(topic: str, kept: Collection[str]) -> str:
    """Describes why there is no order to take back."""
    if topic in kept or ALL_TOPICS in kept:
        return describe_kept(topic, kept)
    what = "all its twins" if topic == ALL_TOPICS else f"the twin of {topic}"
    return f"no word keeps {what}: there is nothing to take back"


def explain_too_many(waiting: int, lost: int, known: int, at_once_max: int) -> str:
    """Returns why so many deletions need an approval, or "". `lost`: how many of the `known` topics changed on the
    source.
    """
    if waiting and lost == known and known > 1:
        return f"all {known} topics of the link are gone from the source at once, as where it was installed anew"
    if waiting > at_once_max:
        return f"{waiting} twins would be deleted at once, and [safety] deletions_at_once_max is {at_once_max}"
    return ""


def describe_ranges(topic: str, spans: Sequence[TwinRange]) -> str:
    held = [span for span in spans if span.end > span.start]
    if not held:
        return "its twin holds nothing"
    shown = ", ".join(
        f"{topic}-{offset_range.partition} {offset_range.start} to {offset_range.end - 1}"
        for offset_range in held[:SHOWN_MAX]
    )
    more = f" and {len(held) - SHOWN_MAX} partitions more" if len(held) > SHOWN_MAX else ""
    return f"its twin holds {shown}{more}"


def find_unreplicated(
    spans: Sequence[TwinRange], agreed: Mapping[int, int] | None = None
) -> list[tuple[int, int, int]]:
    """Partition, first and last offset of what this link did not write and `agreed` does not cover."""
    found = []
    for span in spans:
        known_to = max(span.start, span.carried_to, (agreed or {}).get(span.partition, 0))
        if span.end > known_to:
            found.append((span.partition, known_to, span.end - 1))
    return found


def explain_unsafe(topic: str, spans: Sequence[TwinRange]) -> str:
    """Returns why the twin must not be deleted without approval, or ""."""
    for partition, first, last in find_unreplicated(spans):
        return f"{topic}-{partition} holds offsets {first} to {last}, of which this link has no receipt"
    for span in spans:
        if span.source_end > span.carried_to:
            lost = f"{span.carried_to} to {span.source_end - 1}"
            return f"the source's records of {topic}-{span.partition} from {lost} never crossed"
    return ""


TOPIC_KIND = "topic"
RECREATED_KIND = IncidentKind.RECREATED_TOPIC
DELETED_KIND = IncidentKind.DELETED_TOPIC
DELETION_HELD_KIND = IncidentKind.DELETION_HELD
# Operators' orders for a topic.
RECREATE_APPROVAL = "recreate"
DELETE_APPROVAL = "delete"
KEEP_TWIN = "keep"
MISSED_POLLS_MIN = 2  # consecutive polls without a topic before it counts as gone


class Presence(Enum):
    """HIDDEN: the cluster does not show the topic; the right to see it may be missing."""

    THERE = "there"
    GONE = "gone"
    HIDDEN = "hidden"


@dataclass(frozen=True, slots=True)
class ObservedTopic:
    presence: Presence
    topic_id: str = ""
    partitions: int = 0


@dataclass(frozen=True, slots=True)
class TopicObservation:
    """A known topic on both clusters. `missed`: consecutive polls without it on the source. `doubted`: a task stopped,
    as a side seemed deleted or created again. `mapped`: the twin holds other data.
    """

    topic: str
    twin: str
    known_source_id: str
    known_target_id: str
    source: ObservedTopic
    target: ObservedTopic
    missed: int = 0
    doubted: bool = False
    mapped: bool = False


@dataclass(frozen=True, slots=True)
class LifecycleState:
    """What was decided, since when, for when, and for which source topic. `served_s`: how much of the delay mirrors
    have watched, by monotonic clocks. Approvals: to `begin` again with a topic that was created again, and to `let` a
    deleted topic's twin be deleted.
    """

    state: DeletionState | None = None
    since_ms: int = 0
    due_ms: int = 0
    source_id: str = ""
    served_s: float = 0.0
    begin: Approval | None = None
    let: Approval | None = None


@dataclass(frozen=True, slots=True)
class DeletionRules:
    """The rules for a topic now. `against`: why its twin must not be deleted. `many`: why that needs an approval."""

    rules: SyncRules
    against: str = ""
    many: str = ""

    @property
    def deletes(self) -> bool:
        return self.rules.deleted is DeletedTopicPolicy.DELETE and not self.against

    @property
    def begins(self) -> bool:
        return self.rules.recreated is RecreatedTopicPolicy.RECREATE and not self.against

    def due_ms(self, now_ms: int) -> int:
        """When a deletion announced now is due."""
        return now_ms + int(self.rules.delete_after_s * 1000)

    def as_announced(self, lifecycle_state: LifecycleState) -> bool:
        return lifecycle_state.due_ms == self.due_ms(lifecycle_state.since_ms)

    def is_over(self, lifecycle_state: LifecycleState, now_ms: int) -> bool:
        """Whether the delay has passed, by the announced wall clock and by monotonic clocks: another host's wall clock
        may be ahead.
        """
        return now_ms >= lifecycle_state.due_ms and lifecycle_state.served_s >= self.rules.delete_after_s


def adapt_to_mapped(
    observation: TopicObservation, lifecycle_state: LifecycleState, rules: DeletionRules
) -> tuple[TopicObservation, LifecycleState, DeletionRules]:
    """Adapts to a mapped twin: it holds other data, so it is never deleted, and may have more partitions."""
    target = replace(observation.target, partitions=min(observation.target.partitions, observation.source.partitions))
    observation = replace(observation, mapped=True)
    if observation.source.presence is Presence.THERE:
        observation = replace(observation, target=target)
    return (
        observation,
        replace(lifecycle_state, begin=None, let=None),
        replace(rules, against="a mapped twin holds data of others"),
    )


def decide_actions(
    observation: TopicObservation,
    lifecycle_state: LifecycleState,
    rules: DeletionRules,
    spans: Sequence[TwinRange] | None,
    now_ms: int,
) -> list[LifecycleAction]:
    """Decides what to do now, always the same for one observation, so that a killed mirror continues. `spans`: what the
    twin holds, None if not read. If needed and incomplete, returns only AskTwinRanges.
    """
    if observation.source.presence is Presence.HIDDEN or observation.target.presence is Presence.HIDDEN:
        return _hidden(observation)
    if observation.source.presence is Presence.GONE:
        return (
            _source_gone(observation, lifecycle_state, rules, spans, now_ms)
            if observation.missed >= MISSED_POLLS_MIN
            else []
        )
    if is_source_lost(observation):
        return _made_again(observation, lifecycle_state, rules, spans, now_ms)
    return _source_there(observation, lifecycle_state, now_ms)


def would_delete(
    observation: TopicObservation, lifecycle_state: LifecycleState, rules: DeletionRules, now_ms: int
) -> bool:
    """Whether a policy is about to delete the twin without an approval."""
    if lifecycle_state.state in (DeletionState.KEPT, DeletionState.ARCHIVED) or not is_source_lost(observation):
        return False
    if observation.source.presence is Presence.GONE:
        return rules.deletes and not _let(lifecycle_state, now_ms)
    return rules.begins and not _begin(observation, lifecycle_state, now_ms)


def is_source_lost(observation: TopicObservation) -> bool:
    if observation.source.presence is Presence.THERE:
        return observation.source.topic_id != observation.known_source_id
    return observation.source.presence is Presence.GONE


def describe_topic_state(observation: TopicObservation, lifecycle_state: LifecycleState, rules: DeletionRules) -> str:
    """Describes a topic without action now; "" if both sides are as known."""
    if observation.source.presence is Presence.HIDDEN or observation.target.presence is Presence.HIDDEN:
        return (
            f"the {'source' if observation.source.presence is Presence.HIDDEN else 'target'} does not show"
            f" it to the mirror"
        )
    if not is_source_lost(observation):
        return ""
    again = observation.source.presence is Presence.THERE
    became = "was deleted and made again on the source" if again else "was deleted on the source"
    if lifecycle_state.state is DeletionState.ARCHIVED:
        return f"{became}; {ARCHIVED_OUTCOME}"
    if lifecycle_state.state not in (DeletionState.ANNOUNCED, DeletionState.BEGIN_ANNOUNCED):
        why = rules.against or (
            "an operator must decide"
            if lifecycle_state.state in (DeletionState.KEPT, DeletionState.NEEDS_APPROVAL)
            else ""
        )
        return f"{became}; the twin is kept" + (f": {why}" if why else "")
    if observation.target.presence is Presence.THERE and observation.target.topic_id != observation.known_target_id:
        return f"{became}; the topic that stands in its twin's place is somebody else's, and stays"
    return f"{became}; {_announced(observation.topic, lifecycle_state.due_ms)}"


def incident_policies(rules: SyncRules) -> Mapping[IncidentKind, IncidentPolicy]:
    after = f"after {rules.delete_after_s:g} s"
    deleted = {
        DeletedTopicPolicy.KEEP: POLICY_KEEP_TWIN,
        DeletedTopicPolicy.ARCHIVE: IncidentPolicy("archive the twin", IncidentEffect.TWIN),
        DeletedTopicPolicy.DELETE: IncidentPolicy(f"delete the twin {after}", IncidentEffect.TWIN),
    }
    recreated = {
        RecreatedTopicPolicy.STOP: POLICY_TOPIC,
        RecreatedTopicPolicy.RECREATE: IncidentPolicy(f"begin again {after}", IncidentEffect.TWIN),
    }
    return {DELETED_KIND: deleted[rules.deleted], RECREATED_KIND: recreated[rules.recreated]}


def _hidden(observation: TopicObservation) -> list[LifecycleAction]:
    if not observation.doubted:
        return []
    side = "source" if observation.source.presence is Presence.HIDDEN else "target"
    sentence = f"the {side} does not show topic {observation.topic} to the mirror; it is not carried meanwhile"
    return [
        ReportIncident(observation.topic, IncidentKind.RIGHTS_LOST, sentence, POLICY_TOPIC, side=IncidentSide(side)),
        WithdrawTopic(observation.topic),
        ReplanTopic(observation.topic),
    ]


def _source_gone(
    observation: TopicObservation,
    lifecycle_state: LifecycleState,
    rules: DeletionRules,
    spans: Sequence[TwinRange] | None,
    now_ms: int,
) -> list[LifecycleAction]:
    topic, state = observation.topic, lifecycle_state.state
    fresh = state in (None, DeletionState.BEGIN_ANNOUNCED)
    if not fresh and observation.target.presence is Presence.GONE:
        # The twin is deleted too: nothing is left of the topic.
        return [DropTopicState(topic)]
    if state in (DeletionState.GONE, DeletionState.ANNOUNCED) and rules.rules.deleted is DeletedTopicPolicy.ARCHIVE:
        return [ArchiveTwin(topic), RememberState(topic, DeletionState.ARCHIVED)]
    as_told = state is DeletionState.ANNOUNCED and rules.deletes and rules.as_announced(lifecycle_state)
    agreed = state is DeletionState.NEEDS_APPROVAL and rules.deletes and _let(lifecycle_state, now_ms)
    told_anew = (state is DeletionState.GONE and rules.deletes) or (state is DeletionState.ANNOUNCED and not as_told)
    due = as_told and rules.is_over(lifecycle_state, now_ms)
    if not (fresh or told_anew or due or agreed):
        return []
    held = _whole(observation, spans)
    if held is None:
        return [AskTwinRanges(topic)]
    if fresh:
        return [WithdrawTopic(topic), *_gone(observation, rules, held, now_ms)]
    if told_anew:
        return _gone(observation, rules, held, now_ms, anew=True)
    if agreed:
        reason = f"its source topic was deleted, and an operator agreed; {describe_ranges(topic, held)}"
        return _delete_if_safe(observation, replace(rules, many=""), held, reason)
    return _delete_if_safe(observation, rules, held, f"its source topic was deleted; {describe_ranges(topic, held)}")


def _whole(observation: TopicObservation, spans: Sequence[TwinRange] | None) -> Sequence[TwinRange] | None:
    """What the twin holds; None if any partition is unknown."""
    if observation.target.presence is Presence.GONE:
        return ()
    return None if spans is None or len(spans) < observation.target.partitions else spans


def _gone(
    observation: TopicObservation, rules: DeletionRules, spans: Sequence[TwinRange], now_ms: int, *, anew: bool = False
) -> list[LifecycleAction]:
    topic, due_ms = observation.topic, rules.due_ms(now_ms)
    sentence = f"topic {topic} was deleted on the source; {describe_ranges(topic, spans)}"
    policy = incident_policies(rules.rules)[DELETED_KIND]
    if rules.deletes:
        incident = ReportIncident(topic, DELETED_KIND, f"{sentence}; {_announced(topic, due_ms)}", policy, anew=anew)
        return [incident, RememberState(topic, DeletionState.ANNOUNCED, due_ms)]
    if rules.rules.deleted is DeletedTopicPolicy.DELETE:
        sentence, policy = f"{sentence}; the twin is kept: {rules.against}", POLICY_KEEP_TWIN
    return [ReportIncident(topic, DELETED_KIND, sentence, policy, anew=anew), RememberState(topic, DeletionState.GONE)]


def _announced(topic: str, due_ms: int) -> str:
    return f"the twin is deleted on {format_time(due_ms)} unless `twinshore mirror keep {topic}` forbids it"


def _made_again(
    observation: TopicObservation,
    lifecycle_state: LifecycleState,
    rules: DeletionRules,
    spans: Sequence[TwinRange] | None,
    now_ms: int,
) -> list[LifecycleAction]:
    topic = observation.topic
    approval = None if rules.against else _begin(observation, lifecycle_state, now_ms)
    same = lifecycle_state.source_id == observation.source.topic_id
    # Earlier state is of another topic on the source: if this one is deleted, its twin has the whole delay again.
    seen: list[LifecycleAction] = [] if lifecycle_state.state is None else [RememberState(topic, None)]
    goes = approval is not None or rules.begins
    if (
        approval is None
        and goes
        and same
        and lifecycle_state.state in (DeletionState.KEPT, DeletionState.NEEDS_APPROVAL)
    ):
        return []
    as_told = (
        goes
        and lifecycle_state.state is DeletionState.BEGIN_ANNOUNCED
        and same
        and (approval is not None or rules.as_announced(lifecycle_state))
    )
    if as_told and approval is None and not rules.is_over(lifecycle_state, now_ms):
        return []
    if as_told and observation.target.presence is Presence.GONE:
        return [DropTopicState(topic), ReplanTopic(topic)]
    held = _whole(observation, spans)
    if held is None:
        return [AskTwinRanges(topic)]
    if not goes:
        return [*seen, WithdrawTopic(topic), ReplanTopic(topic), _recreated(observation, rules, held, anew=bool(seen))]
    if not as_told:
        due_ms = now_ms if approval else rules.due_ms(now_ms)
        incident = _recreated(observation, rules, held, due_ms=0 if approval else due_ms, anew=approval is None)
        begins = RememberState(topic, DeletionState.BEGIN_ANNOUNCED, due_ms, observation.source.topic_id)
        return [*seen, WithdrawTopic(topic), ReplanTopic(topic), incident, begins]
    reason = f"its source topic was deleted and made again; {describe_ranges(topic, held)}"
    if approval is None:
        return _delete_if_safe(observation, rules, held, reason)
    for partition, first, last in find_unreplicated(held, dict(approval.ends)):
        why = f"{topic}-{partition} holds offsets {first} to {last}: no receipt has them, and nobody agreed to them"
        return [*_held(observation, why, held), RevokeApproval(topic)]
    return _delete(observation, reason)


def _recreated(
    observation: TopicObservation,
    rules: DeletionRules,
    spans: Sequence[TwinRange],
    *,
    due_ms: int = 0,
    anew: bool = False,
) -> ReportIncident:
    topic, policy = observation.topic, incident_policies(rules.rules)[RECREATED_KIND]
    sentence = (
        f"topic {topic} was deleted and made again on the source, its offsets begin anew; "
        f"{describe_ranges(topic, spans)}"
    )
    if due_ms:
        sentence = f"{sentence}; {_announced(topic, due_ms)}"
    elif rules.against and rules.rules.recreated is RecreatedTopicPolicy.RECREATE:
        sentence, policy = f"{sentence}; the twin is kept: {rules.against}", POLICY_TOPIC
    return ReportIncident(topic, RECREATED_KIND, sentence, policy, anew=anew)


def _delete_if_safe(
    observation: TopicObservation, rules: DeletionRules, spans: Sequence[TwinRange], reason: str
) -> list[LifecycleAction]:
    """Deletes by policy: only complete copies, and only a few at once."""
    why_not = explain_unsafe(observation.topic, spans)
    if why_not:
        return _held(observation, why_not, spans)
    if rules.many:
        word = "recreate" if observation.source.presence is Presence.THERE else "delete"
        agrees = (
            f"`twinshore mirror {word} {observation.topic}` agrees to this one, unless something else forbids it then"
        )
        why = f"{rules.many}; {agrees}"
        return _held(observation, why, spans, DeletionState.NEEDS_APPROVAL)
    return _delete(observation, reason)


def _held(
    observation: TopicObservation, why: str, spans: Sequence[TwinRange], state: DeletionState = DeletionState.KEPT
) -> list[LifecycleAction]:
    topic, again = observation.topic, observation.source.presence is Presence.THERE
    what = "recreated" if again else "deleted"
    sentence = f"the twin of {what} topic {topic} is kept: {why}"
    became = "made again on the source, its offsets begin anew" if again else "deleted on the source"
    kind, policy = (RECREATED_KIND, POLICY_TOPIC) if again else (DELETED_KIND, POLICY_KEEP_TWIN)
    incident = ReportIncident(
        topic, kind, f"topic {topic} was {became}; {describe_ranges(topic, spans)}; the twin is kept", policy, anew=True
    )
    remembered = RememberState(topic, state, source_id=observation.source.topic_id)
    return [incident, ReportIncident(topic, DELETION_HELD_KIND, sentence, POLICY_KEEP_TWIN, anew=True), remembered]


def _delete(observation: TopicObservation, reason: str) -> list[LifecycleAction]:
    """Deletes only the twin that this link made, never another topic of its name."""
    if observation.target.presence is Presence.THERE and observation.target.topic_id == observation.known_target_id:
        return [WithdrawTopic(observation.topic), DeleteTwin(observation.topic, observation.twin, reason)]
    return []


def _source_there(observation: TopicObservation, lifecycle_state: LifecycleState, now_ms: int) -> list[LifecycleAction]:
    topic, acts = observation.topic, list[LifecycleAction]()
    if lifecycle_state.state is not None:
        acts += [RememberState(topic, None), ReplanTopic(topic)]
    if observation.target.presence is Presence.GONE and _begin(observation, lifecycle_state, now_ms):
        return [WithdrawTopic(topic), DropTopicState(topic), ReplanTopic(topic)]
    lost = _twin_lost(observation)
    if lost:
        return [
            *acts,
            WithdrawTopic(topic),
            ReplanTopic(topic),
            ReportIncident(topic, RECREATED_KIND, lost, POLICY_TOPIC, side=IncidentSide.TARGET),
        ]
    if observation.target.partitions > observation.source.partitions:
        return [*acts, WithdrawTopic(topic), ReplanTopic(topic)]
    if observation.doubted:
        # All is as it should be: the task saw a passing state.
        return [*acts, WithdrawTopic(topic), ReplanTopic(topic)]
    return acts


def _twin_lost(observation: TopicObservation) -> str:
    if observation.mapped and (
        observation.target.presence is Presence.GONE or observation.target.topic_id != observation.known_target_id
    ):
        again = (
            ""
            if observation.target.presence is Presence.GONE
            else " and made again by someone else, so no ACL follows to it"
        )
        return (
            f"the mapped twin {observation.twin} was deleted{again}; to begin with it anew stop the mirror, "
            f"`twinshore mirror forget {observation.topic}`, start the mirror"
        )
    if observation.target.presence is Presence.GONE:
        return (
            f"the twin {observation.twin} has been deleted on the target; "
            f"`twinshore mirror recreate {observation.topic}` begins a new one"
        )
    if observation.target.topic_id != observation.known_target_id:
        return (
            f"the twin {observation.twin} was deleted and made again by someone else, so no ACL follows to it;"
            f" delete it on "
            f"the target, then `twinshore mirror recreate {observation.topic}`"
        )
    return ""


def _begin(observation: TopicObservation, lifecycle_state: LifecycleState, now_ms: int) -> Approval | None:
    return (
        lifecycle_state.begin
        if lifecycle_state.begin and lifecycle_state.begin.holds(observation.source.topic_id, now_ms)
        else None
    )


def _let(lifecycle_state: LifecycleState, now_ms: int) -> bool:
    return lifecycle_state.let is not None and lifecycle_state.let.holds("", now_ms)


COMPACTED_KIND = "compacted"
SAVE_INTERVAL_S = 10.0  # minimum interval for storing how long a deletion has waited


@dataclass(frozen=True, slots=True)
class CompactedTopic:
    """The topic with this id was compacted. `ends`: partition ends when neither side was any more; cleaners do not go
    beyond.
    """

    source_id: str
    ends: Mapping[int, int] = field(default_factory=dict)

    def below(self, partition: int, start: int) -> bool:
        """Whether a log that begins at `start` has offsets that a cleaner may have changed."""
        return partition not in self.ends or start < self.ends[partition]


def is_compacted_policy(policy: str | None) -> bool:
    return "compact" in (policy or "")


def parse_compacted(rows: Iterable[LinkStateRow]) -> dict[str, CompactedTopic]:
    return {row.subject: _cleaned(row.value) for row in rows if row.kind == COMPACTED_KIND}


def compacted_row(link: str, topic: str, cleaned: CompactedTopic, at_ms: int) -> LinkStateRow:
    value = json.dumps({"source_id": cleaned.source_id, "ends": sorted(cleaned.ends.items())})
    return LinkStateRow(link, COMPACTED_KIND, topic, value, "", at_ms)


def _cleaned(value: str) -> CompactedTopic:
    raw = json.loads(value)
    return CompactedTopic(raw["source_id"], dict(raw["ends"]))


def parse_lifecycle_states(rows: Iterable[LinkStateRow]) -> dict[str, LifecycleState]:
    """By topic. A row of another version counts as none, so that the delay begins again."""
    found: dict[str, dict[str, LinkStateRow]] = {}
    for row in rows:
        if row.kind in (TOPIC_KIND, RECREATE_APPROVAL, DELETE_APPROVAL):
            found.setdefault(row.subject, {})[row.kind] = row
    return {topic: _memory(ours) for topic, ours in found.items()}


def rows_to_forget(link: str, topic: str) -> tuple[LinkStateRow, ...]:
    """Rows that end when a topic is forgotten. An operator's keep order stays, and which topic was compacted."""
    return tuple(
        LinkStateRow(link, kind, topic, "", "", 0)
        for kind in (TOPIC_KIND, RECREATE_APPROVAL, DELETE_APPROVAL, SETTINGS)
    )


def lifecycle_row(link: str, act: RememberState, at_ms: int) -> LinkStateRow:
    return _row(link, act.topic, LifecycleState(act.state, at_ms, act.due_ms, act.source_id))


class DeletionDelays:
    """How long announced deletions have waited: the stored time, and since then by this process's monotonic clock."""

    def __init__(self, link: str) -> None:
        self._link = link
        self._counts: dict[str, tuple[LifecycleState, float]] = {}

    def served(self, topic: str, lifecycle_state: LifecycleState, now_s: float) -> LifecycleState:
        if lifecycle_state.state not in (DeletionState.ANNOUNCED, DeletionState.BEGIN_ANNOUNCED):
            self._counts.pop(topic, None)
            return lifecycle_state
        first, since_s = self._counts.get(topic, (lifecycle_state, now_s))
        if _announcement(first) != _announcement(lifecycle_state):
            first, since_s = lifecycle_state, now_s
        self._counts[topic] = first, since_s
        return replace(lifecycle_state, served_s=first.served_s + now_s - since_s)

    def row(self, topic: str, stored: LifecycleState, served: LifecycleState, delay_s: float) -> LinkStateRow | None:
        """The row to store; None if the stored time is recent."""
        lacks_s = served.served_s - stored.served_s
        if lacks_s < max(SAVE_INTERVAL_S, delay_s / 100) and not stored.served_s < delay_s <= served.served_s:
            return None
        return _row(self._link, topic, served)


def _announcement(lifecycle_state: LifecycleState) -> tuple[DeletionState | None, int, int, str]:
    return lifecycle_state.state, lifecycle_state.since_ms, lifecycle_state.due_ms, lifecycle_state.source_id


def _row(link: str, topic: str, lifecycle_state: LifecycleState) -> LinkStateRow:
    value = json.dumps(
        {
            "due_ms": lifecycle_state.due_ms,
            "source_id": lifecycle_state.source_id,
            "served_s": round(lifecycle_state.served_s, 3),
        }
    )
    return LinkStateRow(link, TOPIC_KIND, topic, value, lifecycle_state.state or "", lifecycle_state.since_ms)


def _memory(rows: dict[str, LinkStateRow]) -> LifecycleState:
    begin, let = _word(rows.get(RECREATE_APPROVAL)), _word(rows.get(DELETE_APPROVAL))
    row = rows.get(TOPIC_KIND)
    if row is None or row.state not in set(DeletionState):
        return LifecycleState(begin=begin, let=let)
    try:
        more = json.loads(row.value)
        due_ms, source_id, served_s = int(more["due_ms"]), str(more["source_id"]), float(more["served_s"])
    except (ValueError, KeyError, TypeError):
        return LifecycleState(begin=begin, let=let)
    return LifecycleState(DeletionState(row.state), row.since_ms, due_ms, source_id, served_s, begin, let)


def _word(row: LinkStateRow | None) -> Approval | None:
    return approval_from_json(row.value, row.since_ms) if row else None
