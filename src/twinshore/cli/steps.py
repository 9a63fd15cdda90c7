"""An operation's plan, told or done: the same words for every verb."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from twinshore.fleet.operations import Plan, Step


def carry_out(plan: Plan[Step], doing: Iterable[Step], *, dry_run: bool) -> None:
    """Says what is to be known, then each step once it is done; `doing` is not begun for a dry run. Raises in the end
    why something of what was asked is not done."""
    for line in plan.shown:
        typer.echo(line)
    for step in plan.steps if dry_run else doing:
        typer.echo(step.sentence(done=not dry_run))
    for line in plan.remarks:
        typer.echo(line)
    if plan.refused:
        raise plan.refused
