"""`twinshore completion`: what a shell needs to complete verbs and options."""

from __future__ import annotations

from enum import StrEnum

import typer


class Shell(StrEnum):
    """The shells for which there is a script."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


SHELL = typer.Argument(help="bash, zsh or fish.")


def register(app: typer.Typer) -> None:
    """Adds the verb to the command."""
    app.command("completion")(completion)


def completion(shell: Shell = SHELL) -> None:
    """Prints the script with which this shell completes verbs and options, drawn from the command itself."""
    from typer._completion_shared import get_completion_script

    typer.echo(get_completion_script(prog_name="twinshore", complete_var="_TWINSHORE_COMPLETE", shell=shell.value))
