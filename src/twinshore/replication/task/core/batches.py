"""Turns fetched batches into checked and joined outgoing batches, and gaps: offsets that no consumer sees.

The result suits all targets that end at `write_from`. This is the task's hottest loop: an ordinary batch costs one
header check and one CRC. Fetches read below the last stable offset and name the aborted transactions, so every outcome
is known.

A `SequenceMap` writes a batch header for one target: producer, and sequences derived from offsets. The body stays, so
one batch serves several targets. The new CRC is computed from the old one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from twinshore.config.errors import TooLargeError, WireError
from twinshore.config.incident_policy import IncidentKind, IncidentSide
from twinshore.config.model import written_epoch
from twinshore.kafka.protocol.batch_join import (
    BatchJoiner,
    JoinedBatches,
    ProducerBatch,
    as_source_array,
    join_buffer_bytes,
)
from twinshore.kafka.protocol.fetch import AbortedTransactions, visible_spans
from twinshore.kafka.protocol.primitives import Buffer
from twinshore.kafka.protocol.record_batch import (
    BODY_IN_LENGTH,
    CONTROL_FLAG,
    HEADER_BYTES,
    LOG_APPEND_TIME_FLAG,
    MESSAGE_BYTES_DEFAULT,
    PREFIX_BYTES,
    SEQUENCE_SPAN,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    check_crc,
    next_batch,
    restamp,
    sequence_of,
)
from twinshore.kafka.protocol.rewrite import can_merge, hole_free_runs, merge_small, slice_runs
from twinshore.replication.task.core.messages import PartitionConfig, TaskLimits
from twinshore.state.core.values import TwinRow

_ROOM_BYTES_MIN: Final = 1 << 20
# Record limit of a rewritten batch: a long one becomes several, each made quickly.
REWRITTEN_RECORDS_MAX = 1 << 14
MAGIC_OFFSET, MAGIC = 16, 2
# Cost of making one, besides its records and bytes.
GAP_COST, SLICE_COST, JOIN_COST = 2, 8, 50
REWRITE_ATTRIBUTES = CONTROL_FLAG | TRANSACTIONAL_FLAG | LOG_APPEND_TIME_FLAG
BatchView = tuple[memoryview, BatchHeader]


@dataclass(slots=True, eq=False)
class PooledBuffer:
    """A buffer and its uses: batches queued or being sent, and unparsed data. Free at zero. Each queue that takes a
    batch counts once; making one counts nothing.
    """

    buffer: bytearray
    uses: int = 0


class BufferPool:
    """One task's joiner and buffers, which are never given back. `full`: fetch no more."""

    def __init__(self, limits: TaskLimits) -> None:
        most = limits.merged_bytes_max
        self._joiner = BatchJoiner(below_bytes=limits.join_below_bytes, most_bytes=most)
        self._below_bytes = limits.join_below_bytes
        self.below_bytes = self._below_bytes if self._joiner.able() else 0
        self._room_bytes = max(_ROOM_BYTES_MIN, 2 * join_buffer_bytes(most))
        self.allow(limits.joined_bytes_max)
        self._rooms: list[PooledBuffer] = []
        self._current: PooledBuffer | None = None
        # Buffers of the view's joined batches: not free, even if not queued yet.
        self._fresh: list[PooledBuffer] = []
        self._filled = 0
        self._view: memoryview | None = None
        self._source: Any = None

    def allow(self, joined_bytes_max: int) -> None:
        self._rooms_max = max(4, joined_bytes_max // self._room_bytes)

    def full(self) -> bool:
        if not self.below_bytes and self._joiner.able():
            self.below_bytes = self._below_bytes
        return len(self._rooms) >= self._rooms_max and all(room.uses for room in self._rooms)

    @property
    def rooms(self) -> tuple[PooledBuffer, ...]:
        return tuple(self._rooms)

    def holds(self, bytes_max: int) -> int:
        """How many well-filled buffers hold `bytes_max`."""
        return max(1, bytes_max // self._room_bytes)

    def join(self, view: memoryview, place: int, first: BatchHeader) -> tuple[JoinedBatches, PooledBuffer] | None:
        """Joins the batch `first`, at `place` of a fetch, with the next ones; None if none fits.

        Queue a view's batches before joining another's: queueing counts the buffer as used.
        """
        if view is not self._view:
            self._view, self._source = view, as_source_array(view)
            self._fresh.clear()
        pooled_buffer = self._room()
        joined = self._joiner.join(self._source, place, first, memoryview(pooled_buffer.buffer), self._filled)
        if joined is None:
            return None
        self._filled += len(joined.body)
        if pooled_buffer not in self._fresh:
            self._fresh.append(pooled_buffer)
        return joined, pooled_buffer

    def _room(self) -> PooledBuffer:
        pooled_buffer = self._current
        if pooled_buffer is not None:
            if self._is_free(pooled_buffer):
                self._filled = 0
                return pooled_buffer
            if len(pooled_buffer.buffer) - self._filled >= self._room_bytes // 2:
                return pooled_buffer
        free = next((room for room in self._rooms if self._is_free(room)), None)
        if free is None:
            free = PooledBuffer(bytearray(self._room_bytes))
            self._rooms.append(free)
        self._current, self._filled = free, 0
        return free

    def _is_free(self, room: PooledBuffer) -> bool:
        return not room.uses and room not in self._fresh


class OffsetGap(NamedTuple):
    """Offsets [base, end) that no consumer of the source sees: control or aborted records, holes of compaction."""

    base: int
    end: int

    @property
    def skipped(self) -> int:
        """Offsets that the following sequences do not count."""
        return self.end - self.base

    @property
    def size(self) -> int:
        return 0


def clip_gaps(gaps: Iterable[OffsetGap], begin: int, end: int) -> tuple[OffsetGap, ...]:
    cut = (OffsetGap(max(gap.base, begin), min(gap.end, end)) for gap in gaps)
    return tuple(gap for gap in cut if gap.base < gap.end)


def subtract_gaps(gaps: Iterable[OffsetGap], others: Sequence[OffsetGap]) -> list[OffsetGap]:
    """The parts outside `others`, which are in order."""
    left: list[OffsetGap] = []
    for base, end in gaps:
        for other in clip_gaps(others, base, end):
            left += clip_gaps([OffsetGap(base, other.base)], base, end)
            base = other.end
        left += clip_gaps([OffsetGap(base, end)], base, end)
    return left


class FilledGap(OffsetGap):
    """A gap before the link's first record, whose sequence follows from its offset."""

    __slots__ = ()

    @property
    def skipped(self) -> int:
        return 0


class SplitBatch(NamedTuple):
    """Records to replicate: a batch without holes, with the source's header except for what was cut. `unpacked`: bytes
    unpacked for this.
    """

    body: Buffer
    header: BatchHeader
    unpacked: int = 0


def split_batch(
    view: memoryview, header: BatchHeader, position: int, write_from: int, aborted: AbortedTransactions
) -> Iterator[OffsetGap | SplitBatch]:
    """Yields gaps and batches from `position` to the batch's end, lazily. Below `write_from`, which is on the twin
    already, only gaps are named.
    """
    offsets = list(visible_spans(view, header, position, aborted))
    runs = [(max(base, write_from), end) for base, end, visible in offsets if visible and end > write_from]
    if runs == [(header.base_offset, header.last_offset + 1)] and not header.attributes & LOG_APPEND_TIME_FLAG:
        check_crc(view, header)
        pieces = iter([SplitBatch(view[HEADER_BYTES:], header)])
    else:
        pieces = _pieces(view, header, runs)
    for base, end, visible in offsets:
        if not visible:
            if base < write_from:
                yield OffsetGap(base, min(end, write_from))
            if end > write_from:
                yield OffsetGap(max(base, write_from), end)
        elif end > write_from:
            at = max(base, write_from)
            while at < end:
                yield (piece := next(pieces))
                at = piece.header.last_offset + 1


def _pieces(view: memoryview, header: BatchHeader, runs: list[tuple[int, int]]) -> Iterator[SplitBatch]:
    parts = [
        (at, min(at + REWRITTEN_RECORDS_MAX, end))
        for first, end in runs
        for at in range(first, end, REWRITTEN_RECORDS_MAX)
    ]
    if len(parts) > 1 and header.count == header.last_offset_delta + 1:
        hole_free_runs(view, header)  # A partly unreadable batch is not replicated at all.
    return _fitting(view, header, parts)


def _fitting(view: memoryview, header: BatchHeader, parts: list[tuple[int, int]]) -> Iterator[SplitBatch]:
    """Halves batches above the size that a twin must accept: a producer may have compressed better."""
    fits = max(header.length + PREFIX_BYTES, MESSAGE_BYTES_DEFAULT) - HEADER_BYTES
    for (first, end), sliced in zip(parts, slice_runs(view, header, parts), strict=True):
        if len(sliced.body) <= fits or end - first == 1:
            yield SplitBatch(*sliced)
        else:
            middle = (first + end) // 2
            yield from _fitting(view, header, [(first, middle), (middle, end)])


class PartitionStopped(Exception):
    """The partition cannot go on at `offset`. Becomes an incident."""

    def __init__(
        self, kind: IncidentKind, offset: int, end: int, sentence: str, side: IncidentSide | None = None
    ) -> None:
        super().__init__(sentence)
        self.kind, self.offset, self.end, self.sentence, self.side = kind, offset, end, sentence, side


class OutgoingBatch(NamedTuple):
    """One batch to replicate: source offsets [base, end). The header's CRC is checked or made. `room`: the buffer of a
    joined body.
    """

    header: BatchHeader
    body: Buffer
    base: int
    end: int
    size: int
    max_timestamp: int
    room: PooledBuffer | None = None


class SourceBatchStats(NamedTuple):
    base: int
    size: int
    batches: int
    producers: list[ProducerBatch]


class ParsedFetch(NamedTuple):
    """A parsed fetch of one partition. `noted_to`: up to where batches below `write_from` were counted, not sent.
    `gaps`: all gaps, also below `write_from`.
    """

    batches: list[OutgoingBatch | OffsetGap]
    end: int
    noted_to: int
    leader_epoch: int
    stopped: PartitionStopped | None
    carried: list[SourceBatchStats]
    gaps: list[OffsetGap]


class BatchParser:
    """One pass over a fetch, in portions. `more`: data is left. `aborted`: producer id and first offset of each aborted
    transaction.
    """

    # Initial values, on the class: most parsers handle one batch, and setting these would cost too much.
    more, work, leader_epoch = True, 0, -1
    _open: tuple[Iterator[OffsetGap | SplitBatch], BatchHeader] | None = None
    _next_offset = _joined_to = _place = _work_max = 0
    _old, _odd = False, ""

    def __init__(
        self,
        records: memoryview,
        position: int,
        write_from: int,
        limits: TaskLimits,
        joining: BufferPool | None,
        aborted: Iterable[tuple[int, int]],
    ) -> None:
        self.records, self.position, self.write_from = records, position, write_from
        self.limits, self.joining = limits, joining
        self.aborted = AbortedTransactions(aborted)
        self.batches: list[OutgoingBatch | OffsetGap] = []
        self.gaps: list[OffsetGap] = []
        self.carried: list[SourceBatchStats] = []
        self.noted_to = position
        self._small: list[BatchView] = []
        self._join_below = joining.below_bytes if joining else 0

    def parse(self, work_max: int) -> ParsedFetch:
        """Parses about `work_max` units of some microseconds. A halt ends the pass; batches before are still
        replicated.
        """
        if self._place:
            self.batches, self.gaps, self.carried = [], [], []
            self.noted_to = self.position
        self.work, self._work_max = 0, work_max
        stopped: PartitionStopped | None = None
        try:
            self._run()
        except WireError as error:
            stopped = self.damage(error)
        except PartitionStopped as reason:
            stopped = reason
        batches, end = self.batches, self.position
        if stopped:
            self.more, end = False, batches[-1].end if batches else self.noted_to
        return ParsedFetch(batches, end, self.noted_to, self.leader_epoch, stopped, self.carried, self.gaps)

    def _run(self) -> None:
        place = self._place
        if self._open:
            self._go_through(*self._open)
        while self.work <= self._work_max:
            try:
                batch = next_batch(self.records, place, self._next_offset)
            except WireError:
                self._flush()
                self._old = self.records[place + MAGIC_OFFSET] < MAGIC
                raise
            if batch is None:
                self.more = False
                break
            view, header = batch
            self._next_offset = header[0] + header[6] + 1
            place = self._take(place, view, header)
        self._place = place
        self._flush()

    def damage(self, error: WireError) -> PartitionStopped:
        end = max(self._next_offset, self.position + 1)
        if isinstance(error, TooLargeError):
            sentence = f"{error.message}; it must be rewritten for the twin, since {self._odd}"
            return PartitionStopped(IncidentKind.TOO_LARGE_UNPACKED, self.position, end, sentence)
        kind = IncidentKind.OLD_FORMAT if self._old else IncidentKind.CORRUPT_BATCH
        return PartitionStopped(kind, self.position, end, str(error))

    def _take(self, place: int, view: memoryview, header: BatchHeader) -> int:
        base, length, epoch, _, _, attributes, last_delta, _, max_timestamp, producer_id, _, _, count = header
        position, end, after = self.position, base + last_delta + 1, place + PREFIX_BYTES + length
        if end <= position:
            return after
        if base != position or attributes & REWRITE_ATTRIBUTES or count != last_delta + 1 or position < self.write_from:
            self._flush()
            self._odd = _oddity(header)
            self.work += count >> 1
            self._go_through(split_batch(view, header, position, self.write_from, self.aborted), header)
            return after
        if not attributes and length < self._join_below and after < len(self.records) and self._join(place, header):
            return self._joined_to
        if length < self.limits.merge_below_bytes:
            self.work += count
            self._small.append((view, header))
        else:
            self._flush()
            check_crc(view, header)
            self.batches.append(
                OutgoingBatch(header, view[HEADER_BYTES:], base, end, length + PREFIX_BYTES, max_timestamp)
            )
            self.work += 1 + (length >> 15)
        numbered = producer_id >= 0 and not attributes & CONTROL_FLAG
        self.carried.append(
            SourceBatchStats(base, length + PREFIX_BYTES, 1, [batch_producer(header)] if numbered else [])
        )
        self.position, self.leader_epoch = end, epoch
        return after

    def _join(self, place: int, first: BatchHeader) -> bool:
        """Whether batches were joined; `_joined_to` is then their end."""
        joined = self.joining.join(self.records, place, first) if self.joining else None
        if joined is None:
            return False
        (body, header, self._joined_to, batches, producers), room = joined
        self._flush()
        self.batches.append(make_outgoing_batch(header, body)._replace(room=room))
        self.carried.append(SourceBatchStats(header[0], self._joined_to - place, batches, producers))
        self._next_offset = self.position = header[0] + header[12]
        self.work += JOIN_COST
        self.leader_epoch = header[2]
        return True

    def _go_through(self, pieces: Iterator[OffsetGap | SplitBatch], header: BatchHeader) -> None:
        """Parses a batch of a transaction, of control records, with holes, or partly on the twin."""
        self._open = None
        for fate in pieces:
            if isinstance(fate, OffsetGap):
                self.gaps.append(fate)
                if fate.end > self.write_from:
                    last = self.batches.pop() if self.batches and isinstance(self.batches[-1], OffsetGap) else fate
                    self.batches.append(OffsetGap(last.base, fate.end))
                self.position = fate.end
                self.work += GAP_COST
            else:
                body, batch_header, unpacked = fate
                self.batches.append(make_outgoing_batch(batch_header, body))
                self.position = batch_header.last_offset + 1
                self.work += SLICE_COST + batch_header.count + (unpacked >> 7)
            if self.work > self._work_max and self.write_from <= self.position <= header.last_offset:
                self._open, self.leader_epoch = (pieces, header), header.leader_epoch
                return
        end = header.last_offset + 1
        if end <= self.write_from:
            self.noted_to = end
        numbered = header.producer_id >= 0 and not header.attributes & CONTROL_FLAG
        producers = [batch_producer(header)] if numbered else []
        self.carried.append(SourceBatchStats(header.base_offset, header.length + PREFIX_BYTES, 1, producers))
        self.position, self.leader_epoch = end, header.leader_epoch

    def _flush(self) -> None:
        if self._small:
            _flush(self._small, self.batches, self.limits)


def batch_producer(header: BatchHeader) -> ProducerBatch:
    """Identifies a retry of this batch after a switch."""
    last = (header[11] + header[6]) % SEQUENCE_SPAN
    return header[9], header[10], header[11], last, header[0], header[8]


def _flush(small: list[BatchView], batches: list[OutgoingBatch | OffsetGap], limits: TaskLimits) -> None:
    run: list[BatchView] = []
    size = 0
    for batch in small:
        header = batch[1]
        if run and (size + header[1] > limits.merged_bytes_max or not can_merge(run[-1][1], header)):
            _pack(run, batches, limits)
            run, size = [], 0
        run.append(batch)
        size += header[1]
    if run:
        _pack(run, batches, limits)
    small.clear()


def _pack(run: list[BatchView], batches: list[OutgoingBatch | OffsetGap], limits: TaskLimits) -> None:
    """Makes one batch, or a few if that would unpack to too much; or one for each before a damaged one."""
    done = 0
    try:
        while done < len(run):
            body, header, count = merge_small(run, done, plain_bytes_max=limits.merged_plain_bytes_max)
            batches.append(_as_it_is(*run[done]) if count == 1 else make_outgoing_batch(header, body))
            done += count
    except WireError:
        for view, header in run[done:]:
            try:
                batches.append(_as_it_is(view, header))
            except WireError as error:
                span = header.base_offset, header.last_offset + 1
                raise PartitionStopped(IncidentKind.CORRUPT_BATCH, *span, str(error)) from error


def _as_it_is(view: memoryview, header: BatchHeader) -> OutgoingBatch:
    check_crc(view, header)
    return make_outgoing_batch(header, view[HEADER_BYTES:])


def make_outgoing_batch(header: BatchHeader, body: Buffer) -> OutgoingBatch:
    """Raises ValueError if the body does not match the header."""
    if len(body) != header[1] - BODY_IN_LENGTH:
        raise ValueError(f"a body of {len(body)} bytes under a header for {header[1] - BODY_IN_LENGTH}")
    return OutgoingBatch(header, body, header[0], header[0] + header[6] + 1, header[1] + PREFIX_BYTES, header[8])


def _oddity(header: BatchHeader) -> str:
    if header.attributes & CONTROL_FLAG:
        return "it may end a transaction"
    if header.attributes & LOG_APPEND_TIME_FLAG:
        return "its records take the time at which the source appended them"
    if header.count != header.last_offset_delta + 1:
        return "the source's compaction took records from it"
    return "a part of it is on the twin already"


class SequenceMap(NamedTuple):
    """Maps offsets to sequences on one twin, so that the broker can compare and swap."""

    producer_id: int
    producer_epoch: int
    base_offset: int
    base_sequence: int

    @classmethod
    def of(cls, producer: tuple[int, int], twin: PartitionConfig | TwinRow) -> SequenceMap:
        """`producer`: the link's id and epoch."""
        producer_id, epoch = producer
        return cls(producer_id, written_epoch(epoch, twin.epoch), twin.base_offset, twin.base_sequence)

    def sequence(self, offset: int) -> int:
        """The sequence of `offset`, if only records lie between."""
        return sequence_of(self.base_offset, self.base_sequence, offset)

    def head(self, batch: OutgoingBatch) -> bytes:
        producer_id, producer_epoch, base_offset, base_sequence = self
        sequence = sequence_of(base_offset, base_sequence, batch.base)
        return restamp(batch.header, producer_id, producer_epoch, sequence)

    def after(self, gaps: int) -> SequenceMap:
        """The map after `gaps` more uncounted offsets."""
        return self._replace(base_offset=self.base_offset + gaps)
