"""What carrying a topic will take: bytes, markers, filler and seconds, estimated before anything runs. Pure.

An offset of one side, on the other: out of the two extents around it; and which records of the source landed on a
mapped twin, where a fresh queue may have left some out between them. Pure.

Sequences count what was sent, so behind a pump that died they do not say what was dropped before it. The records
themselves do: those of the twin are some of the source's, in the same order. Where the source has a record more than
once, to the byte and the millisecond, the latest counts: then nothing is sent a second time.

Where MirrorMaker 2 stopped: its own notes say which record of the source became which of the copy, now and then; the
records themselves prove the rest. Pure.

From a note on, MirrorMaker writes record by record. So the copy's records behind it must be the source's, one by one,
and the source's next one is where to go on. Notes that do not prove so are not believed.
"""

from __future__ import annotations

import struct
from array import array
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from twinshore.config.model import (
    OffsetRun,
    SourceOffset,
    TargetOffset,
    TopicPartition,
    append_runs,
    source_end,
    target_end,
)
from twinshore.kafka.protocol.record_batch import Record, next_sequence
from twinshore.kafka.protocol.visibility import DatedContent
from twinshore.replication.task.core.config import LandedBatch

# What the mirror does on two cores; a measured rate takes the place of the first.
ASSUMED_BYTES_S = 50e6
MARKERS_PER_S = 20_000.0
TRANSACTION_MARKERS_PER_S = 3_000.0
TRANSACTION_MARKERS_PER_PARTITION_S = 200.0  # Of one partition.
FILLER_RECORDS_PER_S = 5e6
STARTUP_S = 5.0
NOTHING_TO_REPLICATE = "nothing is to be carried now"


class LogSample(NamedTuple):
    """A piece of a log: how many offsets it spans, how many of them consumers see, in how many bytes."""

    offsets: int
    seen: int
    bytes: int


class PartitionWork(NamedTuple):
    """One partition: offsets to carry, and those below them that must be filled first."""

    offsets: int
    filler: int


@dataclass(frozen=True, slots=True)
class ReplicationRate:
    """`measured`: on this link, or only assumed. `closed_units`: the target takes no markers directly."""

    bytes_s: float
    measured: bool
    closed_units: bool = False

    def markers_s(self, partitions: int) -> float:
        return (
            min(TRANSACTION_MARKERS_PER_S, TRANSACTION_MARKERS_PER_PARTITION_S * max(1, partitions))
            if self.closed_units
            else MARKERS_PER_S
        )


@dataclass(frozen=True, slots=True)
class Cost:
    """An estimate. `mode` is exact or mapped; `place`: where a mapped topic goes on; `closed_units`: what writes the
    markers."""

    topic: str
    mode: str
    offsets: int
    bytes: int
    markers: int
    filler: int
    seconds: float
    rate_bytes_s: float
    measured: bool
    place: str = ""
    closed_units: bool = False

    def __str__(self) -> str:
        return f"cost of {self.topic}: {self.mode}{self.place and ', ' + self.place}: {self.figures}"

    @property
    def figures(self) -> str:
        """How much there is, and how long it will take."""
        parts = [f"about {_bytes(self.bytes)} in {self.offsets} offsets" if self.offsets else NOTHING_TO_REPLICATE]
        if self.markers:
            parts.append(f"{self.markers} markers{' by closed units' if self.closed_units else ''}")
        if self.filler:
            parts.append(f"{self.filler} offsets of filler")
        if self.offsets or self.filler:
            kind = "measured" if self.measured else "assumed"
            parts.append(f"{self.seconds:.0f} s at {_bytes(int(self.rate_bytes_s))}/s ({kind})")
        return ", ".join(parts)


def estimate_cost(
    topic: str,
    mode: str,
    stretches: Iterable[PartitionWork],
    samples: Iterable[LogSample],
    rate: ReplicationRate,
    place: str = "",
) -> Cost:
    """The estimate for a topic, its samples standing for all of its partitions."""
    ours = list(stretches)
    offsets, filler = sum(one.offsets for one in ours), sum(one.filler for one in ours)
    spanned, seen, size = 0, 0, 0
    for sample in samples:
        spanned, seen, size = spanned + sample.offsets, seen + sample.seen, size + sample.bytes
    share = offsets / spanned if spanned else 0.0
    markers = round((spanned - seen) * share) if mode == "exact" else 0
    filler = filler if mode == "exact" else 0
    seconds = (
        STARTUP_S + size * share / rate.bytes_s + markers / rate.markers_s(len(ours)) + filler / FILLER_RECORDS_PER_S
    )
    counts = offsets, round(size * share), markers, filler
    return Cost(topic, mode, *counts, seconds, rate.bytes_s, rate.measured, place, rate.closed_units)


def _bytes(count: int) -> str:
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("KB", 10**3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} bytes"


def match_latest_offsets(landed: Sequence[int], offsets: array[int], marks: array[int]) -> list[int] | None:
    """At which of the source's `offsets`, whose records have these `marks`, the records lie that `landed` has the marks
    of, each as late as can be; None where they are not all there."""
    found = [0] * len(landed)
    at = len(marks)
    for number in range(len(landed) - 1, -1, -1):
        at -= 1
        while at >= 0 and marks[at] != landed[number]:
            at -= 1
        if at < 0:
            return None
        found[number] = offsets[at]
    return found


def map_each_record(fresh: Iterable[LandedBatch], offsets: Sequence[int]) -> list[OffsetRun]:
    """What landed, with where each of its records lies on the source."""
    found: list[OffsetRun] = []
    at = 0
    for one in fresh:
        for number in range(one.records):
            sequence = next_sequence(one.sequence, number)
            single = OffsetRun(SourceOffset(offsets[at]), TargetOffset(one.target + number), 1, sequence)
            found[-1:] = append_runs(found[-1] if found else None, [single])
            at += 1
    return found


def offsets_between(begin: int, extents: Iterable[OffsetRun]) -> list[tuple[int, int]]:
    """The offsets of the source from `begin` on that lie before and between these, in order."""
    found = []
    for one in extents:
        if one.source > begin:
            found.append((begin, int(one.source)))
        begin = source_end(one)
    return found


class MappedOffset(NamedTuple):
    """Where an offset of one side is on the other. `exact`: the record itself is there; else it is the next one that
    both sides have."""

    offset: int
    exact: bool


def translate_to_target(
    offset: SourceOffset, before: OffsetRun | None, behind: OffsetRun | None
) -> MappedOffset | None:
    """Where this offset of the source lies on the twin; None where no extent is known."""
    if before is not None and offset < source_end(before):
        return MappedOffset(before.target + offset - before.source, exact=True)
    if behind is not None:
        return MappedOffset(behind.target, exact=False)
    return None if before is None else MappedOffset(target_end(before), exact=False)


def translate_to_source(
    offset: TargetOffset, before: OffsetRun | None, behind: OffsetRun | None
) -> MappedOffset | None:
    """Where this offset of the twin came from; records that others wrote have none."""
    if before is not None and offset < target_end(before):
        return MappedOffset(before.source + offset - before.target, exact=True)
    if behind is not None:
        return MappedOffset(behind.source, exact=False)
    return None if before is None else MappedOffset(source_end(before), exact=False)


OFFSET_SYNCS_KEPT = 32
TAIL_RECORDS = 100
_OFFSETS = struct.Struct(">qq")
_SHORT, _INT = struct.Struct(">h"), struct.Struct(">i")
SourceEntry = tuple[int, DatedContent]
CopyEntry = tuple[int, DatedContent]


class OffsetSync(NamedTuple):
    """The source's record at `source` was written to the copy at `target`."""

    source: int
    target: int


def parse_offset_sync(record: Record) -> tuple[TopicPartition, OffsetSync] | None:
    """What a record of mm2-offset-syncs says; None where it says nothing."""
    key, value = record.key or b"", record.value or b""
    if len(key) < _SHORT.size or len(value) != _OFFSETS.size:
        return None
    length = _SHORT.unpack_from(key)[0]
    if len(key) != _SHORT.size + length + _INT.size:
        return None
    topic = key[_SHORT.size : _SHORT.size + length].decode("utf-8", "replace")
    return TopicPartition(topic, _INT.unpack_from(key, _SHORT.size + length)[0]), OffsetSync(*_OFFSETS.unpack(value))


def collect_offset_syncs(records: Iterable[Record]) -> dict[TopicPartition, list[OffsetSync]]:
    """The last notes of each partition, oldest first."""
    found: dict[TopicPartition, deque[OffsetSync]] = {}
    for record in records:
        read = parse_offset_sync(record)
        if read:
            found.setdefault(read[0], deque(maxlen=OFFSET_SYNCS_KEPT)).append(read[1])
    return {named: list(notes) for named, notes in found.items()}


def find_offset_syncs_topic(names: Iterable[str], alias: str) -> str:
    """Which of a cluster's topics holds the notes of MirrorMaker's link with the cluster of this alias; "" if none."""
    theirs = [name for name in names if name.startswith("mm2-offset-syncs.") and name.endswith(".internal")]
    meant = f"mm2-offset-syncs.{alias}.internal"
    return meant if meant in theirs else theirs[0] if len(theirs) == 1 else ""


def follow_copied_records(source: Iterator[SourceEntry], copy: Iterator[CopyEntry], passed: int = 0) -> int | None:
    """The source's offset behind the copy's last record, if each of the copy's is the next one of the source's; else
    None. `passed`: so many were copied before the first that the copy still has. Whether they were is proven by what
    follows, so one of that must bear a time stamp of the source's."""
    for _ in islice(source, passed):
        pass
    at, dated = -1, not passed
    for _, wanted in copy:
        found = next(source, None)
        if found is None or not wanted.copied_from(found[1]):
            return None
        at, dated = found[0], dated or wanted.timestamp_ms is not None
    return at + 1 if at >= 0 and dated else None


def find_tail_offsets(source: Iterable[SourceEntry], tail: Sequence[DatedContent]) -> list[int]:
    """The source's offsets behind each place where it holds exactly `tail`."""
    recent: deque[SourceEntry] = deque(maxlen=len(tail))
    found: list[int] = []
    for one in source:
        recent.append(one)
        # The last one first: it is hardly ever there, and all are compared only then.
        near = len(recent) == len(tail) and tail[-1].copied_from(one[1])
        if near and all(ours.copied_from(theirs) for (_, theirs), ours in zip(recent, tail, strict=True)):
            found.append(one[0] + 1)
    return found


def usable_offset_syncs(
    notes: Mapping[TopicPartition, list[OffsetSync]], named: TopicPartition, end: int
) -> list[OffsetSync]:
    """Notes of a partition that can be true of a copy that ends at `end`, the latest first."""
    return [note for note in reversed(notes.get(named, [])) if 0 <= note.target < end and note.source >= 0]
