"""A pump's connection to a leader on the target, as its `TargetFlow` wants it: requests go, answers become what they
say."""

from __future__ import annotations

from collections.abc import Iterator

from twinshore.fleet import KafkaError, WireError
from twinshore.kafka.connection import Connection, explain_wire_error
from twinshore.kafka.transport import WOULD_BLOCK
from twinshore.mirror.core.commands import Flight
from twinshore.mirror.core.source_flow import ANSWER_SLACK_S
from twinshore.mirror.core.target_flow import Answered, TargetFlow
from twinshore.mirror.lane.marking import asked, layers
from twinshore.mirror.lane.track import Sent
from twinshore.mirror.pump.outbox import BUFFER_BYTES_MIN, CLIENT_ID, Outbox
from twinshore.wire.exchange import Answer
from twinshore.wire.log_ends import LOG_ENDS_KEY, LOG_ENDS_VERSION, encode_log_ends, parse_log_ends
from twinshore.wire.markers import MARKERS_KEY, encode_markers, parse_markers
from twinshore.wire.primitives import I32, Buffer
from twinshore.wire.produce import PRODUCE_KEY, encode_produce, parse_produced


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
        for track, parcel, _, head in sent:
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
