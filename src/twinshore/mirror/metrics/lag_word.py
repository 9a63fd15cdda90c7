"""What the last look at a source's ends says of its link's lag: as the mirror leaves it in the store, and as `status`
reads it there. Pure: moments come in."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from twinshore.fleet import NamedPartition
from twinshore.store.values import Position, Remembered, TwinRow

# The kind under which the word stands in the store.
LAG_KIND = "lag"
TOPICS_MAX = 1_000
LOOK_S_MAX = 3.0
WORD_S_MIN = 5.0
WORDS_MISSED = 4
# By so much the clocks of two hosts may differ before what one wrote says nothing of how old it is.
AHEAD_S_MAX = 5.0


def fresh_s(ends_s: float) -> float:
    """An end of the source that was seen longer ago is old: one look was missed, or did not come to an answer."""
    return 2 * ends_s + LOOK_S_MAX


def word_holds_s(receipts_s: float) -> float:
    """A mirror that has said nothing for longer is not known to run: it speaks with each writing of receipts."""
    return max(WORD_S_MIN, WORDS_MISSED * receipts_s)


def is_ahead(age_s: float) -> bool:
    """Whether what is so old by this clock was written by one that is ahead: nobody knows how old it is."""
    return age_s < -AHEAD_S_MAX


def is_fresh(age_s: float, bound_s: float) -> bool:
    """Whether what was written so long ago is known to be within its bound."""
    return age_s <= bound_s and not is_ahead(age_s)


class TopicLag(NamedTuple):
    """Sums over the topic's partitions; `lag` and `source_end` without those that are `unseen`."""

    partitions: int = 0
    reached: int = 0
    source_end: int = 0
    lag: int = 0
    unseen: int = 0

    def with_one(self, reached: int, end: int) -> TopicLag:
        """One partition more; an `end` below 0 was not seen."""
        if end < 0:
            return TopicLag(self.partitions + 1, self.reached + reached, self.source_end, self.lag, self.unseen + 1)
        behind = max(0, end - reached)
        return TopicLag(
            self.partitions + 1, self.reached + reached, self.source_end + end, self.lag + behind, self.unseen
        )


@dataclass(frozen=True, slots=True)
class LagWord:
    """`seen_ms`: when the source was asked for its ends. Partitions that are `unseen` did not answer then."""

    seen_ms: int
    lag: int
    partitions: int
    unseen: int
    topics: Mapping[str, TopicLag] = field(default_factory=dict)

    def only(self, admits: Callable[[str], bool]) -> LagWord:
        """Without topics that the link carries no more, as far as the word names its topics."""
        kept = {name: one for name, one in self.topics.items() if admits(name)}
        return self if len(kept) == len(self.topics) else _summed(kept, self.seen_ms)


def lag_word(places: Iterable[tuple[NamedPartition, int, int]], seen_ms: int) -> LagWord:
    """The word of partitions, each with how far its twin is and where the source ends (below 0: not seen)."""
    topics: dict[str, TopicLag] = {}
    for named, reached, end in places:
        topics[named.topic] = topics.get(named.topic, TopicLag()).with_one(max(0, reached), end)
    return _summed(topics, seen_ms)


def _summed(topics: Mapping[str, TopicLag], seen_ms: int) -> LagWord:
    every = topics.values()
    lag, partitions, unseen = (sum(getattr(one, name) for one in every) for name in ("lag", "partitions", "unseen"))
    return LagWord(seen_ms, lag, partitions, unseen, topics)


def reached_of(twins: Iterable[TwinRow], positions: Iterable[Position]) -> dict[NamedPartition, int]:
    """How far each twin is receipted; one that nothing was carried to yet stands where it began."""
    found = {NamedPartition(row.topic, row.partition): row.anchor_offset for row in twins}
    told = {NamedPartition(at.topic, at.partition): at.to_offset for at in positions}
    return {named: told.get(named, anchor) for named, anchor in found.items()}


def as_row(link: str, word: LagWord) -> Remembered:
    """As it stands in the store; beyond so many topics without theirs."""
    topics = {name: list(one) for name, one in word.topics.items()} if len(word.topics) <= TOPICS_MAX else {}
    said = {"lag": word.lag, "partitions": word.partitions, "unseen": word.unseen, "topics": topics}
    return Remembered(link, LAG_KIND, "", json.dumps(said, separators=(",", ":")), LAG_KIND, word.seen_ms)


def from_rows(rows: Iterable[Remembered]) -> LagWord | None:
    """The last word; None where no look has ever been told of."""
    for row in rows:
        said = json.loads(row.value)
        topics = {name: TopicLag(*numbers) for name, numbers in said["topics"].items()}
        return LagWord(row.since_ms, said["lag"], said["partitions"], said["unseen"], topics)
    return None
