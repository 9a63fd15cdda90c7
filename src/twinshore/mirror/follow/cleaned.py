"""Which topics were compacted once: their cleaned part stays in the log when that ends. As rows and as values. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from twinshore.store.values import Remembered

KIND = "compacted"


@dataclass(frozen=True, slots=True)
class Cleaned:
    """A topic of this id was compacted. `ends`: where each partition ended when neither side was any more; no cleaner
    comes beyond that."""

    source_id: str
    ends: Mapping[int, int] = field(default_factory=dict)

    def below(self, partition: int, start: int) -> bool:
        """Whether a log that begins here holds anything that a cleaner may have been at."""
        return partition not in self.ends or start < self.ends[partition]


def compacts(policy: str | None) -> bool:
    """Whether a topic with this cleanup.policy is compacted."""
    return "compact" in (policy or "")


def cleaned_of(rows: Iterable[Remembered]) -> dict[str, Cleaned]:
    """What is remembered, by topic."""
    return {row.subject: _cleaned(row.value) for row in rows if row.kind == KIND}


def row_of(link: str, topic: str, cleaned: Cleaned, at_ms: int) -> Remembered:
    """As it is kept."""
    value = json.dumps({"source_id": cleaned.source_id, "ends": sorted(cleaned.ends.items())})
    return Remembered(link, KIND, topic, value, "", at_ms)


def _cleaned(value: str) -> Cleaned:
    raw = json.loads(value)
    return Cleaned(raw["source_id"], dict(raw["ends"]))
