"""Decides which recurring tasks may start now: times and results in, tasks out.

A task names the clusters that it asks. A silent cluster makes each call take its full timeout. So each cluster has a
share of the concurrent runs, and slow tasks have half of that: the rest stays free for others.
"""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ConcurrencyLimits:
    """Limits of concurrent runs: `running` in all, `share` for each cluster. `slow_s`: longer runs count as slow."""

    running: int = 48
    share: int = 24
    slow_s: float = 1.0


@dataclass(slots=True, eq=False)
class QueuedTask:
    """One task. `began_s`: set during a run. `woken` during a run: due again at the end. `runs`: how many ended."""

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
        return self.slow or (self.began_s is not None and now_s - self.began_s > slow_s)


class TaskQueue:
    """Not thread-safe: callers hold a lock."""

    def __init__(self, bounds: ConcurrencyLimits) -> None:
        self.bounds = bounds
        self.running: set[QueuedTask] = set()
        self._coming: list[tuple[float, int, QueuedTask]] = []
        # Those that are due, the oldest first, by what decides whether they may begin.
        self._ready: dict[tuple[frozenset[str], bool], deque[QueuedTask]] = {}
        self._number = 0

    def add(self, name: str, asks: Iterable[str], due_s: float) -> QueuedTask:
        task = QueuedTask(name, frozenset(asks), due_s)
        self._plan(task, due_s)
        return task

    def drop(self, task: QueuedTask) -> None:
        task.gone = True
        waiting = self._ready.get((task.asks, task.slow))
        if waiting is not None and task in waiting:
            waiting.remove(task)

    def wake(self, task: QueuedTask, now_s: float) -> None:
        """Makes the task due now; during a run, at the end."""
        if task.began_s is not None:
            task.woken = True
        elif not task.gone and now_s < task.due_s:
            self._plan(task, now_s)

    def take(self, now_s: float) -> QueuedTask | None:
        """Starts and returns the allowed task that has been due longest."""
        self._sort_out(now_s)
        if len(self.running) >= self.bounds.running:
            return None
        found = min((one for one in self._allowed(now_s)), key=lambda waiting: waiting[0].due_s, default=None)
        if found is None:
            return None
        task = found.popleft()
        task.began_s, task.woken = now_s, False
        self.running.add(task)
        return task

    def done(self, task: QueuedTask, now_s: float, pause_s: float, rest_s: float = 0.0) -> None:
        """Ends a run. The next is due after `pause_s`; if woken, after `rest_s` if shorter."""
        assert task.began_s is not None
        self.running.discard(task)
        task.slow = now_s - task.began_s > self.bounds.slow_s
        task.began_s = None
        task.runs += 1
        if not task.gone:
            self._plan(task, now_s + (min(rest_s, pause_s) if task.woken else pause_s))

    def next_s(self, now_s: float) -> float | None:
        """When the next task becomes due; None without one."""
        self._sort_out(now_s)
        return self._coming[0][0] if self._coming else None

    def _plan(self, task: QueuedTask, due_s: float) -> None:
        self._number += 1
        task.due_s, task.number = due_s, self._number
        heapq.heappush(self._coming, (due_s, task.number, task))

    def _sort_out(self, now_s: float) -> None:
        while self._coming and (self._coming[0][0] <= now_s or self._stale(self._coming[0])):
            _, number, task = heapq.heappop(self._coming)
            if not task.gone and number == task.number:
                self._ready.setdefault((task.asks, task.slow), deque()).append(task)

    def _stale(self, planned: tuple[float, int, QueuedTask]) -> bool:
        return planned[2].gone or planned[1] != planned[2].number

    def _allowed(self, now_s: float) -> Iterable[deque[QueuedTask]]:
        busy: Counter[str] = Counter()
        long: Counter[str] = Counter()
        long_max = max(1, self.bounds.share // 2)
        for task in self.running:
            busy.update(task.asks)
            if task.long(now_s, self.bounds.slow_s):
                long.update(task.asks)
        for (asks, slow), waiting in list(self._ready.items()):
            if not waiting:
                del self._ready[asks, slow]
            elif all(busy[name] < self.bounds.share for name in asks) and not (
                slow and any(long[name] >= long_max for name in asks)
            ):
                yield waiting
