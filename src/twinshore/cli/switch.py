"""`twinshore switch`: moves topics to another home, and back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from twinshore.cli import rescue
from twinshore.cli.app import (
    JSON,
    LINKS,
    SETTINGS,
    confirm_and_run,
    get_operator_name,
    load_cli_settings,
    load_settings_file,
    print_lines,
    print_plan,
    print_result,
)
from twinshore.config import model
from twinshore.config.errors import RefusedError
from twinshore.config.sentences import escape_line
from twinshore.runtime.process import catch_stop_request

if TYPE_CHECKING:
    from twinshore.switch.operations.plan import SwitchPlan, SwitchPlanRequest
    from twinshore.switch.operations.run import SwitchCaller
    from twinshore.switch.operations.show import SwitchView

TOPICS = typer.Argument(None, help="Topics, as expressions for whole names.", metavar="TOPIC...")
NAMED = typer.Argument(help="Topics, as expressions for whole names.", metavar="TOPIC...")
GROUP = typer.Option("", "--group", help="One consumer group alone, by its name; its topics stay where they are.")
ALL = typer.Option(False, "--all", help="All topics that the link carries, in waves: each is a switch of its own.")
WAVE = typer.Option(model.TOPICS_PER_WAVE, "--wave", help="How many topics move at once with --all.")
PRODUCER = typer.Option("", "--producer", help="One producer alone: says why it cannot, or what to do in its place.")
OF = typer.Option("", "--of", help="The topics that this switch, or plan of waves, has moved, by its first letters.")
TO = typer.Option(..., "--to", help="The cluster where the topics are written from then on.")
BARE = typer.Option(
    False, "--without-data", help="A topic that no link carries: its writers move at once, and its records stay."
)
FORCE = typer.Option(False, "--force", help="The old home does not answer: move with what has crossed.")
HOLD_S = typer.Option(model.WRITE_PAUSE_S, "--hold-s", help="How long writers may wait before the switch turns back.")
GROUPS = typer.Option(
    False, "--groups", help="All groups of the proxies' clients go along, in one pause with the topics."
)
YES = typer.Option(False, "--yes", help="Do not ask.")
ALIVE = typer.Option("", "--alive", help="With --force --yes: the old home that answers, and is left all the same.")
WHICH = typer.Argument("", help="The switch, by the first letters of its id; the one that is open where none is given.")
UNKNOWN = typer.Argument("", help="The switch, by the first letters of its id; not needed where only one is unknown.")
OLD = typer.Option(..., "--old", help="The old home of a forced switch, which is back.")
FOLDER = typer.Option(
    None, "--folder", help="Where rescued records are kept; without it `rescued` beside the settings."
)
MAPPED = typer.Option(False, "--mapped", help="Delete nothing: twins go on behind what never crossed.")
DRY_RUN = typer.Option(False, "--dry-run", help="Only say what would be done.")


def register(app: typer.Typer) -> None:
    switch = typer.Typer(help="Move topics to another home, and back; or one consumer group.", no_args_is_help=True)
    for verb in (plan, run, status, resume, rollback, failback, drill, history, free):
        switch.command(verb.__name__)(verb)
    switch.add_typer(rescue.verbs(), name="rescue")
    app.add_typer(switch, name="switch")


def plan(
    topics: list[str] = TOPICS,
    to: str = TO,
    force: bool = FORCE,
    hold_s: float = HOLD_S,
    group: str = GROUP,
    every: bool = ALL,
    wave: int = WAVE,
    of: str = OF,
    producer: str = PRODUCER,
    without_data: bool = BARE,
    settings: Path = SETTINGS,
    link: list[str] = LINKS,
) -> None:
    """Shows what a switch would do, what stands in its way, and what would be lost. Changes nothing."""
    from twinshore.state.opening import open_existing
    from twinshore.switch.operations.dispatch import plan_switch
    from twinshore.switch.operations.plan import build_switch_request

    size = wave if every else 0
    asked = build_switch_request(
        topics or [],
        to,
        link,
        force=force,
        hold_s=hold_s,
        group=group,
        wave=size,
        of=of,
        producer=producer,
        bare=without_data,
    )
    if force:
        from twinshore.switch.operations import storeless

        with storeless.open_store_or_cluster(asked, load_settings_file(settings)) as (known, where):
            print_plan(storeless.plan(asked, known, where, by=get_operator_name()), steps=True)
        return
    loaded = load_cli_settings(settings)
    with open_existing(loaded) as store:
        print_plan(plan_switch(asked, loaded, store, by=get_operator_name()), steps=True)


def run(
    topics: list[str] = TOPICS,
    to: str = TO,
    force: bool = FORCE,
    hold_s: float = HOLD_S,
    group: str = GROUP,
    every: bool = ALL,
    wave: int = WAVE,
    of: str = OF,
    producer: str = PRODUCER,
    without_data: bool = BARE,
    groups: bool = GROUPS,
    settings: Path = SETTINGS,
    link: list[str] = LINKS,
    yes: bool = YES,
    alive: str = ALIVE,
    dry_run: bool = DRY_RUN,
) -> None:
    """Moves topics: planned, without loss; or with --force, when their home is gone. With --group one group alone;
    with --all a whole cluster in waves.

    Before its point of no return the switch turns back by itself where something fails, and at Ctrl-C. Exit code 1: it
    turned back, and the topics are at home where they were. With --force it works without the store where that does not
    answer; asked once more, it goes on with a switch that was killed.
    """
    from twinshore.switch.operations.dispatch import plan_switch
    from twinshore.switch.operations.plan import build_switch_request

    size = wave if every else 0
    asked = build_switch_request(
        topics or [],
        to,
        link,
        force=force,
        hold_s=hold_s,
        group=group,
        wave=size,
        of=of,
        producer=producer,
        bare=without_data,
    )
    if not force:
        run_plan(plan_switch, asked, settings, yes=yes, dry_run=dry_run, groups_to=to if groups else "")
        return
    run_forced(asked, settings, yes=yes, alive=alive, dry_run=dry_run, groups_to=to if groups else "")


def failback(
    topics: list[str] = NAMED,
    old: str = OLD,
    folder: Path = FOLDER,
    mapped: bool = MAPPED,
    settings: Path = SETTINGS,
    link: list[str] = LINKS,
    yes: bool = YES,
    dry_run: bool = DRY_RUN,
) -> None:
    """Makes the old home of a forced switch a twin again, once it is back; what never crossed is saved to files first.

    Where nothing diverged nothing is deleted. The mirror must run. Exit code 1: it turned back, nothing was deleted.
    """
    from twinshore.switch.operations.returning import FailbackRequest
    from twinshore.switch.operations.returning import plan as plan_failback

    asked = FailbackRequest(topics, old, link, folder, mapped)
    run_plan(plan_failback, asked, settings, yes=yes, dry_run=dry_run)


def drill(
    topics: list[str] = NAMED,
    to: str = TO,
    settings: Path = SETTINGS,
    link: list[str] = LINKS,
) -> None:
    """Plays a planned switch without holding or moving anything, and says how long it would take.

    Exit code 1: something stands in the way, as a writer that nothing can hold.
    """
    from twinshore.switch.operations.dispatch import plan_switch
    from twinshore.switch.operations.plan import build_switch_request

    run_plan(plan_switch, build_switch_request(topics, to, link, drill=True), settings, yes=True)


def status(which: str = WHICH, settings: Path = SETTINGS, json_output: bool = JSON) -> None:
    """Shows the switches that are open, or one of them with its history."""
    from twinshore.state.opening import open_existing
    from twinshore.switch.operations.show import find_switch, list_switches, mark_lifeless
    from twinshore.switch.operations.waves import describe_waves

    with open_existing(load_cli_settings(settings)) as store:
        found = [find_switch(store, which)] if which else list_switches(store, open_only=True)
        found = mark_lifeless(store, found)
        waves = [] if which else describe_waves(store)
    lines = [line for one in found for line in (one.sentence(), *(one.history() if which else ()))]
    lines += waves if found else (*waves, "no switch is open")
    print_result([one.as_values() for one in found], lines, as_json=json_output)


def history(settings: Path = SETTINGS, json_output: bool = JSON) -> None:
    """Shows every switch that was begun, the newest first."""
    from twinshore.state.opening import open_existing
    from twinshore.switch.operations.show import list_switches

    with open_existing(load_cli_settings(settings)) as store:
        found = list_switches(store)
    lines = [one.sentence() for one in found]
    print_result([one.as_values() for one in found], lines, as_json=json_output, none="no switch was begun yet")


def resume(which: str = WHICH, settings: Path = SETTINGS) -> None:
    """Goes on with a switch whose process is no more, from the deed that was under way, and with the waves after it."""
    from twinshore.state.opening import open_existing
    from twinshore.switch.operations.waves import resume as go_on

    loaded = load_cli_settings(settings)
    with open_existing(loaded) as store, asks() as asking:
        ended(go_on(which, loaded, store, asking))


def rollback(which: str = WHICH, settings: Path = SETTINGS) -> None:
    """Turns a switch back whose process is no more: the topics stay at home where they were.

    Refused past the point of no return.
    """
    from twinshore.state.opening import open_existing
    from twinshore.switch.operations.run import roll_back

    loaded = load_cli_settings(settings)
    with open_existing(loaded) as store, asks() as asking:
        typer.echo(escape_line(roll_back(which, loaded, store, asking).verdict()))


def free(which: str = UNKNOWN, settings: Path = SETTINGS, yes: bool = YES, dry_run: bool = DRY_RUN) -> None:
    """Ends on the clusters what a switch has left there that has ended, or that no store knows any more.

    Topics are free for another switch then, and those who follow homes go on where the topics are at home.
    """
    from twinshore.state.opening import open_existing
    from twinshore.switch.operations.freeing import FreeRequest, free_claims
    from twinshore.switch.operations.freeing import plan as plan_free

    loaded = load_cli_settings(settings)
    with open_existing(loaded) as store:
        planned = plan_free(FreeRequest(which), loaded, store)
        confirm_and_run(planned, free_claims(planned, loaded, by=get_operator_name()), yes=yes, dry_run=dry_run)


def run_plan(
    plan: Callable[..., SwitchPlan],
    asked: object,
    settings: Path,
    *,
    yes: bool,
    dry_run: bool = False,
    groups_to: str = "",
) -> None:
    """Shows the plan, asks for confirmation unless `yes`, and runs the switch. `groups_to`: the cluster to which the
    groups of proxy clients move too.
    """
    from twinshore.proxy.operations import groups_move as groups_home
    from twinshore.state.opening import open_existing
    from twinshore.switch.operations.dispatch import run_switch_plan
    from twinshore.switch.operations.run import require_writable_store

    loaded = load_cli_settings(settings)
    with open_existing(loaded) as store:
        require_writable_store(store)
        planned = plan(asked, loaded, store, by=get_operator_name())
        print_plan(planned, steps=dry_run)
        along = groups_home.plan_with_switch(groups_to, loaded, store, planned) if groups_to else None
        if along is not None:
            print_plan(along, steps=dry_run)
        if dry_run:
            return
        if not yes:
            typer.confirm("Go on?", abort=True)
        with (
            asks() as asking,
            groups_home.GroupsWithSwitch(along, groups_to, loaded, store, asking, planned) as gathering,
        ):
            called = replace(asking, before_hold=gathering.begin, behind_flip=gathering.go_on)
            ended(run_switch_plan(planned, loaded, store, called))
            gathering.end()


def run_forced(
    asked: SwitchPlanRequest, settings: Path, *, yes: bool, alive: str, dry_run: bool, groups_to: str
) -> None:
    """As `run_plan`, for a forced switch, which works without the store if that does not answer."""
    from twinshore.proxy.operations import groups_move as groups_home
    from twinshore.switch.operations import storeless

    with storeless.open_store_or_cluster(asked, load_settings_file(settings)) as (known, where):
        planned = storeless.plan(asked, known, where, by=get_operator_name())
        print_plan(planned, steps=dry_run)
        if dry_run:
            return
        agree(planned.alive, yes=yes, alive=alive)
        with asks() as asking:
            ended(storeless.run_switch(planned, known, where, asking))
            if groups_to:
                groups_home.move_groups_by_force(groups_to, known, where, asking.by, asking.tell)


def agree(old: str, *, yes: bool, alive: str) -> None:
    """Asks for confirmation. If the old home of a forced switch answers, the operator must type its name, which no
    habit types.
    """
    if old and yes and alive != old:
        raise RefusedError("cli.old-home-alive", cluster=old)
    if yes:
        return
    if not old:
        typer.confirm("Go on?", abort=True)
        return
    asked = f"Records may stay behind on {old}. Type its name to leave it all the same"
    if typer.prompt(asked, default="", show_default=False) != old:
        raise typer.Abort


@contextmanager
def asks() -> Iterator[SwitchCaller]:
    """Yields the caller. The first Ctrl-C or SIGTERM turns the switch back as far as possible; the second ends the
    process.
    """
    from twinshore.switch.operations.run import SwitchCaller

    with catch_stop_request() as asked:
        yield SwitchCaller(get_operator_name(), lambda sentence: typer.echo(escape_line(sentence)), asked.stop)


def ended(ended: SwitchView) -> None:
    print_lines([ended.verdict(), *ended.onward()])
    if not ended.done:
        raise typer.Exit(1)
