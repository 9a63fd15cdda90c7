"""`twinshore spool`: what it says, and with which exit code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.client.spool.spooling import put, record, segments
from twinshore.cli.app import app, register_verbs
from twinshore.client.spool import Spool
from twinshore.config.errors import RefusedError


def run(*words: object) -> tuple[int, str]:
    register_verbs()
    done = CliRunner().invoke(app, ["spool", *map(str, words)])
    if done.exception and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, done.output


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    spool = Spool(tmp_path / "spool")
    for number in range(3):
        put(spool, record(number))
    spool.close()
    return tmp_path / "spool"


def test_it_shows_for_people_and_for_programs(folder: Path) -> None:
    code, said = run("show", folder)
    assert code == 0
    assert said.startswith(f"{folder}: 3 records of 1 topic to send, ")
    code, said = run("show", folder, "--json")
    assert (code, json.loads(said)["topics"][0]["records"]) == (0, 3)


def test_damage_is_an_exit_code(folder: Path) -> None:
    (path,) = segments(folder)
    path.write_bytes(path.read_bytes().replace(b"value 1", b"Value 1"))
    code, said = run("show", folder)
    assert code == 1
    assert "damage: " in said


def test_nothing_is_dropped_without_a_yes(folder: Path) -> None:
    assert "orders: 3 records" in run("drop", folder, "--topic", "orders")[1]
    assert "would be dropped" in run("drop", folder, "--topic", "orders")[1]
    assert "is dropped" in run("drop", folder, "--topic", "orders", "--yes")[1]
    assert "0 records of 0 topics to send" in run("show", folder)[1]


def test_it_sends_to_the_clusters_of_the_settings(folder: Path, tmp_path: Path) -> None:
    settings = tmp_path / "clusters.toml"
    settings.write_text('[clusters.away]\nbootstrap = ["127.0.0.1:1"]\n')
    words = ("send", folder, "--settings", settings)
    assert "would be sent" in run(*words, "--dry-run")[1]
    with pytest.raises(RefusedError, match="orders: 3 records"):
        run(*words, "--within-s", "0.1")
