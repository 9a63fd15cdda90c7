"""`twinshore groups`: committed offsets of consumer groups on both sides, and translated offsets."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from twinshore.cli import options
from twinshore.cli.app import build_table, existing_store, get_operator_name, open_console, print_result, run_steps

if TYPE_CHECKING:
    from twinshore.groups.view import GroupView

BACK = typer.Option(False, "--back", help="From the target to the source.")


def register(app: typer.Typer) -> None:
    groups = typer.Typer()
    groups.callback(invoke_without_command=True)(show)
    options.add_verbs(groups, translate, move)
    app.add_typer(groups, name="groups")


def show(
    context: typer.Context,
    settings: Path = options.SETTINGS,
    link: list[str] = options.LINKS,
    group: str = typer.Option(".*", "--group", help="Regular expression for whole group names."),
    partitions: bool = typer.Option(False, "--partitions", help="Also show each partition's committed offsets."),
    json_output: bool = options.JSON,
) -> None:
    """Shows consumer groups on both sides of links, and their difference in records and seconds. Asks both clusters."""
    if context.invoked_subcommand is not None:
        return
    from twinshore.groups.operations import check_pattern, read_group_views, view_as_values, view_remarks

    check_pattern(group)
    with existing_store(settings) as (loaded, store):
        views, silent = read_group_views(group, link, loaded, store)
    if not json_output:
        _table(views, [*silent, *view_remarks(views)], partitions=partitions)
    values = [view_as_values(view, partitions=partitions) for view in views]
    print_result({"groups": values, "silent": silent}, (), as_json=json_output)


def translate(
    what: str = typer.Argument(help="A group, or an offset of --topic and --partition."),
    settings: Path = options.SETTINGS,
    link: list[str] = options.LINKS,
    topic: str = typer.Option("", "--topic", help="The topic, by its name on the side of the offset."),
    partition: int = options.PARTITION,
    back: bool = BACK,
    json_output: bool = options.JSON,
) -> None:
    """Translates an offset, or a group's offsets, to the other side. With --topic it asks the store, no cluster."""
    from twinshore.groups.operations import TranslationRequest
    from twinshore.groups.operations import translate_offsets as translated

    with existing_store(settings) as (loaded, store):
        places = translated(TranslationRequest(what, topic, partition, back, link), loaded, store)
    print_result(
        {"offsets": [result.as_values() for result in places]},
        [result.sentence() for result in places],
        as_json=json_output,
    )


def move(
    group: str = typer.Argument(help="Regular expression for whole group names."),
    settings: Path = options.SETTINGS,
    link: list[str] = options.LINKS,
    back: bool = BACK,
    lower: bool = typer.Option(False, "--backwards", help="Even if the committed offset there is higher."),
    dry_run: bool = options.DRY_RUN,
) -> None:
    """Commits a group's offsets on the other side now, even if a running mirror would wait. Never for a group with
    members there.

    Exit code 1: an offset was refused, or a group with other offsets was left alone.
    """
    from twinshore.groups.operations import MoveGroupOffsets, move_groups, plan_move

    with existing_store(settings) as (loaded, store):
        planned = plan_move(MoveGroupOffsets(group, link, back, lower), loaded, store)
        steps = run_steps(planned, move_groups(planned, loaded, store, by=get_operator_name()), dry_run=dry_run)
    if any(step.refused for step in steps):
        raise typer.Exit(1)


def _table(views: list[GroupView], remarks: list[str], *, partitions: bool) -> None:
    from rich.text import Text

    names = ("link", "group", "kind", "at source", "at target", "stands")
    table = build_table(names, ("partitions", "no offset", "records behind", "s behind"))
    for view in views:
        words = [view.link, view.group, view.kind, view.source_state, view.target_state, view.state]
        seconds = "-" if view.behind_s is None else f"{view.behind_s:.1f}"
        numbers = [f"{len(view.parts):,}", _count(view.missing), _count(view.behind), seconds]
        table.add_row(*(Text(cell) for cell in [*words, *numbers]))
        for partition in view.parts if partitions else ():
            spots = [_count(one) for one in (partition.source, partition.expected, partition.target)]
            place = f"  {partition.topic}-{partition.partition}: {spots[0]} at source, so {spots[1]}; has {spots[2]}"
            table.add_row("", Text(place), "", "", "", Text(partition.state), "", "", _count(partition.behind), "")
    console = open_console()
    for remark in remarks:
        console.print(Text(remark))
    console.print(table if views else "no group has a committed offset in a topic that these links replicate")


def _count(number: int | None) -> str:
    return "-" if number is None else f"{number:,}"
