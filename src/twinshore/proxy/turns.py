"""The order of answers: each waits for those of earlier requests, whoever gives it."""

from __future__ import annotations

from collections.abc import Iterator

from twinshore.proxy.core.moves import Parts
from twinshore.wire.serving.requests import Request


class Turn:
    """The place of an answer among those that are due."""

    __slots__ = ("parts", "request")

    def __init__(self, request: Request) -> None:
        self.request = request
        self.parts: Parts | None = None


class Turns:
    """Those of one client. They are few, and an empty list is a tenth of what an empty deque takes."""

    __slots__ = ("_due",)

    def __init__(self) -> None:
        self._due: list[Turn] = []

    def __len__(self) -> int:
        return len(self._due)

    def begin(self, request: Request) -> Turn:
        """The place of its answer, behind all others."""
        turn = Turn(request)
        self._due.append(turn)
        return turn

    def take(self, turn: Turn, parts: Parts) -> bool:
        """Whether these may be sent now. Else they are copied, and come up in their turn."""
        if self._due and self._due[0] is turn:
            del self._due[0]
            return True
        turn.parts = [b"".join(parts)]
        return False

    def ready(self) -> Iterator[Parts]:
        """What waited for the one that was sent."""
        while self._due and (parts := self._due[0].parts) is not None:
            del self._due[0]
            yield parts

    def clear(self) -> None:
        """Nobody waits any more."""
        self._due.clear()
