"""SQL of leases. Each change is one compare-and-swap, so the database's order decides."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict
from typing import Any

from sqlalchemy import Connection, false, select

from twinshore.state import sql
from twinshore.state.core.values import LeaseRow
from twinshore.state.database import StorePart, writes
from twinshore.state.tables import leases

PROBE_LEASE = "write check"


def read_lease(connection: Connection, name: str) -> LeaseRow | None:
    return sql.read_row(connection, LeaseRow, select(leases).where(leases.c.name == name))


def read_leases(connection: Connection, names: Collection[str]) -> dict[str, LeaseRow]:
    """Returns those leases that were ever taken."""
    return {
        row.name: row for row in sql.read_rows(connection, LeaseRow, select(leases).where(leases.c.name.in_(names)))
    }


def lock_lease(connection: Connection, row: LeaseRow) -> bool:
    """Whether `row` still holds, at any renewal; if so, locks the lease until the transaction ends."""
    return connection.execute(select(leases.c.name).filter_by(**_held(row)).with_for_update()).first() is not None


def _held(row: LeaseRow) -> dict[str, Any]:
    """The columns that do not change while the lease holds."""
    return {"name": row.name, "owner": row.owner, "epoch": row.epoch, "released": False}


def _same(now: LeaseRow, held: LeaseRow) -> bool:
    return (now.owner, now.epoch, now.released) == (held.owner, held.epoch, False)


class Leases(StorePart):
    """All leases. Module lease_watch has the rules of holders and watchers."""

    def read(self, name: str) -> LeaseRow | None:
        """Returns the lease; None if never taken."""
        return self._database.read(lambda connection: read_lease(connection, name))

    @writes
    def take(
        self, connection: Connection, name: str, owner: str, ttl_ms: int, *, row: LeaseRow | None
    ) -> LeaseRow | None:
        """Gives `owner` the lease in the next epoch; None if the stored lease differs from `row`.

        `owner` must be new with each start of a process. LeaseWatch decides whether a lease may be taken.
        """
        taken = LeaseRow(name, owner, row.epoch + 1 if row else 1, 0, ttl_ms)
        if row is not None:
            return taken if sql.swap_row(connection, leases, asdict(row), asdict(taken)) else None
        if read_lease(connection, name) is not None:
            return None
        sql.insert_absent(connection, leases, [asdict(taken)])
        return taken if read_lease(connection, name) == taken else None

    def read_each(self, names: Collection[str]) -> dict[str, LeaseRow]:
        """Returns those leases that were ever taken."""
        return self._database.read(lambda connection: read_leases(connection, names))

    @writes
    def renew_each(
        self, connection: Connection, rows: Collection[LeaseRow], ttl_ms: Mapping[str, int]
    ) -> dict[str, LeaseRow]:
        """Renews these leases in one transaction, and returns them; missing ones are lost. `ttl_ms`: how long others
        must wait.

        After a StoreError call again with the same rows. An unacknowledged renewal may be stored already: the holder
        continues from there, and watchers see one change more.
        """
        alike: dict[tuple[str, int, int], list[str]] = {}
        for row in rows:
            alike.setdefault((row.owner, row.epoch, ttl_ms[row.name]), []).append(row.name)
        for (owner, epoch, ttl), names in alike.items():
            held = (leases.c.owner == owner, leases.c.epoch == epoch, leases.c.released == false())
            update = leases.update().where(leases.c.name.in_(names), *held)
            connection.execute(update.values(renewals=leases.c.renewals + 1, ttl_ms=ttl))
        now = read_leases(connection, [row.name for row in rows])
        return {row.name: now[row.name] for row in rows if row.name in now and _same(now[row.name], row)}

    @writes
    def release(self, connection: Connection, row: LeaseRow) -> bool:
        """Releases the lease, only when no request is in flight: another process may take over at once.
        Returns whether the lease was held.
        """
        return sql.swap_row(connection, leases, _held(row), {"released": True})

    @writes
    def check_writable(self, connection: Connection) -> None:
        """Raises StoreError where this user may not write: inserts and deletes a row."""
        sql.insert_absent(connection, leases, [asdict(LeaseRow(PROBE_LEASE, "", 0, 0, 0))])
        connection.execute(leases.delete().where(leases.c.name == PROBE_LEASE))
