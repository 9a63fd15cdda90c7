"""Keeps a link's pumps told of their bounds, shares of throttles and weights: anew twice a second, and at once when an
operator changed something."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Protocol

from twinshore.fleet import NamedPartition
from twinshore.fleet.control import Control
from twinshore.mirror.control.shares import Used, bounds_of
from twinshore.mirror.core.desk_words import Bounds

EVERY_S = 0.5
WORTH_TELLING = 0.02


class BoundedLanes(Protocol):
    """What it needs of the desk."""

    def placed(self, link: str) -> Mapping[NamedPartition, int]: ...

    def used(self, link: str) -> Used: ...

    def bound(self, key: tuple[str, int], bounds: Bounds) -> None: ...


class BoundsTeller:
    """One link's. `turn` is called often and tells only what changed."""

    def __init__(self, name: str, desk: BoundedLanes) -> None:
        self._name, self._desk = name, desk
        self._turned_at_s = 0.0
        self._held = Control()
        self._told: dict[int, Bounds] = {}

    def turn(self, control: Control, lanes: int) -> None:
        """What holds now, on so many lanes."""
        if control == self._held and time.monotonic() - self._turned_at_s < EVERY_S:
            return
        self._held, self._turned_at_s = control, time.monotonic()
        if not (control.throttle_bytes_s or control.topic_throttles or control.priorities or self._told):
            return
        placed: dict[int, set[str]] = {lane: set() for lane in range(lanes)}
        for named, lane in self._desk.placed(self._name).items():
            placed[lane].add(named.topic)
        for lane, bounds in bounds_of(control, placed, self._desk.used(self._name)).items():
            if not _alike(self._told.get(lane), bounds):
                self._told[lane] = bounds
                self._desk.bound((self._name, lane), bounds)

    def forget(self) -> None:
        """The lanes are new: they know nothing yet."""
        self._told.clear()


def _alike(told: Bounds | None, bounds: Bounds) -> bool:
    if told is None:
        return not (bounds.link or bounds.topics or bounds.weights)
    if told.weights != bounds.weights or told.topics.keys() != bounds.topics.keys():
        return False
    pairs = [(told.link, bounds.link), *((told.topics[name], rate) for name, rate in bounds.topics.items())]
    return all(abs(new - old) <= WORTH_TELLING * max(old, 1.0) and (new > 0) == (old > 0) for old, new in pairs)
