"""What an operator should know, told where nothing is locked and by a function that may fail."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress

from twinshore.kafka.clock import steady_s

NEWS_S = 60.0
SENTENCES_MAX = 100


class Warned:
    """Called with a sentence it keeps it for `tell`, which whoever holds no lock calls. A trouble that goes on is told
    once; one that was not heard of for a minute is news again. Any thread may call it. So nobody else in this room
    keeps in mind what he has said; but who knows when his trouble is over has `fleet.once` for it."""

    def __init__(self, warn: Callable[[str], None], clock: Callable[[], float] = steady_s) -> None:
        self._warn, self._clock = warn, clock
        self._waiting: deque[str] = deque()
        self._heard_s: dict[str, float] = {}

    def __call__(self, sentence: str) -> None:
        now_s = self._clock()
        before_s = self._heard_s.pop(sentence, None)
        self._heard_s[sentence] = now_s
        with suppress(KeyError, RuntimeError, StopIteration):  # another thread may do the same
            while len(self._heard_s) > SENTENCES_MAX:
                del self._heard_s[next(iter(self._heard_s))]
        if before_s is None or now_s >= before_s + NEWS_S:
            self._waiting.append(sentence)

    def tell(self) -> None:
        """What `warn` raises ends nobody's thread."""
        while True:
            try:
                sentence = self._waiting.popleft()
            except IndexError:
                return
            self.at_once(sentence)

    def now(self, sentence: str) -> None:
        """As a call, for whoever holds no lock."""
        self(sentence)
        self.tell()

    def at_once(self, sentence: str) -> None:
        """For whoever holds no lock, and knows that it is news."""
        with suppress(Exception):
            self._warn(sentence)
