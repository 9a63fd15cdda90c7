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
from typing import Any

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
from twinshore.replication.task.core.config import PartitionConfig
from twinshore.replication.task.core.messages import (
    CoordinatorMessage,
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


@dataclass(frozen=True, slots=True)
class TaskGroupAttemptId:
    """One attempt (`tide`) of a task group (`raft`)."""

    raft: int
    tide: int


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
        self._thread = supervise(self._work, "desk")

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
                self._send_away()
                self._tick()
        self._selector.close()
        self._server.close()
        for guest in list(self._guests.values()):
            self._end(guest)

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
        for stranger in [one for one in self._guests.values() if one.place is None][:-UNIDENTIFIED_CONNECTIONS_MAX]:
            self._end(stranger)

    def _send_away(self) -> None:
        """Ends late strangers: a peer could send its first line one byte at a time for ever."""
        now_s = steady_s()
        late = [one for one in self._guests.values() if one.place is None and now_s - one.came_s > HELLO_TIMEOUT_S]
        for stranger in late:
            self._end(stranger)

    def _read(self, guest: TaskConnection) -> None:
        if guest.socket not in self._guests:
            return
        try:
            got = guest.socket.recv(READ_BYTES, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        except OSError:
            got = b""
        if not got or not self._take(guest, got):
            self._end(guest)

    def _take(self, guest: TaskConnection, got: bytes) -> bool:
        """Handles complete lines; False: end the connection."""
        guest.unread += got
        try:
            while (end := guest.unread.find(b"\n", guest.searched)) >= 0:
                line = bytes(guest.unread[:end])
                del guest.unread[: end + 1]
                guest.searched = 0
                if guest.place is not None:
                    self._hear(guest.place, json.loads(line))
                    continue
                guest.place = self._arrive(guest.socket, json.loads(line))
                if guest.place is None:
                    return False
        except MALFORMED_MESSAGE_ERRORS:
            return False
        except Exception as error:
            thread_failures.note("desk", error)
            return False
        guest.searched = len(guest.unread)
        return guest.searched <= (HELLO_BYTES_MAX if guest.place is None else LINE_BYTES_MAX)

    def _end(self, guest: TaskConnection) -> None:
        if self._guests.pop(guest.socket, None) is None:
            return
        with contextlib.suppress(KeyError, ValueError, RuntimeError):
            self._selector.unregister(guest.socket)
        if guest.place is not None:
            self._depart(guest.place, guest.socket)
        shut_down_socket(guest.socket)
        guest.socket.close()


def shut_down_socket(peer: socket.socket) -> None:
    """Shuts the socket down even while another thread reads: closing alone would wait for that thread."""
    with contextlib.suppress(OSError):
        peer.shutdown(socket.SHUT_RDWR)


class TaskGroupConnections:
    """The listener's thread adds connections and messages; another thread reads and sends."""

    def __init__(self) -> None:
        self.token = secrets.token_hex(32)
        self._rafts: dict[TaskGroupAttemptId, socket.socket] = {}
        self._lock = threading.Lock()
        self._words: SimpleQueue[tuple[TaskGroupAttemptId, TaskGroupMessage]] = SimpleQueue()

    def arrive(self, place: TaskGroupAttemptId, token: str, raft: socket.socket) -> TaskGroupAttemptId | None:
        """Adds the connection; None: the token is wrong, or the attempt is connected already."""
        with self._lock:
            if not hmac.compare_digest(token.encode(), self.token.encode()) or place in self._rafts:
                return None
            self._rafts[place] = raft
            return place

    def hear(self, place: TaskGroupAttemptId, message: dict[str, Any]) -> None:
        self._words.put((place, decode_from_task_group(message)))

    def depart(self, place: TaskGroupAttemptId, raft: socket.socket) -> None:
        with self._lock:
            if self._rafts.get(place) is raft:
                del self._rafts[place]

    def there(self) -> frozenset[TaskGroupAttemptId]:
        with self._lock:
            return frozenset(self._rafts)

    def words(self) -> list[tuple[TaskGroupAttemptId, TaskGroupMessage]]:
        """Takes the messages since the last call."""
        found = []
        try:
            while True:
                found.append(self._words.get_nowait())
        except Empty:
            return found

    def say(self, place: TaskGroupAttemptId, word: StartTask | StopTaskGroup) -> bool:
        """Sends a message; False: the attempt is not connected."""
        with self._lock:
            raft = self._rafts.get(place)
        if raft is None:
            return False
        try:
            raft.sendall(encode_line(encode_message(word)))
        except OSError:
            shut_down_socket(raft)
            return False
        return True


BALANCE_INTERVAL_S = 10.0
BALANCE_BYTES_MIN = 1 << 20  # less than this in a report is not worth a move


class CoordinatorServer:
    """Methods named as in `Coordinator` do the same, from any thread. `allowed_s(link)`: how long the link's lease
    still holds here. `take(account)` must be quick.
    """

    def __init__(self, host: str, *, allowed_s: Callable[[str], float], take: Callable[[TaskReport], None]) -> None:
        self.host = host
        self._allowed_s, self._take = allowed_s, take
        self._core = Coordinator()
        self._lines: dict[TaskSession, socket.socket] = {}
        self._lock = threading.RLock()
        self.rafts = TaskGroupConnections()
        self._door = CoordinatorListener(
            host, arrive=self._hello, hear=self._hear, depart=self._depart, tick=self._tick
        )
        self.port = self._door.port

    @contextmanager
    def _deciding(self) -> Iterator[Coordinator]:
        """Locks the core for one event, and executes the commands before another caller enters."""
        with self._lock:
            try:
                yield self._core
            finally:
                self._do_wanted()

    # -- called by the controller

    def reached_at(self) -> tuple[str, int]:
        return os.environ.get("TWINSHORE_DESK_HOST", self.host), self.port

    def open_task(self, key: TaskKey, grant_s: float) -> None:
        with self._deciding() as core:
            core.open_task(key, grant_s, secrets.token_hex(32))

    def token_of(self, key: TaskKey) -> str:
        with self._deciding() as core:
            return core.token_of(key)

    def assign(self, key: TaskKey, orders: Iterable[PartitionConfig]) -> None:
        with self._deciding() as core:
            core.assign(key, orders, steady_s())

    def placed(self, link: str) -> dict[TopicPartition, int]:
        with self._deciding() as core:
            return core.placed(link)

    def move(self, link: str, named: TopicPartition, lane: int) -> bool:
        with self._deciding() as core:
            return core.move(link, named, lane)

    def withdraw(self, link: str, topic: str, partition: int = -1) -> bool:
        with self._deciding() as core:
            return core.withdraw(link, topic, partition, steady_s())

    def bound(self, key: TaskKey, bounds: TaskRateLimits) -> None:
        with self._deciding() as core:
            core.bound(key, bounds)

    def used(self, link: str) -> dict[int, dict[str, list[float]]]:
        with self._deciding() as core:
            return core.used(link)

    def holding(self, key: TaskKey) -> tuple[int | None, float, bool]:
        with self._deciding() as core:
            return core.holding(key, steady_s())

    def seated(self, key: TaskKey) -> frozenset[int]:
        with self._deciding() as core:
            return core.seated(key)

    def carried_bytes(self) -> dict[TaskKey, int]:
        with self._deciding() as core:
            return core.carried_bytes()

    def unmanned(self, link: str) -> frozenset[TopicPartition]:
        with self._deciding() as core:
            return core.unmanned(link, steady_s())

    def waits_s(self, key: TaskKey) -> float:
        with self._deciding() as core:
            return core.waits_s(key, steady_s())

    def finish_all(self, link: str) -> None:
        with self._deciding() as core:
            core.finish_all(link)

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
        with self._deciding() as core:
            return core.lands_s(link, steady_s())

    def has_no_writers(self, link: str) -> bool:
        with self._deciding() as core:
            return core.has_no_writers(link, steady_s())

    def idle(self, link: str) -> bool:
        with self._deciding() as core:
            return core.idle(link, steady_s())

    def closed_tasks_settled(self, link: str) -> bool:
        with self._deciding() as core:
            return core.closed_tasks_settled(link, steady_s())

    def close_link(self, link: str) -> None:
        with self._deciding() as core:
            core.close_link(link)

    def close(self) -> None:
        self._door.close()

    # -- called by the listener

    def _hello(self, pump: socket.socket, hello: dict[str, Any]) -> PeerId | None:
        if "raft" in hello:
            place = TaskGroupAttemptId(int(hello["raft"]), int(hello["tide"]))
            return self.rafts.arrive(place, str(hello["token"]), pump)
        key, tide, token = (str(hello["link"]), int(hello["lane"])), int(hello["tide"]), str(hello["token"])
        with self._deciding() as core:
            if seat := core.arrive(key, tide, token):
                self._lines[seat] = pump
            return seat

    def _depart(self, place: PeerId, gone: socket.socket) -> None:
        if isinstance(place, TaskGroupAttemptId):
            self.rafts.depart(place, gone)
            return
        with self._deciding() as core:
            self._lines.pop(place, None)
            core.depart(place, steady_s(), self._allowed_s(place.link))

    def _hear(self, place: PeerId, message: dict[str, Any]) -> None:
        if isinstance(place, TaskGroupAttemptId):
            self.rafts.hear(place, message)
            return
        word = decode_for_coordinator(message)
        with self._deciding() as core:
            core.hear(place, word, steady_s(), self._allowed_s(place.link))

    def _tick(self) -> None:
        with self._deciding() as core:
            now_s = steady_s()
            core.tick(now_s, {link: self._allowed_s(link) for link in core.awaited()})

    # -- the core's commands

    def _do_wanted(self) -> None:
        """Executes every command even if one fails, for the core has already changed; then raises the first failure."""
        failed: Exception | None = None
        for command in self._core.wanted():
            try:
                self._do(command)
            except Exception as error:
                failed = failed or error
        if failed:
            raise failed

    def _do(self, command: CoordinatorCommand) -> None:
        match command:
            case SendToTask(seat, word):
                self._say(seat, word)
            case RecordReport(account):
                self._take(account)
            case DisconnectTask(seat):
                if pump := self._lines.get(seat):
                    shut_down_socket(pump)

    def _say(self, seat: TaskSession, word: CoordinatorMessage) -> None:
        pump = self._lines.get(seat)
        if pump is None:
            return
        try:
            pump.sendall(encode_line(encode_message(word)))
        except OSError:
            shut_down_socket(pump)


class PartitionBalancer:
    """Evens out the load of one link's tasks."""

    def __init__(self, link: str, desk: CoordinatorServer, recorder: ProgressRecorder, lanes: int) -> None:
        self._link, self._desk, self._recorder, self._lanes = link, desk, recorder, lanes
        self._at_s = time.monotonic()

    def turn(self) -> None:
        if self._lanes < 2 or time.monotonic() - self._at_s < BALANCE_INTERVAL_S:
            return
        self._at_s = time.monotonic()
        rates = dict(self._recorder.live[self._link].rate)
        if sum(rates.values()) < BALANCE_BYTES_MIN:
            return
        for named, lane in plan_moves(self._desk.placed(self._link), rates, self._lanes):
            if self._desk.move(self._link, named, lane):
                moves = f"{self._link}: {named} moves to lane {lane}, which carries less"
                log.info(moves, extra={"link": self._link, **asdict(named)})
