"""Who asks a cluster that answers nobody: one at a time, and the others hear at once what he heard last.

Many links share a cluster. If all of them waited for an answer that does not come, they would hold all the threads
that there are, and nothing else would be done. A short silence is waited out as ever: a broker may just begin again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from twinshore.fleet import KafkaError

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
