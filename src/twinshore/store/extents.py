"""Where the records of mapped twins lie, in SQL: neighbours become one row, and either side finds a row by an index.

What comes next follows from the last extent. So whatever writes reads that first, behind the lock of the twin's row: a
stale one would be written over what another transaction has added to it meanwhile.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, RowMapping, Select, and_, select, union_all

from twinshore.fleet import SourceOffset, TargetOffset
from twinshore.fleet.extents import SEQUENCES, Extent, follow_on, source_end, target_end
from twinshore.store import twins as twin_rows
from twinshore.store.dialects import put
from twinshore.store.engine import Database
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


def begin(connection: Connection, firsts: Sequence[tuple[TwinRow, Extent]]) -> None:
    """The first extents of twins whose rows were saved in this transaction; one that has some keeps them."""
    for row, extent in firsts:
        key = (row.link, row.topic, row.partition)
        if last(connection, key) is None:
            put(connection, extents, [_row(key, extent)])


def last(connection: Connection, key: Key) -> Extent | None:
    """The extent that reaches furthest."""
    row = connection.execute(_last(key)).mappings().one_or_none()
    return None if row is None else _extent(row)


def last_of_link(connection: Connection, link: str) -> dict[tuple[str, int], Extent]:
    """The furthest extent of each mapped partition of the link: each is looked up, as there may be millions of extents
    and this is asked every second."""
    of_twin = and_(*(extents.c[name] == twins.c[name] for name in ("link", "topic", "partition")))
    there = select(extents.c.source).where(of_twin).correlate(twins).exists()
    mapped = connection.execute(select(twins.c.topic, twins.c.partition).where(twins.c.link == link, there)).all()
    found: dict[tuple[str, int], Extent] = {}
    for begin in range(0, len(mapped), LOOKED_UP_AT_ONCE):
        # MariaDB looks a last row up only where the key is given, not where it is another table's.
        some = [(link, topic, partition) for topic, partition in mapped[begin : begin + LOOKED_UP_AT_ONCE]]
        each = [_last(key).subquery().select() for key in some]
        for row in connection.execute(union_all(*each)).mappings():
            found[row["topic"], row["partition"]] = _extent(row)
    return found


def around_source(connection: Connection, key: Key, offset: int) -> tuple[Extent | None, Extent | None]:
    """The extent that begins at this offset of the source or before it, and the next one behind it."""
    return _around(connection, key, extents.c.source, offset)


def around_target(connection: Connection, key: Key, offset: int) -> tuple[Extent | None, Extent | None]:
    """As `around_source`, by an offset of the twin."""
    return _around(connection, key, extents.c.target, offset)


def read(connection: Connection, key: Key, limit: int) -> tuple[Extent, ...]:
    """The partition's furthest extents, in order."""
    query = select(extents).where(_is(key)).order_by(extents.c.source.desc()).limit(limit)
    return tuple(_extent(row) for row in connection.execute(query).mappings())[::-1]


def between(connection: Connection, key: Key, start: int, end: int) -> tuple[Extent, ...]:
    """The extent that begins at `start` of the source or before it, and all behind it that begin below `end`."""
    before, _ = around_source(connection, key, start)
    first = before.source if before else start
    query = select(extents).where(_is(key), extents.c.source >= first, extents.c.source < end)
    rows = connection.execute(query.order_by(extents.c.source)).mappings()
    return tuple(_extent(row) for row in rows)


def borders(connection: Connection, key: Key, start: int, end: int) -> tuple[Extent, ...]:
    """The partition's first and last extent, and those around these two offsets of the twin, in order."""
    first = connection.execute(select(extents).where(_is(key)).order_by(extents.c.source).limit(1)).mappings()
    found = [*map(_extent, first), *around_target(connection, key, start), *around_target(connection, key, end)]
    found.append(last(connection, key))
    # One that grew meanwhile is taken as it was read last.
    return tuple(sorted({one.source: one for one in found if one is not None}.values()))


def trim(
    connection: Connection, link: str, below: Mapping[tuple[str, int], int], told: Collection[tuple[str, int]]
) -> int:
    """Drops extents whose records lie wholly below these offsets of the twins, but never the last; how many. Of those
    in `told` the next extent is known to lie there or behind."""
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


def _raise_ground(connection: Connection, key: Key, start: int) -> None:
    """Where the twin begins behind the furthest extent by now, what comes next goes to `start` or behind it."""
    known = last(connection, key)
    if known is not None and target_end(known) < start:
        following = (known.sequence + known.length) % SEQUENCES
        put(connection, extents, [_row(key, Extent(source_end(known), TargetOffset(start), 0, following))])


def forget(connection: Connection, link: str, topic: str) -> None:
    """Drops all extents of a topic."""
    connection.execute(extents.delete().where(extents.c.link == link, extents.c.topic == topic))


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


class Extents:
    """Where the records of mapped twins lie."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def adopt(self, rows: Sequence[tuple[TwinRow, Extent]]) -> None:
        """Twins that go on behind data of others: each with the extent, still empty, that says from where on."""

        def go_on(connection: Connection) -> None:
            twin_rows.save(connection, [row for row, _ in rows])
            begin(connection, rows)

        self._database.write(go_on)

    def go_on_behind(self, rows: Sequence[tuple[TwinRow, Sequence[Extent]]]) -> None:
        """Exact twins that are mapped from now on: each with what it holds already, and, still empty, the extent that
        says from where on it goes on. One that has extents keeps them."""

        def go_on(connection: Connection) -> None:
            twin_rows.lock(connection, {(row.link, row.topic) for row, _ in rows})
            for row, some in rows:
                key = (row.link, row.topic, row.partition)
                if last(connection, key) is None:
                    put(connection, extents, [_row(key, extent) for extent in some])

        self._database.write(go_on)

    def reached(self, link: str) -> dict[tuple[str, int], Extent]:
        """The furthest extent of each mapped partition of the link, by topic and partition."""
        return self._database.read(lambda connection: last_of_link(connection, link))

    def of(self, link: str, topic: str, partition: int, *, limit: int = 1000) -> tuple[Extent, ...]:
        """The partition's furthest extents, in order."""
        return self._database.read(lambda connection: read(connection, (link, topic, partition), limit))

    def between(self, link: str, topic: str, partition: int, start: int, end: int) -> tuple[Extent, ...]:
        """The extent that begins at `start` of the source or before it, and all behind it that begin below `end`."""
        return self._database.read(lambda connection: between(connection, (link, topic, partition), start, end))

    def borders(self, link: str, topic: str, partition: int, start: int, end: int) -> tuple[Extent, ...]:
        """The partition's first and last extent, and those around these two offsets of the twin, in order: all that
        says from where to where a twin with these borders holds anything."""
        return self._database.read(lambda connection: borders(connection, (link, topic, partition), start, end))

    def around(
        self, link: str, topic: str, partition: int, offset: int, *, on_target: bool = False
    ) -> tuple[Extent | None, Extent | None]:
        """The extent that begins at this offset of the source (of the twin) or before it, and the next behind it: two
        look-ups in an index, however many extents there are."""
        find = around_target if on_target else around_source
        return self._database.read(lambda connection: find(connection, (link, topic, partition), offset))

    def trim(self, link: str, below: Mapping[tuple[str, int], int], *, told: Collection[tuple[str, int]] = ()) -> int:
        """Drops extents wholly below these offsets of the twins, where nothing lies any more; how many. Of partitions
        in `told` all that landed is told: their next extent is known to lie behind that."""

        return self._database.write(lambda connection: trim(connection, link, below, told))
