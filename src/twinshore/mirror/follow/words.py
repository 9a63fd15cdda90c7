"""What an operator is shown before a twin may go by a word of theirs: both clusters as they are at that moment."""

from __future__ import annotations

from dataclasses import dataclass

from twinshore.fleet import Link, TwinshoreError
from twinshore.fleet.settings import Settings
from twinshore.links.standing import standing
from twinshore.mirror.follow.last_resort import Span, Word, objection, ranges, uncarried
from twinshore.mirror.follow.lifecycle import KEEP, Presence, SeenTopic
from twinshore.mirror.follow.reading import sides, spans
from twinshore.mirror.follow.safety_now import NEVER
from twinshore.service.ends import Ends
from twinshore.service.identity import hold_to
from twinshore.store import Store

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
            f"{self.topic}-{partition} {first} to {last} was not carried by this link"
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
        with Ends(link, settings, client_id="twinshore-word", patience_s=PATIENCE_S) as ends:
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
    with Ends(link, settings, client_id="twinshore-word", patience_s=PATIENCE_S) as ends:
        hold_to(link, store, ends.source, ends.target)
        there, here = sides(ends.source, [topic])[topic], sides(ends.target, [twin])[twin]
        held = spans(ends.target, topic, twin, here, store.receipts.positions(link.name)) if here.partitions else []
        return Shown(topic, there, here, tuple(held), against)
