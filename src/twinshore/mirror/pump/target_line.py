"""A pump's connection to a leader on the target: several produce requests on their way, and runs of markers.

Markers have no sequence by which a broker could refuse them, and their request names no leader epoch. So where the log
ends is asked first, by the epoch in which its end was last known, and again right behind them.

A broker with a quota for requests reads nothing from a connection for up to a second after each answer, also to that
question. What waits for the answer would go so late that the answer counts no more. So another connection asks, the
`asker`: what it is told can be acted on at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice

from twinshore.fleet import KafkaError, WireError
from twinshore.kafka.connection import Connection, explain_wire_error
from twinshore.kafka.transport import WOULD_BLOCK
from twinshore.mirror.lane.certainty import SURE_S
from twinshore.mirror.lane.flights import Answered, InFlight, joined
from twinshore.mirror.lane.lane import Lane
from twinshore.mirror.lane.marking import asked, layers
from twinshore.mirror.lane.orders import LaneLimits
from twinshore.mirror.lane.quota import Quota
from twinshore.mirror.lane.resting import REST_S, Rest
from twinshore.mirror.lane.runs import Marks, running, standing
from twinshore.mirror.lane.track import Sent
from twinshore.mirror.pump.outbox import ANSWER_SLACK_S, BUFFER_BYTES_MIN, CLIENT_ID, Outbox
from twinshore.mirror.pump.units import UNIT_MARKERS_MAX, Units
from twinshore.wire.exchange import Answer
from twinshore.wire.log_ends import LOG_ENDS_KEY, LOG_ENDS_VERSION, encode_log_ends, parse_log_ends
from twinshore.wire.markers import MARKERS_KEY, MarkedPartition, encode_markers, parse_markers
from twinshore.wire.primitives import Buffer
from twinshore.wire.produce import PRODUCE_KEY, answer_bytes_least, encode_produce, parse_produced

# A new line sends little at first: what it sends before it hears of a quota, the broker lets lie for long.
FIRST_BYTES = 1 << 20
# What is guarded waits so long for the answer that others wait for, so that all go in one request.
WORD_S = 2.0


class TargetLine:
    """One connection to a leader on the target."""

    def __init__(self, node: int, connection: Connection, limits: LaneLimits, units: Units | None = None) -> None:
        """`units` writes the markers where they may not be written directly."""
        self.node = node
        self.units = units
        self.outbox = Outbox(connection)
        self.limits = limits
        self.version = connection.spoken(PRODUCE_KEY)
        self._exchange = connection.hand_over(CLIENT_ID)
        connection.lend(bytearray(BUFFER_BYTES_MIN))
        self.outbox.transport.drop_unsent_at_close()
        self.outbox.transport.give_up_after(limits.undelivered_s)
        self.in_flight: deque[InFlight] = deque()
        self.answered_s = 0.0
        self.quota = Quota(limits.request_bytes_max, min(FIRST_BYTES, limits.request_bytes_max))
        self._inflight_max, self._patient = 1, False
        self._writing: list[Sent] = []
        self._busy = self.dozing = False
        self._marked: list[MarkedPartition] | None = None
        self._due: list[Marks] = []  # asked for, and free to go
        self._due_s = 0.0  # when the first of them were
        self._rest_at_s = 0.0
        # Questions are throttled too: the pump shall give this line an `asker`.
        self.asks_apart = False
        self.asker: TargetLine | None = None
        self.told = self._marks_turn = False  # `told`: where logs end, and nothing went since

    def fileno(self) -> int:
        return self.outbox.transport.fileno()

    def free(self) -> bool:
        most = 1 if self.quota.held else self._inflight_max
        return not self._busy and len(self.in_flight) < most and not self.outbox.expired()

    def late(self, now_s: float) -> bool:
        """Whether the answer that is due next will not come any more. What the broker lets lie, it answers later."""
        if not self.in_flight:
            return False
        return now_s > max(self._exchange.due_s, self._deadline_s(self.quota.still_until_s))

    def silent_s(self, now_s: float) -> float:
        """For how long an answer has been waited for, the broker's own delay left out."""
        if not self.in_flight:
            return 0.0
        return now_s - max(self.answered_s, self.in_flight[0].sent_s, self.quota.still_until_s)

    @property
    def lacks_asker(self) -> bool:
        return self.asks_apart and self.asker is None

    @property
    def writing(self) -> bool:
        return self._busy

    @property
    def owed(self) -> bool:
        """Whether anything is unanswered that may change a log: more than a question."""
        return any(flight.marks or not flight.asking for flight in self.in_flight)

    def serve(self, lane: Lane, now_s: float, now_ms: int) -> None:
        """Sends what the lane has for this leader, as long as there is room."""
        if self.quota.still(now_s):
            return
        if self.quota.held:
            self._serve_held(lane, now_s, now_ms)
            self._doze()
            return
        while self.free():
            sent = lane.produce_order(self.node, now_s, now_ms, self.quota.portion)
            if not sent:
                break
            self.send(sent, now_s)
        if self.units:
            self.units.take(lane.marker_order(self.node, now_s, UNIT_MARKERS_MAX))
        while not self.units and self.free():
            marks = self._take_due(lane, now_s)
            if marks:
                self.mark(marks, now_s, *lane.producer)
                continue
            marks = lane.marker_order(self.node, now_s)
            if not marks:
                break
            self._ask_ends(marks, (), now_s)
        if self.free() and (rests := self._rests(lane, now_s, now_ms)):
            self._ask_ends([], rests, now_s)
        self._doze()

    def _rests(self, lane: Lane, now_s: float, now_ms: int) -> list[Rest]:
        """The twins whose ends are to be asked for now, besides those of markers."""
        if lane.finishing:
            return []
        idle = now_s >= self._rest_at_s
        if idle:
            self._rest_at_s = now_s + REST_S
        return lane.rest_order(self.node, now_s, now_ms, idle=idle)

    def _serve_held(self, lane: Lane, now_s: float, now_ms: int) -> None:
        """While a quota lets one request go at a time: what must know where its log ends has that asked for first, all
        in one question, and nothing else goes until its answer. It goes at once then, or is asked for again."""
        if self.units:
            self.units.take(lane.marker_order(self.node, now_s, UNIT_MARKERS_MAX))
        asker = self.asker or self
        waits = asker.in_flight and now_s < asker.in_flight[-1].sent_s + WORD_S
        if not self.free() or waits:
            return
        if not asker.told and asker.free() and not asker.quota.still(now_s):
            marks, rests = self._to_ask(lane, now_s), self._rests(lane, now_s, now_ms)
            if marks or rests:
                asker._ask_ends(marks, rests, now_s)
                return
        asker.told = False
        ways = (self._mark_due, self._produce) if self._marks_turn else (self._produce, self._mark_due)
        for way in ways:
            if way(lane, now_s, now_ms):
                self._marks_turn = way == self._produce
                return

    def _to_ask(self, lane: Lane, now_s: float) -> list[Marks]:
        """Markers before which a log's end is to be asked for: those for which it was, and which did not go, first."""
        again = self._take_due(lane, now_s)
        return again if again or self.units else lane.marker_order(self.node, now_s)

    def _produce(self, lane: Lane, now_s: float, now_ms: int) -> bool:
        sent = lane.produce_order(self.node, now_s, now_ms, self.quota.portion)
        if sent:
            self.send(sent, now_s)
        return bool(sent)

    def _mark_due(self, lane: Lane, now_s: float, _now_ms: int) -> bool:
        self._join_due()
        if now_s - self._due_s > SURE_S:
            return False
        marks = self._take_due(lane, now_s)
        if marks:
            self.mark(marks, now_s, *lane.producer)
        return bool(marks)

    def _join_due(self) -> None:
        """What the asker was told may go."""
        if self.asker and self.asker._due:
            self._due_s = min(self._due_s, self.asker._due_s) if self._due else self.asker._due_s
            self._due, self.asker._due = self._due + self.asker._due, []

    def _doze(self) -> None:
        """While many answers are due, the pump is woken for half of them at once: a turn of its loop costs more than
        what it can send for one. Whoever relies on it looks here now and then, as sizes are only guessed."""
        due, half = 0, len(self.in_flight) // 2
        for flight in islice(self.in_flight, half if half > 1 else 0):
            if not flight.sent:
                break
            due += answer_bytes_least(self.version, len(flight.sent))
        self.dozing = due > 0
        self.outbox.transport.owes(max(1, due - self._exchange.framer.waiting))

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
        timeout_s, size = self.limits.produce_timeout_s, sum(parcel.size for _, parcel, _ in sent)
        body = encode_produce(self.version, list(topics.values()), timeout_ms=int(timeout_s * 1000))
        self.in_flight.append(InFlight(sent, now_s, [], size=size))
        self._put(sent, self._exchange.ask(PRODUCE_KEY, self.version, body, self._deadline_s(now_s)))

    def _ask_ends(self, marks: list[Marks], rests: Sequence[Rest], now_s: float) -> None:
        """Asks where the logs end that these markers are for, which go as soon as the answer allows it; or those of
        twins at rest."""
        body = encode_log_ends(asked([*(entry.run for entry in marks), *(entry.run for entry in rests)]))
        self.in_flight.append(InFlight([], now_s, marks, True, rests))
        self._put([], self._exchange.ask(LOG_ENDS_KEY, LOG_ENDS_VERSION, [body], self._deadline_s(now_s)))

    def _take_due(self, lane: Lane, now_s: float) -> list[Marks]:
        """The markers that may go now. Had they to wait for room, what befell their partitions meanwhile counts."""
        self._join_due()
        if not self._due:
            return []
        due, late = running(self._due)
        self._due = []
        lane.marked(late, [], now_s)
        return due

    def mark(self, marks: list[Marks], now_s: float, producer_id: int, producer_epoch: int) -> None:
        """Puts a marker request on its way, and right behind it the question where the logs end then: a broker takes
        the requests of a connection one after another."""
        self.in_flight.append(InFlight([], now_s, marks))
        version = self.outbox.connection.spoken(MARKERS_KEY)
        runs, deadline_s = [entry.run for entry in marks], self._deadline_s(now_s)
        body = encode_markers(layers(runs, producer_id, producer_epoch))
        question = encode_log_ends(asked(runs))
        buffers = self._exchange.ask(MARKERS_KEY, version, [body], deadline_s)
        self._put([], buffers + self._exchange.ask(LOG_ENDS_KEY, LOG_ENDS_VERSION, [question], deadline_s))

    def _deadline_s(self, now_s: float) -> float:
        return now_s + self.limits.produce_timeout_s + ANSWER_SLACK_S

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
                    if answered := self._match(answer, now_s):
                        yield answered
            except WireError as error:
                raise explain_wire_error(error, self.outbox.connection.place) from error

    def _match(self, answer: Answer, now_s: float) -> Answered | None:
        """The request that is answered by now; None when the other half of its answer is still to come."""
        view, position = answer.view, answer.position
        flight = self.in_flight[0]
        # Of an answer that cannot be read the request stays unanswered.
        if flight.asking:
            found = [joined({}, end, 0) for end in parse_log_ends(view, position)]
            self.in_flight.popleft()
            self._heard_asking(view, position, now_s)
            go, rest = standing(flight.marks, found)
            self._due_s = self._due_s if self._due else now_s
            self._due += go
            self.told = True
            return Answered(flight._replace(marks=rest), [], found)
        if answer.asked.api.key == MARKERS_KEY:
            self._marked = parse_markers(view, position)
            return None
        if self._marked is None:
            produced, throttle_ms = parse_produced(view, position, self.version)
            self.in_flight.popleft()
            self._heard(flight.size, throttle_ms, now_s)
            return Answered(flight, produced, [])
        codes = {(one.topic, one.partition): one.error for one in self._marked}
        ends = parse_log_ends(view, position)
        self.in_flight.popleft()
        self._marked = None
        self._heard_asking(view, position, now_s)
        return Answered(flight, [], [joined(codes, end) for end in ends])

    def _heard_asking(self, view: memoryview, position: int, now_s: float) -> None:
        throttle_ms = int.from_bytes(view[position : position + 4], "big")
        self.asks_apart |= throttle_ms > 0
        self._heard(0, throttle_ms, now_s)

    def _heard(self, size: int, throttle_ms: int, now_s: float) -> None:
        """What the broker said of its quotas. While it reads nothing the kernel must not give up what waits for it."""
        self.quota.answered(size, size, throttle_ms, now_s)
        if throttle_ms > 0 or self._patient:
            self._patient = throttle_ms > 0
            self.outbox.transport.give_up_after(self.limits.undelivered_s + throttle_ms / 1000)
        elif self._inflight_max < self.limits.inflight_max:
            self._inflight_max = min(2 * self._inflight_max, self.limits.inflight_max)

    def take_unwritten(self) -> list[Marks]:
        """Markers that were asked for and never sent; to be had before the line is closed."""
        found = [entry for flight in self.in_flight if flight.asking for entry in flight.marks] + self._due
        self.in_flight = deque(flight for flight in self.in_flight if not flight.asking)
        self._due = []
        return found

    def part(self, lane: Lane, now_s: float) -> None:
        """Lets the asker go. Where what it asked ends, only a look may tell."""
        asker, self.asker, self.asks_apart = self.asker, None, False
        if asker:
            for flight in asker.in_flight:
                lane.rested(flight.rests, [], now_s)
            lane.marked(asker.take_unwritten(), [], now_s)
            asker.close()

    def close(self) -> list[list[Sent] | list[Marks]]:
        """Hangs up; returns what was never answered."""
        self.outbox.connection.close()
        release(self._writing)
        self._writing, self._busy = [], False
        unanswered = [entry.marks or entry.sent for entry in self.in_flight if not entry.asking]
        self.in_flight.clear()
        return unanswered


def lend(asker: TargetLine, line: TargetLine | None) -> None:
    """Has `asker` ask for a line from now on. KafkaError where none lacks one any more."""
    if line is None or not line.lacks_asker:
        raise KafkaError("the connection that needed it is gone", retriable=True)
    line.asker = asker


def release(sent: list[Sent]) -> None:
    """The kernel has these bytes: their buffers may be received into again."""
    for _, _, hold in sent:
        if hold:
            hold.uses -= 1
