"""`twinshore mirror forget`: a topic's twin begins again, under no mirror that is at work."""

from __future__ import annotations

from pathlib import Path

import typer

from twinshore.cli.looking import LINKS, SETTINGS, load, who
from twinshore.cli.steps import carry_out

DRY_RUN = typer.Option(False, "--dry-run", help="Only say what would be forgotten.")


def forget(
    topic: str = typer.Argument(help="The topic whose twin shall be forgotten."),
    settings: Path = SETTINGS,
    link: list[str] = LINKS,
    dry_run: bool = DRY_RUN,
) -> None:
    """Forgets a topic's twin, so that it can begin again. Neither cluster is touched; the ledger keeps its rows.

    Stop the mirror first, delete the twin on the target, forget it here, start the mirror again. Refused while a
    mirror runs the link; where several links know the topic, --link says which.
    """
    from twinshore.mirror.operations.forget import Forget, act, plan
    from twinshore.store.opening import open_known

    loaded = load(settings)
    with open_known(loaded) as store:
        planned = plan(Forget(topic, link), loaded, store)
        carry_out(planned, act(planned, loaded, store, by=who(), tell=typer.echo), dry_run=dry_run)
