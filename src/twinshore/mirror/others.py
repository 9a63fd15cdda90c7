"""Which topics of the target another link carries now. Two processes of one store may have read settings of two days,
and each believe that a topic is its own: of two links the one whose row of the twin was there first has it."""

from __future__ import annotations

import time
from collections.abc import Container, Iterable, Sequence
from contextlib import suppress

from twinshore.fleet import Link, is_heartbeats
from twinshore.mirror.control.clashes import filters_from_json
from twinshore.mirror.control.ruling import IN_FORCE
from twinshore.mirror.link_state import STOPPED
from twinshore.mirror.plan import CarryTopic, Refuse, Step, passes_filters
from twinshore.mirror.twins import twin_row
from twinshore.store import IncidentKind, Store

# A mirror that has said nothing for longer carries nothing any more: its lease and its pumps' grants have run out.
ALIVE_MS = 60_000


class Others:
    """One link's eye on all other links of its store."""

    def __init__(self, link: Link, store: Store) -> None:
        self._link, self._store = link, store

    def judged(self, steps: Sequence[Step], known: Container[str]) -> list[Step]:
        """The steps, without those for topics that another link carries: why each of these must not be touched."""
        new = [step for step in steps if isinstance(step, CarryTopic) and step.topic not in known]
        taken = self._taken(new)
        called = {step.topic: step.twin or step.topic for step in new}
        refused = [
            Refuse(
                topic,
                IncidentKind.FOREIGN_WRITE.value,
                f"topic {called[topic]} on {self._link.target} is the twin of link {other}, whose mirror carries it",
                "give both links filters that have no topic in common, and start both mirrors with the same settings",
            )
            for topic, other in sorted(taken.items())
        ]
        return [*(step for step in steps if step.topic not in taken), *refused]

    def kept(self, steps: Sequence[CarryTopic]) -> list[CarryTopic]:
        """The steps whose twins are this link's. New ones are remembered first: of two links that do so at once, each
        sees the other's row, or the later one does; whoever sees one lets go, and tries again with the next survey."""
        known = {row.topic for row in self._store.twins.of(self._link.name)}
        new = [step for step in steps if step.topic not in known]
        if not new:
            return list(steps)
        now_ms = int(time.time() * 1000)
        self._store.twins.save(
            [twin_row(self._link.name, step, part, now_ms) for step in new for part in range(step.partitions)]
        )
        taken = self._taken(new)
        for topic in taken:
            self._store.forget_topic(self._link.name, topic)
        return [step for step in steps if step.topic not in taken]

    def _taken(self, steps: Iterable[CarryTopic]) -> dict[str, str]:
        """Topics of these whose twins another link carries, and which link."""
        ours = {step.target_topic_id: step.topic for step in steps if not is_heartbeats(step.topic)}
        if not ours:
            return {}
        found: dict[str, str] = {}
        for other in self._alive():
            held = self._in_force(other)
            for row in self._store.twins.carried(other):
                topic = ours.get(row.target_topic_id)
                if topic is not None and (held is None or passes_filters(held, row.topic)):
                    found[topic] = other
        return found

    def _alive(self) -> list[str]:
        """All other links whose mirrors run."""
        since_ms = int(time.time() * 1000) - ALIVE_MS
        words = [word for word in self._store.links.statuses() if word.link != self._link.name]
        return sorted(word.link for word in words if word.updated_ms >= since_ms and word.state != STOPPED)

    def _in_force(self, other: str) -> Link | None:
        """The other link's filters as its own process has them; None where it has not said."""
        for row in self._store.memories.of(other, IN_FORCE):
            with suppress(ValueError, TypeError):
                filters = filters_from_json(row.value)
                source, _, target = other.partition("->")
                return Link(source, target, filters.topics, filters.exclude)
        return None
