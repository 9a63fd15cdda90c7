"""What becomes of a twin whose topic was deleted, or deleted and made again, on either side. Pure.

A topic cannot be renamed and a log cannot begin anew, so there is one honest way to mirror a topic that was made again:
its old twin is deleted and a new one begins. The old twin may be the last copy of what it holds, so that happens only
where the operator said so, after a delay, and with the range that goes named in the ledger.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, StrEnum

from twinshore.fleet import Deleted, Follow, Recreated

KIND = "topic"
RECREATED = "recreated topic"
DELETED = "deleted topic"
CONFIRMED = "begin again"
LOOKS_MIN = 2  # so many in a row must miss a topic before it counts as gone
CONFIRMED_FOR_MS = 86_400_000
SHOWN_MAX = 20


class Presence(Enum):
    """HIDDEN: the cluster does not say; perhaps the right to see it is missing."""

    THERE = "there"
    GONE = "gone"
    HIDDEN = "hidden"


class State(StrEnum):
    """What the store remembers of a topic that is no longer as it was."""

    GONE = "gone"
    KEPT = "kept"
    ARCHIVED = "archived"
    DELETING = "deleting"
    BEGINNING = "beginning again"


@dataclass(frozen=True, slots=True)
class Side:
    presence: Presence
    topic_id: str = ""
    partitions: int = 0


@dataclass(frozen=True, slots=True)
class TopicLook:
    """A known topic as both clusters show it. `missed`: how many looks in a row found it gone from the source.
    `doubted`: a pump stopped at it, because a side seemed gone or made again. `mapped`: its twin holds data of
    others."""

    topic: str
    twin: str
    known_source_id: str
    known_target_id: str
    source: Side
    target: Side
    missed: int = 0
    doubted: bool = False
    mapped: bool = False


@dataclass(frozen=True, slots=True)
class Memory:
    """What was decided before, since when, and whether an operator has agreed to begin again."""

    state: State | None = None
    since_ms: int = 0
    confirmed_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Span:
    """A partition of the twin: its log, how far this link wrote it, how far the source was then."""

    partition: int
    start: int
    end: int
    carried_to: int
    source_end: int


@dataclass(frozen=True, slots=True)
class Remember:
    """`state` None: everything is as it was; open rows are closed."""

    topic: str
    state: State | None


@dataclass(frozen=True, slots=True)
class Withdraw:
    """No lane carries it from now on."""

    topic: str


@dataclass(frozen=True, slots=True)
class LookAgain:
    """The planner decides about it anew."""

    topic: str


@dataclass(frozen=True, slots=True)
class Tell:
    """A row for the ledger; `close`: it is over as soon as it is written."""

    topic: str
    kind: str
    sentence: str
    policy: str
    close: bool = False


@dataclass(frozen=True, slots=True)
class Archive:
    """Its partitions are marked; nothing watches them any more."""

    topic: str


@dataclass(frozen=True, slots=True)
class DeleteTwin:
    topic: str
    twin: str
    reason: str


@dataclass(frozen=True, slots=True)
class Forget:
    """The store drops all it knows of the topic, but for the ledger and the audit."""

    topic: str


Act = Remember | Withdraw | LookAgain | Tell | Archive | DeleteTwin | Forget


def for_mapped(look: TopicLook, memory: Memory, follow: Follow) -> tuple[TopicLook, Memory, Follow]:
    """The same for a mapped twin: it holds data of others, so it is never deleted, and may have more partitions."""
    target = replace(look.target, partitions=min(look.target.partitions, look.source.partitions))
    look = replace(look, mapped=True)
    kept = Deleted.KEEP if follow.deleted is Deleted.DELETE else follow.deleted
    if look.source.presence is Presence.THERE:
        look = replace(look, target=target)
    return look, replace(memory, confirmed_ms=None), replace(follow, deleted=kept, recreated=Recreated.STOP)


def decide(look: TopicLook, memory: Memory, follow: Follow, spans: Sequence[Span], now_ms: int) -> list[Act]:
    """What to do now; the same look decides the same, so that a killed mirror goes on where it was."""
    if look.source.presence is Presence.HIDDEN or look.target.presence is Presence.HIDDEN:
        return _hidden(look)
    if look.source.presence is Presence.GONE:
        return _source_gone(look, memory, follow, spans, now_ms) if look.missed >= LOOKS_MIN else []
    if look.source.topic_id != look.known_source_id:
        return _made_again(look, memory, follow, spans, now_ms)
    return _source_there(look, memory, now_ms)


def ranges(topic: str, spans: Sequence[Span]) -> str:
    """Which offsets a twin holds, in words."""
    held = [span for span in spans if span.end > span.start]
    if not held:
        return "its twin holds nothing"
    shown = ", ".join(f"{topic}-{one.partition} {one.start} to {one.end - 1}" for one in held[:SHOWN_MAX])
    more = f" and {len(held) - SHOWN_MAX} partitions more" if len(held) > SHOWN_MAX else ""
    return f"its twin holds {shown}{more}"


def unsafe(topic: str, spans: Sequence[Span]) -> str:
    """Why the twin must not be deleted unasked; empty where it may."""
    for span in spans:
        if span.end > span.carried_to:
            held = f"offsets {span.carried_to} to {span.end - 1}"
            return f"{topic}-{span.partition} holds {held} that this link did not carry"
        if span.source_end > span.carried_to:
            return (
                f"the source's records of {topic}-{span.partition} from {span.carried_to} to {span.source_end - 1} "
                "never crossed"
            )
    return ""


def policy_words(follow: Follow) -> Mapping[str, str]:
    """The policies as the ledger names them, by kind of incident."""
    after = f"after {follow.delete_after_s:g} s"
    deleted = {
        Deleted.KEEP: "keep the twin",
        Deleted.ARCHIVE: "archive the twin",
        Deleted.DELETE: f"delete the twin {after}",
    }
    recreated = {Recreated.STOP: "stop the topic", Recreated.BEGIN_AGAIN: f"begin again {after}"}
    return {DELETED: deleted[follow.deleted], RECREATED: recreated[follow.recreated]}


def _hidden(look: TopicLook) -> list[Act]:
    if not look.doubted:
        return []
    side = "source" if look.source.presence is Presence.HIDDEN else "target"
    sentence = f"the {side} does not show topic {look.topic} to the mirror; it is not carried meanwhile"
    return [Tell(look.topic, "rights lost", sentence, "stop the topic"), Withdraw(look.topic), LookAgain(look.topic)]


def _source_gone(look: TopicLook, memory: Memory, follow: Follow, spans: Sequence[Span], now_ms: int) -> list[Act]:
    topic, policy = look.topic, policy_words(follow)[DELETED]
    match memory.state:
        case None | State.BEGINNING:
            sentence = f"topic {topic} was deleted on the source; {ranges(topic, spans)}"
            return [Withdraw(topic), Tell(topic, DELETED, sentence, policy), Remember(topic, State.GONE)]
        case State.GONE if follow.deleted is Deleted.ARCHIVE:
            return [Archive(topic), Remember(topic, State.ARCHIVED)]
        case State.GONE if follow.deleted is Deleted.DELETE:
            if now_ms - memory.since_ms < follow.delete_after_s * 1000:
                return []
            why_not = unsafe(topic, spans)
            if why_not:
                sentence = f"the twin of deleted topic {topic} is kept: {why_not}"
                return [Tell(topic, "foreign write", sentence, "keep the twin"), Remember(topic, State.KEPT)]
            return [
                Remember(topic, State.DELETING),
                *_delete(look, f"its source topic was deleted; {ranges(topic, spans)}"),
            ]
        case State.DELETING:
            if look.target.presence is Presence.GONE:
                return [Forget(topic)]
            return _delete(look, "its source topic was deleted")
        case _:
            # An operator deleted the twin as well: there is nothing left to say of the topic.
            return [Forget(topic)] if look.target.presence is Presence.GONE else []


def _made_again(look: TopicLook, memory: Memory, follow: Follow, spans: Sequence[Span], now_ms: int) -> list[Act]:
    topic = look.topic
    confirmed = _confirmed(memory, now_ms)
    sentence = f"topic {topic} was deleted and made again on the source, its offsets begin anew; {ranges(topic, spans)}"
    told = Tell(topic, RECREATED, sentence, policy_words(follow)[RECREATED])
    if not confirmed and follow.recreated is not Recreated.BEGIN_AGAIN:
        return [Withdraw(topic), LookAgain(topic), told]
    if memory.state is not State.BEGINNING:
        return [Withdraw(topic), LookAgain(topic), told, Remember(topic, State.BEGINNING)]
    if not confirmed and now_ms - memory.since_ms < follow.delete_after_s * 1000:
        return []
    if look.target.presence is Presence.GONE:
        return [Forget(topic), LookAgain(topic)]
    return _delete(look, f"its source topic was deleted and made again; {ranges(topic, spans)}")


def _delete(look: TopicLook, reason: str) -> list[Act]:
    """Only ever the twin that we made: a topic that somebody put in its place is not ours to delete."""
    if look.target.presence is Presence.THERE and look.target.topic_id == look.known_target_id:
        return [Withdraw(look.topic), DeleteTwin(look.topic, look.twin, reason)]
    return []


def _source_there(look: TopicLook, memory: Memory, now_ms: int) -> list[Act]:
    topic, acts = look.topic, list[Act]()
    if memory.state is not None:
        acts += [Remember(topic, None), LookAgain(topic)]
    if look.target.presence is Presence.GONE and _confirmed(memory, now_ms):
        return [Withdraw(topic), Forget(topic), LookAgain(topic)]
    lost = _twin_lost(look)
    if lost:
        return [*acts, Withdraw(topic), LookAgain(topic), Tell(topic, RECREATED, lost, "stop the topic")]
    if look.target.partitions > look.source.partitions:
        return [*acts, Withdraw(topic), LookAgain(topic)]
    if look.doubted:
        # All is as it should be: the pump saw something that has passed.
        return [*acts, Withdraw(topic), LookAgain(topic)]
    return acts


def _twin_lost(look: TopicLook) -> str:
    if look.mapped and (look.target.presence is Presence.GONE or look.target.topic_id != look.known_target_id):
        again = "" if look.target.presence is Presence.GONE else " and made again by someone else"
        return (
            f"the mapped twin {look.twin} was deleted{again}; to begin with it anew stop the mirror, "
            f"`twinshore mirror forget {look.topic}`, start the mirror"
        )
    if look.target.presence is Presence.GONE:
        return (
            f"the twin {look.twin} has been deleted on the target; "
            f"`twinshore mirror begin-again {look.topic}` begins a new one"
        )
    if look.target.topic_id != look.known_target_id:
        return (
            f"the twin {look.twin} was deleted and made again by someone else; delete it on the target, then "
            f"`twinshore mirror begin-again {look.topic}`"
        )
    return ""


def _confirmed(memory: Memory, now_ms: int) -> bool:
    return memory.confirmed_ms is not None and now_ms - memory.confirmed_ms < CONFIRMED_FOR_MS
