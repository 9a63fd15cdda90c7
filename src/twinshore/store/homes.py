"""Where each topic of a pair of clusters is written, in SQL: a row for each topic, and the first one decides."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace

from sqlalchemy import Connection, func, select

from twinshore.fleet.terms import FIRST_TERM
from twinshore.store import audit, twins
from twinshore.store.dialects import chunks, insert_absent, storable
from twinshore.store.engine import StorePart, reads, writes
from twinshore.store.tables import homes
from twinshore.store.values import AuditRow, HomeRow

_SET_BY_LENGTH = 255


def hold(connection: Connection, pair: str, topics: Iterable[str]) -> dict[str, HomeRow]:
    """The homes of these topics, which no other transaction changes until this one ends."""
    found: dict[str, HomeRow] = {}
    for some in chunks(sorted(set(topics))):
        query = select(homes).where(homes.c.pair == pair, homes.c.topic.in_(some)).order_by(homes.c.topic)
        rows = connection.execute(query.with_for_update()).mappings()
        found |= {row["topic"]: HomeRow(**row) for row in rows}
    return found


def as_stored(row: HomeRow) -> HomeRow:
    """The row as every database takes it."""
    return replace(row, set_by=storable(row.set_by)[:_SET_BY_LENGTH])


class Homes(StorePart):
    """The homes of topics that two clusters carry to each other under one name."""

    @reads
    def of(self, connection: Connection, pair: str) -> dict[str, HomeRow]:
        """The homes of this pair's topics, by topic."""
        rows = connection.execute(select(homes).where(homes.c.pair == pair).order_by(homes.c.topic)).mappings()
        return {row["topic"]: HomeRow(**row) for row in rows}

    @reads
    def everywhere(self, connection: Connection, topics: Iterable[str]) -> tuple[HomeRow, ...]:
        """The homes of these topics in all pairs, by topic and pair: each pair has its own."""
        found: list[HomeRow] = []
        for some in chunks(sorted(set(topics))):
            query = select(homes).where(homes.c.topic.in_(some)).order_by(homes.c.topic, homes.c.pair)
            found += [HomeRow(**row) for row in connection.execute(query).mappings()]
        return tuple(found)

    @reads
    def version(self, connection: Connection, pair: str) -> int:
        """Grows with each change of this pair's homes, as rows are never taken away and a term only rises; 0 before the
        first."""
        return int(connection.scalar(select(func.sum(homes.c.term)).where(homes.c.pair == pair)) or 0)

    @writes
    def settle(self, connection: Connection, rows: Sequence[HomeRow]) -> dict[str, HomeRow]:
        """What stands for each topic of these rows, all of one pair: itself in the first term, or the home that was
        there first."""
        ordered = sorted((as_stored(replace(row, term=FIRST_TERM)) for row in rows), key=lambda row: row.topic)
        insert_absent(connection, homes, [asdict(row) for row in ordered])
        return hold(connection, ordered[0].pair, [row.topic for row in ordered]) if ordered else {}

    def now(self, pair: str, topics: Iterable[str]) -> dict[str, HomeRow]:
        """The homes of these topics, once no other transaction is about to change them."""
        wanted = list(topics)
        return self._database.write(lambda connection: hold(connection, pair, wanted))

    def move(
        self, row: HomeRow, *, seen: int, links: Sequence[str] = (), told: Sequence[AuditRow] = ()
    ) -> HomeRow | None:
        """Gives the topic this home in the term behind `seen`, the term that stood there (0: none), with `told` in the
        audit. None, and nothing done, where another term stands there by now, or where one of these links carries the
        topic to a twin."""
        try:
            return self._move(as_stored(replace(row, term=seen + 1)), seen, links, told)
        except twins.HasTwinError:
            return None

    @writes
    def _move(
        self, connection: Connection, wanted: HomeRow, seen: int, links: Sequence[str], told: Sequence[AuditRow]
    ) -> HomeRow | None:
        if seen:
            as_seen = (homes.c.pair == wanted.pair, homes.c.topic == wanted.topic, homes.c.term == seen)
            if connection.execute(homes.update().where(*as_seen).values(asdict(wanted))).rowcount != 1:
                return None
        else:
            insert_absent(connection, homes, [asdict(wanted)])
        # The row is locked by now: whoever saves a twin holds it first, and sees this home afterwards.
        if hold(connection, wanted.pair, [wanted.topic]).get(wanted.topic) != wanted:
            return None
        if any(one.topic == wanted.topic for link in links for one in twins.carried(connection, link)):
            raise twins.HasTwinError
        audit.add(connection, told)
        return wanted
