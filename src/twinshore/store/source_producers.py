"""The source's producers in SQL: per partition, the last batches of those that wrote last."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import Connection, delete, or_, select, tuple_

from twinshore.fleet import StoreError
from twinshore.store.dialects import put
from twinshore.store.receipt_rules import (
    PRODUCER_AGE_MS,
    PRODUCERS_MAX,
    PRODUCERS_SLACK,
    Progress,
    last_offset,
    later_batches,
)
from twinshore.store.tables import source_producers
from twinshore.store.values import SourceBatch, SourceProducer

PAIRS = 300
_table = source_producers.c


def record_producers(
    connection: Connection, fresh: Iterable[tuple[Progress, Sequence[SourceProducer], int]]
) -> dict[int, int]:
    """Records each partition's producers, in order of its receipts; how many each partition now has, by row id."""
    gathered: dict[tuple[int, int], SourceProducer] = {}
    last_ms: dict[int, int] = {}
    counts: dict[int, int] = {}
    for progress, producers, now_ms in fresh:
        newest: dict[int, SourceProducer] = {}
        for producer in producers:
            if producer.batches:
                newest[producer.producer_id] = later_batches(newest.get(producer.producer_id), producer)
        by_offset = sorted(newest.values(), key=last_offset)[-PRODUCERS_MAX:]
        gathered |= {(progress.id, producer.producer_id): producer for producer in by_offset}
        last_ms[progress.id] = now_ms
        counts[progress.id] = progress.producers
    before = dict(counts)
    known = _known(connection, sorted(gathered))
    for row_id, _ in gathered.keys() - known.keys():
        counts[row_id] += 1
    rows = []
    for key in sorted(gathered):
        producer = later_batches(known.get(key), gathered[key])
        rows.append(_row(key[0], producer, last_ms[key[0]]))
    put(connection, source_producers, rows)
    for row_id, count in counts.items():
        if count // PRODUCERS_SLACK > before[row_id] // PRODUCERS_SLACK:
            counts[row_id] -= _forget(connection, row_id, last_ms[row_id])
    return counts


def _forget(connection: Connection, row_id: int, now_ms: int) -> int:
    """Forgets those that have written nothing for a day, and all but the ones that wrote last; how many."""
    mine = _table.position_id == row_id
    last = select(_table.last_offset).where(mine).order_by(_table.last_offset.desc())
    oldest_kept = connection.scalar(last.offset(PRODUCERS_MAX - 1).limit(1)) or 0
    over = or_(_table.last_ms < now_ms - PRODUCER_AGE_MS, _table.last_offset < oldest_kept)
    return connection.execute(delete(source_producers).where(mine, over)).rowcount


def _known(connection: Connection, keys: Sequence[tuple[int, int]]) -> dict[tuple[int, int], SourceProducer]:
    found: dict[tuple[int, int], SourceProducer] = {}
    for start in range(0, len(keys), PAIRS):
        some = keys[start : start + PAIRS]
        query = select(source_producers).where(
            _table.position_id.in_(sorted({row_id for row_id, _ in some})),
            tuple_(_table.position_id, _table.producer_id).in_(some),
        )
        for row in connection.execute(query):
            found[row.position_id, row.producer_id] = producer_of(row, f"source_producers, position {row.position_id}")
    return found


def _row(row_id: int, producer: SourceProducer, now_ms: int) -> dict[str, Any]:
    batches = [(one.base_sequence, one.last_sequence, one.base_offset, one.timestamp) for one in producer.batches]
    return {
        "position_id": row_id,
        "producer_id": producer.producer_id,
        "epoch": producer.epoch,
        "last_offset": last_offset(producer),
        "last_ms": now_ms,
        "batches": json.dumps(batches, separators=(",", ":")),
    }


def producer_of(row: Any, place: str) -> SourceProducer:
    """Of a row that has its id, epoch and batches. `place`: the table and what is meant in it, for sentences."""
    try:
        batches = tuple(SourceBatch(*map(int, one)) for one in json.loads(row.batches))
    except (ValueError, TypeError) as error:
        place = f"{place}, producer {row.producer_id}"
        raise StoreError(f"the store's table {place}: batches are not a list of fours") from error
    return SourceProducer(row.producer_id, row.epoch, batches)
