"""Where the records of mapped twins lie, in SQL: neighbours become one row, and either side finds a row by an index."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import ColumnElement, Connection, RowMapping, and_, func, select

from twinshore.fleet import SourceOffset, TargetOffset
from twinshore.fleet.extents import SEQUENCES, Extent, follow_on, source_end, target_end
from twinshore.store.dialects import put
from twinshore.store.tables import extents
from twinshore.store.values import Receipt

Key = tuple[str, str, int]


def record(connection: Connection, given: Iterable[Receipt]) -> None:
    """Adds what the receipts say was gained. What is known already changes nothing."""
    gained: dict[Key, list[Extent]] = {}
    for receipt in given:
        if receipt.extents:
            gained.setdefault((receipt.link, receipt.topic, receipt.partition), []).extend(receipt.extents)
    rows = []
    for key, fresh in gained.items():
        rows += [_row(key, one) for one in follow_on(last(connection, key), sorted(fresh))]
    put(connection, extents, rows)


def begin(connection: Connection, key: Key, extent: Extent) -> None:
    """The first extent of a twin; one that has some keeps them."""
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


def trim(connection: Connection, key: Key, below: int) -> int:
    """Drops extents whose records lie wholly below this offset of the twin, but never the last; how many."""
    kept = last(connection, key)
    if kept is None:
        return 0
    old = and_(_is(key), extents.c.target + extents.c.length <= below, extents.c.source < kept.source)
    return connection.execute(extents.delete().where(old)).rowcount


def raise_ground(connection: Connection, key: Key, start: int) -> bool:
    """Where the twin begins behind the furthest extent by now, what comes next goes to `start` or behind it."""
    known = last(connection, key)
    if known is None or target_end(known) >= start:
        return False
    following = (known.sequence + known.length) % SEQUENCES
    put(connection, extents, [_row(key, Extent(source_end(known), TargetOffset(start), 0, following))])
    return True


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
