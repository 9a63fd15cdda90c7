"""`twinshore lab up|fill|stop|start|down|status`: real Kafka clusters on this machine, until told to stop. `twinshore
demo`: two of them, kept identical while a task is killed, and the proof.
"""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

import typer

from twinshore.cli import options
from twinshore.cli.app import print_result

DIR = typer.Option(None, "--dir", help="Folder of the clusters; default: in Twinshore's cache.")
NAMED = typer.Argument(help="Names of clusters that `lab up` started.", metavar="CLUSTER...")
ONLY = typer.Option("", "--clusters", help="Only these clusters, separated by commas.")
RECORDS = typer.Option(10_000, "--records", min=0, max=100_000_000, help="Number of records; 0: only create the topic.")


def register(app: typer.Typer) -> None:
    lab = typer.Typer(help="Real Kafka clusters on this machine, for experiments.", no_args_is_help=True)
    options.add_verbs(lab, up, fill, stop, start, down, status)
    app.add_typer(lab, name="lab")
    options.add_verbs(app, demo)


def up(
    clusters: str = typer.Option("east,west", "--clusters", help="Cluster names, separated by commas."),
    brokers: int = typer.Option(1, "--brokers", help="Brokers per cluster: 1 or 3."),
    version: str = typer.Option("", "--version", help="Kafka version; default: the newest tested one."),
    dir: Path | None = DIR,
    as_json: bool = options.JSON,
    dry_run: bool = options.DRY_RUN,
) -> None:
    """Starts clusters in the background; running ones stay as they are.

    Prints settings that replicate the first to the second, ready for a file: `twinshore lab up > twinshore.toml`.
    """
    from twinshore.lab.background_clusters import bring_up, default_folder, settings_snippet
    from twinshore.lab.jars import KAFKA_NEWEST

    stand = bring_up(
        dir or default_folder(),
        _names(clusters),
        brokers=brokers,
        version=version or KAFKA_NEWEST,
        tell=_tell,
        dry_run=dry_run,
    )
    if as_json:
        typer.echo(json.dumps([cluster.as_json() for cluster in stand], indent=2))
    elif not dry_run:
        for cluster in stand:
            typer.echo(f"# {cluster.name}: {','.join(cluster.bootstrap)}")
        typer.echo("\n# settings, for twinshore.toml")
        typer.echo(settings_snippet(stand))


def fill(
    cluster: str = typer.Option("east", "--cluster", help="The cluster to write to."),
    topic: str = typer.Option("orders", "--topic", help="The topic; created if missing."),
    records: int = RECORDS,
    partitions: int = typer.Option(4, "--partitions", min=1, max=1_000, help="Partitions of a new topic."),
    dir: Path | None = DIR,
) -> None:
    """Appends records to a topic of a lab cluster."""
    from twinshore.config.errors import ConfigError
    from twinshore.config.model import Cluster
    from twinshore.config.sentences import count_phrase
    from twinshore.lab.background_clusters import default_folder, list_background_clusters
    from twinshore.lab.produce import fill_topic as append

    stand = {one.name: one for one in list_background_clusters(dir or default_folder())}
    if cluster not in stand or stand[cluster].state != "up":
        there = ", ".join(name for name, one in stand.items() if one.state == "up") or "none"
        hint = "start one with `twinshore lab up`"
        if cluster in stand:
            hint = f"start it with `twinshore lab start {cluster}`"
        elif there != "none":
            hint = "name one of them with --cluster"
        raise ConfigError("cli.cluster-not-up", cluster=cluster, up=there, hint=hint)
    found = append(Cluster(cluster, stand[cluster].bootstrap), topic, records=records, partitions=partitions)
    said = f"{count_phrase(records, 'record')} appended to {topic}, which has" if records else f"{topic} has"
    typer.echo(f"{cluster}: {said} {count_phrase(found, 'partition')}")


def stop(clusters: list[str] = NAMED, dir: Path | None = DIR, dry_run: bool = options.DRY_RUN) -> None:
    """Kills the clusters' brokers, like a power failure. Their data and addresses stay."""
    from twinshore.lab.background_clusters import default_folder, kill_clusters

    if not kill_clusters(dir or default_folder(), clusters, tell=_tell, dry_run=dry_run):
        typer.echo("none of them runs")


def start(clusters: list[str] = NAMED, dir: Path | None = DIR, dry_run: bool = options.DRY_RUN) -> None:
    """Restarts stopped or dead brokers with their data."""
    from twinshore.lab.background_clusters import default_folder, restart_clusters

    if not restart_clusters(dir or default_folder(), clusters, tell=_tell, dry_run=dry_run):
        typer.echo("all of them are up")


def down(
    clusters: str = ONLY, dir: Path | None = DIR, as_json: bool = options.JSON, dry_run: bool = options.DRY_RUN
) -> None:
    """Stops the clusters and deletes their data. No error if there are none."""
    from twinshore.lab.background_clusters import bring_down, default_folder

    ended = bring_down(dir or default_folder(), _names(clusters), tell=_tell, dry_run=dry_run)
    print_result({"ended": ended}, (), as_json=as_json, none="" if ended else "no clusters are up")


def status(dir: Path | None = DIR, as_json: bool = options.JSON) -> None:
    """Shows the started clusters, and whether their brokers are alive."""
    from twinshore.lab.background_clusters import default_folder, list_background_clusters

    stand = list_background_clusters(dir or default_folder())
    lines = []
    for cluster in stand:
        pids = " ".join(f"{broker.node_id}:{broker.pid if broker.alive else 'dead'}" for broker in cluster.brokers)
        lines.append(
            f"{cluster.name}  {cluster.state}  Kafka {cluster.version or '?'}  {','.join(cluster.bootstrap)} "
            f" brokers {pids}"
        )
    none = "no clusters are up; `twinshore lab up` starts two"
    print_result([cluster.as_json() for cluster in stand], lines, as_json=as_json, none=none, indent=2)


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _tell(sentence: str) -> None:
    print(sentence, file=sys.stderr, flush=True)


KEEP = typer.Option(False, "--keep", envvar="KEEP", help="Leave all of it running, with pages that show it; as KEEP=1.")
END = typer.Option(None, "--end", help="Only stop a kept demo in this folder.")
RATE = typer.Option(6_000, "--rate", min=100, max=100_000, help="Records per second to produce.")
SECONDS = typer.Option(
    12.0, "--seconds", min=2, max=3600, help="Seconds of replication before the kill, and again after it."
)


def demo(rate: int = RATE, seconds: float = SECONDS, keep: bool = KEEP, end: Path | None = END) -> None:
    """Demonstrates the mirror: two real clusters, a producer, a kill -9, and a comparison at the end."""
    from twinshore.lab.demo_run import DemoPlan, run_demo
    from twinshore.lab.demo_stage import end_kept

    if end is not None:
        typer.echo(f"ended {end_kept(end)} processes; {end} is gone")
        return
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _interrupt)
    outcome = run_demo(DemoPlan(records_per_s=rate, carry_s=seconds, keep=keep), typer.echo)
    if outcome.difference:
        typer.echo(f"demo: different: {outcome.difference}")
        raise typer.Exit(1)
    typer.echo(f"demo: identical, {outcome.records} records, {outcome.partitions} partitions")


def _interrupt(_number: int, _frame: object) -> None:
    """SIGTERM ends the demo like Ctrl-C, with nothing left running."""
    raise KeyboardInterrupt
