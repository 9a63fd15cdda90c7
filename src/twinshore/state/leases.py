"""Leases in SQL: each change is one compare-and-swap on what was seen, so the database's own order decides."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict

from sqlalchemy import ColumnElement, Connection, false, select

from twinshore.state.core.values import LeaseRow
from twinshore.state.database import StorePart, insert_absent, writes
from twinshore.state.tables import leases

PROBE_LEASE = "may this store be written"


def read_lease(connection: Connection, name: str) -> LeaseRow | None:
    """The lease as it stands."""
    row = connection.execute(select(leases).where(leases.c.name == name)).mappings().one_or_none()
    return None if row is None else LeaseRow(**row)


def read_leases(connection: Connection, names: Collection[str]) -> dict[str, LeaseRow]:
    """The leases of these names that somebody took once."""
    found = connection.execute(select(leases).where(leases.c.name.in_(names))).mappings()
    return {row["name"]: LeaseRow(**row) for row in found}


def lock_lease(connection: Connection, row: LeaseRow) -> bool:
    """Whether it is still held, whatever its last beat; then nobody takes it before this transaction ends."""
    return connection.execute(select(leases.c.name).where(*_held(row)).with_for_update()).first() is not None


def _held(row: LeaseRow) -> tuple[ColumnElement[bool], ...]:
    same = (leases.c[name] == getattr(row, name) for name in ("name", "owner", "generation"))
    return *same, leases.c.released == false()


def _same(now: LeaseRow, held: LeaseRow) -> bool:
    """Whether it is the holder's still, whatever its beat."""
    return (now.owner, now.generation, now.released) == (held.owner, held.generation, False)


class Leases(StorePart):
    """Who holds what; the rules for holders and watchers are in lease_watch."""

    def read(self, name: str) -> LeaseRow | None:
        """The lease as it stands; None if nobody ever took it."""
        return self._database.read(lambda connection: read_lease(connection, name))

    @writes
    def take(
        self, connection: Connection, name: str, owner: str, ttl_ms: int, *, seen: LeaseRow | None
    ) -> LeaseRow | None:
        """The lease in its next generation, now `owner`'s, or None when it is no longer exactly as `seen`.

        `owner` must be new with each start of a process. Whether it may be taken is LeaseWatch's to say.
        """
        taken = LeaseRow(name, owner, seen.generation + 1 if seen else 1, 0, ttl_ms)
        if seen is not None:
            as_seen = [leases.c[column] == value for column, value in asdict(seen).items()]
            swapped = connection.execute(leases.update().where(*as_seen).values(asdict(taken)))
            return taken if swapped.rowcount == 1 else None
        if read_lease(connection, name) is not None:
            return None
        insert_absent(connection, leases, [asdict(taken)])
        return taken if read_lease(connection, name) == taken else None

    def read_each(self, names: Collection[str]) -> dict[str, LeaseRow]:
        """The leases of these names that somebody took once."""
        return self._database.read(lambda connection: read_leases(connection, names))

    @writes
    def beat_each(
        self, connection: Connection, rows: Collection[LeaseRow], ttl_ms: Mapping[str, int]
    ) -> dict[str, LeaseRow]:
        """All these leases after one more beat, in one transaction; those that are not among the answers are lost.
        `ttl_ms` by name: for how long others are to wait from now on.

        After a StoreError it may be tried again with the same rows: a beat whose answer got lost may stand in the
        database already. It is of the same holder and generation, so the holder goes on from it, and others see one
        change more."""
        alike: dict[tuple[str, int, int], list[str]] = {}
        for row in rows:
            alike.setdefault((row.owner, row.generation, ttl_ms[row.name]), []).append(row.name)
        for (owner, generation, ttl), names in alike.items():
            held = (leases.c.owner == owner, leases.c.generation == generation, leases.c.released == false())
            update = leases.update().where(leases.c.name.in_(names), *held)
            connection.execute(update.values(beat=leases.c.beat + 1, ttl_ms=ttl))
        now = read_leases(connection, [row.name for row in rows])
        return {row.name: now[row.name] for row in rows if row.name in now and _same(now[row.name], row)}

    @writes
    def release(self, connection: Connection, row: LeaseRow) -> bool:
        """Gives the lease up, whatever its last beat, so that another may take it at once: so only when no request is
        on its way any more. Whether it was still held."""
        return connection.execute(leases.update().where(*_held(row)).values(released=True)).rowcount == 1

    @writes
    def check_writable(self, connection: Connection) -> None:
        """StoreError where this user may only read it: a row is written and taken back. Nothing is changed."""
        insert_absent(connection, leases, [asdict(LeaseRow(PROBE_LEASE, "", 0, 0, 0))])
        connection.execute(leases.delete().where(leases.c.name == PROBE_LEASE))
