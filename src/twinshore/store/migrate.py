"""Migrations by Alembic, and what their scripts share."""

from __future__ import annotations

from pathlib import Path

from alembic import command, op
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Column, Connection, inspect
from sqlalchemy.types import TypeEngine

from twinshore.fleet import StoreError
from twinshore.store.schema import SCHEMA, not_ours

SCRIPTS = Path(__file__).parent / "migrations"


def scripts() -> Config:
    """Alembic's view of the packaged migrations."""
    config = Config()
    config.set_main_option("script_location", str(SCRIPTS).replace("%", "%%"))
    return config


def change(connection: Connection, place: str, found: str | None) -> None:
    """From the schema that was found, by each script after it; StoreError where this version cannot. Whoever calls it
    has the lock."""
    if not SCRIPTS.is_dir():
        raise StoreError(
            f"the store {place} has schema {found}, not {SCHEMA}, and a packed Twinshore cannot change it",
            hint="with an installed Twinshore: twinshore store upgrade",
        )
    config = scripts()
    if found is not None and found not in _known(config):
        raise not_ours(found, place)
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def create_index(name: str, table: str, *columns: str) -> None:
    """Makes an index in a script where the table has none of that name.

    Neither MySQL nor Alembic's `create_table(..., if_not_exists=True)` can: the one lacks the words, the other makes
    the indexes of a table that it found, and fails.
    """
    context = op.get_context()
    if not context.as_sql and context.connection is not None:
        there = {index["name"] for index in inspect(context.connection).get_indexes(table)}
        if name in there:
            return
    op.create_index(name, table, list(columns))


def add_column(table: str, column: Column[int] | Column[str]) -> None:
    """Adds a column in a script where the table does not have it: a killed migration may have added it."""
    context = op.get_context()
    if context.as_sql or context.connection is None:
        there = set()
    else:
        there = {one["name"] for one in inspect(context.connection).get_columns(table)}
    if column.name not in there:
        op.add_column(table, column)


def widen(table: str, column: str, to: TypeEngine[str]) -> None:
    """Gives a text column room in a script. SQLite holds texts of any length in every column, and alters none: there
    the type is a name, which a new store has from the first."""
    context = op.get_context()
    if context.dialect.name != "sqlite":
        op.alter_column(table, column, type_=to, existing_nullable=False)


def _known(config: Config) -> set[str]:
    return {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
