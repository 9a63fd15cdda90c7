"""A few batches, records or offsets of a log, asked for over the cluster's shared connections."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from itertools import chain

from twinshore.fleet import NamedPartition
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.questions import OffsetKind
from twinshore.logs.visible import Aborted, Content, Dated, spans
from twinshore.wire.batch import CONTROL, TIMESTAMP_APPEND, BatchHeader, check_crc, split_batches
from twinshore.wire.records import Record, iter_records
from twinshore.wire.slice import REWRITE_BYTES_MAX

FETCH_BYTES = 4 << 20
# How far below control records the last record is looked for, in offsets.
MARKERS_PASSED = (16, 256, 4096)
Batch = tuple[memoryview, BatchHeader]


def batches(cluster: KafkaCluster, named: NamedPartition, offset: int, end: int, *, committed: bool) -> Iterator[Batch]:
    """The batches that hold offsets from `offset` up to `end`, as far as a consumer may read."""
    for view, header, _ in _fetched(cluster, named, offset, end, committed=committed):
        yield view, header


def bounds(cluster: KafkaCluster, named: NamedPartition) -> tuple[int, int]:
    """Where the log begins and ends."""
    start, end = (cluster.list_offsets([named], kind)[named] for kind in (OffsetKind.EARLIEST, OffsetKind.LOG_END))
    return start, end


def seen_runs(cluster: KafkaCluster, named: NamedPartition, offset: int) -> Iterator[tuple[int, int]]:
    """The offsets [first, end) from `offset` on that a consumer of committed records sees, in order."""
    at = offset
    for view, header, aborted in _fetched(cluster, named, offset, sys.maxsize, committed=True):
        check_crc(view, header)
        yield from ((first, end) for first, end, seen in spans(view, header, at, aborted) if seen)
        at = header.last_offset + 1


def lacking(
    ours: Iterable[tuple[int, int]], theirs: Iterable[tuple[int, int]], begin: int, end: int
) -> list[tuple[int, int]]:
    """Where in [begin, end) one log shows nothing and the other something, by the runs of offsets that they show, in
    order: each is gone through once."""
    found: list[tuple[int, int]] = []
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


def contents(
    cluster: KafkaCluster, named: NamedPartition, offset: int, end: int, *, committed: bool = False
) -> Iterator[tuple[int, Content]]:
    """Offset and content of each record in [offset, end); with `committed`, without those of aborted transactions."""
    for record, _ in _records(cluster, named, offset, end, committed=committed):
        yield record.offset, Content(record.key, record.value, record.headers)


def copies(
    cluster: KafkaCluster, named: NamedPartition, offset: int, end: int, *, committed: bool, theirs: bool
) -> Iterator[tuple[int, Dated]]:
    """As `contents`, with time stamps. `theirs`: as consumers of the source are told them, whoever gave them."""
    for record, by_broker in _records(cluster, named, offset, end, committed=committed):
        told = None if by_broker and not theirs else record.timestamp
        yield record.offset, Dated(Content(record.key, record.value, record.headers), told)


def _records(
    cluster: KafkaCluster, named: NamedPartition, offset: int, end: int, *, committed: bool
) -> Iterator[tuple[Record, bool]]:
    """Each record in [offset, end), and whether its broker gave it its time stamp."""
    for view, header, aborted in _fetched(cluster, named, offset, end, committed=committed):
        hidden = aborted.hides(view, header) if committed else bool(header.attributes & CONTROL)
        for record in () if hidden else iter_records(view, header, limit_bytes=REWRITE_BYTES_MAX):
            if offset <= record.offset < end:
                yield record, bool(header.attributes & TIMESTAMP_APPEND)


def _fetched(
    cluster: KafkaCluster, named: NamedPartition, offset: int, end: int, *, committed: bool
) -> Iterator[tuple[memoryview, BatchHeader, Aborted]]:
    """Each batch that holds offsets from `offset` up to `end`, and what its fetch said of aborted transactions.

    The last fetch may bring some behind `end`.
    """
    while offset < end:
        fetched = cluster.read_from(named, offset, bytes_max=FETCH_BYTES, committed=committed)
        aborted, before = Aborted(fetched.aborted), offset
        for view, header in split_batches(fetched.records):
            if header.last_offset >= offset:
                yield view, header, aborted
                offset = header.last_offset + 1
        if offset == before:
            return


def seen_record(cluster: KafkaCluster, named: NamedPartition, offset: int) -> Content | None:
    """The record at `offset`; None where there is none."""
    found = cluster.read_batch(named, offset)
    if found is None:
        return None
    for record in iter_records(*found, limit_bytes=REWRITE_BYTES_MAX):
        if record.offset == offset:
            return Content(record.key, record.value, record.headers)
    return None


def last_record(cluster: KafkaCluster, named: NamedPartition, low: int, end: int, *, committed: bool = False) -> int:
    """The offset of the last record below `end`, past control records; -1 where there is none, or none near. With
    `committed`, past those of aborted transactions too."""
    for width in MARKERS_PASSED:
        begin = max(low, end - width)
        at = max((offset for offset, _ in contents(cluster, named, begin, end, committed=committed)), default=-1)
        if at >= 0 or begin == low:
            return at
    return -1
