"""One stretch, proven: two logs read beside each other, and each difference looked at twice before it is told."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace

from twinshore.fleet import Cluster, KafkaError, TwinshoreError, WireError
from twinshore.kafka.cluster import KafkaCluster, OffsetKind
from twinshore.logs.reader import LogReader
from twinshore.proof.both_sides import BothSides, named_chunks
from twinshore.proof.compacted import Latest, Lone, compare_compacted, still_shown
from twinshore.proof.comparison import Tally, compare_content, compare_placed
from twinshore.proof.differences import AHEAD, beginning, first_difference
from twinshore.proof.owed import look_at_keys, written_between
from twinshore.proof.placing import ByExtents, Extent, Placement, SameOffsets, without
from twinshore.proof.values import Difference, DifferenceKind, Proven, Stretch, Way

LOOKS_MAX = 3
BEGINNING_RECORDS = 2_000


def prove_all(stretches: Iterable[Stretch]) -> Iterator[Proven]:
    """What became of each, over the same connections. Never raises what an operator can mend: that is `trouble`."""
    met: dict[tuple[Cluster, str], KafkaCluster] = {}
    try:
        for stretch in stretches:
            ends = tuple(zip((stretch.source, stretch.target), stretch.cluster_ids, strict=True))
            for cluster, cluster_id in ends:
                if (cluster, cluster_id) not in met:
                    met[cluster, cluster_id] = KafkaCluster(cluster, cluster_id=cluster_id)
            source, target = (met[end] for end in ends)
            yield _prove(stretch, source, target)
    finally:
        for kafka in met.values():
            kafka.close()


def _prove(stretch: Stretch, source: KafkaCluster, target: KafkaCluster) -> Proven:
    began_s, began_cpu_s = time.monotonic(), time.thread_time()
    prover = Prover(stretch, source, target)
    try:
        _check_topics(stretch, source, target)
        found = look_at_keys(stretch, source, target) if stretch.keys else _looked_twice(prover)
        if found.difference is not None or found.owed:
            _check_topics(stretch, source, target)
    except TwinshoreError as error:
        found = prover.trouble(error)
    return replace(found, seconds=time.monotonic() - began_s, cpu_s=time.thread_time() - began_cpu_s)


def _check_topics(stretch: Stretch, source: KafkaCluster, target: KafkaCluster) -> None:
    """KafkaError where a topic is another one than was looked at."""
    sides = (source, stretch.named.topic), (target, stretch.twin)
    for (kafka, name), wanted in zip(sides, stretch.topic_ids, strict=True):
        seen = kafka.metadata([name]).topics.get(name) if wanted else None
        if seen is not None and not seen.error and seen.topic_id.hex() != wanted:
            raise KafkaError(f"topic {name} on {kafka.name} was deleted and made again meanwhile", hint="prove again")


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
    sides: BothSides = field(init=False)

    def __post_init__(self) -> None:
        self.sides = BothSides(self.stretch, self.source, self.target)

    def run(self) -> Proven:
        """Compares as the stretch wants it."""
        wanted = self.stretch
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
            self.sides.read_bytes,
            tally.equal_batches,
            tally.sums.value if self.stretch.digest else 0,
            difference=difference,
            trouble=trouble,
            hint=hint,
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
                chunks = without(named_chunks(ours, self.source), wanted.dropped)
                peers = placement.placed(named_chunks(theirs, self.target))
                same = compare_placed(chunks, peers, self.tally, wanted.end, digest=wanted.digest)
                skipped.append(max(ours.skipped_to, placement.source_from(theirs.skipped_to)))
                return same

            at, target_at = self.tally.at, placement.target_of(self.tally.at)
            same = self.sides.beside(at, target_at, wanted.end, self._bound(), compare)
            if skipped[0] > self.start:
                self._begin(min(skipped[0], wanted.end))  # Retention was there meanwhile.
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
        return ByExtents([Extent(*extent) for extent in self.stretch.extents], self.stretch.end)

    def _look_again(self, placement: Placement, *, beyond: bool) -> Difference | None:
        """Both sides read anew where they parted. None: that was the source's cleaner or retention at work."""
        wanted, at = self.stretch, self.tally.at
        end = wanted.target_end if beyond else wanted.end
        ours = self.sides.records(self.source, wanted.named, at, wanted.end, AHEAD, dropped=wanted.dropped)
        bound = end if wanted.way is Way.EXACT else self._bound()
        theirs = self.sides.records(self.target, wanted.twin_named, placement.target_of(at), bound, AHEAD, placement)
        theirs = [record for record in theirs if record.offset >= at]
        starts = self.target.list_offsets([wanted.twin_named], OffsetKind.EARLIEST)
        earliest = self.source.list_offsets([wanted.named], OffsetKind.EARLIEST)[wanted.named]
        kept_from = max(earliest, placement.source_from(starts[wanted.twin_named]))
        if kept_from > at:
            self._begin(min(kept_from, wanted.end))
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
                chunks, peers = named_chunks(ours, self.source), named_chunks(theirs, self.target)
                same = compare_content(chunks, peers, self.tally, (wanted.end, target_end), last=last)
                skipped += [ours.skipped_to, theirs.skipped_to]
                return same

            same = self.sides.beside(self.tally.at, self.tally.target_at, wanted.end, target_end, compare)
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
        ours = self.sides.records(self.source, wanted.named, at, wanted.end, AHEAD)
        theirs = self.sides.records(self.target, wanted.twin_named, target_at, target_end, AHEAD)
        found = first_difference(ours, theirs, placed=False)
        if found is None:
            return self.account(trouble=f"the records at offset {at} are others at each look", hint="try again")
        return self.account(difference=replace(found, offset=at))

    def _find_beginning(self, target_end: int) -> bool:
        """Sets where both begin; False when the target has nothing yet."""
        wanted = self.stretch
        ours = self.sides.records(self.source, wanted.named, self.start, wanted.end, BEGINNING_RECORDS)
        twin = wanted.twin_named
        first = self.target.list_offsets([twin], OffsetKind.EARLIEST)[twin]
        theirs = self.sides.records(self.target, twin, first, target_end, BEGINNING_RECORDS)
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
            same = self._compare_compacted(wanted.end, latest)
            owed = self._settle(latest)
            lacking = self._lacking(latest)
            if lacking:
                found = self._alone(lacking[0])
            elif same:
                found = self._beyond()
            else:
                found = self._both_at(self.tally.at)
            if found is None and same and not lacking:
                return self.account(owed=owed)
            if found is not None and before is not None and before.offset == found.offset:
                self._recount(min([self.tally.at, *(lone.offset for lone in lacking)]))
                return self.account(difference=found, owed=owed)
            before = found
        return self.account(trouble="both sides are being cleaned: no two looks agree", hint="try again later")

    def _compare_compacted(self, end: int, latest: Latest) -> bool:
        def compare(ours: LogReader, theirs: LogReader) -> bool:
            chunks, peers = named_chunks(ours, self.source), named_chunks(theirs, self.target)
            return compare_compacted(chunks, peers, self.tally, end, latest)

        return self.sides.beside(self.start, self.start, end, end, compare)

    def _recount(self, to: int) -> None:
        """What both sides share below a difference: what was counted behind it is counted once it is proven."""
        if to < self.tally.at:
            self._begin(self.start)
            self._compare_compacted(to, Latest())

    def _settle(self, latest: Latest) -> int:
        """Takes out what one side lacks rightly, however much is written meanwhile. That is what has been written anew
        since: a cleaner takes no record before a later one of its key is there. The twin's cleaner knows of those below
        the twin's end alone, the source's of all; and what is on the target was on the source before. It is also what
        both are about to lose to the source's log start. Of keys that the source has deleted it returns how many live
        on in the twin: nothing further on settles those, so a key look tells of them.
        """
        named, twin, at = self.stretch.named, self.stretch.twin_named, self.tally.at
        end = self.source.list_offsets([named], OffsetKind.LAST_STABLE)[named]
        twin_end = self.target.list_offsets([twin], OffsetKind.LAST_STABLE)[twin]
        for on_source, known_to in ((True, min(end, twin_end)), (False, end)):
            keys = {key for key, lone in latest.values().items() if lone.on_source is on_source}
            latest.superseded(self._written(at, known_to, keys))
        start = self.source.list_offsets([named], OffsetKind.EARLIEST)[named]
        latest.superseded([key for key, lone in latest.lone.items() if lone.offset < start])
        only_on_target = {key for key, lone in latest.values().items() if not lone.on_source}
        owed = only_on_target - self._written(start, at, only_on_target)
        latest.superseded(owed)
        return len(owed)

    def _written(self, start: int, end: int, keys: Collection[bytes]) -> set[bytes]:
        """Those of the keys of which the source has a record there."""
        with self.sides.reading(self.source, self.stretch.named, start, max(start, end)) as reader:
            return written_between(reader, keys)

    def _lacking(self, latest: Latest) -> list[Lone]:
        """Latest records that one side lacks for good, by offset. Nothing could take a tombstone and leave what it
        deletes, so one is missed where the other side still shows that."""
        alive = self._alive(latest, on_source=True) + self._alive(latest, on_source=False)
        return sorted(latest.open() + alive)

    def _alone(self, lone: Lone) -> Difference | None:
        at, wanted = lone.offset, self.stretch
        if lone.on_source:
            return first_difference(self.sides.records(self.source, wanted.named, at, at + 1, 1), [])
        return first_difference([], self.sides.records(self.target, wanted.twin_named, at, at + 1, 1))

    def _beyond(self) -> Difference | None:
        """What the target shows beyond the source's end, where that is asked for."""
        wanted = self.stretch
        if wanted.target_end <= wanted.end:
            return None
        theirs = self.sides.records(self.target, wanted.twin_named, wanted.end, wanted.target_end, 1)
        return first_difference([], theirs)

    def _alive(self, latest: Latest, *, on_source: bool) -> list[Lone]:
        """Tombstones that this side alone has, of keys that the other still shows. It is read from its beginning: the
        value may lie before the stretch, and what every key shows would not fit into memory."""
        deletes = latest.deletes(on_source=on_source)
        if not deletes:
            return []
        kafka, named = (self.target, self.stretch.twin_named) if on_source else (self.source, self.stretch.named)
        first = kafka.list_offsets([named], OffsetKind.EARLIEST)[named]
        with self.sides.reading(kafka, named, first, max(found.offset for found in deletes.values())) as reader:
            return still_shown(named_chunks(reader, kafka), deletes)

    def _both_at(self, at: int) -> Difference | None:
        wanted = self.stretch
        ours = self.sides.records(self.source, wanted.named, at, at + 1, 1)
        theirs = self.sides.records(self.target, wanted.twin_named, at, at + 1, 1)
        return first_difference(ours, theirs) if ours and theirs else None
