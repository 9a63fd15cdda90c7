"""An offset of one side in terms of the other: as it is on exact twins, through extents on mapped ones. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from twinshore.fleet import Link
from twinshore.fleet.extents import Extent
from twinshore.store.values import TwinRow
from twinshore.wire.group_places import Where

Around = Callable[[int, bool], tuple[Extent | None, Extent | None]]


class Spot(NamedTuple):
    """Where a reader of the one side reads on at the other. Not `reached`: what it reads next there has not crossed
    yet, and `offset` is the furthest that is known to be right."""

    offset: int
    reached: bool = True


class Translation(Protocol):
    """None where no right answer is known: before the first record that this link carried."""

    def forward(self, offset: int) -> Spot | None:
        """An offset of the source, on the target."""

    def back(self, offset: int) -> Spot | None:
        """An offset of the target, on the source."""


class AsIs:
    """Exact twins: the offsets are the same."""

    def forward(self, offset: int) -> Spot | None:
        return Spot(offset)

    def back(self, offset: int) -> Spot | None:
        return Spot(offset)


AS_IS = AsIs()


@dataclass(frozen=True, slots=True)
class AsCarried:
    """Exact twins, as far as the link carried them: `carried(where, offset)` says how far, and looks again where that
    is below the offset; below `inherited` both were the same before it. What lies beyond on the target is nobody's
    copy: other records have these offsets on the source, now or soon, and whoever read on there has not read those."""

    where: tuple[str, int]
    carried: Callable[[tuple[str, int], int], int]
    inherited: int = 0

    def forward(self, offset: int) -> Spot | None:
        return Spot(offset)

    def back(self, offset: int) -> Spot | None:
        if offset <= self.inherited:
            return Spot(offset)
        known = max(self.inherited, self.carried(self.where, offset))
        if offset <= known:
            return Spot(offset)
        return Spot(known, reached=False) if known > 0 else None


class Reversed:
    """The same, seen from the other side."""

    def __init__(self, inner: Translation) -> None:
        self.forward, self.back = inner.back, inner.forward


class ByExtents:
    """Mapped twins. `around(offset, on_target)` gives the extent that begins at the offset or before it, and the next.

    A reader inside an extent reads the very record there. One between two extents has read all of the first and nothing
    of the second, so it reads on where the second begins: exact at any lag. Behind the last one `crossed` decides, how
    far the source has crossed: offsets without records, a transaction's end, are in no extent.
    """

    def __init__(self, around: Around, crossed: Callable[[], int] = lambda: 0) -> None:
        self._around, self._crossed = around, crossed

    def forward(self, offset: int) -> Spot | None:
        # First, so that it is never newer than the extents: between them a record could have come.
        crossed = self._crossed()
        before, behind = self._around(offset, False)
        if before is None:
            return None
        begin = behind.target if behind is not None else None
        spot = _through(offset - before.source, before.target, before.length, begin)
        return spot._replace(reached=True) if offset <= crossed else spot

    def back(self, offset: int) -> Spot | None:
        before, behind = self._around(offset, True)
        if before is None:
            return None
        begin = behind.source if behind is not None else None
        return _through(offset - before.target, before.source, before.length, begin)


def _through(into: int, goal: int, length: int, following: int | None) -> Spot:
    """`into`: how far behind the begin of the stretch; `goal`, `following`: where it and the next one begin there."""
    if into < length:
        return Spot(goal + into)
    if following is not None:
        return Spot(following)
    return Spot(goal + length, reached=into == length)


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
