"""A pump's connections as networks and brokers treat them: late, slow, dark, cut, and requests that land afterwards."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.simulation.clusters import Clusters
from tests.simulation.schedule import Channel
from tests.simulation.twin_log import Appended, TwinLog
from twinshore.config.model import TopicPartition
from twinshore.kafka.protocol.error_codes import Code
from twinshore.kafka.protocol.fetch import FetchResponseById
from twinshore.kafka.protocol.produce import ProducedPartition, response_bytes_min
from twinshore.kafka.protocol.transactions import LogEnd, MarkedPartition
from twinshore.replication.task.core.connections import (
    CompletedRequest,
    SendFetch,
    SourceFetcher,
    TargetProducer,
    TargetRequest,
)
from twinshore.replication.task.core.fetching import PlannedFetch
from twinshore.replication.task.core.markers import MarkerRun, marker_producer_id

WIRE_S = 0.002
PRODUCE_TIMEOUT_S = 30.0
# A task believes a request dead after its produce timeout; brokers of this model keep to that.
LANDS_LATE_S = 25.0
# A task that is gone: whatever it left in brokers' queues is done soon after nobody may write in its name any more.
LEFT_LANDS_S = 0.9
CONFIRM_EVERY_S = 0.1


class Body(NamedTuple):
    """One partition of a produce request, or of a marker request: then `run` says how many."""

    named: TopicPartition
    topic_id: bytes
    data: bytes
    run: MarkerRun | None = None


@dataclass(slots=True, eq=False)
class Request:
    """A request on its way. `arrives_s`: when the broker has read all of it. `refused`: whose leadership was elsewhere
    meanwhile, which took records with it."""

    flight: TargetRequest
    bodies: list[Body]
    arrives_s: float
    answers: list[Appended] = field(default_factory=list)
    done_s: float = -1.0
    refused: set[TopicPartition] = field(default_factory=set)


class TargetWire:
    """One connection to a leader of twins, as the core's `flow` wants it. `heard` runs what comes in the task."""

    def __init__(
        self,
        clusters: Clusters,
        flow: TargetProducer,
        heard: Callable[[TargetWire, Callable[[], CompletedRequest | None]], None],
        producer: tuple[int, int],
    ) -> None:
        self.producer = producer
        self.clusters, self.schedule, self.flow, self.node = clusters, clusters.schedule, flow, flow.node
        self._queue: deque[Request] = deque()  # as the broker has it
        self._busy = False
        self._heard = heard
        self._back = Channel(self.schedule, WIRE_S)
        self._arrived_s = 0.0
        self.open = True
        self.dark = False
        self._peerless = False  # the process at the other end is gone, though the task has not heard of it yet
        self.strays: deque[Request] = deque()
        # Answers of which the task is not woken until so many bytes of them are there.
        self._unread: list[tuple[int, Callable[[], CompletedRequest | None]]] = []
        self._wake_bytes = 0

    def send(self, flight: TargetRequest) -> None:
        """While the line is dark, the kernel takes nothing more: its buffers stay busy until the task lets go."""
        wanted = [(one.replicator, one.run) for one in flight.marks] + [
            (one.replicator, one.run) for one in flight.rests
        ]
        bodies = [Body(track.named, track.target_id, b"", run) for track, run in wanted]
        for track, batch, _, head, _ in flight.sent:
            bodies.append(Body(track.named, track.target_id, head + bytes(batch.body)))
        if not self.dark:
            self.flow.written()
        schedule = self.schedule
        extra_s = self.clusters.slow_s.get(("target", self.node), 0.0)
        self._arrived_s = max(self._arrived_s, schedule.now_s + schedule.lag(WIRE_S) + extra_s)
        self._queue.append(Request(flight, bodies, self._arrived_s))
        schedule.after(self._arrived_s - schedule.now_s, self._take)

    def wake_at(self, due_bytes: int) -> None:
        self._wake_bytes = due_bytes
        self._wake()

    def read(self) -> None:
        """The task looks whether something came of which it was not woken."""
        unread, self._unread = self._unread, []
        for _, what in unread:
            self._heard(self, what)

    def _wake(self) -> None:
        if self._unread and sum(size for size, _ in self._unread) >= self._wake_bytes:
            self.read()

    def _take(self) -> None:
        """The broker does a connection's requests one after another: test_a_connection_is_served_in_order."""
        queue = self._queue
        if (
            self._peerless
            or self._busy
            or not self.open
            or self.dark
            or not queue
            or queue[0].arrives_s > self.schedule.now_s
        ):
            return
        if not self.clusters.up("target", self.node):
            return
        self._busy = True
        request = queue.popleft()
        self.execute(request)
        self._confirm(request)

    def execute(self, request: Request) -> None:
        """What the leader makes of it, whether or not anybody still waits for the answer."""
        clusters = self.clusters
        request.done_s = self.schedule.now_s
        for body in request.bodies:
            twin = clusters.pairs[body.named].twin
            if request.flight.asking:
                answer = Appended(self._led(twin, body))
            elif twin.topic_id != body.topic_id and body.run is None:
                answer = Appended(Code.unknown_topic_id)  # test_a_recreated_topic_refuses_the_old_id
            elif twin.leader != self.node or (body.run and body.named in request.refused):
                answer = Appended(Code.not_leader_or_follower)
            elif self.schedule.odds(clusters.errand_fails / 2):
                answer = Appended(Code.kafka_storage_error)
            elif body.run is not None and (code := clusters.refuses_markers(self.node)):
                answer = Appended(code)
            elif body.run is not None:
                if twin.topic_id != body.topic_id and twin.spoiled_at is None:
                    twin.spoiled_at = twin.end  # markers go by name: they reach whatever topic is there now
                identity = (marker_producer_id(self.producer[0]), self.producer[1], body.run.fence)
                answer = twin.mark(*identity, self._taken(body.run.times), clusters.broker_ms)
            else:
                answer = twin.produce(body.data)
            request.answers.append(answer)
            if self.schedule.listening:
                self.schedule.say(f"target {self.node}: {body.named} takes {body.run or 'a batch'}: {answer}")

    def refuse_markers(self, named: TopicPartition) -> None:
        """A leadership went elsewhere, and acknowledged records with it: markers that are on their way find it there.
        That they arrive only after it came back is not modelled: nothing could keep them from the shorter log."""
        for request in (*self._queue, *self.strays):
            request.refused.add(named)

    def _taken(self, times: int) -> int:
        """How many of a run's markers are in: test_later_markers_of_a_request_hide_what_befell_earlier_ones."""
        spoilt = times > 1 and self.schedule.odds(self.clusters.errand_fails / 2)
        return self.schedule.chance.randrange(1, times) if spoilt else times

    def _led(self, twin: TwinLog, body: Body) -> int:
        """test_a_log_end_is_told_in_the_leader_epoch_that_is_named_alone"""
        led = body.run.led if body.run else -1
        if twin.leader != self.node:
            return Code.not_leader_or_follower
        if led >= 0 and led != twin.epoch:
            return Code.fenced_leader_epoch if led < twin.epoch else Code.unknown_leader_epoch
        return 0

    def _confirm(self, request: Request) -> None:
        """Answers once all replicas in sync have it, or when time is up."""
        if not self.open or self.dark:
            return
        late = self.schedule.now_s >= request.done_s + PRODUCE_TIMEOUT_S
        codes = [
            self._code(body, answer, late=late) for body, answer in zip(request.bodies, request.answers, strict=True)
        ]
        if None in codes:
            self.schedule.after(
                self.schedule.chance.uniform(0.2, 1.0) * CONFIRM_EVERY_S, lambda: self._confirm(request)
            )
            return
        parts: list[ProducedPartition] = []
        marked: list[MarkedPartition] = []
        ends: list[LogEnd] = []
        for body, answer, code in zip(request.bodies, request.answers, codes, strict=True):
            named, twin = body.named, self.clusters.pairs[body.named].twin
            if body.run is None:
                base = -1 if code else answer.base
                parts.append(ProducedPartition(body.topic_id, named.partition, code or 0, base, -1, 0, None, None))
            else:
                # test_later_markers_of_a_request_hide_what_befell_earlier_ones: so the log end is read behind them.
                unled = self._led(twin, body)
                marked.append(
                    MarkedPartition(marker_producer_id(self.producer[0]), named.topic, named.partition, code or 0)
                )
                ends.append(LogEnd(named.topic, named.partition, unled, -1 if unled else twin.end))
        self._busy = False
        flow, schedule = self.flow, self.schedule
        if request.flight.sent:
            size = response_bytes_min(flow.version, len(parts))
            self._answer(size, lambda: flow.produced(parts, 0, schedule.now_s))
        else:
            if not request.flight.asking:
                self._answer(1, lambda: flow.marked(marked))
            self._answer(1, lambda: flow.end_offsets_received(ends, 0, schedule.now_s))
        self._take()

    def _answer(self, size: int, what: Callable[[], CompletedRequest | None]) -> None:
        def come() -> None:
            if self.open:
                self._unread.append((size, what))
                self._wake()

        self._back.send(come, self.clusters.slow_s.get(("target", self.node), 0.0))

    def _code(self, body: Body, answer: Appended, *, late: bool) -> int | None:
        """test_a_produce_waits_for_all_in_sync, test_a_deposed_leader_answers_its_waiting_requests"""
        if answer.error:
            return answer.error
        twin = self.clusters.pairs[body.named].twin
        if twin.topic_id != body.topic_id and body.run is None:
            return Code.unknown_topic_or_partition
        if twin.leader != self.node:
            return Code.not_leader_or_follower
        if twin.high >= answer.confirmed_at:
            enough = len(twin.in_sync) >= twin.in_sync_min
            return 0 if enough else Code.not_enough_replicas_after_append
        return Code.request_timed_out if late else None

    def forget(self) -> None:
        """The broker's process ended: what it had not done it never does."""
        self._queue.clear()
        self.dark, self._peerless = False, True

    def close(self, *, gone_at_s: float | None = None, alive: bool = True) -> None:
        """The pump's end closes, or is gone since its grant ended at `gone_at_s`. Requests that the broker has not done
        may still be done, the first so many of them; unless it died (`alive` is False)."""
        self.open = False
        # What the broker's kernel never had is given up, even while the pump's process is stopped.
        since_s = self.schedule.now_s - LEFT_LANDS_S
        unread = [one for one in self._queue if not self.dark or one.arrives_s > since_s]
        self._queue.clear()
        chance = self.schedule.chance
        self.strays = deque(unread[: chance.randint(0, len(unread))] if alive and not self._peerless else [])
        if self.strays:
            now_s = self.schedule.now_s
            left_s = LANDS_LATE_S if gone_at_s is None else gone_at_s + LEFT_LANDS_S - now_s
            # Most land at once; some take all the time there is.
            part = chance.random() if chance.random() < 0.5 else chance.random() * 0.05
            self.schedule.after(part * max(0.0, left_s), self._land)

    def _land(self) -> None:
        """test_a_request_may_be_done_after_its_connection_is_gone"""
        while self.strays:
            if self.clusters.up("target", self.node):
                self.schedule.say(f"target {self.node}: a late request lands")
                self.execute(self.strays[0])
            self.strays.popleft()

    def hurry_strays(self, gone_at_s: float) -> None:
        """The task itself is gone now: nobody counts the time of its lost connections any more."""
        if self.strays:
            at_s = min(
                self.schedule.chance.random() * LANDS_LATE_S, max(0.0, gone_at_s + LEFT_LANDS_S - self.schedule.now_s)
            )
            self.schedule.after(at_s, self._land)


class SourceWire:
    """One connection to a leader on the source, as the core's `flow` wants it."""

    def __init__(
        self,
        clusters: Clusters,
        flow: SourceFetcher,
        answered: Callable[[SourceWire, FetchResponseById], None],
    ) -> None:
        self.clusters, self.schedule, self.flow, self.line = clusters, clusters.schedule, flow, flow.key
        self._answered = answered
        self.open = True
        self.dark = False

    def ask(self, fetch: SendFetch) -> None:
        schedule = self.schedule
        extra_s = self.clusters.slow_s.get(("source", self.line[0]), 0.0)
        by_s = schedule.now_s + fetch.wait_ms / 1000
        schedule.after(schedule.lag(WIRE_S) + extra_s, lambda: self._serve(fetch.order, by_s))

    def _serve(self, order: PlannedFetch, by_s: float) -> None:
        node, schedule = self.line[0], self.schedule
        if not self.open or self.dark or not self.clusters.up("source", node):
            return
        broker = self.clusters.brokers[node]
        if order.session_epoch and schedule.now_s < by_s and not broker.news(order):
            schedule.after(schedule.chance.uniform(0.01, 0.1), lambda: self._serve(order, by_s))
            return
        answer = broker.fetch(order)
        schedule.after(schedule.lag(WIRE_S), lambda: self._hear(answer))

    def _hear(self, answer: FetchResponseById) -> None:
        if self.open and not self.dark:
            self._answered(self, answer)

    def close(self) -> None:
        self.open = False
