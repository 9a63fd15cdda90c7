"""The pump's connections: one fetch at a time on a source line, several produce requests on a target line.

Buffers are received into again and again; a parcel keeps its buffer busy until the kernel has taken it.
"""

from __future__ import annotations

import time
from collections import deque
from typing import NamedTuple

from twinshore.fleet import KafkaError
from twinshore.kafka.connection import Connection
from twinshore.kafka.transport import WOULD_BLOCK
from twinshore.mirror.fetch_book import FetchOrder, Line
from twinshore.mirror.joining import Hold
from twinshore.mirror.lane import Lane
from twinshore.mirror.orders import LaneLimits
from twinshore.mirror.passage.marking import Marked, by_topic, layers
from twinshore.mirror.passage.runs import Marks
from twinshore.mirror.passage.units import UNIT_MARKERS_MAX, Units
from twinshore.mirror.track import Sent
from twinshore.wire.fetch import FetchAnswer, encode_fetch, parse_fetch
from twinshore.wire.frames import frame, read_response_header
from twinshore.wire.log_ends import LOG_ENDS_KEY, LOG_ENDS_VERSION, LogEnd, encode_log_ends, parse_log_ends
from twinshore.wire.markers import MARKERS_KEY, MARKERS_VERSION, MarkedPartition, encode_markers, parse_markers
from twinshore.wire.primitives import Buffer
from twinshore.wire.produce import ProducedPartition, encode_produce, parse_produce

CLIENT_ID = "twinshore-pump"
FETCH, FETCH_VERSION = 1, 13
PRODUCE, PRODUCE_VERSION_MIN, PRODUCE_VERSION_MAX = 0, 9, 13
READ_COMMITTED = 1
BUFFER_BYTES_MIN = 256 << 10
ANSWER_BYTES_MAX = 1 << 30
ANSWER_SLACK_S = 10.0
FAR_S = 0.01
EXPIRY_S = 5.0
UNANSWERED = -1  # as brokers call an error without a name
CORRELATION_MAX = 0x7FFFFFFF
FETCH_BYTES_WIDEST = 128 << 20


class Outbox:
    """Buffers on their way into a socket."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.transport = connection.transport
        self._waiting: list[Buffer] = []

    def expired(self) -> bool:
        """The broker will soon want a new authentication: a new connection brings it."""
        return time.monotonic() > self.connection.expires_at - EXPIRY_S

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
            index = 0
            while index < len(waiting) and taken >= len(waiting[index]):
                taken -= len(waiting[index])
                index += 1
            del waiting[:index]
            if taken and waiting:
                waiting[0] = memoryview(waiting[0])[taken:]
        return not waiting


class SourceLine:
    """One connection to a leader on the source, for a share of its partitions."""

    def __init__(self, key: Line, connection: Connection, limits: LaneLimits) -> None:
        self.key = key
        self.outbox = Outbox(connection)
        self.limits = limits
        self.version = connection.api_version(FETCH, FETCH_VERSION, FETCH_VERSION)
        self.deadline_s = 0.0
        self._fetch_bytes = limits.fetch_bytes_max
        self._asked_s = self._first_s = 0.0
        self._holds = [Hold(bytearray(BUFFER_BYTES_MIN)) for _ in range(limits.buffers_per_line)]
        self._correlation = 0
        self._current: Hold | None = None
        self._filled = 0

    def fileno(self) -> int:
        return self.outbox.transport.fileno()

    def free(self) -> bool:
        """Nothing is asked, and there is a buffer for an answer."""
        return self._current is None and any(hold.uses == 0 for hold in self._holds)

    @property
    def asking(self) -> bool:
        return self._current is not None

    def ask(self, order: FetchOrder, now_s: float, *, wait_ms: int) -> bool:
        """Sends a fetch; True when the kernel took it whole."""
        body = encode_fetch(
            session_id=order.session_id,
            session_epoch=order.session_epoch,
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=min(self._fetch_bytes, order.bytes_max or self._fetch_bytes),
            isolation=READ_COMMITTED,
            partitions=order.partitions,
            forgotten=order.forgotten,
        )
        self._correlation = self.outbox.connection.next_correlation_id()
        self._current = next(hold for hold in self._holds if hold.uses == 0)
        self._filled = 0
        self._asked_s, self._first_s = now_s, 0.0
        self.deadline_s = now_s + wait_ms / 1000 + ANSWER_SLACK_S
        self.outbox.put(frame(FETCH, self.version, self._correlation, CLIENT_ID, [body]))
        return self.outbox.push()

    def receive(self, now_s: float) -> tuple[FetchAnswer, Hold] | None:
        """The whole answer once it is there. Any byte that comes puts the deadline off."""
        hold = self._current
        if hold is None:
            raise KafkaError(f"{self.outbox.connection.place}: the broker spoke unasked or hung up", retriable=True)
        while True:
            size = self._size(hold)
            wanted = len(hold.buffer) if size is None else size + 4
            if self._filled >= wanted and size is not None:
                return self._complete(hold, size)
            with memoryview(hold.buffer) as whole, whole[self._filled : wanted] as room:
                got = self.outbox.transport.recv_into(room)
            if got == WOULD_BLOCK:
                return None
            if got == 0:
                raise KafkaError(f"{self.outbox.connection.place}: the source hung up", retriable=True)
            self._filled += got
            self._first_s = self._first_s or now_s
            self.deadline_s = now_s + ANSWER_SLACK_S

    def starved(self, now_s: float) -> bool:
        """Whether a good part of the last fetch was spent waiting for its first byte, though there was plenty to read:
        the round trip, not the reading, sets the pace. The next may be larger then."""
        waited_s = self._first_s - self._asked_s
        if self._filled < self.limits.fetch_bytes_max // 8 or waited_s < max(FAR_S, (now_s - self._asked_s) / 10):
            return False
        if 4 * self._filled >= 3 * self._fetch_bytes:
            self._fetch_bytes = min(2 * self._fetch_bytes, FETCH_BYTES_WIDEST)
        return True

    def _size(self, hold: Hold) -> int | None:
        if self._filled < 4:
            return None
        size = int.from_bytes(hold.buffer[:4], "big")
        if not 4 <= size <= ANSWER_BYTES_MAX:
            raise KafkaError(f"{self.outbox.connection.place}: a fetch answer claims {size} bytes")
        if size + 4 > len(hold.buffer):
            larger = bytearray(max(size + 4, min(2 * len(hold.buffer), self.limits.fetch_bytes_max)))
            larger[: self._filled] = memoryview(hold.buffer)[: self._filled]
            hold.buffer = larger
        return size

    def _complete(self, hold: Hold, size: int) -> tuple[FetchAnswer, Hold]:
        view = memoryview(hold.buffer).toreadonly()[4 : 4 + size]
        correlation, position = read_response_header(view)
        if correlation != self._correlation:
            raise KafkaError(f"{self.outbox.connection.place}: answer {correlation} to fetch {self._correlation}")
        self._current = None
        return parse_fetch(view, position), hold

    def close(self) -> None:
        self.outbox.connection.close()


class InFlight(NamedTuple):
    correlation: int
    sent: list[Sent]
    deadline_s: float
    sent_s: float
    marks: list[Marks]


class Answered(NamedTuple):
    """A request of a target line with its answer: `marked` for markers, `produced` for all else."""

    flight: InFlight
    produced: list[ProducedPartition]
    marked: list[Marked]

    def tell(self, lane: Lane, now_s: float) -> None:
        if self.flight.marks:
            lane.marked(self.flight.marks, self.marked, now_s)
        else:
            lane.produced(self.flight.sent, self.produced, now_s)


class TargetLine:
    """One connection to a leader on the target."""

    def __init__(self, node: int, connection: Connection, limits: LaneLimits, units: Units | None = None) -> None:
        """`units` writes the markers where they may not be written directly."""
        self.node = node
        self.units = units
        self.outbox = Outbox(connection)
        self.limits = limits
        self.version = connection.api_version(PRODUCE, PRODUCE_VERSION_MAX, PRODUCE_VERSION_MIN)
        self.outbox.transport.drop_unsent_at_close()
        self.outbox.transport.give_up_after(limits.undelivered_s)
        self.in_flight: deque[InFlight] = deque()
        self.answered_s = 0.0
        self._writing: list[Sent] = []
        self._busy = False
        self._marked: list[MarkedPartition] | None = None
        self._buffer = bytearray(BUFFER_BYTES_MIN)
        self._filled = 0

    def fileno(self) -> int:
        return self.outbox.transport.fileno()

    def free(self) -> bool:
        return not self._busy and len(self.in_flight) < self.limits.inflight_max and not self.outbox.expired()

    @property
    def writing(self) -> bool:
        return self._busy

    def serve(self, lane: Lane, now_s: float, now_ms: int) -> None:
        """Sends what the lane has for this leader, as long as there is room."""
        while self.free():
            sent = lane.produce_order(self.node, now_ms)
            if not sent:
                break
            self.send(sent, now_s)
        if self.units:
            self.units.take(lane.marker_order(self.node, UNIT_MARKERS_MAX))
        while not self.units and self.free():
            marks = lane.marker_order(self.node)
            if not marks:
                break
            self.mark(marks, now_s, *lane.producer)

    def send(self, sent: list[Sent], now_s: float) -> None:
        """Puts one produce request on its way; `push` goes on with it when the kernel has room again."""
        topics: dict[str, tuple[str, bytes, list[tuple[int, bytes, Buffer]]]] = {}
        for track, parcel, _ in sent:
            order = track.order
            topic = order.twin or order.topic
            entry = topics.get(topic)
            if entry is None:
                entry = topics[topic] = (topic, track.target_id, [])
            entry[2].append((order.partition, parcel.head, parcel.body))
        timeout_s = self.limits.produce_timeout_s
        body = encode_produce(self.version, list(topics.values()), timeout_ms=int(timeout_s * 1000))
        correlation = self.outbox.connection.next_correlation_id()
        self.in_flight.append(InFlight(correlation, sent, now_s + timeout_s + ANSWER_SLACK_S, now_s, []))
        self._put(sent, frame(PRODUCE, self.version, correlation, CLIENT_ID, body))

    def mark(self, marks: list[Marks], now_s: float, producer_id: int, producer_epoch: int) -> None:
        """Puts a marker request on its way, and right behind it the question where the logs end then: a broker takes
        the requests of a connection one after another."""
        connection = self.outbox.connection
        connection.api_version(MARKERS_KEY, MARKERS_VERSION, MARKERS_VERSION)
        runs = [entry.run for entry in marks]
        first, second = connection.next_correlation_id(), connection.next_correlation_id()
        body = encode_markers(layers(runs, producer_id, producer_epoch))
        asked = encode_log_ends(by_topic(runs))
        deadline_s = now_s + self.limits.produce_timeout_s + ANSWER_SLACK_S
        self.in_flight.append(InFlight(first, [], deadline_s, now_s, marks))
        buffers = frame(MARKERS_KEY, MARKERS_VERSION, first, CLIENT_ID, [body])
        self._put([], buffers + frame(LOG_ENDS_KEY, LOG_ENDS_VERSION, second, CLIENT_ID, [asked]))

    def _put(self, sent: list[Sent], buffers: list[Buffer]) -> None:
        self._writing, self._busy = sent, True
        self.outbox.put(buffers)
        self.push()

    def push(self) -> None:
        if self._busy and self.outbox.push():
            release(self._writing)
            self._writing, self._busy = [], False

    def detach(self) -> None:
        """A peer that takes nothing must not keep receive buffers busy."""
        self.outbox.detach()
        release(self._writing)
        self._writing = [entry._replace(hold=None) for entry in self._writing]

    def receive(self) -> list[Answered]:
        """Every answer that is complete."""
        found: list[Answered] = []
        while True:
            with memoryview(self._buffer) as whole, whole[self._filled :] as room:
                got = self.outbox.transport.recv_into(room)
            if got == WOULD_BLOCK:
                return found
            if got == 0:
                raise KafkaError(f"{self.outbox.connection.place}: the target hung up", retriable=True)
            self._filled += got
            start = 0
            while self._filled - start >= 4:
                size = int.from_bytes(self._buffer[start : start + 4], "big")
                if not 4 <= size <= ANSWER_BYTES_MAX:
                    raise KafkaError(f"{self.outbox.connection.place}: a produce answer claims {size} bytes")
                if self._filled - start < size + 4:
                    if size + 4 > len(self._buffer):
                        self._buffer.extend(bytes(size + 4 - len(self._buffer)))
                    break
                answered = self._match(bytes(self._buffer[start + 4 : start + 4 + size]))
                if answered:
                    found.append(answered)
                start += size + 4
            if start:
                self._buffer[: self._filled - start] = self._buffer[start : self._filled]
                self._filled -= start
            if self._filled == len(self._buffer):
                self._buffer.extend(bytes(len(self._buffer)))

    def _match(self, answer: bytes) -> Answered | None:
        """The request that is answered by now; None when the other half of its answer is still to come."""
        view = memoryview(answer)
        correlation, position = read_response_header(view)
        flight = self.in_flight[0] if self.in_flight else None
        behind = self._marked is not None  # the log ends were asked under the next number
        if flight is None or correlation != (flight.correlation + behind) & CORRELATION_MAX:
            raise KafkaError(f"{self.outbox.connection.place}: an answer out of order")
        if flight.marks and self._marked is None:
            self._marked = parse_markers(view, position)
            return None
        self.in_flight.popleft()
        if self._marked is None:
            return Answered(flight, parse_produce(view, position, self.version), [])
        codes = {(one.topic, one.partition): one.error for one in self._marked}
        self._marked = None
        ends = parse_log_ends(view, position)
        return Answered(flight, [], [joined(codes, end) for end in ends])

    def close(self) -> list[list[Sent] | list[Marks]]:
        """Hangs up; returns what was never answered."""
        self.outbox.connection.close()
        release(self._writing)
        self._writing, self._busy = [], False
        unanswered = [entry.marks or entry.sent for entry in self.in_flight]
        self.in_flight.clear()
        return unanswered


def joined(codes: dict[tuple[str, int], int], end: LogEnd) -> Marked:
    """What a partition's markers were answered; without a word about them the look at the twin must tell."""
    error = codes.get((end.topic, end.partition), UNANSWERED)
    return Marked(end.topic, end.partition, error or end.error, -1 if end.error else end.end)


def release(sent: list[Sent]) -> None:
    """The kernel has these bytes: their buffers may be received into again."""
    for _, _, hold in sent:
        if hold:
            hold.uses -= 1
