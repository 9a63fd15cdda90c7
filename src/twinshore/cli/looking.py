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
    """The settings as every verb reads them."""
    return load_settings(path, os.environ)


def who() -> str:
    """Who says so, for the audit: whoever sits at this terminal."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "somebody without a name"
