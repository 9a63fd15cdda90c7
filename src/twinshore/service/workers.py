"""Threads of a process that must go on: what ends one unasked begins it again, and /health says so for a while."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from twinshore.fleet.once import in_words

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
