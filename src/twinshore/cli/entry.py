"""The command's root: gathers the verbs and turns TwinshoreError into a sentence."""

from __future__ import annotations

import functools
import importlib
import sys
import traceback
from enum import StrEnum

import typer

from twinshore import __version__
from twinshore.fleet import TwinshoreError
from twinshore.service.signals import interruptible, say_interrupted

VERBS = (
    "lab",
    "mirror",
    "status",
    "topology",
    "link",
    "groups",
    "switch",
    "prove",
    "demo",
    "incidents",
    "migrate",
    "delay",
    "advise",
    "simulate",
    "spool",
    "push",
    "proxy",
)

# What a script may rely on. A verb that says more with a code of its own says so in its help.
EXIT_CODES = {
    0: "done, or well: also a mirror that was stopped in good order",
    1: "done, and the answer is no: sides differ, an alarm stands, a place was refused, something was found",
    2: (
        "not done, as it says, or a wrong option; of `prove`, `delay check`, `advise`,"
        " `proxy conduct` and `simulate explore`: cannot tell"
    ),
    70: "a mistake of Twinshore's own: what was being done stands above the last line; please report it",
    130: "ended by Ctrl-C before it was done",
    143: "ended by SIGTERM before it was done",
}
OWN_MISTAKE = 70
SHELL = typer.Argument(help="bash, zsh or fish.")
ENDS = (
    "Exit codes: 0 well; 1 done, and the answer is no; 2 not done, or cannot tell; 70 a mistake of Twinshore's own;"
    " 130, 143 stopped by a signal."
)

app = typer.Typer(
    name="twinshore",
    help="Keeps Kafka clusters identical, offset by offset.",
    no_args_is_help=True,
    epilog=ENDS,
)


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
    app.command("completion")(completion)


class Shell(StrEnum):
    """The shells for which there is a script."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(shell: Shell = SHELL) -> None:
    """Prints the script with which this shell completes verbs and options, drawn from the command itself."""
    from typer._completion_shared import get_completion_script

    typer.echo(get_completion_script(prog_name="twinshore", complete_var="_TWINSHORE_COMPLETE", shell=shell.value))


def interrupt_of(ended: BaseException) -> KeyboardInterrupt | None:
    """The Ctrl-C that has ended it, with what the verb says of what it leaves; a verb that hears it and ends in good
    order says so itself."""
    before = ended.__cause__ or ended.__context__
    if before is None or isinstance(before, KeyboardInterrupt):
        return before
    return interrupt_of(before)


def main() -> None:
    """What the `twinshore` command does, once Ctrl-C is heard."""
    from twinshore.cli.examples import command

    whole = command()  # It takes a while too.
    interruptible()
    try:
        whole()
    except SystemExit as ended:
        if interrupt := interrupt_of(ended):
            say_interrupted(*interrupt.args)
        raise
    except TwinshoreError as error:
        typer.echo(f"error: {error.message}", err=True)
        if error.hint:
            typer.echo(f"  try: {error.hint}", err=True)
        sys.exit(2)
    except Exception:
        # Python's own code for it is 1, which scripts take for an answer.
        traceback.print_exc()
        typer.echo(
            "error: this is a mistake of Twinshore's own; docs/troubleshooting.md says how to report it", err=True
        )
        sys.exit(OWN_MISTAKE)
