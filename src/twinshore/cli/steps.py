"""An operation's plan, told or done: the same words for every verb."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, TypeVar

import typer

if TYPE_CHECKING:
    from twinshore.fleet.operations import Plan, Step

S = TypeVar("S", bound="Step")


def carry_out(plan: Plan[S], doing: Iterable[S], *, dry_run: bool) -> list[S]:
    """Says what is to be known, then each step once it is done; `doing` is not begun for a dry run. The steps as they
    came out; raises in the end why something of what was asked is not done."""
    for line in plan.shown:
        typer.echo(line)
    steps = []
    for step in plan.steps if dry_run else doing:
        typer.echo(step.sentence(done=not dry_run))  # At once: what is done is known, whatever happens to the rest.
        steps.append(step)
    for line in plan.remarks:
        typer.echo(line)
    if plan.refused:
        raise plan.refused
    return steps
