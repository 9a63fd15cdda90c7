"""What is to be done again and again, and what of it may begin now. Pure: times and ends go in, tasks come out.

A task names the clusters that it asks. Any of these may be silent, and then the task takes all the time that its calls
have. So each cluster has a share of what may run at once, and tasks that took long have half of that share: however
many of them there are, the other half and the other clusters' shares are free.
"""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ConcurrencyLimits:
    """How many run at once: in all, and of those that ask one cluster. `slow_s`: from then on a run is a long one."""

    running: int = 48
    share: int = 24
    slow_s: float = 1.0

    def room_for(self, *, slow: bool) -> int:
        """How many of a cluster's, or of its long ones, may run."""
        return max(1, self.share // 2) if slow else self.share


@dataclass(slots=True, eq=False)
class QueuedTask:
    """One task. `began_s` while it runs; `woken` meanwhile: it is due again at its end. `runs`: how many have ended."""

    name: str
    asks: frozenset[str]
    due_s: float
    began_s: float | None = None
    slow: bool = False
    woken: bool = False
    gone: bool = False
    runs: int = 0
    number: int = field(default=0)

    def long(self, now_s: float, slow_s: float) -> bool:
        """Whether it counts as a long one."""
        return self.slow or (self.began_s is not None and now_s - self.began_s > slow_s)


class TaskQueue:
    """Not safe for several threads: whoever has them holds a lock."""

    def __init__(self, bounds: ConcurrencyLimits) -> None:
        self.bounds = bounds
        self.running: set[QueuedTask] = set()
        self._coming: list[tuple[float, int, QueuedTask]] = []
        # Those that are due, the oldest first, by what decides whether they may begin.
        self._ready: dict[tuple[frozenset[str], bool], deque[QueuedTask]] = {}
        self._number = 0

    def add(self, name: str, asks: Iterable[str], due_s: float) -> QueuedTask:
        """A task that runs for the first time at `due_s`."""
        entry = QueuedTask(name, frozenset(asks), due_s)
        self._plan(entry, due_s)
        return entry

    def drop(self, entry: QueuedTask) -> None:
        """It begins no more."""
        entry.gone = True
        waiting = self._ready.get((entry.asks, entry.slow))
        if waiting is not None and entry in waiting:
            waiting.remove(entry)

    def wake(self, entry: QueuedTask, now_s: float) -> None:
        """It is due now; where it runs, at its end."""
        if entry.began_s is not None:
            entry.woken = True
        elif not entry.gone and now_s < entry.due_s:
            self._plan(entry, now_s)

    def take(self, now_s: float) -> QueuedTask | None:
        """The task that begins now: of those that may, the one that is due for longest."""
        self._sort_out(now_s)
        if len(self.running) >= self.bounds.running:
            return None
        found = min((one for one in self._allowed(now_s)), key=lambda waiting: waiting[0].due_s, default=None)
        if found is None:
            return None
        entry = found.popleft()
        entry.began_s, entry.woken = now_s, False
        self.running.add(entry)
        return entry

    def done(self, entry: QueuedTask, now_s: float, pause_s: float, rest_s: float = 0.0) -> None:
        """Its run has ended; the next one is due after the pause, sooner where it was woken meanwhile."""
        assert entry.began_s is not None
        self.running.discard(entry)
        entry.slow = now_s - entry.began_s > self.bounds.slow_s
        entry.began_s = None
        entry.runs += 1
        if not entry.gone:
            self._plan(entry, now_s + (min(rest_s, pause_s) if entry.woken else pause_s))

    def next_s(self, now_s: float) -> float | None:
        """When the next task becomes due that is not due yet; None where there is none."""
        self._sort_out(now_s)
        return self._coming[0][0] if self._coming else None

    def late_s(self, now_s: float) -> float:
        """For how long the task has been due that waits for longest."""
        self._sort_out(now_s)
        return max((now_s - waiting[0].due_s for waiting in self._ready.values() if waiting), default=0.0)

    def _plan(self, entry: QueuedTask, due_s: float) -> None:
        self._number += 1
        entry.due_s, entry.number = due_s, self._number
        heapq.heappush(self._coming, (due_s, entry.number, entry))

    def _sort_out(self, now_s: float) -> None:
        """What is due is ready. An older plan of an entry counts no more."""
        while self._coming and (self._coming[0][0] <= now_s or self._stale(self._coming[0])):
            _, number, entry = heapq.heappop(self._coming)
            if not entry.gone and number == entry.number:
                self._ready.setdefault((entry.asks, entry.slow), deque()).append(entry)

    def _stale(self, planned: tuple[float, int, QueuedTask]) -> bool:
        return planned[2].gone or planned[1] != planned[2].number

    def _allowed(self, now_s: float) -> Iterable[deque[QueuedTask]]:
        busy: Counter[str] = Counter()
        long: Counter[str] = Counter()
        for one in self.running:
            busy.update(one.asks)
            if one.long(now_s, self.bounds.slow_s):
                long.update(one.asks)
        for (asks, slow), waiting in list(self._ready.items()):
            if not waiting:
                del self._ready[asks, slow]
            elif all(busy[name] < self.bounds.share for name in asks) and not (
                slow and any(long[name] >= self.bounds.room_for(slow=True) for name in asks)
            ):
                yield waiting
