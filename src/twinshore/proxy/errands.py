"""An errand under way: its questions go out together, and it goes on once all of them are answered or lost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from twinshore.fleet.once import in_words
from twinshore.proxy.core.moves import Ask, Errand, Parts, Said
from twinshore.proxy.timing import counted


class Going:
    """`ask` asks a broker, and calls back once, later. `done` gets the answer for the client, and whether a broker was
    not heard; `failed` why there is none."""

    def __init__(
        self,
        errand: Errand,
        ask: Callable[[Ask, Callable[[Said], None]], None],
        done: Callable[[Parts, bool], None],
        failed: Callable[[str], None],
    ) -> None:
        self._errand, self._ask, self._done, self._failed = errand, ask, done, failed
        self._found: list[Said] = []
        self._left = 0
        self._over = self._unheard = False

    def begin(self) -> None:
        """Asks the first questions."""
        self._step(None)

    def close(self) -> None:
        """The client is gone: what is still answered is of no use."""
        self._over = True
        self._errand.close()

    def _step(self, said: Sequence[Said] | None) -> None:
        try:
            asks = next(self._errand) if said is None else self._errand.send(said)
        except StopIteration as end:
            self._done(end.value, self._unheard)
            return
        except Exception as error:  # a client whose errand ended here would wait for ever
            self._failed(f"an answer of a broker cannot be used: {in_words(error)}")
            return
        self._found, self._left = [None] * len(asks), len(asks)
        for index, ask in enumerate(asks):
            self._ask(ask, counted(partial(self._heard, index), ask.flows))

    def _heard(self, index: int, body: Said) -> None:
        if self._over:
            return
        self._found[index] = body
        self._unheard |= body is None
        self._left -= 1
        if not self._left:
            self._step(self._found)
