"""Asking the command line about clusters that nobody can reach: a settings file, and a verb run on it."""

from __future__ import annotations

from pathlib import Path

from typer.testing import CliRunner

from twinshore.cli.app import app, register_verbs
from twinshore.state.store import Store, open_store

LINK = "east->west"


def write_settings(folder: Path, links: str) -> Path:
    """Settings with a store of their own and the clusters east and west, where nothing answers."""
    found = folder / "twinshore.toml"
    found.write_text(
        f"""
[store]
url = "{_store_url(folder)}"
[clusters.east]
bootstrap = ["127.0.0.1:1"]
[clusters.west]
bootstrap = ["127.0.0.1:2"]
{links}"""
    )
    return found


def opened(file: Path) -> Store:
    """The store of these settings."""
    return open_store(_store_url(file.parent))


def run(file: Path, *words: str) -> str:
    """What the verb says; raises as it does."""
    register_verbs()
    # What follows "--" is taken for names, whatever it looks like.
    at = words.index("--") if "--" in words else len(words)
    done = CliRunner().invoke(app, [*words[:at], "--settings", str(file), *words[at:]])
    if done.exception and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.output


def _store_url(folder: Path) -> str:
    return f"sqlite:///{folder / 'store.db'}"
