"""A pump's connections to leaders, as its flows want them: requests go, answers become what they say. A source's are
received into the buffers that its flow names."""

from __future__ import annotations

import json
import selectors
import socket
from collections.abc import Iterator
from typing import Any, Protocol

from twinshore.fleet import KafkaError, TwinshoreError, WireError
from twinshore.kafka.connection import Connection, explain_wire_error
from twinshore.kafka.transport import WOULD_BLOCK
from twinshore.mirror.core.commands import Fetch, Flight
from twinshore.mirror.core.desk_words import Message, OfDesk, OfPump, heard_by_pump, line_of, said
from twinshore.mirror.core.source_flow import ANSWER_SLACK_S, SourceFlow
from twinshore.mirror.core.target_flow import Answered, TargetFlow
from twinshore.mirror.lane.marking import asked, layers
from twinshore.mirror.lane.orders import TideOrder
from twinshore.mirror.lane.track import Sent
from twinshore.wire.exchange import Answer
from twinshore.wire.fetch import FETCH_KEY, FetchAnswer, encode_fetch, parse_fetch
from twinshore.wire.framing import forget_sent
from twinshore.wire.markers import (
    LOG_ENDS_KEY,
    LOG_ENDS_VERSION,
    MARKERS_KEY,
    encode_log_ends,
    encode_markers,
    parse_log_ends,
    parse_markers,
)
from twinshore.wire.primitives import I32, Buffer
from twinshore.wire.produce import PRODUCE_KEY, encode_produce, parse_produced

LINE_BYTES_MAX = 64 << 20
HELLO_S = 20.0
TELL_S = 1.0
CLIENT_ID = "twinshore-pump"
BUFFER_BYTES_MIN = 256 << 10
READ_COMMITTED = 1
# A turn of the loop costs about what receiving 100 KB costs, and nothing is cut from an answer before it is whole.
WAKE_BYTES = 1 << 20


class DeskLost(TwinshoreError):
    """The driver cannot be reached; the grant decides how long the pump goes on."""


class DriverLine:
    """Blocking writes of small lines, non-blocking reads. `hello`: what it says of itself, first of all."""

    def __init__(self, host: str, port: int, **hello: Any) -> None:
        try:
            self._sock = socket.create_connection((host, port), timeout=HELLO_S)
            self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError as error:
            raise DeskLost(f"the driver cannot be reached at {host}:{port}: {error}") from error
        self._received = bytearray()
        try:
            self.tell({"what": "hello", **hello}, HELLO_S)
        except DeskLost:
            self.close()
            raise

    def fileno(self) -> int:
        return self._sock.fileno()

    def tell(self, message: Message, within_s: float = TELL_S) -> None:
        """One message to the driver. A stuck driver costs no more time than this."""
        line = line_of(message)
        try:
            self._sock.settimeout(within_s)
            self._sock.sendall(line)
        except OSError as error:
            raise DeskLost(f"the driver cannot be told: {error}") from error

    def heard(self) -> list[Message]:
        """Every message that has come."""
        self._sock.setblocking(False)
        while True:
            try:
                got = self._sock.recv(1 << 16)
            except BlockingIOError:
                break
            except OSError as error:
                raise DeskLost(f"the driver is gone: {error}") from error
            if not got:
                raise DeskLost("the driver hung up")
            self._received += got
            if len(self._received) > LINE_BYTES_MAX:
                raise DeskLost("the driver sends a line without an end")
        *lines, rest = self._received.split(b"\n")
        self._received = bytearray(rest)
        return [json.loads(line) for line in lines]

    def close(self) -> None:
        self._sock.close()


class DeskLine(DriverLine):
    """A pump's."""

    def __init__(self, order: TideOrder) -> None:
        who = {"token": order.desk_token, "link": order.link, "lane": order.lane, "tide": order.tide}
        super().__init__(order.desk_host, order.desk_port, **who)

    def say(self, word: OfPump) -> None:
        self.tell(said(word))

    def words(self) -> list[OfDesk]:
        """All that have come."""
        return [heard_by_pump(message) for message in self.heard()]


class HasFileno(Protocol):
    """What a selector looks at."""

    def fileno(self) -> int: ...


class Outbox:
    """Buffers on their way into a socket."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.transport = connection.transport
        self._waiting: list[Buffer] = []

    def put(self, buffers: list[Buffer]) -> None:
        self._waiting = buffers

    def detach(self) -> None:
        """Copies what the kernel has not taken, so that the buffers it lies in are free."""
        self._waiting = [bytes(piece) for piece in self._waiting]

    def push(self) -> bool:
        """Gives the kernel what it takes; True once everything is taken."""
        waiting = self._waiting
        while waiting:
            taken = self.transport.sendv(waiting)
            if taken == WOULD_BLOCK:
                break
            forget_sent(waiting, taken)
        return not waiting


class SourceLine:
    """One connection to a leader on the source, for a share of its partitions."""

    def __init__(self, flow: SourceFlow, connection: Connection) -> None:
        self.flow = flow
        self.outbox = Outbox(connection)
        self.version = connection.spoken(FETCH_KEY)
        self._exchange = connection.hand_over(CLIENT_ID)
        for hold in flow.holds:
            hold.buffer = bytearray(BUFFER_BYTES_MIN)

    def fileno(self) -> int:
        return self.outbox.transport.fileno()

    def ask(self, fetch: Fetch) -> bool:
        """Sends a fetch; True when the kernel took it whole."""
        order = fetch.order
        body = encode_fetch(
            session_id=order.session_id,
            session_epoch=order.session_epoch,
            max_wait_ms=fetch.wait_ms,
            min_bytes=1,
            max_bytes=fetch.bytes_max,
            isolation=READ_COMMITTED,
            partitions=order.partitions,
            forgotten=order.forgotten,
        )
        self.outbox.connection.lend(fetch.hold.buffer)
        self.outbox.put(self._exchange.ask(FETCH_KEY, self.version, [body], self.flow.deadline_s))
        return self.outbox.push()

    def receive(self, now_s: float) -> tuple[FetchAnswer, int] | None:
        """The whole answer once it is there, and its size."""
        hold = self.flow.receiving
        if hold is None:
            raise KafkaError(
                f"{self.outbox.connection.place}: the broker closed the connection, or sent what nothing had asked for",
                retriable=True,
            )
        exchange, framer, transport = self._exchange, self._exchange.framer, self.outbox.transport
        heard = False
        while True:
            try:
                answer = exchange.answer()
            except WireError as error:
                raise explain_wire_error(error, self.outbox.connection.place) from error
            if answer is not None:
                hold.buffer = framer.buffer  # a larger one, if need was
                transport.owes(1)
                return parse_fetch(answer.view, answer.position), len(answer.view)
            got = transport.recv_into(framer.room())
            if got == WOULD_BLOCK:
                if framer.lacks:
                    transport.owes(framer.lacks, WAKE_BYTES)
                return None
            if got == 0:
                raise KafkaError(f"{self.outbox.connection.place}: the source hung up", retriable=True)
            framer.took(got)
            if not heard:
                heard = True
                self.flow.heard(now_s)

    def close(self) -> None:
        self.outbox.connection.close()


class TargetLine:
    """One connection to a leader on the target. `producer`: the link's id and epoch."""

    def __init__(self, flow: TargetFlow, connection: Connection, producer: tuple[int, int]) -> None:
        self.flow = flow
        self.outbox = Outbox(connection)
        self._producer = producer
        self._exchange = connection.hand_over(CLIENT_ID)
        connection.lend(bytearray(BUFFER_BYTES_MIN))
        self.outbox.transport.drop_unsent_at_close()
        self._undelivered_s = flow.undelivered_s
        self.outbox.transport.give_up_after(self._undelivered_s)

    def fileno(self) -> int:
        return self.outbox.transport.fileno()

    def send(self, flight: Flight) -> bool:
        """Puts a request on its way; `push` goes on with it when the kernel has room again. True where it has all."""
        deadline_s = flight.sent_s + self.flow.limits.produce_timeout_s + ANSWER_SLACK_S
        if flight.sent:
            body = self._produce(flight.sent)
            buffers = self._exchange.ask(PRODUCE_KEY, self.flow.version, body, deadline_s)
        elif flight.asking:
            runs = [*(entry.run for entry in flight.marks), *(entry.run for entry in flight.rests)]
            buffers = self._exchange.ask(LOG_ENDS_KEY, LOG_ENDS_VERSION, [encode_log_ends(asked(runs))], deadline_s)
        else:
            version = self.outbox.connection.spoken(MARKERS_KEY)
            runs = [entry.run for entry in flight.marks]
            markers, question = encode_markers(layers(runs, *self._producer)), encode_log_ends(asked(runs))
            buffers = self._exchange.ask(MARKERS_KEY, version, [markers], deadline_s)
            buffers += self._exchange.ask(LOG_ENDS_KEY, LOG_ENDS_VERSION, [question], deadline_s)
        self.outbox.put(buffers)
        return self.push()

    def _produce(self, sent: list[Sent]) -> list[Buffer]:
        topics: dict[str, tuple[str, bytes, list[tuple[int, bytes, Buffer]]]] = {}
        for track, parcel, _, head, _ in sent:
            order = track.order
            topic = order.twin or order.topic
            entry = topics.get(topic)
            if entry is None:
                entry = topics[topic] = (topic, track.target_id, [])
            entry[2].append((order.partition, head, parcel.body))
        timeout_ms = int(self.flow.limits.produce_timeout_s * 1000)
        return encode_produce(self.flow.version, list(topics.values()), timeout_ms=timeout_ms)

    def push(self) -> bool:
        """Gives the kernel what it takes; True once it has everything."""
        if self.flow.writing and self.outbox.push():
            self.flow.written()
        return not self.flow.writing

    def wake_at(self, due_bytes: int) -> None:
        """Until so many bytes of answers are there nobody need be woken."""
        self.outbox.transport.owes(max(1, due_bytes - self._exchange.framer.waiting))

    def receive(self, now_s: float) -> Iterator[Answered]:
        """Every answer that is complete, those too behind which the target hangs up or says what nobody understands:
        that is raised once they have been taken."""
        exchange, framer, transport = self._exchange, self._exchange.framer, self.outbox.transport
        while True:
            got = transport.recv_into(framer.room())
            if got == WOULD_BLOCK:
                return
            if got == 0:
                raise KafkaError(f"{self.outbox.connection.place}: the target hung up", retriable=True)
            framer.took(got)
            try:
                while (answer := exchange.answer()) is not None:
                    if answered := self._read(answer, now_s):
                        yield answered
            except WireError as error:
                raise explain_wire_error(error, self.outbox.connection.place) from error

    def _read(self, answer: Answer, now_s: float) -> Answered | None:
        """What it says; None where the other half is still to come. Of one that cannot be read the request stays
        unanswered."""
        view, position, key = answer.view, answer.position, answer.asked.api.key
        if key == MARKERS_KEY:
            self.flow.marked(parse_markers(view, position))
            return None
        if key == PRODUCE_KEY:
            answered = self.flow.produced(*parse_produced(view, position, self.flow.version), now_s)
        else:
            ends, (throttle_ms,) = parse_log_ends(view, position), I32.unpack_from(view, position)
            answered = self.flow.ends_told(ends, throttle_ms, now_s)
        if self.flow.undelivered_s != self._undelivered_s:
            self._undelivered_s = self.flow.undelivered_s
            self.outbox.transport.give_up_after(self._undelivered_s)
        return answered

    def close(self) -> None:
        self.outbox.connection.close()


def unregister(selector: selectors.BaseSelector, line: HasFileno) -> None:
    """Has the selector look at it no more, also where it is closed already."""
    try:
        selector.unregister(line)
    except (KeyError, ValueError):
        # A closed socket has already left the selector's kernel side; find it by value.
        for key in list(selector.get_map().values()):
            if key.fileobj is line:
                selector.unregister(key.fileobj)
