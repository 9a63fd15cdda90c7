"""What `twinshore prove` refuses before anything is asked."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from twinshore.cli.app import app, register_verbs
from twinshore.config.errors import ConfigError
from twinshore.config.settings import parse_settings

CLUSTERS = '[clusters.east]\nbootstrap = ["127.0.0.1:1"]\n[clusters.west]\nbootstrap = ["127.0.0.1:2"]\n'
LINK = '[links."east->west"]\ntopics = ["orders"]\n'


def refused(folder: Path, text: str, *words: str) -> ConfigError:
    settings = folder / "twinshore.toml"
    settings.write_text(f'[store]\nurl = "sqlite:///{folder}/store.db"\n{text}')
    register_verbs()
    result = CliRunner().invoke(app, ["prove", "--here", "--settings", str(settings), *words])
    assert isinstance(result.exception, ConfigError), result.output
    assert not (folder / "store.db").exists(), "refused before anything was done"
    return result.exception


def test_a_way_that_is_none_is_refused_with_the_nearest(tmp_path: Path) -> None:
    found = refused(tmp_path, CLUSTERS + LINK, "--mode", "contents")
    assert found.message == "--mode is 'contents'; did you mean content?"


def test_settings_without_a_link_have_nothing_to_prove(tmp_path: Path) -> None:
    assert "[links." in refused(tmp_path, CLUSTERS).hint


def test_a_link_that_is_none_is_named(tmp_path: Path) -> None:
    assert "no link 'east-west'" in refused(tmp_path, CLUSTERS + LINK, "--link", "east-west").message


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("tasks = 0", "tasks: is 0, the least is 1"),
        ("every_s = 0.1", "every_s: is 0.1, the least is 1"),
        ("range_record = 5", "range_record: unknown; did you mean range_records?"),
        ("throttle_mb_s = -1", "throttle_mb_s: is -1, the least is 0"),
    ],
)
def test_settings_of_proofs_are_checked(line: str, words: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse_settings(f"{CLUSTERS}{LINK}[proof]\n{line}\n", name="file", env={})
    assert words in error.value.message


def test_the_environment_overrides_settings_of_proofs() -> None:
    env = {"TWINSHORE_PROOF_TASKS": "7", "TWINSHORE_PROOF_BESIDE_MIRROR": "true"}
    found = parse_settings(CLUSTERS + LINK, name="file", env=env).proof
    assert (found.tasks, found.beside_mirror) == (7, True)
