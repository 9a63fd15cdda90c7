"""What operators changed on links while they run, in SQL: named values, and a number that grows with each change."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict

from sqlalchemy import Connection, select

from twinshore.store.audit import add
from twinshore.store.dialects import insert_absent, put
from twinshore.store.engine import Database, Glance, StorePart, T, reads, writes
from twinshore.store.tables import control_versions, controls
from twinshore.store.values import AuditRow, ControlRow


def versions(connection: Connection) -> dict[str, int]:
    """How often the control of each link was changed that was ever changed."""
    found = connection.execute(select(control_versions.c.link, control_versions.c.version))
    return {row.link: row.version for row in found}


def read(connection: Connection, link: str) -> tuple[ControlRow, ...]:
    """What was changed, by name."""
    query = select(controls).where(controls.c.link == link).order_by(controls.c.name)
    return tuple(ControlRow(**row) for row in connection.execute(query).mappings())


def hand_on(connection: Connection, link: str, to: str) -> None:
    """What is said of the link is said of the other one from now on, and of itself no more. Whatever was said of the
    other one in an earlier life of it counts no more."""
    both = sorted((link, to))
    insert_absent(connection, control_versions, [{"link": name, "version": 0} for name in both])
    for name in both:
        # From here on nobody who saw an older version changes anything.
        newer = control_versions.update().where(control_versions.c.link == name)
        connection.execute(newer.values(version=control_versions.c.version + 1))
    said = [{**asdict(row), "link": to} for row in read(connection, link)]
    connection.execute(controls.delete().where(controls.c.link.in_(both)))
    put(connection, controls, said)


class Controls(StorePart):
    """What operators have said of links."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._glance = Glance(database, versions)

    @reads
    def version(self, connection: Connection, link: str) -> int:
        """Grows with each change of the link's control; 0 before the first."""
        query = select(control_versions.c.version).where(control_versions.c.link == link)
        return connection.scalar(query) or 0

    def version_lately(self, link: str) -> int:
        """The same, read once for all who ask within a tenth of a second."""
        return self._glance.now().get(link, 0)

    def of(self, link: str) -> tuple[ControlRow, ...]:
        """What operators have said of the link, by name."""
        return self._database.read(lambda connection: read(connection, link))

    @reads
    def of_each(self, connection: Connection, links: Collection[str]) -> dict[str, tuple[ControlRow, ...]]:
        """The same of many links, in one look."""
        found: dict[str, list[ControlRow]] = {link: [] for link in links}
        query = select(controls).where(controls.c.link.in_(found)).order_by(controls.c.link, controls.c.name)
        for row in connection.execute(query).mappings():
            found[row["link"]].append(ControlRow(**row))
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
        """Whether the version was still `seen` and the rows stand now; None drops a name. The audit is told with it."""
        insert_absent(connection, control_versions, [{"link": link, "version": 0}])
        as_seen = (control_versions.c.link == link, control_versions.c.version == seen)
        if connection.execute(control_versions.update().where(*as_seen).values(version=seen + 1)).rowcount != 1:
            return False
        dropped = [name for name, row in rows.items() if row is None]
        connection.execute(controls.delete().where(controls.c.link == link, controls.c.name.in_(dropped)))
        put(connection, controls, [asdict(row) for row in rows.values() if row is not None])
        add(connection, told)
        return True

    def _write(self, work: Callable[[Connection], T]) -> T:
        return self._glance.write(work)
