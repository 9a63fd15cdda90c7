"""The options that verbs share, and their names."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import typer

SETTINGS = typer.Option(Path("twinshore.toml"), "--settings", help="Settings file.")
LINKS = typer.Option([], "--link", help="Only this link; repeatable.")
JSON = typer.Option(False, "--json", help="Print JSON.")
DRY_RUN = typer.Option(False, "--dry-run", help="Show the steps; change nothing.")
YES = typer.Option(False, "--yes", help="Do not ask for confirmation.")
RESCUE_FOLDER = typer.Option(
    None, "--folder", help="Folder for rescued records; default: `rescued` beside the settings file."
)
POLICY = typer.Option(None, "--policy", help="File with rules, limits and waived findings.")
HTML = typer.Option(None, "--html", help="Also write a self-contained HTML page to this file.")
ALL_FINDINGS = typer.Option(False, "--all", help="Show all findings, not ten of each kind.")
PARTITION = typer.Option(0, "--partition", min=0, help="The partition.")
CLUSTER = typer.Option("", "--cluster", help="The cluster; optional if the settings have only one.")
BEFORE = typer.Option(0, "--before", min=0, help="Only entries older than this id.")
LAST = typer.Option(50, "--last", min=1, max=10_000, help="Number of entries, newest first.")
CLIENT = typer.Option("*", "--client", help="Only this client id, or a prefix followed by `*`.")
TOPICS = typer.Option([], "--topic", help="Only this topic; repeatable.")


def add_verbs(group: typer.Typer, *verbs: Callable[..., None]) -> None:
    """Adds verbs that are named as their functions."""
    for verb in verbs:
        group.command(verb.__name__.replace("_", "-"))(verb)
