"""What the store remembers of topics that are no longer as they were, as rows and as values. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from twinshore.mirror.follow.acts import Remember, State
from twinshore.mirror.follow.last_resort import Word, word_from_json
from twinshore.mirror.follow.lifecycle import ALLOWED, CONFIRMED, KIND, Memory
from twinshore.mirror.follow.topic_settings import KIND as SETTINGS
from twinshore.store.values import Remembered

COMPACTED = "compacted"
KEPT_EVERY_S = 10.0  # at most so often the store is told how long a deletion has waited


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
    return {row.subject: _cleaned(row.value) for row in rows if row.kind == COMPACTED}


def cleaned_row(link: str, topic: str, cleaned: Cleaned, at_ms: int) -> Remembered:
    """As it is kept."""
    value = json.dumps({"source_id": cleaned.source_id, "ends": sorted(cleaned.ends.items())})
    return Remembered(link, COMPACTED, topic, value, "", at_ms)


def _cleaned(value: str) -> Cleaned:
    raw = json.loads(value)
    return Cleaned(raw["source_id"], dict(raw["ends"]))


def memories_of(rows: Iterable[Remembered]) -> dict[str, Memory]:
    """What is remembered of each topic; a row that another version wrote is as none, so that its delay begins anew."""
    found: dict[str, dict[str, Remembered]] = {}
    for row in rows:
        if row.kind in (KIND, CONFIRMED, ALLOWED):
            found.setdefault(row.subject, {})[row.kind] = row
    return {topic: _memory(ours) for topic, ours in found.items()}


def spent(link: str, topic: str) -> tuple[Remembered, ...]:
    """Rows whose subject is over when a topic is forgotten. Two kinds stay: an operator's word that its twin is to be
    kept, and which topic of that name was compacted."""
    return tuple(Remembered(link, kind, topic, "", "", 0) for kind in (KIND, CONFIRMED, ALLOWED, SETTINGS))


def row_of(link: str, act: Remember, at_ms: int) -> Remembered:
    """The state as it is kept."""
    return _row(link, act.topic, Memory(act.state, at_ms, act.due_ms, act.source_id))


class ServedDelays:
    """How long announced deletions have waited, by one process's monotonic clock on top of what the store keeps."""

    def __init__(self, link: str) -> None:
        self._link = link
        self._counts: dict[str, tuple[Memory, float]] = {}

    def served(self, topic: str, memory: Memory, now_s: float) -> Memory:
        """The memory of an announced deletion with all that it has waited so far."""
        if memory.state not in (State.ANNOUNCED, State.BEGINNING):
            self._counts.pop(topic, None)
            return memory
        first, since_s = self._counts.get(topic, (memory, now_s))
        if _announcement(first) != _announcement(memory):
            first, since_s = memory, now_s
        self._counts[topic] = first, since_s
        return replace(memory, served_s=first.served_s + now_s - since_s)

    def row(self, topic: str, stored: Memory, served: Memory, delay_s: float) -> Remembered | None:
        """What the store is to keep, where it lacks much of what has been waited."""
        lacks_s = served.served_s - stored.served_s
        if lacks_s < max(KEPT_EVERY_S, delay_s / 100) and not stored.served_s < delay_s <= served.served_s:
            return None
        return _row(self._link, topic, served)


def _announcement(memory: Memory) -> tuple[State | None, int, int, str]:
    return memory.state, memory.since_ms, memory.due_ms, memory.source_id


def _row(link: str, topic: str, memory: Memory) -> Remembered:
    value = json.dumps({"due_ms": memory.due_ms, "source_id": memory.source_id, "served_s": round(memory.served_s, 3)})
    return Remembered(link, KIND, topic, value, memory.state or "", memory.since_ms)


def _memory(rows: dict[str, Remembered]) -> Memory:
    begin, let = _word(rows.get(CONFIRMED)), _word(rows.get(ALLOWED))
    row = rows.get(KIND)
    if row is None or row.state not in set(State):
        return Memory(begin=begin, let=let)
    try:
        more = json.loads(row.value)
        due_ms, source_id, served_s = int(more["due_ms"]), str(more["source_id"]), float(more["served_s"])
    except (ValueError, KeyError, TypeError):
        return Memory(begin=begin, let=let)
    return Memory(State(row.state), row.since_ms, due_ms, source_id, served_s, begin, let)


def _word(row: Remembered | None) -> Word | None:
    return word_from_json(row.value, row.since_ms) if row else None
