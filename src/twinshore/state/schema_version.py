"""The schema's version. The first process with write access creates the tables, and no version changes another's.

Before 1.0 there are no migrations: a changed table means a new SCHEMA_VERSION, and other stores are refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Column, Connection, MetaData, PrimaryKeyConstraint, String, Table, inspect, select, text

from twinshore.config.errors import StoreError, StoreVersionError
from twinshore.state.database import Database
from twinshore.state.tables import metadata

SCHEMA_VERSION = "0034"
VERSION_TABLE = "twinshore_schema"
_VERSION = Table(
    VERSION_TABLE,
    MetaData(),
    Column("version_num", String(32), nullable=False),
    PrimaryKeyConstraint("version_num", name=f"{VERSION_TABLE}_pkc"),
)
_LOCK_NAME = "twinshore schema"
_LOCK_NUMBER = 0x7477696E  # "twin"
_LOCK_S = 60


def create_or_check_tables(database: Database) -> None:
    """Creates missing tables. Raises StoreError, and changes nothing, where another version's exist."""
    if not has_tables(database):
        database.write(_make)


def has_tables(database: Database) -> bool:
    """Whether this version's tables exist. Raises StoreError where another version's do."""
    found = database.read(read_schema_version)
    if found not in (None, SCHEMA_VERSION):
        raise StoreVersionError("state.other-schema", place=database.place, found=found, needed=SCHEMA_VERSION)
    return found is not None


def read_schema_version(connection: Connection) -> str | None:
    if not inspect(connection).has_table(VERSION_TABLE):
        return None
    return connection.scalar(select(_VERSION.c.version_num))


def _make(connection: Connection) -> None:
    """Creates the tables, and the version last: a killed process may leave some tables where each is a separate
    transaction.
    """
    with _locked(connection):
        if read_schema_version(connection) == SCHEMA_VERSION:
            return  # Another process was quicker.
        anew = metadata.tables.keys().isdisjoint(inspect(connection).get_table_names())
        metadata.create_all(connection, checkfirst=not anew)
        if not anew:
            for index in [index for table in metadata.sorted_tables for index in table.indexes]:
                index.create(connection, checkfirst=True)
        _VERSION.create(connection, checkfirst=True)
        connection.execute(_VERSION.insert().values(version_num=SCHEMA_VERSION))


@contextmanager
def _locked(connection: Connection) -> Iterator[None]:
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:number)"), {"number": _LOCK_NUMBER})
    # SQLite's transaction is the lock already; PostgreSQL's lock ends with the transaction.
    by_name = connection.dialect.name in ("mysql", "mariadb")
    if by_name:
        got = connection.scalar(text("SELECT GET_LOCK(:name, :wait)"), {"name": _LOCK_NAME, "wait": _LOCK_S})
        if got != 1:
            raise StoreError("state.schema-locked", seconds=_LOCK_S)
    try:
        yield
        if by_name:
            # Commit before unlocking: the next process reads the version as soon as it has the lock.
            connection.exec_driver_sql("COMMIT")
    finally:
        if by_name:
            connection.execute(text("SELECT RELEASE_LOCK(:name)"), {"name": _LOCK_NAME})
