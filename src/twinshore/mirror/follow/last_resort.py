"""What speaks against deleting a twin: the last copy of what it holds must not go by mistake. Pure.

A policy may delete a twin only where nothing speaks against it at that very moment. An operator's word may take the
policy's place, and it stands for what the operator was shown: the source's topic, and how far the twin went.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from twinshore.fleet import Link
from twinshore.fleet.sentences import listed
from twinshore.links.filters import admits

WORD_HOLDS_MS = 86_400_000
SHOWN_MAX = 20
_FREE = "may be deleted again, as the settings say"
EVERY_TOPIC = ""  # the subject of a word that holds for all topics of a link


@dataclass(frozen=True, slots=True)
class Span:
    """A partition of the twin: its log, how far this link wrote it, how far the source was then."""

    partition: int
    start: int
    end: int
    carried_to: int
    source_end: int


@dataclass(frozen=True, slots=True)
class Word:
    """An operator's agreement. `source_id` is the topic on the source that it speaks of, empty for one that is gone;
    `ends`: how far partitions may reach that the link did not carry."""

    at_ms: int
    source_id: str = ""
    ends: tuple[tuple[int, int], ...] = ()

    def holds(self, source_id: str, now_ms: int) -> bool:
        return self.source_id == source_id and now_ms - self.at_ms < WORD_HOLDS_MS

    def to_json(self) -> str:
        return json.dumps({"source_id": self.source_id, "ends": [list(pair) for pair in self.ends]})


def word_from_json(text: str, at_ms: int) -> Word | None:
    """None where it is not one, as from another version: an operator then says it again."""
    try:
        raw = json.loads(text)
        return Word(at_ms, str(raw["source_id"]), tuple((int(number), int(end)) for number, end in raw["ends"]))
    except (ValueError, KeyError, TypeError):
        return None


def objection(link: Link, topic: str, *, never: str, kept: Collection[str], troubles: Collection[str] = ()) -> str:
    """Why no policy and no word may delete the topic's twin now; empty where they may. `link` is as it holds now;
    `never`: what [safety] says against it; `kept`: topics that operators said must stay; `troubles`: words of operators
    that make no sense, or that clash."""
    if never:
        return never
    if EVERY_TOPIC in kept or topic in kept:
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


def kept_in_words(topic: str, kept: Collection[str]) -> str:
    """How a topic's twin, or with EVERY_TOPIC all of a link's, stand after an operator spoke of them."""
    if topic == EVERY_TOPIC:
        if EVERY_TOPIC in kept:
            return "all its twins are kept"
        ours = listed(sorted(kept), SHOWN_MAX)
        return f"kept still, each by a word of its own: {ours}" if kept else f"its twins {_FREE}"
    if topic in kept:
        return f"the twin of {topic} is kept"
    if EVERY_TOPIC in kept:
        return f"the twin of {topic} is kept still, as all of the link: `twinshore mirror keep --all --undo` ends that"
    return f"the twin of {topic} {_FREE}"


def not_kept_in_words(topic: str, kept: Collection[str]) -> str:
    """What a word that lets go finds where none of just that kind keeps the twin, or all of them."""
    if topic in kept or EVERY_TOPIC in kept:
        return kept_in_words(topic, kept)
    what = "all its twins" if topic == EVERY_TOPIC else f"the twin of {topic}"
    return f"no word keeps {what}: there is nothing to take back"


def too_many(waiting: int, lost: int, known: int, at_once_max: int) -> str:
    """Why so many deletions at once need an operator's word; empty where they do not. `lost`: how many of the `known`
    topics are not on the source as they were."""
    if waiting and lost == known and known > 1:
        return f"all {known} topics of the link are gone from the source at once, as where it was installed anew"
    if waiting > at_once_max:
        return f"{waiting} twins would be deleted at once, and [safety] deletions_at_once_max is {at_once_max}"
    return ""


def ranges(topic: str, spans: Sequence[Span]) -> str:
    """Which offsets a twin holds, in words."""
    held = [span for span in spans if span.end > span.start]
    if not held:
        return "its twin holds nothing"
    shown = ", ".join(f"{topic}-{one.partition} {one.start} to {one.end - 1}" for one in held[:SHOWN_MAX])
    more = f" and {len(held) - SHOWN_MAX} partitions more" if len(held) > SHOWN_MAX else ""
    return f"its twin holds {shown}{more}"


def uncarried(spans: Sequence[Span], agreed: Mapping[int, int] | None = None) -> list[tuple[int, int, int]]:
    """Partition, first and last offset of what the twin holds and this link did not carry, beyond what is agreed to."""
    found = []
    for span in spans:
        known_to = max(span.start, span.carried_to, (agreed or {}).get(span.partition, 0))
        if span.end > known_to:
            found.append((span.partition, known_to, span.end - 1))
    return found


def unsafe(topic: str, spans: Sequence[Span]) -> str:
    """Why the twin must not be deleted unasked; empty where it may."""
    for partition, first, last in uncarried(spans):
        return f"{topic}-{partition} holds offsets {first} to {last}, of which this link has no receipt"
    for span in spans:
        if span.source_end > span.carried_to:
            lost = f"{span.carried_to} to {span.source_end - 1}"
            return f"the source's records of {topic}-{span.partition} from {lost} never crossed"
    return ""
