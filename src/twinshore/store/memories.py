"""What a link remembers from one look to the next, in SQL: a row for each thing of a kind."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict

from sqlalchemy import Connection, select

from twinshore.store import audit
from twinshore.store.dialects import put
from twinshore.store.engine import StorePart, reads, writes
from twinshore.store.tables import memories
from twinshore.store.values import AuditRow, Remembered

_ROWS = select(*(column for column in memories.c if column.name != "item"))


def forget(connection: Connection, rows: Iterable[Remembered]) -> None:
    """Drops the rows of these subjects."""
    for row in rows:
        here = (memories.c.link == row.link, memories.c.kind == row.kind, memories.c.item == _item(row.subject))
        connection.execute(memories.delete().where(*here))


def _item(subject: str) -> str:
    """A key of bounded length: a subject may be longer than some databases let a key be."""
    return hashlib.sha256(subject.encode("utf-8", "replace")).hexdigest()


class Memories(StorePart):
    """What links remember."""

    @writes
    def remember(self, connection: Connection, rows: Sequence[Remembered], told: Sequence[AuditRow] = ()) -> None:
        """Each row stands from now on as given; `told` in the audit with it."""
        put(connection, memories, [{**asdict(row), "item": _item(row.subject)} for row in rows])
        audit.add(connection, told)

    @writes
    def forget(self, connection: Connection, rows: Sequence[Remembered], told: Sequence[AuditRow] = ()) -> None:
        """Drops what is remembered of these rows' subjects; `told` in the audit with it."""
        forget(connection, rows)
        audit.add(connection, told)

    @reads
    def of(self, connection: Connection, link: str, kind: str | None = None) -> tuple[Remembered, ...]:
        """What is remembered of what follows, by kind and subject."""
        kinds = () if kind is None else (memories.c.kind == kind,)
        rows = [
            Remembered(**row) for row in connection.execute(_ROWS.where(memories.c.link == link, *kinds)).mappings()
        ]
        return tuple(sorted(rows, key=lambda row: (row.kind, row.subject)))

    @reads
    def of_each(self, connection: Connection, links: Collection[str], kind: str) -> tuple[Remembered, ...]:
        """What is remembered of many links, of one kind, in one look; by link and subject."""
        query = _ROWS.where(memories.c.link.in_(links), memories.c.kind == kind)
        rows = [Remembered(**row) for row in connection.execute(query).mappings()]
        return tuple(sorted(rows, key=lambda row: (row.link, row.subject)))
