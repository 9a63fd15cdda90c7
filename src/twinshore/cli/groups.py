"""`twinshore groups`: where consumer groups stand on both sides, and an offset of one side on the other."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from twinshore.cli.looking import JSON, LINKS, SETTINGS, load
from twinshore.fleet import ConfigError, Link
from twinshore.fleet.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from twinshore.groups.look import GroupView
    from twinshore.groups.translation import Spot
    from twinshore.store import Store
    from twinshore.wire.group_places import Where

GROUP = typer.Option(".*", "--group", help="An expression for groups, whole names.")
PARTITIONS = typer.Option(False, "--partitions", help="Every partition's places too.")
BACK = typer.Option(False, "--back", help="From the target's side to the source's.")
TOPIC = typer.Option("", "--topic", help="The topic, as it is called on the side whose offset is given.")
PARTITION = typer.Option(0, "--partition", min=0, help="The partition.")
DRY_RUN = typer.Option(False, "--dry-run", help="Only say what would be committed.")
# So many reasons why a side says nothing are shown, and so many groups for each.
SILENT_MAX = 5


def register(app: typer.Typer) -> None:
    """Adds the verb to the command."""
    groups = typer.Typer(help="Where consumer groups stand on both sides of links.")
    groups.callback(invoke_without_command=True)(show)
    groups.command("translate")(translate)
    groups.command("move")(move)
    app.add_typer(groups, name="groups")


def show(
    context: typer.Context,
    settings: Path = SETTINGS,
    link: list[str] = LINKS,
    group: str = GROUP,
    partitions: bool = PARTITIONS,
    json_output: bool = JSON,
) -> None:
    """Shows each group on both sides: the difference in records, and for how many seconds. Asks both clusters."""
    from twinshore.store.opening import open_found

    if context.invoked_subcommand is not None:
        return
    from twinshore.fleet.settings_control import why_not_pattern

    reason = why_not_pattern(group)
    if reason:
        raise ConfigError(f"--group: {reason}")
    from twinshore.groups.look import look

    loaded = load(settings)
    with open_found(loaded) as store:
        views = [view for one in loaded.chosen(link) for view in look(one, loaded, store, group)]
    if json_output:
        typer.echo(json.dumps({"groups": [_values(view, partitions=partitions) for view in views]}))
        return
    _table(views, partitions=partitions)


def translate(
    what: str = typer.Argument(help="A group, or an offset of --topic and --partition."),
    settings: Path = SETTINGS,
    link: list[str] = LINKS,
    topic: str = TOPIC,
    partition: int = PARTITION,
    back: bool = BACK,
    json_output: bool = JSON,
) -> None:
    """Says where a group, or an offset, is on the other side. With --topic it asks the store alone, no cluster."""
    from twinshore.store.opening import open_found

    loaded = load(settings)
    with open_found(loaded) as store:
        lines = []
        for one in loaded.chosen(link):
            if topic:
                lines.append(_translated(loaded, one, store, what, (topic, partition), back=back))
            else:
                lines += _places_of(loaded, one, store, what, back=back)
    if not lines:
        raise ConfigError(f"no link keeps a place of group {what}", hint="for an offset name its --topic")
    if json_output:
        typer.echo(json.dumps({"places": lines}))
        return
    for line in lines:
        to = "nowhere known" if line["to"] is None else f"{line['to_topic']}-{line['partition']} offset {line['to']}"
        yet = "" if line["reached"] else ", as far as has crossed"
        says = f"{line['link']}: {line['topic']}-{line['partition']} offset {line['offset']} is {to}{yet}"
        typer.echo(says + _beyond(line, back=back))


def move(
    group: str = typer.Argument(help="An expression for groups, whole names."),
    settings: Path = SETTINGS,
    link: list[str] = LINKS,
    back: bool = typer.Option(False, "--back", help="From the target to the source instead."),
    lower: bool = typer.Option(False, "--backwards", help="Also where the place there is further on."),
    dry_run: bool = DRY_RUN,
) -> None:
    """Commits groups' places on the other side now, whatever a running mirror waits for; never over a live group.

    Exit code 1 when a place was refused, or a group left alone that stands elsewhere.
    """
    from twinshore.fleet.settings_control import why_not_pattern
    from twinshore.groups.moving import move as moved
    from twinshore.groups.moving import nothing_moved
    from twinshore.store.opening import open_found

    reason = why_not_pattern(group)
    if reason:
        raise ConfigError(f"GROUP: {reason}")
    loaded = load(settings)
    with open_found(loaded) as store:
        links = loaded.chosen(link)
        steps = []
        for one in links:
            for step in moved(one, loaded, store, group, back=back, lower=lower, act=not dry_run):
                typer.echo(str(step))  # At once: what is done is known, whatever happens to the rest.
                steps.append(step)
        if not steps:
            typer.echo(nothing_moved(group, _names(loaded, links, store)))
    if any(step.refused for step in steps):
        raise typer.Exit(1)


def _names(loaded: Settings, links: Iterable[Link], store: Store) -> set[str]:
    from twinshore.groups.look import look

    return {view.group for one in links for view in look(one, loaded, store)}


def _translated(
    loaded: Settings, link: Link, store: Store, what: str, where: Where, *, back: bool
) -> dict[str, object]:
    from twinshore.groups.translator import known_ends, open_translator

    if not what.isdecimal():
        raise ConfigError(f"{what!r} is not an offset", hint="leave --topic away to translate a group")
    translator = open_translator(loaded, link.name, store)
    offset = int(what)
    spot = (translator.back if back else translator.forward)(*where, offset)
    to_topic = translator.source_topic(where[0]) if back else link.twin_of(where[0])
    return _line(link, where, offset, to_topic, spot, known_ends(store, link, back=back))


def _places_of(loaded: Settings, link: Link, store: Store, group: str, *, back: bool) -> list[dict[str, object]]:
    import re

    from twinshore.groups.look import look
    from twinshore.groups.translator import known_ends, open_translator

    translator = open_translator(loaded, link.name, store)
    ends = known_ends(store, link, back=back)
    found: list[dict[str, object]] = []
    for view in look(link, loaded, store, re.escape(group)):
        for part in view.parts:
            topic, to_topic = (part.twin, part.topic) if back else (part.topic, part.twin)
            offset = part.target if back else part.source
            if offset is not None:
                spot = (translator.back if back else translator.forward)(topic, part.partition, offset)
                found.append(_line(link, (topic, part.partition), offset, to_topic, spot, ends))
    return found


def _line(
    link: Link, where: Where, offset: int, to_topic: str, spot: Spot | None, ends: Mapping[Where, int]
) -> dict[str, object]:
    return {
        "link": link.name,
        "topic": where[0],
        "partition": where[1],
        "offset": offset,
        "to_topic": to_topic,
        "to": spot.offset if spot else None,
        "reached": spot.reached if spot else False,
        "end": ends.get(where),
    }


def _beyond(line: Mapping[str, object], *, back: bool) -> str:
    """Of an offset that no record of the link has, how far these go; a place at the very end is nothing special."""
    offset, end = line["offset"], line["end"]
    if not isinstance(offset, int) or not isinstance(end, int) or offset <= end:
        return ""
    log = f"{line['topic']}-{line['partition']}"
    return (
        f"; the link has carried {log} up to {end} only"
        if back
        else f"; when last seen, the log of {log} ended at {end}"
    )


def _values(view: GroupView, *, partitions: bool) -> dict[str, object]:
    values = asdict(view)
    parts = values.pop("parts")
    if view.behind_s is not None:
        values["behind_s"] = round(view.behind_s, 3)
    values["partitions"] = len(parts)
    if partitions:
        values["places"] = [part | {"behind": seen.behind} for part, seen in zip(parts, view.parts, strict=True)]
    return values


def _table(views: list[GroupView], *, partitions: bool) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from twinshore.fleet.listing import listed
    from twinshore.groups.look import AWAY

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("link", "group", "kind", "at source", "at target", "stands"):
        table.add_column(column, no_wrap=True)
    for column in ("partitions", "no place", "records behind", "s behind"):
        table.add_column(column, justify="right", no_wrap=True)
    for view in views:
        words = [view.link, view.group, view.kind, view.source_state, view.target_state, view.state]
        seconds = "-" if view.behind_s is None else f"{view.behind_s:.1f}"
        numbers = [f"{len(view.parts):,}", _count(view.missing), _count(view.behind), seconds]
        table.add_row(*(Text(cell) for cell in [*words, *numbers]))
        for part in view.parts if partitions else ():
            spots = [_count(one) for one in (part.source, part.expected, part.target)]
            place = f"  {part.topic}-{part.partition}: {spots[0]} at source, so {spots[1]}; has {spots[2]}"
            table.add_row("", Text(place), "", "", "", Text(part.state), "", "", _count(part.behind), "")
    console = Console() if Console().is_terminal else Console(width=1000)
    for name in sorted({view.link for view in views if view.source_state == AWAY and not view.why}):
        ago_s = next(view.said_s_ago for view in views if view.link == name)
        when = "the mirror never compared them" if ago_s is None else f"what stands here was so {ago_s:,.0f} s ago"
        console.print(Text(f"{name}: the source does not answer; {when}"))
    silent: dict[tuple[str, str], list[str]] = {}
    for view in views:
        if view.why:
            silent.setdefault((view.link, view.why), []).append(view.group)
    for (name, why), groups in list(silent.items())[:SILENT_MAX]:
        console.print(Text(f"{name}: {listed(groups, SILENT_MAX)}: {why}"))
    if len(silent) > SILENT_MAX:
        console.print(Text(f"and {len(silent) - SILENT_MAX} groups more, of which one side says nothing either"))
    for view in views:
        said = _left_alone(view)
        if said:
            console.print(Text(said))
    console.print(table if views else "no group has a place in a topic that these links carry")


def _count(number: int | None) -> str:
    return "-" if number is None else f"{number:,}"


def _left_alone(view: GroupView) -> str:
    """Who reads on the target without following, since when, and the remedy; empty where nobody does."""
    from twinshore.groups.look import AWAY
    from twinshore.groups.place import State

    parts = [part for part in view.parts if part.state == State.OWN]
    if not parts or view.source_state == AWAY:
        return ""
    target = view.link.partition("->")[2]
    since = "" if view.behind_s is None else f", for {view.behind_s:,.0f} s by now"
    count = f"{len(parts)} of {len(view.parts)} partitions{since}"
    remedy = f"`twinshore groups move {view.group}` makes it follow again"
    return f"{view.link}: {view.group} reads on {target} on its own, and is left alone there ({count}); {remedy}"
