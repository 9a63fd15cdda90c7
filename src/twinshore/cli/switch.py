"""`twinshore switch`: topics move to another home, and back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from twinshore.cli.looking import JSON, LINKS, SETTINGS, load, who
from twinshore.fleet.sentences import one_line
from twinshore.service.signals import heard

if TYPE_CHECKING:
    from twinshore.switch.operations.planning import SwitchPlan
    from twinshore.switch.operations.running import Asking
    from twinshore.switch.operations.showing import Shown

TOPICS = typer.Argument(help="Topics, as expressions for whole names.", metavar="TOPIC...")
TO = typer.Option(..., "--to", help="The cluster where the topics are written from then on.")
FORCE = typer.Option(False, "--force", help="The old home does not answer: move with what has crossed.")
HOLD_S = typer.Option(10.0, "--hold-s", help="How long writers may wait before the switch turns back.")
YES = typer.Option(False, "--yes", help="Do not ask.")
WHICH = typer.Argument("", help="The switch, by the first letters of its id; the one that is open where none is given.")
DRY_RUN = typer.Option(False, "--dry-run", help="Only say what would be done.")


def register(app: typer.Typer) -> None:
    """Adds the verb to the command."""
    switch = typer.Typer(help="Move topics to another home, and back.", no_args_is_help=True)
    for verb in (plan, run, status, resume, rollback, drill, history):
        switch.command(verb.__name__)(verb)
    app.add_typer(switch, name="switch")


def plan(
    topics: list[str] = TOPICS,
    to: str = TO,
    force: bool = FORCE,
    hold_s: float = HOLD_S,
    settings: Path = SETTINGS,
    link: list[str] = LINKS,
) -> None:
    """Shows what a switch would do, what stands in its way, and what would be lost. Changes nothing."""
    from twinshore.store.opening import open_to_look
    from twinshore.switch.operations.planning import asked_of
    from twinshore.switch.operations.planning import plan as plan_switch

    loaded = load(settings)
    with open_to_look(loaded) as store:
        _show(plan_switch(asked_of(topics, to, link, force=force, hold_s=hold_s), loaded, store, by=who()), steps=True)


def run(
    topics: list[str] = TOPICS,
    to: str = TO,
    force: bool = FORCE,
    hold_s: float = HOLD_S,
    settings: Path = SETTINGS,
    link: list[str] = LINKS,
    yes: bool = YES,
    dry_run: bool = DRY_RUN,
) -> None:
    """Moves topics: planned, without loss; or with --force, when their home is gone.

    Before its point of no return the switch turns back by itself where something fails, and at Ctrl-C. Exit code 1: it
    turned back, and the topics are at home where they were.
    """
    from twinshore.store.opening import open_known
    from twinshore.switch.operations.planning import asked_of
    from twinshore.switch.operations.planning import plan as plan_switch
    from twinshore.switch.operations.running import run_switch

    loaded = load(settings)
    with open_known(loaded) as store:
        planned = plan_switch(asked_of(topics, to, link, force=force, hold_s=hold_s), loaded, store, by=who())
        _show(planned, steps=dry_run)
        if dry_run:
            return
        if not yes:
            typer.confirm("Go on?", abort=True)
        with _asking() as asking:
            _ended(run_switch(planned, loaded, store, asking))


def drill(
    topics: list[str] = TOPICS,
    to: str = TO,
    settings: Path = SETTINGS,
    link: list[str] = LINKS,
) -> None:
    """Plays a planned switch without holding or moving anything, and says how long it would take."""
    from twinshore.store.opening import open_known
    from twinshore.switch.operations.planning import asked_of
    from twinshore.switch.operations.planning import plan as plan_switch
    from twinshore.switch.operations.running import run_switch

    loaded = load(settings)
    with open_known(loaded) as store:
        planned = plan_switch(asked_of(topics, to, link, drill=True), loaded, store, by=who())
        _show(planned, steps=False)
        with _asking() as asking:
            _ended(run_switch(planned, loaded, store, asking))


def status(which: str = WHICH, settings: Path = SETTINGS, json_output: bool = JSON) -> None:
    """Shows the switches that are open, or one of them with its history."""
    from twinshore.store.opening import open_known
    from twinshore.switch.operations.showing import one_switch, switches

    with open_known(load(settings)) as store:
        found = [one_switch(store, which)] if which else switches(store, open_only=True)
    if json_output:
        typer.echo(json.dumps([one.as_values() for one in found]))
        return
    for one in found:
        typer.echo(one_line(one.sentence()))
        for line in one.history() if which else []:
            typer.echo(line)
    if not found:
        typer.echo("no switch is open")


def history(settings: Path = SETTINGS, json_output: bool = JSON) -> None:
    """Shows every switch that was begun, the newest first."""
    from twinshore.store.opening import open_known
    from twinshore.switch.operations.showing import switches

    with open_known(load(settings)) as store:
        found = switches(store)
    if json_output:
        typer.echo(json.dumps([one.as_values() for one in found]))
        return
    for one in found:
        typer.echo(one_line(one.sentence()))
    if not found:
        typer.echo("no switch was begun yet")


def resume(which: str = WHICH, settings: Path = SETTINGS) -> None:
    """Goes on with a switch whose process is no more, from the deed that was under way."""
    from twinshore.store.opening import open_known
    from twinshore.switch.operations.running import resume as go_on

    loaded = load(settings)
    with open_known(loaded) as store, _asking() as asking:
        _ended(go_on(which, loaded, store, asking))


def rollback(which: str = WHICH, settings: Path = SETTINGS) -> None:
    """Turns a switch back whose process is no more: the topics stay at home where they were.

    Refused behind the point of no return.
    """
    from twinshore.store.opening import open_known
    from twinshore.switch.operations.running import roll_back

    loaded = load(settings)
    with open_known(loaded) as store, _asking() as asking:
        typer.echo(one_line(roll_back(which, loaded, store, asking).verdict()))


def _show(planned: SwitchPlan, *, steps: bool) -> None:
    for line in planned.shown:
        typer.echo(line)
    for step in planned.steps if steps else ():
        typer.echo(f"  {step.sentence(done=False)}")
    for line in planned.remarks:
        typer.echo(line)
    if planned.refused:
        raise planned.refused


@contextmanager
def _asking() -> Iterator[Asking]:
    """Who asks. The first Ctrl-C or SIGTERM turns the switch back as far as it can; the second ends the process."""
    from twinshore.switch.operations.running import Asking

    with heard() as asked:
        yield Asking(who(), lambda sentence: typer.echo(one_line(sentence)), asked.stop)


def _ended(ended: Shown) -> None:
    typer.echo(one_line(ended.verdict()))
    if not ended.done:
        raise typer.Exit(1)
