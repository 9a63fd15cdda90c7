"""What the last proof of a link could not compare, as the store keeps it for whoever looks at the link. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from twinshore.proof.surveying import Lack
from twinshore.store.values import Remembered

KIND = "not compared"
KEPT_MAX = 100
NAMED = 5


@dataclass(frozen=True, slots=True)
class Lacking:
    """`count` topics and partitions, the first of them with their reasons; at `at_ms`."""

    count: int
    lacks: tuple[Lack, ...]
    at_ms: int

    def in_words(self, ago: str) -> str:
        """For people: how many, and the first of them."""
        named = "; ".join(f"{_name(lack)}: {lack.sentence}" for lack in self.lacks[:NAMED])
        more = f"; and {self.count - NAMED:,} more" if self.count > NAMED else ""
        what = "topic or partition" if self.count == 1 else "topics or partitions"
        return f"the last proof, {ago} ago, could not tell of {self.count:,} {what}: {named}{more}"


def row_of(link: str, lacks: Sequence[Lack], at_ms: int) -> Remembered:
    """As it is kept."""
    kept = [(lack.topic, lack.partition, lack.sentence) for lack in lacks[:KEPT_MAX]]
    return Remembered(link, KIND, "", json.dumps({"count": len(lacks), "lacks": kept}), KIND, at_ms)


def lacking_of(rows: Iterable[Remembered]) -> Lacking | None:
    """Out of what is kept; None where nothing was lacking."""
    for row in rows:
        if row.kind == KIND:
            raw = json.loads(row.value)
            return Lacking(raw["count"], tuple(Lack(row.link, *one) for one in raw["lacks"]), row.since_ms)
    return None


def _name(lack: Lack) -> str:
    if not lack.topic:
        return "the whole link"
    return lack.topic if lack.partition < 0 else f"{lack.topic}-{lack.partition}"
