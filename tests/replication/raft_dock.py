"""Task runs at the real coordinator, with tasks that have no loop: what task groups are tried with."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from testkit.log_lines import LogLines
from tests.replication.desk_office import LinePump
from twinshore.config.model import Cluster
from twinshore.kafka.clock import steady_s
from twinshore.replication.coordinator_server import CoordinatorServer
from twinshore.replication.core.coordinator import TaskKey
from twinshore.replication.task.core.messages import (
    Finish,
    SlotEnded,
    SlotTurn,
    StartTask,
    StopTaskGroup,
    TaskConfig,
    TaskGroupAlive,
    TaskGroupConfig,
    decode_for_task_group,
    encode_message,
    parse_task_config,
)
from twinshore.replication.task.runner import CoordinatorLost, DriverConnection
from twinshore.replication.task_pool import TaskPool

SIDE = Cluster("east", ("127.0.0.1:1",))
GRANT_S = 9.0
LINKS = 5
WITHIN_S = 60.0


class Task:
    """A raft's task without a loop: it hears orders, and each task that it begins stands by at the coordinator at
    once.
    """

    def __init__(self, order: TaskGroupConfig, *, mute: bool, poison: str = "", dies: bool = False) -> None:
        self.order = order
        who = {"token": order.coordinator_token, "task_group": order.task_group, "run": order.run}
        self.line = DriverConnection(order.coordinator_host, order.coordinator_port, **who)
        self.tasks: dict[int, tuple[TaskConfig, LinePump]] = {}
        self.over, self.dead, self.lost = threading.Event(), threading.Event(), threading.Event()
        self.mute = mute
        self.leaving = False
        # The link whose task freezes the task, or ends it, as soon as it carries; "" for none.
        self.poison, self.dies = poison, dies

    def run(self) -> str:
        try:
            while not self.over.wait(0.01) and not (self.leaving and not self.tasks):
                if not self.mute:
                    self.turn()
        except CoordinatorLost:
            pass
        finally:
            for _, task in self.tasks.values():
                task.close()
            self.line.close()
        if self.dead.is_set():
            raise RuntimeError("exit code 137")
        return "finished"

    def turn(self) -> None:
        self.line.tell(encode_message(TaskGroupAlive()))
        for message in self.line.heard():
            match decode_for_task_group(message):
                case StartTask(slot, order):
                    self.tasks[slot] = order, LinePump(order)
                    self.tasks[slot][1].ready()
                case StopTaskGroup():
                    self.leaving = True
        for slot, (order, task) in list(self.tasks.items()):
            if self.order.tells:
                self.line.tell(encode_message(SlotTurn(slot)))
            try:
                words = task.words()
                if order.link == self.poison and task.grant.until_s:
                    self.mute = True
                    if self.dies:
                        self.dead.set()
                        self.over.set()
                    return
            except CoordinatorLost as error:
                self.ends(slot, error.message)
                continue
            if Finish() in words:
                task.done()
                self.ends(slot, "finished")
            else:
                task.asks()
        if self.order.tells:
            self.line.tell(encode_message(SlotTurn(0)))

    def ends(self, slot: int, sentence: str, *, died: bool = False) -> None:
        self.tasks.pop(slot)[1].close()
        self.line.tell(encode_message(SlotEnded(slot, sentence, died)))


class Dock:
    """Task runs of several links, with room for one task group and its heir."""

    def __init__(
        self, task_run_s: float, said: LogLines, *, grant_s: float = GRANT_S, poison: str = "", dies: bool = False
    ) -> None:
        self.coordinator = CoordinatorServer("127.0.0.1", allowed_s=lambda _: grant_s, take=lambda _: None)
        self.said = said
        self.tasks: list[Task] = []
        self.mute = False
        self.closed = threading.Event()
        self.lock = threading.Lock()
        self.running = self.most = 0
        # By name: how the tasks that run are ended from outside.
        self.killed: dict[str, threading.Event] = {}
        self.poison, self.dies = poison, dies
        self.task_pool = TaskPool(self.coordinator, task_run_s, self._run, tasks=3, end=self._end)
        for number in range(LINKS):
            self.open(f"link-{number}", grant_s)

    def open(self, link: str, grant_s: float = GRANT_S) -> None:
        self.coordinator.open_task((link, 0), grant_s)
        at = self.coordinator.host, self.coordinator.port, self.coordinator.token_of((link, 0))
        order = TaskConfig(link, 0, 0, SIDE, SIDE, 1, 0, 60_000, *at)
        self.task_pool.open_task((link, 0), lambda run: replace(order, run=run))

    def _end(self, name: str) -> None:
        self.killed[name].set()

    def _run(self, text: str, name: str) -> str:
        order = parse_task_config(text)
        self.killed[name] = killed = threading.Event()
        if isinstance(order, TaskConfig):
            return self._run_alone(order, killed)
        task = Task(order, mute=self.mute, poison=self.poison, dies=self.dies)
        self.tasks.append(task)
        with self.lock:
            self.running += 1
            self.most = max(self.most, self.running)
        try:
            ridden = ThreadPoolExecutor(1).submit(task.run)
            while not ridden.done():
                if task.lost.wait(0.01):
                    raise RuntimeError("executor lost")
                if killed.is_set():
                    task.over.set()
                    raise RuntimeError("job cancelled")
            return ridden.result()
        finally:
            with self.lock:
                self.running -= 1

    def _run_alone(self, order: TaskConfig, killed: threading.Event) -> str:
        assert order.link == self.poison, "no other task of these has a task of its own"
        task = LinePump(order)
        try:
            task.ready()
            while not (self.closed.is_set() or killed.wait(0.01) or task.grant.until_s):
                task.words()
            while not (self.dies or self.closed.is_set() or killed.wait(0.01)):
                pass  # it hangs
        finally:
            task.close()
        raise RuntimeError("job cancelled")

    def manned(self, links: set[str]) -> float:
        """Which part of these links a task carries now."""
        posts = [self.coordinator._coordinator._assignments[link, 0] for link in sorted(links)]
        return sum(post.ownership.manned(steady_s()) for post in posts) / len(posts)

    def held(self) -> dict[str, int | None]:
        keys: list[TaskKey] = [(f"link-{number}", 0) for number in range(LINKS)]
        return {key[0]: self.coordinator.holding(key)[0] for key in keys}

    def until(self, holds: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + WITHIN_S
        while not holds():
            assert time.monotonic() < deadline, (what, self.held(), self.said, len(self.tasks))
            time.sleep(0.02)

    def until_all_are_held_by(self, number: int) -> None:
        def all_there() -> bool:
            if len(self.tasks) <= number:
                return False
            aboard = {(order.link, order.run) for order, _ in list(self.tasks[number].tasks.values())}
            return aboard == set(self.held().items())

        self.until(all_there, f"task {number} carries all")

    def close(self) -> None:
        self.closed.set()
        self.task_pool.close()
        self.coordinator.close()
        for task in self.tasks:
            task.over.set()
