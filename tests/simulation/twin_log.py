"""A twin's partition with its leader's checks, and the one thing that must never happen, raised where it happens.

Every append is held against the source: what lands at an offset must be what the source has there, in the one history
that the twin has followed so far.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import NamedTuple

from tests.simulation.producer_memory import Numbered, ProducerMemory, last_sequence
from tests.simulation.replicas import Entry, ReplicatedLog
from tests.simulation.source_log import SourceLog
from twinshore.kafka.protocol.error_codes import Code
from twinshore.kafka.protocol.record_batch import Record, check_crc, decode_batch, split_batches
from twinshore.replication.task.core.position import LastBatch

FOREIGN_PRODUCER = 4711
FILLER = (0, b"", None)  # time stamp, key, value of what takes offsets below a log's start


class Violation(AssertionError):
    """An invariant is broken."""


class Appended(NamedTuple):
    """A leader's answer to one batch: its code, where it landed, and the high watermark that confirms it."""

    error: int
    base: int = -1
    confirmed_at: int = 0


class TwinLog(ReplicatedLog):
    """`spoiled_at`: from there on somebody else's doing decides what the log holds; `confirmed`: how far the twin has
    been readable at any time, and the source's."""

    def __init__(
        self,
        source: SourceLog,
        name: str,
        topic_id: bytes,
        nodes: tuple[int, ...],
        chance: random.Random,
        *,
        expiry_ms: int,
        in_sync_min: int = 1,
    ) -> None:
        self.confirmed = 0
        super().__init__(nodes, chance)
        self.source, self.name, self.topic_id = source, name, topic_id
        self.memory = ProducerMemory(expiry_ms)
        self.in_sync_min = in_sync_min
        self.spoiled_at: int | None = None
        # (offset, source epoch) of every record of the twin, in order: which history it follows.
        self.followed: list[tuple[int, int]] = []
        self.history: list[Entry] = []  # what the producers' memory is made from; retention does not touch it

    def produce(self, data: bytes) -> Appended:
        """One batch as a leader takes it; test_what_a_leader_refuses_in_a_batch."""
        ((view, header),) = split_batches(memoryview(data))
        check_crc(view, header)
        if header.base_offset or header.count != header.last_offset_delta + 1:
            return Appended(Code.invalid_record)
        if len(self.in_sync) < self.in_sync_min:
            return Appended(Code.not_enough_replicas)  # test_too_few_in_sync_writes_nothing
        found = self.memory.check(header)
        if isinstance(found, Numbered):
            return Appended(0, found.base, found.end)
        if found:
            return Appended(found)
        base = self.end
        if self.spoiled_at is None or base < self.spoiled_at:
            self._compare(base, [one._replace(offset=base + one.offset) for one in decode_batch(view, header)])
        batch = Numbered(header.base_sequence, last_sequence(header), base, base + header.count)
        identity = (
            header.producer_id,
            header.producer_epoch,
            batch.first,
            batch.last,
            header.max_timestamp,
            self.epoch,
        )
        self.memory.appended(header.producer_id, header.producer_epoch, batch, header.max_timestamp)
        self.append(Entry(base, batch.end, base.to_bytes(8, "big") + data[8:], *identity))
        return Appended(0, base, batch.end)

    def mark(self, producer_id: int, epoch: int, coordinator_epoch: int, times: int, now_ms: int) -> Appended:
        """So many equal markers, written directly: test_markers_take_offsets_that_no_sequence_counts."""
        code = self.memory.mark(producer_id, epoch, coordinator_epoch, now_ms)
        if code:
            return Appended(code)
        base = self.end
        for offset in range(base, base + times):
            if self.spoiled_at is None and self.follows() and self.source.committed(offset):
                raise Violation(f"{self.name}: a marker lies at offset {offset}, where the source shows a record")
            identity = (producer_id, epoch, -1, -1, now_ms, self.epoch)
            self.append(Entry(offset, offset + 1, b"", *identity, marker=True, coordinator_epoch=coordinator_epoch))
        return Appended(0, base, base + times)

    def follows(self) -> bool:
        """Whether the twin's history is the one that the source has now."""
        if not self.followed:
            return True
        offset, epoch = self.followed[-1]
        if offset < self.source.start:
            return True
        return self.source.owner(self.source.epoch, offset) == epoch

    def _compare(self, base: int, ours: list[Record]) -> None:
        source = self.source
        for number, record in enumerate(ours):
            offset = base + number
            if offset < source.start and (record.timestamp, record.key, record.value) == FILLER:
                continue
            before = self.followed[-1] if self.followed else None
            if before and before[0] < source.start:
                before = None  # the source deleted what could tell; so will the twin
            for epoch, theirs in reversed(source.records.get(offset, [])):
                if theirs == record and (before is None or source.owner(epoch, before[0]) == before[1]):
                    if not source.crosses(offset, epoch):
                        raise Violation(f"{self.name}: the record at offset {offset} was never committed")
                    self.followed.append((offset, epoch))
                    break
            else:
                held = source.records.get(offset, [])
                what = "another history" if any(theirs == record for _, theirs in held) else "not what the source has"
                raise Violation(f"{self.name}: at offset {offset} the twin got {record}: {what}, {held}")

    def write_foreign(self, now_ms: int) -> None:
        """Somebody else writes to the twin."""
        if self.spoiled_at is None:
            self.spoiled_at = self.end
        base, count = self.end, self.chance.randint(1, 3)
        self.append(Entry(base, base + count, b"", FOREIGN_PRODUCER, 0, 0, count - 1, now_ms, self.epoch))

    def append(self, entry: Entry) -> None:
        self.history.append(entry)
        super().append(entry)

    def advance(self) -> None:
        super().advance()
        bound = self.high if self.spoiled_at is None else min(self.high, self.spoiled_at)
        self.confirmed = max(self.confirmed, bound)

    def lead(self, node: int, now_ms: int) -> int:
        """Another leader, which knows the producers of its own log; what it never had is gone."""
        lost_from = self.elect(node)
        while self.history and self.history[-1].end > lost_from:
            self.history.pop()
        while self.followed and self.followed[-1][0] >= lost_from:
            self.followed.pop()
        if self.spoiled_at is not None and lost_from <= self.spoiled_at:
            self.spoiled_at = None
        self.memory.rebuild(
            (
                (
                    one.producer_id,
                    one.producer_epoch,
                    None if one.marker else Numbered(one.first, one.last, one.base, one.end),
                    one.coordinator_epoch,
                    one.timestamp,
                )
                for one in self.history
            ),
            now_ms,
        )
        return lost_from

    def lacks(self) -> list[int]:
        """Offsets at which the source shows a record that the twin, though it is longer, does not hold."""
        held = {offset for offset, _ in self.followed}
        return [offset for offset in self.source.shown() if offset < self.end and offset not in held]

    def fence(self, producer_id: int) -> int:
        """The highest coordinator epoch of its markers: test_markers_fence_a_zombie."""
        known = self.memory.known.get(producer_id)
        return known.coordinator_epoch if known else -1

    def tail(self, offset: int) -> LastBatch | None:
        """The batch at `offset` as a consumer reads it; None where none is shown."""
        at = self.index(offset)
        if offset >= self.high or at >= len(self.entries):
            return None
        last = self.entries[at]
        return LastBatch(last.base, last.end - 1, last.producer_id, last.first, control=last.marker)

    def remembered(self, producer_id: int) -> tuple[int, int] | None:
        """test_only_replica_minus_two_is_shown_the_log_end: DescribeProducers speaks of the log end."""
        known = self.memory.known.get(producer_id)
        return (known.last, known.timestamp) if known else None

    def remembered_epoch(self, producer_id: int) -> int:
        """The epoch of that memory; -1 where there is none."""
        known = self.memory.known.get(producer_id)
        return known.epoch if known else -1

    def inherit(self, entries: Iterable[Entry], producer: tuple[int, int]) -> None:
        """What the topic's own writers left when it was at home here, and, of every second batch, what the link wrote
        in an earlier epoch: the same records as the source's."""
        sequence = 0
        for number, entry in enumerate(entries):
            ((view, header),) = split_batches(memoryview(entry.data))
            records = decode_batch(view, header)
            self.followed += [(record.offset, entry.leader_epoch) for record in records]
            copy = entry._replace(leader_epoch=self.epoch)
            if number % 2:
                first, sequence = sequence, sequence + entry.end - entry.base
                copy = copy._replace(
                    producer_id=producer[0], producer_epoch=producer[1], first=first, last=sequence - 1
                )
                batch = Numbered(first, sequence - 1, entry.base, entry.end)
                self.memory.appended(*producer, batch, entry.timestamp)
            self.append(copy)
