"""The twins of a link in SQL: a row for each partition, which is also the lock of what is told of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from sqlalchemy import BindParameter, Connection, and_, bindparam, exists, func, or_, select

from twinshore.fleet import ConfigError, Naming
from twinshore.store.dialects import chunks, insert_absent, standing
from twinshore.store.engine import StorePart, reads
from twinshore.store.tables import extents, incidents, key_looks, link_rows, positions, proofs, twins
from twinshore.store.values import LinkState, PartitionState, TwinRow, naming_of

_SOME: BindParameter[Any] = bindparam("some", expanding=True)
_LOCK = select(twins.c.partition).where(twins.c.link == bindparam("of"), twins.c.topic.in_(_SOME))
_LOCK = _LOCK.order_by(*twins.primary_key).with_for_update()


def read(connection: Connection, link: str) -> tuple[TwinRow, ...]:
    """Every twin partition of the link, by topic and partition."""
    query = select(twins).where(twins.c.link == link).order_by(twins.c.topic, twins.c.partition)
    return tuple(TwinRow(**row) for row in connection.execute(query).mappings())


def carried(connection: Connection, link: str) -> tuple[TwinRow, ...]:
    """Those whose topics are not archived."""
    archived = _archived(connection, link)
    return tuple(row for row in read(connection, link) if row.topic not in archived)


def begun(connection: Connection, link: str, topics: Iterable[str]) -> frozenset[str]:
    """Those of the topics that the link has a twin of: quick, where few are asked for often."""
    found: set[str] = set()
    for some in chunks(sorted(set(topics))):
        ours = (twins.c.link == link, twins.c.topic.in_(some))
        found.update(connection.scalars(select(twins.c.topic).where(*ours).distinct()))
    return frozenset(found)


def save(connection: Connection, rows: Sequence[TwinRow], naming: Naming | None = None) -> tuple[TwinRow, ...]:
    """The rows that stand afterwards, in the order given: each its own, or the one that was there first. ConfigError
    where a link of theirs was removed or turned, or has another `naming`: its mirror may not know it yet."""
    _hold_links(connection, {row.link for row in rows}, naming)
    newest = connection.scalar(select(func.max(incidents.c.id))) or 0
    values = [{**asdict(row), "ledger_before": newest} for row in rows]
    return standing(
        lambda: insert_absent(connection, twins, values), lambda: _locked(connection, rows), "the row of a twin"
    )


def lock(connection: Connection, topics: Iterable[tuple[str, str]]) -> None:
    """Until this transaction ends no other one passes here for the same (link, topic): whoever reads extents to write
    them comes this way first. A twin's row is there before its first extent."""
    by_link: dict[str, set[str]] = {}
    for link, topic in topics:
        by_link.setdefault(link, set()).add(topic)
    for link, names in sorted(by_link.items()):
        for some in chunks(sorted(names)):
            connection.execute(_LOCK, {"of": link, "some": some}).all()


def forget(connection: Connection, link: str, topic: str) -> int:
    """Drops the topic's twin and what hangs on it; the ledger and the audit stay. How many partitions were known."""
    # A delete sees what stood when it began: behind the lock, that is all of what others have done.
    lock(connection, [(link, topic)])
    tables = (twins, positions, extents, proofs, key_looks)
    gone = [connection.execute(one.delete().where(one.c.link == link, one.c.topic == topic)) for one in tables]
    return gone[0].rowcount


class HasTwinError(Exception):
    """Ends a transaction that a twin is in the way of, so that all stays as it was."""


def _hold_links(connection: Connection, links: Iterable[str], naming: Naming | None) -> None:
    """Nobody removes, turns or renames these links before this transaction ends; ConfigError where somebody has."""
    ours = link_rows.c.link.in_(sorted(links))
    held = connection.execute(select(link_rows).where(ours).order_by(link_rows.c.link).with_for_update()).all()
    if gone := [row.link for row in held if row.state == LinkState.REMOVED]:
        why = f"{', '.join(gone)} was removed or turned: it makes no twin any more"
        raise ConfigError(why, hint="its mirror ends it by itself, within seconds")
    if other := [row.link for row in held if naming not in (None, naming_of(row.section))]:
        why = f"{', '.join(other)} has another naming by now: it makes no twin under the old one"
        raise ConfigError(why, hint="its mirror takes that up by itself, within seconds")


def _locked(connection: Connection, rows: Sequence[TwinRow]) -> tuple[TwinRow, ...] | None:
    """What stands for each of the rows, and stays so until the transaction ends; None where one of them is gone."""
    lock(connection, {(row.link, row.topic) for row in rows})
    known: dict[tuple[str, str, int], TwinRow] = {}
    for link in {row.link for row in rows}:
        known |= {(row.link, row.topic, row.partition): row for row in read(connection, link)}
    places = [(row.link, row.topic, row.partition) for row in rows]
    return tuple(known[place] for place in places) if all(place in known for place in places) else None


def _archived(connection: Connection, link: str) -> set[str]:
    """Topics of the link whose twins are kept and carried no more."""
    is_archived = (positions.c.link == link, positions.c.state == PartitionState.ARCHIVED.value)
    return set(connection.scalars(select(positions.c.topic).where(*is_archived)))


class Twins(StorePart):
    """The twin partitions of each link."""

    def of(self, link: str) -> tuple[TwinRow, ...]:
        """The link's twin partitions, by topic and partition."""
        return self._database.read(lambda connection: read(connection, link))

    @reads
    def count(self, connection: Connection, link: str) -> int:
        """How many twin partitions the link has: quick, where many are asked for often."""
        return int(connection.execute(select(func.count()).select_from(twins).where(twins.c.link == link)).scalar_one())

    def begun(self, link: str, topics: Iterable[str]) -> frozenset[str]:
        """Those of the topics that the link has a twin of."""
        return self._database.read(lambda connection: begun(connection, link, topics))

    @reads
    def flowing(self, connection: Connection, link: str, topics: Iterable[str]) -> tuple[TwinRow, ...]:
        """Those of these topics that the link carries on as they are, partition by partition: it has not stopped them,
        and has written behind what was there before, which may have been more than that; and they have their sources'
        offsets. Quick, where few are asked for often."""
        found: list[TwinRow] = []
        same = [positions.c[name] == twins.c[name] for name in ("link", "topic", "partition")]
        written = or_(twins.c.inherited == 0, positions.c.to_offset > twins.c.inherited)
        mapped = exists().where(extents.c.link == twins.c.link, extents.c.topic == twins.c.topic)
        on = (twins.c.link == link, positions.c.state == PartitionState.FLOWING.value, written, ~mapped)
        for some in chunks(sorted(set(topics))):
            query = select(twins).join(positions, and_(*same)).where(twins.c.topic.in_(some), *on)
            rows = connection.execute(query.order_by(twins.c.topic, twins.c.partition)).mappings()
            found += [TwinRow(**row) for row in rows]
        return tuple(found)

    def carried(self, link: str) -> tuple[TwinRow, ...]:
        """Those of them that the link still carries: an archived twin is carried no more."""
        return self._database.read(lambda connection: carried(connection, link))

    @reads
    def onto(self, connection: Connection, target_topic_ids: Iterable[str]) -> tuple[TwinRow, ...]:
        """Whose twins these topics of targets are, partition by partition, whatever the link; without archived ones."""
        found: list[TwinRow] = []
        for some in chunks(sorted(set(target_topic_ids))):
            query = select(twins).where(twins.c.target_topic_id.in_(some)).order_by(*twins.primary_key)
            found += [TwinRow(**row) for row in connection.execute(query).mappings()]
        archived = {(link, topic) for link in {row.link for row in found} for topic in _archived(connection, link)}
        return tuple(row for row in found if (row.link, row.topic) not in archived)

    def save(self, rows: Sequence[TwinRow], naming: Naming | None = None) -> tuple[TwinRow, ...]:
        """What stands now for each of the rows: itself, or the one that was there first. `naming`: by which they are
        called; None where their names are not new."""
        return self._database.write(lambda connection: save(connection, rows, naming))
