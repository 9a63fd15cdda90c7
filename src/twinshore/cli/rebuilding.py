"""`twinshore mirror rebuild`: a spoilt twin is filled anew under its own name."""

from __future__ import annotations

from pathlib import Path

import typer

from twinshore.cli.looking import SETTINGS
from twinshore.cli.switch import run_plan

LINK = typer.Argument(help="The link whose twins these are, as east->west or east..west.", metavar="LINK")
TOPICS = typer.Argument(help="Topics, by their names.", metavar="TOPIC...")
FOLDER = typer.Option(
    None, "--folder", help="Where rescued records are kept; without it `rescued` beside the settings."
)
ANYWAY = typer.Option(False, "--anyway", help="Also while groups have members there, or somebody writes there.")
YES = typer.Option(False, "--yes", help="Do not ask.")
DRY_RUN = typer.Option(False, "--dry-run", help="Only say what would be rescued, deleted and filled again.")


def rebuild(
    link: str = LINK,
    topics: list[str] = TOPICS,
    folder: Path = FOLDER,
    anyway: bool = ANYWAY,
    settings: Path = SETTINGS,
    yes: bool = YES,
    dry_run: bool = DRY_RUN,
) -> None:
    """Deletes spoilt twins and fills them again; what their home lacks is saved to files first.

    The mirror must run. Nothing changes at the home. A killed rebuild goes on with `twinshore switch resume`. Exit code
    1: it turned back, and nothing was deleted.
    """
    from twinshore.switch.operations.rebuilding import Rebuilt
    from twinshore.switch.operations.rebuilding import plan as plan_rebuild

    run_plan(plan_rebuild, Rebuilt(link, topics, folder, anyway), settings, yes=yes, dry_run=dry_run)
