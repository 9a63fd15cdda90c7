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
from twinshore.replication.task.core.config import TaskConfig
from twinshore.replication.task.core.messages import (
    SlotEnded,
    SlotTurn,
    StartTask,
    StopTaskGroup,
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


def open_engine(settings: MirrorSettings, lanes: int, stop: threading.Event) -> TaskEngine | None:
    """Opens an engine for `lanes` tasks; None when `stop` came first."""
    # Loaded here: a command that only reads need not load Spark.
    from twinshore.replication.task.runner import run_tasks
    from twinshore.runtime.compile import build_in_background
    from twinshore.runtime.spark import SparkEngine, open_session

    session = open_session(settings, lanes, stop, TASK_MODULES)
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

    place: TaskGroupAttemptId
    launched_s: float
    heard_s: float = 0.0
    leaving: bool = False
    missed: bool = False
    came: bool = False
    gone: bool = False
    given_up: bool = False
    turn: int = 0


RunJob = Callable[[str, str], str]
EndJob = Callable[[str], None]


class TaskGroups:
    """All calls come from one thread. `run(order, name)` is the Spark job; `end(name)` ends one from outside;
    `over(berth, sentence, died)` gets how each slot ended. Logs nothing once `closed`.
    """

    def __init__(
        self,
        desk: CoordinatorServer,
        tide_s: float,
        run: RunJob,
        over: Callable[[int, str, bool], None],
        end: EndJob,
        closed: threading.Event,
    ) -> None:
        self._desk, self._tide_s, self._run, self._over = desk, tide_s, run, over
        self._end, self._closed = end, closed
        self.suspects = Quarantine()
        self._tides: dict[TaskGroupAttemptId, TaskGroupAttempt] = {}
        self._berths: dict[int, TaskGroupAttemptId] = {}
        self._lanes: dict[int, TaskKey] = {}
        self._next_tide = self._next_berth = 0
        self._failures: dict[int, tuple[int, float]] = {}
        self._turned_s = self._stalled_s = -math.inf
        # Which tasks are over, what ended them, and when.
        self._ends: list[tuple[TaskGroupAttemptId, str, float]] = []
        self._lock = threading.Lock()

    # -- asked for single tasks

    def serving(self, raft: int, now_s: float) -> TaskGroupAttemptId | None:
        """Returns the attempt that starts this group's tasks now."""
        there = self._desk.rafts.there()
        able = [
            one.place
            for one in self._tides.values()
            if one.place.raft == raft
            and one.place in there
            and not (one.leaving or one.given_up)
            and now_s - one.heard_s < FROZEN_AFTER_S
        ]
        return max(able, key=lambda place: place.tide, default=None)

    def at(self, berth: int | None) -> TaskGroupAttemptId | None:
        return self._berths.get(-1 if berth is None else berth)

    def comes(self, berth: int) -> bool:
        """Whether the slot's task may still begin: its attempt is connected and not silent."""
        one = self._tides.get(self._berths[berth]) if berth in self._berths else None
        return one is not None and not (one.missed or one.gone)

    def board(self, place: TaskGroupAttemptId, order: TaskConfig) -> int | None:
        """Starts a task in a slot; None: the attempt is gone."""
        self._next_berth += 1
        if not self._desk.rafts.say(place, StartTask(self._next_berth, order)):
            return None
        self._berths[self._next_berth] = place
        self._lanes[self._next_berth] = order.link, order.lane
        return self._next_berth

    def __len__(self) -> int:
        return sum(1 for one in self._tides.values() if not one.given_up)

    def heirs(self) -> int:
        """Returns the number of standby attempts."""
        return sum(1 for one in self._tides.values() if self._succeeds(one))

    # -- time

    def turn(self, wanted: Iterable[int], heirs_free: int, now_s: float) -> None:
        """Handles messages, launches wanted groups (`heirs_free` standbys at most), and stops unneeded attempts."""
        self._forgive(now_s)
        self._hear(now_s)
        # Frozen attempts first: the next one is to know what became of this one.
        for one in self._tides.values():
            if one.heard_s and now_s - one.heard_s >= FROZEN_AFTER_S:
                self._miss(one, now_s)
            elif not (one.heard_s or one.given_up) and now_s - one.launched_s >= 2 * START_TIMEOUT_S:
                one.given_up = True
                self._warn(f"{_name(one.place)}: not a word since it was launched: Spark is asked to end its task")
                self._end(_name(one.place))
        wanted = set(wanted)
        for raft in sorted(wanted):
            if self._due(raft, heirs_free > 0, now_s):
                heirs_free -= self.serving(raft, now_s) is not None
                self._launch(raft, now_s)
        used = set(self._berths.values())
        for one in self._tides.values():
            speaks = one.heard_s and not one.missed
            needed = one.place.raft in wanted and self.serving(one.place.raft, now_s) == one.place
            if speaks and not one.leaving and not needed and one.place not in used:
                one.leaving = self._desk.rafts.say(one.place, StopTaskGroup())

    def _forgive(self, now_s: float) -> None:
        """Counts silence from now if this process was suspended, and blames no task."""
        if DRIVER_STALL_S <= now_s - self._turned_s < math.inf:
            self._stalled_s = now_s
            for one in self._tides.values():
                if one.heard_s:
                    one.heard_s = max(one.heard_s, now_s)
        self._turned_s = now_s

    def _miss(self, one: TaskGroupAttempt, now_s: float) -> None:
        """Moves a frozen attempt's tasks at once; if still frozen later, has Spark end the job, which keeps a slot."""
        if not one.missed:
            one.missed = True
            lanes = len({self._lanes[berth] for berth, at in self._berths.items() if at == one.place})
            self._warn(
                f"{_name(one.place)}: frozen: not a word for {FROZEN_AFTER_S:.0f} s; {lanes} lanes move to another"
            )
            self._suspect(one.place, one.turn, now_s)
        if not one.given_up and now_s - one.heard_s >= 2 * FROZEN_AFTER_S:
            one.given_up = True
            self._warn(f"{_name(one.place)}: still frozen: Spark is asked to end its task")
            self._end(_name(one.place))

    def _hear(self, now_s: float) -> None:
        there = self._desk.rafts.there()
        for place, word in self._desk.rafts.words():
            one = self._tides.get(place)
            match word:
                case TaskGroupAlive() if one:
                    one.heard_s, one.missed = now_s, False
                case SlotTurn(berth) if one:
                    one.turn = berth
                case SlotEnded(berth, sentence, died):
                    if self._left(berth):
                        self._over(berth, sentence, died)
        for one in self._tides.values():
            one.came |= one.place in there
            if one.came and one.place not in there and not (one.gone or one.missed or one.leaving):
                one.gone = True  # the next attempt is to know what became of this one, however late Spark tells
                self._suspect(one.place, one.turn, now_s)
        with self._lock:
            ends, self._ends = self._ends, []
        for end in ends:
            place, trouble, at_s = end
            if trouble and place in there and now_s - at_s < LAST_MESSAGE_GRACE_S:
                with self._lock:
                    self._ends.append(end)
            else:
                self._ended(place, trouble, now_s, died=place not in there)

    def _succeeds(self, one: TaskGroupAttempt) -> bool:
        """Whether an older attempt of the group still runs and is not frozen."""
        return any(
            two.place.raft == one.place.raft and two.place.tide < one.place.tide and not (two.missed or two.gone)
            for two in self._tides.values()
        )

    def _due(self, raft: int, heir_free: bool, now_s: float) -> bool:
        coming = [one for one in self._tides.values() if one.place.raft == raft and not one.heard_s]
        if any(now_s - one.launched_s < START_TIMEOUT_S for one in coming):
            return False
        if now_s < self._failures.get(raft, (0, 0.0))[1]:
            return False
        place = self.serving(raft, now_s)
        if place is None:
            return True
        lanes = sum(1 for at in self._berths.values() if at == place)
        stagger = 1.0 + 0.3 * (0.37 * raft % 1.0)
        length_s = self._tide_s * stagger * max(1.0, lanes / TASKS_PER_ATTEMPT)
        return now_s - self._tides[place].launched_s >= length_s and heir_free

    # -- Spark jobs

    def _launch(self, raft: int, now_s: float) -> None:
        place = TaskGroupAttemptId(raft, self._next_tide)
        self._next_tide += 1
        host, port = self._desk.reached_at()
        token = self._desk.rafts.token
        order = TaskGroupConfig(place.raft, place.tide, host, port, token, self.suspects.tells(now_s))
        self._tides[place] = TaskGroupAttempt(place, now_s)
        try:
            threading.Thread(target=self._ride, args=(place, order), name=_name(place), daemon=True).start()
        except Exception as error:
            self._ended(place, f"it cannot begin ({first_error_line(error)})", now_s, died=False)

    def _ride(self, place: TaskGroupAttemptId, order: TaskGroupConfig) -> None:
        trouble = ""
        try:
            sentence = self._run(order.to_json(), _name(place))
            trouble = "" if sentence == "finished" else sentence
        except Exception as error:
            # Any error of Spark: the task, the worker or the executor is gone; the group's tasks begin again elsewhere.
            trouble = f"its task died ({first_error_line(error)})"
        with self._lock:
            self._ends.append((place, trouble, time.monotonic()))

    def _ended(self, place: TaskGroupAttemptId, trouble: str, now_s: float, *, died: bool) -> None:
        """`died`: the worker is gone too."""
        if (one := self._tides.pop(place, None)) and (one.missed or one.given_up):
            trouble = ""  # logged already: frozen, or never heard
        elif one and trouble and one.heard_s:
            self._suspect(place, one.turn if died and not one.gone else 0, now_s)
        # If Spark lost sight of an attempt that runs on, its tasks give way to their standbys, and then it ends.
        self._desk.rafts.say(place, StopTaskGroup())
        left = [berth for berth, at in self._berths.items() if at == place]
        times = self._failures.get(place.raft, (0, 0.0))[0] + 1 if trouble else 0
        self._failures[place.raft] = (times, now_s + min(GROUP_RETRY_S_MAX, 0.1 * 2**times) if trouble else 0.0)
        if trouble:
            self._warn(f"{_name(place)}: {trouble}; {len(left)} lanes begin again")
        for berth in left:
            self._left(berth)
            self._over(berth, "finished", False)

    def _left(self, berth: int) -> bool:
        """Frees the slot; False: no attempt had it."""
        self._lanes.pop(berth, None)
        return self._berths.pop(berth, None) is not None

    def _suspect(self, place: TaskGroupAttemptId, turn: int, now_s: float) -> None:
        lane = self._lanes.get(turn) if now_s - self._stalled_s >= FROZEN_AFTER_S else None
        if self.suspects.ended(lane, now_s) and lane:
            self._warn(
                f"{lane[0]} lane {lane[1]}: {_name(place)} ended in its turn: it gets a task of its own, so that it "
                "takes no other link's lanes along"
            )

    def _warn(self, sentence: str) -> None:
        if not self._closed.is_set():
            log.warning(sentence)


def _name(place: TaskGroupAttemptId) -> str:
    return f"raft {place.raft} tide {place.tide}"


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
    """`berth`: the slot in a task group; None: a Spark task of its own. `held_s`: when last seen as holder, 0: never.
    `given_up`: Spark was asked to end the job.
    """

    launched_s: float
    berth: int | None = None
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
    next_tide: int = 0
    running: dict[int, TaskAttempt] = field(default_factory=dict)
    # Whether an attempt was launched since the task was opened.
    begun: bool = False
    together: str = ""
    failures: int = 0
    retry_at_s: float = 0.0
    # Whether the log says that no attempt begins.
    waits: bool = False
    # The task's group, and the bytes replicated in a second.
    raft: int | None = None
    rate: float = 0.0
    carried: int = 0


class TaskPool:
    """Keeps attempts running for every open task. `run(order, name)` is the Spark job, `end(name)` ends one. When tasks
    and standbys exceed `tasks`, small ones share groups; 0: never.
    """

    def __init__(
        self,
        desk: CoordinatorServer,
        tide_s: float,
        run: RunJob,
        tasks: int = 0,
        end: EndJob = lambda _: None,
    ) -> None:
        self._desk = desk
        self._closed = threading.Event()
        self._tide_s = tide_s
        self._run = run
        self._tasks = tasks
        self._end = end
        self._lanes: dict[TaskKey, TaskAttempts] = {}
        self._rafts = TaskGroups(desk, tide_s, run, self._left_raft, self._give_up, self._closed)
        self._aboard: dict[int, tuple[TaskAttempts, int, str]] = {}
        # The number of each task's next attempt, kept after closing: Spark jobs are ended by their names.
        self._numbers: dict[TaskKey, int] = {}
        # The tasks of the last assignment, and those that ran alone.
        self._dealt: tuple[frozenset[TaskKey], frozenset[TaskKey]] | None = None
        self._weighed_s = self._looked_s = 0.0
        # The group of each broadcast's tasks of one number.
        self._together: dict[tuple[str, int], int] = {}
        self._lock = threading.Lock()
        supervise(self._work, "tides")

    def open_task(self, key: TaskKey, make: Callable[[int], TaskConfig], *, together: str = "") -> None:
        """Keeps attempts of the task running. `together`: the broadcast whose tasks of this number share a group."""
        with self._lock:
            stagger_s = self._tide_s * (0.37 * key[1] % 1.0) * 0.3
            self._lanes.setdefault(key, TaskAttempts(make, stagger_s, self._numbers.get(key, 0), together=together))
            # One that was closed a moment ago is new all the same: it gets a group before an attempt.
            self._dealt = None

    @property
    def apart(self) -> frozenset[TaskKey]:
        """Tasks in quarantine."""
        return self._rafts.suspects.apart if self._tasks else frozenset()

    def close_link(self, link: str) -> None:
        """Launches no more attempts; the coordinator ends those that run."""
        with self._lock:
            for key in [key for key in self._lanes if key[0] == link]:
                del self._lanes[key]

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
                heirs = sum(_heirs(jobs, now_s) for jobs in self._lanes.values())
                boarding = sum(self._is_joining_group(key, jobs, now_s) for key, jobs in self._lanes.items())
                wanted = {jobs.raft for jobs in self._lanes.values() if jobs.raft is not None}
                running = [one for jobs in self._lanes.values() for one in jobs.running.values()]
                alone = sum(one.berth is None and not one.given_up for one in running)
                heirs += self._rafts.heirs()
                self._rafts.turn(wanted, self._heirs_free(heirs, alone), now_s)
                for key, jobs in self._lanes.items():
                    self._tell_wait(key, jobs)
                    if not self._due(key, jobs, self._heirs_free(heirs, alone) > 0, boarding, now_s):
                        continue
                    if jobs.raft is None:
                        heirs, alone = heirs + bool(jobs.running), alone + 1
                    else:
                        boarding += bool(jobs.running)
                    self._launch(key, jobs, now_s)

    def _see(self, key: TaskKey, jobs: TaskAttempts, now_s: float) -> None:
        holder = self._desk.holding(key)[0] if jobs.running else None
        if holder in jobs.running:
            jobs.running[holder].held_s = now_s
        for tide, one in jobs.running.items():
            if one.berth is None and one.spent_s(now_s) >= END_TIMEOUT_S and not one.given_up:
                one.given_up = True
                name = f"{key[0]} lane {key[1]} tide {tide}"
                log.warning(f"{name}: it carries no more and does not end: Spark is asked to end its task")
                self._give_up(name)

    def _give_up(self, name: str) -> None:
        """Asks Spark in a thread of its own, because the call blocks."""

        def ask() -> None:
            try:
                self._end(name)
            except Exception as error:
                log.warning(f"{name}: Spark does not end its task ({first_error_line(error)})")

        try:
            threading.Thread(target=ask, name=f"end of {name}", daemon=True).start()
        except RuntimeError as error:
            log.warning(f"{name}: Spark is not asked to end its task ({first_error_line(error)})")

    def _look(self, now_s: float) -> None:
        for key, jobs in self._lanes.items():
            self._see(key, jobs, now_s)
        suspects = self._rafts.suspects
        if suspects.apart:
            there = suspects.apart & self._lanes.keys()
            manned = frozenset(key for key in there if self._desk.holding(key)[0] is not None)
            for key in suspects.turn(suspects.apart - manned, now_s):
                log.info(f"{key[0]} lane {key[1]}: carried for long enough: it may share a task with others again")

    def _heirs_free(self, heirs: int, alone: int) -> int:
        """How many more standbys may have a Spark task. Tasks that move to groups may use all."""
        free = STANDBYS_MAX - heirs
        return min(free, self._tasks - alone - len(self._rafts)) if self._tasks else free

    def _deal(self, now_s: float) -> None:
        """Assigns groups, after changes and every `REGROUP_INTERVAL_S`."""
        known = frozenset(self._lanes), self.apart
        if known == self._dealt and now_s - self._weighed_s < REGROUP_INTERVAL_S:
            return
        bound = self._bind()
        if not self._tasks:
            self._dealt, self._weighed_s = known, now_s
            return
        if (took_s := now_s - self._weighed_s) >= REGROUP_INTERVAL_S:
            self._weighed_s = now_s
            for key, carried in self._desk.carried_bytes().items():
                if jobs := self._lanes.get(key):
                    jobs.rate, jobs.carried = max(0, carried - jobs.carried) / took_s, carried
        self._dealt = known
        rates = {key: jobs.rate for key, jobs in self._lanes.items() if key not in bound}
        now = {key: jobs.raft for key, jobs in self._lanes.items() if jobs.begun and key not in bound}
        tasks = max(SPARK_TASKS_MIN, self._tasks - len(set(bound.values())))
        for key, raft in assign_task_groups(rates, now, tasks, self.apart).items():
            self._lanes[key].raft = raft

    def _bind(self) -> dict[TaskKey, int]:
        """Assigns tasks that read together to a group of their own, except those in quarantine."""
        found = {}
        for key, jobs in self._lanes.items():
            if jobs.together and key not in self.apart:
                place = jobs.together, key[1]
                most = max(1, (self._tasks - STANDBYS_MAX) // 2) if self._tasks else BROADCAST_GROUPS_MAX
                number = self._together.setdefault(place, BROADCAST_GROUP_FIRST + len(self._together) % most)
                found[key] = jobs.raft = number
        return found

    def _tell_wait(self, key: TaskKey, jobs: TaskAttempts) -> None:
        wait_s = self._desk.waits_s(key)
        if wait_s > WAIT_REPORTED_S and not jobs.waits:
            log.warning(
                f"{key[0]} lane {key[1]}: no pump begins for {wait_s:.0f} s: a broker of the target throttled the last "
                "one, and what it was sent may land until then (hint: the quota is too small for this link)"
            )
        jobs.waits = wait_s > 0.0 and (jobs.waits or wait_s > WAIT_REPORTED_S)

    def _is_joining_group(self, key: TaskKey, jobs: TaskAttempts, now_s: float) -> bool:
        """Whether a standby is starting or ready in a group."""
        if len(jobs.running) < 2:
            return False
        tide = max(jobs.running)
        last = jobs.running[tide]
        if last.berth is None or not self._rafts.comes(last.berth):
            return False
        return now_s - last.launched_s < START_TIMEOUT_S and self._desk.holding(key)[0] != tide

    def _due(self, key: TaskKey, jobs: TaskAttempts, heir_free: bool, boarding: int, now_s: float) -> bool:
        if now_s < jobs.retry_at_s:
            return False
        raft = None if jobs.raft is None else self._rafts.serving(jobs.raft, now_s)
        if jobs.raft is not None and raft is None:
            return False
        if not jobs.running:
            return True
        holder, age_s, heir = self._desk.holding(key)
        if heir or any(tide != holder and self._is_starting(one, now_s) for tide, one in jobs.running.items()):
            return False
        if holder is None:
            return sum(not one.given_up for one in jobs.running.values()) < ATTEMPTS_MAX
        held = jobs.running.get(holder)
        carried_by = self._rafts.at(held.berth) if held else None
        if raft is not None:
            return carried_by != raft and boarding < GROUP_STARTS_MAX
        return heir_free and (carried_by is not None or age_s >= self._tide_s + jobs.stagger_s)

    def _is_starting(self, one: TaskAttempt, now_s: float) -> bool:
        if one.berth is not None and not self._rafts.comes(one.berth):
            return False
        return now_s - one.launched_s < START_TIMEOUT_S and one.spent_s(now_s) < ENDED_GRACE_S

    def _launch(self, key: TaskKey, jobs: TaskAttempts, now_s: float) -> None:
        tide = jobs.next_tide
        jobs.next_tide, jobs.begun = tide + 1, True
        self._numbers[key] = jobs.next_tide
        name = f"{key[0]} lane {key[1]} tide {tide}"
        try:
            order = jobs.make(tide)
            jobs.running[tide] = TaskAttempt(now_s)
            if jobs.raft is not None:
                self._board(jobs, tide, order, name, now_s)
            else:
                threading.Thread(target=self._ride, args=(jobs, tide, order, name), name=name, daemon=True).start()
        except Exception as error:
            # Concerns this task alone: the same thread launches the others. The machine may be out of threads.
            jobs.running.pop(tide, None)
            log.warning(f"{name}: it cannot begin ({first_error_line(error)}); the lane begins again")
            self._pause(jobs, now_s)

    def _ride(self, jobs: TaskAttempts, tide: int, order: TaskConfig, name: str) -> None:
        started_s = time.monotonic()
        try:
            sentence = self._run(order.to_json(), name)
            if sentence != "finished":
                log.warning(f"{name}: {sentence}")
            failed = sentence != "finished" and time.monotonic() - started_s < RETRY_S_MAX
        except Exception as error:
            # Any error of Spark: the task, the worker or the executor is gone; our task begins again.
            if not self._closed.is_set():
                log.warning(f"{name}: its task died ({first_error_line(error)}); the lane begins again")
            failed = True
        with self._lock:
            self._over(jobs, tide, failed=failed)

    def _board(self, jobs: TaskAttempts, tide: int, order: TaskConfig, name: str, now_s: float) -> None:
        place = None if jobs.raft is None else self._rafts.serving(jobs.raft, now_s)
        berth = self._rafts.board(place, order) if place else None
        if berth is None:  # the group's attempt ended just now, and the next one comes
            del jobs.running[tide]
            return
        jobs.running[tide].berth = berth
        self._aboard[berth] = jobs, tide, name

    def _left_raft(self, berth: int, sentence: str, died: bool) -> None:
        jobs, tide, name = self._aboard.pop(berth)
        launched_s = jobs.running[tide].launched_s if tide in jobs.running else 0.0
        if sentence != "finished":
            log.warning(f"{name}: {f'its pump died ({sentence}); the lane begins again' if died else sentence}")
        failed = died or (sentence != "finished" and time.monotonic() - launched_s < RETRY_S_MAX)
        self._over(jobs, tide, failed=failed)

    def _over(self, jobs: TaskAttempts, tide: int, *, failed: bool) -> None:
        jobs.running.pop(tide, None)
        if failed:
            self._pause(jobs, time.monotonic())
        else:
            jobs.failures, jobs.retry_at_s = 0, 0.0

    def _pause(self, jobs: TaskAttempts, now_s: float) -> None:
        jobs.failures += 1
        jobs.retry_at_s = now_s + min(RETRY_S_MAX, 0.1 * 2**jobs.failures)


def _heirs(jobs: TaskAttempts, now_s: float) -> int:
    """How many standbys have a Spark task of their own. An attempt that was the holder is no standby."""
    last = jobs.running[max(jobs.running)] if jobs.running else None
    if last is None or last.berth is not None:
        return 0
    return max(0, sum(one.spent_s(now_s) < ENDED_GRACE_S for one in jobs.running.values()) - 1)
