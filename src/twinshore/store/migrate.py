"""Brings a database to this version's tables, once, whoever comes first."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, String, column, inspect, select, table, text

from twinshore.fleet import StoreError
from twinshore.store.engine import Database

SCHEMA = "0001"
VERSION_TABLE = "twinshore_schema"
SCRIPTS = Path(__file__).parent / "migrations"
_LOCK_NAME = "twinshore schema"
_LOCK_NUMBER = 0x7477696E  # "twin"
_LOCK_S = 60


def bring_up(database: Database) -> None:
    """Leaves the database with exactly this version's tables, or raises StoreError and changes nothing."""
    if database.read(schema_of) != SCHEMA:
        database.write(lambda connection: _migrate(connection, database.place))


def schema_of(connection: Connection) -> str | None:
    """The schema's version that stands in the database, None where there is none."""
    if not inspect(connection).has_table(VERSION_TABLE):
        return None
    return connection.scalar(select(column("version_num", String)).select_from(table(VERSION_TABLE)))


def scripts() -> Config:
    """Alembic's view of the packaged migrations."""
    config = Config()
    config.set_main_option("script_location", str(SCRIPTS).replace("%", "%%"))
    return config


def _migrate(connection: Connection, place: str) -> None:
    _lock(connection)
    try:
        found = schema_of(connection)
        if found == SCHEMA:
            return  # Another process was quicker.
        if not SCRIPTS.is_dir():
            raise StoreError(
                f"the store {place} has schema {found}, not {SCHEMA}, and a packed Twinshore cannot change it",
                hint="open it once with an installed Twinshore: twinshore status",
            )
        config = scripts()
        if found is not None and found not in _known(config):
            raise StoreError(
                f"the store {place} has schema {found}, which this version does not know",
                hint="a newer Twinshore wrote it: use that one",
            )
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
    finally:
        _unlock(connection)


def _known(config: Config) -> set[str]:
    return {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}


def _lock(connection: Connection) -> None:
    # SQLite's transaction is the lock already; PostgreSQL's lock ends with the transaction.
    kind = connection.dialect.name
    if kind == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:number)"), {"number": _LOCK_NUMBER})
    elif kind != "sqlite":
        got = connection.scalar(text("SELECT GET_LOCK(:name, :wait)"), {"name": _LOCK_NAME, "wait": _LOCK_S})
        if got != 1:
            raise StoreError("another process has been changing the store's tables for a minute", hint="try again")


def _unlock(connection: Connection) -> None:
    if connection.dialect.name in ("mysql", "mariadb"):
        connection.execute(text("SELECT RELEASE_LOCK(:name)"), {"name": _LOCK_NAME})
