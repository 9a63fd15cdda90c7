"""The links that this process runs: new ones begin, those that are gone end, and the others go on untouched."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial

from twinshore.fleet import Link, RefusedError, StoreError, TwinshoreError
from twinshore.fleet.once import in_words
from twinshore.links.link_state import STANDBY, STOPPED, WAITING, Idle
from twinshore.links.registry import Registry
from twinshore.mirror.driver.link_driver import LinkDriver
from twinshore.service.cause_log import with_causes
from twinshore.service.companions import Beside, Companion, Start
from twinshore.service.scheduler import UNTIL_WOKEN, tasks

TURN_S = 0.1
# A turn that took long, as where many links share the machine, rests longer; never longer than this.
REST_PART, REST_S_MAX = 3.0, 1.0
REFUSED_AGAIN_S = 2.0
CHANGED = "the link was changed; it begins again with what it is now"
AGAIN_S = 15.0
END_S = 60.0  # beyond what is waited for pumps: a cluster that is asked right now, and what runs beside the link


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


class Running:
    """A link while this process runs it: its driver, what turns that, and its companions."""

    def __init__(self, link: Link, driver: LinkDriver, companions: Sequence[Companion], drive: Drive) -> None:
        self.link, self.driver = link, driver
        self._companions, self._drive = companions, drive
        self._ending: threading.Thread | None = None

    def alive(self) -> bool:
        """Whether its driver turns, or has been told to end."""
        return self._ending is not None or self._drive.alive()

    def end(
        self, stop_s: float, log: Callable[[str], None], now: Idle | None, then: Callable[[], None] | None = None
    ) -> None:
        """Begins to end it, in a thread: others go on meanwhile. Pumps have `stop_s` for what is on its way. `now`: how
        the link stands then; None where somebody has stopped the whole mirror. `then` is called last: where it is
        given, the process goes on, and the link may begin again."""
        self._drive.close(0.0)

        def work() -> None:
            # A turn that still waits for a cluster would open lanes again behind whoever begins the link anew.
            turn_s = stop_s if then is None else None
            for part in (partial(self._end, stop_s, now, turn_s=turn_s), then or (lambda: None)):
                try:
                    part()
                except Exception as error:
                    log(f"{self.link.name}: it did not end in good order: {in_words(error)}")

        self._ending = threading.Thread(target=work, name=f"end of {self.link.name}", daemon=True)
        self._ending.start()

    def ended(self, within_s: float = 0.0) -> bool:
        """Whether nothing of it is left."""
        if self._ending is not None:
            self._ending.join(within_s)
        return self._ending is not None and not self._ending.is_alive()

    def _end(self, stop_s: float, now: Idle | None, *, turn_s: float | None) -> None:
        clean = False

        def stop() -> None:
            nonlocal clean
            clean = self.driver.stop(time.monotonic() + stop_s)

        # Whatever of it fails, all is ended, the last first: nobody would give back the lease, nor stop renewing it.
        with ExitStack() as parts:
            parts.callback(lambda: self.driver.close(clean=clean, now=now))
            parts.callback(stop)
            parts.callback(self._drive.close, turn_s)
            for companion in reversed(self._companions):
                parts.callback(companion.close)


def begun(
    link: Link, driver: LinkDriver, starts: Sequence[Start], beside: Beside, drive: Callable[[LinkDriver], Drive]
) -> Running:
    """The driver turns once all that runs beside it has started; where one cannot, nothing of the link is left. Who
    turned before would keep the lease, and nobody would carry the link."""
    with ExitStack() as undone:
        undone.callback(driver.close, clean=True)
        companions: list[Companion] = []
        for start in starts:
            companions.append(start(beside))
            undone.callback(companions[-1].close)
        running = Running(link, driver, companions, drive(driver))
        undone.pop_all()
    return running


class LinkRoster:
    """`begin` starts a link, and `leave` is called once it has ended while the others go on. There is room for
    `links_max`: one more waits until another goes."""

    def __init__(
        self,
        registry: Registry,
        begin: Callable[[Link], Running],
        leave: Callable[[Link], None],
        *,
        links_max: int,
        stop_s: float,
        log: Callable[[str], None],
    ) -> None:
        self._registry, self._begin, self._leave, self._links_max = registry, begin, leave, links_max
        self._stop_s, self._log = stop_s, log
        self._running: dict[str, Running] = {}
        self._ending: dict[str, Running] = {}
        # Links that could not begin, as they were then, why, and when they are tried again.
        self._failed: dict[str, tuple[Link, str, float]] = {}
        # Those that wait for room.
        self._waiting: set[str] = set()

    def turn(self) -> None:
        """Begins and ends what the registry says. Nothing of the other links is touched."""
        wanted = self._registry.wanted()
        for name in [name for name, one in self._ending.items() if one.ended()]:
            del self._ending[name]
        for name in [name for name, one in self._running.items() if wanted.get(name) != one.link]:
            self._end(name, gone=name not in wanted)
        self._failed = {name: failed for name, failed in self._failed.items() if wanted.get(name) == failed[0]}
        for name, link in wanted.items():
            rests = name in self._failed and time.monotonic() < self._failed[name][2]
            if name not in self._running and name not in self._ending and not rests:
                self._start(link)

    def left_s(self, link: str) -> float:
        """For how long the link is ours; 0 where it is not run here."""
        one = self._running.get(link) or self._ending.get(link)
        return one.driver.left_s() if one else 0.0

    def alive(self) -> bool:
        """Whether each driver turns."""
        return all(one.alive() for one in list(self._running.values()))

    def close(self, why: str = "") -> None:
        """Ends them all at once. `why`: what ended the mirror, where nobody asked for it."""
        now = Idle(STOPPED, f"the mirror ended: {why}") if why else None
        for name, one in self._running.items():
            one.end(self._stop_s, self._log, now)
            self._ending[name] = one
        self._running = {}
        until_s = time.monotonic() + 2 * self._stop_s + END_S
        for one in self._ending.values():
            one.ended(max(0.0, until_s - time.monotonic()))

    def _start(self, link: Link) -> None:
        if len(self._running) + len(self._ending) >= self._links_max:
            if link.name not in self._waiting:
                self._log(
                    f"{link.name}: waits: this mirror began with room for {self._links_max} links; start it again"
                )
            self._waiting.add(link.name)
            return
        self._waiting.discard(link.name)
        try:
            self._running[link.name] = self._begin(link)
            self._failed.pop(link.name, None)
        except Exception as error:
            # The others go on. What it lacked may be there again by itself, as a thread or a file is.
            why = in_words(error)
            if link.name not in self._failed or self._failed[link.name][1] != why:
                self._log(f"{link.name}: cannot begin: {why}; tried again every {AGAIN_S:.0f} s")
            self._failed[link.name] = link, why, time.monotonic() + AGAIN_S

    def _end(self, name: str, *, gone: bool) -> None:
        # Its pumps ask all the while for how long the link is ours: it is never in neither.
        one = self._ending[name] = self._running[name]
        del self._running[name]
        now = Idle(STOPPED, self._registry.why_gone(name)) if gone else Idle(STANDBY, CHANGED)
        self._log(f"{name}: {now.sentence}")
        one.end(self._stop_s, self._log, now, lambda: self._leave(one.link))
