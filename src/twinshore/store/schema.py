"""Which tables a database has. Whoever opens it first makes them; those of an earlier version change when an operator
says so, and by nothing else: there is no way back but a backup.

An empty database gets all tables at once. One of an earlier version, or one in which a killed process left some, goes
through the scripts of the versions in between, each of which makes only what is not there.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Column, Connection, MetaData, PrimaryKeyConstraint, String, Table, inspect, select, text

from twinshore.fleet import StoreError, StoreVersionError
from twinshore.store.engine import Database
from twinshore.store.tables import metadata

SCHEMA = "0025"
VERSION_TABLE = "twinshore_schema"
# As Alembic makes it.
_VERSION = Table(
    VERSION_TABLE,
    MetaData(),
    Column("version_num", String(32), nullable=False),
    PrimaryKeyConstraint("version_num", name=f"{VERSION_TABLE}_pkc"),
)
_LOCK_NAME = "twinshore schema"
_LOCK_NUMBER = 0x7477696E  # "twin"
_LOCK_S = 60


def bring_up(database: Database) -> None:
    """Leaves the database with exactly this version's tables, made where there are none; or raises StoreError, and
    changes nothing: so where an earlier version's stand there."""
    found = database.read(schema_of)
    if found == SCHEMA:
        return
    if found is not None:
        raise not_ours(found, database.place)
    database.write(lambda connection: _brought_up(connection, database.place))


def upgrade(database: Database) -> None:
    """Changes an earlier version's tables to this version's, for good. StoreError where that cannot be."""
    database.write(lambda connection: _brought_up(connection, database.place))


def not_ours(found: str, place: str) -> StoreVersionError:
    """Why a store with another schema is not opened. Versions of the schema are numbers of one length."""
    if found < SCHEMA:
        return StoreVersionError(
            f"the store {place} is an earlier version's: it has schema {found}, and this version needs {SCHEMA}",
            hint="stop what uses it, back it up, then: twinshore store upgrade",
        )
    return StoreVersionError(
        f"the store {place} has schema {found}, which this version does not know",
        hint="a newer Twinshore wrote it: use that one",
    )


def schema_of(connection: Connection) -> str | None:
    """The schema's version that stands in the database, None where there is none."""
    if not inspect(connection).has_table(VERSION_TABLE):
        return None
    return connection.scalar(select(_VERSION.c.version_num))


def _brought_up(connection: Connection, place: str) -> None:
    with _locked(connection):
        found = schema_of(connection)
        if found == SCHEMA:
            return  # Another process was quicker.
        if found is None and metadata.tables.keys().isdisjoint(inspect(connection).get_table_names()):
            _make(connection)
            return
        # Alembic takes longer to import than all the rest; most processes open a store that needs nothing.
        from twinshore.store.migrate import change

        change(connection, place, found)


def _make(connection: Connection) -> None:
    """The version comes last. Where each table is a transaction, whoever finds some and no version runs the scripts."""
    metadata.create_all(connection, checkfirst=False)
    _VERSION.create(connection)
    connection.execute(_VERSION.insert().values(version_num=SCHEMA))


@contextmanager
def _locked(connection: Connection) -> Iterator[None]:
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:number)"), {"number": _LOCK_NUMBER})
    # SQLite's transaction is the lock already; PostgreSQL's lock ends with the transaction.
    by_name = connection.dialect.name in ("mysql", "mariadb")
    if by_name:
        got = connection.scalar(text("SELECT GET_LOCK(:name, :wait)"), {"name": _LOCK_NAME, "wait": _LOCK_S})
        if got != 1:
            raise StoreError("another process has been changing the store's tables for a minute", hint="try again")
    try:
        yield
        if by_name:
            # The next process reads the version as soon as it has the lock, which ends no transaction.
            connection.exec_driver_sql("COMMIT")
    finally:
        if by_name:
            connection.execute(text("SELECT RELEASE_LOCK(:name)"), {"name": _LOCK_NAME})
