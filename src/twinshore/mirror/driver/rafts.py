"""Keeps rafts afloat: each is carried by one Spark task after the other, as a lane is.

A raft's next task gets an heir for each of its lanes, some at a time; once the last pump has left the old one, it ends.
A lane in whose turn a task died or froze shares none for a while (`suspects`).
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from twinshore.mirror.core.desk_words import Afloat, Carry, Ended, Leave, RaftOrder, Turn
from twinshore.mirror.desk.desk_core import LaneKey
from twinshore.mirror.driver.desk import Desk
from twinshore.mirror.driver.desk_door import RaftPlace
from twinshore.mirror.driver.sharing import Suspects
from twinshore.mirror.lane.orders import TideOrder

ARRIVE_S_MAX = 30.0
# A raft that has said nothing for so long is frozen, and another takes its lanes. Were it shorter, they would all
# change over again and again on a busy machine, where a raft only comes late.
SILENT_S = 15.0
# Where the driver itself stood still for so long, as a stopped machine does, tasks fell silent for its sake.
STALL_S = 5.0
# A task that died may have said something that is still to be heard.
LAST_WORDS_S = 1.0
AGAIN_S_MAX = 5.0
# A tide of a raft is longer where more lanes have to change over: this many in the time of a lane's tide.
LANES_PER_TIDE = 25


@dataclass(slots=True)
class RaftTide:
    """One task that carries a raft. `heard_s`: when it last spoke, 0 before it first did. `missed`: the log says that
    it has fallen silent. `came`, `gone`: its line was there, and broke, which Spark may tell much later. `given_up`:
    Spark was asked to end it. `turn`: the berth whose turn it is, if it says so."""

    place: RaftPlace
    launched_s: float
    heard_s: float = 0.0
    leaving: bool = False
    missed: bool = False
    came: bool = False
    gone: bool = False
    given_up: bool = False
    turn: int = 0


class Rafts:
    """All calls come from one thread. `run(order, name)` is the Spark job, and `end(name)` ends one from outside;
    `over(berth, sentence, died)` hears how each pump ended."""

    def __init__(
        self,
        desk: Desk,
        tide_s: float,
        run: Callable[[str, str], str],
        heard: Callable[[str], None],
        over: Callable[[int, str, bool], None],
        end: Callable[[str], None],
    ) -> None:
        self._desk, self._tide_s, self._run, self._heard, self._over = desk, tide_s, run, heard, over
        self._end = end
        self.suspects = Suspects()
        self._tides: dict[RaftPlace, RaftTide] = {}
        self._berths: dict[int, RaftPlace] = {}
        self._lanes: dict[int, LaneKey] = {}
        self._next_tide = self._next_berth = 0
        self._failures: dict[int, tuple[int, float]] = {}
        self._turned_s = self._stalled_s = -math.inf
        # Which tasks are over, what ended them, and when.
        self._ends: list[tuple[RaftPlace, str, float]] = []
        self._lock = threading.Lock()

    # -- what lanes ask

    def serving(self, raft: int, now_s: float) -> RaftPlace | None:
        """The task that takes pumps for this raft now."""
        there = self._desk.rafts.there()
        able = [
            one.place
            for one in self._tides.values()
            if one.place.raft == raft
            and one.place in there
            and not (one.leaving or one.given_up)
            and now_s - one.heard_s < SILENT_S
        ]
        return max(able, key=lambda place: place.tide, default=None)

    def at(self, berth: int | None) -> RaftPlace | None:
        """Where the pump of this berth is."""
        return self._berths.get(-1 if berth is None else berth)

    def comes(self, berth: int) -> bool:
        """Whether the pump of this berth may still begin: its task is there and speaks."""
        one = self._tides.get(self._berths[berth]) if berth in self._berths else None
        return one is not None and not (one.missed or one.gone)

    def board(self, place: RaftPlace, order: TideOrder) -> int | None:
        """The pump's berth; None where the raft is gone."""
        self._next_berth += 1
        if not self._desk.rafts.say(place, Carry(self._next_berth, order)):
            return None
        self._berths[self._next_berth] = place
        self._lanes[self._next_berth] = order.link, order.lane
        return self._next_berth

    def __len__(self) -> int:
        return sum(1 for one in self._tides.values() if not one.given_up)

    def heirs(self) -> int:
        """How many tasks run beside an older one of their raft."""
        return sum(1 for one in self._tides.values() if self._succeeds(one))

    # -- what time brings

    def turn(self, wanted: Iterable[int], heirs_free: int, now_s: float) -> None:
        """Hears rafts, launches those that are wanted, lets go of those that nobody needs. `heirs_free`: how many tasks
        there may be more for rafts that have one."""
        self._forgive(now_s)
        self._hear(now_s)
        # First who is frozen: the next task is to know what became of this one.
        for one in self._tides.values():
            if one.heard_s and now_s - one.heard_s >= SILENT_S:
                self._miss(one, now_s)
            elif not (one.heard_s or one.given_up) and now_s - one.launched_s >= 2 * ARRIVE_S_MAX:
                one.given_up = True
                self._heard(f"{_name(one.place)}: not a word since it was launched: Spark is asked to end its task")
                self._end(_name(one.place))
        wanted = set(wanted)
        for raft in sorted(wanted):
            if self._due(raft, heirs_free > 0, now_s):
                heirs_free -= self.serving(raft, now_s) is not None
                self._launch(raft, now_s)
        used = set(self._berths.values())
        for one in self._tides.values():
            speaks = one.heard_s and not one.missed
            needed = one.place.raft in wanted and self.serving(one.place.raft, now_s) == one.place
            if speaks and not one.leaving and not needed and one.place not in used:
                one.leaving = self._desk.rafts.say(one.place, Leave())

    def _forgive(self, now_s: float) -> None:
        """Where this process was stopped, silence counts anew for its tasks, and nobody's turn is to blame."""
        if STALL_S <= now_s - self._turned_s < math.inf:
            self._stalled_s = now_s
            for one in self._tides.values():
                if one.heard_s:
                    one.heard_s = max(one.heard_s, now_s)
        self._turned_s = now_s

    def _miss(self, one: RaftTide, now_s: float) -> None:
        """It is frozen. Its lanes go elsewhere at once, and it itself some time later: it keeps a place of Spark's."""
        if not one.missed:
            one.missed = True
            lanes = len({self._lanes[berth] for berth, at in self._berths.items() if at == one.place})
            self._heard(f"{_name(one.place)}: frozen: not a word for {SILENT_S:.0f} s; {lanes} lanes move to another")
            self._suspect(one.place, one.turn, now_s)
        if not one.given_up and now_s - one.heard_s >= 2 * SILENT_S:
            one.given_up = True
            self._heard(f"{_name(one.place)}: still frozen: Spark is asked to end its task")
            self._end(_name(one.place))

    def _hear(self, now_s: float) -> None:
        there = self._desk.rafts.there()
        for place, word in self._desk.rafts.words():
            one = self._tides.get(place)
            match word:
                case Afloat() if one:
                    one.heard_s, one.missed = now_s, False
                case Turn(berth) if one:
                    one.turn = berth
                case Ended(berth, sentence, died):
                    if self._left(berth):
                        self._over(berth, sentence, died)
        for one in self._tides.values():
            one.came |= one.place in there
            if one.came and one.place not in there and not (one.gone or one.missed or one.leaving):
                one.gone = True  # the next task is to know what became of this one, whenever Spark tells
                self._suspect(one.place, one.turn, now_s)
        with self._lock:
            ends, self._ends = self._ends, []
        for end in ends:
            place, trouble, at_s = end
            if trouble and place in there and now_s - at_s < LAST_WORDS_S:
                with self._lock:
                    self._ends.append(end)
            else:
                self._ended(place, trouble, now_s, died=place not in there)

    def _succeeds(self, one: RaftTide) -> bool:
        """Whether an older task of its raft still runs; one that is frozen has left it already."""
        return any(
            two.place.raft == one.place.raft and two.place.tide < one.place.tide and not (two.missed or two.gone)
            for two in self._tides.values()
        )

    def _due(self, raft: int, heir_free: bool, now_s: float) -> bool:
        coming = [one for one in self._tides.values() if one.place.raft == raft and not one.heard_s]
        if any(now_s - one.launched_s < ARRIVE_S_MAX for one in coming):
            return False
        if now_s < self._failures.get(raft, (0, 0.0))[1]:
            return False
        place = self.serving(raft, now_s)
        if place is None:
            return True
        lanes = sum(1 for at in self._berths.values() if at == place)
        stagger = 1.0 + 0.3 * (0.37 * raft % 1.0)
        length_s = self._tide_s * stagger * max(1.0, lanes / LANES_PER_TIDE)
        return now_s - self._tides[place].launched_s >= length_s and heir_free

    # -- its tasks

    def _launch(self, raft: int, now_s: float) -> None:
        place = RaftPlace(raft, self._next_tide)
        self._next_tide += 1
        host, port = self._desk.reached_at()
        token = self._desk.rafts.token
        order = RaftOrder(place.raft, place.tide, host, port, token, self.suspects.tells(now_s))
        self._tides[place] = RaftTide(place, now_s)
        try:
            threading.Thread(target=self._ride, args=(place, order), name=_name(place), daemon=True).start()
        except Exception as error:
            self._ended(place, f"it cannot begin ({first_line(error)})", now_s, died=False)

    def _ride(self, place: RaftPlace, order: RaftOrder) -> None:
        trouble = ""
        try:
            sentence = self._run(order.to_json(), _name(place))
            trouble = "" if sentence == "finished" else sentence
        except Exception as error:
            # Whatever Spark raises: the task, the worker or the executor is gone; its lanes begin again elsewhere.
            trouble = f"its task died ({first_line(error)})"
        with self._lock:
            self._ends.append((place, trouble, time.monotonic()))

    def _ended(self, place: RaftPlace, trouble: str, now_s: float, *, died: bool) -> None:
        """`died`: its worker is gone too."""
        if (one := self._tides.pop(place, None)) and (one.missed or one.given_up):
            trouble = ""  # it has been told: it was frozen, or never spoke
        elif one and trouble and one.heard_s:
            self._suspect(place, one.turn if died and not one.gone else 0, now_s)
        # Where Spark lost sight of a task that runs on, its pumps give way to their heirs, and then it ends.
        self._desk.rafts.say(place, Leave())
        left = [berth for berth, at in self._berths.items() if at == place]
        times = self._failures.get(place.raft, (0, 0.0))[0] + 1 if trouble else 0
        self._failures[place.raft] = (times, now_s + min(AGAIN_S_MAX, 0.1 * 2**times) if trouble else 0.0)
        if trouble:
            self._heard(f"{_name(place)}: {trouble}; {len(left)} lanes begin again")
        for berth in left:
            self._left(berth)
            self._over(berth, "finished", False)

    def _left(self, berth: int) -> bool:
        """Whether its pump was anywhere."""
        self._lanes.pop(berth, None)
        return self._berths.pop(berth, None) is not None

    def _suspect(self, place: RaftPlace, turn: int, now_s: float) -> None:
        lane = self._lanes.get(turn) if now_s - self._stalled_s >= SILENT_S else None
        if self.suspects.ended(lane, now_s) and lane:
            self._heard(
                f"{lane[0]} lane {lane[1]}: {_name(place)} ended in its turn: it gets a task of its own, so that it "
                "takes no other link's lanes along"
            )


def _name(place: RaftPlace) -> str:
    return f"raft {place.raft} tide {place.tide}"


def first_line(error: Exception) -> str:
    """What went wrong, out of the page that Spark makes of it."""
    text = str(error).strip()
    for line in text.splitlines():
        if "Error" in line or "Exception" in line:
            return line.strip()[:200]
    return text.splitlines()[0][:200] if text else type(error).__name__
