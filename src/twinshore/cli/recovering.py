"""`twinshore link recover`: a link whose store is lost goes on with this one, and nothing is copied again."""

from __future__ import annotations

from pathlib import Path

import typer

from twinshore.cli.looking import SETTINGS, load, who
from twinshore.cli.steps import carry_out

LINK = typer.Argument(help="The link, as its settings name it: `east->west`.")
DRY_RUN = typer.Option(False, "--dry-run", help="Only say what would be put back, and whose the link is now.")


def recover(link: str = LINK, settings: Path = SETTINGS, dry_run: bool = DRY_RUN) -> None:
    """Puts a lost store together again from what the link's target says, or takes the link over from another store.

    Positions, anchors and whom the link writes as come back; each twin is looked at as a pump does, and nothing is
    copied again. Stop the other store's mirror first, if it still runs. Refused while a mirror runs the link here.
    """
    from twinshore.mirror.operations.recover import Recover, act, plan
    from twinshore.store.opening import open_or_make, open_to_look

    loaded = load(settings)
    name = loaded.only([link]).name
    with (open_to_look if dry_run else open_or_make)(loaded) as store:
        planned = plan(Recover(name), loaded, store, tell=typer.echo)
        carry_out(planned, act(planned, loaded, store, by=who()), dry_run=dry_run)
