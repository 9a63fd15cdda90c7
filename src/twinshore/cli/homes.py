"""`twinshore link homes` and `twinshore link home`: where topics are written that two links carry to each other."""

from __future__ import annotations

import json
from pathlib import Path

import typer

from twinshore.cli.looking import JSON, LINKS, SETTINGS, load, who
from twinshore.cli.steps import carry_out
from twinshore.fleet.sentences import one_line

DRY_RUN = typer.Option(False, "--dry-run", help="Only say what would change.")
PAIR = typer.Option([], "--link", help="One of the two links, where the cluster is in several pairs.")


def homes(settings: Path = SETTINGS, link: list[str] = LINKS, json_output: bool = JSON) -> None:
    """Shows the home of each topic that two links could carry to each other under one name, and the topics without a
    home."""
    from twinshore.mirror.operations.homes import look
    from twinshore.store.opening import open_to_look

    loaded = load(settings)
    with open_to_look(loaded) as store:
        found = look(link, loaded, store)
    if json_output:
        typer.echo(json.dumps(found.as_values()))
        return
    for one in found.topics:
        where = f"{one.topic}: home {one.home}, term {one.term}, " if one.home else ""
        typer.echo(one_line(f"{one.pair}: {where}{one.sentence}"))
    for pair, why in found.away:
        typer.echo(one_line(f"{pair}: which topics have no home cannot be told now: {why}"))
    if not found.topics and not found.away:
        typer.echo("no two links carry topics to each other under the same names, or there is no such topic yet")


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
    from twinshore.mirror.operations.homes import SetHome, act, plan
    from twinshore.store.opening import open_or_make, open_to_look

    loaded = load(settings)
    with (open_to_look if dry_run else open_or_make)(loaded) as store:
        planned = plan(SetHome(topic, cluster, link), loaded, store)
        carry_out(planned, act(planned, store, by=who()), dry_run=dry_run)
