"""Two clusters as small as a task can see them: logs, leaders, high watermarks, fetch sessions, producer states.

The target checks every append against the source: a record at an offset where the source holds another is the one
thing that must never happen, so it is raised where it happens.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.simulation.fetch_sessions import FetchSessions, Key, Session
from twinshore.kafka.protocol.fetch import FetchedPartitionById, FetchPartitionById, FetchResponseById
from twinshore.kafka.protocol.record_batch import (
    SEQUENCE_SPAN,
    Record,
    check_crc,
    decode_batch,
    encode_batch,
    split_batches,
)
from twinshore.replication.task.core.fetching import PlannedFetch
from twinshore.replication.task.core.position import LastBatch

DUPLICATES_KNOWN = 5
Answer = tuple[int, int, int]  # error, base offset, the high watermark that confirms it


class WrongWrite(AssertionError):
    """The twin is no longer a prefix of its source."""


class Written(NamedTuple):
    """A batch in a target's log; sequences as the producer numbered it."""

    base: int
    end: int
    producer_id: int
    epoch: int
    first: int
    last: int
    timestamp: int


@dataclass(slots=True)
class SourceLog:
    """`producers`: what each batch was written by, as the receipts must tell it."""

    topic_id: bytes
    partition: int
    leader: int
    epoch: int = 1
    end: int = 0
    high: int = 0
    start: int = 0
    batches: list[tuple[int, int, bytes]] = field(default_factory=list)
    producers: list[tuple[int, int, int, int, int, int]] = field(default_factory=list)
    next_sequence: dict[int, int] = field(default_factory=dict)

    def write(self, count: int, timestamp: int, producer_id: int, size: int) -> None:
        records = [Record(at, timestamp, b"%d" % at, b"v" * size) for at in range(self.end, self.end + count)]
        first = self.next_sequence.get(producer_id, 0)
        data = encode_batch(records, producer_id=producer_id, producer_epoch=0, base_sequence=first, leader_epoch=1)
        self.batches.append((self.end, self.end + count, data))
        self.producers.append((producer_id, 0, first, first + count - 1, self.end, timestamp))
        self.next_sequence[producer_id] = first + count
        self.end += count

    def read(self, position: int, limit: int, *, whole: bool) -> bytes:
        """As a broker does: up to the high watermark, cut at `limit` in mid-batch, but the first batch if `whole`."""
        found = b""
        for _, end, data in self.batches:
            if end <= position:
                continue
            if end > self.high or len(found) >= limit:
                break
            found += data
        first = int.from_bytes(found[8:12], "big") + 12 if found else 0
        return found[: max(limit, first)] if whole else found[:limit]


class SourceBroker:
    """One node as a lane's fetches see it."""

    def __init__(self, node: int, logs: dict[Key, SourceLog], chance: random.Random) -> None:
        self.node = node
        self._logs = logs
        self._sessions = FetchSessions(node, chance)
        self.forget_sessions = self._sessions.forget

    def fetch(self, order: PlannedFetch) -> FetchResponseById:
        turn = self._sessions.turn(order)
        if turn.error:
            return FetchResponseById(0, turn.error, 0, [])
        return FetchResponseById(0, 0, turn.session_id, self._answers(turn.session, order.session_epoch == 0))

    def _answers(self, session: Session, everything: bool) -> list[FetchedPartitionById]:
        found: list[FetchedPartitionById] = []
        first = True
        for key, want in session.wanted.items():
            log = self._logs[key]
            error = self._error(log, want)
            records = b"" if error else log.read(want.position, want.max_bytes, whole=first)
            first = first and not records
            ends = (log.high, log.high, log.start)
            if everything or error or records or session.told.get(key) != ends:
                found.append(FetchedPartitionById(*key, error, *ends, None, None, [], memoryview(records)))
                if not error:
                    session.told[key] = ends
        return found

    def _error(self, log: SourceLog, want: FetchPartitionById) -> int:
        if log.leader != self.node:
            return 6
        if want.leader_epoch > log.epoch:
            return 75
        if want.leader_epoch < log.epoch:
            return 74
        return 0 if log.start <= want.position <= log.end else 1


@dataclass(slots=True)
class TargetLog:
    """A twin's partition, its leader's memory of producers included."""

    source: SourceLog
    topic: str
    leader: int
    expiry_ms: int
    log: list[Written] = field(default_factory=list)
    high: int = 0
    states: dict[int, deque[Written]] = field(default_factory=dict)

    @property
    def end(self) -> int:
        return self.log[-1].end if self.log else 0

    def end_for(self, node: int) -> Answer:
        """What `node` says of where it ends."""
        return (0, self.end, 0) if self.leader == node else (6, -1, 0)

    def append(self, data: bytes) -> Answer:
        """One batch through the broker's own check of producer, epoch and sequence."""
        ((view, header),) = split_batches(memoryview(data))
        check_crc(view, header)
        last = (header.base_sequence + header.count - 1) % SEQUENCE_SPAN
        known = self.states.get(header.producer_id)
        if known:
            for entry in known:
                if (entry.first, entry.last) == (header.base_sequence, last):
                    return 0, entry.base, entry.end
            if header.base_sequence != (known[-1].last + 1) % SEQUENCE_SPAN:
                return 45, -1, 0
        base = self.end
        self._compare(base, [record._replace(offset=base + record.offset) for record in decode_batch(view, header)])
        identity = (header.producer_id, header.producer_epoch, header.base_sequence, last, header.max_timestamp)
        written = Written(base, base + header.count, *identity)
        self.log.append(written)
        self.states.setdefault(header.producer_id, deque(maxlen=DUPLICATES_KNOWN)).append(written)
        return 0, base, written.end

    def _compare(self, base: int, ours: list[Record]) -> None:
        theirs: list[Record] = []
        for begin, end, data in self.source.batches:
            if end > base and begin < base + len(ours):
                theirs += decode_batch(*split_batches(memoryview(data))[0])
        theirs = [record for record in theirs if base <= record.offset < base + len(ours)]
        if ours != theirs:
            raise WrongWrite(
                f"{self.topic}-{self.source.partition}: at offset {base} the twin got keys "
                f"{[record.key for record in ours]}, the source holds {[record.key for record in theirs]}"
            )

    def sweep(self, now_ms: int) -> None:
        """Forgets producers whose last batch is old by its own time stamp."""
        old = [key for key, known in self.states.items() if known[-1].timestamp + self.expiry_ms < now_ms]
        for key in old:
            del self.states[key]

    def lead_elsewhere(self, node: int, now_ms: int, *, complete: bool) -> None:
        """Another replica leads; one that is not `complete` never had what lies above the high watermark."""
        self.leader = node
        if not complete:
            while self.log and self.log[-1].end > self.high:
                self.log.pop()
        self.states.clear()
        for written in self.log:
            self.states.setdefault(written.producer_id, deque(maxlen=DUPLICATES_KNOWN)).append(written)
        self.sweep(now_ms)

    def tail(self) -> LastBatch | None:
        if not self.log or self.high != self.end:
            return None
        last = self.log[-1]
        return LastBatch(last.base, last.end - 1, last.producer_id, last.first)

    def remembered(self, producer_id: int) -> tuple[int, int] | None:
        known = self.states.get(producer_id)
        return (known[-1].last, known[-1].timestamp) if known else None
