"""`twinshore spool`: records that a producer of the client library keeps on disk, for use without that producer."""

from __future__ import annotations

from pathlib import Path

import typer

from twinshore.cli import options
from twinshore.cli.app import load_settings_file, print_result, run_steps

FOLDER = typer.Argument(help="The `spool` folder of a FailoverProducer.", metavar="DIR")
TOPIC = typer.Option(..., "--topic", help="The topic.")
PAST_DAMAGE = typer.Option(False, "--past-damage", help="Skip what cannot be read, and continue with the rest.")
WITHIN_S = typer.Option(60.0, "--within-s", help="Timeout in seconds until brokers have acknowledged all records.")
YES = typer.Option(False, "--yes", help="Delete; without it, only show what would be deleted.")


def register(app: typer.Typer) -> None:
    spool = typer.Typer(help="Records that producers of the client library keep on disk.", no_args_is_help=True)
    options.add_verbs(spool, show, send, drop)
    app.add_typer(spool, name="spool")


def show(folder: Path = FOLDER, json_output: bool = options.JSON) -> None:
    """Shows each topic's unsent records, since when, and what is damaged. Changes nothing.

    The producer may run. Exit code 1: records are lost, because bytes on disk cannot be read.
    """
    from twinshore.client.spool_admin import inspect_spool

    report = inspect_spool(folder)
    print_result(report.as_values(), report.sentences(), as_json=json_output)
    raise typer.Exit(1 if report.damage else 0)


def send(
    folder: Path = FOLDER,
    settings: Path = options.SETTINGS,
    topics: list[str] = options.TOPICS,
    first: str = typer.Option("", "--first", help="The cluster for topics whose home no cluster knows."),
    past_damage: bool = PAST_DAMAGE,
    within_s: float = WITHIN_S,
    dry_run: bool = options.DRY_RUN,
) -> None:
    """Sends the records to the clusters of the settings, each topic to its home, in order.

    Use it if the producer does not come back; otherwise the producer sends them. Acknowledged records are marked, so
    you can stop and repeat it. Refused while a producer has the folder.
    """
    from twinshore.client import spool_admin as operations

    clusters = load_settings_file(settings).clusters
    spool = operations.SendSpool(folder, topics, first, past_damage)
    plan = operations.plan_send(spool, clusters)
    doing = operations.send_spool(plan, spool, clusters, within_s=within_s)
    run_steps(plan, doing, dry_run=dry_run)


def drop(folder: Path = FOLDER, topic: str = TOPIC, past_damage: bool = PAST_DAMAGE, yes: bool = YES) -> None:
    """Deletes a topic's records: they reach no cluster.

    Without --yes, only shows what it would delete. Refused while a producer has the folder.
    """
    from twinshore.client import spool_admin as operations

    drop_topic = operations.DropTopic(folder, topic, past_damage)
    plan = operations.plan_drop(drop_topic)
    run_steps(plan, operations.drop_topic(plan, drop_topic), dry_run=not yes)
