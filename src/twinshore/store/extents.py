"""Where the records of mapped twins lie, in SQL: neighbours become one row, and either side finds a row by an index.

What comes next follows from the last extent. So whatever writes reads that first, behind the lock of the twin's row: a
stale one would be written over what another transaction has added to it meanwhile.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, RowMapping, Select, and_, select, union_all

from twinshore.fleet import Naming, SourceOffset, TargetOffset
from twinshore.fleet.extents import SEQUENCES, Extent, follow_on, source_end, target_end
from twinshore.store import twins as twin_rows
from twinshore.store.dialects import chunks, put
from twinshore.store.engine import StorePart, reads, writes
from twinshore.store.tables import extents, twins
from twinshore.store.values import Receipt, TwinRow

Key = tuple[str, str, int]
LOOKED_UP_AT_ONCE = 100


def record(connection: Connection, given: Iterable[Receipt]) -> None:
    """Adds what the receipts say was gained, behind the lock of their twins. What is known already changes nothing."""
    gained: dict[Key, list[Extent]] = {}
    for receipt in given:
        if receipt.extents:
            gained.setdefault((receipt.link, receipt.topic, receipt.partition), []).extend(receipt.extents)
    rows = []
    for key, fresh in gained.items():
        rows += [_row(key, one) for one in follow_on(last(connection, key), sorted(fresh))]
    put(connection, extents, rows)


def _begin(connection: Connection, rows: Iterable[tuple[TwinRow, Sequence[Extent]]]) -> None:
    for row, some in rows:
        key = (row.link, row.topic, row.partition)
        if last(connection, key) is None:
            put(connection, extents, [_row(key, extent) for extent in some])


def last(connection: Connection, key: Key) -> Extent | None:
    """The extent that reaches furthest."""
    row = connection.execute(_last(key)).mappings().one_or_none()
    return None if row is None else _extent(row)


def _raise_ground(connection: Connection, key: Key, start: int) -> None:
    """Where the twin begins behind the furthest extent by now, what comes next goes to `start` or behind it."""
    known = last(connection, key)
    if known is not None and target_end(known) < start:
        following = (known.sequence + known.length) % SEQUENCES
        put(connection, extents, [_row(key, Extent(source_end(known), TargetOffset(start), 0, following))])


def _around(
    connection: Connection, key: Key, column: ColumnElement[int], offset: int
) -> tuple[Extent | None, Extent | None]:
    before = select(extents).where(_is(key), column <= offset).order_by(column.desc(), extents.c.source.desc())
    behind = select(extents).where(_is(key), column > offset).order_by(column, extents.c.source)
    # What lies behind is asked first: extents only grow and follow one another, so a newer "before" belongs to an
    # older "behind", whereas an older one would end too early where a receipt comes in between.
    later, earlier = (connection.execute(query.limit(1)).mappings().one_or_none() for query in (behind, before))
    return (None if earlier is None else _extent(earlier), None if later is None else _extent(later))


def _last(key: Key) -> Select[Any]:
    return select(extents).where(_is(key)).order_by(extents.c.source.desc()).limit(1)


def _is(key: Key) -> ColumnElement[bool]:
    link, topic, partition = key
    return and_(extents.c.link == link, extents.c.topic == topic, extents.c.partition == partition)


def _row(key: Key, extent: Extent) -> dict[str, str | int]:
    link, topic, partition = key
    return {"link": link, "topic": topic, "partition": partition, **extent._asdict()}


def _extent(row: RowMapping) -> Extent:
    return Extent(SourceOffset(row["source"]), TargetOffset(row["target"]), row["length"], row["sequence"])


class Extents(StorePart):
    """Where the records of mapped twins lie."""

    @writes
    def adopt(
        self, connection: Connection, rows: Sequence[tuple[TwinRow, Extent]], naming: Naming | None = None
    ) -> None:
        """Twins that go on behind data of others: each with the extent, still empty, that says from where on. One that
        has extents keeps them. `naming`: as twins are saved."""
        twin_rows.save(connection, [row for row, _ in rows], naming)
        _begin(connection, [(row, [first]) for row, first in rows])

    @writes
    def go_on_behind(self, connection: Connection, rows: Sequence[tuple[TwinRow, Sequence[Extent]]]) -> None:
        """Exact twins that are mapped from now on: each with what it holds already, and, still empty, the extent that
        says from where on it goes on. One that has extents keeps them."""
        twin_rows.lock(connection, {(row.link, row.topic) for row, _ in rows})
        _begin(connection, rows)

    @reads
    def reached(self, connection: Connection, link: str) -> dict[tuple[str, int], Extent]:
        """The furthest extent of each mapped partition of the link, by topic and partition: each is looked up, as there
        may be millions of extents and this is asked every second."""
        of_twin = and_(*(extents.c[name] == twins.c[name] for name in ("link", "topic", "partition")))
        there = select(extents.c.source).where(of_twin).correlate(twins).exists()
        mapped = connection.execute(select(twins.c.topic, twins.c.partition).where(twins.c.link == link, there)).all()
        found: dict[tuple[str, int], Extent] = {}
        for some in chunks(mapped, LOOKED_UP_AT_ONCE):
            # MariaDB looks a last row up only where the key is given, not where it is another table's.
            each = [_last((link, topic, partition)).subquery().select() for topic, partition in some]
            for row in connection.execute(union_all(*each)).mappings():
                found[row["topic"], row["partition"]] = _extent(row)
        return found

    @reads
    def of(
        self, connection: Connection, link: str, topic: str, partition: int, *, limit: int = 1000
    ) -> tuple[Extent, ...]:
        """The partition's furthest extents, in order."""
        query = select(extents).where(_is((link, topic, partition))).order_by(extents.c.source.desc()).limit(limit)
        return tuple(_extent(row) for row in connection.execute(query).mappings())[::-1]

    @reads
    def between(
        self, connection: Connection, link: str, topic: str, partition: int, start: int, end: int
    ) -> tuple[Extent, ...]:
        """The extent that begins at `start` of the source or before it, and all behind it that begin below `end`."""
        key = (link, topic, partition)
        before, _ = _around(connection, key, extents.c.source, start)
        first = before.source if before else start
        query = select(extents).where(_is(key), extents.c.source >= first, extents.c.source < end)
        return tuple(_extent(row) for row in connection.execute(query.order_by(extents.c.source)).mappings())

    @reads
    def borders(
        self, connection: Connection, link: str, topic: str, partition: int, start: int, end: int
    ) -> tuple[Extent, ...]:
        """The partition's first and last extent, and those around these two offsets of the twin, in order: all that
        says from where to where a twin with these borders holds anything."""
        key = (link, topic, partition)
        first = connection.execute(select(extents).where(_is(key)).order_by(extents.c.source).limit(1)).mappings()
        found = [*map(_extent, first)]
        for offset in (start, end):
            found += filter(None, _around(connection, key, extents.c.target, offset))
        found += filter(None, [last(connection, key)])
        # One that grew meanwhile is taken as it was read last.
        return tuple(sorted({one.source: one for one in found}.values()))

    @reads
    def around(
        self, connection: Connection, link: str, topic: str, partition: int, offset: int, *, on_target: bool = False
    ) -> tuple[Extent | None, Extent | None]:
        """The extent that begins at this offset of the source (of the twin) or before it, and the next behind it: two
        look-ups in an index, however many extents there are."""
        column = extents.c.target if on_target else extents.c.source
        return _around(connection, (link, topic, partition), column, offset)

    @writes
    def trim(
        self,
        connection: Connection,
        link: str,
        below: Mapping[tuple[str, int], int],
        *,
        told: Collection[tuple[str, int]] = (),
    ) -> int:
        """Drops extents wholly below these offsets of the twins, where nothing lies any more, but never the last; how
        many. Of partitions in `told` all that landed is told: their next extent is known to lie there or behind."""
        twin_rows.lock(connection, ((link, topic) for topic, _ in below))
        dropped = 0
        for place, start in below.items():
            key = (link, *place)
            if place in told:
                _raise_ground(connection, key, start)
            kept = last(connection, key)
            if kept is not None:
                gone = extents.c.target + extents.c.length <= start
                old = and_(_is(key), gone, extents.c.source < kept.source)
                dropped += connection.execute(extents.delete().where(old)).rowcount
        return dropped
