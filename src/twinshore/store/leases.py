"""Leases in SQL: each change is one compare-and-swap on what was seen, so the database's own order decides."""

from __future__ import annotations

from sqlalchemy import ColumnElement, Connection, false, select

from twinshore.store.dialects import insert_absent
from twinshore.store.engine import Database
from twinshore.store.tables import leases
from twinshore.store.values import LeaseRow

PROBE = "may this store be written"


def read(connection: Connection, name: str) -> LeaseRow | None:
    """The lease as it stands."""
    row = connection.execute(select(leases).where(leases.c.name == name)).one_or_none()
    if row is None:
        return None
    return LeaseRow(row.name, row.owner, row.generation, row.beat, row.ttl_ms, bool(row.released))


def probe(connection: Connection) -> None:
    """Writes a row and takes it back, in one transaction: an error where that is not allowed."""
    insert_absent(connection, leases, [_values(LeaseRow(PROBE, "", 0, 0, 0))])
    connection.execute(leases.delete().where(leases.c.name == PROBE))


def take(connection: Connection, name: str, owner: str, ttl_ms: int, seen: LeaseRow | None) -> LeaseRow | None:
    """The lease in its next generation, or None when it is no longer as seen."""
    if seen is None:
        before = read(connection, name)
        taken = LeaseRow(name, owner, 1, 0, ttl_ms)
        if before is not None:
            return None
        insert_absent(connection, leases, [_values(taken)])
        return taken if read(connection, name) == taken else None
    return _swap(connection, seen, LeaseRow(name, owner, seen.generation + 1, 0, ttl_ms))


def beat(connection: Connection, row: LeaseRow, ttl_ms: int) -> LeaseRow | None:
    """The lease with its next beat and this ttl, or None when it is lost.

    A beat whose answer got lost may stand in the database already. It is of the same holder and generation, so he
    goes on from there; what others see changes once more.
    """
    changed = connection.execute(leases.update().where(*_held(row)).values(beat=leases.c.beat + 1, ttl_ms=ttl_ms))
    return read(connection, row.name) if changed.rowcount == 1 else None


def release(connection: Connection, row: LeaseRow) -> bool:
    """Whether it was still held, whatever its last beat; then it is free at once."""
    return connection.execute(leases.update().where(*_held(row)).values(released=True)).rowcount == 1


def _held(row: LeaseRow) -> tuple[ColumnElement[bool], ...]:
    same = (leases.c[name] == getattr(row, name) for name in ("name", "owner", "generation"))
    return *same, leases.c.released == false()


def _swap(connection: Connection, seen: LeaseRow, new: LeaseRow) -> LeaseRow | None:
    as_seen = [leases.c[name] == value for name, value in _values(seen).items()]
    changed = connection.execute(leases.update().where(*as_seen).values(_values(new)))
    return new if changed.rowcount == 1 else None


def _values(row: LeaseRow) -> dict[str, object]:
    return {
        "name": row.name,
        "owner": row.owner,
        "generation": row.generation,
        "beat": row.beat,
        "ttl_ms": row.ttl_ms,
        "released": row.released,
    }


class Leases:
    """Who holds what; the rules for holders and watchers are in lease_watch."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def read(self, name: str) -> LeaseRow | None:
        """The lease as it stands; None if nobody ever took it."""
        return self._database.read(lambda connection: read(connection, name))

    def take(self, name: str, owner: str, ttl_ms: int, *, seen: LeaseRow | None) -> LeaseRow | None:
        """The lease, now `owner`'s, or None when it is no longer exactly as `seen`.

        `owner` must be new with each start of a process. Whether it may be taken is LeaseWatch's to say.
        """
        return self._database.write(lambda connection: take(connection, name, owner, ttl_ms, seen))

    def beat(self, row: LeaseRow, ttl_ms: int = 0) -> LeaseRow | None:
        """The lease after one more beat, or None: lost. After a StoreError it may be tried again with the same row.

        `ttl_ms`: for how long others are to wait from now on; 0 leaves it as it is.
        """
        return self._database.write(lambda connection: beat(connection, row, ttl_ms or row.ttl_ms))

    def release(self, row: LeaseRow) -> bool:
        """Gives the lease up so that another may take it at once: so only when no request is on its way any more."""
        return self._database.write(lambda connection: release(connection, row))

    def check_writable(self) -> None:
        """StoreError where this user may only read it. Nothing is changed."""
        self._database.write(probe)
