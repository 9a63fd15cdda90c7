"""How many bytes the requests of all clients may take at once. Pure."""

from __future__ import annotations

from collections.abc import Callable


class Budget:
    """What does not fit waits in its turn, so no large request is passed over for ever. `left`: what is free."""

    def __init__(self, most: int) -> None:
        self.left = most
        self._waiting: dict[Callable[[], None], int] = {}

    @property
    def is_short(self) -> bool:
        """Whether somebody waits."""
        return bool(self._waiting)

    def take(self, size: int, granted: Callable[[], None]) -> bool:
        """Whether so much is taken at once; else `granted` is called later, when it is."""
        if self._waiting or size > self.left:
            self._waiting[granted] = size
            return False
        self.left -= size
        return True

    def give(self, size: int) -> None:
        """So much is free again."""
        self.left += size
        while self._waiting:
            granted, first = next(iter(self._waiting.items()))
            if first > self.left:
                return
            del self._waiting[granted]
            self.left -= first
            granted()

    def leave(self, granted: Callable[[], None]) -> bool:
        """Who waited waits no more; whether he did."""
        return self._waiting.pop(granted, None) is not None
