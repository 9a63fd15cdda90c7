"""Which lanes have a Spark task of their own, and which share a raft. Pure: what each carries in, where it belongs out.

While there are no more lanes than tasks, each has its own. Beyond that small lanes share rafts, and the busiest keep
a task of their own.

`Suspects` are lanes that may share a task with others no more, since such tasks die or freeze in their turns. A task
that ends unasked says not why. So after the first one each raft says before each turn whose it is, and whose turn was
the last word of the next one that dies or freezes is put apart. It comes back once its pumps have carried it for some
time, each time a longer one.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import TypeVar

LaneKey = tuple[str, int]
# So long after such an end rafts say whose turn it is: each turn costs raft and driver some microseconds more.
DOUBT_S = 3600.0
# So long a lane has to be carried without a break before it shares a task again; twice as long the next time.
INNOCENT_S = 600.0
DOUBLINGS_MAX = 8
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


@dataclass(slots=True)
class Suspect:
    """`times`: how often it was put apart. `since_s`: since when nothing has spoken against it."""

    times: int
    since_s: float
    apart: bool = True


class Suspects:
    """`apart` may be read by any thread."""

    def __init__(self) -> None:
        self.apart: frozenset[LaneKey] = frozenset()
        self._suspects: dict[LaneKey, Suspect] = {}
        self._doubt_until_s = 0.0

    def tells(self, now_s: float) -> bool:
        """Whether a task that begins now is to say whose turn it is."""
        return now_s < self._doubt_until_s

    def ended(self, turn: LaneKey | None, now_s: float) -> bool:
        """A task of a raft has died or frozen. `turn`: the lane whose turn it was, as far as it has said so. Whether
        that lane is put apart now."""
        self._doubt_until_s = now_s + DOUBT_S
        if turn is None or turn in self.apart:
            return False
        before = self._suspects.get(turn)
        self._suspects[turn] = Suspect(before.times + 1 if before else 1, now_s)
        self._settle()
        return True

    def turn(self, unmanned: frozenset[LaneKey], now_s: float) -> frozenset[LaneKey]:
        """Lanes that may share a task again. `unmanned`: those that nobody carries now."""
        for lane in self.apart & unmanned:
            self._suspects[lane].since_s = now_s
        free = frozenset(lane for lane in self.apart if now_s >= self._innocent_at_s(lane))
        for lane in free:
            self._suspects[lane].apart = False
        if free:
            self._settle()
        return free

    def _innocent_at_s(self, lane: LaneKey) -> float:
        one = self._suspects[lane]
        return one.since_s + INNOCENT_S * 2.0 ** min(one.times - 1, DOUBLINGS_MAX)

    def _settle(self) -> None:
        self.apart = frozenset(lane for lane, one in self._suspects.items() if one.apart)


def tasks_for(cores: int, lanes: int, setting: int) -> int:
    """How many Spark tasks carry lanes at once, heirs counted: as set, or by the cores and by the lanes of a link."""
    return max(setting, TASKS_LEAST) if setting else max(cores, lanes) + TASKS_MORE


def shared(
    rates: Mapping[LaneT, float],
    now: Mapping[LaneT, int | None],
    tasks: int,
    apart: Set[LaneT] = frozenset(),
) -> dict[LaneT, int | None]:
    """For each lane the number of its raft; None: a separate task. `rates`: bytes a second, of all lanes; `now`:
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
