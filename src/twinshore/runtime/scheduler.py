"""Threads of a process: supervised ones that restart after failures, and one pool for all recurring work.

A task is a function that returns the seconds until the next run, and never runs twice at once. /health shows exceptions
of a task, which runs again a moment later. Time is monotonic, and missed runs are not made up for.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Generic, TypeVar

from twinshore.config.repeat_filter import describe_error
from twinshore.runtime.task_queue import ConcurrencyLimits, QueuedTask, TaskQueue

log = logging.getLogger(__name__)

T = TypeVar("T")
RESTART_DELAY_S = 1.0
FAILURE_SHOWN_S = 60.0


class ThreadFailures:
    """Errors that ended threads of this process. Repetitions are logged once."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last: dict[str, tuple[float, str]] = {}

    def note(self, name: str, error: BaseException) -> None:
        why = describe_error(error) if isinstance(error, Exception) else type(error).__name__
        sentence = f"the thread {name!r} ended unasked: {why}"
        news = self._last.get(name, (0.0, ""))[1] != sentence
        self._last[name] = self._clock(), sentence
        if news:
            log.error(sentence)

    def says(self) -> str:
        """Returns the last failure of the past minute, or nothing."""
        recent = [one for one in list(self._last.values()) if self._clock() - one[0] < FAILURE_SHOWN_S]
        return max(recent)[1] if recent else ""

    def hear(self, ended: threading.ExceptHookArgs) -> None:
        """For `threading.excepthook`: failures of unsupervised threads."""
        if ended.exc_value is not None and not issubclass(ended.exc_type, SystemExit):
            self.note(ended.thread.name if ended.thread else "unknown", ended.exc_value)


thread_failures = ThreadFailures()


def supervise(work: Callable[[], None], name: str, *, again_s: float = RESTART_DELAY_S) -> threading.Thread:
    """Starts a thread that runs `work`, again after each exception, until `work` returns."""

    def run() -> None:
        while True:
            try:
                return work()
            except Exception as error:
                thread_failures.note(name, error)
                time.sleep(again_s)

    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    return thread


class DaemonExecutor(Generic[T]):
    """One daemon thread that runs work in order, for one owner. The process may end and lose unfinished work."""

    def __init__(self, name: str) -> None:
        self._works: SimpleQueue[tuple[Callable[[], T], Future[T]] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def submit(self, work: Callable[[], T]) -> Future[T]:
        done: Future[T] = Future()
        if self._thread.ident is None:
            self._thread.start()
        self._works.put((work, done))
        return done

    def close(self) -> None:
        """Ends the thread after the queued work, without waiting."""
        self._works.put(None)

    def _run(self) -> None:
        while (given := self._works.get()) is not None:
            work, done = given
            try:
                done.set_result(work())
            except BaseException as error:
                done.set_exception(error)


UNTIL_WOKEN = float("inf")
CLOSE_TIMEOUT_S = 15.0
WAIT_S_MAX = 60.0


class ScheduledTask:
    def __init__(
        self, scheduler: Scheduler, task: QueuedTask, work: Callable[[], float], rest_s: float, last: Callable[[], None]
    ) -> None:
        self._scheduler, self.task, self.work, self.rest_s, self.last = scheduler, task, work, rest_s, last

    def wake(self) -> None:
        """Makes the task run at once; again after a run in progress."""
        with self._scheduler.changed:
            self._scheduler.queue.wake(self.task, time.monotonic())
            self._scheduler.changed.notify_all()

    def ended(self, within_s: float) -> bool:
        """Waits, and returns whether a run has ended."""
        with self._scheduler.run_ended:
            return self._scheduler.run_ended.wait_for(lambda: self.task.runs > 0, within_s)

    def close(self, within_s: float | None = CLOSE_TIMEOUT_S) -> bool:
        """Prevents further runs, and waits for the current one (None: without limit). Returns whether it has ended."""
        return self._scheduler.end(self, within_s)


class Scheduler:
    """Thread-safe. Starts threads as tasks come, up to the bounds."""

    def __init__(self, bounds: ConcurrencyLimits | None = None) -> None:
        self.queue = TaskQueue(bounds or ConcurrencyLimits())
        self._tasks: dict[QueuedTask, ScheduledTask] = {}
        lock = threading.Lock()
        self.changed, self.run_ended = threading.Condition(lock), threading.Condition(lock)
        self._doers: dict[QueuedTask, int] = {}
        self._threads = 0
        # When the thread wakes that waits for the next task: the others wait to be told.
        self._watched_until_s = UNTIL_WOKEN

    def every(
        self,
        name: str,
        work: Callable[[], float],
        *,
        asks: Iterable[str] = (),
        first_s: float = 0.0,
        rest_s: float = 0.0,
        last: Callable[[], None] = lambda: None,
    ) -> ScheduledTask:
        """Runs `work` in `first_s` seconds, and after each pause that `work` returns. `asks`: clusters that it may wait
        for. `rest_s`: the pause if woken during a run. `last` is called after the last run, once closed.
        """
        with self.changed:
            task = ScheduledTask(self, self.queue.add(name, asks, time.monotonic() + first_s), work, rest_s, last)
            self._tasks[task.task] = task
            if self._threads < min(self.queue.bounds.running, len(self._tasks)):
                self._begin_thread()
            self.changed.notify_all()
        return task

    def once(self, name: str, work: Callable[[], None], *, asks: Iterable[str] = ()) -> ScheduledTask:
        """Runs `work` once, as soon as possible."""

        def run() -> float:
            work()
            return UNTIL_WOKEN

        return self.every(name, run, asks=asks)

    def names(self) -> list[str]:
        with self.changed:
            return sorted(task.name for task in self._tasks.keys() | self.queue.running)

    def end(self, task: ScheduledTask, within_s: float | None) -> bool:
        with self.run_ended:
            if self._tasks.pop(task.task, None) is None:
                return self.run_ended.wait_for(lambda: task.task.began_s is None, within_s)
            self.queue.drop(task.task)
            if task.task.began_s is not None:
                itself = self._doers.get(task.task) == threading.get_ident()
                return itself or self.run_ended.wait_for(lambda: task.task.began_s is None, within_s)
        task.last()
        return True

    def _begin_thread(self) -> None:
        thread = threading.Thread(target=self._serve, name=f"task {self._threads}", daemon=True)
        try:
            thread.start()
        except (RuntimeError, MemoryError):
            if not self._threads:
                raise
            return  # The machine has no thread left for now: those that there are take turns.
        self._threads += 1

    def _serve(self) -> None:
        while True:
            task = self._next()
            pause_s = self._do(task.task.name, task.work)
            with self.changed:
                self._doers.pop(task.task, None)
                pause_s = RESTART_DELAY_S if pause_s is None else pause_s
                self.queue.done(task.task, time.monotonic(), pause_s, task.rest_s)
                ended = task.task.gone
                self.run_ended.notify_all()
            if ended:
                self._do(task.task.name, task.last)

    def _do(self, name: str, work: Callable[[], float | None]) -> float | None:
        try:
            return work()
        except BaseException as error:
            thread_failures.note(name, error)
            return RESTART_DELAY_S

    def _next(self) -> ScheduledTask:
        with self.changed:
            while True:
                now_s = time.monotonic()
                task = self.queue.take(now_s)
                if task is not None:
                    self._doers[task] = threading.get_ident()
                    self.changed.notify()  # There may be more.
                    return self._tasks[task]
                due_s = self.queue.next_s(now_s)
                if due_s is None or self._watched_until_s <= due_s:
                    self.changed.wait()
                    continue
                self._watched_until_s = due_s
                self.changed.wait(min(WAIT_S_MAX, max(0.0, due_s - now_s)))
                if self._watched_until_s == due_s:
                    self._watched_until_s = UNTIL_WOKEN


# For all work of this process.
process_scheduler = Scheduler()
