"""Which lanes may share a task with others no more, since such tasks die or freeze in their turns. Pure.

A task that ends unasked says not why. So after the first one each raft says before each turn whose it is, and whose
turn was the last word of the next one that dies or freezes is put apart. It comes back once its pumps have carried it
for some time, each time a longer one.
"""

from __future__ import annotations

from dataclasses import dataclass

LaneKey = tuple[str, int]
# So long after such an end rafts say whose turn it is: each turn costs raft and driver some microseconds more.
DOUBT_S = 3600.0
# So long a lane has to be carried without a break before it shares a task again; twice as long the next time.
INNOCENT_S = 600.0
DOUBLINGS_MAX = 8


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
