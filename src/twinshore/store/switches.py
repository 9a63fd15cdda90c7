"""Every switch that was begun, with the record of what it has come to, and who is kept from writing to the twins of a
cluster, in SQL. Either is written while a lease is held: whoever was paused for longer undoes nothing."""

from __future__ import annotations

from dataclasses import asdict, replace

from sqlalchemy import Connection, select

from twinshore.store import leases
from twinshore.store.dialects import insert_absent, put, storable
from twinshore.store.engine import StorePart, reads, writes
from twinshore.store.switch_tables import SET_BY_LENGTH, guards, switches
from twinshore.store.switch_values import GuardRow, SwitchRow
from twinshore.store.values import LeaseRow


def _stored(row: SwitchRow) -> SwitchRow:
    """The row as every database takes it."""
    return replace(row, record=storable(row.record), set_by=storable(row.set_by)[:SET_BY_LENGTH])


def _one(connection: Connection, switch_id: str) -> SwitchRow | None:
    row = connection.execute(select(switches).where(switches.c.id == switch_id)).mappings().one_or_none()
    return None if row is None else SwitchRow(**row)


class Switches(StorePart):
    """The switches that were begun, ended ones too."""

    @writes
    def save(self, connection: Connection, row: SwitchRow, lease: LeaseRow | None = None) -> bool:
        """The switch from now on; the last word stands. `lease`: only while this one is held, else False and nothing
        is done: whoever was paused for longer than his lease does not undo what his follower wrote."""
        if lease is not None and not leases.hold(connection, lease):
            return False
        put(connection, switches, [asdict(_stored(row))])
        return True

    @writes
    def take_up(self, connection: Connection, row: SwitchRow, before: SwitchRow | None) -> bool:
        """The switch as a cluster has it. False, and nothing done, where another row than `before` stands there by now:
        a process that goes on with the switch from here knows more."""
        values = asdict(_stored(row))
        if before is None:
            insert_absent(connection, switches, [values])
            return _one(connection, row.id) == SwitchRow(**values)
        as_seen = (switches.c.id == row.id, switches.c.record == before.record)
        return connection.execute(switches.update().where(*as_seen).values(values)).rowcount == 1

    def of(self, switch_id: str) -> SwitchRow | None:
        """The switch of this id."""
        return self._database.read(lambda connection: _one(connection, switch_id))

    @reads
    def all(self, connection: Connection, *, open_only: bool = False) -> tuple[SwitchRow, ...]:
        """All of them, or those that have not ended; the newest first."""
        query = select(switches).order_by(switches.c.begun_ms.desc(), switches.c.id)
        if open_only:
            query = query.where(switches.c.ended_ms.is_(None))
        return tuple(SwitchRow(**row) for row in connection.execute(query).mappings())


class Guards(StorePart):
    """The guards that stand on clusters, or stood there: one row for each cluster."""

    @reads
    def of(self, connection: Connection, cluster: str) -> GuardRow | None:
        """The cluster's guard."""
        row = connection.execute(select(guards).where(guards.c.cluster == cluster)).mappings().one_or_none()
        return None if row is None else GuardRow(**row)

    @writes
    def save(self, connection: Connection, row: GuardRow, lease: LeaseRow) -> bool:
        """The cluster's guard from now on, only while this lease is held; else False, and nothing is done: whoever was
        paused for longer does not undo what another has written since."""
        if not leases.hold(connection, lease):
            return False
        put(connection, guards, [asdict(replace(row, guard=storable(row.guard)))])
        return True
