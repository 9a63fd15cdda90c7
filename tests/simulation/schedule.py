"""Virtual time: what happens next is drawn from one seed, so a run can be had again step by step."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable

EPOCH_MS = 1_800_000_000_000
Act = Callable[[], None]


class Schedule:
    """A queue of what is due. `say` is the step log; it costs nothing while nobody listens."""

    def __init__(self, seed: str, listener: Callable[[str], None] | None = None) -> None:
        self.chance = random.Random(seed)
        self.now_s = 1000.0
        self.steps = 0
        self._queue: list[tuple[float, int, Act]] = []
        self._entered = 0
        self._listener = listener

    @property
    def now_ms(self) -> int:
        """What a right wall clock shows."""
        return EPOCH_MS + int(self.now_s * 1000)

    def after(self, delay_s: float, act: Act) -> float:
        """Do this so much later; returns when that is."""
        at_s = self.now_s + max(0.0, delay_s)
        self._entered += 1
        heapq.heappush(self._queue, (at_s, self._entered, act))
        return at_s

    def lag(self, typical_s: float) -> float:
        """A delay as networks have them: mostly about `typical_s`, now and then ten times that."""
        delay_s = self.chance.expovariate(1.0 / typical_s)
        return delay_s * 10.0 if self.chance.random() < 0.03 else delay_s

    def odds(self, probability: float) -> bool:
        return self.chance.random() < probability

    def step(self) -> None:
        """Lets the next thing happen."""
        self.now_s, _, act = heapq.heappop(self._queue)
        self.steps += 1
        act()

    @property
    def listening(self) -> bool:
        return self._listener is not None

    def say(self, sentence: str) -> None:
        if self._listener is not None:
            self._listener(f"{self.steps:6d} {self.now_s - 1000.0:9.3f} s  {sentence}")


class Channel:
    """Messages from one peer to another arrive in order, each after a delay of its own."""

    def __init__(self, schedule: Schedule, typical_s: float) -> None:
        self._schedule = schedule
        self._typical_s = typical_s
        self._last_s = 0.0

    def send(self, act: Act, extra_s: float = 0.0) -> None:
        schedule = self._schedule
        at_s = max(self._last_s, schedule.now_s + schedule.lag(self._typical_s) + extra_s)
        self._last_s = schedule.after(at_s - schedule.now_s, act)
