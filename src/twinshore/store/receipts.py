"""Positions and receipts in SQL. One call is one transaction and a handful of statements, however many partitions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

from sqlalchemy import BindParameter, Connection, RowMapping, bindparam, select

from twinshore.fleet import StoreError
from twinshore.store import extents
from twinshore.store import twins as twin_rows
from twinshore.store.dialects import chunks, insert_absent, put
from twinshore.store.engine import StorePart, reads, writes
from twinshore.store.receipt_rules import (
    Progress,
    ReceiptsRefusedError,
    RefusedReceipt,
    advance,
    beyond,
    refusal,
)
from twinshore.store.source_producers import record_producers
from twinshore.store.tables import positions
from twinshore.store.values import PartitionState, Position, Receipt, SourceProducer

Key = tuple[str, str, int]

# Asked at each record: building these and `put`'s statement anew took a third of its CPU.
_SOME: BindParameter[Any] = bindparam("some", expanding=True)
_IDS = select(positions.c.id, positions.c.topic, positions.c.partition)
_IDS = _IDS.where(positions.c.link == bindparam("of"), positions.c.topic.in_(_SOME))
_ROWS = select(positions).where(positions.c.id.in_(_SOME)).order_by(positions.c.id)
_LOCKED_ROWS = _ROWS.with_for_update()
_OF_POSITION = [one.name for one in fields(Position)]


def record(connection: Connection, given: Sequence[Receipt]) -> None:
    """Records all receipts, or raises ReceiptsRefusedError having recorded none."""
    by_key: dict[Key, list[Receipt]] = {}
    for receipt in sorted(given, key=lambda one: (one.link, one.topic, one.partition, one.from_offset, one.to_offset)):
        by_key.setdefault((receipt.link, receipt.topic, receipt.partition), []).append(receipt)
    # Before positions, as whoever forgets a topic does: so the one waits for the other, and neither is cut in two.
    twin_rows.lock(connection, {(receipt.link, receipt.topic) for receipt in given if receipt.extents})
    before = _locked(connection, by_key)
    after: list[Progress] = []
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
            position = advance(progress.position, new)
            if position.to_offset > progress.position.to_offset:
                carried.extend(new.source_producers)
            progress = replace(progress, position=position)
        after.append(progress)
        if carried:
            fresh.append((progress, carried, chain[-1].last_ms))
    if refused:
        raise ReceiptsRefusedError(tuple(refused))
    producers = record_producers(connection, fresh)
    put(connection, positions, [_row(one, producers.get(one.id, one.producers)) for one in after])
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
    return Progress(row["id"], _position(row), row["producers"])


def _position(row: RowMapping) -> Position:
    try:
        state = PartitionState(row["state"])
    except ValueError as error:
        place = f"positions, row {row['id']}"
        raise StoreError(f"the store's table {place}: no such state {row['state']!r}", hint="who wrote it?") from error
    return Position(**{name: row[name] for name in _OF_POSITION} | {"state": state})


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
        "source_epoch": -1,
    }


def _row(progress: Progress, producers: int) -> dict[str, Any]:
    return {
        "id": progress.id,
        **{name: getattr(progress.position, name) for name in _OF_POSITION},
        "state": progress.position.state.value,
        "producers": producers,
    }


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
