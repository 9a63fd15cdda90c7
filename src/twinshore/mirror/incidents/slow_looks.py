"""Looks that may take long: where twins begin, and how long the target's brokers remember a producer.

A task of its own for each link: a cluster that does not answer must not keep the watch from saying so.
"""

from __future__ import annotations

from collections.abc import Callable

from twinshore.fleet import Link
from twinshore.fleet.settings import Settings
from twinshore.mirror.incidents.beginning_watch import BeginningWatch, KnownStarts
from twinshore.mirror.incidents.forgetting import STATE_EXPIRY_MS_DEFAULT, state_expiry_ms
from twinshore.service.cause_log import Trouble, with_causes
from twinshore.service.connections import QUICK
from twinshore.service.ends import Ends
from twinshore.service.scheduler import tasks
from twinshore.store import Store

EVERY_S = 10.0
PATIENCE_S = 2.0


class SlowLooks:
    """`active`: whether the link is ours to speak of. `state_expiry_ms` may be read by any thread, and set by whoever
    has just asked."""

    def __init__(
        self,
        link: Link,
        settings: Settings,
        store: Store,
        pumps: KnownStarts,
        *,
        active: Callable[[], bool],
        log: Callable[[str], None],
    ) -> None:
        self._link, self._active = link, active
        self._trouble = Trouble(link.name, "twins' beginnings", log, with_causes(log))
        self._ends = Ends(link, settings, patience_s=PATIENCE_S, call_s=PATIENCE_S, shared=QUICK)
        self._beginnings = BeginningWatch(link, self._ends.source, self._ends.target, store, pumps, log)
        self.state_expiry_ms = STATE_EXPIRY_MS_DEFAULT
        ends = (link.source, link.target)
        self._task = tasks.every(f"slow looks {link.name}", self._turn, asks=ends, first_s=EVERY_S)

    def close(self) -> None:
        self._task.close()
        self._ends.close()

    def _turn(self) -> float:
        if not self._active():
            return EVERY_S
        try:
            self._beginnings.look()
            self.state_expiry_ms = state_expiry_ms(self._ends.target)
            self._trouble.well(f"{self._link.name}: twins' beginnings are looked at again")
        except Exception as error:
            self._trouble.say(f"{self._link.name}: twins' beginnings are not looked at", error)
        return EVERY_S
