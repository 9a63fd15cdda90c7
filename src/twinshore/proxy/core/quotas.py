"""How many bytes a second the clients of one client id may send and receive, and how long they wait for more. Pure.

They may have a second's worth at once. What goes beyond is a debt, and is paid by not being read for as long.
"""

from __future__ import annotations

from typing import Final

# Not longer: a client gives up a request that is not answered within some tens of seconds.
WAIT_S_MAX: Final = 10.0
_CLIENTS_MAX: Final = 20_000


class Quotas:
    """`bytes_s`: of each client id; 0: as many as they like."""

    def __init__(self, bytes_s: int) -> None:
        self._bytes_s = bytes_s
        self._spent: dict[str, tuple[float, float]] = {}  # how much was to be paid, and when that was so

    @property
    def there(self) -> bool:
        """Whether there are any."""
        return bool(self._bytes_s)

    def take(self, client: str, size: int, now_s: float) -> float:
        """The client has had so much: for how many seconds it gets no more."""
        if not self._bytes_s:
            return 0.0
        debt, since_s = self._spent.pop(client, (0.0, now_s))
        debt = max(0.0, debt - (now_s - since_s) * self._bytes_s) + size
        debt = min(debt, (1 + WAIT_S_MAX) * self._bytes_s)
        self._spent[client] = debt, now_s
        if len(self._spent) > _CLIENTS_MAX:
            del self._spent[next(iter(self._spent))]
        return max(0.0, debt / self._bytes_s - 1)
