"""Rows that wait for the ledger, and how many of them are written at once. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import groupby

from twinshore.mirror.driver.accounts import place_of
from twinshore.mirror.lane.orders import Stoppage

ROWS_AT_ONCE = 500
FEWER = 8  # times fewer at once, of those among which one was refused

Place = tuple[object, ...]


class WaitingRows:
    """Many at once, as an overload brings some each tenth of a second and an outage leaves thousands. Those among which
    one is refused are written with ever fewer others, in the end alone, so that it keeps no other from the store."""

    def __init__(self) -> None:
        self._rows: dict[Place, tuple[str, Stoppage]] = {}
        self._most: dict[Place, int] = {}  # of those among which one was refused
        self._well = True  # whether the store has taken any since it failed

    def put(self, link: str, stopped: Stoppage) -> None:
        """Told again while the first telling waits for the store, it is one incident all the same."""
        place = place_of(link, stopped)
        self._rows.pop(place, None)
        self._rows[place] = link, stopped

    def __iter__(self) -> Iterator[tuple[str, Stoppage]]:
        return iter(self._rows.values())

    def forget(self, link: str, topic: str) -> None:
        """The topic begins anew."""
        for place, (of, stopped) in list(self._rows.items()):
            if (of, stopped.topic) == (link, topic):
                self._gone(place)

    def parts(self) -> list[list[Place]]:
        """What waits now, as it is to be written, part by part."""
        found = []
        for most, places in groupby(self._rows, key=lambda place: self._most.get(place, ROWS_AT_ONCE)):
            ours = list(places)
            found += [ours[at : at + most] for at in range(0, len(ours), most)]
        return found

    def rows(self, places: Sequence[Place]) -> list[tuple[str, Stoppage]]:
        """What stands at these."""
        return [self._rows[place] for place in places]

    def written(self, places: Collection[Place]) -> None:
        """They are in the store."""
        self._well = True
        for place in places:
            self._gone(place)

    def failed(self, places: Collection[Place]) -> None:
        """They go behind all others. Where the store has taken others since it last failed, it is one of these that it
        does not take, and not the store that is away."""
        for place in places:
            self._rows[place] = self._rows.pop(place)
            if self._well:
                self._most[place] = max(1, len(places) // FEWER)
        self._well = False

    def _gone(self, place: Place) -> None:
        del self._rows[place]
        self._most.pop(place, None)
