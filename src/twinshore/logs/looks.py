"""A few batches, records or offsets of a log, and where many logs end or begin, asked for over the cluster's shared
connections."""

from __future__ import annotations

import sys
import time
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain

from twinshore.fleet import KafkaError, NamedPartition
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.errors import Code
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


# So long topics are asked for one by one after all together could not be answered for; the others stay unseen.
ONE_BY_ONE_S = 6.0


@dataclass(frozen=True, slots=True)
class LogEnds:
    """`gone`: topics that the cluster does not have. `mute`: those that it does not answer for now."""

    of: dict[NamedPartition, int]
    gone: frozenset[str] = frozenset()
    mute: frozenset[str] = frozenset()

    def without(self, topics: Collection[str]) -> LogEnds:
        """These topics count as mute: what they end at says nothing of their twins."""
        found = {named: end for named, end in self.of.items() if named.topic not in topics}
        return LogEnds(found, self.gone, self.mute | {named.topic for named in self.of if named.topic in topics})


def starts_of(cluster: KafkaCluster, topics: Collection[str]) -> dict[NamedPartition, int]:
    """Where the logs of these topics begin: nothing of them has crossed."""
    if not topics:
        return {}
    seen = cluster.metadata(sorted(topics), refresh=True).topics
    parts = [NamedPartition(name, part.partition) for name, topic in seen.items() for part in topic.partitions]
    found, _ = cluster.offsets_of_each(parts, OffsetKind.EARLIEST)
    return {named: found.get(named, 0) for named in parts}


def still_there(cluster: KafkaCluster, parts: Collection[NamedPartition]) -> tuple[NamedPartition, ...]:
    """Those whose topic the cluster has: about one that is deleted every other question takes seconds."""
    topics = sorted({named.topic for named in parts})
    seen = cluster.metadata(topics, refresh=True).topics
    gone = {one for one in topics if one not in seen or seen[one].error == Code.UNKNOWN_TOPIC_OR_PARTITION}
    return tuple(named for named in parts if named.topic not in gone)


def log_ends(
    cluster: KafkaCluster, parts: Collection[NamedPartition], which: OffsetKind = OffsetKind.HIGH_WATERMARK
) -> LogEnds:
    """This end of each log; KafkaError where nobody answers. One topic's trouble leaves it out, and no other."""
    if not parts:
        # Whether it is there at all.
        cluster.metadata([], refresh=True)
        return LogEnds({})
    found, failed = cluster.offsets_of_each(parts, which)
    unknown = {named for named, error in failed.items() if error.code == Code.UNKNOWN_TOPIC_OR_PARTITION}
    mute = frozenset(named.topic for named in failed.keys() - unknown)
    doubtful = _one_by_one(cluster, [named for named in unknown if named.topic not in mute], which)
    return LogEnds(found | doubtful.of, doubtful.gone, doubtful.mute | mute)


def _one_by_one(cluster: KafkaCluster, parts: Iterable[NamedPartition], which: OffsetKind) -> LogEnds:
    by_topic: dict[str, list[NamedPartition]] = {}
    for named in parts:
        by_topic.setdefault(named.topic, []).append(named)
    found: dict[NamedPartition, int] = {}
    gone: set[str] = set()
    mute: set[str] = set()
    until_s = time.monotonic() + ONE_BY_ONE_S
    for topic, ours in by_topic.items():
        if time.monotonic() >= until_s:
            mute.add(topic)
            continue
        try:
            found |= cluster.list_offsets(ours, which)
        except KafkaError as error:
            (gone if error.code == Code.UNKNOWN_TOPIC_OR_PARTITION else mute).add(topic)
    return LogEnds(found, frozenset(gone), frozenset(mute))
