"""`twinshore mirror begin-again` and `twinshore audit`: agreeing to what follows, and reading what has followed."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from twinshore.cli.looking import JSON, LINKS, SETTINGS, load, who
from twinshore.fleet import ConfigError, RefusedError
from twinshore.fleet.lines import one_line
from twinshore.fleet.settings_edge import did_you_mean

if TYPE_CHECKING:
    from twinshore.fleet import Link
    from twinshore.store import Store

DRY_RUN = typer.Option(False, "--dry-run", help="Only say what would be agreed to.")
UNCARRIED = typer.Option(
    False, "--even-uncarried", help="Agree that what the link did not carry, as the plan shows it, is deleted too."
)
LAST = typer.Option(50, "--last", min=1, max=10_000, help="How many changes, newest first.")


def begin_again(
    topic: str = typer.Argument(help="The topic of the source that was made again, or whose twin was deleted."),
    settings: Path = SETTINGS,
    link: list[str] = LINKS,
    even_uncarried: bool = UNCARRIED,
    dry_run: bool = DRY_RUN,
) -> None:
    """Agrees that a topic begins again: the running mirror deletes its old twin, with all it holds, and makes a new.

    Only a topic that is stopped for it can begin again. Both clusters are asked now, and the plan names what the old
    twin holds and what of it the link did not carry; the agreement is to that and to no more. Refused for a mapped
    topic, whose twin holds data of others and is never deleted. With several links in the settings, --link is needed.
    """
    from twinshore.store.opening import open_known

    loaded = load(settings)
    one = loaded.only(link)
    with open_known(loaded) as store:
        _refuse_unstopped(store, one, topic)
        from twinshore.mirror.follow.last_resort import uncarried
        from twinshore.mirror.follow.lifecycle import CONFIRMED, Presence
        from twinshore.mirror.follow.words import show
        from twinshore.store import AuditRow, Followed

        shown = show(one, loaded, store, topic)
        for line in shown.lines():
            typer.echo(f"{one.name}: {line}")
        if shown.source.presence is not Presence.THERE:
            raise RefusedError(f"{one.source} does not have topic {topic} now: there is nothing to begin with")
        if shown.target.presence is Presence.THERE and shown.against:
            hint = "docs/deletes.md says what forbids it"
            raise RefusedError(f"the twin of {topic} is not deleted: {shown.against}", hint=hint)
        if uncarried(shown.spans) and not even_uncarried:
            sentence = f"the twin of {topic} holds what this link did not carry: it may be the last copy"
            raise RefusedError(sentence, hint="save it first; --even-uncarried agrees that it is deleted too")
        if not dry_run:
            now_ms = int(time.time() * 1000)
            told = AuditRow(now_ms, one.name, "topic", topic, "", "begins again", f"agreed by {who()}")
            store.remember(
                [Followed(one.name, CONFIRMED, topic, shown.word(now_ms).to_json(), "agreed", now_ms)], [told]
            )
        word = "would begin" if dry_run else "begins"
        typer.echo(f"{one.name}: {topic} {word} again; the running mirror does it within seconds")


def _refuse_unstopped(store: Store, link: Link, topic: str) -> None:
    """Only a topic that both sides do not agree about begins again, and no mapped one."""
    from twinshore.mirror.follow.lifecycle import RECREATED

    rows = [row for row in store.incidents(link.name, open_only=True) if row.incident.kind == RECREATED]
    stopped = {row.incident.topic for row in rows}
    if topic not in stopped:
        hint = did_you_mean(topic, sorted(stopped)).removeprefix("; ") or "no topic is"
        raise ConfigError(f"topic {topic} is not stopped for being made again", hint=hint)
    if _is_mapped(store, link.name, topic):
        sentence = f"topic {topic} of {link.name} is mapped: its twin holds data of others, never deleted here"
        hint = (
            f'stop the mirror, `twinshore mirror forget {topic}`, set mapped_from = "start" for what the source '
            "has now, start the mirror again"
        )
        raise RefusedError(sentence, hint=hint)


def _is_mapped(store: Store, link: str, topic: str) -> bool:
    return any(name == topic for name, _ in store.reached(link))


def audit(settings: Path = SETTINGS, link: list[str] = LINKS, last: int = LAST, json_output: bool = JSON) -> None:
    """Prints what links changed on their targets besides records: settings, ACLs, quotas, users, twins."""
    from twinshore.store.opening import open_known

    loaded = load(settings)
    with open_known(loaded) as store:
        rows = store.audit(*(one.name for one in loaded.chosen(link)), limit=last)
    if json_output:
        typer.echo(json.dumps([asdict(row) for row in rows], indent=2))
        return
    for row in rows:
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(row.at_ms / 1000))
        change = f"{row.before or '-'} -> {row.after or '-'}"
        typer.echo(one_line(f"{when} {row.link}: {row.kind} {row.subject}: {change} ({row.outcome})"))
    if not rows:
        typer.echo("nothing has been changed besides records")


def register(app: typer.Typer) -> None:
    """Adds `audit` to the command; `begin-again` is the mirror's."""
    app.command("audit")(audit)
