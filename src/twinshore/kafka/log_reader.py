"""Reads logs: batches, records and offsets over shared connections, a long offset range over a separate one."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from random import Random
from typing import NamedTuple

import numpy as np

from twinshore.config.errors import KafkaError, WireError
from twinshore.config.grouping import grouped
from twinshore.config.model import TopicPartition
from twinshore.kafka.clock import delay_s
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.connection import Connection
from twinshore.kafka.leader_queries import OffsetKind
from twinshore.kafka.pool import is_retriable
from twinshore.kafka.protocol.batch_join import compiled_loops
from twinshore.kafka.protocol.error_codes import Code, kafka_error
from twinshore.kafka.protocol.fetch import (
    FETCH_KEY,
    AbortedTransactions,
    FetchedPartitionById,
    FetchPartitionById,
    encode_fetch_by_id,
    parse_fetch_by_id,
    visible_spans,
)
from twinshore.kafka.protocol.framing import FrameReader
from twinshore.kafka.protocol.record_batch import (
    CONTROL_FLAG,
    LOG_APPEND_TIME_FLAG,
    BatchHeader,
    DatedContent,
    Record,
    RecordContent,
    check_crc,
    iter_records,
    split_batches,
)
from twinshore.kafka.protocol.rewrite import REWRITE_BYTES_MAX

FETCH_BYTES = 4 << 20
# How far below control records to look for the last record, in offsets.
LOOKBACK_OFFSETS = (16, 256, 4096)
Batch = tuple[memoryview, BatchHeader]
OffsetRun = tuple[int, int]  # first offset, and the one after the last


def read_batches(
    cluster: KafkaCluster, partition: TopicPartition, offset: int, end: int, *, committed: bool
) -> Iterator[Batch]:
    """Yields batches with offsets in [offset, end), as far as a consumer may read."""
    for view, header, _ in _fetched(cluster, partition, offset, end, committed=committed):
        yield view, header


def read_log_bounds(cluster: KafkaCluster, partition: TopicPartition) -> tuple[int, int]:
    start = cluster.list_offsets([partition], OffsetKind.EARLIEST)[partition]
    return start, cluster.list_offsets([partition], OffsetKind.LOG_END)[partition]


def read_visible_runs(cluster: KafkaCluster, partition: TopicPartition, offset: int) -> Iterator[OffsetRun]:
    """Yields offset runs [first, end) from `offset` on that read-committed consumers see."""
    at = offset
    for view, header, aborted in _fetched(cluster, partition, offset, sys.maxsize, committed=True):
        check_crc(view, header)
        yield from ((first, end) for first, end, seen in visible_spans(view, header, at, aborted) if seen)
        at = header.last_offset + 1


def find_missing_runs(ours: Iterable[OffsetRun], theirs: Iterable[OffsetRun], begin: int, end: int) -> list[OffsetRun]:
    """Returns runs in [begin, end) that `theirs` has and `ours` lacks. Both are ordered, and read once."""
    found: list[OffsetRun] = []
    others = iter(theirs)
    run = next(others, None)
    for first, last in chain(ours, [(end, end)]):
        while run is not None and run[1] <= begin:
            run = next(others, None)
        if run is not None and begin < min(first, end) and run[0] < min(first, end):
            found.append((begin, min(first, end)))
        begin = max(begin, last)
        if begin >= end:
            break
    return found


def read_contents(
    cluster: KafkaCluster, partition: TopicPartition, offset: int, end: int, *, committed: bool = False
) -> Iterator[tuple[int, RecordContent]]:
    """Yields offset and content of records in [offset, end); with `committed`, without aborted ones."""
    for record, _ in _records(cluster, partition, offset, end, committed=committed):
        yield record.offset, RecordContent(record.key, record.value, record.headers)


def read_dated_contents(
    cluster: KafkaCluster, partition: TopicPartition, offset: int, end: int, *, committed: bool, theirs: bool
) -> Iterator[tuple[int, DatedContent]]:
    """Like `read_contents`, with timestamps. `theirs`: as consumers see them; otherwise None for LogAppendTime."""
    for record, by_broker in _records(cluster, partition, offset, end, committed=committed):
        told = None if by_broker and not theirs else record.timestamp
        yield record.offset, DatedContent(RecordContent(record.key, record.value, record.headers), told)


def _records(
    cluster: KafkaCluster, partition: TopicPartition, offset: int, end: int, *, committed: bool
) -> Iterator[tuple[Record, bool]]:
    """Yields records in [offset, end), and whether the timestamp is LogAppendTime."""
    for view, header, aborted in _fetched(cluster, partition, offset, end, committed=committed):
        hidden = aborted.hides(view, header) if committed else bool(header.attributes & CONTROL_FLAG)
        for record in () if hidden else iter_records(view, header, limit_bytes=REWRITE_BYTES_MAX):
            if offset <= record.offset < end:
                yield record, bool(header.attributes & LOG_APPEND_TIME_FLAG)


def _fetched(
    cluster: KafkaCluster, partition: TopicPartition, offset: int, end: int, *, committed: bool
) -> Iterator[tuple[memoryview, BatchHeader, AbortedTransactions]]:
    """Yields batches with offsets in [offset, end), perhaps more, and aborted transactions of their fetch."""
    while offset < end:
        fetched = cluster.read_from(partition, offset, bytes_max=FETCH_BYTES, committed=committed)
        aborted, before = AbortedTransactions(fetched.aborted), offset
        for view, header in split_batches(fetched.records):
            if header.last_offset >= offset:
                yield view, header, aborted
                offset = header.last_offset + 1
        if offset == before:
            return


def read_visible_record(cluster: KafkaCluster, partition: TopicPartition, offset: int) -> RecordContent | None:
    """Returns the record at `offset`, or None."""
    found = cluster.read_batch(partition, offset)
    if found is None:
        return None
    for record in iter_records(*found, limit_bytes=REWRITE_BYTES_MAX):
        if record.offset == offset:
            return RecordContent(record.key, record.value, record.headers)
    return None


def find_last_record(
    cluster: KafkaCluster, partition: TopicPartition, low: int, end: int, *, committed: bool = False
) -> int:
    """Returns the offset of the last record below `end`, before control records (with `committed`, aborted ones too);
    -1 where none is near.
    """
    for width in LOOKBACK_OFFSETS:
        begin = max(low, end - width)
        contents = read_contents(cluster, partition, begin, end, committed=committed)
        at = max((offset for offset, _ in contents), default=-1)
        if at >= 0 or begin == low:
            return at
    return -1


# How long topics are asked one by one after a joint request failed; the rest is skipped.
TOPIC_BY_TOPIC_TIMEOUT_S = 6.0


@dataclass(frozen=True, slots=True)
class LogEnds:
    """Log ends by partition. `gone`: topics that do not exist. `mute`: topics without an answer now."""

    of: dict[TopicPartition, int]
    gone: frozenset[str] = frozenset()
    mute: frozenset[str] = frozenset()

    def without(self, topics: Collection[str]) -> LogEnds:
        """Move these topics to `mute`: their ends say nothing about their twins."""
        found = {partition: end for partition, end in self.of.items() if partition.topic not in topics}
        return LogEnds(found, self.gone, self.mute | {one.topic for one in self.of if one.topic in topics})


def read_log_starts(cluster: KafkaCluster, topics: Collection[str]) -> dict[TopicPartition, int]:
    """Returns log starts of topics without replicated records."""
    if not topics:
        return {}
    seen = cluster.metadata(sorted(topics), refresh=True).topics
    partitions = [TopicPartition(name, tp.partition) for name, topic in seen.items() for tp in topic.partitions]
    found, _ = cluster.offsets_of_each(partitions, OffsetKind.EARLIEST)
    return {partition: found.get(partition, 0) for partition in partitions}


def find_existing_partitions(
    cluster: KafkaCluster, partitions: Collection[TopicPartition]
) -> tuple[TopicPartition, ...]:
    """Returns partitions whose topics exist: other requests about a deleted topic take seconds."""
    topics = sorted({partition.topic for partition in partitions})
    seen = cluster.metadata(topics, refresh=True).topics
    gone = {one for one in topics if one not in seen or seen[one].error == Code.unknown_topic_or_partition}
    return tuple(partition for partition in partitions if partition.topic not in gone)


def read_log_ends(
    cluster: KafkaCluster, partitions: Collection[TopicPartition], kind: OffsetKind = OffsetKind.HIGH_WATERMARK
) -> LogEnds:
    """Returns log ends. KafkaError where the cluster does not answer; one topic's error affects no other."""
    if not partitions:
        # Only check that the cluster answers.
        cluster.metadata([], refresh=True)
        return LogEnds({})
    found, failed = cluster.offsets_of_each(partitions, kind)
    unknown = {partition for partition, error in failed.items() if error.code == Code.unknown_topic_or_partition}
    mute = frozenset(partition.topic for partition in failed.keys() - unknown)
    doubtful = _one_by_one(cluster, [partition for partition in unknown if partition.topic not in mute], kind)
    return LogEnds(found | doubtful.of, doubtful.gone, doubtful.mute | mute)


def _one_by_one(cluster: KafkaCluster, partitions: Iterable[TopicPartition], kind: OffsetKind) -> LogEnds:
    by_topic = grouped((partition.topic, partition) for partition in partitions)
    found: dict[TopicPartition, int] = {}
    gone: set[str] = set()
    mute: set[str] = set()
    until_s = time.monotonic() + TOPIC_BY_TOPIC_TIMEOUT_S
    for topic, ours in by_topic.items():
        if time.monotonic() >= until_s:
            mute.add(topic)
            continue
        try:
            found |= cluster.list_offsets(ours, kind)
        except KafkaError as error:
            (gone if error.code == Code.unknown_topic_or_partition else mute).add(topic)
    return LogEnds(found, frozenset(gone), frozenset(mute))


class ReadThrottle:
    """Limits bytes per second by pauses after reads; 0: no limit. Unused quota is not saved."""

    def __init__(
        self,
        bytes_s: float,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._bytes_s, self._clock, self._sleep = bytes_s, clock, sleep
        self._due_s = clock()

    def taken(self, size: int) -> None:
        """Account for a read, and pause."""
        if not self._bytes_s:
            return
        now_s = self._clock()
        self._due_s = max(self._due_s, now_s - 0.1) + size / self._bytes_s
        if self._due_s > now_s:
            self._sleep(self._due_s - now_s)

    def most(self, wanted: int) -> int:
        """Returns how much to request at once, for short pauses."""
        return wanted if not self._bytes_s else int(min(wanted, max(16 << 10, self._bytes_s / 4)))


NO_PROGRESS_TIMEOUT_S = 45.0
EMPTY_FETCH_TIMEOUT_S = 10.0  # A new leader may show a lower end until its followers have reported.
FETCH_TIMEOUT_S = 30.0
FETCH_MAX_WAIT_MS = 500
READ_COMMITTED = 1
_MOVED = frozenset({Code.fenced_leader_epoch, Code.unknown_leader_epoch, Code.unknown_topic_id})


class FetchedRange(NamedTuple):
    """Offsets up to `end`, from the previous range on: whole batches, perhaps then a partial one.

    `aborted`: producer id and first offset of aborted transactions.
    """

    end: int
    records: memoryview
    aborted: list[tuple[int, int]]


class LogReader:
    """Streams a log up to `end`, below the last stable offset, with one fetch always in flight.

    `position`: the offset after delivered batches. `read_bytes`: bytes received. `skipped_to`: the log start, if the
    first wanted offsets are gone.
    """

    def __init__(
        self,
        kafka: KafkaCluster,
        partition: TopicPartition,
        position: int,
        end: int,
        pace: ReadThrottle | None = None,
        *,
        client_id: str,
    ) -> None:
        self.position = position
        self.read_bytes = 0
        self.skipped_to = -1
        self._kafka, self._partition, self._end = kafka, partition, end
        self._pace, self._client_id = pace or ReadThrottle(0), client_id
        self._place = f"{kafka.name}: {partition}"
        self._connection: Connection | None = None
        self._frame_reader = FrameReader()
        self._asked_at = -1
        self._buffers = [bytearray(1 << 16), bytearray(1 << 16)]
        self._turn = 0
        self._rng = Random()

    def fetches(self) -> Iterator[FetchedRange]:
        """Yields consecutive ranges to `end` or beyond. A range is valid until the next one."""
        progress_s = time.monotonic()
        failures = 0
        while self.position < self._end:
            try:
                fetched = self._fetched()
                if fetched.error == Code.offset_out_of_range:
                    yield self._skip()
                    continue
                if fetched.error:
                    raise kafka_error(fetched.error, self._place, right="Read on the topic")
                behind = max(self.position, end_of_last_batch(fetched.records))
                if behind == self.position and len(fetched.records):
                    raise WireError(f"{self._place}: no batch at offset {self.position} is whole")
                if behind > self.position:
                    progress_s, failures = time.monotonic(), 0
                    self._ask(behind)
            except KafkaError as error:
                failures += 1
                self._lose(error, progress_s, failures)
                continue
            if behind > self.position:
                yield FetchedRange(behind, fetched.records, fetched.aborted)
                self.position = behind
            elif time.monotonic() - progress_s > EMPTY_FETCH_TIMEOUT_S:
                raise KafkaError(
                    f"{self._place}: nothing to read at offset {self.position}, below its end",
                    hint="did an unclean election cut off its end, or was the topic created again?",
                )

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        self._asked_at = -1

    def _skip(self) -> FetchedRange:
        """Continue at the new log start."""
        self.close()
        start = self._kafka.list_offsets([self._partition], OffsetKind.EARLIEST)[self._partition]
        if start <= self.position:
            ended = self._kafka.list_offsets([self._partition], OffsetKind.HIGH_WATERMARK)[self._partition]
            raise KafkaError(
                f"{self._place} ends at {ended}, before offset {self.position}",
                hint="did an unclean election cut off its end, or was the topic created again?",
            )
        self.position = self.skipped_to = start
        return FetchedRange(start, memoryview(b""), [])

    def _lose(self, error: KafkaError, progress_s: float, failures: int) -> None:
        self.close()
        is_final = not is_retriable(error) and error.code not in _MOVED
        if is_final or time.monotonic() - progress_s > NO_PROGRESS_TIMEOUT_S:
            raise error
        time.sleep(delay_s(failures, self._rng))
        self._kafka.partition_of(self._partition, refresh=True)

    def _fetched(self) -> FetchedPartitionById:
        if self._asked_at != self.position:
            self._ask(self.position)
        assert self._connection is not None
        try:
            got = self._connection.finish(FETCH_TIMEOUT_S)
        finally:
            self._asked_at = -1
        self._buffers[self._turn] = self._frame_reader.buffer
        self.read_bytes += len(got.view)
        self._pace.taken(len(got.view))
        answer = parse_fetch_by_id(got.view, got.position)
        if answer.error or not answer.partitions:
            raise kafka_error(answer.error or Code.unknown_topic_id, self._place)
        return answer.partitions[0]

    def _ask(self, position: int) -> None:
        """Send the next fetch, unless at the end."""
        if position >= self._end:
            return
        found = self._kafka.partition_of(self._partition)
        if self._connection is None:
            self._connection = self._kafka.dial(self._kafka.leader_of(self._partition))
            self._frame_reader = self._connection.hand_over(self._client_id).frame_reader
        version = self._connection.handwritten_version(FETCH_KEY)
        topic_id = self._kafka.metadata([self._partition.topic], refresh=False).topics[self._partition.topic].topic_id
        most = self._pace.most(FETCH_BYTES)
        wanted = FetchPartitionById(topic_id, self._partition.partition, position, found.leader_epoch, -1, most)
        body = encode_fetch_by_id(
            max_wait_ms=FETCH_MAX_WAIT_MS, min_bytes=1, max_bytes=most, isolation=READ_COMMITTED, partitions=[wanted]
        )
        # The previous fetch may still be in use.
        self._turn ^= 1
        self._connection.lend(self._buffers[self._turn])
        self._connection.begin(FETCH_KEY, version, [body], timeout_s=FETCH_TIMEOUT_S)
        self._asked_at = position


def end_of_last_batch(records: memoryview) -> int:
    """Returns the offset after the last complete batch, or -1."""
    compiled = compiled_loops()
    if compiled is not None and len(records):
        after, place = compiled.last_of(np.frombuffer(records.toreadonly(), dtype=np.uint8), 0)
        if place == len(records):
            return int(after)
        rest = split_batches(records[place:])
    else:
        after, rest = -1, split_batches(records)
    return rest[-1][1].last_offset + 1 if rest else int(after)
