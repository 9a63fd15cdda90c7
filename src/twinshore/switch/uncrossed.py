"""How much of a home had not crossed when it was seen last, topic by topic, and what of it nobody knows. Pure: the time
comes in.

The mirror looks at the home's ends, also where it carries nothing, as of topics that are paused, and leaves a word of
that. Receipts know only what came with what was carried: what they say is missing is the least of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from twinshore.fleet.sentences import counted, listed
from twinshore.mirror.metrics.words import LagWord
from twinshore.store.values import Position

NAMED_MAX = 5
UNKNOWN = "how much is lost is not known"  # said first: a count of before may be taken for it


@dataclass(frozen=True, slots=True)
class Uncrossed:
    """`offsets` had not crossed when the home was seen at `seen_ms`; at least so many, where not `whole`. `unknown`:
    topics of which nothing is known."""

    offsets: int
    seen_ms: int
    whole: bool = True
    unknown: tuple[str, ...] = ()

    def sentences(self, home: str, topics: int, now_ms: int) -> list[str]:
        """For people; of how many `topics` it was asked."""
        if len(self.unknown) == topics:
            return [f"how much of {home} had not crossed is not known: this store has not seen where its logs end"]
        age = f"{max(0.0, (now_ms - self.seen_ms) / 1000):.0f} s"
        count = f"{counted(self.offsets, 'offset')} had not crossed"
        if self.whole:
            said = [f"{UNKNOWN}: {age} before now, when {home} was last seen, {count}"]
        elif self.offsets:
            said = [f"{UNKNOWN}: {age} before now, when {home} was last seen in part, at least {count}"]
        else:
            seen = f"nothing was missing of the part that was seen {age} ago"
            said = [f"how much of {home} had not crossed is not known: {seen}"]
        if self.unknown:
            some = listed(self.unknown, NAMED_MAX)
            said.append(f"how much of {some} had not crossed is not known: this store has not seen where that ends")
        return said


def uncrossed(
    partitions: Mapping[str, int], positions: Iterable[Position], word: LagWord | None, *, every: bool
) -> Uncrossed:
    """Of topics with so many partitions each, by the mirror's last word where it says something of the topic, else by
    the receipts. `every`: these are all topics of the link, so that a word which names no topics tells of them."""
    if every and word is not None and not word.topics and word.partitions == sum(partitions.values()):
        seen = word.partitions > word.unseen
        return Uncrossed(word.lag, word.seen_ms, not word.unseen, () if seen else tuple(sorted(partitions)))
    receipts: dict[str, list[Position]] = {}
    for at in positions:
        receipts.setdefault(at.topic, []).append(at)
    offsets, whole, by_word = 0, True, False
    unknown: list[str] = []
    last_ms: list[int] = []
    for topic, count in sorted(partitions.items()):
        told = word.topics.get(topic) if word is not None else None
        ours = receipts.get(topic, [])
        if told is not None and told.partitions > told.unseen:
            offsets, by_word = offsets + told.lag, True
            whole = whole and not told.unseen and told.partitions >= count
        elif ours:
            offsets, whole = offsets + sum(max(0, at.source_end - at.to_offset) for at in ours), False
            last_ms.append(max(at.last_ms for at in ours))
        else:
            unknown.append(topic)
    seen_ms = word.seen_ms if word is not None and by_word else max(last_ms, default=0)
    return Uncrossed(offsets, seen_ms, whole, tuple(unknown))
