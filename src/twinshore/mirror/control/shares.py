"""A throttle shared out among those that need it. Pure: what each spent, and whether it wanted more, in."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import NamedTuple, TypeVar

IDLE_PART = 0.005  # of the whole, for one that needs nothing now: with it the first bytes cross at once
IDLE_PART_ALL = 0.05  # and no more than this for all of them together
ROOM = 1.1

K = TypeVar("K", bound=Hashable)


class Use(NamedTuple):
    """What one fetched per second, and whether its bucket held it back."""

    bytes_s: float
    hungry: bool


IDLE = Use(0.0, hungry=False)


def shares(total: float, uses: Mapping[K, Use], weights: Mapping[K, float] | None = None) -> dict[K, float]:
    """Bytes per second for each; never more than `total` together. One that is not held back keeps a little more than
    it uses, those that are share the rest by their weights, which are 1 unless given."""
    if not uses:
        return {}
    weight = {one: (weights or {}).get(one, 1.0) for one in uses}
    whole = sum(weight.values())
    idle = total * min(IDLE_PART, IDLE_PART_ALL / len(uses))
    kept = {
        one: min(total * weight[one] / whole, use.bytes_s * ROOM + idle) for one, use in uses.items() if not use.hungry
    }
    takers = {one: weight[one] for one, use in uses.items() if use.hungry} or weight
    rest = (total - sum(kept.values())) / sum(takers.values())
    return {one: kept.get(one, 0.0) + rest * takers.get(one, 0.0) for one in uses}
