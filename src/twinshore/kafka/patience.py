"""How long to keep trying: the one loop around everything that may fail now and succeed later."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple, TypeVar

from twinshore.fleet import KafkaError
from twinshore.kafka.backoff import delay_s
from twinshore.kafka.errors import Code
from twinshore.kafka.silence import SilentError


class Wait(NamedTuple):
    """A question to a cluster that has no answer yet."""

    cluster: str
    at: str
    since_s: float


_NOW: dict[object, Wait] = {}


@contextmanager
def waiting(cluster: str, at: str) -> Iterator[None]:
    """Around a question with all its attempts. Safe for several threads."""
    key = object()
    _NOW[key] = Wait(cluster, at, time.monotonic())
    try:
        yield
    finally:
        del _NOW[key]


def waits() -> list[Wait]:
    """Those of all threads, by `time.monotonic`."""
    return list(_NOW.values())


# A topic that was just created may be unknown to some broker for a moment; one that does not exist stays unknown.
UNKNOWN_TOPIC_S = 3.0
# Our knowledge of the topic is out of date, and fresh metadata mends it.
_STALE = frozenset({Code.UNKNOWN_TOPIC_ID, Code.INCONSISTENT_TOPIC_ID})
Value = TypeVar("Value")


def may_pass(error: KafkaError) -> bool:
    """Trying again, with fresh metadata, may succeed."""
    return error.retriable or error.code in _STALE


@dataclass(frozen=True, slots=True)
class Patience:
    """`limit_s` bounds the whole of one errand of a thread: its attempts, its pauses, and the errands within it, as far
    as every call takes no more than `left_s`. `gave_up` hears that nobody answered in that time; `at`: where `place` is
    asked, for people."""

    place: str
    limit_s: float
    clock: Callable[[], float]
    sleep: Callable[[float], None]
    rng: Random
    gave_up: Callable[[], None] = lambda: None
    at: str = ""
    _errands: threading.local = field(default_factory=threading.local, repr=False, compare=False)

    @contextmanager
    def errand(self) -> Iterator[None]:
        """An errand within another has no more time than that."""
        if self._deadline() < math.inf:
            yield
            return
        self._errands.deadline = self.clock() + self.limit_s
        try:
            yield
        finally:
            self._errands.deadline = math.inf

    def left_s(self) -> float:
        """What this thread's errand has left, zero or less when it is over; `inf` outside of any."""
        return self._deadline() - self.clock()

    def _deadline(self) -> float:
        return float(getattr(self._errands, "deadline", math.inf))

    def persist(self, what: str, attempt: Callable[[], Value]) -> Value:
        """Attempts until one succeeds, fails for good, or time is up."""
        started = self.clock()
        failures = 0
        with self.errand(), waiting(self.place, self.at):
            while True:
                try:
                    return attempt()
                except KafkaError as error:
                    failures += 1
                    self.pause(what, error, failures, started)

    def pause(self, what: str, error: KafkaError, failures: int, started: float) -> None:
        """Waits before the next attempt; raises when another would not help or would come too late."""
        if not may_pass(error):
            raise error
        wait_s = delay_s(failures, self.rng)
        if error.code == Code.UNKNOWN_TOPIC_OR_PARTITION and self.clock() + wait_s - started >= UNKNOWN_TOPIC_S:
            raise error
        if wait_s >= self.left_s() or isinstance(error, SilentError):
            message = (
                f"{self.place}: no answer about {what} within {self.limit_s:g} s; the last failure: {error.message}"
            )
            gave_up = KafkaError(message, code=error.code, retriable=True, hint=error.hint)
            if not error.code:
                self.gave_up()
                gave_up.silent, gave_up.cause = self.place, error.cause or str(error)
            raise gave_up from error
        self.sleep(wait_s)
