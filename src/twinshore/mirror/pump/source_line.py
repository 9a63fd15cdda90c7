"""A pump's connection to a leader on the source: one fetch at a time, received into buffers that are used again.

A parcel points into the buffer it came in, which stays busy until a target's kernel has taken it.
"""

from __future__ import annotations

from twinshore.fleet import KafkaError, WireError
from twinshore.kafka.connection import Connection, explain_wire_error
from twinshore.kafka.transport import WOULD_BLOCK
from twinshore.mirror.lane.distance import Distance
from twinshore.mirror.lane.fetch_book import FetchOrder, Line
from twinshore.mirror.lane.joining import Hold
from twinshore.mirror.lane.orders import LaneLimits
from twinshore.mirror.lane.quota import FIRST_BYTES, FetchQuota
from twinshore.mirror.pump.outbox import ANSWER_SLACK_S, BUFFER_BYTES_MIN, CLIENT_ID, Outbox
from twinshore.wire.batch import PREFIX_BYTES
from twinshore.wire.exchange import Answer
from twinshore.wire.fetch import FETCH_KEY, FetchAnswer, FetchedPartition, encode_fetch, parse_fetch

READ_COMMITTED = 1
# A turn of the loop costs about what receiving 100 KB costs, and nothing is cut from an answer before it is whole.
WAKE_BYTES = 1 << 20


class SourceLine:
    """One connection to a leader on the source, for a share of its partitions."""

    def __init__(self, key: Line, connection: Connection, limits: LaneLimits) -> None:
        self.key = key
        self.outbox = Outbox(connection)
        self.limits = limits
        self.version = connection.spoken(FETCH_KEY)
        self._exchange = connection.hand_over(CLIENT_ID)
        self._distance = Distance(limits.fetch_bytes_max)
        self.quota = FetchQuota(limits.fetch_bytes_max, min(FIRST_BYTES, limits.fetch_bytes_max))
        self._asked_s = self._first_s = 0.0
        self._holds = [Hold(bytearray(BUFFER_BYTES_MIN)) for _ in range(limits.buffers_per_line)]
        self._asked_bytes = self._answer_bytes = 0
        self._current: Hold | None = None

    def fileno(self) -> int:
        return self.outbox.transport.fileno()

    def free(self, now_s: float) -> bool:
        """Nothing is asked, the broker listens, and there is a buffer for an answer."""
        return self._current is None and not self.quota.still(now_s) and any(hold.uses == 0 for hold in self._holds)

    @property
    def asking(self) -> bool:
        return self._current is not None

    @property
    def deadline_s(self) -> float:
        """When the answer is late; any byte of it puts that off."""
        return self._exchange.due_s

    def ask(self, order: FetchOrder, now_s: float, *, wait_ms: int) -> bool:
        """Sends a fetch; True when the kernel took it whole."""
        most = self._distance.fetch_bytes
        if self.quota.portion < self.quota.bytes_max:
            most = min(most, self.quota.fetch_bytes)
        self._asked_bytes = most = min(most, order.bytes_max or most)
        body = encode_fetch(
            session_id=order.session_id,
            session_epoch=order.session_epoch,
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=most,
            isolation=READ_COMMITTED,
            partitions=order.partitions,
            forgotten=order.forgotten,
        )
        self._current = next(hold for hold in self._holds if hold.uses == 0)
        self._asked_s, self._first_s = now_s, 0.0
        self.outbox.connection.lend(self._current.buffer)
        self.outbox.put(self._exchange.ask(FETCH_KEY, self.version, [body], now_s + wait_ms / 1000 + ANSWER_SLACK_S))
        return self.outbox.push()

    def receive(self, now_s: float) -> tuple[FetchAnswer, Hold] | None:
        """The whole answer once it is there. Any byte that comes puts the deadline off; of a few nobody is woken, so
        one looks here once more before the deadline counts."""
        hold = self._current
        if hold is None:
            raise KafkaError(f"{self.outbox.connection.place}: the broker spoke unasked or hung up", retriable=True)
        exchange, framer, transport = self._exchange, self._exchange.framer, self.outbox.transport
        while True:
            try:
                answer = exchange.answer()
            except WireError as error:
                raise explain_wire_error(error, self.outbox.connection.place) from error
            if answer is not None:
                return self._complete(hold, answer, now_s)
            got = transport.recv_into(framer.room())
            if got == WOULD_BLOCK:
                if framer.lacks:
                    transport.owes(framer.lacks, WAKE_BYTES)
                return None
            if got == 0:
                raise KafkaError(f"{self.outbox.connection.place}: the source hung up", retriable=True)
            framer.took(got)
            self._first_s = self._first_s or now_s
            exchange.put_off(now_s + ANSWER_SLACK_S)

    def far(self, now_s: float) -> bool:
        """To be asked once for each answer: whether its source is so far away that its partitions should bring more."""
        return self._distance.answered(self._answer_bytes, self._first_s - self._asked_s, now_s - self._asked_s)

    def _complete(self, hold: Hold, answer: Answer, now_s: float) -> tuple[FetchAnswer, Hold]:
        hold.buffer = self._exchange.framer.buffer  # a larger one, if need was
        self._current, self._answer_bytes = None, len(answer.view)
        self.outbox.transport.owes(1)
        fetched = parse_fetch(answer.view, answer.position)
        # A fetch that is throttled brings nothing, and a broker counts nothing of it.
        self.quota.answered(
            self._asked_bytes, self._answer_bytes if fetched.partitions else 0, fetched.throttle_ms, now_s
        )
        if self.quota.held:
            self.quota.batch = max(map(batch_bytes, fetched.partitions), default=0) or self.quota.batch
        return fetched, hold

    def close(self) -> None:
        self.outbox.connection.close()


def batch_bytes(part: FetchedPartition) -> int:
    """How large the first batch is, whole or not; 0 where there is none."""
    records = part.records
    return PREFIX_BYTES + int.from_bytes(records[8:PREFIX_BYTES], "big") if len(records) >= PREFIX_BYTES else 0
