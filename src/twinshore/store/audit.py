"""What was changed besides records, by whom and how it ended, in SQL."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict

from sqlalchemy import Connection, select

from twinshore.store.dialects import storable
from twinshore.store.engine import Database
from twinshore.store.tables import audit
from twinshore.store.values import AuditRow

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


class Audit:
    """What was changed; the oldest rows of a link give way to the newest."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, rows: Sequence[AuditRow]) -> None:
        """Keeps what was changed and how it ended; the oldest rows of a link give way to the newest."""
        self._database.write(lambda connection: add(connection, rows))

    def rows(self, *links: str, limit: int = 100) -> tuple[AuditRow, ...]:
        """The newest changes of these links together, or of all where none is named, newest first."""
        return self._database.read(lambda connection: read(connection, links or None, limit))
