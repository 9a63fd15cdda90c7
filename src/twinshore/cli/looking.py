"""What verbs that only look share: the settings, and the store if there is one. Looking makes no database."""

from __future__ import annotations

import getpass
import os
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from twinshore.fleet import ConfigError, Link
from twinshore.fleet.settings import Settings, load_settings

if TYPE_CHECKING:
    from twinshore.store import Store

SETTINGS = typer.Option(Path("twinshore.toml"), "--settings", help="Settings file.")
LINKS = typer.Option([], "--link", help="Only this link; may be given several times.")
JSON = typer.Option(False, "--json", help="Print JSON for programs.")


def load(path: Path) -> Settings:
    """The settings as every verb reads them."""
    return load_settings(path, os.environ)


def chosen(settings: Settings, names: list[str]) -> list[Link]:
    """The links of these names; all of them when none is named. `east..west` is east->west, for whoever may not pass
    a ">" on."""
    arrows = [name if "->" in name else name.replace("..", "->", 1) for name in names]
    return [settings.link(name) for name in arrows] if names else list(settings.links)


def open_if_there(settings: Settings) -> Store | None:
    """The store, or None where it is a file that is not there yet."""
    # Here, so that `twinshore --help` does not wait for a database library.
    from sqlalchemy import make_url

    from twinshore.store import open_store

    url = make_url(settings.store.url)
    if url.get_backend_name() == "sqlite" and url.database and not Path(url.database).exists():
        return None
    return open_store(settings.store.url, settings.store.password)


def open_known(settings: Settings) -> Store:
    """The store, for verbs that have nothing to say or to do before a mirror has made one."""
    store = open_if_there(settings)
    if store is None:
        raise ConfigError("there is no store yet: no mirror has run with these settings here")
    return store


def who() -> str:
    """Who says so, for the audit."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "somebody without a name"
