"""Keeps a link's pumps told of their bounds: shares of throttles, anew twice a second, and weights."""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import Any

from twinshore.fleet import Link
from twinshore.fleet.control import PRIORITY_DEFAULT
from twinshore.mirror.control.shares import Use, shares
from twinshore.mirror.desk import Desk

EVERY_S = 0.5
WORTH_TELLING = 0.02


class Throttle:
    """One link's. `turn` is called often and tells only what changed."""

    def __init__(self, name: str, desk: Desk) -> None:
        self._name, self._desk = name, desk
        self._turned_at_s = 0.0
        self._told: dict[int, dict[str, Any]] = {}

    def turn(self, link: Link, topics: Collection[str], lanes: int) -> None:
        """What holds for these topics now, on so many lanes."""
        now_s = time.monotonic()
        took_s = now_s - self._turned_at_s
        if took_s < EVERY_S:
            return
        self._turned_at_s = now_s
        control = link.control
        rates = {topic: control.throttle_of(topic) for topic in topics}
        rates = {topic: rate for topic, rate in rates.items() if rate}
        weights = {topic: control.priority_of(topic) for topic in topics} if control.priorities else {}
        weights = {topic: weight for topic, weight in weights.items() if weight != PRIORITY_DEFAULT}
        if not (control.throttle_bytes_s or rates or weights or self._told):
            return
        used = self._desk.used(self._name)
        by_lane = {
            name: shares(rate, {lane: _use(used.get(lane, {}).get(name), took_s) for lane in range(lanes)})
            for name, rate in {"": control.throttle_bytes_s, **rates}.items()
        }
        for lane in range(lanes):
            ours = {name: round(share[lane], 1) for name, share in by_lane.items()}
            self._tell(lane, {"link": ours.pop(""), "topics": ours, "weights": weights})

    def forget(self) -> None:
        """The lanes are new: they know nothing yet."""
        self._told.clear()

    def _tell(self, lane: int, bounds: dict[str, Any]) -> None:
        if not _alike(self._told.get(lane), bounds):
            self._told[lane] = bounds
            self._desk.bound((self._name, lane), bounds)


def _use(reported: list[float] | None, took_s: float) -> Use:
    return Use(reported[0] / took_s, bool(reported[1])) if reported else Use(0.0, hungry=False)


def _alike(told: dict[str, Any] | None, bounds: dict[str, Any]) -> bool:
    if told is None:
        return not (bounds["link"] or bounds["topics"] or bounds["weights"])
    if told["weights"] != bounds["weights"] or told["topics"].keys() != bounds["topics"].keys():
        return False
    pairs = [(told["link"], bounds["link"]), *((told["topics"][name], rate) for name, rate in bounds["topics"].items())]
    return all(abs(new - old) <= WORTH_TELLING * max(old, 1.0) for old, new in pairs)
