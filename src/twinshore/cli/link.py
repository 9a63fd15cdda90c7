"""`twinshore link`: what holds for each link, and what an operator changes on it while it runs."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from twinshore.cli.app import JSON, LINKS, SETTINGS, carry_out, load, tell, who
from twinshore.kafka.clock import wall_ms

if TYPE_CHECKING:
    from twinshore.replication.operations.control import Asked
    from twinshore.replication.operations.links import Asked as AskedOfLinks

LINK = typer.Argument(help="The link, as its settings name it: `east->west`.")
TOPICS = typer.Option([], "--topic", help="An expression for topics, whole names; may be given several times.")
ADMITTED = typer.Option([], "--topics", help="Topics to mirror; may be given several times.")
EXCLUDED = typer.Option([], "--exclude", help="Topics to leave out; may be given several times.")
GROUPS = typer.Option([], "--groups", help="Consumer groups that follow; may be given several times.")
EXCLUDED_GROUPS = typer.Option([], "--exclude-groups", help="Consumer groups to leave out.")
NAMES = typer.Option([], "--name", help="Only this value, as `link list` names it.")
NEW = typer.Argument(help="The link's name: `source->target`, as the settings name the clusters.")
VALUES = typer.Argument(
    None, help='Values as the settings have them, like `topics=["orders.*"]`.', metavar="NAME=VALUE..."
)
UNSET = typer.Option([], "--unset", help="A value to set back to its default, like `topics` or `groups.enabled`.")
AS_SETTINGS = typer.Option(False, "--as-settings", help="Take all values as the settings have them now.")
DRY_RUN = typer.Option(False, "--dry-run", help="Only say what would change.")
DRY_RECOVER = typer.Option(False, "--dry-run", help="Only say what would be put back, and whose the link is now.")
PAIR = typer.Option([], "--link", help="One of the two links, where the cluster is in several pairs.")
EVERY = typer.Option(False, "--all", help="The link's own pause and all of its topics'.")


def register(app: typer.Typer) -> None:
    """Adds the verb to the command."""
    link = typer.Typer(help="Look at links and change them while they run.", no_args_is_help=True)
    for verb in (pause, resume, throttle, priority, reset, homes, home):
        link.command(verb.__name__)(verb)
    link.command("list")(list_links)
    link.command("filter")(filter_names)
    link.command("recover")(recover)
    link.command("add")(add)
    link.command("set")(set_values)
    link.command("turn")(turn)
    link.command("remove")(remove)
    app.add_typer(link, name="link")


def list_links(settings: Path = SETTINGS, link: list[str] = LINKS, json_output: bool = JSON) -> None:
    """Shows what holds for each link, and whether the settings or the store say so."""
    from twinshore.replication.operations.control import held_links
    from twinshore.replication.operations.links import about_links
    from twinshore.state.opening import open_if_there

    loaded = load(settings)
    with open_if_there(loaded) or nullcontext() as store:
        shown = held_links(link, loaded, store)
        gone = about_links(loaded, store, now_ms=wall_ms()) if store and not link else []
    about = [one for one in gone if one.link not in {held.link for held in shown}]
    lines = []
    for one in shown:
        lines.append(f"{one.link} (naming {one.naming}{', chain' if one.chain else ''})")
        lines += [f"  {value.name} = {value.text}  from the {value.origin}" for value in one.values]
        said = filter(None, (one.says_of_broadcast, one.queue.sentence, *one.troubles, *one.differs))
        lines += [f"  {sentence}" for sentence in said]
    tell([one.as_values() for one in shown], [*lines, *map(str, about)], as_json=json_output)


def pause(link: str = LINK, topic: list[str] = TOPICS, settings: Path = SETTINGS, dry_run: bool = DRY_RUN) -> None:
    """Stops carrying the link, or these topics, until you resume them. Nothing is lost while the source keeps it."""
    from twinshore.replication.operations.control import Pause

    _change(settings, Pause(link, topic), dry_run=dry_run)


def resume(
    link: str = LINK,
    topic: list[str] = TOPICS,
    every: bool = EVERY,
    settings: Path = SETTINGS,
    dry_run: bool = DRY_RUN,
) -> None:
    """Ends the link's own pause, or the pause of these topics; `--all` ends both. Other paused topics stay paused."""
    from twinshore.replication.operations.control import Resume

    _change(settings, Resume(link, topic, every), dry_run=dry_run)


def throttle(
    link: str = LINK,
    bytes_s: int = typer.Argument(help="Bytes per second; 0: no bound."),
    topic: str | None = typer.Option(None, "--topic", help="Each topic that matches, instead of the whole link."),
    settings: Path = SETTINGS,
    dry_run: bool = DRY_RUN,
) -> None:
    """Limits the rate of a link, or of each topic that matches."""
    from twinshore.replication.operations.control import Throttle

    _change(settings, Throttle(link, bytes_s, topic), dry_run=dry_run)


def priority(
    link: str = LINK,
    topic: str = typer.Argument(help="An expression for topics, whole names."),
    weight: int = typer.Argument(help="1 to 100; all others have 10. 0: as all others."),
    settings: Path = SETTINGS,
    dry_run: bool = DRY_RUN,
) -> None:
    """Lets topics go before or after others when not everything can be carried at once."""
    from twinshore.replication.operations.control import Prioritise

    _change(settings, Prioritise(link, topic, weight), dry_run=dry_run)


def filter_names(
    link: str = LINK,
    topics: list[str] = ADMITTED,
    exclude: list[str] = EXCLUDED,
    groups: list[str] = GROUPS,
    exclude_groups: list[str] = EXCLUDED_GROUPS,
    settings: Path = SETTINGS,
    dry_run: bool = DRY_RUN,
) -> None:
    """Replaces filters of a link; filters that you do not name stay."""
    from twinshore.replication.operations.control import Filter

    _change(settings, Filter(link, topics, exclude, groups, exclude_groups), dry_run=dry_run)


def reset(
    link: str = LINK,
    name: list[str] = NAMES,
    settings: Path = SETTINGS,
    dry_run: bool = DRY_RUN,
) -> None:
    """Takes back what operators changed: the settings hold again."""
    from twinshore.replication.operations.control import Reset

    _change(settings, Reset(link, name), dry_run=dry_run)


def add(
    link: str = NEW,
    values: list[str] | None = VALUES,
    settings: Path = SETTINGS,
    dry_run: bool = DRY_RUN,
) -> None:
    """Adds a link between two clusters of the settings.

    A running mirror takes it up within seconds. Refused if it would carry back what a removed link in the other
    direction has written.
    """
    from twinshore.replication.operations.links import Add

    _change_links(settings, Add(link, values or ()), dry_run=dry_run)


def set_values(
    link: str = LINK,
    values: list[str] | None = VALUES,
    unset: list[str] = UNSET,
    as_settings: bool = AS_SETTINGS,
    settings: Path = SETTINGS,
    dry_run: bool = DRY_RUN,
) -> None:
    """Gives a link other values than the settings have. A running mirror stops the link in good order and begins it
    again."""
    from twinshore.replication.operations.links import Set

    _change_links(settings, Set(link, values or (), unset, as_settings), dry_run=dry_run)


def turn(link: str = LINK, settings: Path = SETTINGS, dry_run: bool = DRY_RUN) -> None:
    """Makes a link's source its target, and its target its source. Refused if the link has written a twin."""
    from twinshore.replication.operations.links import Turn

    _change_links(settings, Turn(link), dry_run=dry_run)


def remove(link: str = LINK, settings: Path = SETTINGS, dry_run: bool = DRY_RUN) -> None:
    """Removes a link: it is not carried any more. Its twins stay as they are, and the store keeps everything about
    them."""
    from twinshore.replication.operations.links import Remove

    _change_links(settings, Remove(link), dry_run=dry_run)


def recover(link: str = LINK, settings: Path = SETTINGS, dry_run: bool = DRY_RECOVER) -> None:
    """Recovers a lost store from what the link's target says, or takes the link over from another store.

    If the other store's mirror still runs, stop it first. Positions, anchors and the link's producer id come back.
    Each twin is checked as a pump checks it, and nothing is copied again. Refused while a mirror runs the link here.
    """
    from twinshore.replication.operations.recover import Recover, act, plan
    from twinshore.state.opening import open_or_make, open_to_look

    loaded = load(settings)
    name = loaded.only([link]).name
    with (open_to_look if dry_run else open_or_make)(loaded) as store:
        planned = plan(Recover(name), loaded, store, tell=typer.echo)
        carry_out(planned, act(planned, loaded, store, by=who()), dry_run=dry_run)


def homes(settings: Path = SETTINGS, link: list[str] = LINKS, json_output: bool = JSON) -> None:
    """Shows the home of each topic that two links could carry to each other under one name, and the topics without a
    home."""
    from twinshore.replication.operations.homes import look
    from twinshore.state.opening import open_to_look

    loaded = load(settings)
    with open_to_look(loaded) as store:
        found = look(link, loaded, store)
    lines = []
    for one in found.topics:
        where = f"{one.topic}: home {one.home}, term {one.term}, " if one.home else ""
        lines.append(f"{one.pair}: {where}{one.sentence}")
    lines += [f"{pair}: which topics have no home cannot be told now: {why}" for pair, why in found.away]
    none = "no two links carry topics to each other under the same names, or there is no such topic yet"
    tell(found.as_values(), lines, as_json=json_output, none=none)


def home(
    topic: str = typer.Argument(help="The topic, whole name."),
    cluster: str = typer.Argument(help="Where it is written: the link from there carries it."),
    settings: Path = SETTINGS,
    link: list[str] = PAIR,
    dry_run: bool = DRY_RUN,
) -> None:
    """Sets the home of a topic that has none, or that holds records on both sides.

    Refused if a link carries the topic already: then only a switch could move it.
    """
    from twinshore.replication.operations.homes import SetHome, act, plan
    from twinshore.state.opening import open_or_make, open_to_look

    loaded = load(settings)
    with (open_to_look if dry_run else open_or_make)(loaded) as store:
        planned = plan(SetHome(topic, cluster, link), loaded, store)
        carry_out(planned, act(planned, store, by=who()), dry_run=dry_run)


def _change_links(path: Path, asked: AskedOfLinks, *, dry_run: bool) -> None:
    from twinshore.replication.operations.links import act, plan
    from twinshore.state.opening import open_or_make, open_to_look

    settings = load(path)
    with (open_to_look if dry_run else open_or_make)(settings) as store:
        planned = plan(asked, settings, store)
        carry_out(planned, act(planned, settings, store, by=who()), dry_run=dry_run)


def _change(path: Path, asked: Asked, *, dry_run: bool) -> None:
    from twinshore.replication.operations.control import act, plan, remarks
    from twinshore.state.opening import open_or_make, open_to_look

    settings = load(path)
    settings.link(asked.link)  # A wrong name makes no store.
    with (open_to_look if dry_run else open_or_make)(settings) as store:
        planned = plan(asked, settings, store)
        carry_out(planned, act(planned, settings, store, by=who()), dry_run=dry_run)
        for remark in remarks(asked, settings, store, done=not dry_run):
            typer.echo(remark)
