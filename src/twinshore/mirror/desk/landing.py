"""Until when lost requests for a partition may still land, on whichever lane it is, and while it is on none. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from twinshore.fleet import NamedPartition
from twinshore.mirror.lane.orders import Handover
from twinshore.mirror.lane.roster import UNPLACED


class Landing:
    """One link's. A pump that is killed says nothing, so its successor hears here what the one before it had lost."""

    def __init__(self) -> None:
        self._until_s: dict[NamedPartition, float] = {}

    @property
    def until_s(self) -> float:
        """Of all partitions; 0 where nothing was lost."""
        return max(self._until_s.values(), default=0.0)

    def hear(self, handovers: Iterable[Handover], now_s: float) -> None:
        """A pump lets these partitions go."""
        for entry in handovers:
            named = NamedPartition(entry.topic, entry.partition)
            if entry.calm:
                self._until_s.pop(named, None)
            else:
                self._until_s[named] = max(self._until_s.get(named, 0.0), now_s + entry.strays_s)

    def told(
        self, handovers: Iterable[Handover], wanted: Iterable[NamedPartition], now_s: float
    ) -> tuple[Handover, ...]:
        """What the next pump of the `wanted` partitions must hear: the handovers, and how long it must wait where none
        says that."""
        self._until_s = {named: until_s for named, until_s in self._until_s.items() if until_s > now_s}
        given = tuple(handovers)
        known = {NamedPartition(entry.topic, entry.partition) for entry in given}
        lost = [named for named in wanted if named in self._until_s and named not in known]
        return given + tuple(_waits(named, self._until_s[named] - now_s) for named in lost)


def _waits(named: NamedPartition, for_s: float) -> Handover:
    """Nobody says where the twin ends, nor of which records the lost requests are."""
    place = (named.topic, named.partition, UNPLACED)
    return Handover(*place, leader_epoch=-1, armed_until_ms=0, calm=False, strays_s=for_s, strays_moved=True)
