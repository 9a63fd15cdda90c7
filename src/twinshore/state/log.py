"""SQL of the audit, of states that links keep, and of revisions.

A revision is a number that grows with each change of its subject, so that pollers read one number.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass

from sqlalchemy import Connection, RowMapping, select

from twinshore.state.core.values import AuditRow, LinkStateRow
from twinshore.state.database import StorePart, insert_absent, reads, sanitize_text, upsert, writes
from twinshore.state.tables import ACTOR_LENGTH, GROUP_LENGTH, audit, link_states, revisions

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
    connection.execute(audit.insert(), [_values(row) for row in rows])
    for link, refused in {(row.link, is_refused_outcome(row.outcome)) for row in rows}:
        told = audit.c.outcome.startswith(_REFUSED)
        ours = (audit.c.link == link, told if refused else ~told)
        oldest = connection.scalar(
            select(audit.c.id).where(*ours).order_by(audit.c.id.desc()).offset(AUDIT_ROWS_MAX).limit(1)
        )
        if oldest is not None:
            connection.execute(audit.delete().where(*ours, audit.c.id <= oldest))


def _values(row: AuditRow) -> dict[str, object]:
    values = asdict(row)
    texts = {name: sanitize_text(values[name]) for name in ("subject", "before", "after", "outcome", "topic")}
    group, actor = _group(values.pop("group")), sanitize_text(row.actor)[:ACTOR_LENGTH]
    del values["id"]
    return {**values, **texts, "group_id": group, "actor": actor}


def _group(name: str) -> str:
    # Truncated alike when stored and when queried.
    return sanitize_text(name)[:GROUP_LENGTH]


def _row(row: RowMapping) -> AuditRow:
    values = dict(row)
    return AuditRow(group=values.pop("group_id"), **values)


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
        query = select(audit).order_by(audit.c.id.desc()).limit(limit)
        if wanted.links:
            query = query.where(audit.c.link.in_(wanted.links))
        for name in ("kind", "actor", "topic"):
            if getattr(wanted, name):
                query = query.where(audit.c[name] == getattr(wanted, name))
        if wanted.group:
            query = query.where(audit.c.group_id == _group(wanted.group))
        if wanted.before:
            query = query.where(audit.c.id < wanted.before)
        return tuple(_row(row) for row in connection.execute(query).mappings())


_ROWS = select(*(column for column in link_states.c if column.name != "subject_digest"))


def forget_link_states(connection: Connection, rows: Iterable[LinkStateRow]) -> None:
    for row in rows:
        here = (
            link_states.c.link == row.link,
            link_states.c.kind == row.kind,
            link_states.c.subject_digest == _digest(row.subject),
        )
        connection.execute(link_states.delete().where(*here))


def _digest(subject: str) -> str:
    """Returns a key of bounded length, since a subject may exceed a database's limit for keys."""
    return hashlib.sha256(subject.encode("utf-8", "replace")).hexdigest()


class LinkStateStore(StorePart):
    @writes
    def remember(self, connection: Connection, rows: Sequence[LinkStateRow], told: Sequence[AuditRow] = ()) -> None:
        """Saves the rows, with `told` in the audit."""
        upsert(connection, link_states, [{**asdict(row), "subject_digest": _digest(row.subject)} for row in rows])
        add_audit_rows(connection, told)

    @writes
    def forget(self, connection: Connection, rows: Sequence[LinkStateRow], told: Sequence[AuditRow] = ()) -> None:
        """Deletes the rows, with `told` in the audit."""
        forget_link_states(connection, rows)
        add_audit_rows(connection, told)

    @reads
    def of(self, connection: Connection, link: str, kind: str | None = None) -> tuple[LinkStateRow, ...]:
        """Returns the link's rows, by kind and subject."""
        kinds = () if kind is None else (link_states.c.kind == kind,)
        rows = [
            LinkStateRow(**row)
            for row in connection.execute(_ROWS.where(link_states.c.link == link, *kinds)).mappings()
        ]
        return tuple(sorted(rows, key=lambda row: (row.kind, row.subject)))

    @reads
    def of_each(self, connection: Connection, links: Collection[str], kind: str) -> tuple[LinkStateRow, ...]:
        """Returns many links' rows at once, by link and subject."""
        query = _ROWS.where(link_states.c.link.in_(links), link_states.c.kind == kind)
        rows = [LinkStateRow(**row) for row in connection.execute(query).mappings()]
        return tuple(sorted(rows, key=lambda row: (row.link, row.subject)))


LINKS_SUBJECT = "links"


def read_revision(connection: Connection, subject: str) -> int:
    return connection.scalar(select(revisions.c.revision).where(revisions.c.subject == subject)) or 0


def read_revisions(connection: Connection, prefix: str) -> dict[str, int]:
    found = select(revisions.c.subject, revisions.c.revision).where(
        revisions.c.subject.startswith(prefix, autoescape=True)
    )
    return {row.subject: row.revision for row in connection.execute(found)}


def advance_revision(connection: Connection, subject: str, seen: int) -> bool:
    """Adds one, in the transaction that changes the subject. False, and nothing done, if the revision is not `seen`."""
    insert_absent(connection, revisions, [{"subject": subject, "revision": 0}])
    as_seen = (revisions.c.subject == subject, revisions.c.revision == seen)
    return connection.execute(revisions.update().where(*as_seen).values(revision=seen + 1)).rowcount == 1


def increment_revision(connection: Connection, subject: str) -> None:
    """Adds one, in the transaction that changes the subject."""
    insert_absent(connection, revisions, [{"subject": subject, "revision": 0}])
    more = revisions.update().where(revisions.c.subject == subject).values(revision=revisions.c.revision + 1)
    connection.execute(more)


class Revisions(StorePart):
    @reads
    def of(self, connection: Connection, subject: str) -> int:
        """Returns the revision; 0 before the first change."""
        return read_revision(connection, subject)
