"""The command's root: gathers the verbs and turns TwinshoreError into a sentence."""

from __future__ import annotations

import functools
import importlib
import sys

import typer

from twinshore import __version__
from twinshore.fleet import TwinshoreError
from twinshore.service.signals import interruptible

VERBS = ("lab", "mirror", "status", "topology", "link", "groups", "prove", "demo", "following", "migrate", "delay")

app = typer.Typer(name="twinshore", help="Keeps Kafka clusters identical, offset by offset.", no_args_is_help=True)


@app.callback(invoke_without_command=True)
def root(version: bool = typer.Option(False, "--version", help="Print the version and exit.")) -> None:
    """Keeps Kafka clusters identical, offset by offset."""
    if version:
        typer.echo(__version__)
        raise typer.Exit


@functools.cache
def gather() -> None:
    """Adds every verb to `app`, once."""
    for verb in VERBS:
        importlib.import_module(f"twinshore.cli.{verb}").register(app)


def main() -> None:
    """What the `twinshore` command does, once Ctrl-C is heard."""
    gather()
    command = typer.main.get_command(app)  # It takes a while too.
    interruptible()
    try:
        command()
    except TwinshoreError as error:
        typer.echo(f"error: {error.message}", err=True)
        if error.hint:
            typer.echo(f"  try: {error.hint}", err=True)
        sys.exit(2)
