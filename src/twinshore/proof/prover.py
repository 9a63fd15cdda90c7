"""Proves one range: reads two logs in parallel, and checks each difference twice.

A key check finds keys of a compacted twin that the source has deleted. A compacted log keeps each key's latest record
forever, unless that is a tombstone. So a key without any record on the source was deleted. If the twin's latest record
of the key is a value, the tombstone was cleaned away before replication.
"""

from __future__ import annotations

import contextlib
import heapq
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import InitVar, dataclass, field, replace
from itertools import islice
from typing import Any

from twinshore.config.errors import CodedError, KafkaError, TwinshoreError, WireError
from twinshore.config.frozen import PROOF_CLIENT_ID
from twinshore.config.model import Cluster, TopicPartition
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.leader_queries import OffsetKind
from twinshore.kafka.log_reader import LogReader, ReadThrottle
from twinshore.kafka.protocol.record_batch import Record
from twinshore.proof.core.compare import (
    LOOKAHEAD_RECORDS,
    CompareProgress,
    OneSidedKeys,
    OneSidedRecord,
    compare_by_offset,
    compare_compacted,
    compare_content,
    find_common_start,
    find_missing_tombstones,
    first_difference,
)
from twinshore.proof.core.keys import (
    HASHES_MAX,
    KEYS_MAX,
    HashPass,
    HashSlice,
    KeyFinder,
    KeyHashSet,
    LiveKeys,
    hash_chunk_keys,
)
from twinshore.proof.core.model import (
    CompareMode,
    CompareRange,
    CompareResult,
    DifferenceKind,
    MissingTombstone,
    ProofDifference,
)
from twinshore.proof.core.record_rows import (
    Chunk,
    Chunker,
    MappedAlignment,
    MappedRun,
    OffsetAlignment,
    as_text,
    empty_chunk,
    exclude_ranges,
    record_at,
)

KEYS_REPORTED_MAX = 1_000
# Records fetched before the source's cleaner ran are written within this, as a rule.
SETTLE_S = 2.0
ATTEMPTS_MAX = 3
COMMON_START_RECORDS = 2_000


@dataclass(slots=True)
class LogSide:
    """One side's log. Both sides of a range share its bytes per second. `read_bytes`: what this side has read."""

    kafka: KafkaCluster
    partition: TopicPartition
    pace: ReadThrottle
    read_bytes: int = 0

    def start(self) -> int:
        return self.kafka.list_offsets([self.partition], OffsetKind.EARLIEST)[self.partition]

    def end(self) -> int:
        return self.kafka.list_offsets([self.partition], OffsetKind.LAST_STABLE)[self.partition]

    @contextlib.contextmanager
    def reading(self, at: int, end: int) -> Iterator[LogReader]:
        """A reader whose bytes are counted; it is closed behind the block."""
        reader = LogReader(self.kafka, self.partition, at, end, self.pace, client_id=PROOF_CLIENT_ID)
        try:
            yield reader
        finally:
            self.read_bytes += reader.read_bytes
            reader.close()

    def chunks(self, at: int, end: int) -> Iterator[Chunk]:
        """Yields the log's chunks without records below `at`."""
        with self.reading(at, end) as reader:
            for chunk in named_chunks(reader, self.kafka):
                chunk.skip_below(at)
                yield chunk

    def records(
        self,
        at: int,
        end: int,
        most: int = LOOKAHEAD_RECORDS,
        placement: OffsetAlignment | None = None,
        dropped: Sequence[tuple[int, int]] = (),
    ) -> list[Record]:
        """Returns the first `most` records in [`at`, `end`), without dropped ones; with `placement`, at the source's
        offsets.
        """
        with self.reading(at, end) as reader:
            chunks = exclude_ranges(named_chunks(reader, self.kafka), dropped)
            placed = placement.placed(chunks) if placement else chunks
            return list(islice(_seen(placed, reader, at, end), most))


def sides_of(offset_range: CompareRange, source: KafkaCluster, target: KafkaCluster) -> tuple[LogSide, LogSide]:
    pace = ReadThrottle(offset_range.bytes_s)
    return LogSide(source, offset_range.partition, pace), LogSide(target, offset_range.twin_named, pace)


def _seen(chunks: Iterator[Chunk], reader: LogReader, at: int, end: int) -> Iterator[Record]:
    """Yields what consumers see. A broker returns whole the batch in which a log starts."""
    for chunk in chunks:
        data, rows = chunk.opened()
        for row in rows:
            record = record_at(data, row)
            if max(at, reader.skipped_to) <= record.offset < end:
                yield record._replace(offset=record.offset + chunk.shift)


def chunks_of(reader: LogReader) -> Iterator[Chunk]:
    """Yields all chunks without a gap. Each is valid until the next."""
    chunker = Chunker()
    for fetched in reader.fetches():
        if len(fetched.records):
            yield from chunker.chunks(fetched.records, fetched.aborted)
        else:
            yield empty_chunk(fetched.end)


def named_chunks(reader: LogReader, kafka: KafkaCluster) -> Iterator[Chunk]:
    """Yields the reader's chunks; errors of corrupt batches name the cluster."""
    chunks = chunks_of(reader)
    while True:
        try:
            chunk = next(chunks, None)
        except WireError as error:
            raise error.within(kafka.name) from error
        if chunk is None:
            return
        yield chunk


def compare_keys(offset_range: CompareRange, source: KafkaCluster, target: KafkaCluster) -> CompareResult:
    """Checks one partition for missing tombstones. Returns operational errors as `trouble`."""
    comparison = KeyComparison(offset_range, source, target)
    try:
        return comparison.run()
    except TwinshoreError as error:
        read_bytes = comparison.read_bytes
        return CompareResult(offset_range.number, 0, 0, bytes=read_bytes, trouble=error.message, hint=error.hint)


def find_written_keys(chunks: Iterable[Chunk], keys: Iterable[bytes]) -> set[bytes]:
    """Returns keys with a record in these chunks. Stops once all are found."""
    absent, found = dict.fromkeys(keys, 0), set[bytes]()
    if absent:
        finder = KeyFinder(absent)
        for chunk in chunks:
            found.update(key for key, _, _ in finder.find_in(chunk))
            if len(found) == len(absent):
                break
    return found


@dataclass(slots=True)
class KeyComparison:
    """A key check of one partition, both logs read whole. The caller closes the clusters."""

    offset_range: CompareRange
    source: InitVar[KafkaCluster]
    target: InitVar[KafkaCluster]
    settle_s: float = SETTLE_S
    hashes_max: int = HASHES_MAX
    keys_max: int = KEYS_MAX
    count: int = 0
    span: tuple[int, int] = (-1, -1)
    end: int = 0
    _sides: tuple[LogSide, LogSide] = field(init=False)
    _first: list[tuple[int, bytes]] = field(default_factory=list, init=False)

    def __post_init__(self, source: KafkaCluster, target: KafkaCluster) -> None:
        self._sides = sides_of(self.offset_range, source, target)

    @property
    def read_bytes(self) -> int:
        return sum(side.read_bytes for side in self._sides)

    def run(self) -> CompareResult:
        """Checks all slices of keys, one pass over both logs each."""
        todo = [HashSlice()]
        while todo:
            work = HashPass(todo.pop())
            self._slice(work)
            todo += work.left
        # A heap of the lowest offsets is one of the highest negative ones.
        keys = tuple(MissingTombstone(-at, as_text(key) or "") for at, key in sorted(self._first, reverse=True))
        found = CompareResult(self.offset_range.number, 0, self.end, bytes=self.read_bytes, owed_keys=keys)
        return replace(found, owed=self.count, owed_from=self.span[0], owed_to=self.span[1])

    def _slice(self, work: HashPass) -> None:
        source, target = self._sides
        self.end = source.end()
        known = KeyHashSet(work, self.hashes_max)
        for chunk in source.chunks(source.start(), self.end):
            known.add(hash_chunk_keys(chunk)[0])
        alive = LiveKeys(work, self.keys_max)
        upto = min(self.end, target.end())
        for chunk in target.chunks(target.start(), upto):
            alive.take(chunk, known)
        for key, at in self._still(alive.at).items():
            self._count(key, at)

    def _still(self, keys: dict[bytes, int]) -> dict[bytes, int]:
        """Returns keys that still lack a tombstone at a second read.

        During a read the cleaner moves latest records, and a tombstone may be in flight: only a real loss shows twice.
        """
        if not keys:
            return {}
        time.sleep(self.settle_s)
        source, target = self._sides
        end = source.end()
        written = find_written_keys(source.chunks(source.start(), end), keys)
        absent = {key: at for key, at in keys.items() if key not in written}
        alive: dict[bytes, int] = {}
        finder = KeyFinder(absent)
        first, last = min(absent.values(), default=0), target.end()
        for chunk in target.chunks(max(first, target.start()), last if absent else 0):
            for key, at, tombstone in finder.find_in(chunk):
                if tombstone:
                    alive.pop(key, None)
                else:
                    alive[key] = at
        # The twin is about to lose records below the source's start; behind `end` the source wrote the key again.
        begins = source.start()
        return {key: at for key, at in alive.items() if begins <= at < end}

    def _count(self, key: bytes, at: int) -> None:
        self.count += 1
        low, high = self.span
        self.span = (at if low < 0 else min(low, at), max(high, at + 1))
        (heapq.heappush if len(self._first) < KEYS_REPORTED_MAX else heapq.heappushpop)(self._first, (-at, key))


def prove_all(stretches: Iterable[CompareRange]) -> Iterator[CompareResult]:
    """Yields each range's result, sharing connections. Returns operational errors as `trouble`."""
    met: dict[tuple[Cluster, str], KafkaCluster] = {}
    try:
        for offset_range in stretches:
            ends = tuple(zip((offset_range.source, offset_range.target), offset_range.cluster_ids, strict=True))
            for cluster, cluster_id in ends:
                if (cluster, cluster_id) not in met:
                    met[cluster, cluster_id] = KafkaCluster(cluster, cluster_id=cluster_id)
            source, target = (met[end] for end in ends)
            yield _prove(offset_range, source, target)
    finally:
        for kafka in met.values():
            kafka.close()


def _prove(offset_range: CompareRange, source: KafkaCluster, target: KafkaCluster) -> CompareResult:
    began_s, began_cpu_s = time.monotonic(), time.thread_time()
    prover = Prover(offset_range, source, target)
    try:
        _check_topics(offset_range, source, target)
        found = compare_keys(offset_range, source, target) if offset_range.keys else _looked_twice(prover)
        if found.difference is not None or found.owed:
            _check_topics(offset_range, source, target)
    except TwinshoreError as error:
        found = prover.account(trouble=error.message, hint=error.hint)
    return replace(found, seconds=time.monotonic() - began_s, cpu_s=time.thread_time() - began_cpu_s)


def _check_topics(offset_range: CompareRange, source: KafkaCluster, target: KafkaCluster) -> None:
    """Raises KafkaError where a topic was created again since the scan."""
    sides = (source, offset_range.partition.topic), (target, offset_range.twin)
    for (kafka, name), wanted in zip(sides, offset_range.topic_ids, strict=True):
        topic = kafka.metadata([name]).topics.get(name) if wanted else None
        if topic is not None and not topic.error and topic.topic_id.hex() != wanted:
            again = f"topic {name} on {kafka.name} was deleted and created again during the proof"
            raise KafkaError(again, hint="prove again")


def _looked_twice(prover: Prover) -> CompareResult:
    """Reads again after a corrupt batch, which may be a transient fault."""
    try:
        return prover.run()
    except WireError as error:
        if error.hint:
            raise
    try:
        return prover.run()
    except WireError as error:
        at = prover.progress.at
        return prover.account(ProofDifference(DifferenceKind.CORRUPT, at, error.message, None, None))


class Prover:
    """Compares one range. The caller closes the clusters."""

    def __init__(self, offset_range: CompareRange, source: KafkaCluster, target: KafkaCluster) -> None:
        self.offset_range = offset_range
        self.source, self.target = sides_of(offset_range, source, target)
        self.start = 0
        self.progress = CompareProgress(0)

    def run(self) -> CompareResult:
        offset_range = self.offset_range
        self._begin(min(offset_range.end, max(offset_range.start, self.source.start())))
        if offset_range.mode is CompareMode.CONTENT:
            return self._by_content()
        if offset_range.mode is CompareMode.COMPACTED:
            return self._compacted()
        return self._placed()

    def account(self, difference: ProofDifference | None = None, **more: Any) -> CompareResult:
        """The result so far. `more`: further fields of it."""
        progress = self.progress
        return CompareResult(
            self.offset_range.number,
            self.start,
            progress.at,
            progress.target_at,
            progress.records,
            self.source.read_bytes + self.target.read_bytes,
            progress.sums.value if self.offset_range.digest else 0,
            difference=difference,
            **more,
        )

    def _begin(self, start: int) -> None:
        self.start = start
        self.progress = CompareProgress(start, self.offset_range.target_start)

    @contextlib.contextmanager
    def _reading(self, at: int, end: int, target_at: int, target_end: int) -> Iterator[tuple[LogReader, LogReader]]:
        with self.source.reading(at, end) as source, self.target.reading(target_at, target_end) as target:
            yield source, target

    def _chunks(self, source: LogReader, target: LogReader) -> tuple[Iterator[Chunk], Iterator[Chunk]]:
        return named_chunks(source, self.source.kafka), named_chunks(target, self.target.kafka)

    # Where offsets count

    def _placed(self) -> CompareResult:
        offset_range, placement = self.offset_range, self._placement()
        for _ in range(ATTEMPTS_MAX):
            at = self.progress.at
            with self._reading(at, offset_range.end, placement.target_of(at), self._bound()) as (source, target):
                chunks, twin_chunks = self._chunks(source, target)
                chunks, twin_chunks = exclude_ranges(chunks, offset_range.dropped), placement.placed(twin_chunks)
                digest = offset_range.digest
                same = compare_by_offset(chunks, twin_chunks, self.progress, offset_range.end, digest=digest)
                skipped_to = max(source.skipped_to, placement.source_from(target.skipped_to))
            if skipped_to > self.start:
                self._begin(min(skipped_to, offset_range.end))  # Retention has removed records.
                continue
            found = None
            if not same or offset_range.target_end > offset_range.end:
                found = self._look_again(placement, beyond=same)
            if found is not None or same:
                return self.account(found)
        return self._unstable()

    def _unstable(self) -> CompareResult:
        trouble = f"the records at offset {self.progress.at} are others at each look"
        return self.account(trouble=trouble, hint="try again")

    def _bound(self) -> int:
        """The target offset to read up to."""
        offset_range = self.offset_range
        if offset_range.mode is CompareMode.EXACT:
            return offset_range.end
        return max((target + length for _, target, length in offset_range.offset_runs), default=0)

    def _placement(self) -> OffsetAlignment:
        if self.offset_range.mode is CompareMode.EXACT:
            return OffsetAlignment()
        return MappedAlignment([MappedRun(*run) for run in self.offset_range.offset_runs], self.offset_range.end)

    def _look_again(self, placement: OffsetAlignment, *, beyond: bool) -> ProofDifference | None:
        """Reads both sides again at the difference. None: the source's cleaner or retention caused it."""
        offset_range, at = self.offset_range, self.progress.at
        end = offset_range.target_end if beyond else offset_range.end
        records = self.source.records(at, offset_range.end, dropped=offset_range.dropped)
        bound = end if offset_range.mode is CompareMode.EXACT else self._bound()
        twin_records = self.target.records(placement.target_of(at), bound, placement=placement)
        twin_records = [record for record in twin_records if record.offset >= at]
        target_start = self.target.start()
        kept_from = max(self.source.start(), placement.source_from(target_start))
        if kept_from > at:
            self._begin(min(kept_from, offset_range.end))
            return None
        # Of two full windows the shorter one tells how far both are known.
        full = [side[-1].offset + 1 for side in (records, twin_records) if len(side) == LOOKAHEAD_RECORDS]
        return self._ranged(first_difference(records, twin_records, end=min([end, *full])))

    def _ranged(self, found: ProofDifference | None) -> ProofDifference | None:
        """Names all records at once that a twin lacks below its log start."""
        is_exact = self.offset_range.mode is CompareMode.EXACT
        if found is None or found.kind is not DifferenceKind.MISSING or not is_exact:
            return found
        begins = self.target.start()
        if begins <= found.offset:
            return found
        lacks = f"the target's log begins at offset {begins}: it lacks offsets {found.offset} to {begins - 1}"
        return replace(found, sentence=lacks)

    # Where only order counts

    def _by_content(self) -> CompareResult:
        offset_range = self.offset_range
        last = offset_range.target_end >= 0
        ends = offset_range.end, offset_range.target_end if last else self.target.end()
        if self.start > offset_range.start:
            self.progress.target_at = -1  # After the source's retention the target's start is unknown.
            if self.start >= offset_range.end:
                return self.account()
        for _ in range(ATTEMPTS_MAX):
            if self.progress.target_at < 0 and not self._find_beginning(ends[1]):
                return self.account()
            with self._reading(self.progress.at, ends[0], self.progress.target_at, ends[1]) as (source, target):
                same = compare_content(*self._chunks(source, target), self.progress, ends, last=last)
                skipped_to, target_skipped_to = source.skipped_to, target.skipped_to
            if max(skipped_to, target_skipped_to) < 0:
                return self.account() if same else self._parted(ends[1])
            self._begin(min(max(self.start, skipped_to), ends[0]))  # Retention on either side has removed records.
            self.progress.target_at = -1
            if self.start >= offset_range.end:
                return self.account()
        return self.account(trouble="retention takes records faster than they are read", hint="try again")

    def _parted(self, target_end: int) -> CompareResult:
        """Reads both sides again at the difference."""
        at = self.progress.at
        records = self.source.records(at, self.offset_range.end)
        twin_records = self.target.records(self.progress.target_at, target_end)
        found = first_difference(records, twin_records, placed=False)
        return self.account(replace(found, offset=at)) if found else self._unstable()

    def _find_beginning(self, target_end: int) -> bool:
        """Sets both starts; False while the target is empty."""
        end = self.offset_range.end
        records = self.source.records(self.start, end, COMMON_START_RECORDS)
        twin_records = self.target.records(self.target.start(), target_end, COMMON_START_RECORDS)
        if not twin_records:
            if not records:  # Neither side has visible records.
                self.progress.at = end
            return False
        found = find_common_start(records, twin_records)
        if found is None:
            partition = str(self.offset_range.partition)
            raise CodedError("proof.no-common-start", partition=partition, records=COMMON_START_RECORDS)
        self._begin(records[found[0]].offset)
        self.progress.target_at = twin_records[found[1]].offset
        return True

    # Compacted topics

    def _compacted(self) -> CompareResult:
        before: ProofDifference | None = None
        for _ in range(ATTEMPTS_MAX):
            self._begin(self.start)
            latest = OneSidedKeys()
            same = self._compare_compacted(self.offset_range.end, latest)
            owed = self._settle(latest)
            lacking = self._lacking(latest)
            if lacking:
                found = self._alone(lacking[0])
            elif same:
                found = self._beyond()
            else:
                found = self._both_at(self.progress.at)
            if found is None and same and not lacking:
                return self.account(owed=owed)
            if found is not None and before is not None and before.offset == found.offset:
                self._recount(min([self.progress.at, *(lone.offset for lone in lacking)]))
                return self.account(found, owed=owed)
            before = found
        return self.account(trouble="both sides are being cleaned: no two looks agree", hint="try again later")

    def _compare_compacted(self, end: int, latest: OneSidedKeys) -> bool:
        with self._reading(self.start, end, self.start, end) as (source, target):
            return compare_compacted(*self._chunks(source, target), self.progress, end, latest)

    def _recount(self, to: int) -> None:
        """Compares again up to a difference, to leave out counts beyond."""
        if to < self.progress.at:
            self._begin(self.start)
            self._compare_compacted(to, OneSidedKeys())

    def _settle(self, latest: OneSidedKeys) -> int:
        """Drops keys that one side rightly lacks, at any rate of writes.

        These are keys written again further on, since a cleaner removes no record before a later one of its key exists:
        below the twin's end for the twin's cleaner, anywhere for the source's. Records of the target were on the source
        before. Keys below the source's log start are dropped too: both sides are about to lose them.

        Returns the number of keys that the source has deleted and the twin still shows. No later record settles these,
        so a key check reports them.
        """
        at, end = self.progress.at, self.source.end()
        for on_source, known_to in ((True, min(end, self.target.end())), (False, end)):
            keys = {key for key, lone in latest.values().items() if lone.on_source is on_source}
            latest.superseded(self._written(at, known_to, keys))
        start = self.source.start()
        latest.superseded([key for key, lone in latest.lone.items() if lone.offset < start])
        only_on_target = {key for key, lone in latest.values().items() if not lone.on_source}
        owed = only_on_target - self._written(start, at, only_on_target)
        latest.superseded(owed)
        return len(owed)

    def _written(self, start: int, end: int, keys: Collection[bytes]) -> set[bytes]:
        """Returns keys with a record on the source in this range."""
        return find_written_keys(self.source.chunks(start, max(start, end)), keys)

    def _lacking(self, latest: OneSidedKeys) -> list[OneSidedRecord]:
        """Returns latest records that one side lacks for good, by offset. No cleaner removes a tombstone before the
        value that it deletes: a tombstone is missing where the other side still shows the value.
        """
        alive = self._alive(latest, on_source=True) + self._alive(latest, on_source=False)
        return sorted(latest.open() + alive)

    def _alone(self, lone: OneSidedRecord) -> ProofDifference | None:
        records = (self.source if lone.on_source else self.target).records(lone.offset, lone.offset + 1, 1)
        return first_difference(records, []) if lone.on_source else first_difference([], records)

    def _beyond(self) -> ProofDifference | None:
        """Returns records of the target beyond the source's end, if asked for."""
        end, target_end = self.offset_range.end, self.offset_range.target_end
        return first_difference([], self.target.records(end, target_end, 1)) if target_end > end else None

    def _alive(self, latest: OneSidedKeys, *, on_source: bool) -> list[OneSidedRecord]:
        """Returns tombstones of this side whose keys the other side still shows. Reads that from its start: the value
        may precede the range, and all keys would not fit into memory.
        """
        deletes = latest.deletes(on_source=on_source)
        if not deletes:
            return []
        other = self.target if on_source else self.source
        with other.reading(other.start(), max(found.offset for found in deletes.values())) as reader:
            return find_missing_tombstones(named_chunks(reader, other.kafka), deletes)

    def _both_at(self, at: int) -> ProofDifference | None:
        records, twin_records = self.source.records(at, at + 1, 1), self.target.records(at, at + 1, 1)
        return first_difference(records, twin_records) if records and twin_records else None
