"""`twinshore mirror run`: begins and ends links as they are added and removed, until told to stop."""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

from twinshore.config.errors import RefusedError, StoreError, TwinshoreError
from twinshore.config.model import Link
from twinshore.config.repeat_filter import describe_error
from twinshore.config.settings import Settings
from twinshore.replication import task_pool as engines
from twinshore.replication.controller import LinkController
from twinshore.replication.coordinator_server import CoordinatorServer
from twinshore.replication.core.model import STANDBY, STOPPED, WAITING, InactiveLink
from twinshore.replication.core.planner import default_task_count, spark_task_count
from twinshore.replication.links import LinkRegistry, LinkSet, adopt_settings
from twinshore.replication.metrics import Meters, MetricsService
from twinshore.replication.operations.run_plan import check_chosen_links, find_refused_links, prepare_start_message
from twinshore.replication.recorder import ProgressRecorder
from twinshore.replication.task_pool import TaskEngine, TaskPool
from twinshore.runtime import process
from twinshore.runtime.endpoints import LinkContext, LinkService, StartService
from twinshore.runtime.lease_keeper import SeenLease, read_leases
from twinshore.runtime.logging import OutageLog
from twinshore.runtime.scheduler import UNTIL_WOKEN, process_scheduler, supervise, thread_failures
from twinshore.runtime.wait_report import WaitReporter, report_waits_until
from twinshore.state.database import readable_by_others
from twinshore.state.store import Store, open_store

log = logging.getLogger(__name__)

TURN_INTERVAL_S = 0.1
# After a long turn, as when many links share the machine, the pause is longer; never longer than this.
PAUSE_RATIO, PAUSE_S_MAX = 3.0, 1.0
REFUSED_RETRY_S = 2.0
LINK_CHANGED = "the link was changed; it starts again with its new values"
START_RETRY_S = 15.0
STOP_MARGIN_S = 60.0  # beyond the wait for attempts: a cluster's response, and the link's companions


class ControllerLoop:
    """Runs one controller's turns. `refused` gets why the link must not run, None once all is well; `fail` gets a fatal
    error.
    """

    def __init__(
        self,
        controller: LinkController,
        outages: OutageLog,
        refused: Callable[[str, RefusedError | None], None],
        fail: Callable[[TwinshoreError], None],
    ) -> None:
        self._controller, self._outages, self._refused, self._fail = controller, outages, refused, fail
        self._said = ""
        self._failed = False
        link = controller.link
        self._task = process_scheduler.every(
            f"link {link.name}", self._turn, asks=(link.source, link.target), first_s=TURN_INTERVAL_S
        )

    def alive(self) -> bool:
        return not self._failed

    def close(self, within_s: float | None) -> None:
        """`within_s`: how long a running turn may take to end; None: without limit."""
        self._task.close(within_s)
        self._refused(self._controller.link.name, None)

    def _turn(self) -> float:
        name, begun_s = self._controller.link.name, time.monotonic()
        pause_s, level = TURN_INTERVAL_S, logging.INFO
        try:
            sentence = self._controller.turn()
            self._refused(name, None)
        except StoreError as error:
            sentence, level = f"{name}: {error}", logging.WARNING
        except RefusedError as error:
            # The clusters are not the link's: fatal only when every link is refused.
            sentence, level = f"{name}: refused: {error}", logging.ERROR
            self._refused(name, error)
            pause_s = REFUSED_RETRY_S
        except TwinshoreError as error:
            return self._end(error)
        except Exception as error:
            # A link without a controller must not look as if it ran.
            return self._end(TwinshoreError(f"link {name}: {type(error).__name__}: {error}"))
        self._say(sentence, level)
        return max(pause_s, min(PAUSE_S_MAX, PAUSE_RATIO * (time.monotonic() - begun_s)))

    def _say(self, sentence: str, level: int) -> None:
        """Logs changes. A cluster that does not answer is logged once for all links."""
        link = self._controller.link
        waits = sentence.startswith(f"{link.name}: {WAITING}: ")
        told = waits and any(self._outages.has_reported(cluster) for cluster in (link.source, link.target))
        if sentence != self._said and not told:
            self._said = sentence
            log.log(logging.WARNING if waits else level, sentence, extra={"link": link.name})

    def _end(self, error: TwinshoreError) -> float:
        self._failed = True
        self._fail(error)
        return UNTIL_WOKEN


class RunningLink:
    def __init__(
        self, link: Link, controller: LinkController, companions: Sequence[LinkService], drive: ControllerLoop
    ) -> None:
        self.link, self.controller = link, controller
        self._companions, self._drive = companions, drive
        self._ending: threading.Thread | None = None

    def alive(self) -> bool:
        return self._ending is not None or self._drive.alive()

    def end(self, stop_s: float, now: InactiveLink | None, then: Callable[[], None] | None = None) -> None:
        """Begins to end the link in a thread of its own. Attempts have `stop_s` to finish. `now`: the status
        afterwards; None when the whole mirror was stopped. `then` is called last; when given, the process runs on, and
        the link may begin again.
        """
        self._drive.close(0.0)

        def work() -> None:
            # A turn that still waits for a cluster would open tasks again after the link has begun again elsewhere.
            turn_s = stop_s if then is None else None
            for part in (partial(self._end, stop_s, now, turn_s=turn_s), then or (lambda: None)):
                try:
                    part()
                except Exception as error:
                    name = self.link.name
                    log.error(f"{name}: it did not end in good order: {describe_error(error)}", extra={"link": name})

        self._ending = threading.Thread(target=work, name=f"end of {self.link.name}", daemon=True)
        self._ending.start()

    def ended(self, within_s: float = 0.0) -> bool:
        if self._ending is not None:
            self._ending.join(within_s)
        return self._ending is not None and not self._ending.is_alive()

    def _end(self, stop_s: float, now: InactiveLink | None, *, turn_s: float | None) -> None:
        clean = False

        def stop() -> None:
            nonlocal clean
            clean = self.controller.stop(time.monotonic() + stop_s)

        # Ends every part even if one fails, the last first: otherwise the lease would be renewed for ever.
        with ExitStack() as parts:
            parts.callback(lambda: self.controller.close(clean=clean, now=now))
            parts.callback(stop)
            parts.callback(self._drive.close, turn_s)
            for companion in reversed(self._companions):
                parts.callback(companion.close)


def start_link(
    link: Link,
    controller: LinkController,
    starts: Sequence[StartService],
    context: LinkContext,
    drive: Callable[[LinkController], ControllerLoop],
) -> RunningLink:
    """Starts companions, then the loop; closes all if one fails. A loop begun earlier would hold the lease while
    nothing replicates.
    """
    with ExitStack() as undone:
        undone.callback(controller.close, clean=True)
        companions: list[LinkService] = []
        for start in starts:
            companions.append(start(context))
            undone.callback(companions[-1].close)
        running = RunningLink(link, controller, companions, drive(controller))
        undone.pop_all()
    return running


class LinkSupervisor:
    """Runs at most `links_max` links; others wait. `begin` starts a link; `leave` is called when one has ended while
    the process runs on.
    """

    def __init__(
        self,
        registry: LinkRegistry,
        begin: Callable[[Link], RunningLink],
        leave: Callable[[Link], None],
        *,
        links_max: int,
        stop_s: float,
    ) -> None:
        self._registry, self._begin, self._leave, self._links_max = registry, begin, leave, links_max
        self._stop_s = stop_s
        self._running: dict[str, RunningLink] = {}
        self._ending: dict[str, RunningLink] = {}
        # Links that could not begin, as they were then, why, and when they are tried again.
        self._failed: dict[str, tuple[Link, str, float]] = {}
        # Those that wait for a free slot.
        self._waiting: set[str] = set()

    def turn(self) -> None:
        wanted = self._registry.wanted()
        for name in [name for name, running_link in self._ending.items() if running_link.ended()]:
            del self._ending[name]
        for name in [name for name, running_link in self._running.items() if wanted.get(name) != running_link.link]:
            self._end(name, gone=name not in wanted)
        self._failed = {name: failed for name, failed in self._failed.items() if wanted.get(name) == failed[0]}
        for name, link in wanted.items():
            rests = name in self._failed and time.monotonic() < self._failed[name][2]
            if name not in self._running and name not in self._ending and not rests:
                self._start(link)

    def left_s(self, link: str) -> float:
        """Seconds for which the link's lease still holds; 0: not run here."""
        running_link = self._running.get(link) or self._ending.get(link)
        return running_link.controller.left_s() if running_link else 0.0

    def alive(self) -> bool:
        return all(link.alive() for link in list(self._running.values()))

    def close(self, why: str = "") -> None:
        """Ends all links at once. `why`: the failure that ended the mirror, if any."""
        now = InactiveLink(STOPPED, f"the mirror ended: {why}") if why else None
        for name, link in self._running.items():
            link.end(self._stop_s, now)
            self._ending[name] = link
        self._running = {}
        until_s = time.monotonic() + 2 * self._stop_s + STOP_MARGIN_S
        for link in self._ending.values():
            link.ended(max(0.0, until_s - time.monotonic()))

    def _start(self, link: Link) -> None:
        if len(self._running) + len(self._ending) >= self._links_max:
            if link.name not in self._waiting:
                waits = f"waits: this mirror started with room for {self._links_max} links; start it again"
                log.error(f"{link.name}: {waits}", extra={"link": link.name})
            self._waiting.add(link.name)
            return
        self._waiting.discard(link.name)
        try:
            self._running[link.name] = self._begin(link)
            self._failed.pop(link.name, None)
        except Exception as error:
            # Other links run on. The cause may pass by itself, as a lack of threads or files does.
            why = describe_error(error)
            if link.name not in self._failed or self._failed[link.name][1] != why:
                again = f"tried again every {START_RETRY_S:.0f} s"
                log.warning(f"{link.name}: cannot start: {why}; {again}", extra={"link": link.name})
            self._failed[link.name] = link, why, time.monotonic() + START_RETRY_S

    def _end(self, name: str, *, gone: bool) -> None:
        # Attempts ask all the time how long the lease holds, so the link is always in one of both.
        link = self._ending[name] = self._running[name]
        del self._running[name]
        now = InactiveLink(STOPPED, self._registry.why_gone(name)) if gone else InactiveLink(STANDBY, LINK_CHANGED)
        log.info(f"{name}: {now.sentence}", extra={"link": name})
        link.end(self._stop_s, now, lambda: self._leave(link.link))


# Slots for links that are added later: an embedded Spark's free slots cost nothing.
EXTRA_LINKS = 32
WAIT_REPORTED_S = 1.0
STARTING_SENTENCE = "the mirror starts: Spark first, which takes some seconds, then it takes the link over"


@dataclass(frozen=True, slots=True)
class MirrorContext:
    """What the links of one process share. `owner`: this process in leases; `tasks`: tasks of each link; `leases`: as
    before Spark started.
    """

    owner: str
    leases: Mapping[str, SeenLease]
    tasks: int
    store: Store
    registry: LinkRegistry
    recorder: ProgressRecorder
    instruments: MetricsService
    engine: TaskEngine
    coordinator: CoordinatorServer
    task_pool: TaskPool
    outages: OutageLog

    def driver_of(self, link: Link) -> LinkController:
        """Returns a controller, and begins to measure the link's source."""
        settings = self.registry.settings_around(link)
        controller = LinkController(
            link,
            settings,
            store=self.store,
            coordinator=self.coordinator,
            task_pool=self.task_pool,
            recorder=self.recorder,
            owner=self.owner,
            tasks=self.tasks,
            outages=self.outages,
            seen=self.leases.get(f"link {link.name}"),
        )
        try:
            self.instruments.watch(lambda: controller.link, settings.cluster(link.source), controller.lease.generation)
        except BaseException:
            controller.close(clean=True)
            self.leave(link)
            raise
        return controller

    def leave(self, link: Link) -> None:
        """Forgets the link, so that another controller may begin."""
        self.instruments.leave(link)
        self.recorder.leave(link.name)

    def close(self) -> None:
        """Closes all; no link may run any more."""
        for close in (self.instruments, self.task_pool, self.coordinator, self.recorder, self.store, self.engine):
            close.close()


class Mirror:
    """Runs these links, or all. `beside` starts each link's companions."""

    def __init__(self, settings: Settings, names: Sequence[str], beside: Sequence[StartService] = ()) -> None:
        links = settings.chosen(names)
        check_chosen_links(settings, links)
        self._settings = settings
        self._names = [link.name for link in links] if names else []
        self._outages = OutageLog()
        self._beside = beside
        self._stop = threading.Event()
        self._failure: TwinshoreError | None = None
        self._refused: dict[str, RefusedError] = {}
        self._owner = f"{socket.gethostname()} process {os.getpid()} {uuid.uuid4().hex[:8]}"

    def stop(self) -> None:
        self._stop.set()

    def run(self) -> None:
        """Runs until `stop`; raises the failure that ended the mirror."""
        process.on_shutdown_signal(self.stop)
        threading.excepthook = thread_failures.hear
        mirror = self._settings.mirror
        store = self._open_store()
        begins = self._take_links(store)
        registry = LinkRegistry(self._settings, store, begins, self._names)
        links = list(registry.wanted().values())
        leases = read_leases(store, [f"link {link.name}" for link in links])
        self._check_addresses(links, store)
        meters = Meters(mirror.ends_s)
        recorder = ProgressRecorder(store, self._owner, mirror.progress_s, meters.lag)
        instruments = MetricsService(mirror, links, store, recorder, meters)
        new = self._say_first(links, store, recorder)
        cores = os.cpu_count() or 1
        tasks, links_max = mirror.tasks_per_link or default_task_count(cores), len(links) + EXTRA_LINKS
        engine = engines.open_engine(mirror, tasks * links_max, self._stop)
        if engine is None:
            self._never_begun(new, instruments, recorder, store)
            return
        coordinator = CoordinatorServer(engine.host, allowed_s=lambda link: roster.left_s(link), take=instruments.take)
        task_pool = TaskPool(
            coordinator, mirror.task_run_s, engine.ride, spark_task_count(cores, tasks, mirror.spark_tasks), engine.end
        )
        parts = (store, registry, recorder, instruments, engine, coordinator, task_pool, self._outages)
        shared = MirrorContext(self._owner, leases, tasks, *parts)
        begin = partial(self._begin, shared)
        roster = LinkSupervisor(registry, begin, shared.leave, links_max=links_max, stop_s=mirror.stop_s)
        supervise(lambda: registry.follow(self._stop), "links")
        try:
            self._until_stopped(roster, shared)
            roster.close(self._failure.message if self._failure else "")
        finally:
            shared.close()
        if self._failure:
            raise self._failure
        log.info("stopped in good order")

    def _take_links(self, store: Store) -> LinkSet:
        try:
            begins = adopt_settings(self._settings, store, by=f"the settings on {socket.gethostname()}")
            for difference in begins.differences:
                log.warning(f"{difference}; see `twinshore link list`", extra={"link": difference.link})
            self._settings = self._settings.with_links(begins.links)
            check_chosen_links(self._settings, self._settings.chosen(self._names))
        except BaseException:
            store.close()
            raise
        return begins

    def _begin(self, shared: MirrorContext, link: Link) -> RunningLink:
        controller = shared.driver_of(link)
        settings = shared.registry.settings_around(link)
        context = LinkContext(link, settings, shared.store, controller.is_ours, self._outages)
        refused = partial(self._note_refused, shared.registry)
        loop = partial(ControllerLoop, outages=self._outages, refused=refused, fail=self._fail)
        try:
            return start_link(link, controller, self._beside, context, loop)
        except BaseException:
            shared.leave(link)
            raise

    def _check_addresses(self, links: Sequence[Link], store: Store) -> None:
        """Raises RefusedError, before Spark starts, when every link's addresses lead to wrong clusters."""
        over = threading.Event()
        reporter = WaitReporter(lambda said: log.warning(f"{said} the mirror keeps trying"), WAIT_REPORTED_S)
        report_waits_until(over, reporter)
        try:
            refused = find_refused_links(links, self._settings, store)
        finally:
            over.set()
        if len(refused) == len(links):
            store.close()
            raise next(iter(refused.values()))

    def _until_stopped(self, roster: LinkSupervisor, shared: MirrorContext) -> None:
        while not self._stop.wait(TURN_INTERVAL_S):
            roster.turn()
            if roster.alive():
                shared.instruments.beat()
            if not shared.engine.alive():
                self._failure = TwinshoreError("Spark's driver has died", hint="start the mirror again")
                self._stop.set()

    def _say_first(self, links: Sequence[Link], store: Store, recorder: ProgressRecorder) -> list[str]:
        """Reports what there is to replicate while Spark starts, which takes some seconds.

        Links without a status, or with one that says stopped, get the status that they start, and are returned. The
        last status of a mirror that fell silent stays until this one replicates.
        """
        names = ", ".join(link.name for link in links)
        log.info(f"{names}: starting Spark on {self._settings.mirror.spark.master}, which takes some seconds")
        silent = {status.link for status in store.links.statuses() if status.state != STOPPED}
        new = [link.name for link in links if link.name not in silent]
        for name in new:
            recorder.say(name, InactiveLink(STANDBY, STARTING_SENTENCE), 0)
        looks = [prepare_start_message(link, self._settings, store) for link in links]

        def say() -> None:
            for link, look in zip(links, looks, strict=True):
                sentence = look()
                if not self._stop.is_set():
                    log.info(sentence, extra={"link": link.name})

        threading.Thread(target=say, name="start messages", daemon=True).start()
        return new

    def _never_begun(
        self, new: list[str], instruments: MetricsService, recorder: ProgressRecorder, store: Store
    ) -> None:
        """Corrects the statuses after a stop while Spark started."""
        for name in new:
            recorder.say(name, InactiveLink(STOPPED, "the mirror was stopped before it had begun"), 0)
        for close in (instruments.close, recorder.close, store.close):
            close()
        log.info("stopped before anything had begun")

    def _open_store(self) -> Store:
        """Opens the store; StoreError when that fails, or when it is not writable."""
        settings = self._settings.store
        store = open_store(settings.url, settings.password)
        try:
            store.leases.check_writable()
        except BaseException:
            store.close()
            raise
        if told := readable_by_others(settings.url):
            log.warning(told)
        return store

    def _note_refused(self, registry: LinkRegistry, name: str, error: RefusedError | None) -> None:
        """Fails the mirror when no link is left that may run."""
        if error is None:
            self._refused.pop(name, None)
            return
        self._refused[name] = error
        if self._refused.keys() >= registry.wanted().keys():
            self._fail(error)

    def _fail(self, error: TwinshoreError) -> None:
        self._failure = error
        self._stop.set()
