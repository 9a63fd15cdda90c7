"""Positions and receipts in SQL. One call is one transaction and a handful of statements, however many partitions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from sqlalchemy import BindParameter, Connection, RowMapping, bindparam, delete, select

from twinshore.fleet import StoreError
from twinshore.store import extents
from twinshore.store import twins as twin_rows
from twinshore.store.dialects import chunks, insert_absent, put
from twinshore.store.engine import StorePart, reads, writes
from twinshore.store.receipt_rules import (
    CLOSED_ROWS_MAX,
    Progress,
    ReceiptsRefusedError,
    RefusedReceipt,
    advance,
    beyond,
    refusal,
    thinned,
)
from twinshore.store.source_producers import forget_aged, read_producers, record_producers
from twinshore.store.tables import positions, receipts
from twinshore.store.values import PartitionState, Position, Receipt, SourceProducer

Key = tuple[str, str, int]

THINNED_AT_ONCE = 50  # Partitions; the others' turn comes with their next receipts.

# Asked at each record: building these and `put`'s statement anew took a third of its CPU.
_SOME: BindParameter[Any] = bindparam("some", expanding=True)
_IDS = select(positions.c.id, positions.c.topic, positions.c.partition)
_IDS = _IDS.where(positions.c.link == bindparam("of"), positions.c.topic.in_(_SOME))
_ROWS = select(positions).where(positions.c.id.in_(_SOME)).order_by(positions.c.id)
_LOCKED_ROWS = _ROWS.with_for_update()
_OF_POSITION = [one.name for one in fields(Position)]
_OF_RECEIPT = [column.name for column in receipts.columns if column.name != "position_id"]


def record(connection: Connection, given: Sequence[Receipt]) -> None:
    """Records all receipts, or raises ReceiptsRefusedError having recorded none."""
    by_key: dict[Key, list[Receipt]] = {}
    for receipt in sorted(given, key=lambda one: (one.link, one.topic, one.partition, one.from_offset, one.to_offset)):
        by_key.setdefault((receipt.link, receipt.topic, receipt.partition), []).append(receipt)
    # Before positions, as whoever forgets a topic does: so the one waits for the other, and neither is cut in two.
    twin_rows.lock(connection, {(receipt.link, receipt.topic) for receipt in given if receipt.extents})
    before = _locked(connection, by_key)
    after: list[Progress] = []
    closed: list[dict[str, Any]] = []
    fresh: list[tuple[Progress, list[SourceProducer], int]] = []
    refused: list[RefusedReceipt] = []
    for key, chain in by_key.items():
        progress = before[key]
        carried: list[SourceProducer] = []
        for receipt in chain:
            reason = refusal(progress.position, receipt)
            if reason is not None:
                refused.append(RefusedReceipt(receipt, progress.position.to_offset, reason))
                continue
            new = beyond(progress.position, receipt)
            step = advance(progress, new)
            progress = step.progress
            if step.closed is not None:
                closed.append(_closed_row(progress.id, step.closed))
            if step.fresh:
                carried.extend(new.source_producers)
        after.append(progress)
        if carried:
            fresh.append((progress, carried, chain[-1].last_ms))
    if refused:
        raise ReceiptsRefusedError(tuple(refused))
    put(connection, receipts, closed)
    producers = record_producers(connection, fresh)
    rows = [_row(progress, producers.get(progress.id, progress.producers)) for progress in after]
    crowded = [row for row in rows if row["closed_rows"] > _rows_max(row["id"])]
    places = {progress.id: progress.position for progress in after}
    for row in crowded[:THINNED_AT_ONCE]:
        row["closed_rows"] = _thin(connection, row["id"], places[row["id"]])
        row["producers"] -= forget_aged(connection, row["id"], row["last_ms"])
    put(connection, positions, rows)
    extents.record(connection, given)


def _is(key: Key) -> tuple[Any, ...]:
    link, topic, partition = key
    return positions.c.link == link, positions.c.topic == topic, positions.c.partition == partition


def _locked(connection: Connection, by_key: dict[Key, list[Receipt]]) -> dict[Key, Progress]:
    known = _progresses(connection, list(by_key), lock=True)
    unknown = {key: chain[0] for key, chain in by_key.items() if key not in known}
    if unknown:
        insert_absent(connection, positions, [_blank_row(receipt) for receipt in unknown.values()])
        known |= _progresses(connection, list(unknown), lock=True)
    return known


def _progresses(connection: Connection, keys: Sequence[Key], *, lock: bool = False) -> dict[Key, Progress]:
    # First the ids, then the rows by primary key in one order: so two writers wait for each other and never deadlock.
    wanted = set(keys)
    topics: dict[str, set[str]] = {}
    for link, topic, _ in keys:
        topics.setdefault(link, set()).add(topic)
    ids: list[int] = []
    for link, names in topics.items():
        for some in chunks(sorted(names)):
            rows = connection.execute(_IDS, {"of": link, "some": some})
            ids.extend(row.id for row in rows if (link, row.topic, row.partition) in wanted)
    found: dict[Key, Progress] = {}
    for part in chunks(sorted(ids)):
        for row in connection.execute(_LOCKED_ROWS if lock else _ROWS, {"some": part}).mappings():
            progress = _progress(row)
            found[progress.position.link, progress.position.topic, progress.position.partition] = progress
    return found


def _progress(row: RowMapping) -> Progress:
    position = _position(row)
    opened = None
    if row["open_from"] >= 0:
        opened = Receipt(
            link=position.link,
            topic=position.topic,
            partition=position.partition,
            from_offset=row["open_from"],
            to_offset=position.to_offset,
            records=row["open_records"],
            bytes=row["open_bytes"],
            batches=row["open_batches"],
            source_end=position.source_end,
            first_ms=row["open_first_ms"],
            last_ms=row["open_last_ms"],
            lag_records=position.lag_records,
        )
    return Progress(row["id"], position, opened, row["closed_rows"], row["producers"])


def _position(row: RowMapping) -> Position:
    try:
        state = PartitionState(row["state"])
    except ValueError as error:
        place = f"positions, row {row['id']}"
        raise StoreError(f"the store's table {place}: no such state {row['state']!r}", hint="who wrote it?") from error
    return Position(**{name: row[name] for name in _OF_POSITION} | {"state": state})


def _receipt(position: Position, row: RowMapping) -> Receipt:
    values = {name: row[name] for name in _OF_RECEIPT}
    return Receipt(link=position.link, topic=position.topic, partition=position.partition, **values)


def _blank_row(receipt: Receipt) -> dict[str, Any]:
    numbers = [column.name for column in positions.columns if column.name not in ("id", "link", "topic", "state")]
    return {
        **dict.fromkeys(numbers, 0),
        "link": receipt.link,
        "topic": receipt.topic,
        "partition": receipt.partition,
        "start_offset": receipt.from_offset,
        "to_offset": receipt.from_offset,
        "state": PartitionState.FLOWING.value,
        "first_ms": receipt.first_ms,
        "open_from": -1,
        "source_epoch": -1,
    }


def _row(progress: Progress, producers: int) -> dict[str, Any]:
    position, opened = progress.position, progress.open
    return {
        "id": progress.id,
        **{name: getattr(position, name) for name in _OF_POSITION},
        "state": position.state.value,
        "open_from": opened.from_offset if opened else -1,
        "open_records": opened.records if opened else 0,
        "open_bytes": opened.bytes if opened else 0,
        "open_batches": opened.batches if opened else 0,
        "open_first_ms": opened.first_ms if opened else 0,
        "open_last_ms": opened.last_ms if opened else 0,
        "closed_rows": progress.closed_rows,
        "producers": producers,
    }


def _closed_row(row_id: int, receipt: Receipt) -> dict[str, Any]:
    return {"position_id": row_id, **{name: getattr(receipt, name) for name in _OF_RECEIPT}}


def _rows_max(row_id: int) -> int:
    # Partitions begin together; the spread keeps them from being thinned together.
    return CLOSED_ROWS_MAX + row_id % 32


def _thin(connection: Connection, row_id: int, position: Position) -> int:
    query = select(receipts).where(receipts.c.position_id == row_id).order_by(receipts.c.from_offset)
    before = [_receipt(position, row) for row in connection.execute(query).mappings()]
    kept = thinned(before)
    gone = {receipt.from_offset for receipt in before} - {receipt.from_offset for receipt in kept}
    was = set(before)
    put(connection, receipts, [_closed_row(row_id, receipt) for receipt in kept if receipt not in was])
    connection.execute(
        delete(receipts).where(receipts.c.position_id == row_id, receipts.c.from_offset.in_(sorted(gone)))
    )
    return len(kept)


class Receipts(StorePart):
    """What crossed, and how far each partition is."""

    def record(self, given: Sequence[Receipt]) -> None:
        """Records all of them, or raises ReceiptsRefusedError and records none.

        A partition's first receipt says where its receipts begin; each later one begins where the last ended. One that
        lies within what is known already is taken for a repetition and changes nothing; of one that reaches beyond it,
        only what is new counts.
        """
        if given:
            self._database.write(lambda connection: record(connection, given))

    @reads
    def positions(self, connection: Connection, link: str) -> tuple[Position, ...]:
        """How far each partition of the link is receipted, by topic and partition."""
        query = select(positions).where(positions.c.link == link)
        found = connection.execute(query.order_by(positions.c.topic, positions.c.partition)).mappings()
        return tuple(_position(row) for row in found)

    @writes
    def set_state(self, connection: Connection, link: str, topic: str, partition: int, state: PartitionState) -> bool:
        """Marks a partition; False where it has no receipt yet."""
        ours = positions.update().where(*_is((link, topic, partition)))
        return connection.execute(ours.values(state=state.value)).rowcount > 0

    @reads
    def of(
        self,
        connection: Connection,
        link: str,
        topic: str,
        partition: int,
        limit: int = 100,
        *,
        below: int | None = None,
    ) -> tuple[Receipt, ...]:
        """The partition's receipts as rolled up, newest first, without their producers. The next page is what lies
        `below` the last one's first offset."""
        key = (link, topic, partition)
        progress = _progresses(connection, [key]).get(key)
        if progress is None:
            return ()
        query = select(receipts).where(receipts.c.position_id == progress.id)
        if below is not None:
            query = query.where(receipts.c.from_offset < below)
        query = query.order_by(receipts.c.from_offset.desc()).limit(limit)
        older = [_receipt(progress.position, row) for row in connection.execute(query).mappings()]
        last = progress.open
        newest = [last] if last is not None and (below is None or last.from_offset < below) else []
        return tuple([*newest, *older][:limit])

    @reads
    def source_producers(
        self, connection: Connection, link: str, topic: str, partition: int
    ) -> tuple[SourceProducer, ...]:
        """The source's producers of that partition with their last batches; the one that wrote last comes first."""
        row_id = connection.scalar(select(positions.c.id).where(*_is((link, topic, partition))))
        return () if row_id is None else read_producers(connection, row_id)
