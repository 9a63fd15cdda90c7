"""`twinshore incidents` and `twinshore audit`: the incident log, and the log of changes."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import typer

from twinshore.cli import options
from twinshore.cli.app import existing_store, print_page


def incidents(
    settings: Path = options.SETTINGS,
    link: list[str] = options.LINKS,
    last: int = options.LAST,
    before: int = options.BEFORE,
    kind: str = typer.Option("", "--kind", help='Only this kind, such as "stale dropped".'),
    topic: str = typer.Option("", "--topic", help="Only this source topic."),
    open_only: bool = typer.Option(False, "--open", help="Only open incidents."),
    json_output: bool = options.JSON,
) -> None:
    """Shows the incident log: what made twins differ from their sources, with offsets; also closed incidents.

    For older entries, give the last id to --before.
    """
    from twinshore.replication.operations.incident_admin import describe_incident, incident_values
    from twinshore.replication.operations.incident_admin import list_incidents as found

    with existing_store(settings) as (loaded, store):
        rows = found(link, loaded, store, kind=kind, topic=topic, open_only=open_only, before=before, last=last + 1)
    narrowed = link or kind or topic or open_only or before
    none = "the incident log has no such entry" if narrowed else "the incident log is empty"
    print_page(rows, describe_incident, incident_values, last=last, none=none, as_json=json_output)


def audit(
    settings: Path = options.SETTINGS,
    link: list[str] = options.LINKS,
    last: int = options.LAST,
    before: int = options.BEFORE,
    by: str = typer.Option("", "--by", help='Only changes by this operator, or by "the mirror".'),
    kind: str = typer.Option(
        "", "--kind", help='Only this kind, such as acl, twin, control, group or "topic setting".'
    ),
    topic: str = typer.Option("", "--topic", help="Only this topic, by its name on the changed cluster."),
    group: str = typer.Option("", "--group", help="Only this consumer group."),
    json_output: bool = options.JSON,
) -> None:
    """Shows what links changed on their targets besides records: settings, ACLs, quotas, users, deleted twins.

    Also shows what operators changed for links, topics and groups. For older changes, give the last id to --before.
    """
    from twinshore.replication.operations.twins import describe_change, read_audit
    from twinshore.state.log import AuditFilter

    with existing_store(settings) as (loaded, store):
        wanted = AuditFilter(tuple(link), kind, by, topic, group, before)
        rows = read_audit(wanted, loaded, store, last=last + 1)
    none = "nothing has been changed besides records"
    print_page(rows, describe_change, asdict, last=last, none=none, as_json=json_output)


def register(app: typer.Typer) -> None:
    options.add_verbs(app, audit, incidents)
