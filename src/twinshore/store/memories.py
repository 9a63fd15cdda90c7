"""What a link remembers from one look to the next, in SQL: a row for each thing of a kind."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict

from sqlalchemy import Connection, select

from twinshore.store import audit
from twinshore.store.dialects import put
from twinshore.store.engine import Database
from twinshore.store.tables import memories
from twinshore.store.values import AuditRow, Remembered


def remember(connection: Connection, rows: Iterable[Remembered]) -> None:
    """Each row stands afterwards as given, whatever stood there."""
    put(connection, memories, [{**asdict(row), "item": _item(row.subject)} for row in rows])


def forget(connection: Connection, rows: Iterable[Remembered]) -> None:
    """Drops the rows of these subjects."""
    for row in rows:
        here = (memories.c.link == row.link, memories.c.kind == row.kind, memories.c.item == _item(row.subject))
        connection.execute(memories.delete().where(*here))


def read(connection: Connection, link: str, kind: str | None) -> tuple[Remembered, ...]:
    """What is remembered of a link, by kind and subject."""
    query = select(*(column for column in memories.c if column.name != "item")).where(memories.c.link == link)
    if kind is not None:
        query = query.where(memories.c.kind == kind)
    rows = [Remembered(**row) for row in connection.execute(query).mappings()]
    return tuple(sorted(rows, key=lambda row: (row.kind, row.subject)))


def read_each(connection: Connection, links: Collection[str], kind: str) -> tuple[Remembered, ...]:
    """What is remembered of these links, of one kind, by link and subject."""
    query = select(*(column for column in memories.c if column.name != "item"))
    query = query.where(memories.c.link.in_(links), memories.c.kind == kind)
    rows = [Remembered(**row) for row in connection.execute(query).mappings()]
    return tuple(sorted(rows, key=lambda row: (row.link, row.subject)))


def _item(subject: str) -> str:
    """A key of bounded length: a subject may be longer than some databases let a key be."""
    return hashlib.sha256(subject.encode("utf-8", "replace")).hexdigest()


class Memories:
    """What links remember."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def remember(self, rows: Sequence[Remembered], told: Sequence[AuditRow] = ()) -> None:
        """Each row stands from now on as given; `told` in the audit with it."""

        def write(connection: Connection) -> None:
            remember(connection, rows)
            audit.add(connection, told)

        self._database.write(write)

    def forget(self, rows: Sequence[Remembered], told: Sequence[AuditRow] = ()) -> None:
        """Drops what is remembered of these rows' subjects; `told` in the audit with it."""

        def write(connection: Connection) -> None:
            forget(connection, rows)
            audit.add(connection, told)

        self._database.write(write)

    def of(self, link: str, kind: str | None = None) -> tuple[Remembered, ...]:
        """What is remembered of what follows, by kind and subject."""
        return self._database.read(lambda connection: read(connection, link, kind))

    def of_each(self, links: Collection[str], kind: str) -> tuple[Remembered, ...]:
        """What is remembered of many links, in one look."""
        return self._database.read(lambda connection: read_each(connection, links, kind))
