"""A store before it is opened: whose version's tables it has, who holds leases in it, and the change of its tables."""

from __future__ import annotations

from types import TracebackType

from sqlalchemy import Connection, inspect

from twinshore.fleet import Secret
from twinshore.store import leases, schema
from twinshore.store.engine import Database
from twinshore.store.tables import leases as leases_table
from twinshore.store.values import LeaseRow


class Unopened:
    """Any thread; each call is one transaction, and raises StoreError where the database fails."""

    def __init__(self, url: str, password: Secret) -> None:
        self._database = Database(url, password)

    def __enter__(self) -> Unopened:
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        self._database.close()

    @property
    def place(self) -> str:
        """Where it is, without user or password: for sentences."""
        return self._database.place

    def schema(self) -> str | None:
        """Whose version's tables it has; None where it has none."""
        return self._database.read(schema.schema_of)

    def held(self) -> tuple[LeaseRow, ...]:
        """Leases that were not given up, whether their holders live or not. Their table is as in the first version."""

        def read(connection: Connection) -> tuple[LeaseRow, ...]:
            if not inspect(connection).has_table(leases_table.name):
                return ()
            return leases.read_held(connection)

        return self._database.read(read)

    def upgrade(self) -> None:
        """Changes its tables to this version's, for good."""
        schema.upgrade(self._database)
