"""`twinshore mirror`: run the links, or say what running them would do."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import typer

from twinshore.fleet.settings import Settings, load_settings

SETTINGS = typer.Option(Path("twinshore.toml"), "--settings", help="Settings file.")
LINKS = typer.Option([], "--link", help="Only this link; may be given several times.")


def register(app: typer.Typer) -> None:
    """Adds the verb to the command."""
    mirror = typer.Typer(help="Carry topics from one cluster to another, offset by offset.", no_args_is_help=True)
    mirror.command("run")(run)
    app.add_typer(mirror, name="mirror")


def run(settings: Path = SETTINGS, link: list[str] = LINKS) -> None:
    """Runs the links of the settings until stopped (Ctrl-C or SIGTERM ends it in good order)."""
    from twinshore.mirror.run import Mirror

    loaded = load(settings)
    links = [loaded.link(name) for name in link] if link else list(loaded.links)
    Mirror(loaded, links, _log).run()


def load(path: Path) -> Settings:
    """The settings as every verb reads them."""
    return load_settings(path, os.environ)


def _log(sentence: str) -> None:
    stamp = time.strftime("%H:%M:%S")
    print(f"{stamp} {sentence}", flush=True, file=sys.stdout)
