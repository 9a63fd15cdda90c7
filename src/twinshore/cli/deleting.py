"""`twinshore mirror keep` and `twinshore mirror delete`: an operator's no, and an operator's yes, to a deletion."""

from __future__ import annotations

from pathlib import Path

import typer

from twinshore.cli.looking import LINKS, SETTINGS, load, who
from twinshore.cli.steps import carry_out

TOPIC = typer.Argument("", help="The topic, as the source names it.")
EVERY = typer.Option(False, "--all", help="All topics of the link, also future ones.")
UNDO = typer.Option(False, "--undo", help="Take it back: policies hold again, each deletion after its whole delay.")
DRY_RUN = typer.Option(False, "--dry-run", help="Only say what would be agreed to.")


def keep(
    topic: str = TOPIC, settings: Path = SETTINGS, link: list[str] = LINKS, every: bool = EVERY, undo: bool = UNDO
) -> None:
    """Forbids that a topic's twin is deleted, by any policy or agreement, until it is taken back with --undo.

    A running mirror obeys at once: it asks right before each deletion.
    """
    from twinshore.mirror.operations.deletion import Keep, act_keep, plan_keep
    from twinshore.store.opening import open_known

    loaded = load(settings)
    links = [loaded.only(link).name] if undo else link
    with open_known(loaded) as store:
        planned = plan_keep(Keep(topic, links, every, undo), loaded, store)
        carry_out(planned, act_keep(planned, store, by=who()), dry_run=False)


def delete(
    topic: str = typer.Argument(help="The topic, deleted on the source, whose twin waits for an operator's word."),
    settings: Path = SETTINGS,
    link: list[str] = LINKS,
    dry_run: bool = DRY_RUN,
) -> None:
    """Agrees to the deletion of a twin that waits because too many twins would be deleted at once.

    The running mirror deletes the twin within seconds, if nothing else forbids it at that moment. With several links
    in the settings, --link says whose twin it is.
    """
    from twinshore.mirror.operations.deletion import Delete, act_delete, plan_delete
    from twinshore.store.opening import open_known

    loaded = load(settings)
    name = loaded.only(link).name
    with open_known(loaded) as store:
        planned = plan_delete(Delete(topic, [name]), loaded, store)
        carry_out(planned, act_delete(planned, store, by=who()), dry_run=dry_run)
