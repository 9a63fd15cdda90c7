"""The tables come once and whole, whoever opens the store first."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from io import StringIO
from pathlib import Path

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.operations import Operations
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, column, event, inspect, table, text, update
from sqlalchemy.schema import CreateTable

import twinshore
from tests.store.older import open_upgraded
from twinshore.fleet import Secret, StoreError
from twinshore.store import LinkRow, LinkState, open_store
from twinshore.store.engine import Database
from twinshore.store.migrate import scripts
from twinshore.store.schema import SCHEMA, VERSION_TABLE, bring_up, schema_of
from twinshore.store.tables import audit, controls, incidents, metadata, twins

OPEN = """
import sys
from twinshore.store import open_store
with open_store(sys.argv[1]) as store:
    print(store.receipts.positions('x'))
"""


def drop_all(database: Database) -> None:
    def drop(connection: Connection) -> None:
        metadata.drop_all(connection)
        connection.execute(text(f"DROP TABLE IF EXISTS {VERSION_TABLE}"))

    database.write(drop)


def test_the_code_knows_the_newest_script() -> None:
    assert ScriptDirectory.from_config(scripts()).get_current_head() == SCHEMA


def differences(connection: Connection) -> list[object]:
    options = {"version_table": VERSION_TABLE, "compare_type": True}
    return list(compare_metadata(MigrationContext.configure(connection, opts=options), metadata))


def by_scripts(connection: Connection) -> None:
    config = scripts()
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def catalogue(connection: Connection) -> dict[str, object]:
    """All that the database says of each table, but for the order of columns: later scripts cannot choose it."""
    seen = inspect(connection)
    told: dict[str, object] = {}
    for name in sorted({*metadata.tables, VERSION_TABLE}):
        columns = {
            one["name"]: (str(one["type"]), one["nullable"], one["default"], one.get("autoincrement"))
            for one in seen.get_columns(name)
        }
        indexes = {one["name"]: (one["column_names"], one["unique"]) for one in seen.get_indexes(name)}
        told[name] = columns, seen.get_pk_constraint(name), indexes, seen.get_unique_constraints(name)
    return told


def test_an_empty_database_gets_at_once_what_all_scripts_make(store_url: str) -> None:
    database = Database(store_url, Secret())
    drop_all(database)
    database.write(by_scripts)
    assert database.write(differences) == []
    assert database.read(schema_of) == SCHEMA
    scripted = database.read(catalogue)
    drop_all(database)
    bring_up(database)
    assert database.read(schema_of) == SCHEMA
    assert database.read(catalogue) == scripted
    database.close()


def make_a_table_without_its_index(connection: Connection) -> None:
    connection.execute(CreateTable(audit))


def make_a_table_with_its_index(connection: Connection) -> None:
    incidents.create(connection)


@pytest.mark.parametrize("begin", [make_a_table_without_its_index, make_a_table_with_its_index, metadata.create_all])
def test_a_migration_that_was_killed_half_way_is_ended_by_the_next(
    store_url: str, begin: Callable[[Connection], None]
) -> None:
    database = Database(store_url, Secret())
    drop_all(database)
    database.write(begin)
    with open_store(store_url) as store:
        assert store.twins.of("x") == ()
        assert store.ledger.rows() == ()
    assert database.read(differences) == []
    assert database.read(schema_of) == SCHEMA
    database.close()


def test_the_scripts_say_nothing_that_plain_mysql_does_not_know() -> None:
    said = StringIO()
    options = {"as_sql": True, "output_buffer": said}
    context = MigrationContext.configure(dialect_name="mysql", opts=options)
    revisions = list(ScriptDirectory.from_config(scripts()).walk_revisions())
    with Operations.context(context):
        for script in reversed(revisions):
            script.module.upgrade()
    assert said.getvalue().count("CREATE INDEX") == sum(len(table.indexes) for table in metadata.tables.values())
    assert "INDEX IF NOT EXISTS" not in said.getvalue()


def test_who_gets_the_lock_sees_the_tables_that_it_guarded(own_mariadb: str) -> None:
    database, other = Database(own_mariadb, Secret()), Database(own_mariadb, Secret())
    drop_all(database)
    seen: list[str | None] = []

    def look(_connection: Connection, _cursor: object, statement: str, *_: object) -> None:
        if "RELEASE_LOCK" in statement:
            seen.append(other.read(schema_of))

    event.listen(Engine, "before_cursor_execute", look)
    try:
        bring_up(database)
    finally:
        event.remove(Engine, "before_cursor_execute", look)
        database.close()
        other.close()
    assert seen == [SCHEMA]


def test_processes_that_start_at_once_all_find_the_tables(store_url: str) -> None:
    database = Database(store_url, Secret())
    drop_all(database)
    database.close()
    started = [
        subprocess.Popen([sys.executable, "-W", "error", "-c", OPEN, store_url], stdout=-1, stderr=-1, text=True)
        for _ in range(3)
    ]
    assert [process.communicate(timeout=60) for process in started] == [("()\n", "")] * 3


def test_a_newer_store_is_left_alone(store_url: str) -> None:
    open_store(store_url).close()
    database = Database(store_url, Secret())
    rename = update(table(VERSION_TABLE, column("version_num")))
    database.write(lambda connection: connection.execute(rename.values(version_num="9999")))
    try:
        with pytest.raises(StoreError, match=r"has schema 9999, which this version does not know") as caught:
            open_store(store_url)
        assert "newer" in caught.value.hint
    finally:
        database.write(lambda connection: connection.execute(rename.values(version_num=SCHEMA)))
        database.close()


def test_a_folder_with_signs_in_its_name(tmp_path: Path) -> None:
    folder = tmp_path / "100% süß"
    folder.mkdir()
    open_store(f"sqlite:///{folder}/store.db").close()
    assert (folder / "store.db").stat().st_size > 0


def test_a_packed_copy_makes_a_store_and_opens_one_but_changes_none(tmp_path: Path) -> None:
    packed = tmp_path / "twinshore.zip"
    with zipfile.ZipFile(packed, "w") as archive:
        for file in sorted(Path(twinshore.__path__[0]).rglob("*.py")):
            archive.write(file, file.relative_to(Path(twinshore.__path__[0]).parent))
    url = f"sqlite:///{tmp_path}/store.db"
    assert run_packed(packed, url) == "()\n"
    assert run_packed(packed, url) == "()\n"
    database = Database(url, Secret())
    older = update(table(VERSION_TABLE, column("version_num"))).values(version_num="0020")
    database.write(lambda connection: connection.execute(older))
    database.close()
    assert "twinshore store upgrade" in run_packed(packed, url)
    assert database_schema(url) == "0020"


def database_schema(url: str) -> str | None:
    database = Database(url, Secret())
    try:
        return database.read(schema_of)
    finally:
        database.close()


def run_packed(packed: Path, url: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(packed)}
    command = [sys.executable, "-W", "error", "-c", OPEN, url]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    return run.stdout + run.stderr


def test_monitors_of_before_watch_the_links_that_they_named(store_url: str) -> None:
    """As version 0022 left them: one was killed, or runs on meanwhile."""
    database = Database(store_url, Secret())
    drop_all(database)
    long = [f"a-cluster-with-a-long-name-{number}->west" for number in range(9)]
    said = f"watches {', '.join(f'{link} (heartbeats take 0.1 s)' for link in long)}; 0 alarms stand"
    rows = {
        "monitor of a->b, c->d": ("links", "watches", ["a->b", "c->d"]),
        f"monitor of {', '.join(long)}"[:250]: ("links", said, long),
        "watcher of watchers": ("watchers", "watches", []),
    }

    def as_of_0022(connection: Connection) -> None:
        config = scripts()
        config.attributes["connection"] = connection
        command.upgrade(config, "0022")
        names = ("name", "kind", "sentence", "owner", "beat", "every_ms", "beaten_ms", "sampled_ms")
        before = table("delay_watches", *map(column, names))
        for name, (kind, sentence, _) in rows.items():
            values = dict(zip(names, (name, kind, sentence, "a", 1, 1_000, 5, 5), strict=True))
            connection.execute(before.insert().values(values))

    database.write(as_of_0022)
    database.close()
    with open_upgraded(store_url) as store:
        assert {row.name: list(row.links) for row in store.delay.watches()} == {
            name: links for name, (_, _, links) in rows.items()
        }


def test_a_store_that_knew_no_links_goes_on_and_takes_them_from_settings(store_url: str) -> None:
    """As version 0011 left it: with a twin and a word of an operator, and without rows of links."""
    database = Database(store_url, Secret())
    drop_all(database)

    def as_of_0011(connection: Connection) -> None:
        config = scripts()
        config.attributes["connection"] = connection
        command.upgrade(config, "0011")

    database.write(as_of_0011)
    assert database.read(schema_of) == "0011"
    twin = {"link": "east->west", "topic": "orders", "partition": 0, "source_topic_id": "aa", "target_topic_id": "bb"}
    numbers = {"anchor_offset": 7, "anchor_sequence": 3, "created_ms": 1}
    word = {"link": "east->west", "name": "paused", "value": "true", "changed_ms": 1, "changed_by": "anna"}
    database.write(lambda connection: connection.execute(twins.insert().values(twin | numbers)))
    database.write(lambda connection: connection.execute(controls.insert().values(word)))
    with open_upgraded(store_url) as store:
        assert store.link_rows.read() == (0, ())
        row = LinkRow("east->west", LinkState.KEPT, "{}", "{}", 0, 5, "the settings")
        assert store.link_rows.change([row], seen=0)
        assert [one.topic for one in store.twins.of("east->west")] == ["orders"]
        assert [one.name for one in store.controls.of("east->west")] == ["paused"]
    assert database.read(differences) == []
    database.close()
