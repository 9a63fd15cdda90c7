"""Proves one range: reads two logs in parallel, and checks each difference twice.

A key check finds keys of a compacted twin that the source has deleted. A compacted log keeps each key's latest record
forever, unless that is a tombstone. So a key without any record on the source was deleted. If the twin's latest record
of the key is a value, the tombstone was cleaned away before replication.
"""

from __future__ import annotations

import contextlib
import heapq
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

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
class BothSides:
    """Reads both logs within the range's bytes per second. `read_bytes`: the sum."""

    offset_range: CompareRange
    source: KafkaCluster
    target: KafkaCluster
    read_bytes: int = 0
    _pace: ReadThrottle = field(init=False)

    def __post_init__(self) -> None:
        self._pace = ReadThrottle(self.offset_range.bytes_s)

    def beside(
        self, at: int, target_at: int, end: int, target_end: int, compare: Callable[[LogReader, LogReader], bool]
    ) -> bool:
        """Returns the result of `compare` from these offsets on."""
        with (
            self.reading(self.source, self.offset_range.partition, at, end) as ours,
            self.reading(self.target, self.offset_range.twin_named, target_at, target_end) as theirs,
        ):
            return compare(ours, theirs)

    def records(
        self,
        kafka: KafkaCluster,
        partition: TopicPartition,
        at: int,
        end: int,
        most: int,
        placement: OffsetAlignment | None = None,
        dropped: Sequence[tuple[int, int]] = (),
    ) -> list[Record]:
        """Returns the first `most` records in [`at`, `end`), without dropped ones; with `placement`, at the source's
        offsets.
        """
        with self.reading(kafka, partition, at, end) as reader:
            chunks = exclude_ranges(named_chunks(reader, kafka), dropped)
            placed = placement.placed(chunks) if placement else chunks
            return list(islice(_seen(placed, reader, at, end), most))

    @contextlib.contextmanager
    def reading(self, kafka: KafkaCluster, partition: TopicPartition, at: int, end: int) -> Iterator[LogReader]:
        """A reader whose bytes are counted; it is closed behind the block."""
        reader = LogReader(kafka, partition, at, end, self._pace, client_id=PROOF_CLIENT_ID)
        try:
            yield reader
        finally:
            self.read_bytes += reader.read_bytes
            reader.close()


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
        return CompareResult(
            offset_range.number, 0, 0, bytes=comparison.read_bytes, trouble=error.message, hint=error.hint
        )


def find_written_keys(reader: LogReader, keys: Iterable[bytes]) -> set[bytes]:
    """Returns keys with a record in the log. Stops once all are found."""
    absent, found = dict.fromkeys(keys, 0), set[bytes]()
    suspects = KeyFinder(absent)
    if absent:
        for chunk in read_chunks(reader):
            found.update(key for key, _, _ in suspects.find_in(chunk))
            if len(found) == len(absent):
                break
    return found


def read_chunks(reader: LogReader) -> Iterator[Chunk]:
    """Yields chunks without records below the reader's start, then closes the reader."""
    start = reader.position
    try:
        for chunk in chunks_of(reader):
            chunk.skip_below(start)
            yield chunk
    finally:
        reader.close()


@dataclass(slots=True)
class KeyComparison:
    """A key check of one partition, both logs read whole. The caller closes the clusters."""

    offset_range: CompareRange
    source: KafkaCluster
    target: KafkaCluster
    settle_s: float = SETTLE_S
    hashes_max: int = HASHES_MAX
    keys_max: int = KEYS_MAX
    read_bytes: int = 0
    count: int = 0
    span: tuple[int, int] = (-1, -1)
    end: int = 0
    _first: list[tuple[int, bytes]] = field(default_factory=list, init=False)
    _pace: ReadThrottle = field(default_factory=lambda: ReadThrottle(0), init=False)

    def run(self) -> CompareResult:
        """Checks all slices of keys, one pass over both logs each."""
        self._pace = ReadThrottle(self.offset_range.bytes_s)
        todo = [HashSlice()]
        while todo:
            work = HashPass(todo.pop())
            self._slice(work)
            todo += work.left
        # A heap of the lowest offsets is one of the highest negative ones.
        keys = tuple(MissingTombstone(-at, as_text(key) or "") for at, key in sorted(self._first, reverse=True))
        return CompareResult(
            self.offset_range.number,
            0,
            self.end,
            bytes=self.read_bytes,
            owed=self.count,
            owed_from=self.span[0],
            owed_to=self.span[1],
            owed_keys=keys,
        )

    def _slice(self, work: HashPass) -> None:
        partition, twin = self.offset_range.partition, self.offset_range.twin_named
        self.end = _end(self.source, partition)
        known = KeyHashSet(work, self.hashes_max)
        for chunk in self._chunks(self.source, partition, _start(self.source, partition), self.end):
            known.add(hash_chunk_keys(chunk)[0])
        alive = LiveKeys(work, self.keys_max)
        upto = min(self.end, _end(self.target, twin))
        for chunk in self._chunks(self.target, twin, _start(self.target, twin), upto):
            alive.take(chunk, known)
        for key, at in self._still(alive.at).items():
            self._tell(key, at)

    def _still(self, keys: dict[bytes, int]) -> dict[bytes, int]:
        """Returns keys that still lack a tombstone at a second read.

        During a read the cleaner moves latest records, and a tombstone may be in flight: only a real loss shows twice.
        """
        if not keys:
            return {}
        time.sleep(self.settle_s)
        partition, twin = self.offset_range.partition, self.offset_range.twin_named
        end = _end(self.source, partition)
        suspects = KeyFinder(keys)
        absent = dict(keys)
        for chunk in self._chunks(self.source, partition, _start(self.source, partition), end):
            for key, _, _ in suspects.find_in(chunk):
                absent.pop(key, None)
        alive: dict[bytes, int] = {}
        suspects = KeyFinder(absent)
        first, last = min(absent.values(), default=0), _end(self.target, twin)
        for chunk in self._chunks(self.target, twin, max(first, _start(self.target, twin)), last if absent else 0):
            for key, at, tombstone in suspects.find_in(chunk):
                if tombstone:
                    alive.pop(key, None)
                else:
                    alive[key] = at
        # The twin is about to lose records below the source's start; behind `end` the source wrote the key again.
        begins = _start(self.source, partition)
        return {key: at for key, at in alive.items() if begins <= at < end}

    def _tell(self, key: bytes, at: int) -> None:
        self.count += 1
        low, high = self.span
        self.span = (at if low < 0 else min(low, at), max(high, at + 1))
        (heapq.heappush if len(self._first) < KEYS_REPORTED_MAX else heapq.heappushpop)(self._first, (-at, key))

    def _chunks(self, kafka: KafkaCluster, partition: TopicPartition, start: int, end: int) -> Iterator[Chunk]:
        reader = LogReader(kafka, partition, start, end, self._pace, client_id=PROOF_CLIENT_ID)
        try:
            yield from read_chunks(reader)
        finally:
            self.read_bytes += reader.read_bytes


def _start(kafka: KafkaCluster, partition: TopicPartition) -> int:
    return kafka.list_offsets([partition], OffsetKind.EARLIEST)[partition]


def _end(kafka: KafkaCluster, partition: TopicPartition) -> int:
    return kafka.list_offsets([partition], OffsetKind.LAST_STABLE)[partition]


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
        found = prover.trouble(error)
    return replace(found, seconds=time.monotonic() - began_s, cpu_s=time.thread_time() - began_cpu_s)


def _check_topics(offset_range: CompareRange, source: KafkaCluster, target: KafkaCluster) -> None:
    """Raises KafkaError where a topic was created again since the scan."""
    sides = (source, offset_range.partition.topic), (target, offset_range.twin)
    for (kafka, name), wanted in zip(sides, offset_range.topic_ids, strict=True):
        topic = kafka.metadata([name]).topics.get(name) if wanted else None
        if topic is not None and not topic.error and topic.topic_id.hex() != wanted:
            raise KafkaError(f"topic {name} on {kafka.name} was deleted and made again meanwhile", hint="prove again")


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
        return prover.account(difference=prover.corrupt(error))


@dataclass(slots=True)
class Prover:
    """Compares one range. The caller closes the clusters."""

    offset_range: CompareRange
    source: KafkaCluster
    target: KafkaCluster
    start: int = 0
    progress: CompareProgress = field(default_factory=lambda: CompareProgress(0))
    sides: BothSides = field(init=False)

    def __post_init__(self) -> None:
        self.sides = BothSides(self.offset_range, self.source, self.target)

    def run(self) -> CompareResult:
        offset_range = self.offset_range
        earliest = self.source.list_offsets([offset_range.partition], OffsetKind.EARLIEST)[offset_range.partition]
        self._begin(min(offset_range.end, max(offset_range.start, earliest)))
        if offset_range.mode is CompareMode.CONTENT:
            return self._by_content()
        if offset_range.mode is CompareMode.COMPACTED:
            return self._compacted()
        return self._placed()

    def account(
        self,
        *,
        difference: ProofDifference | None = None,
        trouble: str = "",
        hint: str = "",
        owed: int = 0,
    ) -> CompareResult:
        progress = self.progress
        return CompareResult(
            self.offset_range.number,
            self.start,
            progress.at,
            progress.target_at,
            progress.records,
            self.sides.read_bytes,
            progress.equal_batches,
            progress.sums.value if self.offset_range.digest else 0,
            difference=difference,
            trouble=trouble,
            hint=hint,
            owed=owed,
        )

    def trouble(self, error: TwinshoreError) -> CompareResult:
        return self.account(trouble=error.message, hint=error.hint)

    def corrupt(self, error: WireError) -> ProofDifference:
        return ProofDifference(DifferenceKind.CORRUPT, self.progress.at, error.message, None, None)

    def _begin(self, start: int) -> None:
        self.start = start
        self.progress = CompareProgress(start, self.offset_range.target_start)

    # Where offsets count

    def _placed(self) -> CompareResult:
        offset_range, placement = self.offset_range, self._placement()
        for _ in range(ATTEMPTS_MAX):
            skipped: list[int] = []

            def compare(ours: LogReader, theirs: LogReader, skipped: list[int] = skipped) -> bool:
                chunks = exclude_ranges(named_chunks(ours, self.source), offset_range.dropped)
                peers = placement.placed(named_chunks(theirs, self.target))
                same = compare_by_offset(chunks, peers, self.progress, offset_range.end, digest=offset_range.digest)
                skipped.append(max(ours.skipped_to, placement.source_from(theirs.skipped_to)))
                return same

            at, target_at = self.progress.at, placement.target_of(self.progress.at)
            same = self.sides.beside(at, target_at, offset_range.end, self._bound(), compare)
            if skipped[0] > self.start:
                self._begin(min(skipped[0], offset_range.end))  # Retention has removed records.
                continue
            found = None
            if not same or offset_range.target_end > offset_range.end:
                found = self._look_again(placement, beyond=same)
            if found is not None:
                return self.account(difference=found)
            if same:
                return self.account()
        return self.account(
            trouble=f"the records at offset {self.progress.at} are others at each look", hint="try again"
        )

    def _bound(self) -> int:
        """The target offset to read up to."""
        offset_range = self.offset_range
        if offset_range.mode is CompareMode.EXACT:
            return offset_range.end
        return max((target + length for _, target, length in offset_range.offset_runs), default=0)

    def _placement(self) -> OffsetAlignment:
        if self.offset_range.mode is CompareMode.EXACT:
            return OffsetAlignment()
        return MappedAlignment(
            [MappedRun(*offset_run) for offset_run in self.offset_range.offset_runs], self.offset_range.end
        )

    def _look_again(self, placement: OffsetAlignment, *, beyond: bool) -> ProofDifference | None:
        """Reads both sides again at the difference. None: the source's cleaner or retention caused it."""
        offset_range, at = self.offset_range, self.progress.at
        end = offset_range.target_end if beyond else offset_range.end
        ours = self.sides.records(
            self.source, offset_range.partition, at, offset_range.end, LOOKAHEAD_RECORDS, dropped=offset_range.dropped
        )
        bound = end if offset_range.mode is CompareMode.EXACT else self._bound()
        theirs = self.sides.records(
            self.target, offset_range.twin_named, placement.target_of(at), bound, LOOKAHEAD_RECORDS, placement
        )
        theirs = [record for record in theirs if record.offset >= at]
        starts = self.target.list_offsets([offset_range.twin_named], OffsetKind.EARLIEST)
        earliest = self.source.list_offsets([offset_range.partition], OffsetKind.EARLIEST)[offset_range.partition]
        kept_from = max(earliest, placement.source_from(starts[offset_range.twin_named]))
        if kept_from > at:
            self._begin(min(kept_from, offset_range.end))
            return None
        # Of two full windows the shorter one tells how far both are known.
        full = [side[-1].offset + 1 for side in (ours, theirs) if len(side) == LOOKAHEAD_RECORDS]
        return self._ranged(first_difference(ours, theirs, end=min([end, *full])))

    def _ranged(self, found: ProofDifference | None) -> ProofDifference | None:
        """Names all records at once that a twin lacks below its log start."""
        offset_range = self.offset_range
        if found is None or found.kind is not DifferenceKind.MISSING or offset_range.mode is not CompareMode.EXACT:
            return found
        begins = self.target.list_offsets([offset_range.twin_named], OffsetKind.EARLIEST)[offset_range.twin_named]
        if begins <= found.offset:
            return found
        lacks = f"the target's log begins at offset {begins}: it lacks offsets {found.offset} to {begins - 1}"
        return replace(found, sentence=lacks)

    # Where only order counts

    def _by_content(self) -> CompareResult:
        offset_range = self.offset_range
        last = offset_range.target_end >= 0
        target_end = offset_range.target_end
        if not last:
            target_end = self.target.list_offsets([offset_range.twin_named], OffsetKind.LAST_STABLE)[
                offset_range.twin_named
            ]
        if self.start > offset_range.start:
            self.progress.target_at = -1  # After the source's retention the target's start is unknown.
            if self.start >= offset_range.end:
                return self.account()
        for _ in range(ATTEMPTS_MAX):
            if self.progress.target_at < 0 and not self._find_beginning(target_end):
                return self.account()
            skipped: list[int] = []

            def compare(ours: LogReader, theirs: LogReader, skipped: list[int] = skipped) -> bool:
                chunks, peers = named_chunks(ours, self.source), named_chunks(theirs, self.target)
                same = compare_content(chunks, peers, self.progress, (offset_range.end, target_end), last=last)
                skipped += [ours.skipped_to, theirs.skipped_to]
                return same

            same = self.sides.beside(self.progress.at, self.progress.target_at, offset_range.end, target_end, compare)
            if max(skipped) < 0:
                return self.account() if same else self._parted(target_end)
            self._begin(
                min(max(self.start, skipped[0]), offset_range.end)
            )  # Retention on either side has removed records.
            self.progress.target_at = -1
            if self.start >= offset_range.end:
                return self.account()
        return self.account(trouble="retention takes records faster than they are read", hint="try again")

    def _parted(self, target_end: int) -> CompareResult:
        """Reads both sides again at the difference."""
        offset_range = self.offset_range
        at, target_at = self.progress.at, self.progress.target_at
        ours = self.sides.records(self.source, offset_range.partition, at, offset_range.end, LOOKAHEAD_RECORDS)
        theirs = self.sides.records(self.target, offset_range.twin_named, target_at, target_end, LOOKAHEAD_RECORDS)
        found = first_difference(ours, theirs, placed=False)
        if found is None:
            return self.account(trouble=f"the records at offset {at} are others at each look", hint="try again")
        return self.account(difference=replace(found, offset=at))

    def _find_beginning(self, target_end: int) -> bool:
        """Sets both starts; False while the target is empty."""
        offset_range = self.offset_range
        ours = self.sides.records(
            self.source, offset_range.partition, self.start, offset_range.end, COMMON_START_RECORDS
        )
        twin = offset_range.twin_named
        first = self.target.list_offsets([twin], OffsetKind.EARLIEST)[twin]
        theirs = self.sides.records(self.target, twin, first, target_end, COMMON_START_RECORDS)
        if not theirs:
            if not ours:  # Neither side has visible records.
                self.progress.at = offset_range.end
            return False
        found = find_common_start(ours, theirs)
        if found is None:
            raise CodedError(
                "proof.no-common-start", partition=str(offset_range.partition), records=COMMON_START_RECORDS
            )
        self._begin(ours[found[0]].offset)
        self.progress.target_at = theirs[found[1]].offset
        return True

    # Compacted topics

    def _compacted(self) -> CompareResult:
        offset_range = self.offset_range
        before: ProofDifference | None = None
        for _ in range(ATTEMPTS_MAX):
            self._begin(self.start)
            latest = OneSidedKeys()
            same = self._compare_compacted(offset_range.end, latest)
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
                return self.account(difference=found, owed=owed)
            before = found
        return self.account(trouble="both sides are being cleaned: no two looks agree", hint="try again later")

    def _compare_compacted(self, end: int, latest: OneSidedKeys) -> bool:
        def compare(ours: LogReader, theirs: LogReader) -> bool:
            chunks, peers = named_chunks(ours, self.source), named_chunks(theirs, self.target)
            return compare_compacted(chunks, peers, self.progress, end, latest)

        return self.sides.beside(self.start, self.start, end, end, compare)

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
        partition, twin, at = self.offset_range.partition, self.offset_range.twin_named, self.progress.at
        end = self.source.list_offsets([partition], OffsetKind.LAST_STABLE)[partition]
        twin_end = self.target.list_offsets([twin], OffsetKind.LAST_STABLE)[twin]
        for on_source, known_to in ((True, min(end, twin_end)), (False, end)):
            keys = {key for key, lone in latest.values().items() if lone.on_source is on_source}
            latest.superseded(self._written(at, known_to, keys))
        start = self.source.list_offsets([partition], OffsetKind.EARLIEST)[partition]
        latest.superseded([key for key, lone in latest.lone.items() if lone.offset < start])
        only_on_target = {key for key, lone in latest.values().items() if not lone.on_source}
        owed = only_on_target - self._written(start, at, only_on_target)
        latest.superseded(owed)
        return len(owed)

    def _written(self, start: int, end: int, keys: Collection[bytes]) -> set[bytes]:
        """Returns keys with a record on the source in this range."""
        with self.sides.reading(self.source, self.offset_range.partition, start, max(start, end)) as reader:
            return find_written_keys(reader, keys)

    def _lacking(self, latest: OneSidedKeys) -> list[OneSidedRecord]:
        """Returns latest records that one side lacks for good, by offset. No cleaner removes a tombstone before the
        value that it deletes: a tombstone is missing where the other side still shows the value.
        """
        alive = self._alive(latest, on_source=True) + self._alive(latest, on_source=False)
        return sorted(latest.open() + alive)

    def _alone(self, lone: OneSidedRecord) -> ProofDifference | None:
        at, offset_range = lone.offset, self.offset_range
        if lone.on_source:
            return first_difference(self.sides.records(self.source, offset_range.partition, at, at + 1, 1), [])
        return first_difference([], self.sides.records(self.target, offset_range.twin_named, at, at + 1, 1))

    def _beyond(self) -> ProofDifference | None:
        """Returns records of the target beyond the source's end, if asked for."""
        offset_range = self.offset_range
        if offset_range.target_end <= offset_range.end:
            return None
        theirs = self.sides.records(self.target, offset_range.twin_named, offset_range.end, offset_range.target_end, 1)
        return first_difference([], theirs)

    def _alive(self, latest: OneSidedKeys, *, on_source: bool) -> list[OneSidedRecord]:
        """Returns tombstones of this side whose keys the other side still shows. Reads that from its start: the value
        may precede the range, and all keys would not fit into memory.
        """
        deletes = latest.deletes(on_source=on_source)
        if not deletes:
            return []
        kafka, partition = (
            (self.target, self.offset_range.twin_named) if on_source else (self.source, self.offset_range.partition)
        )
        first = kafka.list_offsets([partition], OffsetKind.EARLIEST)[partition]
        with self.sides.reading(kafka, partition, first, max(found.offset for found in deletes.values())) as reader:
            return find_missing_tombstones(named_chunks(reader, kafka), deletes)

    def _both_at(self, at: int) -> ProofDifference | None:
        offset_range = self.offset_range
        ours = self.sides.records(self.source, offset_range.partition, at, at + 1, 1)
        theirs = self.sides.records(self.target, offset_range.twin_named, at, at + 1, 1)
        return first_difference(ours, theirs) if ours and theirs else None
