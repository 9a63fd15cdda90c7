"""A coordinator with tasks at its door, for tests over real sockets."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterable
from typing import TypeVar

from twinshore.config.model import Cluster
from twinshore.kafka.clock import steady_s
from twinshore.replication.coordinator_server import CoordinatorServer
from twinshore.replication.core.coordinator import TaskReport
from twinshore.replication.task.core.messages import (
    Assign,
    CoordinatorMessage,
    Handoff,
    LearntQuota,
    LeaseGranted,
    PartitionProgress,
    StartWriting,
    TaskConfig,
    TaskFinished,
    TaskProgress,
    TaskReady,
)
from twinshore.replication.task.core.task_core import WriteLease
from twinshore.replication.task.runner import CoordinatorClient

LINK = "east->west"
KEY = (LINK, 0)
GRANT_S = 2.0
W = TypeVar("W")


class LinePump(CoordinatorClient):
    """A task that is nothing but its line, and keeps its grant as a pump's core does."""

    def __init__(self, order: TaskConfig) -> None:
        super().__init__(order)
        self.grant = WriteLease()

    def words(self) -> list[CoordinatorMessage]:
        words = super().words()
        for word in words:
            match word:
                case LeaseGranted():
                    self.grant.extend(*word)
                case StartWriting():
                    self.grant.anew()
        return words

    def ready(self) -> None:
        self.say(TaskReady())

    def asks(self, *carried: PartitionProgress) -> None:
        self.say(TaskProgress(list(carried), [], {}, steady_s()))

    def done(
        self,
        *handovers: Handoff,
        carried: Iterable[PartitionProgress] = (),
        unread_s: float = 0.0,
        paces: Iterable[LearntQuota] = (),
    ) -> None:
        self.say(TaskFinished(list(carried), [], list(handovers), {}, unread_s, list(paces)))


class Office:
    """A coordinator, what it was told, and for how long the link is ours."""

    def __init__(self) -> None:
        self.accounts: list[TaskReport] = []
        self.allowed_s = 100.0
        self.tasks: list[LinePump] = []
        self.coordinator = CoordinatorServer("127.0.0.1", allowed_s=lambda _: self.allowed_s, take=self.accounts.append)
        self.coordinator.open_task(KEY, GRANT_S)

    def order(self, run: int, *, token: str = "") -> TaskConfig:
        cluster = Cluster("east", ("127.0.0.1:1",))
        coordinator = self.coordinator
        at = {
            "coordinator_host": coordinator.host,
            "coordinator_port": coordinator.port,
            "coordinator_token": token or coordinator.token_of(KEY),
        }
        return TaskConfig(LINK, 0, run, cluster, cluster, producer_id=1, producer_epoch=0, state_expiry_ms=1, **at)  # type: ignore[arg-type]

    def task(self, run: int, *, token: str = "") -> LinePump:
        self.tasks.append(LinePump(self.order(run, token=token)))
        return self.tasks[-1]


class Passage:
    """A way to a coordinator that can break on the desk's side alone, as where a network forgets a connection: the
    pump's end stays open, and nothing comes through it any more."""

    def __init__(self, coordinator: CoordinatorServer) -> None:
        self._door = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._door.getsockname()[1]
        self._ends: list[socket.socket] = []
        self._coordinator = coordinator
        threading.Thread(target=self._pass_on, daemon=True).start()

    def _pass_on(self) -> None:
        task, _ = self._door.accept()
        coordinator = socket.create_connection((self._coordinator.host, self._coordinator.port))
        self._ends = [coordinator, task]
        threading.Thread(target=self._copy, args=(coordinator, task), daemon=True).start()
        self._copy(task, coordinator)

    @staticmethod
    def _copy(begin: socket.socket, end: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while got := begin.recv(1 << 16):
                end.sendall(got)

    def break_at_the_coordinator(self) -> None:
        self._ends[0].shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        for end in (self._door, *self._ends):
            end.close()


def heard(line: CoordinatorClient, *kinds: type[W], within_s: float = 3.0) -> W:
    """Words up to one of these kinds; that one is returned."""
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        for word in line.words():
            if isinstance(word, kinds):
                return word
        time.sleep(0.01)
    raise AssertionError(f"none of {kinds} came")


def until(holds: Callable[[], bool], within_s: float = 3.0) -> None:
    deadline = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.01)


def going(office: Office, run: int = 0) -> LinePump:
    return begun(office.task(run))


def begun(line: LinePump) -> LinePump:
    heard(line, Assign)
    line.ready()
    heard(line, StartWriting)
    line.asks()
    heard(line, LeaseGranted)
    assert line.grant.holds(steady_s())
    return line
