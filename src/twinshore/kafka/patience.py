"""How long to keep trying: the one loop around everything that may fail now and succeed later."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import TypeVar

from twinshore.fleet import KafkaError
from twinshore.kafka.backoff import delay_s
from twinshore.kafka.errors import Code

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
    """`limit_s` bounds the whole of one errand, pauses included."""

    place: str
    limit_s: float
    clock: Callable[[], float]
    sleep: Callable[[float], None]
    rng: Random

    def persist(self, what: str, attempt: Callable[[], Value]) -> Value:
        """Attempts until one succeeds, fails for good, or time is up."""
        started = self.clock()
        failures = 0
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
        late_s = self.clock() + wait_s - started
        if error.code == Code.UNKNOWN_TOPIC_OR_PARTITION and late_s >= UNKNOWN_TOPIC_S:
            raise error
        if late_s >= self.limit_s:
            message = (
                f"{self.place}: no answer about {what} within {self.limit_s:g} s; the last failure: {error.message}"
            )
            raise KafkaError(message, code=error.code, retriable=True, hint=error.hint) from error
        self.sleep(wait_s)
