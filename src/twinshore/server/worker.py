"""A worker: takes jobs from the store and gives each a process of its own; one more keeps the pages' snapshots.

A job whose process died is gone on with where its verb can resume, and else is *unknown*: nothing is done twice.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import secrets
import socket
import threading
from collections.abc import Callable, Mapping
from multiprocessing.process import BaseProcess
from operator import attrgetter
from pathlib import Path
from types import MappingProxyType
from typing import Generic, TypeVar

from twinshore.config.errors import StoreError
from twinshore.config.repeat_filter import RepeatFilter
from twinshore.config.settings import load_settings
from twinshore.kafka.clock import steady_s, wall_ms
from twinshore.runtime.lease_keeper import GRACE_S, LEASE_S, SeenLease
from twinshore.runtime.process import RestartPause
from twinshore.server.core.jobs import age_fault, ended, orphaned, slots, taken
from twinshore.server.job_process import REFUSED, job_lease, run_job
from twinshore.server.snapshot_writer import write_snapshots
from twinshore.server.verbs import operation_of, operations
from twinshore.state.core.lease_watch import LeaseWatch
from twinshore.state.core.platform_values import JobRow, JobState
from twinshore.state.core.values import LeaseRow
from twinshore.state.opening import open_or_create
from twinshore.state.store import Store
from twinshore.switch.core.steps import switch_lease

log = logging.getLogger(__name__)

POLL_S = 0.2
JOBS_MAX = 8
# After the last sign of life of a job's process.
TAKEOVER_S = LEASE_S + GRACE_S
# A job that was taken and has no lease yet: its process starts.
START_TIMEOUT_S = 30.0
CLEAN_INTERVAL_S = 3600.0
RESTART_PAUSE_S, RESTART_PAUSE_S_MAX = 0.2, 5.0
T = TypeVar("T")


class KeptProcess(Generic[T]):
    """A process that is started again when it has ended. `exit_code`: of the process; None while it runs."""

    def __init__(self, name: str, start: Callable[[], T], exit_code: Callable[[T], int | None]) -> None:
        self.process: T | None = None
        self._name, self._start, self._exit_code = name, start, exit_code
        self._restarts = RestartPause(RESTART_PAUSE_S, RESTART_PAUSE_S_MAX, RESTART_PAUSE_S_MAX)

    def keep(self) -> None:
        """Starts the process if it does not run; one that dies at once, later each time."""
        now_s = steady_s()
        if self.process is not None:
            code = self._exit_code(self.process)
            if code is None:
                return
            log.warning(f"the {self._name} process ended with exit code {code}")
            self.process = None
            self._restarts.end(now_s)
        if now_s >= self._restarts.due_s:
            self._restarts.begin(now_s)
            self.process = self._start()


class JobWorker:
    """Takes jobs until `stop` is set. Those that run then go on."""

    def __init__(self, settings: Path, stop: threading.Event) -> None:
        self._settings, self._stop = str(settings), stop
        self.name = f"{socket.gethostname()}, process {os.getpid()}, {secrets.token_hex(3)}"
        # Forked from a process without threads, which has loaded all that jobs need.
        self._forks = multiprocessing.get_context("forkserver")
        self._forks.set_forkserver_preload([run_job.__module__, write_snapshots.__module__])
        self._jobs: dict[str, BaseProcess] = {}
        self._watches: dict[str, _Watched] = {}
        self._snapshots = KeptProcess("snapshots", self._start_snapshots, attrgetter("exitcode"))
        self._cleaned_s = 0.0
        self._outage = RepeatFilter(log)

    def run(self) -> None:
        loaded = load_settings(Path(self._settings), os.environ)
        with open_or_create(loaded) as store:
            log.info(f"worker {self.name} takes jobs")
            while not self._stop.wait(POLL_S):
                try:
                    self._turn(store)
                    self._outage.well("the store answers again")
                except StoreError as error:
                    self._outage.say(error.message)
        if self._snapshots.process is not None:
            self._snapshots.process.terminate()

    def _turn(self, store: Store) -> None:
        self._snapshots.keep()
        for job in [job for job, process in self._jobs.items() if not process.is_alive()]:
            self._jobs.pop(job).join()
        rows = store.jobs.for_workers()
        for row in rows:
            if row.id in self._jobs or row.operation not in operations():  # a verb of another version waits for it
                continue
            if row.worker:
                self._watch(store, row)
            elif fault := age_fault(row, wall_ms()):
                store.jobs.swap(row, ended(row, REFUSED, fault, wall_ms()))
            elif len(self._jobs) < slots(row, JOBS_MAX):
                self._take(store, row)
        for job in self._watches.keys() - {row.id for row in rows if row.worker}:
            del self._watches[job]
        if steady_s() - self._cleaned_s > CLEAN_INTERVAL_S and not store.jobs.remove_old(wall_ms()):
            self._cleaned_s = steady_s()

    def _start_snapshots(self) -> BaseProcess:
        return self._start(write_snapshots, self._settings, self.name, os.getpid())

    def _take(self, store: Store, row: JobRow, readings: Mapping[str, SeenLease] = MappingProxyType({})) -> None:
        mine = store.jobs.swap(row, taken(row, self.name, wall_ms()))
        if mine is not None:
            self._watches.pop(row.id, None)
            self._jobs[row.id] = self._start(run_job, self._settings, row.id, self.name, dict(readings))

    def _start(self, work: object, *arguments: object) -> BaseProcess:
        process = self._forks.Process(target=work, args=arguments, daemon=False)  # type: ignore[arg-type]
        process.start()
        return process

    def _watch(self, store: Store, row: JobRow) -> None:
        """Watches a job that a process took which is not this worker's. It is dead once its lease has run out here, and
        so is what it began.
        """
        watched = self._watches.setdefault(row.id, _Watched(steady_s()))
        resumes = operation_of(row.operation).rule.resumes
        names = [job_lease(row.id), *([switch_lease(row.subject)] if row.subject else [])]
        leases = {name: store.leases.read(name) for name in names}
        are_free = [watched.observe(name, lease) for name, lease in leases.items()]
        own = leases[names[0]]
        is_starting = own is None or own.released
        if not all(are_free) or (is_starting and steady_s() - watched.since_s < START_TIMEOUT_S):
            return
        del self._watches[row.id]
        if row.state is not JobState.PLANNING and not resumes:  # a plan changes nothing
            store.jobs.swap(row, orphaned(row, wall_ms()))
            return
        self._take(store, row, watched.readings)


class _Watched:
    """The leases of another process's job, watched from `since_s` on. `readings`: what they were first seen to be, from
    which the job's next process goes on watching.
    """

    def __init__(self, since_s: float) -> None:
        self.since_s = since_s
        self.readings: dict[str, SeenLease] = {}
        self._watches: dict[str, LeaseWatch] = {}

    def observe(self, name: str, lease: LeaseRow | None) -> bool:
        """Whether the lease is free."""
        now_s = steady_s()
        if lease is not None and (name not in self.readings or self.readings[name][0] != lease):
            self.readings[name] = lease, now_s
        return self._watches.setdefault(name, LeaseWatch(LEASE_S, GRACE_S)).observe(lease, now_s)
