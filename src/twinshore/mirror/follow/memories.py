"""What the store remembers of topics that are no longer as they were, as rows and as values. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable

from twinshore.mirror.follow.acts import Remember, State
from twinshore.mirror.follow.last_resort import Word, word_from_json
from twinshore.mirror.follow.lifecycle import ALLOWED, CONFIRMED, KIND, Memory
from twinshore.mirror.follow.topic_settings import KIND as SETTINGS
from twinshore.store.values import Remembered


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
    value = json.dumps({"due_ms": act.due_ms, "source_id": act.source_id})
    return Remembered(link, KIND, act.topic, value, act.state or "", at_ms)


def _memory(rows: dict[str, Remembered]) -> Memory:
    begin, let = _word(rows.get(CONFIRMED)), _word(rows.get(ALLOWED))
    row = rows.get(KIND)
    if row is None or row.state not in set(State):
        return Memory(begin=begin, let=let)
    try:
        more = json.loads(row.value)
        due_ms, source_id = int(more["due_ms"]), str(more["source_id"])
    except (ValueError, KeyError, TypeError):
        return Memory(begin=begin, let=let)
    return Memory(State(row.state), row.since_ms, due_ms, source_id, begin, let)


def _word(row: Remembered | None) -> Word | None:
    return word_from_json(row.value, row.since_ms) if row else None
