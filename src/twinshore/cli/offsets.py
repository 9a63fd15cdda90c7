"""`twinshore proxy offsets`: a group set to other places while its members run."""

from __future__ import annotations

from pathlib import Path

import typer

from twinshore.cli.looking import SETTINGS, load_alone, who
from twinshore.cli.steps import agreed

GROUP = typer.Argument(help="The group.", metavar="GROUP")
TOPIC = typer.Option([], "--topic", help="Only this topic, or partitions of it as in orders:0,2; may be repeated.")
EARLIEST = typer.Option(False, "--to-earliest", help="To the beginning of each partition.")
LATEST = typer.Option(False, "--to-latest", help="To the end of each partition.")
OFFSET = typer.Option(None, "--to-offset", min=0, help="To this offset.")
TIME = typer.Option("", "--to-time", help="To the first record of that time or later, as in 2026-11-26T10:00:00Z.")
SHIFT = typer.Option(None, "--shift-by", help="By so many records on, or back where it is negative.")
RESUME = typer.Option(False, "--resume", help="Finish a reset that was not finished.")
UNDO = typer.Option(False, "--undo", help="Have places as they were before a reset that was not finished.")
GATHER_S = typer.Option(10.0, "--gather-s", min=0.0, help="How long members are waited for, to come back together.")
DRY_RUN = typer.Option(False, "--dry-run", help="Only say what would be done.")
YES = typer.Option(False, "--yes", help="Do not ask once more.")


def offsets(
    group: str = GROUP,
    topic: list[str] = TOPIC,
    to_earliest: bool = EARLIEST,
    to_latest: bool = LATEST,
    to_offset: int | None = OFFSET,
    to_time: str = TIME,
    shift_by: int | None = SHIFT,
    resume: bool = RESUME,
    undo: bool = UNDO,
    gather_s: float = GATHER_S,
    settings: Path = SETTINGS,
    dry_run: bool = DRY_RUN,
    yes: bool = YES,
) -> None:
    """Shows where a group of the proxies' clients stands, or sets it to other places while its members run.

    Members wait for some seconds, join anew, and read on from the new places. Nobody is started again.
    """
    from twinshore.proxy.operations.offsets import act, asked_for, plan
    from twinshore.store.opening import open_or_make, open_to_look

    asked = asked_for(
        group,
        topic,
        earliest=to_earliest,
        latest=to_latest,
        offset=to_offset,
        time=to_time,
        shift=shift_by,
        resume=resume,
        undo=undo,
        gather_s=gather_s,
    )
    loaded = load_alone(settings)
    changes = asked.target is not None or asked.taking is not None
    with (open_or_make if changes and not dry_run else open_to_look)(loaded) as store:
        meant = plan(asked, loaded, store)
        agreed(meant, act(asked, meant, loaded, store, who()), yes=yes, dry_run=dry_run)
