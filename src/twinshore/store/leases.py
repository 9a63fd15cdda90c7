"""Leases in SQL: each change is one compare-and-swap on what was seen, so the database's own order decides."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, false, select

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
    return _row(row)


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


def read_each(connection: Connection, names: Collection[str]) -> dict[str, LeaseRow]:
    """The leases of these names that somebody took once."""
    found = connection.execute(select(leases).where(leases.c.name.in_(names)))
    return {row.name: _row(row) for row in found}


def read_held(connection: Connection) -> tuple[LeaseRow, ...]:
    """Every lease that was not given up."""
    found = connection.execute(select(leases).where(leases.c.released == false()).order_by(leases.c.name))
    return tuple(_row(row) for row in found)


def beat_each(connection: Connection, rows: Collection[LeaseRow], ttl_ms: Mapping[str, int]) -> dict[str, LeaseRow]:
    """The leases that are still held, each after one more beat and with its ttl. A lease that is not among them is
    lost.

    A beat whose answer got lost may stand in the database already. It is of the same holder and generation, so the
    holder goes on from it, and others see one change more."""
    alike: dict[tuple[str, int, int], list[str]] = {}
    for row in rows:
        alike.setdefault((row.owner, row.generation, ttl_ms[row.name]), []).append(row.name)
    for (owner, generation, ttl), names in alike.items():
        held = (leases.c.owner == owner, leases.c.generation == generation, leases.c.released == false())
        update = leases.update().where(leases.c.name.in_(names), *held)
        connection.execute(update.values(beat=leases.c.beat + 1, ttl_ms=ttl))
    now = read_each(connection, [row.name for row in rows])
    return {row.name: now[row.name] for row in rows if row.name in now and _same(now[row.name], row)}


def release(connection: Connection, row: LeaseRow) -> bool:
    """Whether it was still held, whatever its last beat; then it is free at once."""
    return connection.execute(leases.update().where(*_held(row)).values(released=True)).rowcount == 1


def hold(connection: Connection, row: LeaseRow) -> bool:
    """Whether it is still held, whatever its last beat; then nobody takes it before this transaction ends."""
    return connection.execute(select(leases.c.name).where(*_held(row)).with_for_update()).first() is not None


def _held(row: LeaseRow) -> tuple[ColumnElement[bool], ...]:
    same = (leases.c[name] == getattr(row, name) for name in ("name", "owner", "generation"))
    return *same, leases.c.released == false()


def _same(now: LeaseRow, held: LeaseRow) -> bool:
    """Whether it is the holder's still, whatever its beat."""
    return (now.owner, now.generation, now.released) == (held.owner, held.generation, False)


def _row(row: Row[Any]) -> LeaseRow:
    return LeaseRow(row.name, row.owner, row.generation, row.beat, row.ttl_ms, bool(row.released))


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

    def read_each(self, names: Collection[str]) -> dict[str, LeaseRow]:
        """The leases of these names that somebody took once."""
        return self._database.read(lambda connection: read_each(connection, names))

    def beat_each(self, rows: Collection[LeaseRow], ttl_ms: Mapping[str, int]) -> dict[str, LeaseRow]:
        """All these leases after one more beat, in one transaction; those that are not among the answers are lost.

        After a StoreError it may be tried again with the same rows. `ttl_ms` by name: for how long others are to wait
        from now on."""
        return self._database.write(lambda connection: beat_each(connection, rows, ttl_ms))

    def release(self, row: LeaseRow) -> bool:
        """Gives the lease up so that another may take it at once: so only when no request is on its way any more."""
        return self._database.write(lambda connection: release(connection, row))

    def check_writable(self) -> None:
        """StoreError where this user may only read it. Nothing is changed."""
        self._database.write(probe)
