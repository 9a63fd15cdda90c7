"""`twinshore mirror run`: one process for all links that there are, until it is told to stop."""

from __future__ import annotations

import os
import socket
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from twinshore.fleet import Link, RefusedError, TwinshoreError
from twinshore.fleet.settings import Settings
from twinshore.links.known import Known, taken
from twinshore.links.link_state import STANDBY, STOPPED, Idle
from twinshore.links.registry import Registry
from twinshore.mirror.driver import engine as engines
from twinshore.mirror.driver.desk import Desk
from twinshore.mirror.driver.engine import Engine
from twinshore.mirror.driver.first_words import check_chosen, first_words, open_writable, refusals
from twinshore.mirror.driver.link_driver import LinkDriver
from twinshore.mirror.driver.plan import lanes_for
from twinshore.mirror.driver.recorder import Recorder
from twinshore.mirror.driver.roster import Drive, LinkRoster, Running, begun
from twinshore.mirror.driver.sharing import tasks_for
from twinshore.mirror.driver.tides import Tides
from twinshore.mirror.metrics.collector import Instruments
from twinshore.mirror.metrics.meters import Meters
from twinshore.service import signals
from twinshore.service.cause_log import with_causes
from twinshore.service.companions import Beside, Start
from twinshore.service.lease_keeper import SeenLease, seen_leases
from twinshore.service.waits import Teller, tell_waits_until
from twinshore.service.workers import failures, keep_on
from twinshore.store import Store, open_to_others

TURN_S = 0.1
# Room for links that are added while it runs: an embedded Spark's free slots cost nothing.
LINKS_MORE = 32
WAIT_TOLD_S = 1.0
STARTING = "the mirror starts: Spark first, which takes some seconds, then it takes the link over"


@dataclass(frozen=True, slots=True)
class Shared:
    """`owner` is the process, as leases name it; `lanes` of each link. `leases`: as they stood before Spark started."""

    owner: str
    leases: Mapping[str, SeenLease]
    lanes: int
    store: Store
    registry: Registry
    recorder: Recorder
    instruments: Instruments
    engine: Engine
    desk: Desk
    tides: Tides
    log: Callable[[str], None]

    def driver_of(self, link: Link) -> LinkDriver:
        """A driver for the link, whose source is looked at from now on."""
        settings = self.registry.settings_around(link)
        driver = LinkDriver(
            link,
            settings,
            store=self.store,
            desk=self.desk,
            tides=self.tides,
            recorder=self.recorder,
            owner=self.owner,
            lanes=self.lanes,
            log=self.log,
            seen=self.leases.get(f"link {link.name}"),
        )
        try:
            self.instruments.watch(lambda: driver.link, settings.cluster(link.source), driver.lease.generation)
        except BaseException:
            driver.close(clean=True)
            self.leave(link)
            raise
        return driver

    def leave(self, link: Link) -> None:
        """The link's driver has ended, and another may begin."""
        self.instruments.leave(link)
        self.recorder.leave(link.name)

    def close(self) -> None:
        """Once no link runs any more."""
        for close in (self.instruments, self.tides, self.desk, self.recorder, self.store, self.engine):
            close.close()


class Mirror:
    """Runs links: those of these names, or all that there are. `log` gets one line per event;
    `beside` starts each link's companions."""

    def __init__(
        self, settings: Settings, names: Sequence[str], log: Callable[[str], None], beside: Sequence[Start] = ()
    ) -> None:
        links = settings.chosen(names)
        check_chosen(settings, links)
        self._settings = settings
        self._names = [link.name for link in links] if names else []
        self._log = with_causes(log)
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
        store = self._open_store()
        begins = self._take_links(store)
        registry = Registry(self._settings, store, begins, self._names, self._log)
        links = list(registry.wanted().values())
        leases = seen_leases(store, [f"link {link.name}" for link in links])
        self._check_addresses(links, store)
        meters = Meters(mirror.ends_s)
        recorder = Recorder(store, self._owner, mirror.receipts_s, self._log, meters.lag)
        instruments = Instruments(mirror, links, store, recorder, meters, self._log)
        new = self._say_first(links, store, recorder)
        cores = os.cpu_count() or 1
        lanes, links_max = mirror.lanes or lanes_for(cores), len(links) + LINKS_MORE
        engine = engines.begin(mirror, lanes * links_max, self._stop)
        if engine is None:
            self._never_begun(new, instruments, recorder, store)
            return
        desk = Desk(engine.host, allowed_s=lambda link: roster.left_s(link), take=instruments.take)
        tides = Tides(desk, mirror.tide_s, engine.ride, self._log, tasks_for(cores, lanes, mirror.tasks), engine.end)
        parts = (store, registry, recorder, instruments, engine, desk, tides, self._log)
        shared = Shared(self._owner, leases, lanes, *parts)
        roster = LinkRoster(
            registry,
            lambda link: self._begin(link, shared),
            shared.leave,
            links_max=links_max,
            stop_s=mirror.stop_s,
            log=self._log,
        )
        keep_on(lambda: registry.follow(self._stop), "links")
        try:
            self._until_stopped(roster, shared)
            roster.close(self._failure.message if self._failure else "")
        finally:
            shared.close()
        if self._failure:
            raise self._failure
        self._log("stopped in good order")

    def _take_links(self, store: Store) -> Known:
        """The links that there are, now that the store has taken what the settings say anew."""
        try:
            begins = taken(self._settings, store, by=f"the settings on {socket.gethostname()}")
            for difference in begins.differences:
                self._log(f"{difference}; see `twinshore link list`")
            self._settings = self._settings.with_links(begins.links)
            check_chosen(self._settings, self._settings.chosen(self._names))
        except BaseException:
            store.close()
            raise
        return begins

    def _begin(self, link: Link, shared: Shared) -> Running:
        driver = shared.driver_of(link)
        beside = Beside(link, shared.registry.settings_around(link), shared.store, driver.is_ours, self._log)
        refused = partial(self._note_refused, shared.registry)
        try:
            return begun(link, driver, self._beside, beside, lambda one: Drive(one, self._log, refused, self._fail))
        except BaseException:
            shared.leave(link)
            raise

    def _check_addresses(self, links: Sequence[Link], store: Store) -> None:
        """Before Spark starts: RefusedError where every link's addresses lead to clusters that are not its own."""
        over = threading.Event()
        tell_waits_until(over, Teller(lambda said: self._log(f"{said} the mirror goes on trying"), WAIT_TOLD_S))
        try:
            refused = refusals(links, self._settings, store)
        finally:
            over.set()
        if len(refused) == len(links):
            store.close()
            raise next(iter(refused.values()))

    def _until_stopped(self, roster: LinkRoster, shared: Shared) -> None:
        while not self._stop.wait(TURN_S):
            roster.turn()
            if roster.alive():
                shared.instruments.beat()
            if not shared.engine.alive():
                self._failure = TwinshoreError("Spark's driver has died", hint="start the mirror again")
                self._stop.set()

    def _say_first(self, links: Sequence[Link], store: Store, recorder: Recorder) -> list[str]:
        """Spark takes its time to start; whether there will be anything to carry is said meanwhile.

        Of links of which nobody has said a word, or that were stopped in good order, it is said that they start; these
        come back. What a mirror that fell silent said last stays until this one carries it: it says when that was.
        """
        names = ", ".join(link.name for link in links)
        self._log(f"{names}: starting Spark on {self._settings.mirror.spark.master}, which takes some seconds")
        silent = {word.link for word in store.links.statuses() if word.state != STOPPED}
        new = [link.name for link in links if link.name not in silent]
        for name in new:
            recorder.say(name, Idle(STANDBY, STARTING), 0)
        looks = [first_words(link, self._settings, store) for link in links]

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

    def _note_refused(self, registry: Registry, name: str, error: RefusedError | None) -> None:
        """Where there is no link that may run, neither may the mirror."""
        if error is None:
            self._refused.pop(name, None)
            return
        self._refused[name] = error
        if self._refused.keys() >= registry.wanted().keys():
            self._fail(error)

    def _fail(self, error: TwinshoreError) -> None:
        self._failure = error
        self._stop.set()
