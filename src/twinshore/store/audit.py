"""What a link changed on its target besides records, and what it remembers of what follows, in SQL."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict

from sqlalchemy import Connection, select

from twinshore.store.dialects import put, storable
from twinshore.store.tables import audit, followed
from twinshore.store.values import AuditRow, Followed

AUDIT_KEPT = 10_000  # rows of each link, and as many of what was refused
REFUSED = "refused: "  # how the outcome of such a row begins


def add(connection: Connection, rows: Sequence[AuditRow]) -> None:
    """Adds the rows; of each link only the newest are kept. What was refused pushes nothing out that was done."""
    if not rows:
        return
    texts = ("subject", "before", "after", "outcome")
    values = [{**asdict(row), **{name: storable(getattr(row, name)) for name in texts}} for row in rows]
    connection.execute(audit.insert(), values)
    for link, refused in {(row.link, row.outcome.startswith(REFUSED)) for row in rows}:
        told = audit.c.outcome.startswith(REFUSED)
        ours = (audit.c.link == link, told if refused else ~told)
        oldest = connection.scalar(
            select(audit.c.id).where(*ours).order_by(audit.c.id.desc()).offset(AUDIT_KEPT).limit(1)
        )
        if oldest is not None:
            connection.execute(audit.delete().where(*ours, audit.c.id <= oldest))


def read(connection: Connection, links: Collection[str] | None, limit: int) -> tuple[AuditRow, ...]:
    """The newest rows of these links together, or of all, newest first."""
    query = select(*(column for column in audit.c if column.name != "id")).order_by(audit.c.id.desc()).limit(limit)
    if links is not None:
        query = query.where(audit.c.link.in_(links))
    return tuple(AuditRow(**row) for row in connection.execute(query).mappings())


def remember(connection: Connection, rows: Iterable[Followed]) -> None:
    """Each row stands afterwards as given, whatever stood there."""
    put(connection, followed, [{**asdict(row), "item": _item(row.subject)} for row in rows])


def forget(connection: Connection, rows: Iterable[Followed]) -> None:
    """Drops the rows of these subjects."""
    for row in rows:
        here = (followed.c.link == row.link, followed.c.kind == row.kind, followed.c.item == _item(row.subject))
        connection.execute(followed.delete().where(*here))


def read_followed(connection: Connection, link: str, kind: str | None) -> tuple[Followed, ...]:
    """What is remembered of a link, by kind and subject."""
    query = select(*(column for column in followed.c if column.name != "item")).where(followed.c.link == link)
    if kind is not None:
        query = query.where(followed.c.kind == kind)
    rows = [Followed(**row) for row in connection.execute(query).mappings()]
    return tuple(sorted(rows, key=lambda row: (row.kind, row.subject)))


def _item(subject: str) -> str:
    """A key of bounded length: a subject may be longer than some databases let a key be."""
    return hashlib.sha256(subject.encode("utf-8", "replace")).hexdigest()
