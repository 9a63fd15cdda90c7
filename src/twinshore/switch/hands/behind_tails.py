"""Twins that go on behind what never crossed, as mapped twins: nothing of them is deleted, and nothing copied again.

Up to where both homes part each record lies at its own offset, which is the first extent. The next record goes behind
the tail. What is written to the store is one transaction; done twice, the second time nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterator

from twinshore.fleet import KafkaError, NamedPartition, SourceOffset, TargetOffset
from twinshore.fleet.extents import Extent
from twinshore.kafka.cluster import KafkaCluster, OffsetKind
from twinshore.service.clock import wall_ms
from twinshore.store import Store, TwinRow
from twinshore.switch.hands.returned_logs import ours_upto, producers
from twinshore.switch.record import Record
from twinshore.switch.returned import PARTED, from_json, topics_of
from twinshore.wire.batch import next_sequence


def unfit(record: Record, old: KafkaCluster, store: Store) -> str:
    """Why the twins cannot go on so; empty where they can."""
    for tail in from_json(record.tails):
        if tail.beside:
            where = f"where {tail.topic}-{tail.partition} of {record.old} parts from {record.new}"
            return f"{where} is not known, and it may be below the switch: leave --mapped out"
    identity = store.links.identity(record.back)
    if identity is None:
        return f"nobody knows as whom {record.back} writes"
    rows = _rows(record, store)
    seen = old.describe_producers([NamedPartition(row.topic, row.partition) for row in rows]) if rows else {}
    for row in rows:
        for one in seen[NamedPartition(row.topic, row.partition)]:
            if one.producer_id == identity.producer_id and one.epoch < identity.producer_epoch + row.epoch:
                return (
                    f"{record.back} wrote {row.topic} before the switch, and would number it twice: leave --mapped out"
                )
    return ""


def go_on(record: Record, old: KafkaCluster, store: Store) -> tuple[str, ...]:
    """The topics whose twins are mapped from now on."""
    topics = topics_of(from_json(record.tails))
    store.extents.go_on_behind(list(_extents(record, old, store)))
    for row in store.ledger.rows(record.back, open_only=True):
        if row.incident.topic in topics and row.incident.kind in PARTED:
            store.ledger.close(row.id, now_ms=wall_ms(), came_to="the twin goes on behind it, mapped")
    return topics


def _extents(record: Record, old: KafkaCluster, store: Store) -> Iterator[tuple[TwinRow, tuple[Extent, ...]]]:
    identity = store.links.identity(record.back)
    rows = _rows(record, store)
    if identity is None or not rows:
        return
    parts = [NamedPartition(row.topic, row.partition) for row in rows]
    starts, ends = (old.list_offsets(parts, kind) for kind in (OffsetKind.EARLIEST, OffsetKind.LOG_END))
    seen = old.describe_producers(parts)
    firsts = {NamedPartition(one.topic, one.partition): one.first - one.gone for one in from_json(record.tails)}
    carried = {NamedPartition(at.topic, at.partition): at.to_offset for at in store.receipts.positions(record.back)}
    points = {NamedPartition(one.topic, number): at for one in record.topics for number, at in enumerate(one.points)}
    ours = producers(store, record.back)
    for row, named in zip(rows, parts, strict=True):
        if named in firsts:
            parts_at = firsts[named]
        else:
            begin = max(points[named], carried.get(named, -1), starts[named])
            parts_at = _own_upto(old, named, min(begin, ends[named]), ends[named], ours)
        written = [one for one in seen[named] if one.producer_id == identity.producer_id]
        sequence = next_sequence(written[0].last_sequence, 1) if written else 0
        known = Extent(SourceOffset(starts[named]), TargetOffset(starts[named]), max(0, parts_at - starts[named]), 0)
        behind = Extent(SourceOffset(parts_at), TargetOffset(ends[named]), 0, sequence)
        yield row, (known, behind) if known.length else (behind,)


def _own_upto(old: KafkaCluster, named: NamedPartition, begin: int, end: int, ours: Container[int]) -> int:
    """How far a partition that had not parted holds what its home has: whoever wrote there since, the next record goes
    behind that."""
    at, stray = begin, False
    while at < end and not stray:
        upto, stray = ours_upto(old, named, at, end, ours)
        if upto == at and not stray:
            raise KafkaError(f"{old.name}: {named} cannot be read from offset {at} on", retriable=True)
        at = upto
    return at


def _rows(record: Record, store: Store) -> list[TwinRow]:
    """All partitions of the topics that diverged: a twin is mapped as a whole."""
    topics: Collection[str] = topics_of(from_json(record.tails))
    return [row for row in store.twins.of(record.back) if row.topic in topics]
