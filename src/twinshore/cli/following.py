"""`twinshore mirror begin-again` and `twinshore audit`: agreeing to what follows, and reading what has followed."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from twinshore.cli.looking import JSON, LINKS, SETTINGS, chosen, load, open_known
from twinshore.fleet import ConfigError, RefusedError
from twinshore.fleet.settings_edge import did_you_mean

if TYPE_CHECKING:
    from twinshore.store import Store

DRY_RUN = typer.Option(False, "--dry-run", help="Only say what would be agreed to.")
LAST = typer.Option(50, "--last", min=1, max=10_000, help="How many changes, newest first.")


def begin_again(
    topic: str = typer.Argument(help="The topic of the source that was made again, or whose twin was deleted."),
    settings: Path = SETTINGS,
    link: list[str] = LINKS,
    dry_run: bool = DRY_RUN,
) -> None:
    """Agrees that a topic begins again: the running mirror deletes its old twin, with all it holds, and makes a new.

    Only a topic that is stopped for it can begin again; the ledger names the offsets that its old twin holds. Refused
    for a mapped topic, whose twin holds data of others and is never deleted.
    """
    from twinshore.mirror.follow.lifecycle import CONFIRMED, RECREATED
    from twinshore.store import Followed

    loaded = load(settings)
    with open_known(loaded) as store:
        stopped: set[str] = set()
        agreed = 0
        mapped: list[str] = []
        for one in chosen(loaded, link):
            rows = [row for row in store.incidents(one.name, open_only=True) if row.incident.kind == RECREATED]
            stopped |= {row.incident.topic for row in rows}
            if any(row.incident.topic == topic for row in rows) and _is_mapped(store, one.name, topic):
                mapped.append(one.name)
                continue
            for row in [row for row in rows if row.incident.topic == topic]:
                agreed += 1
                typer.echo(f"{one.name}: {row.incident.sentence}")
                if not dry_run:
                    now_ms = int(time.time() * 1000)
                    store.remember([Followed(one.name, CONFIRMED, topic, "", "agreed", now_ms)])
                word = "would begin" if dry_run else "begins"
                typer.echo(f"{one.name}: {topic} {word} again; the running mirror does it within seconds")
        if mapped:
            sentence = (
                f"topic {topic} of {', '.join(mapped)} is mapped: its twin holds data of others, never deleted here"
            )
            hint = (
                f'stop the mirror, `twinshore mirror forget {topic}`, set mapped_from = "start" for what the source '
                "has now, start the mirror again"
            )
            raise RefusedError(sentence, hint=hint)
        if not agreed:
            hint = did_you_mean(topic, sorted(stopped)).removeprefix("; ") or "no topic is"
            raise ConfigError(f"topic {topic} is not stopped for being made again", hint=hint)


def _is_mapped(store: Store, link: str, topic: str) -> bool:
    return any(name == topic for name, _ in store.reached(link))


def audit(settings: Path = SETTINGS, link: list[str] = LINKS, last: int = LAST, json_output: bool = JSON) -> None:
    """Prints what links changed on their targets besides records: settings, ACLs, quotas, users, twins."""
    loaded = load(settings)
    with open_known(loaded) as store:
        rows = store.audit(*(one.name for one in chosen(loaded, link)), limit=last)
    if json_output:
        typer.echo(json.dumps([asdict(row) for row in rows], indent=2))
        return
    for row in rows:
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(row.at_ms / 1000))
        change = f"{row.before or '-'} -> {row.after or '-'}"
        typer.echo(f"{when} {row.link}: {row.kind} {row.subject}: {change} ({row.outcome})")
    if not rows:
        typer.echo("nothing has been changed besides records")


def register(app: typer.Typer) -> None:
    """Adds `audit` to the command; `begin-again` is the mirror's."""
    app.command("audit")(audit)
