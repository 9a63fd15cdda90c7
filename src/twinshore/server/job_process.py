"""One job in a process of its own: it runs the verb, as the command line does, and writes down what the verb prints.

The process holds the job's lease. So the job goes on when its worker dies, and another worker takes it over only when
this process is dead too.
"""

from __future__ import annotations

import io
import json
import logging
import os
import queue
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import typer

from twinshore.cli.app import INTERNAL_ERROR_EXIT_CODE, build_command, print_error, verb_caller
from twinshore.config.errors import RefusedError, StoreError, TwinshoreError
from twinshore.config.model import Plan
from twinshore.config.sentences import escape_line
from twinshore.config.settings import load_settings
from twinshore.kafka.clock import wall_ms
from twinshore.runtime.lease_keeper import SeenLease, earlier_readings, exclusive
from twinshore.runtime.process import INTERRUPTED_EXIT_CODE, raise_on_interrupt
from twinshore.server.core.catalogue import JSON, Operation
from twinshore.server.core.jobs import JobPlan, ended, has_ended, is_held, plan_change, planned
from twinshore.server.verbs import operation_of
from twinshore.state.core.platform_values import JobLine, JobRow, JobState
from twinshore.state.opening import open_or_create
from twinshore.state.platform import JOB_LEASE, JOB_LINES_MAX
from twinshore.state.store import Store
from twinshore.switch.core.steps import SwitchState
from twinshore.switch.operations.show import SwitchView

log = logging.getLogger(__name__)

FLUSH_S: Final = 0.2
STORE_RETRY_S: Final = 1.0
# How long a job that has ended tries to say so.
END_TIMEOUT_S: Final = 900
REFUSED: Final = 2


def job_lease(job: str) -> str:
    return f"{JOB_LEASE}{job}"


def run_job(settings: str, job: str, worker: str, readings: Mapping[str, SeenLease]) -> None:
    """The process's whole work. `settings`: the file's path. `readings`: of leases that the worker has watched."""
    earlier_readings.update(readings)
    os.setpgid(0, 0)  # a signal to the worker's terminal is not for its jobs
    raise_on_interrupt()
    loaded = load_settings(Path(settings), os.environ)
    with open_or_create(loaded) as store, exclusive(job_lease(job), store, worker):
        row = store.jobs.of(job)
        if row is None or has_ended(row) or row.worker != worker:
            return
        printer = JobPrinter(store, row)
        sys.stdout = sys.stderr = printer
        printer.start()
        try:
            exit_code, sentence, plan = JobRun(store, row, settings).result()
            if plan is not None and plan.decisions and not exit_code:
                printer.forget()  # the plan has the same sentences
        finally:
            sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__
            printer.close()
        said = "its lines have the answer, in JSON" if json.loads(row.arguments).get(JSON) else printer.said
        finish(store, row, exit_code, sentence, said, plan)


class JobPrinter(io.TextIOBase):
    """Takes what the verb prints, and writes it to the store line by line. While the store is away lines are kept. Also
    hears that the job is cancelled or another process's, and interrupts the verb as Ctrl-C does. What a plan prints is
    held to the end.
    """

    def __init__(self, store: Store, row: JobRow) -> None:
        self._store, self._row, self._job = store, row, row.id
        self._holds = row.state is JobState.PLANNING
        self._number = store.jobs.last_line(row.id)
        self._part = self.said = ""
        self._lines: queue.SimpleQueue[JobLine] = queue.SimpleQueue()
        self._unwritten: list[JobLine] = []
        self._closed = threading.Event()
        self._is_interrupted = False
        self._thread = threading.Thread(target=self._work, name="job lines", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def isatty(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        *whole, self._part = (self._part + text).split("\n")
        for line in whole:
            self._put(line)
        return len(text)

    def _put(self, line: str) -> None:
        self._number += 1
        self.said = line or self.said
        if self._number < JOB_LINES_MAX:
            self._lines.put(JobLine(self._job, self._number, wall_ms(), escape_line(line)))

    def forget(self) -> None:
        """Drops what was held."""
        self._part, self._number = "", -1
        self._lines = queue.SimpleQueue()

    def close(self) -> None:
        if self._part:
            self._put(self._part)
            self._part = ""
        if (more := self._number + 1 - JOB_LINES_MAX) > 0:
            self._lines.put(JobLine(self._job, JOB_LINES_MAX, wall_ms(), f"{more:,} lines more, which are not kept"))
        self._closed.set()
        self._thread.join()

    def _work(self) -> None:
        give_up_ms = 0
        while True:
            closing = self._closed.wait(FLUSH_S)
            while not self._lines.empty() and (closing or not self._holds):
                self._unwritten.append(self._lines.get())
            try:
                if self._unwritten:
                    self._store.jobs.print_lines(self._unwritten)
                    self._unwritten = []
                if closing:
                    return
                self._hear_cancel()
            except StoreError:
                if closing:
                    give_up_ms = give_up_ms or wall_ms() + 1000 * END_TIMEOUT_S
                    if wall_ms() > give_up_ms:
                        return
                    threading.Event().wait(STORE_RETRY_S)

    def _hear_cancel(self) -> None:
        if self._is_interrupted:
            return
        row = self._store.jobs.of(self._job)
        if row is None or row.cancelled_by or not is_held(row, self._row):
            self._is_interrupted = True
            os.kill(os.getpid(), signal.SIGINT)


class JobRun:
    """Runs the verb of a job, to plan it or to act."""

    def __init__(self, store: Store, row: JobRow, settings: str) -> None:
        self._store, self._row, self._settings = store, row, settings
        self._operation: Operation = operation_of(row.operation)
        self._plan: JobPlan | None = None
        # A verb that plans nothing was agreed to as a command.
        self._before = JobPlan.from_json(row.plan) if row.plan and self._operation.plans else None

    def result(self) -> tuple[int, str, JobPlan | None]:
        """Returns the exit code, the last sentence, and the plan if the job was only to be planned."""
        arguments = json.loads(self._row.arguments)
        is_planning = self._row.state is JobState.PLANNING
        operation = self._operation
        settings = ["--settings", self._settings] if operation.takes_settings else []
        verb_caller.name = self._row.requested_by
        verb_caller.on_plan = self._note if is_planning else self._check
        if is_planning:
            exit_code, sentence = run_verb(operation.words(arguments, operation.plan_options), settings)
            return exit_code, sentence, self._plan or JobPlan()
        verb_caller.begun = self._begin
        goes_on = self._resumption()
        if isinstance(goes_on, SwitchView):
            return (0 if goes_on.done else 1), goes_on.verdict(), None
        words = goes_on or operation.words(arguments, operation.act_options(arguments))
        exit_code, sentence = run_verb(words, settings)
        if goes_on and exit_code == REFUSED and isinstance(over := self._resumption(), SwitchView):
            return (0 if over.done else 1), over.verdict(), None  # the mirror was quicker, and turned it back
        if not goes_on and not exit_code and (left_out := self._change(whole=True)):
            return REFUSED, left_out.message, None
        return exit_code, sentence, None

    def _resumption(self) -> list[str] | SwitchView | None:
        """Returns the words that go on with what a dead process of this job began, or how that has ended since; None:
        nothing was begun.
        """
        if not self._row.subject or not self._operation.rule.resumes:
            return None
        found = self._store.switches.of(self._row.subject)
        if found is None:
            return None
        state = SwitchState.from_json(found.switch_state)
        view = SwitchView(state.id, state)
        if state.ended and not (view.done and state.left):
            return view
        verb_caller.on_plan = lambda _: None
        return [*self._operation.rule.resumes.split(), self._row.subject]

    def _note(self, plan: Plan[Any]) -> None:
        found = to_job_plan(plan)
        self._plan = self._plan.joined(found) if self._plan else found

    def _check(self, plan: Plan[Any]) -> None:
        """Refuses to act on another plan than the one that a person agreed to."""
        self._note(plan)
        if change := self._change(whole=False):
            raise change
        change_job(self._store, self._row, lambda row: row)  # refuses a job that went on without this process

    def _change(self, *, whole: bool) -> RefusedError | None:
        change = plan_change(self._before, self._plan or JobPlan(), whole=whole) if self._before else ""
        return RefusedError("server.plan-changed", change=change) if change else None

    def _begin(self, subject: str) -> None:
        """Writes down the switch that the verb is about to begin, before it does."""
        change_job(self._store, self._row, lambda row: replace(row, subject=subject))


def to_job_plan(plan: Plan[Any]) -> JobPlan:
    decisions = plan.decisions()
    return JobPlan(
        tuple(plan.shown),
        tuple(step.sentence(done=False) for step in plan.steps),
        tuple(plan.remarks),
        (decisions,) if decisions else (),
        plan.refusal.message if plan.refusal else "",
    )


def run_verb(words: list[str], settings: list[str]) -> tuple[int, str]:
    """Runs a verb as the command line does. Returns its exit code and, if it failed, why."""
    command = build_command()
    # Options end where a `--` stands.
    place = words.index("--") if "--" in words else len(words)
    words = [*words[:place], *settings, *words[place:]]
    try:
        ended_with = command.main(args=words, prog_name="twinshore", standalone_mode=False)
    except TwinshoreError as error:
        print_error(error, as_json="--json" in words)
        return REFUSED, error.message
    except (KeyboardInterrupt, typer.Abort):
        typer.echo("cancelled")
        return INTERRUPTED_EXIT_CODE, "cancelled"
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else 2, ""
    except Exception as error:
        if hasattr(error, "format_message"):  # the command line's own: a wrong value
            typer.echo(f"error: {error.format_message()}")
            return REFUSED, str(error.format_message())
        log.exception("a job failed by a mistake of Twinshore's own")
        typer.echo(f"error: a mistake of Twinshore's own: {type(error).__name__}: {error}")
        return INTERNAL_ERROR_EXIT_CODE, f"{type(error).__name__}: {error}"
    return ended_with if isinstance(ended_with, int) else 0, ""


def change_job(store: Store, mine: JobRow, change: Callable[[JobRow], JobRow]) -> JobRow:
    """Applies a change to the job as it is now. Raises RefusedError if it is not this process's any more. `mine`: as
    this process took it.
    """
    while True:
        row = store.jobs.of(mine.id)
        if row is None or not is_held(row, mine):
            raise RefusedError("server.job-changed", job=mine.id)
        if (saved := store.jobs.swap(row, change(row))) is not None:
            return saved


def finish(store: Store, mine: JobRow, exit_code: int, sentence: str, said: str, plan: JobPlan | None) -> None:
    """Writes down how the job ended. `said`: the last line. While the store is away it tries again."""

    def change(row: JobRow) -> JobRow:
        if plan is not None and not exit_code:
            return planned(row, plan, wall_ms())
        if plan is not None and plan.refusal:
            return planned(row, replace(plan, refusal=sentence or plan.refusal), wall_ms())
        return ended(row, exit_code, sentence or said, wall_ms())

    until, pause = wall_ms() + 1000 * END_TIMEOUT_S, threading.Event()
    while True:
        try:
            change_job(store, mine, change)
        except StoreError:
            if wall_ms() > until:
                raise
            pause.wait(STORE_RETRY_S)
        else:
            return
