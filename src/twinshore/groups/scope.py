"""Which partitions a link keeps twins of, what they are called on the other side, and how offsets translate. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from twinshore.fleet import Link
from twinshore.groups.translation import AsCarried, Reversed, Translation
from twinshore.store.values import TwinRow
from twinshore.wire.group_places import Where


@dataclass(frozen=True, slots=True)
class Scope:
    """`parts`: each partition of the reading side, its name on the writing side, and how to come there."""

    parts: Mapping[Where, tuple[Where, Translation]]
    names: tuple[tuple[str, str, str, str], ...] = ()

    def reversed(self) -> Scope:
        """The same from the other side."""
        parts = {twin: (where, Reversed(translation)) for where, (twin, translation) in self.parts.items()}
        return Scope(parts, self.names)


NOWHERE = Scope({})


def came(before: Scope, now: Scope) -> frozenset[str]:
    """Topics, by their names on both sides, that have a twin now and had none before, or another topic's."""
    return frozenset(name for row in set(now.names) - set(before.names) for name in row[:2])


def scope_of(
    link: Link,
    rows: Iterable[TwinRow],
    mapped: Mapping[Where, Translation],
    source_ids: Mapping[str, str],
    target_ids: Mapping[str, str],
    carried: Callable[[Where, int], int],
) -> Scope:
    """Of the twins that are remembered, those whose topics are still the same ones, by their ids: a place in a topic
    that was made again says nothing about the old one. `carried`: as `AsCarried` asks it."""
    parts: dict[Where, tuple[Where, Translation]] = {}
    names: set[tuple[str, str, str, str]] = set()
    for row in rows:
        twin = link.twin_of(row.topic)
        if source_ids.get(row.topic) == row.source_topic_id and target_ids.get(twin) == row.target_topic_id:
            where = (row.topic, row.partition)
            parts[where] = ((twin, row.partition), mapped.get(where) or AsCarried(where, carried, row.inherited))
            names.add((row.topic, twin, row.source_topic_id, row.target_topic_id))
    return Scope(parts, tuple(sorted(names)))
