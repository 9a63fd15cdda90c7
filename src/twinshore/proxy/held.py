"""The one request of a client that waits: for a switch to end, or to hear where its topic is."""

from __future__ import annotations

from twinshore.kafka.clock import steady_s
from twinshore.proxy.core.moves import Hold, Parts
from twinshore.proxy.house import House, Present
from twinshore.wire.framing import SIZE_BYTES
from twinshore.wire.serving.requests import Request, read_request


class Held:
    """Of this guest."""

    def __init__(self, guest: Present, house: House) -> None:
        self._guest, self._house = guest, house
        self.whole: memoryview | None = None
        self._move = Hold(None)
        self._since_s = 0.0

    def __bool__(self) -> bool:
        return self.whole is not None

    @property
    def request(self) -> Request:
        """There must be one."""
        assert self.whole is not None
        return read_request(self.whole[SIZE_BYTES:])

    def keep(self, whole: memoryview, move: Hold) -> None:
        """It waits from now on; or goes on to wait, for another reason perhaps."""
        if self.whole is None:
            self.whole, self._since_s = memoryview(bytes(whole)), steady_s()
            self._house.holding.add(self._guest)
            self._house.counts.held += 1
        self._move = move

    def waits_longer(self, than_s: float) -> bool:
        """Whether its client may take it for lost."""
        return self.whole is not None and steady_s() - self._since_s > than_s

    def refusal(self, *, is_last: bool) -> Parts | None:
        """What tells its client to ask again. None where the connection must end with it. `is_last`: nothing more of
        the client is read."""
        return self._move.refusal if is_last or not self._move.goes_first else None

    def let_go(self) -> memoryview | None:
        """It waits no more."""
        whole, self.whole = self.whole, None
        self._house.holding.discard(self._guest)
        return whole
