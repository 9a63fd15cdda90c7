"""Turns one link's driver again and again, as a task of the process: what it says, and what ends the whole mirror."""

from __future__ import annotations

import time
from collections.abc import Callable

from twinshore.fleet import RefusedError, StoreError, TwinshoreError
from twinshore.links.link_state import WAITING
from twinshore.mirror.driver.link_driver import LinkDriver
from twinshore.service.cause_log import with_causes
from twinshore.service.scheduler import UNTIL_WOKEN, tasks

TURN_S = 0.1
# A turn that took long, as where many links share the machine, rests longer; never longer than this.
REST_PART, REST_S_MAX = 3.0, 1.0
REFUSED_AGAIN_S = 2.0


class Drive:
    """`refused` hears why the link must not run, None once it may; `fail` hears what nobody can go on with."""

    def __init__(
        self,
        driver: LinkDriver,
        log: Callable[[str], None],
        refused: Callable[[str, RefusedError | None], None],
        fail: Callable[[TwinshoreError], None],
    ) -> None:
        self._driver, self._log, self._refused, self._fail = driver, with_causes(log), refused, fail
        self._said = ""
        self._failed = False
        link = driver.link
        self._task = tasks.every(f"link {link.name}", self._turn, asks=(link.source, link.target), first_s=TURN_S)

    def alive(self) -> bool:
        """Whether it goes on turning."""
        return not self._failed

    def close(self, within_s: float | None) -> None:
        """It turns no more. A turn that is under way has this time to end; None: all that it takes."""
        self._task.close(within_s)
        self._refused(self._driver.link.name, None)

    def _turn(self) -> float:
        name, begun_s = self._driver.link.name, time.monotonic()
        pause_s = TURN_S
        try:
            sentence = self._driver.turn()
            self._refused(name, None)
        except StoreError as error:
            sentence = f"{name}: {error}"
        except RefusedError as error:
            # Its clusters are not the link's: that is its own trouble, until there is no link that has none.
            sentence = f"{name}: refused: {error}"
            self._refused(name, error)
            pause_s = REFUSED_AGAIN_S
        except TwinshoreError as error:
            return self._end(error)
        except Exception as error:
            # A link that nobody drives must not look as if it ran.
            return self._end(TwinshoreError(f"link {name}: {type(error).__name__}: {error}"))
        self._say(sentence)
        return max(pause_s, min(REST_S_MAX, REST_PART * (time.monotonic() - begun_s)))

    def _say(self, sentence: str) -> None:
        """What changed. That it waits for a cluster that does not answer, the log says once for all links."""
        link = self._driver.link
        waits = sentence.startswith(f"{link.name}: {WAITING}: ")
        told = waits and any(self._log.spoke_of(cluster) for cluster in (link.source, link.target))
        if sentence != self._said and not told:
            self._said = sentence
            self._log(sentence)

    def _end(self, error: TwinshoreError) -> float:
        self._failed = True
        self._fail(error)
        return UNTIL_WOKEN
