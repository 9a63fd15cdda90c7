"""`twinshore link`: each link's settings, and changes while it runs."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from twinshore.cli import options
from twinshore.cli.app import any_store, get_operator_name, load_cli_settings, print_result, run_steps
from twinshore.kafka.clock import wall_ms

if TYPE_CHECKING:
    from twinshore.replication.operations.control import ControlRequest
    from twinshore.replication.operations.link_admin import LinkRequest as AskedOfLinks

LINK = typer.Argument(help="The link, such as `east->west`.")
TOPICS = typer.Option([], "--topic", help="Regular expression for whole topic names; repeatable.")
NAMES = typer.Option([], "--name", help="Only this value, by its name in `link list`; repeatable.")
VALUES = typer.Argument(None, help='Values as in the settings, such as `topics=["orders.*"]`.', metavar="NAME=VALUE...")
UNSET = typer.Option([], "--unset", help="Value to set back to its default, such as `groups.enabled`; repeatable.")
DRY_RECOVER = typer.Option(
    False, "--dry-run", help="Show what would be restored, and which store has the link; change nothing."
)


def register(app: typer.Typer) -> None:
    link = typer.Typer(help="Show links, and change them while they run.", no_args_is_help=True)
    options.add_verbs(link, pause, resume, throttle, priority, reset, homes, home)
    link.command("list")(list_links)
    link.command("filter")(filter_names)
    options.add_verbs(link, recover, add)
    link.command("set")(set_values)
    options.add_verbs(link, reverse, remove)
    app.add_typer(link, name="link")


def list_links(
    settings: Path = options.SETTINGS, link: list[str] = options.LINKS, json_output: bool = options.JSON
) -> None:
    """Shows the values in force for each link, and whether they come from the settings or the store."""
    from twinshore.replication.operations.control import list_effective_links
    from twinshore.replication.operations.link_admin import list_link_remarks
    from twinshore.state.opening import open_if_exists

    loaded = load_cli_settings(settings)
    with open_if_exists(loaded) or nullcontext() as store:
        shown = list_effective_links(link, loaded, store)
        gone = list_link_remarks(loaded, store, now_ms=wall_ms()) if store and not link else []
    about = [remark for remark in gone if remark.link not in {held.link for held in shown}]
    lines = []
    for overview in shown:
        lines.append(f"{overview.link} (naming {overview.naming}{', chain' if overview.chain else ''})")
        lines += [f"  {value.name} = {value.text}  from the {value.origin}" for value in overview.values]
        said = filter(
            None, (overview.says_of_broadcast, overview.queue.sentence, *overview.troubles, *overview.differs)
        )
        lines += [f"  {sentence}" for sentence in said]
    print_result([overview.as_values() for overview in shown], [*lines, *map(str, about)], as_json=json_output)


def pause(
    link: str = LINK, topic: list[str] = TOPICS, settings: Path = options.SETTINGS, dry_run: bool = options.DRY_RUN
) -> None:
    """Pauses the link, or these topics, until you resume them. Nothing is lost while the source retains it."""
    from twinshore.replication.operations import control

    _change(settings, control.pause(link, topic), dry_run=dry_run)


def resume(
    link: str = LINK,
    topic: list[str] = TOPICS,
    every: bool = typer.Option(False, "--all", help="Resume the link and all of its topics."),
    settings: Path = options.SETTINGS,
    dry_run: bool = options.DRY_RUN,
) -> None:
    """Resumes the link, or these topics; with `--all`, both. Other paused topics stay paused."""
    from twinshore.replication.operations import control

    _change(settings, control.resume(link, topic, every=every), dry_run=dry_run)


def throttle(
    link: str = LINK,
    bytes_s: int = typer.Argument(help="Bytes per second; 0: unlimited."),
    topic: str | None = typer.Option(None, "--topic", help="Limit each matching topic, not the whole link."),
    settings: Path = options.SETTINGS,
    dry_run: bool = options.DRY_RUN,
) -> None:
    """Limits the throughput of a link, or of each matching topic."""
    from twinshore.replication.operations import control

    _change(settings, control.throttle(link, bytes_s, topic), dry_run=dry_run)


def priority(
    link: str = LINK,
    topic: str = typer.Argument(help="Regular expression for whole topic names."),
    weight: int = typer.Argument(help="1 to 100; 0: the default, 10."),
    settings: Path = options.SETTINGS,
    dry_run: bool = options.DRY_RUN,
) -> None:
    """Sets which topics go first when not all can be replicated at once. A higher weight goes first."""
    from twinshore.replication.operations import control

    _change(settings, control.prioritize(link, topic, weight), dry_run=dry_run)


def filter_names(
    link: str = LINK,
    topics: list[str] = typer.Option([], "--topics", help="Topics to replicate; repeatable."),
    exclude: list[str] = typer.Option([], "--exclude", help="Topics to exclude; repeatable."),
    groups: list[str] = typer.Option([], "--groups", help="Consumer groups to replicate; repeatable."),
    exclude_groups: list[str] = typer.Option([], "--exclude-groups", help="Consumer groups to exclude; repeatable."),
    settings: Path = options.SETTINGS,
    dry_run: bool = options.DRY_RUN,
) -> None:
    """Replaces the given filters of a link; its other filters stay."""
    from twinshore.replication.operations import control

    _change(settings, control.set_filters(link, topics, exclude, groups, exclude_groups), dry_run=dry_run)


def reset(
    link: str = LINK, name: list[str] = NAMES, settings: Path = options.SETTINGS, dry_run: bool = options.DRY_RUN
) -> None:
    """Removes operators' changes: the settings apply again."""
    from twinshore.replication.operations import control

    _change(settings, control.reset(link, name), dry_run=dry_run)


def add(
    link: str = typer.Argument(help="`source->target`, with the clusters' names from the settings."),
    values: list[str] | None = VALUES,
    settings: Path = options.SETTINGS,
    dry_run: bool = options.DRY_RUN,
) -> None:
    """Adds a link between two clusters of the settings.

    A running mirror starts it within seconds. Refused if it would replicate back what a removed link in the other
    direction wrote.
    """
    from twinshore.replication.operations.link_admin import AddLink

    _change_links(settings, AddLink(link, values or ()), dry_run=dry_run)


def set_values(
    link: str = LINK,
    values: list[str] | None = VALUES,
    unset: list[str] = UNSET,
    as_settings: bool = typer.Option(False, "--as-settings", help="Take all values from the settings file."),
    settings: Path = options.SETTINGS,
    dry_run: bool = options.DRY_RUN,
) -> None:
    """Overrides the settings of a link. A running mirror restarts the link."""
    from twinshore.replication.operations.link_admin import ChangeLink

    _change_links(settings, ChangeLink(link, values or (), unset, as_settings), dry_run=dry_run)


def reverse(link: str = LINK, settings: Path = options.SETTINGS, dry_run: bool = options.DRY_RUN) -> None:
    """Reverses a link: swaps source and target. Refused if the link has written a twin."""
    from twinshore.replication.operations.link_admin import ReverseLink

    _change_links(settings, ReverseLink(link), dry_run=dry_run)


def remove(link: str = LINK, settings: Path = options.SETTINGS, dry_run: bool = options.DRY_RUN) -> None:
    """Removes a link and ends its replication. Its twins stay, and so does what the store knows of them."""
    from twinshore.replication.operations.link_admin import RemoveLink

    _change_links(settings, RemoveLink(link), dry_run=dry_run)


def recover(link: str = LINK, settings: Path = options.SETTINGS, dry_run: bool = DRY_RECOVER) -> None:
    """Restores a lost store from the link's target, or takes the link over from another store.

    If the other store's mirror still runs, stop it first. Restores positions, base sequences and the link's producer
    id. Checks each twin as a task does, and copies nothing again. Refused while a mirror runs the link here.
    """
    from twinshore.replication.operations.recover import act, plan
    from twinshore.state.opening import open_to_change

    loaded = load_cli_settings(settings)
    name = loaded.only([link]).name
    with open_to_change(loaded, dry_run=dry_run) as store:
        planned = plan(name, loaded, store, tell=typer.echo)
        run_steps(planned, act(planned, loaded, store, by=get_operator_name()), dry_run=dry_run)


def homes(settings: Path = options.SETTINGS, link: list[str] = options.LINKS, json_output: bool = options.JSON) -> None:
    """Shows the home of each topic that a pair of links can replicate both ways, and the topics without a home."""
    from twinshore.replication.operations.homes import list_homes

    with any_store(settings, links=True) as (loaded, store):
        found = list_homes(link, loaded, store)
    lines = []
    for entry in found.topics:
        where = f"{entry.topic}: home {entry.home}, epoch {entry.term}, " if entry.home else ""
        lines.append(f"{entry.pair}: {where}{entry.sentence}")
    lines += [f"{pair}: which topics have no home cannot be told now: {why}" for pair, why in found.away]
    none = "no two links replicate topics to each other under the same names, or there is no such topic yet"
    print_result(found.as_values(), lines, as_json=json_output, none=none)


def home(
    topic: str = typer.Argument(help="The topic."),
    cluster: str = typer.Argument(help="The cluster where the topic is written."),
    settings: Path = options.SETTINGS,
    link: list[str] = typer.Option([], "--link", help="One of the two links, if the cluster is in several pairs."),
    dry_run: bool = options.DRY_RUN,
) -> None:
    """Sets the home of a topic that has none, or that holds records on both sides.

    Refused if a link already replicates the topic: then only a switch can move it.
    """
    from twinshore.replication.operations.homes import act, plan

    with any_store(settings, creates=not dry_run, links=True) as (loaded, store):
        planned = plan(topic, cluster, link, loaded, store)
        run_steps(planned, act(planned, store, by=get_operator_name()), dry_run=dry_run)


def _change_links(path: Path, asked: AskedOfLinks, *, dry_run: bool) -> None:
    from twinshore.replication.operations.link_admin import act, plan

    with any_store(path, creates=not dry_run, links=True) as (settings, store):
        planned = plan(asked, settings, store)
        run_steps(planned, act(planned, settings, store, by=get_operator_name()), dry_run=dry_run)


def _change(path: Path, request: ControlRequest, *, dry_run: bool) -> None:
    from twinshore.replication.operations.control import act, plan, remarks
    from twinshore.state.opening import open_to_change

    settings = load_cli_settings(path)
    settings.link(request.link)  # A wrong name must not create a store.
    with open_to_change(settings, dry_run=dry_run) as store:
        planned = plan(request, settings, store)
        run_steps(planned, act(planned, settings, store, by=get_operator_name()), dry_run=dry_run)
        for remark in remarks(request, settings, store, done=not dry_run):
            typer.echo(remark)
