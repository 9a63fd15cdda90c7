"""`twinshore incidents` and `twinshore audit`: the incident log, and the log of changes."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import typer

from twinshore.cli.app import JSON, LINKS, SETTINGS, load_cli_settings, print_page

LAST = typer.Option(50, "--last", min=1, max=10_000, help="How many rows, newest first.")
BEFORE = typer.Option(0, "--before", min=0, help="Only rows older than the one with this id.")
KIND = typer.Option("", "--kind", help='Only this kind, such as "stale dropped".')
TOPIC = typer.Option("", "--topic", help="Only what is about this topic of the source.")
OPEN = typer.Option(False, "--open", help="Only what is open.")
CHANGES = typer.Option(50, "--last", min=1, max=10_000, help="How many changes, newest first.")
BEFORE_CHANGE = typer.Option(0, "--before", min=0, help="Only changes older than the one with this id.")
BY = typer.Option("", "--by", help='Only what this operator did, or "the mirror" by itself.')
KIND_OF_CHANGE = typer.Option(
    "", "--kind", help='Only this kind, such as acl, twin, control, group or "topic setting".'
)
CHANGED = typer.Option("", "--topic", help="Only what is about this topic, as it is called where it was changed.")
GROUP = typer.Option("", "--group", help="Only what is about this consumer group.")


def incidents(
    settings: Path = SETTINGS,
    link: list[str] = LINKS,
    last: int = LAST,
    before: int = BEFORE,
    kind: str = KIND,
    topic: str = TOPIC,
    open_only: bool = OPEN,
    json_output: bool = JSON,
) -> None:
    """Prints the ledger: what made twins differ from their sources, with its offsets, also what is over.

    To see older rows than --last shows, give the id of the last row to --before.
    """
    from twinshore.replication.operations.incident_admin import IncidentRequest, describe_incident, incident_values
    from twinshore.replication.operations.incident_admin import list_incidents as found
    from twinshore.state.opening import open_existing

    loaded = load_cli_settings(settings)
    with open_existing(loaded) as store:
        rows = found(IncidentRequest(link, kind, topic, open_only, before), loaded, store, last=last + 1)
    if json_output:
        typer.echo(json.dumps([incident_values(row) for row in rows[:last]], indent=2))
        return
    narrowed = link or kind or topic or open_only or before
    none = "nothing of that is in the ledger" if narrowed else "the ledger is empty"
    print_page(rows, describe_incident, last=last, none=none)


def audit(
    settings: Path = SETTINGS,
    link: list[str] = LINKS,
    last: int = CHANGES,
    before: int = BEFORE_CHANGE,
    by: str = BY,
    kind: str = KIND_OF_CHANGE,
    topic: str = CHANGED,
    group: str = GROUP,
    json_output: bool = JSON,
) -> None:
    """Prints what links changed on their targets besides records.

    These are settings, ACLs, quotas, users, and twins that were deleted. It also prints what operators changed for
    links, topics and groups. To see older rows than --last shows, give the id of the last row to --before.
    """
    from twinshore.replication.operations.begin_again import AuditRequest, describe_change, read_audit
    from twinshore.state.opening import open_existing

    loaded = load_cli_settings(settings)
    with open_existing(loaded) as store:
        rows = read_audit(AuditRequest(link, kind, by, topic, group, before), loaded, store, last=last + 1)
    if json_output:
        typer.echo(json.dumps([asdict(row) for row in rows[:last]], indent=2))
        return
    print_page(rows, describe_change, last=last, none="nothing has been changed besides records")


def register(app: typer.Typer) -> None:
    app.command("audit")(audit)
    app.command("incidents")(incidents)
