"""Keeps rafts afloat: each is carried by one Spark task after the other, as a lane is.

A raft's next task gets an heir for each of its lanes, some at a time; once the last pump has left the old one, it ends.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from twinshore.mirror.driver.desk import Desk
from twinshore.mirror.driver.desk_door import RaftPlace
from twinshore.mirror.lane.orders import TideOrder
from twinshore.mirror.lane.raft_words import Afloat, Carry, Leave, RaftOrder

ARRIVE_S_MAX = 30.0
# A raft that has said nothing for so long is frozen, and another takes its lanes. Were it shorter, they would all
# change over again and again on a busy machine, where a raft only comes late.
SILENT_S = 15.0
AGAIN_S_MAX = 5.0
# A tide of a raft is longer where more lanes have to change over: this many in the time of a lane's tide.
LANES_PER_TIDE = 25


@dataclass(slots=True)
class RaftTide:
    """One task that carries a raft. `heard_s`: when it last spoke, 0 before it first did. `missed`: the log says that
    it has fallen silent."""

    place: RaftPlace
    launched_s: float
    heard_s: float = 0.0
    leaving: bool = False
    missed: bool = False


class Rafts:
    """All calls come from one thread. `run(order, name)` is the Spark job; `over(berth, sentence, died)` hears
    how each pump ended."""

    def __init__(
        self,
        desk: Desk,
        tide_s: float,
        run: Callable[[str, str], str],
        heard: Callable[[str], None],
        over: Callable[[int, str, bool], None],
    ) -> None:
        self._desk, self._tide_s, self._run, self._heard, self._over = desk, tide_s, run, heard, over
        self._tides: dict[RaftPlace, RaftTide] = {}
        self._berths: dict[int, RaftPlace] = {}
        self._next_tide = self._next_berth = 0
        self._failures: dict[int, tuple[int, float]] = {}
        self._ends: list[tuple[RaftPlace, str]] = []
        self._lock = threading.Lock()

    # -- what lanes ask

    def serving(self, raft: int, now_s: float) -> RaftPlace | None:
        """The task that takes pumps for this raft now."""
        there = self._desk.rafts.there()
        able = [
            one.place
            for one in self._tides.values()
            if one.place.raft == raft and one.place in there and not one.leaving and now_s - one.heard_s < SILENT_S
        ]
        return max(able, key=lambda place: place.tide, default=None)

    def at(self, berth: int | None) -> RaftPlace | None:
        """Where the pump of this berth is."""
        return self._berths.get(-1 if berth is None else berth)

    def board(self, place: RaftPlace, order: TideOrder) -> int | None:
        """The pump's berth; None where the raft is gone."""
        self._next_berth += 1
        if not self._desk.rafts.say(place, Carry(self._next_berth, order)):
            return None
        self._berths[self._next_berth] = place
        return self._next_berth

    def __len__(self) -> int:
        return len(self._tides)

    def heirs(self) -> int:
        """How many tasks run beside an older one of their raft."""
        return sum(1 for one in self._tides.values() if self._succeeds(one))

    # -- what time brings

    def turn(self, wanted: Iterable[int], heirs_free: int, now_s: float) -> None:
        """Hears rafts, launches those that are wanted, lets go of those that nobody needs. `heirs_free`: how many tasks
        there may be more for rafts that have one."""
        self._hear(now_s)
        wanted = set(wanted)
        for raft in sorted(wanted):
            if self._due(raft, heirs_free > 0, now_s):
                heirs_free -= self.serving(raft, now_s) is not None
                self._launch(raft, now_s)
        used = set(self._berths.values())
        for one in self._tides.values():
            speaks = one.heard_s and now_s - one.heard_s < SILENT_S
            needed = one.place.raft in wanted and self.serving(one.place.raft, now_s) == one.place
            if speaks and not one.leaving and not needed and one.place not in used:
                one.leaving = self._desk.rafts.say(one.place, Leave())
            if one.heard_s and not (speaks or one.leaving or one.missed):
                one.missed = True
                lanes = sum(1 for at in self._berths.values() if at == one.place)
                self._heard(
                    f"{_name(one.place)}: frozen: not a word for {SILENT_S:.0f} s; {lanes} lanes move to another"
                )

    def _hear(self, now_s: float) -> None:
        for place, word in self._desk.rafts.words():
            if isinstance(word, Afloat):
                if one := self._tides.get(place):
                    one.heard_s, one.missed = now_s, False
            elif self._berths.pop(word.berth, None):
                self._over(word.berth, word.sentence, word.died)
        with self._lock:
            ends, self._ends = self._ends, []
        for place, trouble in ends:
            self._ended(place, trouble, now_s)

    def _succeeds(self, one: RaftTide) -> bool:
        """Whether an older task of its raft still runs."""
        return any(two.place.raft == one.place.raft and two.place.tide < one.place.tide for two in self._tides.values())

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
        order = RaftOrder(place.raft, place.tide, desk_host=host, desk_port=port, desk_token=token)
        self._tides[place] = RaftTide(place, now_s)
        try:
            threading.Thread(target=self._ride, args=(place, order), name=_name(place), daemon=True).start()
        except Exception as error:
            self._ended(place, f"it cannot begin ({first_line(error)})", now_s)

    def _ride(self, place: RaftPlace, order: RaftOrder) -> None:
        trouble = ""
        try:
            sentence = self._run(order.to_json(), _name(place))
            trouble = "" if sentence == "finished" else sentence
        except Exception as error:
            # Whatever Spark raises: the task, the worker or the executor is gone; its lanes begin again elsewhere.
            trouble = f"its task died ({first_line(error)})"
        with self._lock:
            self._ends.append((place, trouble))

    def _ended(self, place: RaftPlace, trouble: str, now_s: float) -> None:
        self._tides.pop(place, None)
        # Where Spark lost sight of a task that runs on, its pumps give way to their heirs, and then it ends.
        self._desk.rafts.say(place, Leave())
        left = [berth for berth, at in self._berths.items() if at == place]
        times = self._failures.get(place.raft, (0, 0.0))[0] + 1 if trouble else 0
        self._failures[place.raft] = (times, now_s + min(AGAIN_S_MAX, 0.1 * 2**times) if trouble else 0.0)
        if trouble:
            self._heard(f"{_name(place)}: {trouble}; {len(left)} lanes begin again")
        for berth in left:
            del self._berths[berth]
            self._over(berth, "finished", False)


def _name(place: RaftPlace) -> str:
    return f"raft {place.raft} tide {place.tide}"


def first_line(error: Exception) -> str:
    """What went wrong, out of the page that Spark makes of it."""
    text = str(error).strip()
    for line in text.splitlines():
        if "Error" in line or "Exception" in line:
            return line.strip()[:200]
    return text.splitlines()[0][:200] if text else type(error).__name__
