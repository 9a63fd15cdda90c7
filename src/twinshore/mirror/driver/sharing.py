"""Which lanes have a Spark task of their own, and which share a raft. Pure: what each carries in, where it belongs out.

While there are no more lanes than tasks, each has its own. Beyond that small lanes share rafts, and the busiest keep
a task of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import TypeVar

HEIRS_MAX = 2
TASKS_MORE = 4
TASKS_LEAST = 2  # one carries, and its heir stands by
# Rafts of lanes that belong together have numbers from here on.
FIRST_TOGETHER = 1000
RAFTS_TOGETHER_MAX = 64
# A lane that carries so many bytes a second is busy; one that is alone stays so until it carries a quarter of it.
BUSY_BYTES_S = 2e6
CALM = 0.25
# A lane weighs this much for being there, whatever it carries: quiet ones spread evenly.
LANE_BYTES_S = 1e5

LaneT = TypeVar("LaneT")


def tasks_for(cores: int, lanes: int, setting: int) -> int:
    """How many Spark tasks carry lanes at once, heirs counted: as set, or by the cores and by the lanes of a link."""
    return max(setting, TASKS_LEAST) if setting else max(cores, lanes) + TASKS_MORE


def shared(
    rates: Mapping[LaneT, float],
    now: Mapping[LaneT, int | None],
    tasks: int,
    apart: Set[LaneT] = frozenset(),
) -> dict[LaneT, int | None]:
    """For each lane the number of its raft; None: a task of its own. `rates`: bytes a second, of all lanes; `now`:
    where those belong that are carried already; `apart`: those that may share with no other. Whoever has a raft stays
    on it."""
    standing = max(1, tasks - HEIRS_MAX)
    if len(rates) <= standing:
        return dict.fromkeys(rates)
    rafts = (standing + 1) // 2
    room, apart = standing - rafts, apart & rates.keys()
    alone = _alone({lane: rate for lane, rate in rates.items() if lane not in apart}, now, max(0, room - len(apart)))
    # Those apart may take the place of an heir. Where they are too many, they share a raft among themselves.
    own = None if len(apart) <= max(1, room) else rafts
    found: dict[LaneT, int | None] = dict.fromkeys(alone) | dict.fromkeys(apart, own)
    load = [0.0] * rafts
    for lane in rates.keys() - found.keys():
        raft = now.get(lane)
        if raft is not None and raft < rafts:
            found[lane] = raft
            load[raft] += rates[lane] + LANE_BYTES_S
    for lane in sorted((one for one in rates if one not in found), key=lambda one: -rates[one]):
        raft = min(range(rafts), key=load.__getitem__)
        found[lane] = raft
        load[raft] += rates[lane] + LANE_BYTES_S
    return found


def _alone(rates: Mapping[LaneT, float], now: Mapping[LaneT, int | None], most: int) -> set[LaneT]:
    """The busiest, so many at most. Who is alone already gives way only to one that carries a good deal more."""

    def weight(lane: LaneT) -> float:
        return rates[lane] / CALM if now.get(lane, 0) is None else rates[lane]

    busy = [lane for lane in rates if weight(lane) >= BUSY_BYTES_S]
    return set(sorted(busy, key=weight, reverse=True)[:most])
