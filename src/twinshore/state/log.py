"""SQL of the audit, of states that links keep, of revisions, and of live settings.

A revision is a number that grows with each change of its subject, so that pollers read one number.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic

from sqlalchemy import Connection, Table, select

from twinshore.state import sql
from twinshore.state.core.values import AuditRow, LinkStateRow, LiveSettingRow
from twinshore.state.database import StorePart, reads, writes
from twinshore.state.tables import audit, link_states, live_settings, revisions

AUDIT_ROWS_MAX = 10_000  # rows of each link, and as many of refused requests
_REFUSED = "refused: "


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """Selects rows by links, kind, actor, topic and group, where given, and older than the id `before`."""

    links: tuple[str, ...] = ()
    kind: str = ""
    actor: str = ""
    topic: str = ""
    group: str = ""
    before: int = 0


def refused_outcome(why: object) -> str:
    return f"{_REFUSED}{why}"


def is_refused_outcome(outcome: str) -> bool:
    return outcome.startswith(_REFUSED)


def add_audit_rows(connection: Connection, rows: Sequence[AuditRow]) -> None:
    """Adds the rows, and keeps only each link's newest. Refused requests count apart, and displace no change."""
    if not rows:
        return
    connection.execute(audit.insert(), [sql.values_of(row) for row in rows])
    for link, refused in {(row.link, is_refused_outcome(row.outcome)) for row in rows}:
        is_refused = audit.c.outcome.startswith(_REFUSED)
        kept = (audit.c.link == link, is_refused if refused else ~is_refused)
        newest_first = select(audit.c.id).where(*kept).order_by(audit.c.id.desc())
        oldest = connection.scalar(newest_first.offset(AUDIT_ROWS_MAX).limit(1))
        if oldest is not None:
            connection.execute(audit.delete().where(*kept, audit.c.id <= oldest))


class Audit(StorePart):
    """Changes by links and operators. A link's newest rows displace its oldest."""

    def add(self, rows: Sequence[AuditRow]) -> None:
        self._database.write(lambda connection: add_audit_rows(connection, rows))

    def rows(self, *links: str, limit: int = 100) -> tuple[AuditRow, ...]:
        """Returns the newest changes of these links together, or of all, newest first."""
        return self.page(AuditFilter(links), limit=limit)

    @reads
    def page(self, connection: Connection, wanted: AuditFilter, *, limit: int = 100) -> tuple[AuditRow, ...]:
        """Returns the newest matching rows. For the next page, set `before` to the last row's id."""
        query = sql.newest(audit, wanted, "kind", "actor", "topic", "group", limit=limit)
        return sql.read_rows(connection, AuditRow, query)


def forget_link_states(connection: Connection, rows: Iterable[LinkStateRow]) -> None:
    for row in rows:
        key = {"link": row.link, "kind": row.kind, "subject_digest": _digest(row.subject)}
        connection.execute(link_states.delete().filter_by(**key))


def _digest(subject: str) -> str:
    """Returns a key of bounded length, since a subject may exceed a database's limit for keys."""
    return hashlib.sha256(sql.sanitize_text(subject).encode()).hexdigest()


class LinkStateStore(StorePart):
    @writes
    def remember(self, connection: Connection, rows: Sequence[LinkStateRow], told: Sequence[AuditRow] = ()) -> None:
        """Saves the rows, with `told` in the audit."""
        sql.upsert(
            connection, link_states, [{**sql.values_of(row), "subject_digest": _digest(row.subject)} for row in rows]
        )
        add_audit_rows(connection, told)

    @writes
    def forget(self, connection: Connection, rows: Sequence[LinkStateRow], told: Sequence[AuditRow] = ()) -> None:
        """Deletes the rows, with `told` in the audit."""
        forget_link_states(connection, rows)
        add_audit_rows(connection, told)

    @reads
    def of(self, connection: Connection, link: str, kind: str | None = None) -> tuple[LinkStateRow, ...]:
        """Returns the link's rows, by kind and subject."""
        query = select(link_states).where(link_states.c.link == link)
        rows = sql.read_rows(
            connection, LinkStateRow, query if kind is None else query.where(link_states.c.kind == kind)
        )
        return tuple(sorted(rows, key=lambda row: (row.kind, row.subject)))

    @reads
    def of_each(self, connection: Connection, links: Collection[str], kind: str) -> tuple[LinkStateRow, ...]:
        """Returns many links' rows at once, by link and subject."""
        query = select(link_states).where(link_states.c.link.in_(links), link_states.c.kind == kind)
        return tuple(sorted(sql.read_rows(connection, LinkStateRow, query), key=lambda row: (row.link, row.subject)))


LINKS_SUBJECT = "links"


def read_revision(connection: Connection, subject: str) -> int:
    return connection.scalar(select(revisions.c.revision).where(revisions.c.subject == subject)) or 0


def read_revisions(connection: Connection, prefix: str) -> dict[str, int]:
    query = select(revisions).where(revisions.c.subject.startswith(prefix, autoescape=True))
    return {row.subject: row.revision for row in connection.execute(query)}


def advance_revision(connection: Connection, subject: str, seen: int) -> bool:
    """Adds one, in the transaction that changes the subject. False, and nothing done, if the revision is not `seen`."""
    sql.insert_absent(connection, revisions, [{"subject": subject, "revision": 0}])
    return sql.swap_row(connection, revisions, {"subject": subject, "revision": seen}, {"revision": seen + 1})


def increment_revision(connection: Connection, subject: str) -> None:
    """Adds one, in the transaction that changes the subject."""
    sql.insert_absent(connection, revisions, [{"subject": subject, "revision": 0}])
    sql.swap_row(connection, revisions, {"subject": subject}, {"revision": revisions.c.revision + 1})


class Revisions(StorePart):
    @reads
    def of(self, connection: Connection, subject: str) -> int:
        """Returns the revision; 0 before the first change."""
        return read_revision(connection, subject)


SETTINGS_SUBJECT = "live settings"


class RevisedRows(StorePart, Generic[sql.R]):
    """The rows of a table, with one revision for all."""

    subject: str
    kind: type[sql.R]
    table: Table

    @reads
    def revision(self, connection: Connection) -> int:
        return read_revision(connection, self.subject)

    @reads
    def all(self, connection: Connection) -> tuple[int, tuple[sql.R, ...]]:
        """Returns the revision and all rows, by key. The rows may be newer, never older."""
        # First the revision: a change between the two reads is then read again.
        seen = read_revision(connection, self.subject)
        return seen, sql.read_rows(connection, self.kind, select(self.table).order_by(*self.table.primary_key))

    def newer(self, known: int) -> tuple[int, tuple[sql.R, ...]] | None:
        """As `all`; None if the revision is still `known`."""
        return None if self.revision() == known else self.all()


class LiveSettingStore(RevisedRows[LiveSettingRow]):
    """Settings that count before the settings file."""

    subject, kind, table = SETTINGS_SUBJECT, LiveSettingRow, live_settings

    @writes
    def change(
        self,
        connection: Connection,
        rows: Sequence[LiveSettingRow],
        removed: Collection[str],
        *,
        seen: int,
        told: Sequence[AuditRow],
    ) -> bool:
        """Saves the rows and deletes the `removed` keys, with `told` in the audit. False, and nothing done, if settings
        were changed since `seen`.
        """
        if not advance_revision(connection, SETTINGS_SUBJECT, seen):
            return False
        connection.execute(live_settings.delete().where(live_settings.c.key.in_(removed)))
        sql.upsert(connection, live_settings, [sql.values_of(row) for row in rows])
        add_audit_rows(connection, told)
        return True
