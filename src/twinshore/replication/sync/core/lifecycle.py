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
        return "an operator's override of the link is invalid, or clashes with another link"
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
        return f"these twins are still kept, each by an order of its own: {ours}" if kept else f"its twins {_FREE}"
    if topic in kept:
        return f"the twin of {topic} is kept"
    if ALL_TOPICS in kept:
        return f"the twin of {topic} is still kept, as all of the link: `twinshore mirror keep --all --undo` ends that"
    return f"the twin of {topic} {_FREE}"


def describe_not_kept(topic: str, kept: Collection[str]) -> str:
    """Describes why there is no order to take back."""
    if topic in kept or ALL_TOPICS in kept:
        return describe_kept(topic, kept)
    what = "all its twins" if topic == ALL_TOPICS else f"the twin of {topic}"
    return f"no order keeps {what}: there is nothing to take back"


def explain_too_many(waiting: int, lost: int, known: int, at_once_max: int) -> str:
    """Returns why so many deletions need an approval, or "". `lost`: how many of the `known` topics changed on the
    source.
    """
    if waiting and lost == known and known > 1:
        return f"all {known} topics of the link are gone from the source at once, as if it was installed again"
    if waiting > at_once_max:
        return f"{waiting} twins would be deleted at once, and [safety] deletions_at_once_max is {at_once_max}"
    return ""


def describe_ranges(topic: str, spans: Sequence[TwinRange]) -> str:
    held = [span for span in spans if span.end > span.start]
    if not held:
        return "its twin holds nothing"
    shown = ", ".join(f"{topic}-{span.partition} {span.start} to {span.end - 1}" for span in held[:SHOWN_MAX])
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
        return f"{topic}-{partition} holds offsets {first} to {last}, which this link has no progress of"
    for span in spans:
        if span.source_end > span.carried_to:
            lost = f"{span.carried_to} to {span.source_end - 1}"
            return f"the source's records of {topic}-{span.partition} from {lost} were never replicated"
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

    @property
    def is_there(self) -> bool:
        return self.presence is Presence.THERE

    @property
    def is_gone(self) -> bool:
        return self.presence is Presence.GONE

    @property
    def is_hidden(self) -> bool:
        return self.presence is Presence.HIDDEN


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

    @property
    def hidden_side(self) -> str:
        return "source" if self.source.is_hidden else "target" if self.target.is_hidden else ""

    @property
    def twin_replaced(self) -> bool:
        """Whether the target's topic is not the twin that the link made."""
        return self.target.topic_id != self.known_target_id


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

    def as_announced(self, state: LifecycleState) -> bool:
        return state.due_ms == self.due_ms(state.since_ms)

    def is_over(self, state: LifecycleState, now_ms: int) -> bool:
        """Whether the delay has passed, by the announced wall clock and by monotonic clocks: another host's wall clock
        may be ahead.
        """
        return now_ms >= state.due_ms and state.served_s >= self.rules.delete_after_s


def adapt_to_mapped(
    observation: TopicObservation, state: LifecycleState, rules: DeletionRules
) -> tuple[TopicObservation, LifecycleState, DeletionRules]:
    """Adapts to a mapped twin: it holds other data, so it is never deleted, and may have more partitions."""
    source, target = observation.source, observation.target
    if source.is_there:
        target = replace(target, partitions=min(target.partitions, source.partitions))
    rules = replace(rules, against="a mapped twin holds data of others")
    return replace(observation, target=target, mapped=True), replace(state, begin=None, let=None), rules


def decide_actions(
    observation: TopicObservation,
    state: LifecycleState,
    rules: DeletionRules,
    spans: Sequence[TwinRange] | None,
    now_ms: int,
) -> list[LifecycleAction]:
    """Decides what to do now, always the same for one observation, so that a killed mirror continues. `spans`: what the
    twin holds, None if not read. If needed and incomplete, returns only AskTwinRanges.
    """
    if observation.hidden_side:
        return _hidden(observation)
    if observation.source.is_gone:
        missed = observation.missed >= MISSED_POLLS_MIN
        return _source_gone(observation, state, rules, spans, now_ms) if missed else []
    if is_source_lost(observation):
        return _made_again(observation, state, rules, spans, now_ms)
    return _source_there(observation, state, now_ms)


def would_delete(observation: TopicObservation, state: LifecycleState, rules: DeletionRules, now_ms: int) -> bool:
    """Whether a policy is about to delete the twin without an approval."""
    if state.state in (DeletionState.KEPT, DeletionState.ARCHIVED) or not is_source_lost(observation):
        return False
    if observation.source.is_gone:
        return rules.deletes and not _let(state, now_ms)
    return rules.begins and not _begin(observation, state, now_ms)


def is_source_lost(observation: TopicObservation) -> bool:
    if observation.source.is_there:
        return observation.source.topic_id != observation.known_source_id
    return observation.source.is_gone


def describe_topic_state(observation: TopicObservation, state: LifecycleState, rules: DeletionRules) -> str:
    """Describes a topic without action now; "" if both sides are as known."""
    if observation.hidden_side:
        return f"the {observation.hidden_side} does not show the topic to the mirror"
    if not is_source_lost(observation):
        return ""
    again = observation.source.is_there
    became = "was deleted and made again on the source" if again else "was deleted on the source"
    if state.state is DeletionState.ARCHIVED:
        return f"{became}; {ARCHIVED_OUTCOME}"
    if state.state not in (DeletionState.ANNOUNCED, DeletionState.BEGIN_ANNOUNCED):
        undecided = state.state in (DeletionState.KEPT, DeletionState.NEEDS_APPROVAL)
        why = rules.against or ("an operator must decide" if undecided else "")
        return f"{became}; the twin is kept" + (f": {why}" if why else "")
    if observation.target.is_there and observation.twin_replaced:
        return f"{became}; another user made the topic that has the twin's name now, and it stays"
    return f"{became}; {_announced(observation.topic, state.due_ms)}"


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
    topic, side = observation.topic, observation.hidden_side
    sentence = f"the {side} does not show topic {topic} to the mirror; it is not replicated until then"
    incident = ReportIncident(topic, IncidentKind.RIGHTS_LOST, sentence, POLICY_TOPIC, side=IncidentSide(side))
    return [incident, WithdrawTopic(topic), ReplanTopic(topic)]


def _source_gone(
    observation: TopicObservation,
    state: LifecycleState,
    rules: DeletionRules,
    spans: Sequence[TwinRange] | None,
    now_ms: int,
) -> list[LifecycleAction]:
    topic, decided = observation.topic, state.state
    fresh = decided in (None, DeletionState.BEGIN_ANNOUNCED)
    if not fresh and observation.target.is_gone:
        # The twin is deleted too: nothing is left of the topic.
        return [DropTopicState(topic)]
    if decided in (DeletionState.GONE, DeletionState.ANNOUNCED) and rules.rules.deleted is DeletedTopicPolicy.ARCHIVE:
        return [ArchiveTwin(topic), RememberState(topic, DeletionState.ARCHIVED)]
    as_told = decided is DeletionState.ANNOUNCED and rules.deletes and rules.as_announced(state)
    agreed = decided is DeletionState.NEEDS_APPROVAL and rules.deletes and _let(state, now_ms)
    told_anew = (decided is DeletionState.GONE and rules.deletes) or (
        decided is DeletionState.ANNOUNCED and not as_told
    )
    due = as_told and rules.is_over(state, now_ms)
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
    if observation.target.is_gone:
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
    state: LifecycleState,
    rules: DeletionRules,
    spans: Sequence[TwinRange] | None,
    now_ms: int,
) -> list[LifecycleAction]:
    topic = observation.topic
    approval = None if rules.against else _begin(observation, state, now_ms)
    same = state.source_id == observation.source.topic_id
    # Earlier state is of another topic on the source: if this one is deleted, its twin has the whole delay again.
    seen: list[LifecycleAction] = [] if state.state is None else [RememberState(topic, None)]
    goes = approval is not None or rules.begins
    undecided = same and state.state in (DeletionState.KEPT, DeletionState.NEEDS_APPROVAL)
    if approval is None and goes and undecided:
        return []
    announced = same and state.state is DeletionState.BEGIN_ANNOUNCED
    as_told = goes and announced and (approval is not None or rules.as_announced(state))
    if as_told and approval is None and not rules.is_over(state, now_ms):
        return []
    if as_told and observation.target.is_gone:
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
        why = f"{topic}-{partition} holds offsets {first} to {last}, which neither progress nor an approval covers"
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
        f"topic {topic} was deleted and made again on the source, so its offsets start again; "
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
        verb = "recreate" if observation.source.is_there else "delete"
        agrees = f"`twinshore mirror {verb} {observation.topic}` approves it, unless something else forbids it then"
        return _held(observation, f"{rules.many}; {agrees}", spans, DeletionState.NEEDS_APPROVAL)
    return _delete(observation, reason)


def _held(
    observation: TopicObservation, why: str, spans: Sequence[TwinRange], state: DeletionState = DeletionState.KEPT
) -> list[LifecycleAction]:
    topic, again = observation.topic, observation.source.is_there
    what = "recreated" if again else "deleted"
    sentence = f"the twin of {what} topic {topic} is kept: {why}"
    became = "made again on the source, so its offsets start again" if again else "deleted on the source"
    kind, policy = (RECREATED_KIND, POLICY_TOPIC) if again else (DELETED_KIND, POLICY_KEEP_TWIN)
    kept = f"topic {topic} was {became}; {describe_ranges(topic, spans)}; the twin is kept"
    incident = ReportIncident(topic, kind, kept, policy, anew=True)
    remembered = RememberState(topic, state, source_id=observation.source.topic_id)
    return [incident, ReportIncident(topic, DELETION_HELD_KIND, sentence, POLICY_KEEP_TWIN, anew=True), remembered]


def _delete(observation: TopicObservation, reason: str) -> list[LifecycleAction]:
    """Deletes only the twin that this link made, never another topic of its name."""
    if observation.target.is_there and not observation.twin_replaced:
        return [WithdrawTopic(observation.topic), DeleteTwin(observation.topic, observation.twin, reason)]
    return []


def _source_there(observation: TopicObservation, state: LifecycleState, now_ms: int) -> list[LifecycleAction]:
    topic, acts = observation.topic, list[LifecycleAction]()
    if state.state is not None:
        acts += [RememberState(topic, None), ReplanTopic(topic)]
    if observation.target.is_gone and _begin(observation, state, now_ms):
        return [WithdrawTopic(topic), DropTopicState(topic), ReplanTopic(topic)]
    again: list[LifecycleAction] = [WithdrawTopic(topic), ReplanTopic(topic)]
    if lost := _twin_lost(observation):
        incident = ReportIncident(topic, RECREATED_KIND, lost, POLICY_TOPIC, side=IncidentSide.TARGET)
        return [*acts, *again, incident]
    # If all is as it should be, a doubting task saw a passing state.
    grown = observation.target.partitions > observation.source.partitions
    return [*acts, *again] if grown or observation.doubted else acts


def _twin_lost(observation: TopicObservation) -> str:
    topic, twin, gone = observation.topic, observation.twin, observation.target.is_gone
    if not (gone or observation.twin_replaced):
        return ""
    lost = "was deleted" if gone else "was deleted and made again by someone else, so no ACL follows to it"
    if observation.mapped:
        return (
            f"the mapped twin {twin} {lost}; to start again with it, stop the mirror, "
            f"`twinshore mirror forget {topic}`, start the mirror"
        )
    if gone:
        return f"the twin {twin} has been deleted on the target; `twinshore mirror recreate {topic}` makes a new one"
    return f"the twin {twin} {lost}; delete it on the target, then `twinshore mirror recreate {topic}`"


def _begin(observation: TopicObservation, state: LifecycleState, now_ms: int) -> Approval | None:
    holds = state.begin is not None and state.begin.holds(observation.source.topic_id, now_ms)
    return state.begin if holds else None


def _let(state: LifecycleState, now_ms: int) -> bool:
    return state.let is not None and state.let.holds("", now_ms)


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
    values = {row.subject: json.loads(row.value) for row in rows if row.kind == COMPACTED_KIND}
    return {topic: CompactedTopic(value["source_id"], dict(value["ends"])) for topic, value in values.items()}


def compacted_row(link: str, topic: str, cleaned: CompactedTopic, at_ms: int) -> LinkStateRow:
    value = json.dumps({"source_id": cleaned.source_id, "ends": sorted(cleaned.ends.items())})
    return LinkStateRow(link, COMPACTED_KIND, topic, value, "", at_ms)


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

    def served(self, topic: str, state: LifecycleState, now_s: float) -> LifecycleState:
        if state.state not in (DeletionState.ANNOUNCED, DeletionState.BEGIN_ANNOUNCED):
            self._counts.pop(topic, None)
            return state
        first, since_s = self._counts.get(topic, (state, now_s))
        if _announcement(first) != _announcement(state):
            first, since_s = state, now_s
        self._counts[topic] = first, since_s
        return replace(state, served_s=first.served_s + now_s - since_s)

    def row(self, topic: str, stored: LifecycleState, served: LifecycleState, delay_s: float) -> LinkStateRow | None:
        """The row to store; None if the stored time is recent."""
        lacks_s = served.served_s - stored.served_s
        if lacks_s < max(SAVE_INTERVAL_S, delay_s / 100) and not stored.served_s < delay_s <= served.served_s:
            return None
        return _row(self._link, topic, served)


def _announcement(state: LifecycleState) -> tuple[DeletionState | None, int, int, str]:
    return state.state, state.since_ms, state.due_ms, state.source_id


def _row(link: str, topic: str, state: LifecycleState) -> LinkStateRow:
    served_s = round(state.served_s, 3)
    value = json.dumps({"due_ms": state.due_ms, "source_id": state.source_id, "served_s": served_s})
    return LinkStateRow(link, TOPIC_KIND, topic, value, state.state or "", state.since_ms)


def _memory(rows: dict[str, LinkStateRow]) -> LifecycleState:
    begin, let = _approval(rows.get(RECREATE_APPROVAL)), _approval(rows.get(DELETE_APPROVAL))
    row = rows.get(TOPIC_KIND)
    if row is None or row.state not in set(DeletionState):
        return LifecycleState(begin=begin, let=let)
    try:
        more = json.loads(row.value)
        due_ms, source_id, served_s = int(more["due_ms"]), str(more["source_id"]), float(more["served_s"])
    except (ValueError, KeyError, TypeError):
        return LifecycleState(begin=begin, let=let)
    return LifecycleState(DeletionState(row.state), row.since_ms, due_ms, source_id, served_s, begin, let)


def _approval(row: LinkStateRow | None) -> Approval | None:
    return approval_from_json(row.value, row.since_ms) if row else None
