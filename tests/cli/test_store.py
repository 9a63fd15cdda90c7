"""No verb changes the store of another version, and none that only looks makes a store."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

import pytest
from sqlalchemy import create_engine, inspect
from typer.testing import CliRunner

from testkit.databases import PostgresServer
from twinshore.cli.app import app, register_verbs
from twinshore.config.errors import StoreError
from twinshore.state.schema_version import SCHEMA_VERSION
from twinshore.state.store import open_store

pytestmark = pytest.mark.usefixtures("short_patience")

SETTINGS = """\
[store]
url = "sqlite:///store.db"
[clusters.east]
bootstrap = ["127.0.0.1:1"]
[clusters.west]
bootstrap = ["127.0.0.1:2"]
[links."east->west"]
topics = ["orders"]
"""
# Looks, dry runs, and what would write.
VERBS = (
    "status",
    "topology",
    "audit",
    "mirror plan",
    "mirror run",
    "link list",
    "link homes",
    "link pause east->west --dry-run",
    "link pause east->west",
    "groups",
    "delay",
    "prove",
    "proxy plan",
    "proxy breaker list",
    "proxy breaker open orders --produce --reason late --dry-run",
    "switch status",
    "switch run orders --to west --dry-run",
)

WRITE = ("mirror run", "link pause east->west", "prove")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    open_store(f"sqlite:///{tmp_path / 'store.db'}").close()
    with contextlib.closing(sqlite3.connect(tmp_path / "store.db")) as connection, connection:
        connection.execute("UPDATE twinshore_schema SET version_num = '0020'")
    (tmp_path / "twinshore.toml").write_text(SETTINGS)
    return tmp_path


def run(folder: Path, words: str) -> tuple[int, str]:
    register_verbs()
    done = CliRunner().invoke(app, [*words.split(), "--settings", str(folder / "twinshore.toml")])
    refused = done.exception
    told = f"{refused.message} {refused.hint}" if isinstance(refused, StoreError) else ""
    return done.exit_code, f"{done.output}{told}"


def held(folder: Path) -> list[str]:
    """Every table and row. How SQLite keeps its journal is no part of them."""
    with contextlib.closing(sqlite3.connect(folder / "store.db")) as connection:
        return list(connection.iterdump())


@pytest.mark.parametrize("verb", VERBS)
def test_no_verb_changes_the_store_of_another_version(folder: Path, verb: str) -> None:
    before = held(folder)
    code, told = run(folder, verb)
    assert code != 0
    assert told.count(f"has schema 0020, and this version needs {SCHEMA_VERSION}") == 1, "it is told once"
    assert held(folder) == before


@pytest.mark.claim("topics", "looking-makes-no-store", "verbs that only look make no tables in an empty database")
def test_no_verb_that_looks_makes_tables(tmp_path: Path, postgres: PostgresServer) -> None:
    url = postgres.new_database()
    (tmp_path / "twinshore.toml").write_text(SETTINGS.replace("sqlite:///store.db", url))
    engine = create_engine(url)
    for verb in VERBS:
        if verb not in WRITE:
            run(tmp_path, verb)
            assert inspect(engine).get_table_names() == [], verb
    engine.dispose()
