"""Limits of clients: bytes a second, bytes of requests at once, and connections.

Clients of one id may have a second's worth at once. Beyond that they are not read until the excess is paid off.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final

# Not longer: a client gives up a request that is not answered within some tens of seconds.
THROTTLE_MAX_S: Final = 10.0
_CLIENTS_MAX: Final = 20_000
# Refusals of one address are logged no more often than this.
LOG_INTERVAL_S: Final = 60.0
_SAID_MAX: Final = 1000


class ByteQuotas:
    """Byte rates of client ids, sent and received. `bytes_s`: the limit of each; 0: none."""

    def __init__(self, bytes_s: int) -> None:
        self.bytes_s = bytes_s
        self._spent: dict[str, tuple[float, float]] = {}  # debt in bytes, and as of when

    @property
    def there(self) -> bool:
        return bool(self.bytes_s)

    def take(self, client: str, size: int, now_s: float) -> float:
        """Count bytes. Returns for how many seconds the client must pause."""
        if not self.bytes_s:
            return 0.0
        debt, since_s = self._spent.pop(client, (0.0, now_s))
        debt = max(0.0, debt - (now_s - since_s) * self.bytes_s) + size
        debt = min(debt, (1 + THROTTLE_MAX_S) * self.bytes_s)
        self._spent[client] = debt, now_s
        if len(self._spent) > _CLIENTS_MAX:
            del self._spent[next(iter(self._spent))]
        return max(0.0, debt / self.bytes_s - 1)


class RequestMemory:
    """Memory for the requests of all clients; `left` is free. Requests wait in order, so that large ones get their
    turn.
    """

    def __init__(self, most: int) -> None:
        self.left = most
        self._waiting: dict[Callable[[], None], int] = {}

    @property
    def is_short(self) -> bool:
        """Whether a request waits."""
        return bool(self._waiting)

    def take(self, size: int, granted: Callable[[], None]) -> bool:
        """Whether the memory was taken at once; else `granted` is called later."""
        if self._waiting or size > self.left:
            self._waiting[granted] = size
            return False
        self.left -= size
        return True

    def give(self, size: int) -> None:
        self.left += size
        while self._waiting:
            granted, first = next(iter(self._waiting.items()))
            if first > self.left:
                return
            del self._waiting[granted]
            self.left -= first
            granted()

    def leave(self, granted: Callable[[], None]) -> bool:
        """Stop waiting. Returns whether `granted` waited."""
        return self._waiting.pop(granted, None) is not None


class ConnectionLimits:
    """Clients in all (`most`) and from one address (`most_of_one`); 0: no limit. `count`: connected now. Lower limits
    disconnect no client.
    """

    def __init__(self, most: int = 0, most_of_one: int = 0) -> None:
        self.most, self.most_of_one = most, most_of_one
        self._there = Counter[str]()
        self.count = 0
        self._said: dict[str, float] = {}

    def comes(self, address: str) -> str:
        """Returns why the client is not admitted; empty if admitted and counted."""
        if self.most and self.count >= self.most:
            return f"[proxy] clients_max: {self.count} clients are connected"
        if self.most_of_one and self._there[address] >= self.most_of_one:
            return f"[proxy] clients_of_one_address_max: {self._there[address]} clients of it are connected"
        self._there[address] += 1
        self.count += 1
        return ""

    def goes(self, address: str) -> None:
        self.count -= 1
        self._there[address] -= 1
        if self._there[address] <= 0:
            del self._there[address]

    def should_log(self, address: str, now_s: float) -> bool:
        """Whether to log a refusal of this address, now and then."""
        if now_s - self._said.get(address, -LOG_INTERVAL_S) < LOG_INTERVAL_S:
            return False
        self._said[address] = now_s
        if len(self._said) > _SAID_MAX:
            del self._said[next(iter(self._said))]
        return True
