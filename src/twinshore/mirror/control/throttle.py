"""Keeps a link's pumps told of their bounds, shares of throttles and weights: anew twice a second, and at once when an
operator changed something."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from twinshore.fleet.control import PRIORITY_DEFAULT, Control
from twinshore.mirror.control.shares import IDLE, Use, shares
from twinshore.mirror.driver.desk import Desk

EVERY_S = 0.5
WORTH_TELLING = 0.02
# A topic that uses so much of its own throttle cannot use more of the link's.
AT_ITS_OWN = 0.8
Used = Mapping[int, Mapping[str, list[float]]]
Bounds = dict[str, Any]


class Throttle:
    """One link's. `turn` is called often and tells only what changed."""

    def __init__(self, name: str, desk: Desk) -> None:
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


def bounds_of(control: Control, placed: Mapping[int, Iterable[str]], used: Used) -> dict[int, Bounds]:
    """Each lane's bounds: `placed` says which topics are on it, `used` what it said it used of the last ones."""
    topics = sorted({topic for ours in placed.values() for topic in ours})
    own: dict[tuple[int, str], float] = {}
    for topic in topics:
        rate = control.throttle_of(topic)
        if rate:
            at = {lane: _use(used, lane, topic) for lane, ours in placed.items() if topic in ours}
            own |= {(lane, topic): share for lane, share in shares(rate, at).items()}
    weights = {topic: control.priority_of(topic) for topic in topics} if control.priorities else {}
    if all(weight == PRIORITY_DEFAULT for weight in weights.values()):
        weights = {}
    link = dict.fromkeys(placed, 0.0)
    by_topic = dict(own)
    if control.throttle_bytes_s and weights:
        parts = _weighed(control.throttle_bytes_s, weights, placed, used, own)
        by_topic = {place: min(share, own.get(place, share)) for place, share in parts.items()}
        for (lane, _), share in parts.items():
            link[lane] += share
    elif control.throttle_bytes_s:
        link = shares(control.throttle_bytes_s, {lane: _use(used, lane, "") for lane in placed})
    told: dict[int, dict[str, float]] = defaultdict(dict)
    for (lane, topic), share in by_topic.items():
        told[lane][topic] = round(share, 1)
    differing = {topic: weight for topic, weight in weights.items() if weight != PRIORITY_DEFAULT}
    return {
        lane: {"link": round(link[lane], 1), "topics": told[lane], "weights": _of(differing, ours)}
        for lane, ours in placed.items()
    }


def _weighed(
    total: float,
    weights: Mapping[str, int],
    placed: Mapping[int, Iterable[str]],
    used: Used,
    own: Mapping[tuple[int, str], float],
) -> dict[tuple[int, str], float]:
    """A weight is a topic's, on however many lanes it lies: first the topic's share, then its lanes' parts of that."""
    places: dict[str, dict[int, Use]] = defaultdict(dict)
    for lane, ours in placed.items():
        for topic in ours:
            places[topic][lane] = _within(used, lane, topic, own)
    whole = {
        topic: Use(sum(use.bytes_s for use in at.values()), any(use.hungry for use in at.values()))
        for topic, at in places.items()
    }
    each = shares(total, whole, {topic: float(weights[topic]) for topic in whole})
    return {(lane, topic): share for topic, at in places.items() for lane, share in shares(each[topic], at).items()}


def _of(weights: Mapping[str, int], topics: Iterable[str]) -> dict[str, int]:
    return {topic: weights[topic] for topic in topics if topic in weights}


def _use(used: Used, lane: int, name: str) -> Use:
    said = used.get(lane, {}).get(name)
    return Use(said[0], bool(said[1])) if said else IDLE


def _within(used: Used, lane: int, topic: str, own: Mapping[tuple[int, str], float]) -> Use:
    """Held back by its own throttle, a topic takes no more of the link's than that."""
    use, bound = _use(used, lane, topic), own.get((lane, topic), 0.0)
    return use._replace(hungry=False) if bound and use.bytes_s >= AT_ITS_OWN * bound else use


def _alike(told: Bounds | None, bounds: Bounds) -> bool:
    if told is None:
        return not (bounds["link"] or bounds["topics"] or bounds["weights"])
    if told["weights"] != bounds["weights"] or told["topics"].keys() != bounds["topics"].keys():
        return False
    pairs = [(told["link"], bounds["link"]), *((told["topics"][name], rate) for name, rate in bounds["topics"].items())]
    return all(abs(new - old) <= WORTH_TELLING * max(old, 1.0) and (new > 0) == (old > 0) for old, new in pairs)
