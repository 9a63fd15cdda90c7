"""What all guests of a process share: what is known of the clusters, what is counted, and who is there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from twinshore.fleet.once import Once
from twinshore.kafka.clock import steady_s
from twinshore.proxy.core.layout import Layout
from twinshore.proxy.core.seen import Seen


@dataclass(slots=True)
class Counts:
    """Since the process began. `requests` by the key of the API."""

    requests: Counter[int] = field(default_factory=Counter)
    errands: int = 0
    clients: int = 0
    hung_up: int = 0
    brokers_lost: int = 0
    bytes_in: int = 0
    bytes_out: int = 0


class Present(Protocol):
    """A client that is there."""

    def look(self, now_s: float) -> None:
        """Once a second."""

    def drain(self) -> None:
        """Ends once it is answered."""

    def hang_up(self, why: str) -> None:
        """Ends at once."""


class House:
    """`now_s` is the time as of the last look, for what need not know it to the millisecond."""

    def __init__(self, layout: Layout, seen: Seen, log: Callable[[str], None], news: Callable[[], None]) -> None:
        self.layout, self.seen, self.news = layout, seen, news
        self.counts, self.guests = Counts(), set[Present]()
        self.now_s = steady_s()
        self._log = Once(log)
        self._number = 0

    def number(self) -> int:
        """For a question of the proxy's own to a broker."""
        self._number = (self._number + 1) & 0x7FFFFFFF
        return self._number

    def came(self, guest: Present) -> None:
        """A client has connected."""
        self.counts.clients += 1
        self.guests.add(guest)

    def went(self, guest: Present) -> None:
        """It has gone."""
        self.guests.discard(guest)

    def hung_up(self, peer: str, why: str) -> None:
        """A client's connection was ended here."""
        self.counts.hung_up += 1
        self._log.say(f"a client at {peer} was hung up on: {why}")

    def lost(self) -> None:
        """A connection to a broker is gone."""
        self.counts.brokers_lost += 1
        self.news()

    def look(self) -> None:
        """Once a second, at all that is there."""
        self.now_s = steady_s()
        for guest in list(self.guests):
            guest.look(self.now_s)
