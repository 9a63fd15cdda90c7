"""Incidents that stop nothing and pass by themselves: which are open, and what a pump tells that is new. Pure."""

from __future__ import annotations

from collections.abc import Container

from twinshore.fleet import NamedPartition
from twinshore.fleet.incidents import IncidentKind
from twinshore.mirror.incidents.kinds import passing
from twinshore.mirror.lane.orders import Stoppage

AWAY = {IncidentKind.SOURCE_AWAY: "source", IncidentKind.TARGET_AWAY: "target"}


class WhatPasses:
    """Each is over once its twin has been told of up to an offset."""

    def __init__(self) -> None:
        self._until: dict[tuple[str, NamedPartition], dict[IncidentKind, int]] = {}

    def opened(self, link: str, named: NamedPartition, kind: IncidentKind, until: int) -> None:
        kinds = self._until.setdefault((link, named), {})
        kinds[kind] = max(until, kinds.get(kind, -1))

    def kinds(self, link: str, named: NamedPartition) -> frozenset[IncidentKind]:
        """Those that are not over."""
        return frozenset(self._until.get((link, named), {}))

    def away(self, link: str) -> frozenset[NamedPartition]:
        """The partitions of the link that stand because a leader of theirs is away."""
        here = [(named, kinds) for (name, named), kinds in list(self._until.items()) if name == link]
        return frozenset(named for named, kinds in here if not AWAY.keys().isdisjoint(kinds))

    def forget(self, link: str, topic: str | None = None) -> None:
        """The topic begins anew; or, with None, what the ledger holds open of the link is to be said again: another
        process may have closed it meanwhile."""
        gone = [key for key in self._until if key[0] == link and topic in (None, key[1].topic)]
        for key in gone:
            del self._until[key]

    def reached(self, link: str, named: NamedPartition, to_offset: int) -> None:
        """The twin has been told of up to there."""
        kinds = self._until.get((link, named))
        if kinds:
            self._until[link, named] = {kind: until for kind, until in kinds.items() if until > to_offset}

    def hear(self, link: str, told: Stoppage, away: Container[str]) -> bool:
        """Whether it needs a row. `away`: the sides of the link that are away as a whole, which has its own row. A pump
        tells what lasts again and again, as does the next one; each look tells of a loss until it is mended."""
        named, side = NamedPartition(told.topic, told.partition), AWAY.get(told.kind, "")
        if not passing(told.kind, told.policy):
            return True
        if side in away:
            return False
        known_to = self._until.get((link, named), {}).get(told.kind, -1)
        self.opened(link, named, told.kind, told.to_offset)
        if told.kind == IncidentKind.LOST_BY_TARGET:
            return known_to < told.to_offset
        return not (side and known_to >= 0)
