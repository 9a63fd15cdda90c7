"""`twinshore mirror run`: one process for all links of the settings, until it is told to stop."""

from __future__ import annotations

import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Sequence

from twinshore.fleet import Link, RefusedError, StoreError, TwinshoreError
from twinshore.fleet.settings import Settings
from twinshore.mirror.driver import engine as engines
from twinshore.mirror.driver.desk import Desk
from twinshore.mirror.driver.engine import Engine
from twinshore.mirror.driver.first_words import first_words, refusals
from twinshore.mirror.driver.link_driver import LinkDriver
from twinshore.mirror.driver.link_state import STANDBY, STOPPED, Idle
from twinshore.mirror.driver.plan import lanes_for
from twinshore.mirror.driver.ready import check_chosen, open_writable
from twinshore.mirror.driver.recorder import Recorder
from twinshore.mirror.driver.tides import Tides
from twinshore.mirror.metrics import Instruments, Meters
from twinshore.service import signals
from twinshore.service.companions import Beside, Companion, Start
from twinshore.service.workers import failures
from twinshore.store import Store, open_to_others

TURN_S = 0.1
REFUSED_AGAIN_S = 2.0


class Mirror:
    """Runs the links in threads of their own. `log` gets one line per event; `beside` starts each link's companions."""

    def __init__(
        self, settings: Settings, links: list[Link], log: Callable[[str], None], beside: Sequence[Start] = ()
    ) -> None:
        check_chosen(settings, links)
        self._settings = settings
        self._links = links
        self._log = log
        self._beside = beside
        self._stop = threading.Event()
        self._failure: TwinshoreError | None = None
        self._refused: dict[str, RefusedError] = {}
        self._owner = f"{socket.gethostname()} process {os.getpid()} {uuid.uuid4().hex[:8]}"

    def stop(self) -> None:
        self._stop.set()

    def run(self) -> None:
        """Until `stop`; raises what made it impossible to go on."""
        signals.hear(self.stop)
        failures.log = self._log
        threading.excepthook = failures.hear
        mirror = self._settings.mirror
        lanes = mirror.lanes or lanes_for(os.cpu_count() or 1)
        store = self._open_store()
        self._check_addresses(store)
        meters = Meters(mirror.ends_s)
        recorder = Recorder(store, self._owner, mirror.receipts_s, self._log, meters.lag)
        instruments = Instruments(mirror, self._links, store, recorder, meters, self._log)
        new = self._say_first(store, recorder)
        engine = engines.begin(mirror, lanes * len(self._links), self._stop)
        if engine is None:
            self._never_begun(new, instruments, recorder, store)
            return
        keepers: dict[str, LinkDriver] = {}
        companions: list[Companion] = []
        desk = Desk(engine.host, allowed_s=lambda link: keepers[link].lease.left_s(), take=instruments.take)
        tides = Tides(desk, mirror.tide_s, engine.ride, self._log)
        try:
            for link in self._links:
                keepers[link.name] = LinkDriver(
                    link,
                    self._settings,
                    store=store,
                    desk=desk,
                    tides=tides,
                    recorder=recorder,
                    owner=self._owner,
                    lanes=lanes,
                    log=self._log,
                )
                instruments.watch(link, self._settings.cluster(link.source), keepers[link.name].lease.generation)
            threads = [threading.Thread(target=self._drive, args=(one,), daemon=True) for one in keepers.values()]
            for thread in threads:
                thread.start()
            companions += [start(self._beside_link(one, store)) for one in keepers.values() for start in self._beside]
            self._until_stopped(threads, instruments, engine)
            for companion in companions:
                companion.close()
            for thread in threads:
                thread.join(timeout=mirror.stop_s)
            deadline_s = time.monotonic() + mirror.stop_s
            for one in keepers.values():
                one.close(clean=one.stop(deadline_s), why=self._failure.message if self._failure else "")
        finally:
            instruments.close()
            tides.close()
            desk.close()
            recorder.close()
            store.close()
            engine.close()
        if self._failure:
            raise self._failure
        self._log("stopped in good order")

    def _check_addresses(self, store: Store) -> None:
        """Before Spark starts: RefusedError where every link's addresses lead to clusters that are not its own."""
        refused = refusals(self._links, self._settings, store)
        if len(refused) == len(self._links):
            store.close()
            raise next(iter(refused.values()))

    def _until_stopped(self, threads: list[threading.Thread], instruments: Instruments, engine: Engine) -> None:
        while not self._stop.wait(TURN_S):
            if all(thread.is_alive() for thread in threads):
                instruments.beat()
            if not engine.alive():
                self._failure = TwinshoreError("Spark's driver has died", hint="start the mirror again")
                self._stop.set()

    def _say_first(self, store: Store, recorder: Recorder) -> list[str]:
        """Spark takes its time to start; whether there will be anything to carry is said meanwhile.

        What the last mirror said of a link stays until this one carries it, since it says when that was. Links of which
        nobody has ever said a word come back.
        """
        names = ", ".join(link.name for link in self._links)
        self._log(f"{names}: starting Spark on {self._settings.mirror.spark.master}, which takes some seconds")
        known = {word.link for word in store.links.statuses()}
        new = [link.name for link in self._links if link.name not in known]
        for name in new:
            recorder.say(name, Idle(STANDBY, "starting: Spark first, then it takes the link's lease"), 0)
        looks = [first_words(link, self._settings, store) for link in self._links]

        def say() -> None:
            for look in looks:
                sentence = look()
                if not self._stop.is_set():
                    self._log(sentence)

        threading.Thread(target=say, name="first words", daemon=True).start()
        return new

    def _never_begun(self, new: list[str], instruments: Instruments, recorder: Recorder, store: Store) -> None:
        """It was stopped while Spark started, and nobody is to miss it."""
        for name in new:
            recorder.say(name, Idle(STOPPED, "the mirror was stopped before it had begun"), 0)
        for close in (instruments.close, recorder.close, store.close):
            close()
        self._log("stopped before anything had begun")

    def _open_store(self) -> Store:
        store = open_writable(self._settings)
        if told := open_to_others(self._settings.store.url):
            self._log(told)
        return store

    def _beside_link(self, driver: LinkDriver, store: Store) -> Beside:
        return Beside(driver.link, self._settings, store, driver.is_ours, self._log)

    def _drive(self, driver: LinkDriver) -> None:
        last = ""
        while not self._stop.wait(TURN_S):
            try:
                sentence = driver.turn()
                self._refused.pop(driver.link.name, None)
            except StoreError as error:
                sentence = f"{driver.link.name}: {error}"
            except RefusedError as error:
                # Its clusters are not the link's: that is its own trouble, until there is no link that has none.
                sentence = f"{driver.link.name}: refused: {error}; {error.hint}"
                self._refused[driver.link.name] = error
                if len(self._refused) == len(self._links):
                    self._failure = error
                    self._stop.set()
                    return
                self._stop.wait(REFUSED_AGAIN_S)
            except TwinshoreError as error:
                self._failure = error
                self._stop.set()
                return
            except Exception as error:
                # A link that nobody drives must not look as if it ran.
                self._failure = TwinshoreError(f"link {driver.link.name}: {type(error).__name__}: {error}")
                self._stop.set()
                return
            if sentence != last:
                last = sentence
                self._log(sentence)
