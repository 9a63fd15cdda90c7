"""Which tables a database has: brought to this version's when it is opened."""

from __future__ import annotations

from sqlalchemy import Connection, String, column, inspect, select, table

from twinshore.store.engine import Database

SCHEMA = "0018"
VERSION_TABLE = "twinshore_schema"


def bring_up(database: Database) -> None:
    """Leaves the database with exactly this version's tables, or raises StoreError and changes nothing."""
    if database.read(schema_of) == SCHEMA:
        return
    # Alembic takes longer to import than all the rest; most processes open a store that needs nothing.
    from twinshore.store.migrate import migrate

    database.write(lambda connection: migrate(connection, database.place))


def schema_of(connection: Connection) -> str | None:
    """The schema's version that stands in the database, None where there is none."""
    if not inspect(connection).has_table(VERSION_TABLE):
        return None
    return connection.scalar(select(column("version_num", String)).select_from(table(VERSION_TABLE)))
