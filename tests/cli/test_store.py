"""`twinshore store upgrade`, and the verbs that must not do its work: none changes the store of an earlier version."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

import pytest
from typer.testing import CliRunner

from twinshore.cli.entry import app, gather
from twinshore.fleet import StoreError
from twinshore.store import open_store
from twinshore.store.schema import SCHEMA

EARLIER = Path(__file__).parent.parent / "store" / "earlier"
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
    "proxy fuse list",
    "proxy fuse open orders --produce --reason late --dry-run",
    "switch status",
    "switch run orders --to west --dry-run",
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with sqlite3.connect(tmp_path / "store.db") as connection:
        connection.executescript((EARLIER / "a6ed841.sql").read_text())
    connection.close()
    (tmp_path / "twinshore.toml").write_text(SETTINGS)
    return tmp_path


def run(folder: Path, words: str) -> tuple[int, str]:
    gather()
    done = CliRunner().invoke(app, [*words.split(), "--settings", str(folder / "twinshore.toml")])
    refused = done.exception
    told = f"{refused.message} {refused.hint}" if isinstance(refused, StoreError) else ""
    return done.exit_code, f"{done.output}{told}"


def held(folder: Path) -> list[str]:
    """Every table and row. How SQLite keeps its journal is no part of them."""
    with contextlib.closing(sqlite3.connect(folder / "store.db")) as connection:
        return list(connection.iterdump())


@pytest.mark.parametrize("verb", VERBS)
def test_no_other_verb_changes_an_older_store(folder: Path, verb: str) -> None:
    before = held(folder)
    code, told = run(folder, verb)
    assert code != 0
    assert told.count("twinshore store upgrade") == 1, "it is told once"
    assert held(folder) == before


def test_it_says_what_it_would_do_then_does_it_and_the_verbs_go_on(folder: Path) -> None:
    code, told = run(folder, "store upgrade --dry-run")
    assert (code, "would be changed, for good" in told) == (0, True)
    assert run(folder, "status")[0] != 0
    code, told = run(folder, "store upgrade --yes")
    assert (code, f"to {SCHEMA}" in told) == (0, True)
    open_store(f"sqlite:///{folder}/store.db").close()
    assert "nothing to do" in run(folder, "store upgrade")[1]


def test_whoever_says_no_changes_nothing(folder: Path) -> None:
    before = held(folder)
    gather()
    done = CliRunner().invoke(app, ["store", "upgrade", "--settings", str(folder / "twinshore.toml")], input="n\n")
    assert done.exit_code == 1
    assert held(folder) == before
