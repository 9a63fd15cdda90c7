"""Every switch that was begun, in SQL, with the record of what it has come to."""

from __future__ import annotations

from dataclasses import asdict, replace

from sqlalchemy import Connection, select

from twinshore.store import leases
from twinshore.store.dialects import insert_absent, put, storable
from twinshore.store.engine import Database
from twinshore.store.switch_tables import SET_BY_LENGTH, switches
from twinshore.store.switch_values import SwitchRow
from twinshore.store.values import LeaseRow


def save(connection: Connection, row: SwitchRow) -> None:
    """The last word stands."""
    put(connection, switches, [asdict(_stored(row))])


def _stored(row: SwitchRow) -> SwitchRow:
    """The row as every database takes it."""
    return replace(row, record=storable(row.record), set_by=storable(row.set_by)[:SET_BY_LENGTH])


def read(connection: Connection, *, open_only: bool) -> tuple[SwitchRow, ...]:
    """The newest first."""
    query = select(switches).order_by(switches.c.begun_ms.desc(), switches.c.id)
    if open_only:
        query = query.where(switches.c.ended_ms.is_(None))
    return tuple(SwitchRow(**row) for row in connection.execute(query).mappings())


def read_one(connection: Connection, switch_id: str) -> SwitchRow | None:
    row = connection.execute(select(switches).where(switches.c.id == switch_id)).mappings().one_or_none()
    return None if row is None else SwitchRow(**row)


class Switches:
    """The switches that were begun, ended ones too."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def save(self, row: SwitchRow, lease: LeaseRow | None = None) -> bool:
        """The switch from now on; the last word stands. `lease`: only while this one is held, else False and nothing
        is done: whoever was paused for longer than his lease does not undo what his follower wrote."""

        def write(connection: Connection) -> bool:
            if lease is not None and not leases.hold(connection, lease):
                return False
            save(connection, row)
            return True

        return self._database.write(write)

    def take_up(self, row: SwitchRow, before: SwitchRow | None) -> bool:
        """The switch as a cluster has it. False, and nothing done, where another row than `before` stands there by now:
        a process that goes on with the switch from here knows more."""

        def write(connection: Connection) -> bool:
            values = asdict(_stored(row))
            if before is None:
                insert_absent(connection, switches, [values])
                return read_one(connection, row.id) == SwitchRow(**values)
            as_seen = (switches.c.id == row.id, switches.c.record == before.record)
            return connection.execute(switches.update().where(*as_seen).values(values)).rowcount == 1

        return self._database.write(write)

    def of(self, switch_id: str) -> SwitchRow | None:
        """The switch of this id."""
        return self._database.read(lambda connection: read_one(connection, switch_id))

    def all(self, *, open_only: bool = False) -> tuple[SwitchRow, ...]:
        """All of them, or those that have not ended; the newest first."""
        return self._database.read(lambda connection: read(connection, open_only=open_only))
