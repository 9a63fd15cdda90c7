"""Estimates of a replication's cost, and offsets of mapped twins.

A mapped twin's records are some of the source's, in the same order; comparing records shows which. Sequences cannot
tell, for they count what was sent, and a fresh queue may have dropped records before a task died. Of equal records in
the source the latest counts: then none is sent twice.

MirrorMaker 2 stores some pairs of source and copy offset, and copies record by record after each. So the copy's records
after such an offset sync must be the source's, one by one, and the source's next record is where to continue. Offset
syncs that do not prove so are ignored.
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
from twinshore.kafka.protocol.record_batch import DatedContent, Record, next_sequence
from twinshore.replication.task.core.messages import LandedBatch

# Rates on two cores; a measured rate replaces the first.
ASSUMED_BYTES_S = 50e6
MARKERS_PER_S = 20_000.0
TRANSACTION_MARKERS_PER_S = 3_000.0
TRANSACTION_MARKERS_PER_PARTITION_S = 200.0  # Of one partition.
FILLER_RECORDS_PER_S = 5e6
STARTUP_S = 5.0
NOTHING_TO_REPLICATE = "nothing is to be replicated now"


class LogSample(NamedTuple):
    """Offsets spanned, offsets that consumers see, bytes."""

    offsets: int
    seen: int
    bytes: int


class PartitionWork(NamedTuple):
    """Offsets to replicate, and offsets below to fill first."""

    offsets: int
    filler: int


@dataclass(frozen=True, slots=True)
class ReplicationRate:
    """`measured`: on this link, else assumed. `closed_units`: the target takes no markers directly."""

    bytes_s: float
    measured: bool
    closed_units: bool = False

    def markers_s(self, partitions: int) -> float:
        if not self.closed_units:
            return MARKERS_PER_S
        return min(TRANSACTION_MARKERS_PER_S, TRANSACTION_MARKERS_PER_PARTITION_S * max(1, partitions))


@dataclass(frozen=True, slots=True)
class Cost:
    """`mode`: exact or mapped; `place`: where a mapped topic continues; `closed_units`: these write the markers."""

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
    """Estimates a topic; the samples represent all partitions."""
    partitions = list(stretches)
    offsets, filler = sum(work.offsets for work in partitions), sum(work.filler for work in partitions)
    spanned, visible, size = 0, 0, 0
    for sample in samples:
        spanned, visible, size = spanned + sample.offsets, visible + sample.seen, size + sample.bytes
    share = offsets / spanned if spanned else 0.0
    markers, filler = (round((spanned - visible) * share), filler) if mode == "exact" else (0, 0)
    seconds = STARTUP_S + size * share / rate.bytes_s
    seconds += markers / rate.markers_s(len(partitions)) + filler / FILLER_RECORDS_PER_S
    counts = offsets, round(size * share), markers, filler
    return Cost(topic, mode, *counts, seconds, rate.bytes_s, rate.measured, place, rate.closed_units)


def _bytes(count: int) -> str:
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("KB", 10**3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} bytes"


def match_latest_offsets(landed: Sequence[int], offsets: array[int], marks: array[int]) -> list[int] | None:
    """Returns the source `offsets`, as late as possible, of the records with marks `landed`; None: some are missing.
    `marks`: those of the records at `offsets`.
    """
    places = [0] * len(landed)
    at = len(marks)
    for number in range(len(landed) - 1, -1, -1):
        at -= 1
        while at >= 0 and marks[at] != landed[number]:
            at -= 1
        if at < 0:
            return None
        places[number] = offsets[at]
    return places


def map_each_record(fresh: Iterable[LandedBatch], offsets: Sequence[int]) -> list[OffsetRun]:
    """Returns the offset runs of what landed. `offsets`: the source offset of each record."""
    runs: list[OffsetRun] = []
    at = 0
    for batch in fresh:
        for number in range(batch.records):
            sequence = next_sequence(batch.sequence, number)
            single = OffsetRun(SourceOffset(offsets[at]), TargetOffset(batch.target + number), 1, sequence)
            runs[-1:] = append_runs(runs[-1] if runs else None, [single])
            at += 1
    return runs


def offsets_between(begin: int, offset_runs: Iterable[OffsetRun]) -> list[tuple[int, int]]:
    """Returns the source's offset ranges from `begin` on that lie before and between these runs."""
    ranges = []
    for offset_run in offset_runs:
        if offset_run.source > begin:
            ranges.append((begin, int(offset_run.source)))
        begin = source_end(offset_run)
    return ranges


class MappedOffset(NamedTuple):
    """An offset on the other side. `exact`: that of the record itself; else of the next record that both sides have."""

    offset: int
    exact: bool


def translate_to_target(
    offset: SourceOffset, before: OffsetRun | None, behind: OffsetRun | None
) -> MappedOffset | None:
    """Translates a source offset. `before`, `behind`: the runs around; None: no run is known."""
    if before is not None and offset < source_end(before):
        return MappedOffset(before.target + offset - before.source, exact=True)
    if behind is not None:
        return MappedOffset(behind.target, exact=False)
    return None if before is None else MappedOffset(target_end(before), exact=False)


def translate_to_source(
    offset: TargetOffset, before: OffsetRun | None, behind: OffsetRun | None
) -> MappedOffset | None:
    """Translates a twin's offset, as `translate_to_target`. Records of other writers have no source offset."""
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
    """The record at `source` was copied to `target`."""

    source: int
    target: int


def parse_offset_sync(record: Record) -> tuple[TopicPartition, OffsetSync] | None:
    """Parses a record of mm2-offset-syncs; None: another record."""
    key, value = record.key or b"", record.value or b""
    if len(key) < _SHORT.size or len(value) != _OFFSETS.size:
        return None
    length = _SHORT.unpack_from(key)[0]
    if len(key) != _SHORT.size + length + _INT.size:
        return None
    topic = key[_SHORT.size : _SHORT.size + length].decode("utf-8", "replace")
    return TopicPartition(topic, _INT.unpack_from(key, _SHORT.size + length)[0]), OffsetSync(*_OFFSETS.unpack(value))


def collect_offset_syncs(records: Iterable[Record]) -> dict[TopicPartition, list[OffsetSync]]:
    """Returns the last `OFFSET_SYNCS_KEPT` of each partition, oldest first."""
    syncs: dict[TopicPartition, deque[OffsetSync]] = {}
    for record in records:
        read = parse_offset_sync(record)
        if read:
            syncs.setdefault(read[0], deque(maxlen=OFFSET_SYNCS_KEPT)).append(read[1])
    return {partition: list(notes) for partition, notes in syncs.items()}


def find_offset_syncs_topic(names: Iterable[str], alias: str) -> str:
    """Returns MirrorMaker's topic for the cluster of this alias; empty: none."""
    topics = [name for name in names if name.startswith("mm2-offset-syncs.") and name.endswith(".internal")]
    meant = f"mm2-offset-syncs.{alias}.internal"
    return meant if meant in topics else topics[0] if len(topics) == 1 else ""


def follow_copied_records(source: Iterator[SourceEntry], copy: Iterator[CopyEntry], passed: int = 0) -> int | None:
    """Returns the source offset after the copy's last record, if the copy's records are the source's, one by one; else
    None. `passed`: number of copied records that the copy no longer has. The records that follow prove these, so one
    must then have a time stamp of the source's.
    """
    for _ in islice(source, passed):
        pass
    at, dated = -1, not passed
    for _, wanted in copy:
        entry = next(source, None)
        if entry is None or not wanted.copied_from(entry[1]):
            return None
        at, dated = entry[0], dated or wanted.timestamp_ms is not None
    return at + 1 if at >= 0 and dated else None


def find_tail_offsets(source: Iterable[SourceEntry], tail: Sequence[DatedContent]) -> list[int]:
    """Returns each source offset right after records equal to `tail`."""
    recent: deque[SourceEntry] = deque(maxlen=len(tail))
    offsets: list[int] = []
    for entry in source:
        recent.append(entry)
        # Compares the last one first, since that rarely matches.
        near = len(recent) == len(tail) and tail[-1].copied_from(entry[1])
        if near and all(wanted.copied_from(content) for (_, content), wanted in zip(recent, tail, strict=True)):
            offsets.append(entry[0] + 1)
    return offsets


def usable_offset_syncs(
    notes: Mapping[TopicPartition, list[OffsetSync]], partition: TopicPartition, end: int
) -> list[OffsetSync]:
    """Returns those that a copy with log end `end` allows, latest first."""
    return [note for note in reversed(notes.get(partition, [])) if 0 <= note.target < end and note.source >= 0]
