"""When partitions change lanes: one by one and without a stop, when one lane carries much more than its share."""

from __future__ import annotations

import time
from collections.abc import Callable

from twinshore.mirror.driver.desk import Desk
from twinshore.mirror.driver.plan import moves
from twinshore.mirror.driver.recorder import Recorder

BALANCE_S = 10.0
BALANCE_BYTES_MIN = 1 << 20  # less than this in a report is not worth a move


class Balance:
    """One link's; its lanes are weighed every few seconds."""

    def __init__(self, link: str, desk: Desk, recorder: Recorder, lanes: int, log: Callable[[str], None]) -> None:
        self._link, self._desk, self._recorder, self._lanes, self._log = link, desk, recorder, lanes, log
        self._at_s = time.monotonic()

    def turn(self) -> None:
        """Moves what should move now."""
        if self._lanes < 2 or time.monotonic() - self._at_s < BALANCE_S:
            return
        self._at_s = time.monotonic()
        rates = dict(self._recorder.live[self._link].rate)
        if sum(rates.values()) < BALANCE_BYTES_MIN:
            return
        for named, lane in moves(self._desk.placed(self._link), rates, self._lanes):
            if self._desk.move(self._link, named, lane):
                self._log(f"{self._link}: {named} moves to lane {lane}, which carries less")
