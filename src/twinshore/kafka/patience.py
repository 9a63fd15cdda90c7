"""How long to keep trying: the one loop around everything that may fail now and succeed later; which clusters are
waited for at this moment, for a command that tells a person why it is silent; and who asks a cluster that answers
nobody.

Many links share a cluster. If all of them waited for an answer that does not come, they would hold all the threads
that there are, and nothing else would be done. So one at a time asks, and the others hear at once what he heard last. A
short silence is waited out as ever: a broker may just begin again.
"""

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


class Wait(NamedTuple):
    """A question to a cluster that has no answer yet, and since when."""

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


GATE_AFTER_S = 3.0
PROBE_AGAIN_S = 0.25


class SilentError(KafkaError):
    """The cluster was not asked: it has been silent for a while, and somebody else asks already."""


class Silence:
    """Of one cluster, for all that ask it. Safe for several threads. A silence begins when no broker of it answers."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._guard = threading.Lock()
        self._last: KafkaError | None = None
        self._since_s = self._probed_s = 0.0
        self._prober: int | None = None

    def check(self) -> None:
        """SilentError where it is not to be asked by this thread now."""
        with self._guard:
            if self._gated() and self._prober != threading.get_ident():
                raise self._refusal()

    def gave_up(self) -> None:
        """Somebody has waited for it for as long as he would."""

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Around a question to whichever broker answers: SilentError where it is not to be asked now; what becomes of
        the question is what the others hear."""
        with self._guard:
            if self._gated():
                if self._prober is not None or self._clock() - self._probed_s < PROBE_AGAIN_S:
                    raise self._refusal()
                self._prober = threading.get_ident()
        try:
            yield
        except KafkaError as error:
            self._heard(error if error.retriable and not error.code else None)
            raise
        except BaseException:
            self._heard(self._last)
            raise
        self._heard(None)

    def _heard(self, silent: KafkaError | None) -> None:
        """`silent`: nobody answered; None: somebody did, whatever he said."""
        with self._guard:
            now_s = self._clock()
            if self._prober == threading.get_ident():
                self._prober, self._probed_s = None, now_s
            if silent is not None and self._last is None:
                self._since_s = now_s
            self._last = silent

    def _gated(self) -> bool:
        return self._last is not None and self._clock() - self._since_s >= GATE_AFTER_S

    def _refusal(self) -> SilentError:
        assert self._last is not None
        refusal = SilentError(self._last.message, retriable=True, hint=self._last.hint)
        refusal.cause = self._last.cause
        return refusal


class AskedOnce(Silence):
    """Of a command that looks once: when one of its askers has waited for the cluster in vain, no other waits."""

    def __init__(self) -> None:
        super().__init__()
        self._gave_up = False

    def gave_up(self) -> None:
        with self._guard:
            self._gave_up = self._last is not None

    def check(self) -> None:
        """SilentError once it was waited for in vain."""
        with self._guard:
            if self._gated():
                raise self._refusal()

    @contextmanager
    def asking(self) -> Iterator[None]:
        """The same, around a question; what becomes of that is what the others hear."""
        self.check()
        with super().asking():
            yield

    def _gated(self) -> bool:
        return self._gave_up and self._last is not None


class Unheard(Silence):
    """Where nobody shares a cluster, nobody is spared."""

    def check(self) -> None:
        """Anybody may ask."""

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Anybody may ask."""
        yield
