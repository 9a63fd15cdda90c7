"""`twinshore store upgrade`: the store of an earlier version, changed to this one's."""

from __future__ import annotations

from pathlib import Path

import typer

from twinshore.cli.looking import SETTINGS, load_alone
from twinshore.cli.steps import agreed

DRY_RUN = typer.Option(False, "--dry-run", help="Only say what would change.")
YES = typer.Option(False, "--yes", help="Do not ask: it is backed up, and nothing uses it.")


def register(app: typer.Typer) -> None:
    """Adds the verb to the command."""
    verbs = typer.Typer(help="The store's own tables.", no_args_is_help=True)
    verbs.callback()(lambda: None)
    verbs.command("upgrade")(upgrade)
    app.add_typer(verbs, name="store")


def upgrade(settings: Path = SETTINGS, yes: bool = YES, dry_run: bool = DRY_RUN) -> None:
    """Changes the tables of an earlier version's store to this version's, for good.

    Stop whatever uses the store, and back it up first. Every other verb refuses such a store and changes nothing.
    """
    from twinshore.service.operations.upgrade import act, plan

    loaded = load_alone(settings)
    planned = plan(loaded, lambda sentence: typer.echo(sentence, err=True))
    agreed(planned, act(planned, loaded), yes=yes, dry_run=dry_run)
