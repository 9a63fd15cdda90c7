"""The tables come once and whole, whoever opens the store first."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import Connection, Engine, column, event, inspect, table, text, update
from sqlalchemy.dialects import sqlite
from sqlalchemy.schema import CreateIndex, CreateTable

import twinshore
from testkit.errors import raises
from twinshore.config.errors import StoreError
from twinshore.config.model import Secret
from twinshore.state.database import Database
from twinshore.state.schema_version import SCHEMA_VERSION, VERSION_TABLE, create_or_check_tables, read_schema_version
from twinshore.state.store import open_store
from twinshore.state.tables import audit, incidents, metadata

OPEN = """
import sys
from twinshore.state.store import open_store
with open_store(sys.argv[1]) as store:
    print(store.progress.positions('x'))
"""


def drop_all(database: Database) -> None:
    def drop(connection: Connection) -> None:
        metadata.drop_all(connection)
        connection.execute(text(f"DROP TABLE IF EXISTS {VERSION_TABLE}"))

    database.write(drop)


def tables_of(connection: Connection) -> dict[str, object]:
    """All that the database says of each table."""
    seen = inspect(connection)
    return {
        name: (
            {one["name"]: (str(one["type"]), one["nullable"]) for one in seen.get_columns(name)},
            seen.get_pk_constraint(name),
            {one["name"]: (one["column_names"], one["unique"]) for one in seen.get_indexes(name)},
        )
        for name in sorted({*metadata.tables, VERSION_TABLE})
    }


def test_changed_tables_are_a_new_schema() -> None:
    """A store of other tables under the same number would be opened, and fail later."""
    dialect = sqlite.dialect()
    made = [str(CreateTable(one).compile(dialect=dialect)) for one in metadata.sorted_tables]
    made += [
        str(CreateIndex(index).compile(dialect=dialect)) for one in metadata.sorted_tables for index in one.indexes
    ]
    digest = hashlib.sha256("".join(sorted(made)).encode()).hexdigest()[:16]
    assert (SCHEMA_VERSION, digest) == ("0034", "1ebc996bc4d9ae30"), "raise SCHEMA_VERSION, then write both here"


def make_a_table_without_its_index(connection: Connection) -> None:
    connection.execute(CreateTable(audit))


def make_a_table_with_its_index(connection: Connection) -> None:
    incidents.create(connection)


@pytest.mark.parametrize("begin", [make_a_table_without_its_index, make_a_table_with_its_index, metadata.create_all])
def test_tables_that_a_killed_process_left_half_made_are_completed(
    store_url: str, begin: Callable[[Connection], None]
) -> None:
    database = Database(store_url, Secret())
    drop_all(database)
    create_or_check_tables(database)
    whole = database.read(tables_of)
    drop_all(database)
    database.write(begin)
    with open_store(store_url) as store:
        assert store.twins.of("x") == ()
        assert store.incidents.rows() == ()
    assert database.read(tables_of) == whole
    assert database.read(read_schema_version) == SCHEMA_VERSION
    database.close()


def test_who_gets_the_lock_sees_the_tables_that_it_guarded(own_mariadb: str) -> None:
    database, other = Database(own_mariadb, Secret()), Database(own_mariadb, Secret())
    drop_all(database)
    seen: list[str | None] = []

    def look(_connection: Connection, _cursor: object, statement: str, *_: object) -> None:
        if "RELEASE_LOCK" in statement:
            seen.append(other.read(read_schema_version))

    event.listen(Engine, "before_cursor_execute", look)
    try:
        create_or_check_tables(database)
    finally:
        event.remove(Engine, "before_cursor_execute", look)
        database.close()
        other.close()
    assert seen == [SCHEMA_VERSION]


def test_processes_that_start_at_once_all_find_the_tables(store_url: str) -> None:
    database = Database(store_url, Secret())
    drop_all(database)
    database.close()
    started = [
        subprocess.Popen([sys.executable, "-W", "error", "-c", OPEN, store_url], stdout=-1, stderr=-1, text=True)
        for _ in range(3)
    ]
    assert [process.communicate(timeout=60) for process in started] == [("()\n", "")] * 3


def test_a_store_of_another_version_is_left_alone(store_url: str) -> None:
    open_store(store_url).close()
    database = Database(store_url, Secret())
    rename = update(table(VERSION_TABLE, column("version_num")))
    database.write(lambda connection: connection.execute(rename.values(version_num="9999")))
    try:
        with raises(StoreError, "state.other-schema", found="9999", needed=SCHEMA_VERSION) as caught:
            open_store(store_url)
        assert "link recover" in caught.value.hint
    finally:
        database.write(lambda connection: connection.execute(rename.values(version_num=SCHEMA_VERSION)))
        database.close()


def test_a_folder_with_signs_in_its_name(tmp_path: Path) -> None:
    folder = tmp_path / "100% süß"
    folder.mkdir()
    open_store(f"sqlite:///{folder}/store.db").close()
    assert (folder / "store.db").stat().st_size > 0


def test_a_packed_copy_makes_a_store_and_opens_one_but_changes_none(tmp_path: Path) -> None:
    packed = tmp_path / "twinshore.zip"
    with zipfile.ZipFile(packed, "w") as archive:
        files = Path(twinshore.__path__[0]).rglob("*")
        for file in sorted(file for file in files if file.suffix in (".py", ".json")):
            archive.write(file, file.relative_to(Path(twinshore.__path__[0]).parent))
    url = f"sqlite:///{tmp_path}/store.db"
    assert run_packed(packed, url) == "()\n"
    assert run_packed(packed, url) == "()\n"
    database = Database(url, Secret())
    older = update(table(VERSION_TABLE, column("version_num"))).values(version_num="0020")
    database.write(lambda connection: connection.execute(older))
    database.close()
    assert f"has schema 0020, and this version needs {SCHEMA_VERSION}" in run_packed(packed, url)
    assert database_schema(url) == "0020"


def database_schema(url: str) -> str | None:
    database = Database(url, Secret())
    try:
        return database.read(read_schema_version)
    finally:
        database.close()


def run_packed(packed: Path, url: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(packed)}
    command = [sys.executable, "-W", "error", "-c", OPEN, url]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    return run.stdout + run.stderr
