"""Threads of a process: those that must go on, where what ends one unasked begins it again, and /health says so for a
while; and one that keeps nobody waiting."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Generic, TypeVar

from twinshore.fleet.once import in_words

T = TypeVar("T")
AGAIN_S = 1.0
TOLD_S = 60.0


class Failures:
    """What ended threads of this process unasked. `log` gets each sentence once in a row."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.log: Callable[[str], None] = lambda _: None
        self._clock = clock
        self._last: dict[str, tuple[float, str]] = {}

    def note(self, name: str, error: BaseException) -> None:
        """`error` ended the thread of this name."""
        why = in_words(error) if isinstance(error, Exception) else type(error).__name__
        sentence = f"the thread {name!r} ended unasked: {why}"
        news = self._last.get(name, (0.0, ""))[1] != sentence
        self._last[name] = self._clock(), sentence
        if news:
            self.log(sentence)

    def says(self) -> str:
        """The last of what ended one within the last minute; empty where nothing did."""
        recent = [one for one in list(self._last.values()) if self._clock() - one[0] < TOLD_S]
        return max(recent)[1] if recent else ""

    def hear(self, ended: threading.ExceptHookArgs) -> None:
        """As `threading.excepthook`: of threads that nobody keeps on."""
        if ended.exc_value is not None and not issubclass(ended.exc_type, SystemExit):
            self.note(ended.thread.name if ended.thread else "unknown", ended.exc_value)


failures = Failures()


def keep_on(work: Callable[[], None], name: str, *, again_s: float = AGAIN_S) -> threading.Thread:
    """Starts a thread that does the work until it returns, and again whenever it raises."""

    def run() -> None:
        while True:
            try:
                return work()
            except Exception as error:
                failures.note(name, error)
                time.sleep(again_s)

    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    return thread


class LeftBehind(Generic[T]):
    """One thread for one work after the other, from the first one on, given by one owner. It keeps no process from
    ending, as that of a pool would: what is under way then is lost."""

    def __init__(self, name: str) -> None:
        self._works: SimpleQueue[tuple[Callable[[], T], Future[T]] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """Does the work behind what it was given before."""
        done: Future[T] = Future()
        if self._thread.ident is None:
            self._thread.start()
        self._works.put((work, done))
        return done

    def close(self) -> None:
        """The thread ends behind what it was given; nobody waits for that."""
        self._works.put(None)

    def _run(self) -> None:
        while (given := self._works.get()) is not None:
            work, done = given
            try:
                done.set_result(work())
            except BaseException as error:
                done.set_exception(error)
