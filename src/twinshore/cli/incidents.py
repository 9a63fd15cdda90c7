"""`twinshore incidents`: the rows of the ledger, open and closed."""

from __future__ import annotations

import json
from pathlib import Path

import typer

from twinshore.cli.looking import JSON, LINKS, SETTINGS, load, say_page

LAST = typer.Option(50, "--last", min=1, max=10_000, help="How many rows, newest first.")
BEFORE = typer.Option(0, "--before", min=0, help="Only rows older than the one with this id.")
KIND = typer.Option("", "--kind", help='Only this kind, such as "stale dropped".')
TOPIC = typer.Option("", "--topic", help="Only what is about this topic of the source.")
OPEN = typer.Option(False, "--open", help="Only what is open.")


def incidents(
    settings: Path = SETTINGS,
    link: list[str] = LINKS,
    last: int = LAST,
    before: int = BEFORE,
    kind: str = KIND,
    topic: str = TOPIC,
    open_only: bool = OPEN,
    json_output: bool = JSON,
) -> None:
    """Prints the ledger: what made twins differ from their sources, with its offsets, also what is over.

    To see older rows than --last shows, give the id of the last row to --before.
    """
    from twinshore.mirror.operations.incidents import Incidents, in_words, values_of
    from twinshore.mirror.operations.incidents import incidents as found
    from twinshore.store.opening import open_known

    loaded = load(settings)
    with open_known(loaded) as store:
        rows = found(Incidents(link, kind, topic, open_only, before), loaded, store, last=last + 1)
    if json_output:
        typer.echo(json.dumps([values_of(row) for row in rows[:last]], indent=2))
        return
    narrowed = link or kind or topic or open_only or before
    none = "nothing of that is in the ledger" if narrowed else "the ledger is empty"
    say_page(rows, in_words, last=last, none=none)


def register(app: typer.Typer) -> None:
    """Adds `incidents` to the command."""
    app.command("incidents")(incidents)
