"""Commands of a task's core, and the request logic of its connections.

Carry out each command before taking the next. `SourceFetcher` decides what one source connection fetches,
`TargetProducer` what one target connection sends and what responses mean.

No sequence lets a broker refuse markers, and their request names no leader epoch. So the log end is queried before, in
the epoch in which it was last known, and right after.

A broker with a request quota reads nothing for up to a second after each response, also to that query; a request sent
then would be too late to rely on the answer. So another connection asks, the `asker`.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from twinshore.config.model import TopicPartition
from twinshore.kafka.protocol.error_codes import UNKNOWN_ERROR
from twinshore.kafka.protocol.fetch import FetchedPartitionById, FetchResponseById
from twinshore.kafka.protocol.produce import ProducedPartition, response_bytes_min
from twinshore.kafka.protocol.record_batch import PREFIX_BYTES
from twinshore.kafka.protocol.transactions import LogEnd, MarkedPartition
from twinshore.replication.task.core.batches import PooledBuffer
from twinshore.replication.task.core.fetching import PlannedFetch
from twinshore.replication.task.core.known_end import LOG_END_TTL_S
from twinshore.replication.task.core.markers import MarkerOutcome
from twinshore.replication.task.core.messages import PartitionConfig, TaskLimits, TaskMessage
from twinshore.replication.task.core.partition import SentBatch
from twinshore.replication.task.core.partitions import TaskPartitions
from twinshore.replication.task.core.resync import (
    IDLE_CHECK_INTERVAL_S,
    EndOffsetCheck,
    PendingMarkers,
    split_by_log_end,
    split_by_phase,
)
from twinshore.replication.task.core.shared_read import FetchStream
from twinshore.replication.task.core.throttle import FIRST_FETCH_BYTES, FetchQuotaPacer, QuotaPacer

# -- to brokers


class EndOffsetConnectionKey(NamedTuple):
    """Key of the connection to a leader that only queries log ends."""

    node: int


class TargetRequest(NamedTuple):
    """A produce request; or markers and the end query after; or, `asking`, the query before and for other twins
    (`rests`).
    """

    sent: list[SentBatch]
    sent_s: float
    marks: list[PendingMarkers]
    asking: bool = False
    rests: Sequence[EndOffsetCheck] = ()
    size: int = 0


class SendRequest(NamedTuple):
    """Send this request; call `producer.written` once the kernel has all of it."""

    producer: TargetProducer
    flight: TargetRequest


class SendFetch(NamedTuple):
    """Send a fetch; receive the response into the buffer of `hold`."""

    flow: SourceFetcher
    order: PlannedFetch
    bytes_max: int
    wait_ms: int
    buffer: PooledBuffer


class PollSocket(NamedTuple):
    """Poll the socket for data that raised no read event."""

    flow: SourceFetcher | TargetProducer


class SetWakeThreshold(NamedTuple):
    """Hold back read events until `due_bytes` have arrived, from the oldest unanswered request on."""

    producer: TargetProducer
    due_bytes: int


class DetachBuffers(NamedTuple):
    """Copy what the kernel has not taken, to free the buffers."""

    producer: TargetProducer


class CloseConnection(NamedTuple):
    flow: SourceFetcher | TargetProducer


# -- blocking calls


class LearnTwinNames(NamedTuple):
    configs: Sequence[PartitionConfig]


class OpenConnection(NamedTuple):
    """Open a connection: a source stream, a target leader, or a target leader's end queries."""

    side: str
    node: int
    key: object


class LookUpLeaders(NamedTuple):
    """Ask both sides for the leaders of the task's partitions."""


class InspectTwins(NamedTuple):
    partitions: list[TopicPartition]


class DeleteTwinRecords(NamedTuple):
    """Delete the twins' records below these offsets."""

    before: dict[TopicPartition, int]


class WriteMarkersByTransactions(NamedTuple):
    marks: list[PendingMarkers]


TaskCommand = (
    SendRequest
    | SendFetch
    | PollSocket
    | SetWakeThreshold
    | DetachBuffers
    | CloseConnection
    | LearnTwinNames
    | OpenConnection
    | LookUpLeaders
    | InspectTwins
    | DeleteTwinRecords
    | WriteMarkersByTransactions
    | TaskMessage
)

RESPONSE_SLACK_S = 10.0
FAR_ROUND_TRIP_S = 0.01
ROUND_TRIPS_KEPT = 6


class SourceFetcher:
    """Fetches a share of a leader's partitions, one request at a time, into reusable buffers. A buffer is busy until a
    target's kernel has taken the batches in it.
    """

    def __init__(self, key: FetchStream, limits: TaskLimits, *, expires_s: float = math.inf) -> None:
        """`expires_s`: when the broker requires a new authentication, thus a new connection."""
        self.key, self.expires_s = key, expires_s
        self.quota = FetchQuotaPacer(limits.fetch_bytes_max, min(FIRST_FETCH_BYTES, limits.fetch_bytes_max))
        self.holds = [PooledBuffer(bytearray()) for _ in range(limits.buffers_per_line)]
        # The buffer of the response in flight; None without one.
        self.receiving: PooledBuffer | None = None
        self.deadline_s = math.inf
        self._wait_ms_max = limits.fetch_wait_ms_max
        self._distance = SourceDistance(limits.fetch_bytes_max, limits.fetch_bytes_widest)
        self._asked_s = self._first_s = 0.0
        self._asked_bytes = 0

    def free(self, now_s: float) -> bool:
        """Whether no fetch is in flight, no throttle applies, and a buffer is free."""
        return self.receiving is None and not self.quota.still(now_s) and any(buffer.uses == 0 for buffer in self.holds)

    def ask(self, order: PlannedFetch, now_s: float) -> SendFetch:
        most = self._distance.fetch_bytes
        if self.quota.portion < self.quota.bytes_max:
            most = min(most, self.quota.fetch_bytes)
        self._asked_bytes = most = min(most, order.bytes_max or most)
        wait_ms = min(self._wait_ms_max, order.wait_ms_max)
        self.receiving = buffer = next(buffer for buffer in self.holds if buffer.uses == 0)
        self._asked_s, self._first_s = now_s, 0.0
        self.deadline_s = now_s + wait_ms / 1000 + RESPONSE_SLACK_S
        return SendFetch(self, order, most, wait_ms, buffer)

    def heard(self, now_s: float) -> None:
        """Notes a part of the response, which extends the deadline. Few bytes raise no read event, so poll before the
        deadline counts.
        """
        self._first_s = self._first_s or now_s
        self.deadline_s = now_s + RESPONSE_SLACK_S

    def late(self, now_s: float) -> bool:
        return now_s > self.deadline_s

    def answered(self, answer: FetchResponseById, size: int, now_s: float) -> tuple[PooledBuffer, bool]:
        """Takes a complete response of `size` bytes. Returns its buffer, and whether partitions should bring more, as
        the source is far.
        """
        buffer = self.receiving
        assert buffer is not None, "something was asked"
        self.receiving, self.deadline_s = None, math.inf
        # A throttled fetch brings nothing and counts nothing.
        self.quota.answered(self._asked_bytes, size if answer.partitions else 0, answer.throttle_ms, now_s)
        if self.quota.held:
            self.quota.batch = max(map(batch_bytes, answer.partitions), default=0) or self.quota.batch
        return buffer, self._distance.answered(size, self._first_s - self._asked_s, now_s - self._asked_s)


def batch_bytes(part: FetchedPartitionById) -> int:
    """The size of the first batch, perhaps incomplete; 0 for none."""
    records = part.records
    return PREFIX_BYTES + int.from_bytes(records[8:PREFIX_BYTES], "big") if len(records) >= PREFIX_BYTES else 0


class SourceDistance:
    """How far away a source is. `fetch_bytes`: of the next fetch. Over a long round trip a larger fetch is faster; from
    nearby it only outgrows the processor's caches. A busy near broker sometimes answers at once: so the shortest of
    several waits counts.
    """

    def __init__(self, fetch_bytes_least: int, fetch_bytes_widest: int) -> None:
        self.fetch_bytes = self._least = fetch_bytes_least
        self._widest = max(fetch_bytes_least, fetch_bytes_widest)
        self._waits_s: deque[float] = deque(maxlen=ROUND_TRIPS_KEPT)

    def answered(self, size: int, waited_s: float, took_s: float) -> bool:
        """A fetch brought `size` bytes in `took_s`, the first after `waited_s`. Returns whether the source is far:
        partitions that filled their limit should bring more.
        """
        if size < self._least // 8:  # Perhaps the broker waited for records.
            return False
        self._waits_s.append(waited_s)
        if len(self._waits_s) < ROUND_TRIPS_KEPT:
            return False
        far = min(self._waits_s) >= max(FAR_ROUND_TRIP_S, took_s / 10)
        if not far:
            self.fetch_bytes = max(self._least, self.fetch_bytes // 2)
        elif 4 * size >= 3 * self.fetch_bytes:
            self.fetch_bytes = min(2 * self.fetch_bytes, self._widest)
        return far


# A new connection sends little: under an unknown quota the broker would leave it unread for long.
FIRST_PRODUCE_BYTES = 1 << 20
# Guarded batches wait so long for others' end query, so that all go in one request.
END_OFFSET_WAIT_S = 2.0
TRANSACTION_MARKERS_MAX = 100  # of one partition until its response: its other data must not wait long


class CompletedRequest(NamedTuple):
    """A request with its response: `marked` for markers, else `produced`. After an end query, `flight` keeps the
    markers that may not go.
    """

    flight: TargetRequest
    produced: Sequence[ProducedPartition]
    marked: list[MarkerOutcome]

    def tell(self, task_partitions: TaskPartitions, now_s: float) -> None:
        if self.flight.rests:
            task_partitions.on_end_checked(self.flight.rests, self.marked, now_s)
        if self.flight.marks:
            task_partitions.marked(self.flight.marks, [] if self.flight.asking else self.marked, now_s)
        elif self.flight.sent:
            task_partitions.produced(self.flight.sent, self.produced, now_s)


class TargetProducer:
    """Sends produce requests and runs of markers."""

    def __init__(
        self, node: int, limits: TaskLimits, *, version: int, by_units: bool = False, expires_s: float = math.inf
    ) -> None:
        """`version`: of produce requests. `by_units`: markers go by empty transactions. `expires_s`: as of a
        `SourceFetcher`.
        """
        self.node, self.limits, self.version, self.expires_s = node, limits, version, expires_s
        self.in_flight: deque[TargetRequest] = deque()
        self.answered_s = 0.0
        self.quota = QuotaPacer(limits.request_bytes_max, min(FIRST_PRODUCE_BYTES, limits.request_bytes_max))
        self.open = True
        # While the kernel has not taken all of the last request: `pinned` are its batches with busy buffers.
        self.writing, self.defers_wakeups = False, False
        self.pinned: list[SentBatch] = []
        self.due: list[PendingMarkers] = []  # queried for, and free to go
        # How long the kernel tries to deliver. While the broker reads nothing, it must not give up.
        self.undelivered_s = limits.undelivered_s
        # Queries are throttled too: this connection needs an `asker`.
        self.needs_asker = False
        self.producer: TargetProducer | None = None
        self._by_units, self._inflight_max = by_units, 1
        self._codes: dict[tuple[str, int], int] | None = None  # error codes of markers, until their log ends arrive
        self._due_s = 0.0  # when the first of `due` were cleared
        self._rest_at_s = 0.0
        self._told = self._marks_turn = False  # `_told`: log ends are known, and nothing was sent since

    def free(self, now_s: float) -> bool:
        most = 1 if self.quota.held else self._inflight_max
        return self.open and not self.writing and len(self.in_flight) < most and now_s <= self.expires_s

    def late(self, now_s: float) -> bool:
        """Whether a response is overdue, throttling left out."""
        if not self.in_flight:
            return False
        since_s = max(self.in_flight[0].sent_s, self.quota.still_until_s)
        return now_s > since_s + self.limits.produce_timeout_s + RESPONSE_SLACK_S

    def over(self, now_s: float) -> bool:
        """Whether to close this connection."""
        return self.late(now_s) or (now_s > self.expires_s and not self.in_flight)

    def silent_s(self, now_s: float) -> float:
        """How long a response is awaited, throttling left out."""
        if not self.in_flight:
            return 0.0
        return now_s - max(self.answered_s, self.in_flight[0].sent_s, self.quota.still_until_s)

    @property
    def lacks_asker(self) -> bool:
        return self.needs_asker and self.producer is None

    @property
    def owed(self) -> bool:
        """Whether an unanswered request may change a log."""
        return any(flight.marks or not flight.asking for flight in self.in_flight)

    # -- what goes

    def serve(self, task_partitions: TaskPartitions, now_s: float, now_ms: int) -> Iterator[TaskCommand]:
        """Yields what may be sent to this leader now."""
        if self.quota.still(now_s):
            return
        if self.quota.held:
            yield from self._serve_held(task_partitions, now_s, now_ms)
        else:
            while self.free(now_s) and (
                sent := task_partitions.produce_order(self.node, now_s, now_ms, self.quota.portion)
            ):
                yield self.send(sent, now_s)
            yield from self._serve_marks(task_partitions, now_s)
            if self.free(now_s) and (rests := self._rests(task_partitions, now_s, now_ms)):
                yield self._ask_ends([], rests, now_s)
        if self.open:
            yield from self._doze()

    def _serve_marks(self, task_partitions: TaskPartitions, now_s: float) -> Iterator[TaskCommand]:
        yield from self._serve_units(task_partitions, now_s)
        while not self._by_units and self.free(now_s):
            if marks := self._take_due(task_partitions, now_s):
                yield self._mark(marks, now_s)
                continue
            marks = task_partitions.next_markers(self.node, now_s)
            if not marks:
                break
            yield self._ask_ends(marks, (), now_s)

    def _serve_units(self, task_partitions: TaskPartitions, now_s: float) -> Iterator[TaskCommand]:
        serves = self._by_units and self.open
        if serves and (marks := task_partitions.next_markers(self.node, now_s, TRANSACTION_MARKERS_MAX)):
            yield WriteMarkersByTransactions(marks)

    def _rests(self, task_partitions: TaskPartitions, now_s: float, now_ms: int) -> list[EndOffsetCheck]:
        if task_partitions.finishing:
            return []
        if idle := now_s >= self._rest_at_s:
            self._rest_at_s = now_s + IDLE_CHECK_INTERVAL_S
        return task_partitions.next_end_checks(self.node, now_s, now_ms, idle=idle)

    def _serve_held(self, task_partitions: TaskPartitions, now_s: float, now_ms: int) -> Iterator[TaskCommand]:
        """Serves while a quota allows one request at a time. All log ends are queried first, in one request, and
        nothing else goes until the response. What needs them goes at once then, or is queried again.
        """
        yield from self._serve_units(task_partitions, now_s)
        producer = self.producer or self
        waits = producer.in_flight and now_s < producer.in_flight[-1].sent_s + END_OFFSET_WAIT_S
        if not self.free(now_s) or waits:
            return
        if not producer._told and producer.free(now_s) and not producer.quota.still(now_s):
            marks, rests = self._to_ask(task_partitions, now_s), self._rests(task_partitions, now_s, now_ms)
            if marks or rests:
                yield producer._ask_ends(marks, rests, now_s)
                return
        producer._told = False
        ways = (self._mark_due, self._produce) if self._marks_turn else (self._produce, self._mark_due)
        for way in ways:
            if request := way(task_partitions, now_s, now_ms):
                self._marks_turn = way == self._produce
                yield request
                return

    def _to_ask(self, task_partitions: TaskPartitions, now_s: float) -> list[PendingMarkers]:
        again = self._take_due(task_partitions, now_s)
        return again if again or self._by_units else task_partitions.next_markers(self.node, now_s)

    def _produce(self, task_partitions: TaskPartitions, now_s: float, now_ms: int) -> SendRequest | None:
        sent = task_partitions.produce_order(self.node, now_s, now_ms, self.quota.portion)
        return self.send(sent, now_s) if sent else None

    def _mark_due(self, task_partitions: TaskPartitions, now_s: float, _now_ms: int) -> SendRequest | None:
        self._join_due()
        if now_s - self._due_s > LOG_END_TTL_S:
            return None
        marks = self._take_due(task_partitions, now_s)
        return self._mark(marks, now_s) if marks else None

    def _join_due(self) -> None:
        if self.producer and self.producer.due:
            self._due_s = min(self._due_s, self.producer._due_s) if self.due else self.producer._due_s
            self.due, self.producer.due = self.due + self.producer.due, []

    def _take_due(self, task_partitions: TaskPartitions, now_s: float) -> list[PendingMarkers]:
        """The markers that may go now, except of partitions that are no longer running."""
        self._join_due()
        if not self.due:
            return []
        due, late = split_by_phase(self.due)
        self.due = []
        task_partitions.marked(late, [], now_s)
        return due

    def _doze(self) -> Iterator[SetWakeThreshold]:
        """With many responses due, wakes the task for half of them at once: a turn costs more than one response is
        worth. Sizes are guessed, so the task must also poll.
        """
        due, half = 0, len(self.in_flight) // 2
        for flight in islice(self.in_flight, half if half > 1 else 0):
            if not flight.sent:
                break
            due += response_bytes_min(self.version, len(flight.sent))
        if due or self.defers_wakeups:
            self.defers_wakeups = due > 0
            yield SetWakeThreshold(self, due)

    def send(self, sent: list[SentBatch], now_s: float) -> SendRequest:
        return self._put(TargetRequest(sent, now_s, [], size=sum(entry.batch.size for entry in sent)))

    def _ask_ends(self, marks: list[PendingMarkers], rests: Sequence[EndOffsetCheck], now_s: float) -> SendRequest:
        return self._put(TargetRequest([], now_s, marks, True, rests))

    def _mark(self, marks: list[PendingMarkers], now_s: float) -> SendRequest:
        """Markers, then the end query: a broker handles a connection's requests in order."""
        return self._put(TargetRequest([], now_s, marks))

    def _put(self, flight: TargetRequest) -> SendRequest:
        self.in_flight.append(flight)
        self.writing, self.pinned = True, flight.sent
        return SendRequest(self, flight)

    def written(self) -> None:
        """The kernel has all of the last request; its buffers are free."""
        self._unpin()
        self.writing, self.pinned = False, []

    def detached(self) -> None:
        """The rest was copied, so that a stuck peer blocks no buffers."""
        self._unpin()
        self.pinned = [entry._replace(buffer=None) for entry in self.pinned]

    def _unpin(self) -> None:
        for entry in self.pinned:
            if entry.buffer:
                entry.buffer.uses -= 1

    # -- what comes

    def produced(self, parts: Sequence[ProducedPartition], throttle_ms: int, now_s: float) -> CompletedRequest:
        flight = self.in_flight.popleft()
        self._heard(flight.size, throttle_ms, now_s)
        return CompletedRequest(flight, parts, [])

    def marked(self, codes: Iterable[MarkedPartition]) -> None:
        """Takes the marker response; log ends come next."""
        self._codes = {(marked.topic, marked.partition): marked.error for marked in codes}

    def end_offsets_received(self, ends: Iterable[LogEnd], throttle_ms: int, now_s: float) -> CompletedRequest:
        """Takes log ends, of a query or after markers."""
        flight = self.in_flight.popleft()
        self.needs_asker |= throttle_ms > 0
        self._heard(0, throttle_ms, now_s)
        if not flight.asking:
            codes, self._codes = self._codes or {}, None
            return CompletedRequest(flight, [], [merge_marker_result(codes, end) for end in ends])
        outcomes = [merge_marker_result({}, end, 0) for end in ends]
        go, rest = split_by_log_end(flight.marks, outcomes)
        self._due_s = self._due_s if self.due else now_s
        self.due += go
        self._told = True
        return CompletedRequest(flight._replace(marks=rest), [], outcomes)

    def _heard(self, size: int, throttle_ms: int, now_s: float) -> None:
        patient = self.undelivered_s > self.limits.undelivered_s
        self.quota.answered(size, size, throttle_ms, now_s)
        if throttle_ms > 0 or patient:
            self.undelivered_s = self.limits.undelivered_s + throttle_ms / 1000
        elif self._inflight_max < self.limits.inflight_max:
            self._inflight_max = min(2 * self._inflight_max, self.limits.inflight_max)

    # -- when it is over

    def take_unwritten(self) -> list[PendingMarkers]:
        """Takes markers that were queried for and never sent. Call before `close`."""
        unwritten = [entry for flight in self.in_flight if flight.asking for entry in flight.marks] + self.due
        self.in_flight = deque(flight for flight in self.in_flight if not flight.asking)
        self.due = []
        return unwritten

    def lend(self, producer: TargetProducer) -> None:
        self.producer = producer

    def part(self, task_partitions: TaskPartitions, now_s: float) -> None:
        """Drops the asker. Its open queries count as unanswered."""
        producer, self.producer, self.needs_asker = self.producer, None, False
        if producer:
            for flight in producer.in_flight:
                task_partitions.on_end_checked(flight.rests, [], now_s)
            task_partitions.marked(producer.take_unwritten(), [], now_s)
            producer.close()

    def close(self) -> list[list[SentBatch] | list[PendingMarkers]]:
        """Returns the unanswered requests."""
        self.open = False
        self.written()
        unanswered = [entry.marks or entry.sent for entry in self.in_flight if not entry.asking]
        self.in_flight.clear()
        return unanswered


def merge_marker_result(codes: dict[tuple[str, int], int], end: LogEnd, unsaid: int = UNKNOWN_ERROR) -> MarkerOutcome:
    """A partition's marker result. Without a code an inspection must tell."""
    error = codes.get((end.topic, end.partition), unsaid)
    return MarkerOutcome(end.topic, end.partition, error or end.error, -1 if end.error else end.end)
