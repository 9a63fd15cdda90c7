"""`twinshore spool`: records that a producer of the client library keeps on disk, for use without that producer."""

from __future__ import annotations

from pathlib import Path

import typer

from twinshore.cli.app import JSON, SETTINGS, load_settings_file, print_result, run_steps

FOLDER = typer.Argument(help="The folder that a FailoverProducer has as `spool`.", metavar="DIR")
TOPICS = typer.Option([], "--topic", help="Only this topic, whole name; may be given several times.")
TOPIC = typer.Option(..., "--topic", help="The topic, whole name.")
FIRST = typer.Option("", "--first", help="Where topics go of which no cluster says where they are at home.")
PAST_DAMAGE = typer.Option(False, "--past-damage", help="Give up what cannot be read, and go on with the rest.")
WITHIN_S = typer.Option(60.0, "--within-s", help="How long brokers may take to acknowledge all of it.")
DRY_RUN = typer.Option(False, "--dry-run", help="Only say what would be sent.")
YES = typer.Option(False, "--yes", help="Drop it; without, only say what would be dropped.")


def register(app: typer.Typer) -> None:
    spool = typer.Typer(help="What producers of the client library have kept on a disk.", no_args_is_help=True)
    for verb in (show, send, drop):
        spool.command(verb.__name__)(verb)
    app.add_typer(spool, name="spool")


def show(folder: Path = FOLDER, json_output: bool = JSON) -> None:
    """Shows what of each topic is to be sent, since when, and what is damaged. Changes nothing.

    Its producer may run at the same time. Exit code 1: records are lost, because bytes that were on the disk cannot be
    read.
    """
    from twinshore.client.spool.admin import inspect_spool

    seen = inspect_spool(folder)
    print_result(seen.as_values(), seen.sentences(), as_json=json_output)
    raise typer.Exit(1 if seen.damage else 0)


def send(
    folder: Path = FOLDER,
    settings: Path = SETTINGS,
    topics: list[str] = TOPICS,
    first: str = FIRST,
    past_damage: bool = PAST_DAMAGE,
    within_s: float = WITHIN_S,
    dry_run: bool = DRY_RUN,
) -> None:
    """Sends what is there to the clusters of the settings, each topic to its home, in order.

    For a producer that does not come back; one that does sends it by itself. What brokers acknowledge is marked, so it
    may be stopped and run again. Refused while a producer has the folder.
    """
    from twinshore.client.spool import admin as operations

    clusters = load_settings_file(settings).clusters
    asked = operations.SendSpool(folder, topics, first, past_damage)
    planned = operations.plan_send(asked, clusters)
    doing = operations.send_spool(planned, asked, clusters, within_s=within_s)
    run_steps(planned, doing, dry_run=dry_run)


def drop(folder: Path = FOLDER, topic: str = TOPIC, past_damage: bool = PAST_DAMAGE, yes: bool = YES) -> None:
    """Deletes what is there of a topic: these records reach no cluster.

    Says without --yes what it would delete. Refused while a producer has the folder.
    """
    from twinshore.client.spool import admin as operations

    asked = operations.DropTopic(folder, topic, past_damage)
    planned = operations.plan_drop(asked)
    run_steps(planned, operations.drop_topic(planned, asked), dry_run=not yes)
