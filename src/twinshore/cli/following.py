"""`twinshore mirror begin-again` and `twinshore audit`: agreeing to what follows, and reading what has followed."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import typer

from twinshore.cli.looking import JSON, LINKS, SETTINGS, load, say_page, who
from twinshore.cli.steps import carry_out

DRY_RUN = typer.Option(False, "--dry-run", help="Only say what would be agreed to.")
UNCARRIED = typer.Option(
    False,
    "--even-uncarried",
    help="Agree that records which the link did not carry, as the plan shows them, are deleted too.",
)
LAST = typer.Option(50, "--last", min=1, max=10_000, help="How many changes, newest first.")
BEFORE = typer.Option(0, "--before", min=0, help="Only changes older than the one with this id.")
BY = typer.Option("", "--by", help='Only what this operator did, or "the mirror" by itself.')
KIND = typer.Option("", "--kind", help='Only this kind, such as acl, twin, control, group or "topic setting".')
TOPIC = typer.Option("", "--topic", help="Only what is about this topic, as it is called where it was changed.")
GROUP = typer.Option("", "--group", help="Only what is about this consumer group.")


def begin_again(
    topic: str = typer.Argument(help="The topic of the source that was made again, or whose twin was deleted."),
    settings: Path = SETTINGS,
    link: list[str] = LINKS,
    even_uncarried: bool = UNCARRIED,
    dry_run: bool = DRY_RUN,
) -> None:
    """Agrees that a topic begins again: the running mirror deletes the old twin, with everything it holds, and makes
    a new one.

    Only a topic that has stopped as *recreated topic* can begin again. The command asks both clusters now, and shows
    what the old twin holds and which part of it the link did not carry. You agree only to what is shown. Refused for
    a mapped topic, because its twin holds data of others and is never deleted. With several links in the settings,
    --link is needed.
    """
    from twinshore.mirror.operations.begin_again import BeginAgain, act, plan
    from twinshore.store.opening import open_known

    loaded = load(settings)
    name = loaded.only(link).name
    with open_known(loaded) as store:
        planned = plan(BeginAgain(topic, [name], even_uncarried), loaded, store)
        carry_out(planned, act(planned, store, by=who()), dry_run=dry_run)


def audit(
    settings: Path = SETTINGS,
    link: list[str] = LINKS,
    last: int = LAST,
    before: int = BEFORE,
    by: str = BY,
    kind: str = KIND,
    topic: str = TOPIC,
    group: str = GROUP,
    json_output: bool = JSON,
) -> None:
    """Prints what links changed on their targets besides records.

    These are settings, ACLs, quotas, users, and twins that were deleted. It also prints what operators changed for
    links, topics and groups. To see older rows than --last shows, give the id of the last row to --before.
    """
    from twinshore.mirror.operations.audit import Changes, changes, in_words
    from twinshore.store.opening import open_known

    loaded = load(settings)
    with open_known(loaded) as store:
        rows = changes(Changes(link, kind, by, topic, group, before), loaded, store, last=last + 1)
    if json_output:
        typer.echo(json.dumps([asdict(row) for row in rows[:last]], indent=2))
        return
    say_page(rows, in_words, last=last, none="nothing has been changed besides records")


def register(app: typer.Typer) -> None:
    """Adds `audit` to the command; `begin-again` is the mirror's."""
    app.command("audit")(audit)
