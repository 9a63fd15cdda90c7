"""What one client has on its way to brokers, so that a switch learns when nothing more arrives at an old home."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from twinshore.proxy.core.layout import Place
from twinshore.proxy.house import House

# A broker may still write what it had received of a connection that has ended.
LATE_S: Final = 2.0


class Writing:
    """`ask` has a broker answer something behind all that it was sent, and calls back once it has."""

    def __init__(self, house: House, ask: Callable[[Place, Callable[[], None]], None]) -> None:
        self._house, self._ask = house, ask
        self._open: dict[tuple[str, ...], int] = {}
        self._unanswered: dict[Place, set[str]] = {}
        self._asked: set[Place] = set()

    def begins(self, topics: tuple[str, ...]) -> None:
        """A request to write there goes out."""
        self._open[topics] = self._open.get(topics, 0) + 1
        self._house.writes(topics)

    def is_under_way(self, topics: frozenset[str]) -> bool:
        """Whether an answer is waited for that is about one of these."""
        return any(not topics.isdisjoint(some) for some in self._open)

    def ends(self, topics: tuple[str, ...], *, lost: bool = False) -> None:
        """It is answered, or its broker is `lost`, which may still write it."""
        left = self._open.get(topics, 0) - 1
        if left > 0:
            self._open[topics] = left
        else:
            self._open.pop(topics, None)
        if lost:
            asyncio.get_running_loop().call_later(LATE_S, self._house.written, topics)
        else:
            self._house.written(topics)

    def blindly(self, place: Place, topics: Iterable[str]) -> None:
        """A request that is never answered goes out."""
        sent = self._unanswered.setdefault(place, set())
        new = set(topics) - sent
        sent |= new
        self._house.writes(new)

    def prove(self) -> None:
        """Asks behind requests that are never answered, where their topics wait."""
        for place, topics in self._unanswered.items():
            if place not in self._asked and any(map(self._house.seen.must_wait, topics)):
                self._asked.add(place)
                self._ask(place, partial(self._proven, place))

    def _proven(self, place: Place) -> None:
        """Brokers answer in order, so they have taken all of it."""
        self._asked.discard(place)
        self._house.written(self._unanswered.pop(place, set()))

    def close(self) -> None:
        """The client is gone. What it had under way may arrive for a while."""
        late = [topic for topics, count in self._open.items() for topic in topics * count]
        late += [topic for topics in self._unanswered.values() for topic in topics]
        self._open.clear()
        self._unanswered.clear()
        if late:
            asyncio.get_running_loop().call_later(LATE_S, self._house.written, late)
