"""Where each topic of a pair of clusters is written, in SQL: a row for each topic, and the first one decides."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace

from sqlalchemy import Connection, RowMapping, func, select

from twinshore.fleet.terms import FIRST_TERM
from twinshore.store import audit, twins
from twinshore.store.dialects import insert_absent, storable
from twinshore.store.engine import Database
from twinshore.store.tables import homes
from twinshore.store.values import AuditRow, HomeRow

TOPICS_AT_ONCE = 500  # values in one IN list
_SET_BY_LENGTH = 255


def read(connection: Connection, pair: str) -> dict[str, HomeRow]:
    """The homes of this pair's topics, by topic."""
    rows = connection.execute(select(homes).where(homes.c.pair == pair).order_by(homes.c.topic)).mappings()
    return {row["topic"]: _home(row) for row in rows}


def everywhere(connection: Connection, topics: Iterable[str]) -> tuple[HomeRow, ...]:
    """The homes of these topics in all pairs, by topic and pair."""
    names, found = sorted(set(topics)), list[HomeRow]()
    for start in range(0, len(names), TOPICS_AT_ONCE):
        some = homes.c.topic.in_(names[start : start + TOPICS_AT_ONCE])
        query = select(homes).where(some).order_by(homes.c.topic, homes.c.pair)
        found += [_home(row) for row in connection.execute(query).mappings()]
    return tuple(found)


def version(connection: Connection, pair: str) -> int:
    """Grows with each change: rows are never taken away, and a term only rises."""
    return int(connection.scalar(select(func.sum(homes.c.term)).where(homes.c.pair == pair)) or 0)


def hold(connection: Connection, pair: str, topics: Iterable[str]) -> dict[str, HomeRow]:
    """The homes of these topics, which no other transaction changes until this one ends."""
    names, found = sorted(set(topics)), dict[str, HomeRow]()
    for start in range(0, len(names), TOPICS_AT_ONCE):
        some = homes.c.topic.in_(names[start : start + TOPICS_AT_ONCE])
        query = select(homes).where(homes.c.pair == pair, some).order_by(homes.c.topic).with_for_update()
        found |= {row["topic"]: _home(row) for row in connection.execute(query).mappings()}
    return found


def settle(connection: Connection, rows: Sequence[HomeRow]) -> dict[str, HomeRow]:
    """Gives each topic of one pair its first home, where it has none; the homes that stand afterwards."""
    ordered = sorted((as_stored(replace(row, term=FIRST_TERM)) for row in rows), key=lambda row: row.topic)
    insert_absent(connection, homes, [asdict(row) for row in ordered])
    return hold(connection, ordered[0].pair, [row.topic for row in ordered]) if ordered else {}


def move(
    connection: Connection, row: HomeRow, seen: int, links: Sequence[str], told: Sequence[AuditRow]
) -> HomeRow | None:
    """The topic's home from now on, in the term behind `seen`, the term that stood there (0: none). None, and nothing
    done, where another term stands there, or where one of these links has a twin of the topic."""
    wanted = as_stored(replace(row, term=seen + 1))
    if seen:
        as_seen = (homes.c.pair == row.pair, homes.c.topic == row.topic, homes.c.term == seen)
        if connection.execute(homes.update().where(*as_seen).values(asdict(wanted))).rowcount != 1:
            return None
    else:
        insert_absent(connection, homes, [asdict(wanted)])
    # The row is locked by now: whoever saves a twin holds it first, and sees this home afterwards.
    if hold(connection, row.pair, [row.topic]).get(row.topic) != wanted:
        return None
    if any(one.topic == row.topic for link in links for one in twins.carried(connection, link)):
        raise _HasTwinError
    audit.add(connection, told)
    return wanted


class _HasTwinError(Exception):
    """Ends the transaction, so that the home stays as it was."""


def as_stored(row: HomeRow) -> HomeRow:
    """The row as every database takes it."""
    return replace(row, set_by=storable(row.set_by)[:_SET_BY_LENGTH])


def _home(row: RowMapping) -> HomeRow:
    return HomeRow(**row)


class Homes:
    """The homes of topics that two clusters carry to each other under one name."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def of(self, pair: str) -> dict[str, HomeRow]:
        """The homes of this pair's topics, by topic."""
        return self._database.read(lambda connection: read(connection, pair))

    def everywhere(self, topics: Iterable[str]) -> tuple[HomeRow, ...]:
        """The homes of these topics in all pairs, by topic and pair: each pair has its own."""
        return self._database.read(lambda connection: everywhere(connection, topics))

    def version(self, pair: str) -> int:
        """Grows with each change of this pair's homes; 0 before the first."""
        return self._database.read(lambda connection: version(connection, pair))

    def settle(self, rows: Sequence[HomeRow]) -> dict[str, HomeRow]:
        """What stands for each topic of these rows, all of one pair: itself in the first term, or the home that was
        there first."""
        return self._database.write(lambda connection: settle(connection, rows))

    def now(self, pair: str, topics: Iterable[str]) -> dict[str, HomeRow]:
        """The homes of these topics, once no other transaction is about to change them."""
        wanted = list(topics)
        return self._database.write(lambda connection: hold(connection, pair, wanted))

    def move(
        self, row: HomeRow, *, seen: int, links: Sequence[str] = (), told: Sequence[AuditRow] = ()
    ) -> HomeRow | None:
        """Gives the topic this home in the term behind `seen`, with `told` in the audit. None, and nothing done, where
        another term stands there by now, or where one of these links carries the topic to a twin."""
        try:
            return self._database.write(lambda connection: move(connection, row, seen, links, told))
        except _HasTwinError:
            return None
