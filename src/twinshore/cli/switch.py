"""`twinshore switch`: moves topics to another home, and back; records that fail-backs have saved."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from twinshore.cli import options
from twinshore.cli.app import (
    confirm_and_run,
    existing_store,
    get_operator_name,
    load_cli_settings,
    load_settings_file,
    print_lines,
    print_plan,
    print_result,
    verb_caller,
)
from twinshore.config import model
from twinshore.config.errors import RefusedError
from twinshore.config.sentences import escape_line
from twinshore.runtime.process import catch_stop_request

if TYPE_CHECKING:
    from twinshore.switch.operations.plan import SwitchPlan, SwitchPlanRequest
    from twinshore.switch.operations.run import SwitchCaller
    from twinshore.switch.operations.show import SwitchView

TOPICS = typer.Argument(None, help="Topics, as regular expressions for whole names.", metavar="TOPIC...")
NAMED = typer.Argument(help="Topics, as regular expressions for whole names.", metavar="TOPIC...")
GROUP = typer.Option("", "--group", help="Move one consumer group alone, by name; its topics stay.")
ALL = typer.Option(False, "--all", help="Move all topics that the link replicates, in waves; each wave is a switch.")
WAVE = typer.Option(model.TOPICS_PER_WAVE, "--wave", help="Topics per wave, with --all.")
PRODUCER = typer.Option("", "--producer", help="A producer cannot move alone: show why, and what to do instead.")
OF = typer.Option("", "--of", help="Topics that this switch or wave plan moved; first characters of its id.")
TO = typer.Option(..., "--to", help="The new home of the topics.")
BARE = typer.Option(
    False, "--without-data", help="A topic that no link replicates: its writers move at once, its records stay."
)
FORCE = typer.Option(False, "--force", help="The old home does not answer: switch with the replicated records.")
HOLD_S = typer.Option(
    model.WRITE_PAUSE_S, "--hold-s", help="Seconds that writers may wait before the switch rolls back."
)
ALIVE = typer.Option("", "--alive", help="With --force --yes: the old home's name, to switch although it answers.")
WHICH = typer.Argument("", help="First characters of the switch's id; default: the open switch.")
UNKNOWN = typer.Argument("", help="First characters of the switch's id; optional if only one is unknown.")


def register(app: typer.Typer) -> None:
    switch = typer.Typer(help="Move topics, or one consumer group, to another home and back.", no_args_is_help=True)
    options.add_verbs(switch, plan, run, status, resume, rollback, failback, drill, history, free)
    switch.add_typer(rescue_verbs(), name="rescue")
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
    settings: Path = options.SETTINGS,
    link: list[str] = options.LINKS,
) -> None:
    """Shows the steps of a switch, what blocks it, and which records would be lost. Changes nothing."""
    from twinshore.switch.operations.dispatch import plan_switch
    from twinshore.switch.operations.plan import SwitchPlanRequest

    size = wave if every else 0
    request = SwitchPlanRequest(
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

        with storeless.open_store_or_cluster(request, load_settings_file(settings)) as (known, where):
            print_plan(storeless.plan(request, known, where, by=get_operator_name()), steps=True)
        return
    with existing_store(settings) as (loaded, store):
        print_plan(plan_switch(request, loaded, store, by=get_operator_name()), steps=True)


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
    groups: bool = typer.Option(False, "--groups", help="Move all groups of proxy clients too, in the same pause."),
    settings: Path = options.SETTINGS,
    link: list[str] = options.LINKS,
    yes: bool = options.YES,
    alive: str = ALIVE,
    dry_run: bool = options.DRY_RUN,
) -> None:
    """Moves topics to another home: planned, without loss; or with --force, if the home is gone. Moves one group with
    --group, a whole cluster in waves with --all.

    If a step fails before the point of no return, or at Ctrl-C, the switch rolls back. Exit code 1: it rolled back, and
    the topics keep their home. With --force it works even if the store does not answer; run it again to continue a
    killed switch.
    """
    from twinshore.switch.operations.dispatch import plan_switch
    from twinshore.switch.operations.plan import SwitchPlanRequest

    size = wave if every else 0
    request = SwitchPlanRequest(
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
        run_plan(plan_switch, request, settings, yes=yes, dry_run=dry_run, groups_to=to if groups else "")
        return
    run_forced(request, settings, yes=yes, alive=alive, dry_run=dry_run, groups_to=to if groups else "")


def failback(
    topics: list[str] = NAMED,
    old: str = typer.Option(..., "--old", help="The old home of a forced switch, now back."),
    folder: Path = options.RESCUE_FOLDER,
    mapped: bool = typer.Option(
        False, "--mapped", help="Delete nothing: twins continue behind the records that were not replicated."
    ),
    settings: Path = options.SETTINGS,
    link: list[str] = options.LINKS,
    yes: bool = options.YES,
    dry_run: bool = options.DRY_RUN,
) -> None:
    """Makes the old home of a forced switch a twin again, once it is back. First saves records that were not replicated
    to files.

    Deletes nothing if nothing diverged. The mirror must run. Exit code 1: it rolled back and deleted nothing.
    """
    from twinshore.switch.operations.returning import FailbackRequest, plan_failback

    request = FailbackRequest(topics, old, link, folder, mapped)
    run_plan(plan_failback, request, settings, yes=yes, dry_run=dry_run)


def drill(
    topics: list[str] = NAMED, to: str = TO, settings: Path = options.SETTINGS, link: list[str] = options.LINKS
) -> None:
    """Rehearses a planned switch and estimates its duration. Pauses and moves nothing.

    Exit code 1: something blocks the switch, such as a writer that cannot be paused.
    """
    from twinshore.switch.operations.dispatch import plan_switch
    from twinshore.switch.operations.plan import SwitchPlanRequest

    run_plan(plan_switch, SwitchPlanRequest(topics, to, link, drill=True), settings, yes=True)


def status(which: str = WHICH, settings: Path = options.SETTINGS, json_output: bool = options.JSON) -> None:
    """Shows the open switches, or one switch with its history."""
    from twinshore.switch.operations.show import find_switch, list_switches, mark_lifeless
    from twinshore.switch.operations.waves import describe_waves

    with existing_store(settings) as (_, store):
        found = [find_switch(store, which)] if which else list_switches(store, open_only=True)
        found = mark_lifeless(store, found)
        waves = [] if which else describe_waves(store)
    lines = [line for view in found for line in (view.sentence(), *(view.history() if which else ()))]
    lines += waves if found else (*waves, "no switch is open")
    print_result([view.as_values() for view in found], lines, as_json=json_output)


def history(settings: Path = options.SETTINGS, json_output: bool = options.JSON) -> None:
    """Lists all switches, newest first."""
    from twinshore.switch.operations.show import list_switches

    with existing_store(settings) as (_, store):
        found = list_switches(store)
    lines = [view.sentence() for view in found]
    print_result([view.as_values() for view in found], lines, as_json=json_output, none="no switch was started yet")


def resume(which: str = WHICH, settings: Path = options.SETTINGS) -> None:
    """Continues a switch whose process ended, from its current step, and the waves after it."""
    from twinshore.switch.operations.waves import resume as go_on

    with existing_store(settings) as (loaded, store), asks() as caller:
        ended(go_on(which, loaded, store, caller))


def rollback(which: str = WHICH, settings: Path = options.SETTINGS) -> None:
    """Rolls back a switch whose process ended: the topics keep their home.

    Refused after the point of no return.
    """
    from twinshore.switch.operations.run import roll_back

    with existing_store(settings) as (loaded, store), asks() as caller:
        typer.echo(escape_line(roll_back(which, loaded, store, caller).verdict()))


def free(
    which: str = UNKNOWN, settings: Path = options.SETTINGS, yes: bool = options.YES, dry_run: bool = options.DRY_RUN
) -> None:
    """Removes from the clusters what a switch left there that ended or that no store knows.

    Another switch can then move the topics, and clients go to the topics' home.
    """
    from twinshore.switch.operations.freeing import free_claims
    from twinshore.switch.operations.freeing import plan as plan_free

    with existing_store(settings) as (loaded, store):
        plan = plan_free(which, loaded, store)
        confirm_and_run(plan, free_claims(plan, loaded, by=get_operator_name()), yes=yes, dry_run=dry_run)


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
    from twinshore.switch.operations.dispatch import run_switch_plan
    from twinshore.switch.operations.run import require_writable_store

    with existing_store(settings) as (loaded, store):
        require_writable_store(store)
        switch_plan = plan(asked, loaded, store, by=get_operator_name())
        print_plan(switch_plan, steps=dry_run)
        along = groups_home.plan_with_switch(groups_to, loaded, store, switch_plan) if groups_to else None
        if along is not None:
            print_plan(along, steps=dry_run)
        if dry_run:
            return
        if not yes:
            typer.confirm("Go on?", abort=True)
        with (
            asks() as caller,
            groups_home.GroupsWithSwitch(along, groups_to, loaded, store, caller, switch_plan) as gathering,
        ):
            called = replace(caller, before_hold=gathering.begin, behind_flip=gathering.go_on)
            ended(run_switch_plan(switch_plan, loaded, store, called))
            gathering.end()


def run_forced(
    request: SwitchPlanRequest, settings: Path, *, yes: bool, alive: str, dry_run: bool, groups_to: str
) -> None:
    """As `run_plan`, for a forced switch, which works without the store if that does not answer."""
    from twinshore.proxy.operations import groups_move as groups_home
    from twinshore.switch.operations import storeless

    with storeless.open_store_or_cluster(request, load_settings_file(settings)) as (known, where):
        plan = storeless.plan(request, known, where, by=get_operator_name())
        print_plan(plan, steps=dry_run)
        if dry_run:
            return
        agree(plan.alive, yes=yes, alive=alive)
        with asks() as caller:
            ended(storeless.run_switch(plan, known, where, caller))
            if groups_to:
                groups_home.move_groups_by_force(groups_to, known, where, caller.by, caller.tell)


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

    with catch_stop_request() as request:
        yield SwitchCaller(get_operator_name(), lambda line: print_lines([line]), request.stop, begun=verb_caller.begun)


def ended(ended: SwitchView) -> None:
    print_lines([ended.verdict(), *ended.onward()])
    if not ended.done:
        raise typer.Exit(1)


FILE = typer.Argument(..., help="A file of rescued records.", metavar="FILE")
FILES = typer.Argument(..., help="Files of rescued records, or their names in the folder.", metavar="FILE...")
LIMIT = typer.Option(10, "--limit", help="Number of records to show.")


def rescue_verbs() -> typer.Typer:
    found = typer.Typer(help="Records that fail-backs saved.", no_args_is_help=True)
    found.command("list")(list_files)
    options.add_verbs(found, export, show, reinject)
    return found


def list_files(
    settings: Path = options.SETTINGS, folder: Path = options.RESCUE_FOLDER, json_output: bool = options.JSON
) -> None:
    """Lists rescued records: where they were, and how many. Clusters keep them; `export` writes files."""
    from twinshore.switch.operations.rescued import add_replayed_records, list_kept_rescues, list_rescued_files
    from twinshore.switch.operations.returning import rescue_folder

    loaded = load_cli_settings(settings)
    where = rescue_folder(loaded, folder)
    found, odd = list_rescued_files(where)
    found, unknown = add_replayed_records(found, loaded)
    there, silent = list_kept_rescues(loaded)
    exported = {file.origin for file in found}
    there = [rescue for rescue in there if rescue.origin not in exported]
    values = [file.as_values() for file in found] + [rescue.as_values() for rescue in there]
    lines = [file.sentence() for file in found] + [rescue.sentence() for rescue in there]
    print_result(values, lines, as_json=json_output, none="" if odd else "nothing was rescued")
    for line in (*odd, *unknown, *silent):
        typer.echo(escape_line(line), err=True)


def export(settings: Path = options.SETTINGS, folder: Path = options.RESCUE_FOLDER) -> None:
    """Writes the rescued records that clusters keep and the folder lacks to files."""
    from twinshore.switch.operations.rescued import export_missing, list_kept_rescues
    from twinshore.switch.operations.returning import rescue_folder

    loaded = load_cli_settings(settings)
    there, silent = list_kept_rescues(loaded)
    for path in export_missing(loaded, rescue_folder(loaded, folder), there):
        typer.echo(str(path))
    for line in silent:
        typer.echo(escape_line(line), err=True)


def show(file: Path = FILE, limit: int = LIMIT, json_output: bool = options.JSON) -> None:
    """Shows a file of rescued records: a summary, and the first records."""
    from twinshore.switch.operations.rescued import describe_record, inspect_rescued_file, read_first_records

    found, records = inspect_rescued_file(file), read_first_records(file, limit)
    print_result(found.as_values(), [found.sentence(), *map(describe_record, records)], as_json=json_output)


def reinject(
    files: list[Path] = FILES,
    to: str = typer.Option("", "--to", help="Write to this topic, at its home; default: the original topic."),
    uncommitted: bool = typer.Option(False, "--uncommitted", help="Also records of transactions that did not commit."),
    settings: Path = options.SETTINGS,
    folder: Path = options.RESCUE_FOLDER,
    yes: bool = options.YES,
    dry_run: bool = options.DRY_RUN,
) -> None:
    """Writes rescued records from files to their topics, or to one topic. Writes each record once, even if repeated.

    Keeps keys, values, headers and timestamps; the header `twinshore-rescued` gives the original partition and offset.
    """
    from twinshore.switch.operations.rescued import ReplayRequest, replay_records
    from twinshore.switch.operations.rescued import plan as plan_reinject
    from twinshore.switch.operations.returning import rescue_folder

    is_job = bool(verb_caller.name)
    with existing_store(settings) as (loaded, store):
        where = rescue_folder(loaded, folder)
        # A bare name is one of the folder where the folder has it; a platform's job reads nothing else.
        files = [where / one if not one.parent.name and (is_job or (where / one).exists()) else one for one in files]
        plan = plan_reinject(ReplayRequest(files, to, uncommitted), loaded, store)
        confirm_and_run(plan, replay_records(plan, loaded, store, by=get_operator_name()), yes=yes, dry_run=dry_run)
