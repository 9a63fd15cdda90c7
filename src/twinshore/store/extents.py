"""Where the records of mapped twins lie, in SQL: neighbours become one row, and either side finds a row by an index.

What comes next follows from the last extent. So whatever writes reads that first, behind the lock of the twin's row: a
stale one would be written over what another transaction has added to it meanwhile.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from sqlalchemy import ColumnElement, Connection, RowMapping, and_, func, select

from twinshore.fleet import SourceOffset, TargetOffset
from twinshore.fleet.extents import SEQUENCES, Extent, follow_on, source_end, target_end
from twinshore.store.dialects import put
from twinshore.store.links import lock_twins
from twinshore.store.tables import extents
from twinshore.store.values import Receipt, TwinRow

Key = tuple[str, str, int]


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
    query = select(extents).where(_is(key)).order_by(extents.c.source.desc()).limit(1)
    row = connection.execute(query).mappings().one_or_none()
    return None if row is None else _extent(row)


def last_of_link(connection: Connection, link: str) -> dict[tuple[str, int], Extent]:
    """The furthest extent of each mapped partition of the link."""
    at = (extents.c.topic, extents.c.partition)
    furthest = select(*at, func.max(extents.c.source).label("source")).where(extents.c.link == link).group_by(*at)
    found = furthest.subquery()
    same = and_(
        extents.c.topic == found.c.topic,
        extents.c.partition == found.c.partition,
        extents.c.source == found.c.source,
    )
    query = select(extents).join(found, same).where(extents.c.link == link)
    return {(row["topic"], row["partition"]): _extent(row) for row in connection.execute(query).mappings()}


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


def trim(
    connection: Connection, link: str, below: Mapping[tuple[str, int], int], told: Collection[tuple[str, int]]
) -> int:
    """Drops extents whose records lie wholly below these offsets of the twins, but never the last; how many. Of those
    in `told` the next extent is known to lie there or behind."""
    lock_twins(connection, ((link, topic) for topic, _ in below))
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


def _is(key: Key) -> ColumnElement[bool]:
    link, topic, partition = key
    return and_(extents.c.link == link, extents.c.topic == topic, extents.c.partition == partition)


def _row(key: Key, extent: Extent) -> dict[str, str | int]:
    link, topic, partition = key
    return {"link": link, "topic": topic, "partition": partition, **extent._asdict()}


def _extent(row: RowMapping) -> Extent:
    return Extent(SourceOffset(row["source"]), TargetOffset(row["target"]), row["length"], row["sequence"])
