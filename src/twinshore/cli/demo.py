"""`twinshore demo`: two real clusters on this machine, kept identical while a task is killed, and the proof."""

from __future__ import annotations

import signal
from pathlib import Path

import typer

KEEP = typer.Option(False, "--keep", envvar="KEEP", help="Leave clusters and mirror running; KEEP=1 does the same.")
END = typer.Option(None, "--end", help="End what a demo that was kept left running in this folder; do nothing else.")
RATE = typer.Option(6_000, "--rate", min=100, max=100_000, help="Records per second that the producer writes.")
SECONDS = typer.Option(
    12.0, "--seconds", min=2, max=3600, help="How long to carry before the kill, and again after it."
)


def register(app: typer.Typer) -> None:
    app.command("demo")(demo)


def demo(rate: int = RATE, seconds: float = SECONDS, keep: bool = KEEP, end: Path | None = END) -> None:
    """Shows the mirror at work: two real clusters, a producer, a kill -9 in the middle, a comparison at the end."""
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
