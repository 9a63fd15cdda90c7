"""A throttle shared out among the lanes that need it. Pure: what each lane spent, and whether it wanted more, in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

IDLE_PART = 0.005  # of the whole, for a lane that needs nothing now: with it the first bytes cross at once
ROOM = 1.5


class Use(NamedTuple):
    """What a lane fetched per second, and whether its bucket held it back."""

    bytes_s: float
    hungry: bool


def shares(total: float, lanes: Mapping[int, Use]) -> dict[int, float]:
    """Bytes per second for each lane; never more than `total` together. A lane that is not held back keeps a little
    more than it uses, those that are share the rest."""
    if not lanes:
        return {}
    fair = total / len(lanes)
    kept = {lane: min(fair, use.bytes_s * ROOM + total * IDLE_PART) for lane, use in lanes.items() if not use.hungry}
    takers = [lane for lane, use in lanes.items() if use.hungry] or list(lanes)
    rest = (total - sum(kept.values())) / len(takers)
    return {lane: kept.get(lane, 0.0) + (rest if lane in takers else 0.0) for lane in lanes}
