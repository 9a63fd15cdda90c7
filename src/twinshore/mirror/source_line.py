"""A pump's connection to a leader on the source: one fetch at a time, received into buffers that are used again.

A parcel points into the buffer it came in, which stays busy until a target's kernel has taken it.
"""

from __future__ import annotations

from twinshore.fleet import KafkaError
from twinshore.kafka.connection import Connection
from twinshore.kafka.transport import WOULD_BLOCK
from twinshore.mirror.distance import Distance
from twinshore.mirror.fetch_book import FetchOrder, Line
from twinshore.mirror.joining import Hold
from twinshore.mirror.orders import LaneLimits
from twinshore.mirror.outbox import ANSWER_BYTES_MAX, ANSWER_SLACK_S, BUFFER_BYTES_MIN, CLIENT_ID, Outbox
from twinshore.mirror.quota import FIRST_BYTES, FetchQuota
from twinshore.wire.batch import PREFIX_BYTES
from twinshore.wire.fetch import FetchAnswer, FetchedPartition, encode_fetch, parse_fetch
from twinshore.wire.frames import frame, read_response_header

FETCH, FETCH_VERSION = 1, 13
READ_COMMITTED = 1
# A turn of the loop costs about what receiving 100 KB costs, and nothing is cut from an answer before it is whole.
WAKE_BYTES = 1 << 20


class SourceLine:
    """One connection to a leader on the source, for a share of its partitions."""

    def __init__(self, key: Line, connection: Connection, limits: LaneLimits) -> None:
        self.key = key
        self.outbox = Outbox(connection)
        self.limits = limits
        self.version = connection.api_version(FETCH, FETCH_VERSION, FETCH_VERSION)
        self.deadline_s = 0.0
        self._distance = Distance(limits.fetch_bytes_max)
        self.quota = FetchQuota(limits.fetch_bytes_max, min(FIRST_BYTES, limits.fetch_bytes_max))
        self._asked_s = self._first_s = 0.0
        self._holds = [Hold(bytearray(BUFFER_BYTES_MIN)) for _ in range(limits.buffers_per_line)]
        self._correlation = self._asked_bytes = 0
        self._current: Hold | None = None
        self._filled = 0

    def fileno(self) -> int:
        return self.outbox.transport.fileno()

    def free(self, now_s: float) -> bool:
        """Nothing is asked, the broker listens, and there is a buffer for an answer."""
        return self._current is None and not self.quota.still(now_s) and any(hold.uses == 0 for hold in self._holds)

    @property
    def asking(self) -> bool:
        return self._current is not None

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
        self._correlation = self.outbox.connection.next_correlation_id()
        self._current = next(hold for hold in self._holds if hold.uses == 0)
        self._filled = 0
        self._asked_s, self._first_s = now_s, 0.0
        self.deadline_s = now_s + wait_ms / 1000 + ANSWER_SLACK_S
        self.outbox.put(frame(FETCH, self.version, self._correlation, CLIENT_ID, [body]))
        return self.outbox.push()

    def receive(self, now_s: float) -> tuple[FetchAnswer, Hold] | None:
        """The whole answer once it is there. Any byte that comes puts the deadline off; of a few nobody is woken, so
        one looks here once more before the deadline counts."""
        hold = self._current
        if hold is None:
            raise KafkaError(f"{self.outbox.connection.place}: the broker spoke unasked or hung up", retriable=True)
        while True:
            size = self._size(hold)
            wanted = len(hold.buffer) if size is None else size + 4
            if self._filled >= wanted and size is not None:
                return self._complete(hold, size, now_s)
            with memoryview(hold.buffer) as whole, whole[self._filled : wanted] as room:
                got = self.outbox.transport.recv_into(room)
            if got == WOULD_BLOCK:
                if size is not None:
                    self.outbox.transport.owes(wanted - self._filled, WAKE_BYTES)
                return None
            if got == 0:
                raise KafkaError(f"{self.outbox.connection.place}: the source hung up", retriable=True)
            self._filled += got
            self._first_s = self._first_s or now_s
            self.deadline_s = now_s + ANSWER_SLACK_S

    def far(self, now_s: float) -> bool:
        """To be asked once for each answer: whether its source is so far away that its partitions should bring more."""
        return self._distance.answered(self._filled, self._first_s - self._asked_s, now_s - self._asked_s)

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

    def _complete(self, hold: Hold, size: int, now_s: float) -> tuple[FetchAnswer, Hold]:
        view = memoryview(hold.buffer).toreadonly()[4 : 4 + size]
        correlation, position = read_response_header(view)
        if correlation != self._correlation:
            raise KafkaError(f"{self.outbox.connection.place}: answer {correlation} to fetch {self._correlation}")
        self._current = None
        self.outbox.transport.owes(1)
        answer = parse_fetch(view, position)
        # A fetch that is throttled brings nothing, and a broker counts nothing of it.
        self.quota.answered(self._asked_bytes, size if answer.partitions else 0, answer.throttle_ms, now_s)
        if self.quota.held:
            self.quota.batch = max(map(batch_bytes, answer.partitions), default=0) or self.quota.batch
        return answer, hold

    def close(self) -> None:
        self.outbox.connection.close()


def batch_bytes(part: FetchedPartition) -> int:
    """How large the first batch is, whole or not; 0 where there is none."""
    records = part.records
    return PREFIX_BYTES + int.from_bytes(records[8:PREFIX_BYTES], "big") if len(records) >= PREFIX_BYTES else 0
