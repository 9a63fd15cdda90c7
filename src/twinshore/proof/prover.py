"""One stretch, proven: two logs read beside each other, and each difference looked at twice before it is told."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import islice

from twinshore.fleet import Cluster, NamedPartition, TwinshoreError, WireError
from twinshore.kafka.cluster import KafkaCluster, OffsetKind
from twinshore.proof.chunks import Chunk
from twinshore.proof.compacted import Latest, Lone, compare_compacted, still_shown
from twinshore.proof.comparison import Tally, compare_content, compare_placed
from twinshore.proof.differences import AHEAD, beginning, first_difference
from twinshore.proof.log_reader import LogReader
from twinshore.proof.owed import deleted_on, look_at_keys
from twinshore.proof.pace import Pace
from twinshore.proof.placing import ByRuns, Placement, Run, SameOffsets
from twinshore.proof.record_bytes import record_at
from twinshore.proof.values import Difference, DifferenceKind, Proven, Stretch, Way
from twinshore.wire.records import Record

LOOKS_MAX = 3
BEGINNING_RECORDS = 2_000


def prove_all(stretches: Iterable[Stretch]) -> Iterator[Proven]:
    """What became of each, over the same connections. Never raises what an operator can mend: that is `trouble`."""
    met: dict[Cluster, KafkaCluster] = {}
    try:
        for stretch in stretches:
            for cluster in (stretch.source, stretch.target):
                if cluster not in met:
                    met[cluster] = KafkaCluster(cluster)
            yield _prove(stretch, met[stretch.source], met[stretch.target])
    finally:
        for kafka in met.values():
            kafka.close()


def _prove(stretch: Stretch, source: KafkaCluster, target: KafkaCluster) -> Proven:
    began_s, began_cpu_s = time.monotonic(), time.thread_time()
    prover = Prover(stretch, source, target)
    try:
        found = look_at_keys(stretch, source, target) if stretch.keys else _looked_twice(prover)
    except TwinshoreError as error:
        found = prover.trouble(error)
    return replace(found, seconds=time.monotonic() - began_s, cpu_s=time.thread_time() - began_cpu_s)


def _looked_twice(prover: Prover) -> Proven:
    """A batch is corrupt that is so at two looks: the first may have been some line's or disk's bad moment."""
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
    """The two clusters are the caller's to close."""

    stretch: Stretch
    source: KafkaCluster
    target: KafkaCluster
    start: int = 0
    tally: Tally = field(default_factory=lambda: Tally(0))
    read_bytes: int = 0
    pace: Pace = field(default_factory=lambda: Pace(0))

    def run(self) -> Proven:
        """Compares as the stretch wants it."""
        wanted = self.stretch
        self.pace = Pace(wanted.bytes_s)
        earliest = self.source.list_offsets([wanted.named], OffsetKind.EARLIEST)[wanted.named]
        self._begin(min(wanted.end, max(wanted.start, earliest)))
        if wanted.way is Way.CONTENT:
            return self._by_content()
        if wanted.way is Way.COMPACTED:
            return self._compacted()
        return self._placed()

    def account(
        self,
        *,
        difference: Difference | None = None,
        trouble: str = "",
        hint: str = "",
        open_keys: int = 0,
        owed: int = 0,
    ) -> Proven:
        """What has been proven so far."""
        tally = self.tally
        return Proven(
            self.stretch.number,
            self.start,
            tally.at,
            tally.target_at,
            tally.records,
            self.read_bytes,
            tally.equal_batches,
            tally.sums.value if self.stretch.digest else 0,
            difference=difference,
            trouble=trouble,
            hint=hint,
            open_keys=open_keys,
            owed=owed,
        )

    def trouble(self, error: TwinshoreError) -> Proven:
        return self.account(trouble=error.message, hint=error.hint)

    def corrupt(self, error: WireError) -> Difference:
        return Difference(DifferenceKind.CORRUPT, self.tally.at, error.message, None, None)

    def _begin(self, start: int) -> None:
        self.start = start
        self.tally = Tally(start, self.stretch.target_start)

    # Where offsets count

    def _placed(self) -> Proven:
        wanted, placement = self.stretch, self._placement()
        for _ in range(LOOKS_MAX):
            skipped: list[int] = []

            def compare(ours: LogReader, theirs: LogReader, skipped: list[int] = skipped) -> bool:
                chunks, peers = _named(ours, self.source), placement.placed(_named(theirs, self.target))
                same = compare_placed(chunks, peers, self.tally, wanted.end, digest=wanted.digest)
                skipped.append(ours.skipped_to)
                return same

            same = self._beside(self.tally.at, placement.target_of(self.tally.at), wanted.end, self._bound(), compare)
            if skipped[0] > self.start:
                self._begin(min(skipped[0], wanted.end))  # The source's own retention was there meanwhile.
                continue
            found = None
            if not same or wanted.target_end > wanted.end:
                found = self._look_again(placement, beyond=same)
            if found is not None:
                return self.account(difference=found)
            if same:
                return self.account()
        return self.account(trouble=f"the records at offset {self.tally.at} are others at each look", hint="try again")

    def _bound(self) -> int:
        """How far the target may be read: what lies beyond is never asked for."""
        wanted = self.stretch
        if wanted.way is Way.EXACT:
            return wanted.end
        return max((target + length for _, target, length in wanted.extents), default=0)

    def _placement(self) -> Placement:
        if self.stretch.way is Way.EXACT:
            return SameOffsets()
        return ByRuns([Run(*extent) for extent in self.stretch.extents], self.stretch.end)

    def _look_again(self, placement: Placement, *, beyond: bool) -> Difference | None:
        """Both sides read anew where they parted. None: that was the source's cleaner or retention at work."""
        wanted, at = self.stretch, self.tally.at
        end = wanted.target_end if beyond else wanted.end
        ours = self._records(self.source, wanted.named, at, wanted.end, AHEAD)
        bound = end if wanted.way is Way.EXACT else self._bound()
        theirs = self._records(self.target, wanted.twin_named, placement.target_of(at), bound, AHEAD, placement)
        theirs = [record for record in theirs if record.offset >= at]
        earliest = self.source.list_offsets([wanted.named], OffsetKind.EARLIEST)[wanted.named]
        if earliest > at:
            self._begin(min(earliest, wanted.end))
            return None
        # Of two windows with as many records the shorter one says how far both are known.
        full = [side[-1].offset + 1 for side in (ours, theirs) if len(side) == AHEAD]
        return self._ranged(first_difference(ours, theirs, end=min([end, *full])))

    def _ranged(self, found: Difference | None) -> Difference | None:
        """Of records that a twin lacks because its log begins above them, all are named at once."""
        wanted = self.stretch
        if found is None or found.kind is not DifferenceKind.MISSING or wanted.way is not Way.EXACT:
            return found
        begins = self.target.list_offsets([wanted.twin_named], OffsetKind.EARLIEST)[wanted.twin_named]
        if begins <= found.offset:
            return found
        lacks = f"the target's log begins at offset {begins}: it lacks offsets {found.offset} to {begins - 1}"
        return replace(found, sentence=lacks)

    # Where only order counts

    def _by_content(self) -> Proven:
        wanted = self.stretch
        last = wanted.target_end >= 0
        target_end = wanted.target_end
        if not last:
            target_end = self.target.list_offsets([wanted.twin_named], OffsetKind.LAST_STABLE)[wanted.twin_named]
        if self.start > wanted.start:
            self.tally.target_at = -1  # The source's retention was here: where it begins now lies elsewhere there.
            if self.start >= wanted.end:
                return self.account()
        for _ in range(LOOKS_MAX):
            if self.tally.target_at < 0 and not self._find_beginning(target_end):
                return self.account()
            skipped: list[int] = []

            def compare(ours: LogReader, theirs: LogReader, skipped: list[int] = skipped) -> bool:
                chunks, peers = _named(ours, self.source), _named(theirs, self.target)
                same = compare_content(chunks, peers, self.tally, (wanted.end, target_end), last=last)
                skipped += [ours.skipped_to, theirs.skipped_to]
                return same

            same = self._beside(self.tally.at, self.tally.target_at, wanted.end, target_end, compare)
            if max(skipped) < 0:
                return self.account() if same else self._parted(target_end)
            self._begin(min(max(self.start, skipped[0]), wanted.end))  # Retention was there meanwhile, on either side.
            self.tally.target_at = -1
            if self.start >= wanted.end:
                return self.account()
        return self.account(trouble="retention takes records faster than they are read", hint="try again")

    def _parted(self, target_end: int) -> Proven:
        """Of both sides read anew where they part."""
        wanted = self.stretch
        at, target_at = self.tally.at, self.tally.target_at
        ours = self._records(self.source, wanted.named, at, wanted.end, AHEAD)
        theirs = self._records(self.target, wanted.twin_named, target_at, target_end, AHEAD)
        found = first_difference(ours, theirs, placed=False)
        if found is None:
            return self.account(trouble=f"the records at offset {at} are others at each look", hint="try again")
        return self.account(difference=replace(found, offset=at))

    def _find_beginning(self, target_end: int) -> bool:
        """Sets where both begin; False when the target has nothing yet."""
        wanted = self.stretch
        ours = self._records(self.source, wanted.named, self.start, wanted.end, BEGINNING_RECORDS)
        twin = wanted.twin_named
        first = self.target.list_offsets([twin], OffsetKind.EARLIEST)[twin]
        theirs = self._records(self.target, twin, first, target_end, BEGINNING_RECORDS)
        if not theirs:
            if not ours:  # Nobody sees anything on either side.
                self.tally.at = wanted.end
            return False
        found = beginning(ours, theirs)
        if found is None:
            raise TwinshoreError(
                f"{wanted.named} has no common beginning on both sides, among {BEGINNING_RECORDS} records of each",
                hint="was the target filled from elsewhere, or has one side lost its beginning to retention?",
            )
        self._begin(ours[found[0]].offset)
        self.tally.target_at = theirs[found[1]].offset
        return True

    # Compacted topics

    def _compacted(self) -> Proven:
        wanted = self.stretch
        before: Difference | None = None
        for _ in range(LOOKS_MAX):
            self._begin(self.start)
            latest = Latest()
            end = wanted.end

            def compare(ours: LogReader, theirs: LogReader, upto: int = end, latest: Latest = latest) -> bool:
                chunks, peers = _named(ours, self.source), _named(theirs, self.target)
                return compare_compacted(chunks, peers, self.tally, upto, latest)

            same = self._beside(self.start, self.start, end, end, compare)
            owed = self._take_owed(latest)
            if same:
                found, still_open = self._settled(latest, end)
            else:
                found, still_open = self._both_at(self.tally.at), latest.open()
            self.tally.at = min([self.tally.at, *(lone.offset for lone in still_open)])
            if found is None:
                return self.account(open_keys=len(still_open), owed=owed)
            if before is not None and before.offset == found.offset:
                return self.account(difference=found, owed=owed)
            before = found
        return self.account(trouble="both sides are being cleaned: no two looks agree", hint="try again later")

    def _take_owed(self, latest: Latest) -> int:
        """Takes keys out that live on the twin alone because the source has deleted them; how many. Nothing further on
        can settle those: a key look tells of them, and they hold no proof up."""
        named, end = self.stretch.named, self.tally.at
        owed = deleted_on(self.source, named, latest.only_on_target(), end, self.pace)
        for key in owed:
            del latest.lone[key]
        return len(owed)

    def _settled(self, latest: Latest, end: int) -> tuple[Difference | None, list[Lone]]:
        """The first key whose latest record one side lacks for good, and those that may be settled further on."""
        wanted, twin = self.stretch, self.stretch.twin_named
        lone = sorted(latest.open() + self._alive(latest, on_source=True) + self._alive(latest, on_source=False))
        if not lone:
            return None, []
        source_end = self.source.list_offsets([wanted.named], OffsetKind.LAST_STABLE)[wanted.named]
        target_end = self.target.list_offsets([twin], OffsetKind.LAST_STABLE)[twin]
        for one in lone:
            # The side that lacks it has nothing further on that could have taken its place. Nothing could take that of
            # a tombstone and leave what it deletes.
            if one.tombstone or (target_end if one.on_source else source_end) <= end:
                holder, named = (self.source, wanted.named) if one.on_source else (self.target, twin)
                records = self._records(holder, named, one.offset, end, 1)
                sides = (records, []) if one.on_source else ([], records)
                self.tally.at = one.offset
                return first_difference(*sides), lone
        return None, lone

    def _alive(self, latest: Latest, *, on_source: bool) -> list[Lone]:
        """Tombstones that this side alone has, of keys that the other still shows. It is read from its beginning: the
        value may lie before the stretch, and what every key shows would not fit into memory."""
        deletes = latest.deletes(on_source=on_source)
        if not deletes:
            return []
        kafka, named = (self.target, self.stretch.twin_named) if on_source else (self.source, self.stretch.named)
        first = kafka.list_offsets([named], OffsetKind.EARLIEST)[named]
        reader = LogReader(kafka, named, first, max(found.offset for found in deletes.values()), self.pace)
        try:
            return still_shown(_named(reader, kafka), deletes)
        finally:
            self.read_bytes += reader.read_bytes
            reader.close()

    def _both_at(self, at: int) -> Difference | None:
        wanted = self.stretch
        ours = self._records(self.source, wanted.named, at, at + 1, 1)
        theirs = self._records(self.target, wanted.twin_named, at, at + 1, 1)
        return first_difference(ours, theirs) if ours and theirs else None

    # Reading

    def _beside(
        self, at: int, target_at: int, end: int, target_end: int, compare: Callable[[LogReader, LogReader], bool]
    ) -> bool:
        ours = LogReader(self.source, self.stretch.named, at, end, self.pace)
        theirs = LogReader(self.target, self.stretch.twin_named, target_at, target_end, self.pace)
        try:
            return compare(ours, theirs)
        finally:
            self.read_bytes += ours.read_bytes + theirs.read_bytes
            ours.close()
            theirs.close()

    def _records(
        self,
        kafka: KafkaCluster,
        named: NamedPartition,
        at: int,
        end: int,
        most: int,
        placement: Placement | None = None,
    ) -> list[Record]:
        """The first records from `at` on, below `end`; at the source's offsets where a placement says so."""
        reader = LogReader(kafka, named, at, end, self.pace)
        try:
            chunks = _named(reader, kafka)
            placed = placement.placed(chunks) if placement else chunks
            return list(islice(_seen(placed, at, end), most))
        finally:
            self.read_bytes += reader.read_bytes
            reader.close()


def _seen(chunks: Iterator[Chunk], at: int, end: int) -> Iterator[Record]:
    for chunk in chunks:
        data, rows = chunk.opened()
        for row in rows:
            record = record_at(data, row)
            if at <= record.offset < end:
                yield record._replace(offset=record.offset + chunk.shift)


def _named(reader: LogReader, kafka: KafkaCluster) -> Iterator[Chunk]:
    """The reader's chunks; what is corrupt is said to be on that cluster."""
    chunks = reader.chunks()
    while True:
        try:
            chunk = next(chunks, None)
        except WireError as error:
            raise error.within(kafka.name) from error
        if chunk is None:
            return
        yield chunk
