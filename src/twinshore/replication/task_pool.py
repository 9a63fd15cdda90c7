"""Launches the attempts of tasks as Spark jobs, one job for each task or task group; the next stands by before one
ends.

A group's next attempt gets a standby of each task, some at a time; the old attempt ends when its last task has left. A
task that was running while an attempt died or froze runs alone for a while (`Quarantine`).
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol

from twinshore.config.sections.mirror import MirrorSettings
from twinshore.replication.coordinator_server import CoordinatorServer, TaskGroupAttemptId
from twinshore.replication.core.coordinator import TaskKey
from twinshore.replication.core.planner import (
    BROADCAST_GROUP_FIRST,
    BROADCAST_GROUPS_MAX,
    SPARK_TASKS_MIN,
    STANDBYS_MAX,
    Quarantine,
    assign_task_groups,
)
from twinshore.replication.task.core.messages import (
    SlotEnded,
    SlotTurn,
    StartTask,
    StopTaskGroup,
    TaskConfig,
    TaskGroupAlive,
    TaskGroupConfig,
)
from twinshore.replication.task.core.task_core import STANDBY_S_MAX
from twinshore.runtime.scheduler import supervise

log = logging.getLogger(__name__)

TASK_MODULES = ("twinshore.replication.task.runner",)


class TaskEngine(Protocol):
    """`ride` runs one attempt and returns a sentence on its end; raises when the Spark task died. `end` ends the job of
    that name from outside. `host`: where attempts reach the coordinator.
    """

    host: str

    def ride(self, order: str, name: str, /) -> str: ...

    def end(self, name: str, /) -> None: ...

    def alive(self) -> bool: ...

    def close(self) -> None: ...


def open_engine(settings: MirrorSettings, tasks: int, stop: threading.Event) -> TaskEngine | None:
    """Opens an engine for `tasks` tasks; None when `stop` came first."""
    # Loaded here: a command that only reads need not load Spark.
    from twinshore.replication.task.runner import run_tasks
    from twinshore.runtime.compile import build_in_background
    from twinshore.runtime.spark import SparkEngine, open_session

    session = open_session(settings, tasks, stop, TASK_MODULES)
    if session is None:
        return None
    if settings.spark.master.startswith("local"):
        build_in_background()
    return SparkEngine(session, run_tasks)


START_TIMEOUT_S = 30.0
# A group silent for so long is frozen, and another gets the tasks. If this were shorter, all tasks would change
# over again and again on a busy machine, where messages only come late.
FROZEN_AFTER_S = 15.0
# If this process was suspended for so long, as on a stopped machine, the tasks' silence is no sign.
DRIVER_STALL_S = 5.0
# A message of a task that died may still be unread.
LAST_MESSAGE_GRACE_S = 1.0
GROUP_RETRY_S_MAX = 5.0
# A group's attempt lasts longer the more tasks must change over: this many in the time of a single task's attempt.
TASKS_PER_ATTEMPT = 25


@dataclass(slots=True)
class TaskGroupAttempt:
    """One Spark task that runs a task group. `heard_s`: last message, 0: none yet. `missed`: silence was logged.
    `came`, `gone`: the connection was open, and broke, which Spark may report much later. `given_up`: Spark was asked
    to end the job. `turn`: the slot that runs now, if known.
    """

    attempt_id: TaskGroupAttemptId
    launched_s: float
    heard_s: float = 0.0
    leaving: bool = False
    missed: bool = False
    came: bool = False
    gone: bool = False
    given_up: bool = False
    turn: int = 0

    @property
    def task_group(self) -> int:
        return self.attempt_id.task_group


RunJob = Callable[[str, str], str]
EndJob = Callable[[str], None]


class TaskGroups:
    """All calls come from one thread. `run(order, name)` is the Spark job; `end(name)` ends one from outside;
    `over(slot, sentence, died)` gets how each slot ended. Logs nothing once `closed`.
    """

    def __init__(
        self,
        coordinator: CoordinatorServer,
        task_run_s: float,
        run: RunJob,
        over: Callable[[int, str, bool], None],
        end: EndJob,
        closed: threading.Event,
    ) -> None:
        self._coordinator, self._run_s, self._run, self._over = coordinator, task_run_s, run, over
        self._end, self._closed = end, closed
        self.suspects = Quarantine()
        self._attempts: dict[TaskGroupAttemptId, TaskGroupAttempt] = {}
        self._slots: dict[int, TaskGroupAttemptId] = {}
        self._tasks: dict[int, TaskKey] = {}
        self._next_run = self._next_slot = 0
        self._failures: dict[int, tuple[int, float]] = {}
        self._turned_s = self._stalled_s = -math.inf
        # Which tasks are over, what ended them, and when.
        self._ends: list[tuple[TaskGroupAttemptId, str, float]] = []
        self._lock = threading.Lock()

    # -- asked for single tasks

    def serving(self, task_group: int, now_s: float) -> TaskGroupAttemptId | None:
        """Returns the attempt that starts this group's tasks now."""
        there = self._coordinator.task_groups.there()
        able = [
            attempt.attempt_id
            for attempt in self._attempts.values()
            if attempt.task_group == task_group
            and attempt.attempt_id in there
            and not (attempt.leaving or attempt.given_up)
            and now_s - attempt.heard_s < FROZEN_AFTER_S
        ]
        return max(able, key=lambda attempt_id: attempt_id.run, default=None)

    def at(self, slot: int | None) -> TaskGroupAttemptId | None:
        return self._slots.get(-1 if slot is None else slot)

    def comes(self, slot: int) -> bool:
        """Whether the slot's task may still begin: its attempt is connected and not silent."""
        attempt = self._attempts.get(self._slots[slot]) if slot in self._slots else None
        return attempt is not None and not (attempt.missed or attempt.gone)

    def board(self, attempt_id: TaskGroupAttemptId, config: TaskConfig) -> int | None:
        """Starts a task in a slot; None: the attempt is gone."""
        self._next_slot += 1
        if not self._coordinator.task_groups.say(attempt_id, StartTask(self._next_slot, config)):
            return None
        self._slots[self._next_slot] = attempt_id
        self._tasks[self._next_slot] = config.link, config.task
        return self._next_slot

    def __len__(self) -> int:
        return sum(1 for attempt in self._attempts.values() if not attempt.given_up)

    def heirs(self) -> int:
        """Returns the number of standby attempts."""
        return sum(1 for attempt in self._attempts.values() if self._succeeds(attempt))

    # -- time

    def turn(self, wanted: Iterable[int], heirs_free: int, now_s: float) -> None:
        """Handles messages, launches wanted groups (`heirs_free` standbys at most), and stops unneeded attempts."""
        self._forgive(now_s)
        self._hear(now_s)
        # Frozen attempts first: the next one is to know what became of this one.
        for attempt in self._attempts.values():
            if attempt.heard_s and now_s - attempt.heard_s >= FROZEN_AFTER_S:
                self._miss(attempt, now_s)
            elif not (attempt.heard_s or attempt.given_up) and now_s - attempt.launched_s >= 2 * START_TIMEOUT_S:
                self._end_job(attempt, "no message since it was launched")
        wanted = set(wanted)
        for task_group in sorted(wanted):
            if self._due(task_group, heirs_free > 0, now_s):
                heirs_free -= self.serving(task_group, now_s) is not None
                self._launch(task_group, now_s)
        used = set(self._slots.values())
        for attempt in self._attempts.values():
            alive = attempt.heard_s and not attempt.missed
            serves = self.serving(attempt.task_group, now_s) == attempt.attempt_id
            needed = (serves and attempt.task_group in wanted) or attempt.attempt_id in used
            if alive and not attempt.leaving and not needed:
                attempt.leaving = self._coordinator.task_groups.say(attempt.attempt_id, StopTaskGroup())

    def _forgive(self, now_s: float) -> None:
        """Counts silence from now if this process was suspended, and blames no task."""
        if DRIVER_STALL_S <= now_s - self._turned_s < math.inf:
            self._stalled_s = now_s
            for attempt in self._attempts.values():
                attempt.heard_s = attempt.heard_s and max(attempt.heard_s, now_s)
        self._turned_s = now_s

    def _miss(self, attempt: TaskGroupAttempt, now_s: float) -> None:
        """Moves a frozen attempt's tasks at once; if still frozen later, has Spark end the job, which keeps a slot."""
        if not attempt.missed:
            attempt.missed = True
            tasks = len({self._tasks[slot] for slot, holder in self._slots.items() if holder == attempt.attempt_id})
            silent = f"frozen: no message for {FROZEN_AFTER_S:.0f} s"
            self._warn(f"{attempt.attempt_id}: {silent}; {tasks} tasks move to another Spark task")
            self._suspect(attempt.attempt_id, attempt.turn, now_s)
        if not attempt.given_up and now_s - attempt.heard_s >= 2 * FROZEN_AFTER_S:
            self._end_job(attempt, "still frozen")

    def _end_job(self, attempt: TaskGroupAttempt, why: str) -> None:
        attempt.given_up = True
        self._warn(f"{attempt.attempt_id}: {why}: Spark is asked to end its Spark task")
        self._end(str(attempt.attempt_id))

    def _hear(self, now_s: float) -> None:
        there = self._coordinator.task_groups.there()
        for attempt_id, word in self._coordinator.task_groups.words():
            attempt = self._attempts.get(attempt_id)
            match word:
                case TaskGroupAlive() if attempt:
                    attempt.heard_s, attempt.missed = now_s, False
                case SlotTurn(slot) if attempt:
                    attempt.turn = slot
                case SlotEnded(slot, sentence, died):
                    if self._left(slot):
                        self._over(slot, sentence, died)
        for attempt in self._attempts.values():
            connected = attempt.attempt_id in there
            attempt.came |= connected
            if attempt.came and not (connected or attempt.gone or attempt.missed or attempt.leaving):
                attempt.gone = True  # the next attempt is to know what became of this one, however late Spark tells
                self._suspect(attempt.attempt_id, attempt.turn, now_s)
        with self._lock:
            ends, self._ends = self._ends, []
        for end in ends:
            attempt_id, trouble, at_s = end
            if trouble and attempt_id in there and now_s - at_s < LAST_MESSAGE_GRACE_S:
                with self._lock:
                    self._ends.append(end)
            else:
                self._ended(attempt_id, trouble, now_s, died=attempt_id not in there)

    def _succeeds(self, attempt: TaskGroupAttempt) -> bool:
        """Whether an older attempt of the group still runs and is not frozen."""
        alive = [other for other in self._attempts.values() if not (other.missed or other.gone)]
        older = [other for other in alive if other.attempt_id.run < attempt.attempt_id.run]
        return any(other.task_group == attempt.task_group for other in older)

    def _due(self, task_group: int, heir_free: bool, now_s: float) -> bool:
        ours = [attempt for attempt in self._attempts.values() if attempt.task_group == task_group]
        if any(not attempt.heard_s and now_s - attempt.launched_s < START_TIMEOUT_S for attempt in ours):
            return False
        if now_s < self._failures.get(task_group, (0, 0.0))[1]:
            return False
        attempt_id = self.serving(task_group, now_s)
        if attempt_id is None:
            return True
        tasks = sum(1 for at in self._slots.values() if at == attempt_id)
        stagger = 1.0 + 0.3 * (0.37 * task_group % 1.0)
        length_s = self._run_s * stagger * max(1.0, tasks / TASKS_PER_ATTEMPT)
        return now_s - self._attempts[attempt_id].launched_s >= length_s and heir_free

    # -- Spark jobs

    def _launch(self, task_group: int, now_s: float) -> None:
        attempt_id = TaskGroupAttemptId(task_group, self._next_run)
        self._next_run += 1
        host, port = self._coordinator.reached_at()
        token = self._coordinator.task_groups.token
        order = TaskGroupConfig(attempt_id.task_group, attempt_id.run, host, port, token, self.suspects.tells(now_s))
        self._attempts[attempt_id] = TaskGroupAttempt(attempt_id, now_s)
        try:
            threading.Thread(target=self._ride, args=(attempt_id, order), name=str(attempt_id), daemon=True).start()
        except Exception as error:
            self._ended(attempt_id, f"it cannot start ({first_error_line(error)})", now_s, died=False)

    def _ride(self, attempt_id: TaskGroupAttemptId, order: TaskGroupConfig) -> None:
        trouble = ""
        try:
            sentence = self._run(order.to_json(), str(attempt_id))
            trouble = "" if sentence == "finished" else sentence
        except Exception as error:
            # Any error of Spark: the task, the worker or the executor is gone; the group's tasks begin again elsewhere.
            trouble = f"its Spark task died ({first_error_line(error)})"
        with self._lock:
            self._ends.append((attempt_id, trouble, time.monotonic()))

    def _ended(self, attempt_id: TaskGroupAttemptId, trouble: str, now_s: float, *, died: bool) -> None:
        """`died`: the worker is gone too."""
        if (attempt := self._attempts.pop(attempt_id, None)) and (attempt.missed or attempt.given_up):
            trouble = ""  # logged already: frozen, or never heard
        elif attempt and trouble and attempt.heard_s:
            self._suspect(attempt_id, attempt.turn if died and not attempt.gone else 0, now_s)
        # If Spark lost sight of an attempt that runs on, its tasks give way to their standbys, and then it ends.
        self._coordinator.task_groups.say(attempt_id, StopTaskGroup())
        left = [slot for slot, at in self._slots.items() if at == attempt_id]
        failures = self._failures.pop(attempt_id.task_group, (0, 0.0))[0] + 1
        if trouble:
            self._failures[attempt_id.task_group] = failures, now_s + min(GROUP_RETRY_S_MAX, 0.1 * 2**failures)
            self._warn(f"{attempt_id}: {trouble}; {len(left)} tasks start again")
        for slot in left:
            self._left(slot)
            self._over(slot, "finished", False)

    def _left(self, slot: int) -> bool:
        """Frees the slot; False: no attempt had it."""
        self._tasks.pop(slot, None)
        return self._slots.pop(slot, None) is not None

    def _suspect(self, attempt_id: TaskGroupAttemptId, turn: int, now_s: float) -> None:
        task = self._tasks.get(turn) if now_s - self._stalled_s >= FROZEN_AFTER_S else None
        if self.suspects.ended(task, now_s) and task:
            alone = "it gets a Spark task of its own, so that it ends no other link's tasks"
            self._warn(f"{task[0]} task {task[1]}: {attempt_id} ended in its turn: {alone}")

    def _warn(self, sentence: str) -> None:
        if not self._closed.is_set():
            log.warning(sentence)


def first_error_line(error: Exception) -> str:
    """Returns the line with the error in Spark's long text."""
    text = str(error).strip()
    for line in text.splitlines():
        if "Error" in line or "Exception" in line:
            return line.strip()[:200]
    return text.splitlines()[0][:200] if text else type(error).__name__


TURN_INTERVAL_S = 0.05
RETRY_S_MAX = 5.0
WAIT_REPORTED_S = 5.0
# Each standby that starts in a group connects to its brokers: so many at once.
GROUP_STARTS_MAX = 8
REGROUP_INTERVAL_S = 5.0
CHECK_INTERVAL_S = 0.5
# An attempt that was the holder and is no more has so long to end: then Spark ends the job.
END_TIMEOUT_S = 30.0
ENDED_GRACE_S = 5.0
# A standby in vain ends by itself before that: one that does not hangs.
STANDBY_TIMEOUT_S = STANDBY_S_MAX + END_TIMEOUT_S
# A task has no more attempts than so many, however they fail.
ATTEMPTS_MAX = 8


@dataclass(slots=True)
class TaskAttempt:
    """`slot`: the slot in a task group; None: a Spark task of its own. `held_s`: when last seen as holder, 0: never.
    `given_up`: Spark was asked to end the job.
    """

    launched_s: float
    slot: int | None = None
    held_s: float = 0.0
    given_up: bool = False

    def spent_s(self, now_s: float) -> float:
        """Seconds since the attempt was the holder; if it never was, since it should have ended."""
        return now_s - (self.held_s or self.launched_s + STANDBY_TIMEOUT_S)


@dataclass(slots=True)
class TaskAttempts:
    """A task's running attempts. `make` returns the next one's config."""

    make: Callable[[int], TaskConfig]
    stagger_s: float
    next_run: int = 0
    running: dict[int, TaskAttempt] = field(default_factory=dict)
    # Whether an attempt was launched since the task was opened.
    begun: bool = False
    together: str = ""
    failures: int = 0
    retry_at_s: float = 0.0
    # Whether the log says that no attempt begins.
    waits: bool = False
    # The task's group, and the bytes replicated in a second.
    task_group: int | None = None
    rate: float = 0.0
    carried: int = 0


class TaskPool:
    """Keeps attempts running for every open task. `run(order, name)` is the Spark job, `end(name)` ends one. When tasks
    and standbys exceed `tasks`, small ones share groups; 0: never.
    """

    def __init__(
        self,
        coordinator: CoordinatorServer,
        task_run_s: float,
        run: RunJob,
        tasks: int = 0,
        end: EndJob = lambda _: None,
    ) -> None:
        self._coordinator = coordinator
        self._closed = threading.Event()
        self._run_s = task_run_s
        self._run = run
        self._tasks = tasks
        self._end = end
        self._attempts: dict[TaskKey, TaskAttempts] = {}
        self._task_groups = TaskGroups(
            coordinator, task_run_s, run, self._left_group, self._end_spark_task, self._closed
        )
        self._aboard: dict[int, tuple[TaskAttempts, int, str]] = {}
        # The number of each task's next attempt, kept after closing: Spark jobs are ended by their names.
        self._numbers: dict[TaskKey, int] = {}
        # The tasks of the last assignment, and those that ran alone.
        self._dealt: tuple[frozenset[TaskKey], frozenset[TaskKey]] | None = None
        self._weighed_s = self._looked_s = 0.0
        # The group of each broadcast's tasks of one number.
        self._together: dict[tuple[str, int], int] = {}
        self._lock = threading.Lock()
        supervise(self._work, "runs")

    def open_task(self, key: TaskKey, make: Callable[[int], TaskConfig], *, together: str = "") -> None:
        """Keeps attempts of the task running. `together`: the broadcast whose tasks of this number share a group."""
        with self._lock:
            stagger_s = self._run_s * (0.37 * key[1] % 1.0) * 0.3
            self._attempts.setdefault(key, TaskAttempts(make, stagger_s, self._numbers.get(key, 0), together=together))
            # One that was closed a moment ago is new all the same: it gets a group before an attempt.
            self._dealt = None

    @property
    def apart(self) -> frozenset[TaskKey]:
        """Tasks in quarantine."""
        return self._task_groups.suspects.apart if self._tasks else frozenset()

    def close_link(self, link: str) -> None:
        """Launches no more attempts; the coordinator ends those that run."""
        with self._lock:
            for key in [key for key in self._attempts if key[0] == link]:
                del self._attempts[key]

    def close(self) -> None:
        self._closed.set()

    def _work(self) -> None:
        while not self._closed.wait(TURN_INTERVAL_S):
            with self._lock:
                now_s = time.monotonic()
                if now_s - self._looked_s >= CHECK_INTERVAL_S:
                    self._looked_s = now_s
                    self._look(now_s)
                self._deal(now_s)
                heirs = sum(_heirs(attempts, now_s) for attempts in self._attempts.values())
                boarding = sum(self._is_joining_group(key, attempts, now_s) for key, attempts in self._attempts.items())
                groups = [attempts.task_group for attempts in self._attempts.values()]
                wanted = {group for group in groups if group is not None}
                running = [attempt for attempts in self._attempts.values() for attempt in attempts.running.values()]
                alone = sum(attempt.slot is None and not attempt.given_up for attempt in running)
                heirs += self._task_groups.heirs()
                self._task_groups.turn(wanted, self._heirs_free(heirs, alone), now_s)
                for key, attempts in self._attempts.items():
                    self._tell_wait(key, attempts)
                    if not self._due(key, attempts, self._heirs_free(heirs, alone) > 0, boarding, now_s):
                        continue
                    if attempts.task_group is None:
                        heirs, alone = heirs + bool(attempts.running), alone + 1
                    else:
                        boarding += bool(attempts.running)
                    self._launch(key, attempts, now_s)

    def _see(self, key: TaskKey, attempts: TaskAttempts, now_s: float) -> None:
        holder = self._coordinator.holding(key)[0] if attempts.running else None
        if holder in attempts.running:
            attempts.running[holder].held_s = now_s
        for run, attempt in attempts.running.items():
            if attempt.slot is None and attempt.spent_s(now_s) >= END_TIMEOUT_S and not attempt.given_up:
                attempt.given_up = True
                name = f"{key[0]} task {key[1]} task run {run}"
                log.warning(f"{name}: replicates no more and does not end: Spark is asked to end its Spark task")
                self._end_spark_task(name)

    def _end_spark_task(self, name: str) -> None:
        """Asks Spark in a thread of its own, because the call blocks."""

        def ask() -> None:
            try:
                self._end(name)
            except Exception as error:
                log.warning(f"{name}: Spark does not end its Spark task ({first_error_line(error)})")

        try:
            threading.Thread(target=ask, name=f"end of {name}", daemon=True).start()
        except RuntimeError as error:
            log.warning(f"{name}: Spark is not asked to end its Spark task ({first_error_line(error)})")

    def _look(self, now_s: float) -> None:
        for key, attempts in self._attempts.items():
            self._see(key, attempts, now_s)
        suspects = self._task_groups.suspects
        if suspects.apart:
            there = suspects.apart & self._attempts.keys()
            manned = frozenset(key for key in there if self._coordinator.holding(key)[0] is not None)
            for key in suspects.turn(suspects.apart - manned, now_s):
                log.info(f"{key[0]} task {key[1]}: ran long enough: it may share a Spark task with others again")

    def _heirs_free(self, heirs: int, alone: int) -> int:
        """How many more standbys may have a Spark task. Tasks that move to groups may use all."""
        free = STANDBYS_MAX - heirs
        return min(free, self._tasks - alone - len(self._task_groups)) if self._tasks else free

    def _deal(self, now_s: float) -> None:
        """Assigns groups, after changes and every `REGROUP_INTERVAL_S`."""
        known = frozenset(self._attempts), self.apart
        if known == self._dealt and now_s - self._weighed_s < REGROUP_INTERVAL_S:
            return
        bound = self._bind()
        if not self._tasks:
            self._dealt, self._weighed_s = known, now_s
            return
        if (took_s := now_s - self._weighed_s) >= REGROUP_INTERVAL_S:
            self._weighed_s = now_s
            for key, carried in self._coordinator.carried_bytes().items():
                if attempts := self._attempts.get(key):
                    attempts.rate, attempts.carried = max(0, carried - attempts.carried) / took_s, carried
        self._dealt = known
        free = {key: attempts for key, attempts in self._attempts.items() if key not in bound}
        rates = {key: attempts.rate for key, attempts in free.items()}
        now = {key: attempts.task_group for key, attempts in free.items() if attempts.begun}
        tasks = max(SPARK_TASKS_MIN, self._tasks - len(set(bound.values())))
        for key, task_group in assign_task_groups(rates, now, tasks, self.apart).items():
            self._attempts[key].task_group = task_group

    def _bind(self) -> dict[TaskKey, int]:
        """Assigns tasks that read together to a group of their own, except those in quarantine."""
        found = {}
        for key, attempts in self._attempts.items():
            if attempts.together and key not in self.apart:
                place = attempts.together, key[1]
                most = max(1, (self._tasks - STANDBYS_MAX) // 2) if self._tasks else BROADCAST_GROUPS_MAX
                number = self._together.setdefault(place, BROADCAST_GROUP_FIRST + len(self._together) % most)
                found[key] = attempts.task_group = number
        return found

    def _tell_wait(self, key: TaskKey, attempts: TaskAttempts) -> None:
        wait_s = self._coordinator.waits_s(key)
        if wait_s > WAIT_REPORTED_S and not attempts.waits:
            why = "a broker of the target throttled the last one, whose requests may be appended until then"
            hint = "the quota is too small for this link"
            log.warning(f"{key[0]} task {key[1]}: no attempt starts for {wait_s:.0f} s: {why} (hint: {hint})")
        attempts.waits = wait_s > 0.0 and (attempts.waits or wait_s > WAIT_REPORTED_S)

    def _is_joining_group(self, key: TaskKey, attempts: TaskAttempts, now_s: float) -> bool:
        """Whether a standby is starting or ready in a group."""
        if len(attempts.running) < 2:
            return False
        run = max(attempts.running)
        last = attempts.running[run]
        if last.slot is None or not self._task_groups.comes(last.slot):
            return False
        return now_s - last.launched_s < START_TIMEOUT_S and self._coordinator.holding(key)[0] != run

    def _due(self, key: TaskKey, attempts: TaskAttempts, heir_free: bool, boarding: int, now_s: float) -> bool:
        if now_s < attempts.retry_at_s:
            return False
        task_group = None if attempts.task_group is None else self._task_groups.serving(attempts.task_group, now_s)
        if attempts.task_group is not None and task_group is None:
            return False
        if not attempts.running:
            return True
        holder, age_s, heir = self._coordinator.holding(key)
        others = [attempt for run, attempt in attempts.running.items() if run != holder]
        if heir or any(self._is_starting(attempt, now_s) for attempt in others):
            return False
        if holder is None:
            return sum(not attempt.given_up for attempt in attempts.running.values()) < ATTEMPTS_MAX
        held = attempts.running.get(holder)
        carried_by = self._task_groups.at(held.slot) if held else None
        if task_group is not None:
            return carried_by != task_group and boarding < GROUP_STARTS_MAX
        return heir_free and (carried_by is not None or age_s >= self._run_s + attempts.stagger_s)

    def _is_starting(self, attempt: TaskAttempt, now_s: float) -> bool:
        if attempt.slot is not None and not self._task_groups.comes(attempt.slot):
            return False
        return now_s - attempt.launched_s < START_TIMEOUT_S and attempt.spent_s(now_s) < ENDED_GRACE_S

    def _launch(self, key: TaskKey, attempts: TaskAttempts, now_s: float) -> None:
        run = attempts.next_run
        attempts.next_run, attempts.begun = run + 1, True
        self._numbers[key] = attempts.next_run
        name = f"{key[0]} task {key[1]} task run {run}"
        try:
            config = attempts.make(run)
            attempts.running[run] = TaskAttempt(now_s)
            if attempts.task_group is not None:
                self._board(attempts, run, config, name, now_s)
            else:
                threading.Thread(target=self._ride, args=(attempts, run, config, name), name=name, daemon=True).start()
        except Exception as error:
            # Concerns this task alone: the same thread launches the others. The machine may be out of threads.
            attempts.running.pop(run, None)
            log.warning(f"{name}: it cannot start ({first_error_line(error)}); the task starts again")
            self._pause(attempts, now_s)

    def _ride(self, attempts: TaskAttempts, run: int, config: TaskConfig, name: str) -> None:
        started_s = time.monotonic()
        try:
            sentence = self._run(config.to_json(), name)
            if sentence != "finished":
                log.warning(f"{name}: {sentence}")
            failed = sentence != "finished" and time.monotonic() - started_s < RETRY_S_MAX
        except Exception as error:
            # Any error of Spark: the task, the worker or the executor is gone; our task begins again.
            if not self._closed.is_set():
                log.warning(f"{name}: its Spark task died ({first_error_line(error)}); the task starts again")
            failed = True
        with self._lock:
            self._over(attempts, run, failed=failed)

    def _board(self, attempts: TaskAttempts, run: int, config: TaskConfig, name: str, now_s: float) -> None:
        attempt_id = None if attempts.task_group is None else self._task_groups.serving(attempts.task_group, now_s)
        slot = self._task_groups.board(attempt_id, config) if attempt_id else None
        if slot is None:  # the group's attempt ended just now, and the next one comes
            del attempts.running[run]
            return
        attempts.running[run].slot = slot
        self._aboard[slot] = attempts, run, name

    def _left_group(self, slot: int, sentence: str, died: bool) -> None:
        attempts, run, name = self._aboard.pop(slot)
        launched_s = attempts.running[run].launched_s if run in attempts.running else 0.0
        if sentence != "finished":
            log.warning(f"{name}: {f'its Spark task died ({sentence}); the task starts again' if died else sentence}")
        failed = died or (sentence != "finished" and time.monotonic() - launched_s < RETRY_S_MAX)
        self._over(attempts, run, failed=failed)

    def _over(self, attempts: TaskAttempts, run: int, *, failed: bool) -> None:
        attempts.running.pop(run, None)
        if failed:
            self._pause(attempts, time.monotonic())
        else:
            attempts.failures, attempts.retry_at_s = 0, 0.0

    def _pause(self, attempts: TaskAttempts, now_s: float) -> None:
        attempts.failures += 1
        attempts.retry_at_s = now_s + min(RETRY_S_MAX, 0.1 * 2**attempts.failures)


def _heirs(attempts: TaskAttempts, now_s: float) -> int:
    """How many standbys have a Spark task of their own. An attempt that was the holder is no standby."""
    last = attempts.running[max(attempts.running)] if attempts.running else None
    if last is None or last.slot is not None:
        return 0
    return max(0, sum(attempt.spent_s(now_s) < ENDED_GRACE_S for attempt in attempts.running.values()) - 1)
