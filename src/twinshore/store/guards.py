"""Who is kept from writing to the twins of a cluster, in SQL: one row for each cluster, written under its lease."""

from __future__ import annotations

from dataclasses import asdict, replace

from sqlalchemy import Connection, select

from twinshore.store import leases
from twinshore.store.dialects import put, storable
from twinshore.store.engine import Database
from twinshore.store.switch_tables import guards
from twinshore.store.switch_values import GuardRow
from twinshore.store.values import LeaseRow


def read(connection: Connection, cluster: str) -> GuardRow | None:
    row = connection.execute(select(guards).where(guards.c.cluster == cluster)).mappings().one_or_none()
    return None if row is None else GuardRow(**row)


class Guards:
    """The guards that stand on clusters, or stood there."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def of(self, cluster: str) -> GuardRow | None:
        """The cluster's guard."""
        return self._database.read(lambda connection: read(connection, cluster))

    def save(self, row: GuardRow, lease: LeaseRow) -> bool:
        """The cluster's guard from now on, only while this lease is held; else False, and nothing is done: whoever was
        paused for longer does not undo what another has written since."""

        def write(connection: Connection) -> bool:
            if not leases.hold(connection, lease):
                return False
            put(connection, guards, [asdict(replace(row, guard=storable(row.guard)))])
            return True

        return self._database.write(write)
