"""An operation's plan, shown, told or done: the same words for every verb. What others may have written, as names and
messages that come from a cluster, is kept on its line."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, TypeVar

import typer

from twinshore.fleet.sentences import one_line

if TYPE_CHECKING:
    from twinshore.fleet.operations import Plan, Step

S = TypeVar("S", bound="Step")


def show(plan: Plan[S], *, steps: bool) -> None:
    """What is to be known, with the steps where they are asked for; raises why it is refused."""
    say(plan.shown)
    say(f"  {step.sentence(done=False)}" for step in (plan.steps if steps else ()))
    say(plan.remarks)
    if plan.refused:
        raise plan.refused


def carry_out(plan: Plan[S], doing: Iterable[S], *, dry_run: bool) -> list[S]:
    """Says what is to be known, then each step once it is done; `doing` is not begun for a dry run. The steps as they
    came out; raises in the end why something of what was asked is not done."""
    say(plan.shown)
    steps = []
    for step in plan.steps if dry_run else doing:
        say([step.sentence(done=not dry_run)])  # At once: what is done is known, whatever happens to the rest.
        steps.append(step)
    say(plan.remarks)
    if plan.refused:
        raise plan.refused
    return steps


def agreed(plan: Plan[S], doing: Iterable[S], *, yes: bool, dry_run: bool) -> None:
    """Shows what would be done, asks once more, and says each step once it is done; `doing` is not begun before."""
    show(plan, steps=True)
    if dry_run or not plan.steps:
        return
    if not yes:
        typer.confirm("Go on?", abort=True)
    say(step.sentence(done=True) for step in doing)


def say(lines: Iterable[str]) -> None:
    for line in lines:
        typer.echo(one_line(line))
