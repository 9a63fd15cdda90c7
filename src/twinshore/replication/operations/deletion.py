"""An operator's no to deletions of twins, and an operator's yes to one that waits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from twinshore.config.errors import ConfigError, RefusedError, TwinshoreError
from twinshore.config.frozen import WORD_CLIENT_ID
from twinshore.config.model import Deleted, Link, Plan
from twinshore.config.schema import did_you_mean
from twinshore.config.settings import Settings
from twinshore.kafka.clock import wall_ms
from twinshore.replication.links import standing
from twinshore.replication.sync.clusters import NEVER, sides, spans
from twinshore.replication.sync.core.decisions import State
from twinshore.replication.sync.core.lifecycle import (
    ALLOWED,
    EVERY_TOPIC,
    KEEP,
    Presence,
    SeenTopic,
    Span,
    Word,
    kept_in_words,
    memories_of,
    not_kept_in_words,
    objection,
    ranges,
    uncarried,
    unsafe,
)
from twinshore.runtime.endpoints import Ends, hold_to
from twinshore.state.core.values import AuditRow, Remembered
from twinshore.state.store import Store

PATIENCE_S = 5.0
GONE = "its twin is gone already"


@dataclass(frozen=True, slots=True)
class Shown:
    """A topic and its twin now. `against`: why the mirror would not delete the twin whatever is agreed."""

    topic: str
    source: SeenTopic
    target: SeenTopic
    spans: tuple[Span, ...]
    against: str

    def lines(self) -> list[str]:
        """What goes with the twin, and what of it the link did not carry."""
        if self.target.presence is not Presence.THERE:
            return ["its twin is gone already: nothing is deleted"]
        lost = [
            f"{self.topic}-{partition} {first} to {last}: no receipt says that this link carried it"
            for partition, first, last in uncarried(self.spans)
        ]
        return [ranges(self.topic, self.spans), *lost]

    def word(self, at_ms: int) -> Word:
        """An agreement to just what is shown."""
        ends = tuple((partition, last + 1) for partition, _, last in uncarried(self.spans))
        return Word(at_ms, self.source.topic_id, ends)


def unseen(link: Link, settings: Settings, store: Store, topic: str) -> str:
    """Why the topic's twin is not seen on the target now, GONE where it says that there is none; empty where it is."""
    twin = link.twin_of(topic)
    try:
        with Ends(link, settings, client_id=WORD_CLIENT_ID, patience_s=PATIENCE_S) as ends:
            hold_to(link, store, ends.source, ends.target)
            here = sides(ends.target, [twin])[twin].presence
    except TwinshoreError as error:
        return f"whether the twin of {topic} is there is not known: {error}"
    if here is Presence.HIDDEN:
        return f"whether the twin of {topic} is there is not known: {link.target} does not show it"
    return GONE if here is Presence.GONE else ""


def show(link: Link, settings: Settings, store: Store, topic: str) -> Shown:
    """Asks both clusters; KafkaError where one does not answer, or is not the link's."""
    now = standing(settings.links, store)[link.name]
    kept = {row.subject for row in store.memories.of(link.name, KEEP)}
    never = NEVER if settings.safety.never_delete else ""
    against = objection(now.link, topic, never=never, kept=kept, troubles=now.troubles)
    twin = link.twin_of(topic)
    with Ends(link, settings, client_id=WORD_CLIENT_ID, patience_s=PATIENCE_S) as ends:
        hold_to(link, store, ends.source, ends.target)
        there, here = sides(ends.source, [topic])[topic], sides(ends.target, [twin])[twin]
        held = spans(ends.target, topic, twin, here, store.receipts.positions(link.name)) if here.partitions else []
        return Shown(topic, there, here, tuple(held), against)


@dataclass(frozen=True, slots=True)
class Keep:
    """Nothing deletes the topic's twin, or with `every` any twin of the links; `undo` takes that back."""

    topic: str = ""
    links: Sequence[str] = ()
    every: bool = False
    undo: bool = False


@dataclass(frozen=True, slots=True)
class KeepStep:
    """`topic` is EVERY_TOPIC for all; `kept` is what operators keep then."""

    link: str
    topic: str
    undo: bool
    kept: frozenset[str]

    def sentence(self, *, done: bool) -> str:
        words = kept_in_words(self.topic, self.kept)
        return f"{self.link}: {words}" if done else f"{self.link}: it would be so: {words}"


@dataclass(frozen=True, slots=True)
class Delete:
    """Agrees to a deletion that a policy would do, and that waits for a word."""

    topic: str
    links: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class DeleteStep:
    """The word to the running mirror."""

    link: str
    topic: str

    def sentence(self, *, done: bool) -> str:
        word = "deletes" if done else "would delete"
        return f"{self.link}: the running mirror {word} the twin of {self.topic} within seconds"


def plan_keep(asked: Keep, settings: Settings, store: Store) -> Plan[KeepStep]:
    """A word that keeps may be about all links that have the topic; one that lets go is about one link alone. It is
    said only of a twin that is there, as far as the target can be asked."""
    topic = asked.topic or EVERY_TOPIC
    if bool(asked.topic) is asked.every:
        raise ConfigError("name a topic, or give --all", hint="one or the other")
    links = [settings.only(asked.links)] if asked.undo else settings.chosen(asked.links)
    kept = {link.name: frozenset(row.subject for row in store.memories.of(link.name, KEEP)) for link in links}
    known = {link.name: {row.topic for row in store.twins.of(link.name)} for link in links}
    if asked.undo:
        known = {name: topics | kept[name] for name, topics in known.items()}
    ours = [name for name in known if asked.every or topic in known[name]]
    if not ours:
        near = did_you_mean(topic, sorted(set().union(*known.values())))
        raise ConfigError(f"no link has a twin of topic {topic}", hint=near.removeprefix("; ") or "no link has any")
    if asked.undo:
        shown = [f"{name}: {not_kept_in_words(topic, kept[name])}" for name in ours if topic not in kept[name]]
        steps = [KeepStep(name, topic, undo=True, kept=kept[name] - {topic}) for name in ours if topic in kept[name]]
        return Plan(tuple(steps), tuple(shown))
    seen = {name: "" if asked.every else unseen(settings.link(name), settings, store, topic) for name in ours}
    steps = [KeepStep(name, topic, undo=False, kept=kept[name] | {topic}) for name in ours if seen[name] != GONE]
    shown = [f"{name}: {why}" for name, why in seen.items() if why]
    if steps:
        return Plan(tuple(steps), tuple(shown))
    gone = RefusedError(
        f"the twin of {topic} is gone: there is nothing to keep", hint="`twinshore audit` says when it went"
    )
    return Plan(refused=gone)


def act_keep(planned: Plan[KeepStep], store: Store, *, by: str) -> Iterator[KeepStep]:
    """A running mirror obeys at once: it asks right before each deletion."""
    for step in planned.steps:
        now_ms = wall_ms()
        row = Remembered(step.link, KEEP, step.topic, "", "kept", now_ms)
        said = "a word that keeps was taken back" if step.undo else "kept: nothing deletes it, or them"
        told = AuditRow(now_ms, step.link, "topic", step.topic or "all topics", "", said, f"by {by}", by, step.topic)
        (store.memories.forget if step.undo else store.memories.remember)([row], [told])
        yield step


def plan_delete(asked: Delete, settings: Settings, store: Store) -> Plan[DeleteStep]:
    """Asks both clusters what goes with the twin; refused where anything speaks against it."""
    link, topic = settings.only(asked.links), asked.topic
    memories = memories_of(store.memories.of(link.name))
    waiting = sorted(name for name, memory in memories.items() if memory.state is State.ASKED and not memory.source_id)
    if topic not in waiting:
        hint = did_you_mean(topic, waiting).removeprefix("; ") or "`twinshore status` shows what is open"
        raise ConfigError(f"no deletion of the twin of {topic} waits for a word", hint=hint)
    seen = show(link, settings, store, topic)
    shown = tuple(f"{link.name}: {line}" for line in seen.lines())
    not_by_policy = "" if link.follow.deleted is Deleted.DELETE else f"deleted = {link.follow.deleted.value!r} now"
    why = seen.against or not_by_policy or unsafe(topic, seen.spans)
    if why:
        sentence = f"the twin of {topic} is not deleted: {why}"
        return Plan(shown=shown, refused=RefusedError(sentence, hint="docs/deletes.md says what forbids it"))
    return Plan((DeleteStep(link.name, topic),), shown)


def act_delete(planned: Plan[DeleteStep], store: Store, *, by: str) -> Iterator[DeleteStep]:
    """The running mirror looks at everything again before it deletes."""
    for step in planned.steps:
        now_ms = wall_ms()
        told = AuditRow(
            now_ms, step.link, "topic", step.topic, "", "its twin may be deleted", f"by {by}", by, step.topic
        )
        store.memories.remember(
            [Remembered(step.link, ALLOWED, step.topic, Word(now_ms).to_json(), "agreed", now_ms)], [told]
        )
        yield step
