"""`twinshore mirror resume`: an incident's cause is mended, its partitions may go on."""

from __future__ import annotations

from pathlib import Path

import typer

from twinshore.cli.looking import LINKS, SETTINGS, load, who
from twinshore.cli.steps import carry_out

PARTITION = typer.Option(None, "--partition", min=0, help="Only this partition; all that are stopped otherwise.")
DRY_RUN = typer.Option(False, "--dry-run", help="Only say what would be resumed.")


def resume(
    topic: str = typer.Argument(help="The topic with stopped partitions, as the source names it."),
    partition: int | None = PARTITION,
    settings: Path = SETTINGS,
    link: list[str] = LINKS,
    dry_run: bool = DRY_RUN,
) -> None:
    """Lets partitions go on that an incident stopped; the running mirror takes them up within seconds.

    Refused while the cause still stands, where that can be looked at.
    """
    from twinshore.mirror.operations.resume import ResumeStopped, act, plan
    from twinshore.store.opening import open_known

    loaded = load(settings)
    with open_known(loaded) as store:
        planned = plan(ResumeStopped(topic, partition, link), loaded, store)
        carry_out(planned, act(planned, store, by=who()), dry_run=dry_run)
