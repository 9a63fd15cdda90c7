"""How many clients may be connected, in all and from one address. Pure."""

from __future__ import annotations

from collections import Counter
from typing import Final

# Of one address it is said as seldom as that, however often it tries.
SAY_S: Final = 60.0
_SAID_MAX: Final = 1000


class Crowd:
    """`most` and `most_of_one`: 0 for as many as come. `count`: how many are there."""

    def __init__(self, most: int = 0, most_of_one: int = 0) -> None:
        self._most, self._most_of_one = most, most_of_one
        self._there = Counter[str]()
        self.count = 0
        self._said: dict[str, float] = {}

    def comes(self, address: str) -> str:
        """Why one more of this address is not let in; empty where it is, and then it is counted."""
        if self._most and self.count >= self._most:
            return f"[proxy] clients_max: {self.count} clients are connected"
        if self._most_of_one and self._there[address] >= self._most_of_one:
            return f"[proxy] clients_of_one_address_max: {self._there[address]} clients of it are connected"
        self._there[address] += 1
        self.count += 1
        return ""

    def goes(self, address: str) -> None:
        """One that was let in is gone."""
        self.count -= 1
        self._there[address] -= 1
        if self._there[address] <= 0:
            del self._there[address]

    def is_news(self, address: str, now_s: float) -> bool:
        """Whether it is to be said that one of this address was not let in."""
        if now_s - self._said.get(address, -SAY_S) < SAY_S:
            return False
        self._said[address] = now_s
        if len(self._said) > _SAID_MAX:
            del self._said[next(iter(self._said))]
        return True
