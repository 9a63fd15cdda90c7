"""What every verb says of itself: an example that would run, exit codes, and scripts that complete it."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from twinshore.cli.app import EXAMPLES, EXIT_CODES, INTERNAL_ERROR_EXIT_CODE, app, build_command, main, print_error
from twinshore.config.errors import ConfigError

TWINSHORE = Path(sys.executable).with_name("twinshore")


def verbs(verb: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Each verb that can be run, by its words."""
    inner = getattr(verb, "commands", {})
    if words and (not inner or verb.invoke_without_command):
        yield " ".join(words), verb
    for name, one in inner.items():
        yield from verbs(one, (*words, name))


VERBS = {name: verb for name, verb in verbs(build_command()) if name != "migrate"}


def test_each_verb_has_an_example_and_no_example_is_of_another() -> None:
    assert sorted(EXAMPLES) == sorted(VERBS)


@pytest.mark.parametrize("name", VERBS)
def test_the_example_is_one_that_the_verb_takes(name: str) -> None:
    words = shlex.split(EXAMPLES[name].partition(" > ")[0])
    assert words[: len(name.split())] == name.split()
    VERBS[name].make_context(name, words[len(name.split()) :])


@pytest.mark.parametrize("name", ["status", "mirror plan", "delay"])
def test_help_ends_with_the_example(name: str) -> None:
    env = {**os.environ, "COLUMNS": "200"}
    done = subprocess.run([TWINSHORE, *name.split(), "--help"], capture_output=True, text=True, check=True, env=env)
    assert f"Example: twinshore {EXAMPLES[name]}" in done.stdout


def test_help_shows_how_to_ask_a_platform_where_one_takes_the_verb() -> None:
    shown = {name for name, verb in VERBS.items() if any(one.name == "server" for one in verb.params)}
    assert {"link list", "delay", "login"} <= shown and shown.isdisjoint({"mirror run", "lab up"})


def test_the_help_of_all_says_what_its_exit_codes_mean() -> None:
    done = subprocess.run([TWINSHORE, "--help"], capture_output=True, text=True, check=True)
    said = " ".join(done.stdout.split())
    assert "Exit codes: 0 " in said
    assert all(f"{code} " in said or f"{code}," in said for code in EXIT_CODES)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_completes_by_asking_the_command(shell: str) -> None:
    done = CliRunner().invoke(app, ["completion", shell])
    assert done.exit_code == 0
    assert "_TWINSHORE_COMPLETE" in done.stdout


def test_bash_takes_the_script_and_completes_verbs_and_options_with_it() -> None:
    script = subprocess.run([TWINSHORE, "completion", "bash"], capture_output=True, text=True, check=True).stdout
    asks = (
        f"{script}\nPATH={TWINSHORE.parent}:$PATH\nCOMP_WORDS=(twinshore mirror recr)\nCOMP_CWORD=2\n"
        "_twinshore_completion twinshore\necho ${COMPREPLY[@]}\n"
        "COMP_WORDS=(twinshore status --wa)\nCOMP_CWORD=2\n_twinshore_completion twinshore\necho ${COMPREPLY[@]}\n"
    )
    done = subprocess.run(["bash", "-c", asks], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["recreate", "--watch"], done.stderr


def test_a_shell_that_nobody_knows_is_refused() -> None:
    assert CliRunner().invoke(app, ["completion", "dos"]).exit_code == 2


def test_help_and_completion_load_no_settings_no_protocol_and_no_store() -> None:
    heavy = ["pydantic", "kio", "hypothesis", "sqlalchemy", "pyspark", "twinshore.kafka.cluster", "twinshore.state"]
    code = (
        f"import sys; from twinshore.cli.app import build_command; build_command(); print(set({heavy!r}) & "
        "set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_an_error_shows_its_code_and_json_has_its_values(capsys: pytest.CaptureFixture[str]) -> None:
    error = ConfigError("config.several-links", count=2, links="a, b")
    print_error(error, as_json=False)
    first, second = capsys.readouterr().err.splitlines()
    assert first == f"error: {error.message} [config.several-links]"
    assert second == f"  try: {error.hint}"
    print_error(error, as_json=True)
    told = json.loads(capsys.readouterr().err)
    assert (told["code"], told["values"]) == ("config.several-links", {"count": 2, "links": "a, b"})
    assert (told["error"], told["hint"]) == (error.message, error.hint)
    print_error(ConfigError("config.invalid-settings", faults="two:\n  a\n  b"), as_json=False)
    assert capsys.readouterr().err.splitlines()[:2] == ["error: two: [config.invalid-settings]", "  a"]


def test_a_mistake_of_its_own_is_no_answer(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A script takes 1 for an answer, and 2 for what was told on purpose."""

    def broken() -> None:
        raise ZeroDivisionError("by hand")

    monkeypatch.setattr("twinshore.cli.app.build_command", lambda: broken)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == INTERNAL_ERROR_EXIT_CODE
    assert INTERNAL_ERROR_EXIT_CODE in EXIT_CODES
    said = capsys.readouterr().err
    assert "ZeroDivisionError: by hand" in said, "who reports it needs to see where"
    assert "docs/troubleshooting.md" in said.splitlines()[-1]
