"""Incidents that stop nothing and pass by themselves: which are open, and what a pump tells that is new. Pure."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, replace

from twinshore.fleet import NamedPartition
from twinshore.fleet.incidents import IncidentKind
from twinshore.mirror.incidents.kinds import passing
from twinshore.mirror.lane.orders import Stoppage

AWAY = {IncidentKind.SOURCE_AWAY: "source", IncidentKind.TARGET_AWAY: "target"}


@dataclass(frozen=True, slots=True)
class _Open:
    """The rows of one kind: over as a whole at `until`; the twin has been told of up to `reached` since."""

    until: int
    reached: int = -1


class WhatPasses:
    """Each is over once its twin has been told of up to an offset."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, NamedPartition], dict[IncidentKind, _Open]] = {}

    def opened(self, link: str, named: NamedPartition, kind: IncidentKind, until: int) -> None:
        kinds = self._open.setdefault((link, named), {})
        before = kinds.get(kind, _Open(until))
        # What ends below where the twin has been is of a twin that has fallen back: it is over when told of anew.
        reached = before.reached if before.reached < until else -1
        kinds[kind] = _Open(max(until, before.until), reached)

    def kinds(self, link: str, named: NamedPartition) -> Mapping[IncidentKind, int]:
        """Those that are not over. Rows of them which end at the offset beside the kind, or below, are over already: of
        an overload the next row is always open. A side that is away has one row, over with the last it is told for."""
        here = self._open.get((link, named), {}).copy()  # another thread may open one meanwhile
        return {kind: -1 if kind in AWAY else one.reached for kind, one in here.items()}

    def away(self, link: str) -> frozenset[NamedPartition]:
        """The partitions of the link that stand because a leader of theirs is away."""
        here = [(named, kinds) for (name, named), kinds in list(self._open.items()) if name == link]
        return frozenset(named for named, kinds in here if not AWAY.keys().isdisjoint(kinds))

    def forget(self, link: str, topic: str | None = None) -> None:
        """The topic begins anew; or, with None, what the ledger holds open of the link is to be said again: another
        process may have closed it meanwhile."""
        gone = [key for key in self._open if key[0] == link and topic in (None, key[1].topic)]
        for key in gone:
            del self._open[key]

    def reached(self, link: str, named: NamedPartition, to_offset: int) -> None:
        """The twin has been told of up to there."""
        kinds = self._open.get((link, named))
        if kinds:
            left = {kind: one for kind, one in kinds.items() if one.until > to_offset}
            self._open[link, named] = {kind: replace(one, reached=to_offset) for kind, one in left.items()}

    def hear(self, link: str, told: Stoppage, away: Container[str]) -> bool:
        """Whether it needs a row. `away`: the sides of the link that are away as a whole, which has its own row. A pump
        tells what lasts again and again, as does the next one; each look tells of a loss until it is mended."""
        named, side = NamedPartition(told.topic, told.partition), AWAY.get(told.kind, "")
        if not passing(told.kind, told.policy):
            return True
        if side in away:
            return False
        before = self._open.get((link, named), {}).get(told.kind)
        known_to = before.until if before else -1
        self.opened(link, named, told.kind, told.to_offset)
        if told.kind == IncidentKind.LOST_BY_TARGET:
            return known_to < told.to_offset
        return not (side and known_to >= 0)
