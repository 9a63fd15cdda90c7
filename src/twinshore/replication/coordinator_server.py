"""Network side of the coordinator: connections of tasks and task groups, the clock, and the lock round the core.

One thread serves all connections, and ticks the core. A peer's lines are handled in order; a malformed line ends that
connection alone. Messages of task groups wait here until the task pool takes them. `replication.core.coordinator`
decides.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import logging
import os
import secrets
import selectors
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from twinshore.config.model import TopicPartition
from twinshore.kafka.clock import steady_s
from twinshore.replication.core.coordinator import (
    Coordinator,
    CoordinatorCommand,
    DisconnectTask,
    RecordReport,
    SendToTask,
    TaskKey,
    TaskReport,
    TaskSession,
)
from twinshore.replication.core.planner import plan_moves
from twinshore.replication.recorder import ProgressRecorder
from twinshore.replication.task.core.messages import (
    CoordinatorMessage,
    PartitionConfig,
    StartTask,
    StopTaskGroup,
    TaskGroupMessage,
    TaskRateLimits,
    decode_for_coordinator,
    decode_from_task_group,
    encode_line,
    encode_message,
)
from twinshore.replication.task.runner import LINE_BYTES_MAX
from twinshore.runtime.scheduler import supervise, thread_failures

log = logging.getLogger(__name__)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TaskGroupAttemptId:
    """One attempt (`run`) of a task group (`task_group`)."""

    task_group: int
    run: int

    def __str__(self) -> str:
        return f"task group {self.task_group} task run {self.run}"


TICK_S = 0.02
HELLO_TIMEOUT_S = 20.0
HELLO_BYTES_MAX = 1 << 16
CONNECTIONS_MAX, UNIDENTIFIED_CONNECTIONS_MAX = 4096, 64
SEND_TIMEOUT_S = 1
READ_BYTES = 1 << 18
PeerId = TaskSession | TaskGroupAttemptId
MALFORMED_MESSAGE_ERRORS = (OSError, ValueError, KeyError, TypeError)


@dataclass(slots=True, eq=False)
class TaskConnection:
    """`place` is None until the first line was accepted."""

    socket: socket.socket
    came_s: float
    place: PeerId | None = None
    unread: bytearray = field(default_factory=bytearray)
    # `unread` has no line end below this index.
    searched: int = 0


class CoordinatorListener:
    """`arrive` identifies a peer by the first line (None: refused), `hear` gets the other lines, `depart` the end.
    `tick` is called every `TICK_S`.
    """

    def __init__(
        self,
        host: str,
        *,
        arrive: Callable[[socket.socket, dict[str, Any]], PeerId | None],
        hear: Callable[[PeerId, dict[str, Any]], None],
        depart: Callable[[PeerId, socket.socket], None],
        tick: Callable[[], None],
    ) -> None:
        self._arrive, self._hear, self._depart, self._tick = arrive, hear, depart, tick
        self._guests: dict[socket.socket, TaskConnection] = {}
        self._ticked_s = 0.0
        self._closed = threading.Event()
        self._server = socket.create_server((host, 0), backlog=256)
        self._server.setblocking(False)
        self.port: int = self._server.getsockname()[1]
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._server, selectors.EVENT_READ)
        self._thread = supervise(self._work, "coordinator")

    def close(self) -> None:
        self._closed.set()
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout=10)

    def _work(self) -> None:
        while not self._closed.is_set():
            for key, _ in self._selector.select(TICK_S):
                if key.fileobj is self._server:
                    self._welcome()
                else:
                    self._read(self._guests[key.fileobj])  # type: ignore[index]
            if steady_s() - self._ticked_s >= TICK_S:
                self._ticked_s = steady_s()
                self._end_unidentified()
                self._tick()
        self._selector.close()
        self._server.close()
        for connection in list(self._guests.values()):
            self._end(connection)

    def _welcome(self) -> None:
        try:
            came, _ = self._server.accept()
        except OSError:
            # Perhaps out of descriptors for a moment: the listener stays open.
            self._closed.wait(TICK_S)
            return
        if len(self._guests) >= CONNECTIONS_MAX:
            came.close()
            return
        came.setblocking(True)
        came.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # An attempt that reads nothing must not block the coordinator, whose lock is held during a send.
        came.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", SEND_TIMEOUT_S, 0))
        self._guests[came] = TaskConnection(came, steady_s())
        self._selector.register(came, selectors.EVENT_READ)
        # Attempts identify themselves at once: the oldest unidentified connections are not theirs.
        for connection in self._unidentified()[:-UNIDENTIFIED_CONNECTIONS_MAX]:
            self._end(connection)

    def _unidentified(self) -> list[TaskConnection]:
        return [connection for connection in self._guests.values() if connection.place is None]

    def _end_unidentified(self) -> None:
        """Ends connections that send no first line in time: a peer could send it one byte at a time for ever."""
        for connection in self._unidentified():
            if steady_s() - connection.came_s > HELLO_TIMEOUT_S:
                self._end(connection)

    def _read(self, connection: TaskConnection) -> None:
        if connection.socket not in self._guests:
            return
        try:
            got = connection.socket.recv(READ_BYTES, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        except OSError:
            got = b""
        if not got or not self._take(connection, got):
            self._end(connection)

    def _take(self, connection: TaskConnection, got: bytes) -> bool:
        """Handles complete lines; False: end the connection."""
        connection.unread += got
        try:
            while (end := connection.unread.find(b"\n", connection.searched)) >= 0:
                line = bytes(connection.unread[:end])
                del connection.unread[: end + 1]
                connection.searched = 0
                if connection.place is not None:
                    self._hear(connection.place, json.loads(line))
                    continue
                connection.place = self._arrive(connection.socket, json.loads(line))
                if connection.place is None:
                    return False
        except MALFORMED_MESSAGE_ERRORS:
            return False
        except Exception as error:
            thread_failures.note("coordinator", error)
            return False
        connection.searched = len(connection.unread)
        return connection.searched <= (HELLO_BYTES_MAX if connection.place is None else LINE_BYTES_MAX)

    def _end(self, connection: TaskConnection) -> None:
        if self._guests.pop(connection.socket, None) is None:
            return
        with contextlib.suppress(KeyError, ValueError, RuntimeError):
            self._selector.unregister(connection.socket)
        if connection.place is not None:
            self._depart(connection.place, connection.socket)
        shut_down_socket(connection.socket)
        connection.socket.close()


def shut_down_socket(peer: socket.socket) -> None:
    """Shuts the socket down even while another thread reads: closing alone would wait for that thread."""
    with contextlib.suppress(OSError):
        peer.shutdown(socket.SHUT_RDWR)


def send_message(peer: socket.socket | None, message: CoordinatorMessage | StartTask | StopTaskGroup) -> bool:
    """Sends the message if the peer is connected, and else or on failure returns False."""
    if peer is None:
        return False
    try:
        peer.sendall(encode_line(encode_message(message)))
    except OSError:
        shut_down_socket(peer)
        return False
    return True


class TaskGroupConnections:
    """The listener's thread adds connections and messages; another thread reads and sends."""

    def __init__(self) -> None:
        self.token = secrets.token_hex(32)
        self._task_groups: dict[TaskGroupAttemptId, socket.socket] = {}
        self._lock = threading.Lock()
        self._words: SimpleQueue[tuple[TaskGroupAttemptId, TaskGroupMessage]] = SimpleQueue()

    def arrive(
        self, attempt_id: TaskGroupAttemptId, token: str, connection: socket.socket
    ) -> TaskGroupAttemptId | None:
        """Adds the connection; None: the token is wrong, or the attempt is connected already."""
        with self._lock:
            if not hmac.compare_digest(token.encode(), self.token.encode()) or attempt_id in self._task_groups:
                return None
            self._task_groups[attempt_id] = connection
            return attempt_id

    def hear(self, attempt_id: TaskGroupAttemptId, message: dict[str, Any]) -> None:
        self._words.put((attempt_id, decode_from_task_group(message)))

    def depart(self, attempt_id: TaskGroupAttemptId, connection: socket.socket) -> None:
        with self._lock:
            if self._task_groups.get(attempt_id) is connection:
                del self._task_groups[attempt_id]

    def there(self) -> frozenset[TaskGroupAttemptId]:
        with self._lock:
            return frozenset(self._task_groups)

    def words(self) -> list[tuple[TaskGroupAttemptId, TaskGroupMessage]]:
        """Takes the messages since the last call."""
        found = []
        try:
            while True:
                found.append(self._words.get_nowait())
        except Empty:
            return found

    def say(self, attempt_id: TaskGroupAttemptId, message: StartTask | StopTaskGroup) -> bool:
        """Sends a message; False: the attempt is not connected."""
        with self._lock:
            connection = self._task_groups.get(attempt_id)
        return send_message(connection, message)


BALANCE_INTERVAL_S = 10.0
BALANCE_BYTES_MIN = 1 << 20  # less than this in a report is not worth a move


class CoordinatorServer:
    """Methods named as in `Coordinator` do the same, from any thread. `allowed_s(link)`: how long the link's lease
    still holds here. `take(account)` must be quick.
    """

    def __init__(self, host: str, *, allowed_s: Callable[[str], float], take: Callable[[TaskReport], None]) -> None:
        self.host = host
        self._allowed_s, self._take = allowed_s, take
        self._coordinator = Coordinator()
        self._lines: dict[TaskSession, socket.socket] = {}
        self._lock = threading.RLock()
        self.task_groups = TaskGroupConnections()
        self._door = CoordinatorListener(
            host, arrive=self._hello, hear=self._hear, depart=self._depart, tick=self._tick
        )
        self.port = self._door.port

    @contextmanager
    def _deciding(self) -> Iterator[Coordinator]:
        """Locks the core for one event, and executes the commands before another caller enters."""
        with self._lock:
            try:
                yield self._coordinator
            finally:
                self._do_wanted()

    def _decide(self, decision: Callable[[Coordinator], T]) -> T:
        with self._deciding() as coordinator:
            return decision(coordinator)

    # -- called by the controller

    def reached_at(self) -> tuple[str, int]:
        return os.environ.get("TWINSHORE_COORDINATOR_HOST", self.host), self.port

    def open_task(self, key: TaskKey, grant_s: float) -> None:
        self._decide(lambda core: core.open_task(key, grant_s, secrets.token_hex(32)))

    def token_of(self, key: TaskKey) -> str:
        return self._decide(lambda core: core.token_of(key))

    def assign(self, key: TaskKey, orders: Iterable[PartitionConfig]) -> None:
        self._decide(lambda core: core.assign(key, orders, steady_s()))

    def placed(self, link: str) -> dict[TopicPartition, int]:
        return self._decide(lambda core: core.placed(link))

    def move(self, link: str, partition: TopicPartition, task: int) -> bool:
        return self._decide(lambda core: core.move(link, partition, task))

    def withdraw(self, link: str, topic: str, partition: int = -1) -> bool:
        return self._decide(lambda core: core.withdraw(link, topic, partition, steady_s()))

    def bound(self, key: TaskKey, bounds: TaskRateLimits) -> None:
        self._decide(lambda core: core.bound(key, bounds))

    def used(self, link: str) -> dict[int, dict[str, list[float]]]:
        return self._decide(lambda core: core.used(link))

    def holding(self, key: TaskKey) -> tuple[int | None, float, bool]:
        return self._decide(lambda core: core.holding(key, steady_s()))

    def carried_bytes(self) -> dict[TaskKey, int]:
        return self._decide(lambda core: core.carried_bytes())

    def unmanned(self, link: str) -> frozenset[TopicPartition]:
        return self._decide(lambda core: core.unmanned(link, steady_s()))

    def waits_s(self, key: TaskKey) -> float:
        return self._decide(lambda core: core.waits_s(key, steady_s()))

    def finish_all(self, link: str) -> None:
        self._decide(lambda core: core.finish_all(link))

    def finish(self, link: str, deadline_s: float) -> bool:
        """Finishes every attempt, and forgets the link's tasks. Returns whether no request can still be appended; does
        not wait for what may be appended after `deadline_s`.
        """
        self.finish_all(link)
        while (left_s := deadline_s - time.monotonic()) > 0 and not self.idle(link):
            if self.has_no_writers(link) and self.lands_s(link) > left_s:
                break
            time.sleep(0.02)
        clean = self.idle(link)
        self.close_link(link)
        return clean

    def lands_s(self, link: str) -> float:
        return self._decide(lambda core: core.lands_s(link, steady_s()))

    def has_no_writers(self, link: str) -> bool:
        return self._decide(lambda core: core.has_no_writers(link, steady_s()))

    def idle(self, link: str) -> bool:
        return self._decide(lambda core: core.idle(link, steady_s()))

    def closed_tasks_settled(self, link: str) -> bool:
        return self._decide(lambda core: core.closed_tasks_settled(link, steady_s()))

    def close_link(self, link: str) -> None:
        self._decide(lambda core: core.close_link(link))

    def close(self) -> None:
        self._door.close()

    # -- called by the listener

    def _hello(self, connection: socket.socket, hello: dict[str, Any]) -> PeerId | None:
        if "task_group" in hello:
            attempt_id = TaskGroupAttemptId(int(hello["task_group"]), int(hello["run"]))
            return self.task_groups.arrive(attempt_id, str(hello["token"]), connection)
        key, run, token = (str(hello["link"]), int(hello["task"])), int(hello["run"]), str(hello["token"])
        with self._deciding() as coordinator:
            if session := coordinator.arrive(key, run, token):
                self._lines[session] = connection
            return session

    def _depart(self, place: PeerId, gone: socket.socket) -> None:
        if isinstance(place, TaskGroupAttemptId):
            self.task_groups.depart(place, gone)
            return
        with self._deciding() as coordinator:
            self._lines.pop(place, None)
            coordinator.depart(place, steady_s(), self._allowed_s(place.link))

    def _hear(self, peer: PeerId, message: dict[str, Any]) -> None:
        if isinstance(peer, TaskGroupAttemptId):
            self.task_groups.hear(peer, message)
            return
        session, decoded = peer, decode_for_coordinator(message)
        self._decide(lambda core: core.hear(session, decoded, steady_s(), self._allowed_s(session.link)))

    def _tick(self) -> None:
        with self._deciding() as coordinator:
            now_s = steady_s()
            coordinator.tick(now_s, {link: self._allowed_s(link) for link in coordinator.awaited()})

    # -- the core's commands

    def _do_wanted(self) -> None:
        """Executes every command even if one fails, for the core has already changed; then raises the first failure."""
        failed: Exception | None = None
        for command in self._coordinator.wanted():
            try:
                self._do(command)
            except Exception as error:
                failed = failed or error
        if failed:
            raise failed

    def _do(self, command: CoordinatorCommand) -> None:
        match command:
            case SendToTask(session, message):
                send_message(self._lines.get(session), message)
            case RecordReport(report):
                self._take(report)
            case DisconnectTask(session):
                if connection := self._lines.get(session):
                    shut_down_socket(connection)


class PartitionBalancer:
    """Evens out the load of one link's tasks."""

    def __init__(self, link: str, coordinator: CoordinatorServer, recorder: ProgressRecorder, tasks: int) -> None:
        self._link, self._coordinator, self._recorder, self._tasks = link, coordinator, recorder, tasks
        self._at_s = time.monotonic()

    def turn(self) -> None:
        if self._tasks < 2 or time.monotonic() - self._at_s < BALANCE_INTERVAL_S:
            return
        self._at_s = time.monotonic()
        rates = dict(self._recorder.stats[self._link].rate)
        if sum(rates.values()) < BALANCE_BYTES_MIN:
            return
        for partition, task in plan_moves(self._coordinator.placed(self._link), rates, self._tasks):
            if self._coordinator.move(self._link, partition, task):
                moves = f"{self._link}: {partition} moves to task {task}, which replicates less"
                log.info(moves, extra={"link": self._link, **asdict(partition)})
