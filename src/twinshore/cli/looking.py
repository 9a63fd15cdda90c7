"""What verbs share: where the settings are, which links are meant, and who asks."""

from __future__ import annotations

import getpass
import os
from pathlib import Path

import typer

from twinshore.fleet.settings import Settings, load_settings

SETTINGS = typer.Option(Path("twinshore.toml"), "--settings", help="Settings file.")
LINKS = typer.Option([], "--link", help="Only this link; may be given several times.")
JSON = typer.Option(False, "--json", help="Print JSON for programs.")


def load(path: Path) -> Settings:
    """The settings as every verb reads them, with the links that there are by the store."""
    from twinshore.links.operations.look import with_links

    return with_links(load_settings(path, os.environ), lambda sentence: typer.echo(sentence, err=True))


def load_alone(path: Path) -> Settings:
    """The settings as they are in the file, for a verb that asks the store itself."""
    return load_settings(path, os.environ)


def who() -> str:
    """Who says so, for the audit: whoever sits at this terminal."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "somebody without a name"
