"""SQL of progress: positions, and the last batches of recent producers on the source. One call is one transaction and a
handful of statements, for any number of partitions.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import astuple, replace
from typing import Any

from sqlalchemy import BindParameter, Connection, bindparam, delete, or_, select, tuple_

from twinshore.config.errors import StoreError
from twinshore.state import mirrors, sql
from twinshore.state.core.progress_rules import (
    PRODUCER_AGE_MS,
    PRODUCERS_PER_PARTITION_MAX,
    PRODUCERS_SLACK,
    ProgressRefusedError,
    RefusedProgress,
    StoredPosition,
    advance_position,
    last_offset,
    merge_batches,
    new_part,
    refusal_reason,
)
from twinshore.state.core.values import (
    PartitionKey,
    PartitionState,
    ProgressRecord,
    ReplicatedPosition,
    SourceBatch,
    SourceProducer,
    key_of,
)
from twinshore.state.database import StorePart, reads, writes
from twinshore.state.tables import PARTITION, positions, source_producers

KEYS_PER_QUERY = 300
# Used by each `record`: building these and the upsert statement each time took a third of its CPU.
_SOME: BindParameter[Any] = bindparam("some", expanding=True)
_IDS = select(positions.c.id, positions.c.topic, positions.c.partition)
_IDS = _IDS.where(positions.c.link == bindparam("of"), positions.c.topic.in_(_SOME))
_ROWS = select(positions).where(positions.c.id.in_(_SOME)).order_by(positions.c.id).with_for_update()
_WROTE = source_producers.c


def record_progress(connection: Connection, records: Sequence[ProgressRecord]) -> None:
    """Records all progress; or raises ProgressRefusedError, having recorded none."""
    by_key: dict[PartitionKey, list[ProgressRecord]] = {}
    for record in sorted(records, key=lambda record: (*key_of(record), record.from_offset, record.to_offset)):
        by_key.setdefault(key_of(record), []).append(record)
    # Lock twins before positions, as forgetting a topic does: so one waits for the other as a whole.
    mirrors.lock_twins(connection, {(record.link, record.topic) for record in records if record.offset_runs})
    before = _locked(connection, {key: chain[0] for key, chain in by_key.items()})
    after: list[StoredPosition] = []
    fresh: list[tuple[StoredPosition, list[SourceProducer], int]] = []
    refused: list[RefusedProgress] = []
    for key, chain in by_key.items():
        progress = before[key]
        carried: list[SourceProducer] = []
        for record in chain:
            reason = refusal_reason(progress.position, record)
            if reason is not None:
                refused.append(RefusedProgress(record, progress.position.to_offset, reason))
                continue
            new = new_part(progress.position, record)
            position = advance_position(progress.position, new)
            if position.to_offset > progress.position.to_offset:
                carried.extend(new.source_producers)
            progress = replace(progress, position=position)
        after.append(progress)
        if carried:
            fresh.append((progress, carried, chain[-1].last_ms))
    if refused:
        raise ProgressRefusedError(tuple(refused))
    producers = _record_producers(connection, fresh)
    sql.upsert(connection, positions, [_row(stored, producers.get(stored.id, stored.producers)) for stored in after])
    mirrors.record_runs(connection, records)


def _locked(connection: Connection, first: dict[PartitionKey, ProgressRecord]) -> dict[PartitionKey, StoredPosition]:
    """The stored positions, locked until the transaction ends. A partition's `first` record begins an unknown one."""
    known = _progresses(connection, first)
    unknown = {key: record for key, record in first.items() if key not in known}
    if unknown:
        sql.insert_absent(connection, positions, [_blank_row(record) for record in unknown.values()])
        known |= _progresses(connection, unknown)
    return known


def _progresses(connection: Connection, keys: Collection[PartitionKey]) -> dict[PartitionKey, StoredPosition]:
    # First the ids, then the rows by primary key in one order: so two writers wait for each other and never deadlock.
    wanted = set(keys)
    topics: dict[str, set[str]] = {}
    for link, topic, _ in keys:
        topics.setdefault(link, set()).add(topic)
    ids: list[int] = []
    for link, names in topics.items():
        for some in sql.chunks(sorted(names)):
            rows = connection.execute(_IDS, {"of": link, "some": some})
            ids.extend(row.id for row in rows if (link, row.topic, row.partition) in wanted)
    found: dict[PartitionKey, StoredPosition] = {}
    for part in sql.chunks(sorted(ids)):
        for row in connection.execute(_ROWS, {"some": part}).mappings():
            position = sql.row_of(ReplicatedPosition, row)
            found[key_of(position)] = StoredPosition(row["id"], position, row["producers"])
    return found


def _blank_row(record: ProgressRecord) -> dict[str, Any]:
    numbers = [column.name for column in positions.columns if column.name not in ("id", "link", "topic", "state")]
    return {
        **dict.fromkeys(numbers, 0),
        **dict(zip(PARTITION, key_of(record), strict=True)),
        "start_offset": record.from_offset,
        "to_offset": record.from_offset,
        "state": PartitionState.FLOWING.value,
        "first_ms": record.first_ms,
        "source_epoch": -1,
    }


def _row(stored: StoredPosition, producers: int) -> dict[str, Any]:
    return {"id": stored.id, **sql.values_of(stored.position), "producers": producers}


def _record_producers(
    connection: Connection, fresh: Iterable[tuple[StoredPosition, Sequence[SourceProducer], int]]
) -> dict[int, int]:
    """Returns the number of producers that each partition now has, by row id."""
    gathered: dict[tuple[int, int], SourceProducer] = {}
    last_ms: dict[int, int] = {}
    counts: dict[int, int] = {}
    for progress, producers, now_ms in fresh:
        newest: dict[int, SourceProducer] = {}
        for producer in producers:
            if producer.batches:
                newest[producer.producer_id] = merge_batches(newest.get(producer.producer_id), producer)
        by_offset = sorted(newest.values(), key=last_offset)[-PRODUCERS_PER_PARTITION_MAX:]
        gathered |= {(progress.id, producer.producer_id): producer for producer in by_offset}
        last_ms[progress.id] = now_ms
        counts[progress.id] = progress.producers
    before = dict(counts)
    known = _known_producers(connection, sorted(gathered))
    for row_id, _ in gathered.keys() - known.keys():
        counts[row_id] += 1
    rows = []
    for key in sorted(gathered):
        producer = merge_batches(known.get(key), gathered[key])
        rows.append(_producer_row(key[0], producer, last_ms[key[0]]))
    sql.upsert(connection, source_producers, rows)
    for row_id, count in counts.items():
        if count // PRODUCERS_SLACK > before[row_id] // PRODUCERS_SLACK:
            counts[row_id] -= _forget(connection, row_id, last_ms[row_id])
    return counts


def _forget(connection: Connection, row_id: int, now_ms: int) -> int:
    """Deletes producers idle for a day, and all but the most recent; returns how many."""
    mine = _WROTE.position_id == row_id
    last = select(_WROTE.last_offset).where(mine).order_by(_WROTE.last_offset.desc())
    oldest_kept = connection.scalar(last.offset(PRODUCERS_PER_PARTITION_MAX - 1).limit(1)) or 0
    over = or_(_WROTE.last_ms < now_ms - PRODUCER_AGE_MS, _WROTE.last_offset < oldest_kept)
    return connection.execute(delete(source_producers).where(mine, over)).rowcount


def _known_producers(connection: Connection, keys: Sequence[tuple[int, int]]) -> dict[tuple[int, int], SourceProducer]:
    found: dict[tuple[int, int], SourceProducer] = {}
    for some in sql.chunks(keys, KEYS_PER_QUERY):
        query = select(source_producers).where(
            _WROTE.position_id.in_(sorted({row_id for row_id, _ in some})),
            tuple_(_WROTE.position_id, _WROTE.producer_id).in_(some),
        )
        for row in connection.execute(query):
            place = f"source_producers, position {row.position_id}"
            found[row.position_id, row.producer_id] = parse_producer(row, place)
    return found


def _producer_row(row_id: int, producer: SourceProducer, now_ms: int) -> dict[str, Any]:
    batches = [astuple(batch) for batch in producer.batches]
    return {
        "position_id": row_id,
        "producer_id": producer.producer_id,
        "epoch": producer.epoch,
        "last_offset": last_offset(producer),
        "last_ms": now_ms,
        "batches": json.dumps(batches, separators=(",", ":")),
    }


def parse_producer(row: Any, place: str) -> SourceProducer:
    """Parses a row with producer id, epoch and batches. `place`: table and row, for error sentences."""
    try:
        batches = tuple(SourceBatch(*map(int, one)) for one in json.loads(row.batches))
    except (ValueError, TypeError) as error:
        place = f"{place}, producer {row.producer_id}"
        raise StoreError("state.invalid-row", place=place, cause="batches are not a list of fours") from error
    return SourceProducer(row.producer_id, row.epoch, batches)


class ProgressStore(StorePart):
    def record(self, records: Sequence[ProgressRecord]) -> None:
        """Records all progress; or raises ProgressRefusedError, having recorded none.

        A partition's first record sets its start offset; each later one begins where the last ended. A record within
        the known range is a repetition and changes nothing. Of one that reaches beyond, only the new part counts.
        """
        if records:
            self._database.write(lambda connection: record_progress(connection, records))

    @reads
    def positions(self, connection: Connection, link: str) -> tuple[ReplicatedPosition, ...]:
        query = select(positions).where(positions.c.link == link)
        return sql.read_rows(connection, ReplicatedPosition, query.order_by(positions.c.topic, positions.c.partition))

    @writes
    def set_state(self, connection: Connection, link: str, topic: str, partition: int, state: PartitionState) -> bool:
        """Sets a partition's state; False where the partition has no progress yet."""
        key = dict(zip(PARTITION, (link, topic, partition), strict=True))
        return sql.swap_row(connection, positions, key, {"state": state.value})
