"""Numbers that grow with each change of a subject, in SQL: whoever follows a subject reads one number, and all the rest
only when that is another one."""

from __future__ import annotations

from sqlalchemy import Connection, select

from twinshore.store.dialects import insert_absent
from twinshore.store.engine import StorePart, reads
from twinshore.store.tables import revisions

LINKS = "links"


def revision_of(connection: Connection, subject: str) -> int:
    """How often the subject was changed."""
    return connection.scalar(select(revisions.c.revision).where(revisions.c.subject == subject)) or 0


def each_of(connection: Connection, prefix: str) -> dict[str, int]:
    """The same of each subject that begins so."""
    found = select(revisions.c.subject, revisions.c.revision).where(
        revisions.c.subject.startswith(prefix, autoescape=True)
    )
    return {row.subject: row.revision for row in connection.execute(found)}


def advance(connection: Connection, subject: str, seen: int) -> bool:
    """One more, in the transaction that changes the subject; False, and nothing done, where it is no longer `seen`."""
    insert_absent(connection, revisions, [{"subject": subject, "revision": 0}])
    as_seen = (revisions.c.subject == subject, revisions.c.revision == seen)
    return connection.execute(revisions.update().where(*as_seen).values(revision=seen + 1)).rowcount == 1


def grow(connection: Connection, subject: str) -> None:
    """One more, in the transaction that changes the subject, whoever else changed it."""
    insert_absent(connection, revisions, [{"subject": subject, "revision": 0}])
    more = revisions.update().where(revisions.c.subject == subject).values(revision=revisions.c.revision + 1)
    connection.execute(more)


class Revisions(StorePart):
    """How often each subject was changed."""

    @reads
    def of(self, connection: Connection, subject: str) -> int:
        """0 before the first change."""
        return revision_of(connection, subject)
