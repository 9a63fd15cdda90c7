"""SQL of links: definition, identity, last status, and what operators changed at run time.

All link rows share one revision, which tells that any has changed. Each link's control has a version.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from sqlalchemy import Connection, select

from twinshore.config.model import is_heartbeats_topic
from twinshore.state import mirrors, sql
from twinshore.state.core.values import AuditRow, ControlRow, LinkIdentity, LinkRow, LinkStatus, twin_naming_of
from twinshore.state.database import Database, SharedRead, StorePart, T, reads, writes
from twinshore.state.log import LINKS_SUBJECT, add_audit_rows, advance_revision, read_revision
from twinshore.state.tables import control_versions, controls, link_identities, link_rows, link_status, store_identity


def read_control_versions(connection: Connection) -> dict[str, int]:
    """Returns the control version of each link that ever had a change."""
    return {row.link: row.version for row in connection.execute(select(control_versions))}


def read_controls(connection: Connection, link: str) -> tuple[ControlRow, ...]:
    query = select(controls).where(controls.c.link == link).order_by(controls.c.name)
    return sql.read_rows(connection, ControlRow, query)


def transfer_controls(connection: Connection, link: str, to: str) -> None:
    """Moves the control rows of `link` to link `to`, replacing rows there."""
    both = sorted((link, to))
    sql.insert_absent(connection, control_versions, [{"link": name, "version": 0} for name in both])
    for name in both:
        # From here on writers that saw an older version are refused.
        sql.swap_row(connection, control_versions, {"link": name}, {"version": control_versions.c.version + 1})
    rows = [sql.values_of(replace(row, link=to)) for row in read_controls(connection, link)]
    connection.execute(controls.delete().where(controls.c.link.in_(both)))
    sql.upsert(connection, controls, rows)


class LinkControls(StorePart):
    """What operators changed on links."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._glance = SharedRead(database, read_control_versions)

    @reads
    def version(self, connection: Connection, link: str) -> int:
        """Returns a number that grows with each change; 0 before the first."""
        query = select(control_versions.c.version).where(control_versions.c.link == link)
        return connection.scalar(query) or 0

    def version_lately(self, link: str) -> int:
        """Returns the version, read once for all callers within a tenth of a second."""
        return self._glance.now().get(link, 0)

    def of(self, link: str) -> tuple[ControlRow, ...]:
        return self._database.read(lambda connection: read_controls(connection, link))

    @reads
    def of_each(self, connection: Connection, links: Collection[str]) -> dict[str, tuple[ControlRow, ...]]:
        found: dict[str, list[ControlRow]] = {link: [] for link in links}
        query = select(controls).where(controls.c.link.in_(found)).order_by(controls.c.link, controls.c.name)
        for row in sql.read_rows(connection, ControlRow, query):
            found[row.link].append(row)
        return {link: tuple(rows) for link, rows in found.items()}

    @writes
    def change(
        self,
        connection: Connection,
        link: str,
        rows: Mapping[str, ControlRow | None],
        *,
        seen: int,
        told: Sequence[AuditRow],
    ) -> bool:
        """Saves the rows, with `told` in the audit, if the version is `seen`; returns whether. None drops a name."""
        sql.insert_absent(connection, control_versions, [{"link": link, "version": 0}])
        if not sql.swap_row(connection, control_versions, {"link": link, "version": seen}, {"version": seen + 1}):
            return False
        dropped = [name for name, row in rows.items() if row is None]
        connection.execute(controls.delete().where(controls.c.link == link, controls.c.name.in_(dropped)))
        sql.upsert(connection, controls, [sql.values_of(row) for row in rows.values() if row is not None])
        add_audit_rows(connection, told)
        return True

    def _write(self, work: Callable[[Connection], T]) -> T:
        return self._glance.write(work)


class LinkStore(StorePart):
    """Identities and statuses of links, and the store's own id."""

    @writes
    def own_id(self, connection: Connection, fresh: str) -> str:
        """Returns the store's id, which the first call sets to `fresh`. Moving or restoring a store keeps its id."""
        sql.insert_absent(connection, store_identity, [{"row": 1, "store_id": fresh}])
        return str(connection.scalar(select(store_identity.c.store_id)))

    def identity(self, link: str) -> LinkIdentity | None:
        """Returns the identity; None before the link's first start."""
        return self._database.read(lambda connection: _identity(connection, link))

    @reads
    def identities(self, connection: Connection) -> tuple[LinkIdentity, ...]:
        return sql.read_rows(connection, LinkIdentity, select(link_identities))

    @writes
    def save_identity(self, connection: Connection, identity: LinkIdentity) -> LinkIdentity:
        """Saves the identity unless there is one; returns the stored one."""
        sql.insert_absent(connection, link_identities, [sql.values_of(identity)])
        return _identity(connection, identity.link) or identity

    @writes
    def replace_identity(self, connection: Connection, identity: LinkIdentity, new: LinkIdentity) -> bool:
        """Replaces the identity if still `identity`; returns whether."""
        return sql.swap_row(connection, link_identities, sql.values_of(identity), sql.values_of(new))

    @writes
    def save_status(self, connection: Connection, status: LinkStatus) -> None:
        sql.upsert(connection, link_status, [sql.values_of(status)])

    @reads
    def statuses(self, connection: Connection) -> tuple[LinkStatus, ...]:
        return sql.read_rows(connection, LinkStatus, select(link_status).order_by(link_status.c.link))


def _identity(connection: Connection, link: str) -> LinkIdentity | None:
    return sql.read_row(connection, LinkIdentity, select(link_identities).where(link_identities.c.link == link))


class LinkRows(StorePart):
    """The definitions of links, removed ones too."""

    @reads
    def read(self, connection: Connection) -> tuple[int, tuple[LinkRow, ...]]:
        """Returns the revision and the rows by name. The rows may be newer than the revision, never older: no change is
        missed.
        """
        revision = read_revision(connection, LINKS_SUBJECT)
        return revision, sql.read_rows(connection, LinkRow, select(link_rows).order_by(link_rows.c.link))

    def change(
        self,
        rows: Sequence[LinkRow],
        *,
        seen: int,
        told: Sequence[AuditRow] = (),
        turned: tuple[str, str] | None = None,
    ) -> bool:
        """Saves the rows at the next revision, with `told` in the audit; returns whether.

        False, and nothing done, where the revision is not `seen`, or a link in `turned` or with a new naming has a twin
        other than of heartbeats. Control rows of the first link in `turned` move to the second.
        """
        try:
            return self._change(rows, seen, told, turned)
        except mirrors.TwinExistsError:
            return False

    @writes
    def _change(
        self,
        connection: Connection,
        rows: Sequence[LinkRow],
        seen: int,
        told: Sequence[AuditRow],
        turned: tuple[str, str] | None,
    ) -> bool:
        if not advance_revision(connection, LINKS_SUBJECT, seen):
            return False
        now = {row.link: twin_naming_of(row.section) for row in rows}
        stored = select(link_rows).where(link_rows.c.link.in_(sorted(now))).order_by(link_rows.c.link)
        known = connection.execute(stored.with_for_update()).all()
        bare = [row.link for row in known if twin_naming_of(row.section) != now[row.link]] + list(turned or ())
        sql.upsert(connection, link_rows, [sql.values_of(replace(row, revision=seen + 1)) for row in rows])
        # The rows are locked by now: saving a twin locks its link's row first, and then finds the link changed.
        if any(not is_heartbeats_topic(row.topic) for link in bare for row in mirrors.read_twins(connection, link)):
            raise mirrors.TwinExistsError
        if turned:
            transfer_controls(connection, *turned)
        add_audit_rows(connection, told)
        return True
