"""Migrations by Alembic, in one transaction or under one lock, whoever comes first."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text

from twinshore.fleet import StoreError
from twinshore.store.schema import SCHEMA, schema_of

SCRIPTS = Path(__file__).parent / "migrations"
_LOCK_NAME = "twinshore schema"
_LOCK_NUMBER = 0x7477696E  # "twin"
_LOCK_S = 60


def scripts() -> Config:
    """Alembic's view of the packaged migrations."""
    config = Config()
    config.set_main_option("script_location", str(SCRIPTS).replace("%", "%%"))
    return config


def migrate(connection: Connection, place: str) -> None:
    """Makes or changes the tables; StoreError where this version cannot."""
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
