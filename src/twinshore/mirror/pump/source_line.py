"""A pump's connection to a leader on the source, as its `SourceFlow` wants it: fetches go, answers are received into
the buffers that it names."""

from __future__ import annotations

from twinshore.fleet import KafkaError, WireError
from twinshore.kafka.connection import Connection, explain_wire_error
from twinshore.kafka.transport import WOULD_BLOCK
from twinshore.mirror.core.commands import Fetch
from twinshore.mirror.core.source_flow import SourceFlow
from twinshore.mirror.pump.outbox import BUFFER_BYTES_MIN, CLIENT_ID, Outbox
from twinshore.wire.fetch import FETCH_KEY, FetchAnswer, encode_fetch, parse_fetch

READ_COMMITTED = 1
# A turn of the loop costs about what receiving 100 KB costs, and nothing is cut from an answer before it is whole.
WAKE_BYTES = 1 << 20


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
            raise KafkaError(f"{self.outbox.connection.place}: the broker spoke unasked or hung up", retriable=True)
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
