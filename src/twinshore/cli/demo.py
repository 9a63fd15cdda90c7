"""`twinshore demo`: two real clusters on this machine, kept identical while a task is killed, and the proof."""

from __future__ import annotations

import signal
from pathlib import Path

import typer

KEEP = typer.Option(False, "--keep", envvar="KEEP", help="Leave all of it running, with pages that show it; as KEEP=1.")
END = typer.Option(None, "--end", help="Only stop a kept demo in this folder.")
RATE = typer.Option(6_000, "--rate", min=100, max=100_000, help="Records per second to produce.")
SECONDS = typer.Option(
    12.0, "--seconds", min=2, max=3600, help="Seconds of replication before the kill, and again after it."
)


def register(app: typer.Typer) -> None:
    app.command("demo")(demo)


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
