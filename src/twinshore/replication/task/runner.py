"""Runs tasks inside Spark: one task, or a group of small tasks.

`TaskRunner` is the loop of one task: sockets, clocks, blocking calls and the coordinator, around the pure `TaskCore`.
Events go to the core, and the core's commands are carried out at once. When the write lease runs out, all connections
are closed, even halfway through a request: a broker never executes half a request.

`TaskGroupRunner` runs several tasks side by side. Each has its own coordinator connection, write lease and leader
connections. The end of one task does not end another.
"""

from __future__ import annotations

import contextlib
import gc
import json
import selectors
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

from twinshore.config.errors import KafkaError, TwinshoreError, WireError
from twinshore.config.frozen import TASK_CLIENT_ID
from twinshore.config.repeat_filter import describe_error
from twinshore.kafka.clock import steady_s, wall_ms
from twinshore.kafka.connection import Connection, protocol_violation_error
from twinshore.kafka.protocol.fetch import FETCH_KEY, FetchResponseById, encode_fetch_by_id, parse_fetch_by_id
from twinshore.kafka.protocol.framing import Response, drop_sent
from twinshore.kafka.protocol.primitives import I32, Buffer
from twinshore.kafka.protocol.produce import PRODUCE_KEY, encode_produce, read_produce_response
from twinshore.kafka.protocol.transactions import (
    LOG_ENDS_KEY,
    LOG_ENDS_VERSION,
    MARKERS_KEY,
    encode_list_offsets,
    encode_markers,
    parse_list_offsets,
    parse_markers,
)
from twinshore.kafka.transport import WOULD_BLOCK
from twinshore.replication.task.core import connections
from twinshore.replication.task.core.connections import (
    RESPONSE_SLACK_S,
    CompletedRequest,
    SendFetch,
    SourceFetcher,
    TargetProducer,
    TargetRequest,
    TaskCommand,
)
from twinshore.replication.task.core.markers import MarkerRun, end_offset_queries, group_markers
from twinshore.replication.task.core.messages import (
    TASK_MESSAGES,
    CoordinatorMessage,
    JsonMessage,
    SlotEnded,
    SlotTurn,
    StartTask,
    StopTaskGroup,
    TaskConfig,
    TaskGroupAlive,
    TaskGroupConfig,
    TaskGroupMessage,
    TaskMessage,
    decode_for_task,
    decode_for_task_group,
    encode_line,
    encode_message,
    narrow_limits,
)
from twinshore.replication.task.core.partition import SentBatch
from twinshore.replication.task.core.partitions import TaskPartitions
from twinshore.replication.task.core.shared_read import SharedFetch, SharedFetches
from twinshore.replication.task.core.task_core import TIMER_INTERVAL_S, TaskCore, WriteLease
from twinshore.replication.task.lookups import (
    BlockingCalls,
    CallResult,
    ConnectionOpened,
    LeadersFound,
    MarkersFinished,
    TwinsInspected,
)

LINE_BYTES_MAX = 64 << 20
HELLO_TIMEOUT_S = 20.0
SEND_TIMEOUT_S = 1.0
BUFFER_BYTES_MIN = 256 << 10
READ_COMMITTED = 1
# A turn costs about as much as receiving 100 KB, and a response is parsed only once it is complete.
WAKE_BYTES = 1 << 20


class CoordinatorLost(TwinshoreError):
    """The driver cannot be reached. The write lease decides how long the task may go on."""


class DriverConnection:
    """A connection to the driver: blocking writes of small lines, non-blocking reads. `hello` is sent first."""

    def __init__(self, host: str, port: int, **hello: Any) -> None:
        try:
            self._sock = socket.create_connection((host, port), timeout=HELLO_TIMEOUT_S)
            self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError as error:
            raise CoordinatorLost(f"the driver cannot be reached at {host}:{port}: {error}") from error
        self._received = bytearray()
        try:
            self.tell({"what": "hello", **hello}, HELLO_TIMEOUT_S)
        except CoordinatorLost:
            self.close()
            raise

    def fileno(self) -> int:
        return self._sock.fileno()

    def tell(self, message: JsonMessage, within_s: float = SEND_TIMEOUT_S) -> None:
        """Sends one message to the driver. Raises CoordinatorLost after `within_s` seconds."""
        line = encode_line(message)
        try:
            self._sock.settimeout(within_s)
            self._sock.sendall(line)
        except OSError as error:
            raise CoordinatorLost(f"the driver does not take a message: {error}") from error

    def heard(self) -> list[JsonMessage]:
        """Returns all messages that have arrived. Raises CoordinatorLost."""
        self._sock.setblocking(False)
        while True:
            try:
                got = self._sock.recv(1 << 16)
            except BlockingIOError:
                break
            except OSError as error:
                raise CoordinatorLost(f"the driver is gone: {error}") from error
            if not got:
                raise CoordinatorLost("the driver hung up")
            self._received += got
            if len(self._received) > LINE_BYTES_MAX:
                raise CoordinatorLost("the driver sends a line without an end")
        *lines, rest = self._received.split(b"\n")
        self._received = bytearray(rest)
        return [json.loads(line) for line in lines]

    def close(self) -> None:
        self._sock.close()


class CoordinatorClient(DriverConnection):
    def __init__(self, config: TaskConfig) -> None:
        who = {"token": config.coordinator_token, "link": config.link, "task": config.task, "run": config.run}
        super().__init__(config.coordinator_host, config.coordinator_port, **who)

    def say(self, message: TaskMessage) -> None:
        self.tell(encode_message(message))

    def words(self) -> list[CoordinatorMessage]:
        return [decode_for_task(message) for message in self.heard()]


class HasFileno(Protocol):
    def fileno(self) -> int: ...


class Outbox:
    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.transport = connection.transport
        self._waiting: list[Buffer] = []

    def put(self, buffers: list[Buffer]) -> None:
        self._waiting = buffers

    def detach(self) -> None:
        """Copies what the kernel has not taken, so that the original buffers are free."""
        self._waiting = [bytes(piece) for piece in self._waiting]

    def push(self) -> bool:
        """Writes what the kernel takes. True once everything is written."""
        waiting = self._waiting
        while waiting:
            taken = self.transport.sendv(waiting)
            if taken == WOULD_BLOCK:
                break
            drop_sent(waiting, taken)
        return not waiting


class SourceConnection:
    """One connection to a source leader, for a share of its partitions."""

    def __init__(self, flow: SourceFetcher, connection: Connection) -> None:
        self.flow = flow
        self.outbox = Outbox(connection)
        self.version = connection.handwritten_version(FETCH_KEY)
        self._in_flight = connection.hand_over(TASK_CLIENT_ID)
        for buffer in flow.holds:
            buffer.buffer = bytearray(BUFFER_BYTES_MIN)

    def fileno(self) -> int:
        return self.outbox.transport.fileno()

    def ask(self, fetch: SendFetch) -> bool:
        """Sends a fetch. True if the kernel took all of the request."""
        order = fetch.order
        body = encode_fetch_by_id(
            session_id=order.session_id,
            session_epoch=order.session_epoch,
            max_wait_ms=fetch.wait_ms,
            min_bytes=1,
            max_bytes=fetch.bytes_max,
            isolation=READ_COMMITTED,
            partitions=order.partitions,
            forgotten=order.forgotten,
        )
        self.outbox.connection.lend(fetch.buffer.buffer)
        self.outbox.put(self._in_flight.ask(FETCH_KEY, self.version, [body], self.flow.deadline_s))
        return self.outbox.push()

    def receive(self, now_s: float) -> tuple[FetchResponseById, int] | None:
        """Returns a fetch response and its size in bytes, or None while the response is incomplete."""
        buffer = self.flow.receiving
        if buffer is None:
            sentence = "the broker closed the connection, or sent a response without a request"
            raise KafkaError(f"{self.outbox.connection.place}: {sentence}", retriable=True)
        in_flight, frame_reader, transport = self._in_flight, self._in_flight.frame_reader, self.outbox.transport
        heard = False
        while True:
            try:
                answer = in_flight.answer()
            except WireError as error:
                raise protocol_violation_error(error, self.outbox.connection.place) from error
            if answer is not None:
                buffer.buffer = frame_reader.buffer  # larger, if needed
                transport.expect_bytes(1)
                return parse_fetch_by_id(answer.view, answer.position), len(answer.view)
            got = transport.recv_into(frame_reader.room())
            if got == WOULD_BLOCK:
                if frame_reader.lacks:
                    transport.expect_bytes(frame_reader.lacks, WAKE_BYTES)
                return None
            if got == 0:
                raise KafkaError(f"{self.outbox.connection.place}: the source hung up", retriable=True)
            frame_reader.took(got)
            if not heard:
                heard = True
                self.flow.heard(now_s)

    def close(self) -> None:
        self.outbox.connection.close()


class TargetConnection:
    """One connection to a target leader. `producer`: the link's producer id and epoch."""

    def __init__(self, target_producer: TargetProducer, connection: Connection, producer: tuple[int, int]) -> None:
        self.producer = target_producer
        self.outbox = Outbox(connection)
        self._producer = producer
        self._in_flight = connection.hand_over(TASK_CLIENT_ID)
        connection.lend(bytearray(BUFFER_BYTES_MIN))
        self.outbox.transport.drop_unsent_at_close()
        self._undelivered_s = target_producer.undelivered_s
        self.outbox.transport.set_ack_timeout(self._undelivered_s)

    def fileno(self) -> int:
        return self.outbox.transport.fileno()

    def send(self, flight: TargetRequest) -> bool:
        """Starts to send a request; `push` continues. True once the kernel has taken everything."""
        deadline_s = flight.sent_s + self.producer.limits.produce_timeout_s + RESPONSE_SLACK_S
        if flight.sent:
            body = self._produce(flight.sent)
            buffers = self._in_flight.ask(PRODUCE_KEY, self.producer.version, body, deadline_s)
        elif flight.asking:
            runs = [*(entry.run for entry in flight.marks), *(entry.run for entry in flight.rests)]
            buffers = self._ask_ends(runs, deadline_s)
        else:
            version = self.outbox.connection.handwritten_version(MARKERS_KEY)
            runs = [entry.run for entry in flight.marks]
            markers = encode_markers(group_markers(runs, *self._producer))
            buffers = self._in_flight.ask(MARKERS_KEY, version, [markers], deadline_s)
            buffers += self._ask_ends(runs, deadline_s)
        self.outbox.put(buffers)
        return self.push()

    def _ask_ends(self, runs: list[MarkerRun], deadline_s: float) -> list[Buffer]:
        body = encode_list_offsets(end_offset_queries(runs))
        return self._in_flight.ask(LOG_ENDS_KEY, LOG_ENDS_VERSION, [body], deadline_s)

    def _produce(self, sent: list[SentBatch]) -> list[Buffer]:
        topics: dict[str, tuple[str, bytes, list[tuple[int, bytes, Buffer]]]] = {}
        for replicator, batch, _, head, _ in sent:
            config = replicator.config
            topic = config.twin or config.topic
            entry = topics.get(topic)
            if entry is None:
                entry = topics[topic] = (topic, replicator.target_id, [])
            entry[2].append((config.partition, head, batch.body))
        timeout_ms = int(self.producer.limits.produce_timeout_s * 1000)
        return encode_produce(self.producer.version, list(topics.values()), timeout_ms=timeout_ms)

    def push(self) -> bool:
        if self.producer.writing and self.outbox.push():
            self.producer.written()
        return not self.producer.writing

    def wake_at(self, due_bytes: int) -> None:
        """Holds back the read event until `due_bytes` of responses have arrived."""
        self.outbox.transport.expect_bytes(max(1, due_bytes - self._in_flight.frame_reader.waiting))

    def receive(self, now_s: float) -> Iterator[CompletedRequest]:
        """Yields every complete response. If the target hangs up or sends a malformed response, raises after the ones
        before that.
        """
        in_flight, frame_reader, transport = self._in_flight, self._in_flight.frame_reader, self.outbox.transport
        while True:
            got = transport.recv_into(frame_reader.room())
            if got == WOULD_BLOCK:
                return
            if got == 0:
                raise KafkaError(f"{self.outbox.connection.place}: the target hung up", retriable=True)
            frame_reader.took(got)
            try:
                while (answer := in_flight.answer()) is not None:
                    if answered := self._read(answer, now_s):
                        yield answered
            except WireError as error:
                raise protocol_violation_error(error, self.outbox.connection.place) from error

    def _read(self, answer: Response, now_s: float) -> CompletedRequest | None:
        """Returns the completed request, or None while a second response is to come. An unreadable one stays
        unanswered.
        """
        view, position, key = answer.view, answer.position, answer.asked.api.key
        if key == MARKERS_KEY:
            self.producer.marked(parse_markers(view, position))
            return None
        if key == PRODUCE_KEY:
            produced = read_produce_response(view, position, self.producer.version)
            answered = self.producer.produced(produced.appended, produced.throttle_ms, now_s)
        else:
            ends, (throttle_ms,) = parse_list_offsets(view, position), I32.unpack_from(view, position)
            answered = self.producer.end_offsets_received(ends, throttle_ms, now_s)
        if self.producer.undelivered_s != self._undelivered_s:
            self._undelivered_s = self.producer.undelivered_s
            self.outbox.transport.set_ack_timeout(self._undelivered_s)
        return answered

    def close(self) -> None:
        self.outbox.connection.close()


def unregister(selector: selectors.BaseSelector, line: HasFileno) -> None:
    """Removes `line` from the selector, even if `line` is already closed."""
    try:
        selector.unregister(line)
    except (KeyError, ValueError):
        # A closed socket has already left the selector's kernel side; find it by value.
        for key in list(selector.get_map().values()):
            if key.fileobj is line:
                selector.unregister(key.fileobj)


REAUTHENTICATION_MARGIN_S = 5.0
READABLE, READABLE_OR_WRITABLE = selectors.EVENT_READ, selectors.EVENT_READ | selectors.EVENT_WRITE
Handler = Callable[[int], None]


class TaskRunner:
    """Runs one task attempt. `run` returns the sentence that says why the attempt ended."""

    def __init__(self, config: TaskConfig, shared_fetch: SharedFetch | None = None) -> None:
        """`shared_fetch`: the shared fetch of this broadcast's tasks in the same thread. Without one, a broadcast's
        task gets its own.
        """
        self.config = config
        self.partitions = TaskPartitions(
            config.producer_id,
            config.producer_epoch,
            config.fence,
            state_expiry_ms=config.state_expiry_ms,
            limits=config.limits,
            never_cut=config.never_cut,
            shared_fetch=shared_fetch or SharedFetch.of(config),
            queue=config.queue,
        )
        self._coordinator = CoordinatorClient(config)
        lease = WriteLease()
        self._calls = BlockingCalls(config, lambda: lease.holds(steady_s()))
        by_units = self._calls.units is not None
        self.core = TaskCore(self.partitions, lease, steady_s(), report_s=config.report_s, by_units=by_units)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._coordinator, READABLE, self._on_coordinator)
        self._selector.register(self._calls.wake_socket, READABLE, self._on_calls)
        self._sources: dict[SourceFetcher, SourceConnection] = {}
        self._targets: dict[TargetProducer, TargetConnection] = {}
        self._handlers: dict[type, Callable[[Any], None]] = {
            connections.SendRequest: self._send,
            connections.SendFetch: self._fetch,
            connections.SetWakeThreshold: lambda wake: self._targets[wake.producer].wake_at(wake.due_bytes),
            connections.PollSocket: self._look_for_answers,
            connections.DetachBuffers: lambda detach: self._targets[detach.producer].outbox.detach(),
            connections.CloseConnection: self._hang_up,
            connections.LearnTwinNames: lambda learn: self._calls.learn(learn.configs),
            connections.OpenConnection: lambda dial: self._calls.dial(*dial),
            connections.LookUpLeaders: lambda _: self._calls.ask_routes(self.partitions.replicators.values()),
            connections.InspectTwins: lambda inspect: self._calls.look(inspect.partitions, self.partitions.replicators),
            connections.DeleteTwinRecords: lambda cut: self._calls.cut(cut.before, self.partitions.replicators),
            connections.WriteMarkersByTransactions: self._mark_by_transactions,
            **dict.fromkeys(TASK_MESSAGES, self._coordinator.say),
        }

    def run(self) -> str:
        core = self.core
        try:
            while not core.ended:
                self.turn(TIMER_INTERVAL_S)
        except CoordinatorLost as error:
            core.ended = error.message
        finally:
            self.close()
        return core.ended

    def fileno(self) -> int:
        """A descriptor that is readable while `turn` has events to handle."""
        return self._selector.fileno()

    def due_s(self, quiet_s: float) -> float:
        """When the task needs a turn without an event. `quiet_s` delays the timers of a running task."""
        if self._pending():
            return 0.0
        at_s = self.core.timers_at_s
        return at_s + quiet_s if self.core.going and not self.partitions.finishing else at_s

    def turn(self, wait_s: float) -> None:
        """Handles the events that have come or come within `wait_s`."""
        came = self._selector.select(wait_s if not self._pending() else 0.0)
        begun_s = steady_s()
        for key, mask in came:
            handler: Handler = key.data
            handler(mask)
        for connection in list(self._sources.values()):
            if connection.flow.receiving and connection.outbox.transport.pending():
                self._on_source(connection, READABLE)
        core, now_s = self.core, steady_s()
        if now_s >= core.timers_at_s:
            self._do(core.timers(now_s))
        if core.going and not core.ended:
            self.partitions.go_on(now_s, wall_ms())
            self._do(core.flow(steady_s(), wall_ms()))
            self.partitions.took(steady_s() - begun_s)

    def _pending(self) -> bool:
        if self.core.going and (self.partitions.backlog or self.partitions.called):
            return True  # A standby task takes up nothing of that.
        return any(connection.outbox.transport.pending() for connection in self._sources.values())

    def _do(self, wanted: Iterable[TaskCommand]) -> None:
        handlers = self._handlers
        for command in wanted:
            handlers[type(command)](command)

    # -- connections

    def _send(self, send: connections.SendRequest) -> None:
        line = self._targets[send.producer]
        try:
            if not line.send(send.flight):
                self._selector.modify(line, READABLE_OR_WRITABLE, partial(self._on_target, line))
        except TwinshoreError:
            self._do(self.core.lost(send.producer, steady_s()))

    def _fetch(self, fetch: connections.SendFetch) -> None:
        connection = self._sources[fetch.flow]
        try:
            if not connection.ask(fetch):
                self._selector.modify(connection, READABLE_OR_WRITABLE, partial(self._on_source, connection))
        except TwinshoreError as error:
            self._do(self.core.lost(fetch.flow, steady_s(), error.message))

    def _look_for_answers(self, receive: connections.PollSocket) -> None:
        if isinstance(receive.flow, SourceFetcher):
            self._on_source(self._sources[receive.flow], READABLE)
        else:
            self._on_target(self._targets[receive.flow], READABLE)

    def _on_source(self, connection: SourceConnection, mask: int) -> None:
        try:
            if mask & selectors.EVENT_WRITE and connection.outbox.push():
                self._selector.modify(connection, READABLE, partial(self._on_source, connection))
            if mask & READABLE:
                now_s = steady_s()
                if response := connection.receive(now_s):
                    self.core.fetched(connection.flow, *response, now_s, wall_ms())
        except TwinshoreError as error:
            self._do(self.core.lost(connection.flow, steady_s(), error.message))

    def _on_target(self, line: TargetConnection, mask: int) -> None:
        try:
            if mask & selectors.EVENT_WRITE and self.core.lease.holds(steady_s()) and line.push():
                self._selector.modify(line, READABLE, partial(self._on_target, line))
            if mask & READABLE:
                now_s = steady_s()
                for answer in line.receive(now_s):
                    self.core.answered(line.producer, answer, now_s)
        except TwinshoreError:
            self._do(self.core.lost(line.producer, steady_s()))

    def _hang_up(self, hang_up: connections.CloseConnection) -> None:
        flow = hang_up.flow
        line = self._sources.pop(flow, None) if isinstance(flow, SourceFetcher) else self._targets.pop(flow, None)
        if line:
            unregister(self._selector, line)
            line.close()

    # -- events

    def _on_coordinator(self, _mask: int) -> None:
        for message in self._coordinator.words():
            self._do(self.core.hear(message, steady_s()))

    def _on_calls(self, _mask: int) -> None:
        for report in self._calls.take():
            self._reported(report)

    def _reported(self, report: CallResult) -> None:
        core, now_s = self.core, steady_s()
        match report:
            case ConnectionOpened(side, key, connection, error):
                if connection:
                    self._dialled(side, key, connection, now_s)
                else:
                    core.failed(side, key, error, now_s)
            case LeadersFound(routes, error, silent):
                core.routed(routes, silent, error, now_s)
            case MarkersFinished(marks, answers):
                core.closed(marks, answers, now_s)
            case TwinsInspected(seen):
                core.looked(seen, now_s, wall_ms())

    def _dialled(self, side: str, key: object, connection: Connection, now_s: float) -> None:
        expires_s = now_s + connection.expires_at - time.monotonic() - REAUTHENTICATION_MARGIN_S
        flow: SourceFetcher | TargetProducer | None = None
        line: SourceConnection | TargetConnection
        try:
            version = connection.handwritten_version(FETCH_KEY if side == "source" else PRODUCE_KEY)
            flow = self.core.dialled(side, key, now_s, version=version, expires_s=expires_s)
            match flow:
                case None:
                    connection.close()
                    return
                case SourceFetcher():
                    line = self._sources[flow] = SourceConnection(flow, connection)
                    handler: Handler = partial(self._on_source, line)
                case TargetProducer():
                    line = self._targets[flow] = TargetConnection(flow, connection, self.partitions.producer)
                    handler = partial(self._on_target, line)
        except TwinshoreError as error:
            connection.close()
            if flow:
                self._do(self.core.lost(flow, now_s))
            self.core.failed(side, key, error.message, now_s)
        else:
            self._selector.register(line, READABLE, handler)

    def _mark_by_transactions(self, wanted: connections.WriteMarkersByTransactions) -> None:
        if self._calls.units:
            self._calls.units.take(wanted.marks)

    def close(self) -> None:
        self.hang_up()
        self.let_go()

    def hang_up(self) -> None:
        """Closes all connections at once, even halfway through a request."""
        self.partitions.leave()
        for source in self._sources.values():
            source.close()
        for target in self._targets.values():
            target.close()
        self._coordinator.close()
        self._selector.close()

    def let_go(self) -> None:
        """Closes the blocking calls. May wait for one in progress."""
        self._calls.close()


ALIVE_INTERVAL_S = 1.0
# An idle task gets turns this often: its deadlines and reports are seldom nearer.
IDLE_POLL_INTERVAL_S = 0.1
READ = selectors.EVENT_READ


class TaskGroupRunner:
    """Runs one attempt of a task group. `run` returns once the group is stopped or the driver lost, and no task is
    left.
    """

    def __init__(self, order: TaskGroupConfig) -> None:
        who = {"token": order.coordinator_token, "task_group": order.task_group, "run": order.run}
        self._line = DriverConnection(order.coordinator_host, order.coordinator_port, **who)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._line, READ)
        # Whether turns are reported to the driver, and the last one that was.
        self._tells, self._told = order.tells, 0
        # Shared fetches of broadcasts' tasks.
        self._readings = SharedFetches()
        # The slot of each task.
        self._runners: dict[TaskRunner, int] = {}
        self._leaving = False
        self._lost = False
        self._afloat_at_s = 0.0

    def run(self) -> str:
        try:
            while self._runners or not self._leaving:
                self._turn()
        finally:
            for runner in list(self._runners):
                runner.close()
            self._line.close()
            self._selector.close()
        return "finished"

    def _turn(self) -> None:
        now_s = steady_s()
        latest_s = now_s + IDLE_POLL_INTERVAL_S
        due_s = min([latest_s, *(runner.due_s(IDLE_POLL_INTERVAL_S) for runner in self._runners)])
        came = {key.fileobj for key, _ in self._selector.select(max(0.0, due_s - now_s))}
        self._talk(self._line in came)
        for runner in list(self._runners):
            if runner in came or runner.due_s(IDLE_POLL_INTERVAL_S) <= steady_s():
                self._tell_turn(self._runners[runner])
                self._turn_of(runner)
        self._tell_turn(0)

    def _turn_of(self, runner: TaskRunner) -> None:
        try:
            runner.turn(0.0)
            ended, died = runner.core.ended, False
        except CoordinatorLost as error:
            ended, died = error.message, False
        except Exception as error:
            # Ends this task alone: the others in the group are of other links.
            ended, died = describe_error(error), True
        if ended:
            self._selector.unregister(runner)
            with contextlib.suppress(OSError):
                runner.hang_up()
            _let_go_aside(runner)
            self._say(SlotEnded(self._runners.pop(runner), ended, died))

    # -- the driver

    def _talk(self, spoken: bool) -> None:
        if self._lost:
            return
        if steady_s() >= self._afloat_at_s:
            self._afloat_at_s = steady_s() + ALIVE_INTERVAL_S
            self._say(TaskGroupAlive())
        try:
            for message in self._line.heard() if spoken else ():
                self._hear(message)
        except CoordinatorLost:
            self._let_go()

    def _hear(self, message: dict[str, Any]) -> None:
        try:
            word = decode_for_task_group(message)
        except Exception as error:
            if "slot" not in message:
                raise
            # For example if the driver's package differs from this worker's: running tasks go on.
            self._say(SlotEnded(message["slot"], f"its order is unreadable: {describe_error(error)}", died=True))
            return
        match word:
            case StartTask():
                self._begin(word)
            case StopTaskGroup():
                self._leaving = True

    def _begin(self, task: StartTask) -> None:
        self._tell_turn(task.slot)
        try:
            high_bytes = task.config.queue.high_bytes if task.config.broadcast else 0
            config = replace(task.config, limits=narrow_limits(task.config.limits, high_bytes))
            runner = TaskRunner(config, self._readings.of(config))
        except Exception as error:
            self._say(SlotEnded(task.slot, describe_error(error), died=not isinstance(error, CoordinatorLost)))
            return
        self._runners[runner] = task.slot
        self._selector.register(runner, READ)

    def _tell_turn(self, slot: int) -> None:
        """Reports the turn before it begins: a process that dies or freezes in that turn cannot report."""
        if self._tells and slot != self._told:
            self._told = slot
            self._say(SlotTurn(slot))

    def _say(self, message: TaskGroupMessage) -> None:
        if not self._lost:
            try:
                self._line.tell(encode_message(message))
            except CoordinatorLost:
                self._let_go()

    def _let_go(self) -> None:
        """Gives up the driver connection. No task starts any more; running ones go on by their own connections and
        leases.
        """
        self._leaving = self._lost = True
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(self._line)


def _let_go_aside(runner: TaskRunner) -> None:
    """Closes blocking calls in a thread, so that other tasks keep their turns; here only if no thread can start."""
    try:
        threading.Thread(target=runner.let_go, name="let go", daemon=True).start()
    except RuntimeError:
        with contextlib.suppress(OSError):
            runner.let_go()


# New objects before a collection. A task leaves no cycles behind, and batches that
# wait to be sent are some ten objects each.
GC_THRESHOLD_OBJECTS = 10_000


def tune_garbage_collector() -> None:
    """Freezes what is loaded and makes collections rare: objects that wait to be sent are no garbage."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD_OBJECTS)


def run_tasks(orders: Iterable[str]) -> Iterator[str]:
    """The body of a Spark task. Yields the sentence that says how each attempt ended."""
    # Imported here: the driver ships this function without loading the task.
    from twinshore.replication.task.core.messages import TaskGroupConfig, parse_task_config
    from twinshore.runtime.compile import build_while_running

    build_while_running()
    tune_garbage_collector()
    for text in orders:
        order = parse_task_config(text)
        try:
            yield TaskGroupRunner(order).run() if isinstance(order, TaskGroupConfig) else TaskRunner(order).run()
        except CoordinatorLost as error:  # it stopped, or is unreachable, before this attempt began
            yield error.message
